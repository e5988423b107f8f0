"""What people see in Slack, as text for a terminal."""

from collections.abc import Iterator
from datetime import UTC, timedelta, tzinfo
from typing import Final, TextIO

from sandbox import mrkdwn
from sandbox.block_kit import Json
from sandbox.form import Field, elements
from sandbox.slack_objects import Event, Message, User, View
from sandbox.workspace import Workspace

_INDENT: Final = "    "
_EMPTY: Final = "________"


def render(message: Message, workspace: Workspace, zone: tzinfo = UTC) -> str:
    """Return the lines that show a message to a reader in ``zone``; replies are indented."""
    page = _Page(workspace, zone)
    author = workspace.users[message.user]
    head = f"{author.name}  {message.sent_at.astimezone(zone):%H:%M}"
    if message.is_from_bot:
        head += "  APP"
    if message.visible_to:
        head += "  (Only visible to you)"
    body = page.blocks(message.blocks) or page.text(message.text)
    body += [f"[file: {each['title']}]" for each in message.files]
    if message.edited:
        body[-1] += " (edited)"
    lines = [head, *(f"  {line}" for line in body)]
    return "\n".join((_INDENT if message.thread_ts else "") + line for line in lines)


def render_view(view: View, workspace: Workspace) -> str:
    """Return the lines that show a modal or a Home tab to the person who has it open."""
    page = _Page(workspace, workspace.users[view.user].zone)
    width = 48
    lines = [f"┌─ {view.title or 'Home'} ".ljust(width, "─")]
    if view.notice:
        lines.append(f"│ ! {view.notice}")
    by_block = {field.block_id: field for field in view.fields()}
    for block in view.body["blocks"]:
        if block["type"] == "input":
            shown = page.field(by_block[block["block_id"]], view)
            shown += [f"  {block['hint']['text']}"] if block.get("hint") else []
        else:
            shown = page.block(block)
        lines += [f"│ {line}" for line in shown]
        if sentence := view.errors.get(block["block_id"]):
            lines.append(f"│   ! {sentence}")
    buttons = [f"[{view.body[key]['text']}]" for key in ("close", "submit") if view.body.get(key)]
    lines.append(f"└─ {' '.join(buttons)} ".ljust(width, "─"))
    return "\n".join(lines)


class Narrator:
    """Writes the events of a workspace to ``out``, from its creation on."""

    def __init__(self, workspace: Workspace, out: TextIO | None = None) -> None:
        self._workspace = workspace
        self._out = out
        self._began = workspace.clock.now()
        self.stop = workspace.subscribe(self._write)

    def note(self, text: str) -> None:
        """Write what else has just happened."""
        since = _elapsed(self._workspace.clock.now() - self._began)
        print(f"{since} {text}\n", file=self._out, flush=True)

    def _write(self, event: Event) -> None:
        since = _elapsed(event.at - self._began)
        if event.message:
            text = self._of_message(event, event.message)
        elif event.view:
            text = self._of_view(event, event.view)
        else:
            return
        print(f"{since} {text}\n", file=self._out, flush=True)

    def _of_message(self, event: Event, message: Message) -> str:
        place = self._workspace.channel(message.channel)
        where = f"#{place.name}"
        if place.kind == "im":
            others = sorted(place.members - {self._workspace.bot.id})
            where = "DM " + " and ".join(self._workspace.users[each].name for each in others)
        if event.kind == "deleted":
            return f"{where}  a message was deleted"
        reader = self._reader(message, place.members)
        did = {"edited": "  changed to", "ephemeral": f"  shown to {reader.name}"}
        shown = render(message, self._workspace, reader.zone)
        return f"{where}{did.get(event.kind, '')}\n{shown}"

    def _of_view(self, event: Event, view: View) -> str:
        who = self._workspace.users[view.user].name
        if event.kind == "modal_closed":
            return f"{who}  the form “{view.title}” closed"
        did = {
            "modal_opened": "a form opened",
            "modal_updated": "the form changed",
            "modal_errors": "the form shows errors",
            "home_published": "the Home tab changed",
        }[event.kind]
        return f"{who}  {did}\n{render_view(view, self._workspace)}"

    def _reader(self, message: Message, members: set[str]) -> User:
        """Return who reads a message: the addressee, or any member."""
        if message.visible_to:
            return self._workspace.users[message.visible_to]
        people = sorted(members - {self._workspace.bot.id})
        return self._workspace.users[people[0]] if people else self._workspace.bot


class _Page:
    """Blocks as one reader sees them: those that the bot sends."""

    def __init__(self, workspace: Workspace, zone: tzinfo) -> None:
        self._workspace = workspace
        self._zone = zone

    def text(self, written: str) -> list[str]:
        """Return the lines of mrkdwn."""
        now = self._workspace.clock.now()
        plain = mrkdwn.as_plain(written, self._name, now, self._zone)
        return plain.splitlines() or [""]

    def blocks(self, blocks: list[Json]) -> list[str]:
        """Return the lines of all blocks."""
        return [line for block in blocks for line in self.block(block)]

    def block(self, block: Json) -> list[str]:
        """Return the lines of a block that is no input."""
        match block["type"]:
            case "section":
                shown = [each for each in (block.get("text"), *block.get("fields", [])) if each]
                lines = [line for each in shown for line in self._object(each)]
                return lines + ([self._buttons(block)] if elements(block) else [])
            case "actions":
                return [self._buttons(block)]
            case "rich_text":
                return [line for part in block["elements"] for line in self._rich(part)]
        return [self._line(block)]

    def _line(self, block: Json) -> str:
        match block:
            case {"type": "header", "text": {"text": words}}:
                return str(words).upper()
            case {"type": "divider"}:
                return "─" * 24
            case {"type": "context", "elements": parts}:
                return "  ".join(" ".join(self._object(each)) for each in parts)
        return f"[{block['type']}]"

    def field(self, field: Field, view: View) -> list[str]:
        """Return the label of a field and its value."""
        label = field.label + (" (optional)" if field.optional else "")
        value = view.values[field.block_id][field.action_id][field.key]
        values = value if isinstance(value, list) else [value]
        shown = ", ".join(self._value(each) for each in values if each)
        if field.kind in {"radio_buttons", "checkboxes"}:
            marks = [("●" if each in values else "○", each) for each in field.options()]
            shown = "  ".join(f"{mark} {each['text']['text']}" for mark, each in marks)
        lines = shown.splitlines() or [_EMPTY]
        return [label, *(f"  {line}" for line in lines)]

    def _object(self, shown: Json) -> list[str]:
        """Return the lines of a text object."""
        if shown["type"] == "mrkdwn":
            return self.text(shown["text"])
        return str(shown["text"]).splitlines()

    def _buttons(self, block: Json) -> str:
        return " ".join(f"[{_label(each)}]" for each in elements(block))

    def _value(self, value: object) -> str:
        if isinstance(value, dict):
            return str(value["text"]["text"] if "text" in value else value.get("name", ""))
        known = value in self._workspace.users or value in self._workspace.channels
        return self._name(str(value)) if known else str(value)

    def _rich(self, part: Json) -> Iterator[str]:
        inside = part["elements"]
        match part["type"]:
            case "rich_text_list":
                for number, each in enumerate(inside, 1):
                    mark = f"{number}." if part.get("style") == "ordered" else "•"
                    yield f"{mark} {self._flow(each['elements'])}"
            case "rich_text_quote":
                yield from (f"> {line}" for line in self._flow(inside).splitlines())
            case _:
                yield from self._flow(inside).splitlines()

    def _flow(self, pieces: list[Json]) -> str:
        return "".join(self._rich_piece(each) for each in pieces)

    def _rich_piece(self, piece: Json) -> str:
        match piece:
            case {"type": "channel", "channel_id": name}:
                return self._name(str(name))
            case {"type": "link", "url": link}:
                words = piece.get("text")
                return f"{words} ({link})" if words else str(link)
            case {"type": "date", "timestamp": stamp, "format": pattern}:
                return "".join(self.text(f"<!date^{stamp}^{pattern}|>"))
            case _:
                return str(piece.get("text", ""))

    def _name(self, identifier: str) -> str:
        if identifier in self._workspace.users:
            return f"@{self._workspace.users[identifier].name}"
        if identifier in self._workspace.channels:
            place = self._workspace.channels[identifier]
            return "direct message" if place.kind == "im" else f"#{place.name}"
        return f"@{identifier}"


def _label(element: Json) -> str:
    if element["type"] == "overflow":
        return f"⋯ {', '.join(each['text']['text'] for each in element['options'])}"
    shown = element.get("text") or element.get("placeholder") or {"text": element["type"]}
    return str(shown["text"])


def _elapsed(span: timedelta) -> str:
    return f"+{span.total_seconds():.1f}s"
