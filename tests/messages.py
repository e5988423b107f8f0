"""Every text that the bot can send, on one page: ``docs/messages.md``.

``python -m tests.messages`` writes it. What the renderers return is shown as a person sees it, and
the forms as a sandbox Slack got them. What has no renderer is collected from the source.
"""

import ast
import asyncio
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from bot.model import Approval, Failure, Role, Settlement, State
from bot.slack.features.forms import offer
from bot.slack.features.help import replica_help, short_help, video_help
from bot.slack.features.home import Group, limits_form
from bot.slack.features.jobs import details, found_jobs, listed, not_theirs, status_message
from bot.slack.features.replica import listed_replicas
from bot.slack.features.video import FIND_HELP, script_button
from bot.slack.views import card as bot_cards
from bot.slack.views.blocks import Json, Message
from bot.slack.views.buttons import replica_row
from bot.slack.views.card import FILE_COMMENT, file_name, redirected
from bot.slack.views.home import admin_sections, health_text, home_view, spending_modal
from bot.slack.views.question import (
    approval_request,
    made_with,
    notice_of_day,
    questions,
    training_notice,
)
from bot.slack.views.usage import limit_sentence, resets_in_form
from bot.store import (
    LIMITS,
    KnownReplica,
    Left,
    LimitChange,
    Limits,
    LimitsInForce,
    MonthSpending,
    PersonSpending,
)
from sandbox.block_kit import objects
from tests.slack import test_cards as cards
from tests.slack.test_cards import (
    ANA,
    ASKED,
    BEN,
    HOW_QUESTIONS_END,
    NAMES,
    NINE,
    OWED,
    PRESENTER,
    PRESENTERS,
    REPLICA_PRESENTER,
)
from tests.world import MEMORY, REPLICA, World

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "messages.md"
INTRO: Final = """\
# Every text of the bot

All that people can read from this bot in Slack, for reading aloud. `python -m tests.messages`
writes it from the code; a test fails if it is out of date. A message has no line twice, and none of
the one above it. In the lists at the end, an ellipsis stands for what is filled in.
"""
card: Final = partial(bot_cards.card, names=NAMES)
reply: Final = partial(bot_cards.reply, names=NAMES)
Entry: TypeAlias = tuple[str, list[str]]
"""What a text is for, and its lines."""

_PEOPLE: Final = {"U0ANA": "@ana", "U0BEN": "@ben"}
_DATES: Final = {"{ago}": "5 minutes ago", "{date_short_pretty} at {time}": "today at 9:00 AM"}
_NAME: Final = re.compile(r"Replica [A-Z2-9]{5}\b")


def plain(text: str) -> str:
    """Return Slack's mrkdwn as a reader sees it, in Markdown."""
    text = re.sub(r"<!date\^\d+\^([^|]*)\|[^>]*>", lambda date: _DATES[date[1]], text)
    text = re.sub(r"<([@#])…>", lambda mention: {"@": "@ana", "#": "#studio"}[mention[1]], text)
    text = re.sub(r"<@(\w+)>", lambda mention: _PEOPLE.get(mention[1], mention[1]), text)
    text = re.sub(r"<#\w+>", "#studio", text)
    text = re.sub(r"<https?:[^|>]*\|([^>]*)>", r"[\1]", text)
    text = re.sub(r"(?<![\w*])\*([^*\n]+)\*(?![\w*])", r"**\1**", text)
    return _NAME.sub("Replica K7M2Q", text).replace("<", "&lt;").replace(">", "&gt;")


def quoted(lines: Iterable[str]) -> list[str]:
    """Return lines as a quotation whose line ends are kept."""
    return [f"> {line}  " for line in lines]


def shown(message: Message) -> list[str]:
    """Return a message's text and its buttons."""
    return [plain(message.text), *buttons(message.blocks)]


def buttons(blocks: Iterable[Json]) -> list[str]:
    """Return the labels of buttons in a line."""
    labels = [
        _label(each) for each in objects(list(blocks)) if each.get("type") in {"button", "overflow"}
    ]
    return [" · ".join(labels)] if labels else []


def _label(element: Json) -> str:
    if element["type"] == "button":
        return f"[ {element['text']['text']} ]"
    return f"[ ⋯ {', '.join(each['text']['text'] for each in element['options'])} ]"


def confirmations(blocks: Iterable[Json]) -> Iterator[Entry]:
    """Yield what Slack asks before it reports a button."""
    for each in objects(list(blocks)):
        if (ask := each.get("confirm")) and each.get("type") == "button":
            lines = [ask[part]["text"] for part in ("title", "text")]
            choice = f"[ {ask['confirm']['text']} ] · [ {ask['deny']['text']} ]"
            yield f"*{each['text']['text']}* asks", [*lines, choice]


def view_lines(view: Json) -> list[str]:
    """Return a form, or another view, from top to bottom."""
    lines = [f"**{view['title']['text']}**"] if "title" in view else []
    for block in view["blocks"]:
        match block["type"]:
            case "input":
                lines += field_lines(block)
            case "actions":
                lines += buttons([block])
            case "divider":
                pass
            case "header":
                lines.append(f"**{block['text']['text']}**")
            case "section":
                lines.append(plain(block["text"]["text"]))
                offered = block.get("accessory", {}).get("options", ())
                lines += [" · ".join(each["text"]["text"] for each in offered)] if offered else []
            case "context":
                lines += [plain(each["text"]) for each in block["elements"]]
            case _:
                lines += [plain(line) for each in block["elements"] for line in rich_lines(each)]
    ends = [view[each]["text"] for each in ("submit", "close") if each in view]
    return [*lines, " · ".join(f"[ {each} ]" for each in ends)]


def field_lines(block: Json) -> list[str]:
    """Return a field: its label, what it shows while it is empty, its choices and its hint."""
    element = block["element"]
    label = block["label"]["text"] + (" (optional)" if block.get("optional") else "")
    inside = [element["placeholder"]["text"]] if "placeholder" in element else []
    inside += [each["text"]["text"] for each in element.get("options", ())]
    hint = [plain(block["hint"]["text"])] if "hint" in block else []
    return [f"**{label}**" + (f": _{' · '.join(inside)}_" if inside else ""), *hint]


def rich_lines(element: Json) -> list[str]:
    """Return a part of a rich text as lines."""
    if element["type"] == "rich_text_list":
        return [f"• {''.join(rich_lines(each))}" for each in element["elements"]]
    parts = []
    for each in element["elements"]:
        text = _DATES[each["format"]] if each["type"] == "date" else each["text"]
        parts.append(f"`{text}`" if each.get("style", {}).get("code") else text)
    return ["".join(parts)]


def card_entries() -> Iterator[Entry]:
    """Yield the cards of both kinds in every state."""
    for state, job in cards.CARDS.items():
        yield state.capitalize(), shown(card(job, PRESENTER, replica="Anna"))
    asked = replace(cards.job(State.UNCONFIRMED), asked=1)
    yield "The question was asked", shown(card(asked, PRESENTER, replica="Anna"))
    over = replace(cards.WELL, orphaned_ids=("v0", "v00"))
    yield "Ready three times", shown(card(over, PRESENTER, replica="Anna"))
    for why, failure in (
        ("key rejected", Failure.KEY_REJECTED),
        ("limited", Failure.UNREACHABLE),
        ("the service is down", Failure.SERVICE_DOWN),
        ("the service has trouble", Failure.SERVICE_TROUBLE),
    ):
        held = cards.job(State.QUEUED, held_by=failure, held_until=NINE)
        yield f"Waiting, {why}", shown(card(held, PRESENTER, replica="Anna"))
    unread = cards.job(State.RUNNING, held_by=Failure.UNREACHABLE, held_until=NINE)
    yield "Rendering, reads are limited", shown(card(unread, PRESENTER, replica="Anna"))
    for state, job in cards.TRAININGS.items():
        yield f"A replica: {state}", shown(card(job, REPLICA_PRESENTER))
    bad = cards.failed_job(Failure.SERVICE_FAILED, "Too dark.")
    yield "A card that was retried", shown(card(bad, PRESENTER, retry=cards.RETRY))


def reply_entries() -> Iterator[Entry]:
    """Yield the closing replies, one for each way in which a request can end."""
    yield "Ready", shown(reply(cards.WELL, PRESENTER))
    long = replace(cards.WELL, params={**cards.WELL.params, "script": "Hello. " * 600})
    text = [line[:40] for line in plain(reply(long, PRESENTER).text).splitlines()]
    yield "Ready, with a long script", text
    yield (
        "The channel refused it",
        shown(redirected(reply(cards.WELL, PRESENTER), cards.WELL, "replica-videos")),
    )
    elsewhere = replace(cards.WELL, channel="D0BEN")
    yield (
        "A conversation refused it",
        shown(redirected(reply(elsewhere, PRESENTER), elsewhere, "replica-videos")),
    )
    for state, job in cards.REPLIES.items():
        yield state.capitalize(), shown(reply(job, PRESENTERS[job.kind]))
    held_back_by = {Failure.SERVICE_DOWN, Failure.SERVICE_TROUBLE}  # and no job fails with it
    for failure in (each for each in Failure if each not in held_back_by):
        why = failure.value.replace("_", " ").capitalize()
        yield why, shown(reply(cards.failed_job(failure), PRESENTER))
    yield "The file below it", [FILE_COMMENT, file_name("Hello")]
    for each in (cards.WELL, *cards.TRAININGS.values()):
        presenter = PRESENTERS[each.kind]
        if clip := presenter.clip(each):
            name = file_name(presenter.name(each), otherwise="", ending="mp4")
            yield f"The {each.kind} below it", [clip.comment, name]


def question_entries() -> Iterator[Entry]:
    """Yield the question, asked and settled."""
    yield "Asked", shown(questions(OWED, ASKED, (), PRESENTERS, [BEN]))
    to_admins = questions(OWED, ASKED, (), PRESENTERS, [BEN], admins_first=True)
    yield "Asked, without PUBLIC_URL", shown(to_admins)
    again = replace(ASKED, asked=2)
    direct = replace(OWED, direct=True)
    yield "Asked again", shown(questions(direct, again, (), PRESENTERS, [BEN]))
    others = [
        replace(ASKED, id=str(number), params={"video_name": f"Part {number}"}) for number in (2, 3)
    ]
    asked = [(OWED, each) for each in others]
    several = questions(OWED, ASKED, asked, PRESENTERS, [BEN])
    yield "Asked about several", shown(several)
    some = [(replace(OWED, settled_as=Settlement.CANCELLED), others[0])]
    yield "One of two is cancelled", shown(questions(OWED, ASKED, some, PRESENTERS, [BEN]))
    ends = [replace(OWED, settled_as=each) for each in Settlement if each in HOW_QUESTIONS_END]
    over = [(each, replace(ASKED, id=each.settled_as or "")) for each in ends]
    yield "Nothing is open", shown(questions(*over[0], over[1:], PRESENTERS))
    yield from confirmations(several.blocks)
    for settlement in Settlement:
        if settlement not in HOW_QUESTIONS_END:
            continue
        settled = replace(OWED, settled_as=settlement, settled_by=BEN)
        yield (
            settlement.value.replace("_", " ").capitalize(),
            shown(questions(settled, ASKED, (), PRESENTERS)),
        )
    yield from confirmations(questions(OWED, ASKED, (), PRESENTERS).blocks)
    yield from confirmations(card(cards.rendering(), PRESENTER).blocks)
    waiting = cards.job(State.WAITING_FOR_APPROVAL)
    yield from confirmations(card(waiting, PRESENTER).blocks)


def command_entries() -> Iterator[Entry]:
    """Yield what the commands answer."""
    yield "`/video help`", shown(video_help("/video", "/replica"))
    yield ("Short help", shown(short_help("/video", "/replica")))
    yield "`/replica help`", shown(replica_help("/replica"))
    jobs = [cards.rendering(), cards.WELL, cards.CARDS["erased"]]
    yield "`/video list`", shown(listed(jobs, PRESENTER, "Your videos, newest first:"))
    yield "`/video find`", [FIND_HELP.format(command="/video")]
    as_script = script_button("Use as script", "find greeting")
    for what, jobs in (("", [cards.WELL]), (", without a result", [])):
        answer = found_jobs(jobs, PRESENTER, "greeting", BEN, as_script)
        yield f"`/video find greeting`{what}", shown(answer)
    known = [KnownReplica("r-anna", "Anna", default=True), KnownReplica("r-kim", "Kim")]
    yield "`/replica list`", shown(listed_replicas(known))
    well = cards.WELL
    yield "`/video status`", shown(status_message(PRESENTER, well, well.snapshot, ANA))
    yield (
        "`/video status`, not checked",
        shown(
            status_message(
                PRESENTER, cards.rendering(), None, ANA, "The video service can't be reached."
            )
        ),
    )


def refusal_entries() -> Iterator[Entry]:
    """Yield what people are told who may not do something."""
    yield "Another person's request", [plain(not_theirs(f"<@{BEN}>"))]
    reached = [
        Left(LIMITS["MAX_OPEN_PER_USER"], 0, 5, None),
        Left(LIMITS["MAX_OPEN_PER_USER"], 0, 1, None),
        Left(LIMITS["MAX_PER_USER_PER_DAY"], 0, 20, NINE + timedelta(hours=15)),
        Left(LIMITS["MAX_PER_DAY"], 0, 200, NINE + timedelta(hours=15)),
        Left(LIMITS["MAX_PER_MONTH"], 0, 2_000, NINE + timedelta(days=29, hours=15)),
    ]
    sentences = [limit_sentence(each, resets_in_form(each, None, NINE)) for each in reached]
    yield "Limits", sentences
    for about, job in (
        ("ready", cards.WELL),
        ("rendering", cards.rendering()),
        ("unconfirmed", cards.job(State.UNCONFIRMED)),
        ("waiting for approval", cards.job(State.WAITING_FOR_APPROVAL)),
    ):
        yield f"Asked for again, {about}", [plain(offer(job, PRESENTER, BEN))]


def view_entries() -> Iterator[Entry]:
    """Yield Home and the details."""
    job = replace(cards.WELL, orphaned_ids=("v0",))
    yield "Details", view_lines(details(job, PRESENTER, reader=ANA, replica="Anna"))

    def command(kind: str) -> str:
        return f"/{kind}"

    jobs = [ASKED, cards.rendering(), cards.CARDS["erased"]]
    replicas = [replica_row(KnownReplica("r-anna", "Anna"), "Anna", may_change=True)]
    made = made_with([cards.WELL, cards.rendering()], {cards.WELL.id}, PRESENTERS).blocks
    full = home_view(
        jobs,
        PRESENTERS,
        command,
        page=1,
        more=True,
        replicas=replicas,
        questions=[ASKED],
        admin=ADMIN,
        made=made,
    )
    spending = spending_modal(_SPENDING, NINE)
    yield "Spending, for an admin", view_lines(spending)
    yield "Home, for an admin", view_lines(full)
    for what, admin in (("with problems", IN_TROUBLE), ("service down", DOWN)):
        empty = home_view([], PRESENTERS, command, page=0, more=False, replicas=[], admin=admin)
        yield f"Home, {what}", view_lines(empty)
    yield "Change limits, for an admin", view_lines(limits_form(_IN_FORCE, GROUPS))


async def form_entries() -> list[Entry]:
    """Return the forms as they open."""
    entries = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        world = World(Path(folder))
        async with world.running_sandbox(), world.running_bot(MAX_SCRIPT="20000"):
            form = await world.open_form(world.ana)
            entries.append(("Create a video", view_lines(form.view.body)))
            await form.close()
            await world.ana.command("/replica", f"add {REPLICA}", "studio")
            await world.settle()
            form = await world.open_form(world.ana, "Welcome to the team!")
            for choice in ("background_url", "background_source_url"):
                await form.choose("background", choice)
                title = f"With “{choice}”"
                entries.append((title, view_lines(form.view.body)))
            await form.close()
            form = await world.open_form(world.ana, command="/replica")
            entries.append(("Train a replica", view_lines(form.view.body)))
            await form.close()
    return entries


_GAP: Final = re.compile(r"<[@#]\{\w*\}>|\{\w*\}|^:\w+: ")
_EXAMPLES: Final = {"{noun}": "video", "{command}": "/video"}


def is_on(page: str, text: str) -> bool:
    """Return whether all that is written of a text is on the page, in any case."""
    page = page.casefold()
    parts = (plain(part).strip() for line in text.splitlines() for part in _GAP.split(line))
    return all(part.casefold() in page for part in parts)


def read_aloud(text: str) -> str:
    """Return a text of the source with an example, or an ellipsis, for what is filled in."""
    return plain(re.sub(r"\{\w*\}", lambda gap: _EXAMPLES.get(gap[0], "…"), text)).strip()


def rest(page: str) -> dict[str, list[str]]:
    """Return the texts that are not on the page yet, by heading."""
    texts = {text: heading for heading, source in sources() for text in literals(source)}
    wanted = set()
    for text in sorted(texts, key=len, reverse=True):  # a short one may be a part of a longer one
        if not is_on(page, text):
            wanted.add(text)
            page += f"\n{read_aloud(text)}"
    found: dict[str, list[str]] = {}
    for text, heading in texts.items():
        if text in wanted:
            found.setdefault(heading, []).append(text)
    return found


def chapter(heading: str, entries: Iterable[Entry], seen: set[str]) -> str:
    """Return a chapter of the page.

    A message is without the lines of the one above, and is left out if all its lines were ``seen``.
    """
    parts, above = [f"## {heading}"], []
    for title, texts in entries:
        lines = [*dict.fromkeys(line for text in texts for line in text.splitlines() if line)]
        if seen.issuperset(lines):
            continue
        new = [line for line in lines if line not in above]
        parts.append("\n".join([f"{title}:", "", *quoted(new)]))
        above = lines
        seen.update(lines)
    return "\n\n".join(parts)


async def page() -> str:
    """Return the page."""
    seen: set[str] = set()
    chapters = [
        ("Cards", [*card_entries()]),
        ("Closing replies", [*reply_entries()]),
        ("Questions and confirmations", [*question_entries()]),
        ("Approval", [(name, shown(each)) for name, each in approval_messages()]),
        ("Forms", await form_entries()),
        ("Commands", [*command_entries()]),
        ("Home and details", [*view_entries()]),
        ("Limits and rights", [*refusal_entries()]),
    ]
    text = "\n\n".join([INTRO.rstrip(), *(chapter(*each, seen) for each in chapters)])
    for heading, texts in rest(text).items():
        lines = "\n".join(f"* {read_aloud(each)}" for each in texts)
        text += f"\n\n## {heading}\n\n{lines}"
    return f"{text}\n"


BOT: Final = Path(__file__).parent.parent / "bot"

_MISTAKES: Final = "Mistakes in forms"
_PRIVATE: Final = "Private answers"
_SERVICE: Final = "Reasons, where the video service gave none"
#: Modules outside ``bot/slack`` whose sentences people see, and under which heading.
_ELSEWHERE: Final = {
    "kinds/video.py": _MISTAKES,
    "kinds/replica.py": _MISTAKES,
    "links.py": _MISTAKES,
    "service/client.py": _SERVICE,
    "service/errors.py": _SERVICE,
    "service/gate.py": _SERVICE,
}
_HEADINGS: Final = {
    "features/video.py": _MISTAKES,
    "features/replica.py": _MISTAKES,
    "features/forms.py": _MISTAKES,
    "access.py": "Who may ask, and where I post",
    "views/presenters.py": "States, and what a failed training usually means",
    "views/card.py": "Further parts of messages",
    "views/failures.py": "Further parts of messages",
}
#: In ``bot/slack``: they are about Slack's API, and their words are for the log or a terminal.
_FOR_THE_LOG: Final = {
    "client.py",
    "errors.py",
    "installation.py",
    "outbox/__init__.py",
    "outbox/files.py",
    "outbox/messenger.py",
    "socket_mode.py",
    "views/blocks.py",
}
_NOT_SHOWN: Final = {"compile", "Unreadable", "debug", "info", "warning", "error", "exception"}
_NO_WORDS: Final = {
    *("Bearer {}", "a row cannot be read", "not stored for certain", "not stored", "at 0"),
    # For the log.
    *("is VIDEO_API_URL right, and reachable from here?", "is VIDEO_API_KEY right?"),
    "top up its account",
    *("it answered {}", "the connection was refused", "its name cannot be resolved (DNS)"),
    "its TLS certificate is not accepted, or it does not speak TLS",
    "the connection broke, or the answer could not be read",
}
_WORDS: Final = re.compile(r"[A-Za-z']{2,}[,:;]? [\w“(`*{]|\A[A-Z].*[.?…]\Z", re.DOTALL)
_CODE: Final = re.compile(r"\\|\(\?|[a-z]_[a-z]|\.\*|\|[a-z(]")


def literals(source: str) -> list[str]:
    """Return the texts of a module that people may see; ``{}`` stands for what is filled in."""
    tree = ast.parse(source)
    hidden: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            hidden.update(node.values)
        elif isinstance(node, ast.Call) and _called(node) in _NOT_SHOWN:
            hidden.update(ast.walk(node))
    constants = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    found = [
        (node.lineno, node.col_offset, _text(node, constants))
        for node in ast.walk(tree)
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in hidden
    ]
    texts = (text for *_, text in sorted(found))
    shown = (text for text in texts if _WORDS.search(text) and not _CODE.search(text))
    return [text for text in shown if text not in _NO_WORDS]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _text(node: ast.Constant | ast.JoinedStr, constants: Mapping[str, object]) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_part(each, constants) for each in node.values)


def _part(part: ast.expr, constants: Mapping[str, object]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    code = ast.unparse(part.value)
    if isinstance(known := constants.get(code), str):
        return known
    return next(
        (f"{{{name}}}" for name in ("noun", "command") if re.search(rf"\b{name}\b", code)), "{}"
    )


def sources() -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each module whose words people see."""
    for path in sorted((BOT / "slack").rglob("*.py")):
        name = str(path.relative_to(BOT / "slack"))
        if name not in _FOR_THE_LOG:
            yield _HEADINGS.get(name, _PRIVATE), path.read_text(encoding="utf-8")
    yield _PRIVATE, str([limit.words for limit in LIMITS.values()])
    for name, heading in _ELSEWHERE.items():
        yield heading, (BOT / name).read_text(encoding="utf-8")


_SETTINGS: Final = Limits(
    max_open_per_user=20, max_per_user_per_day=100, max_per_day=500, max_script=3000
)
_CHANGES: Final = {
    "MAX_PER_USER_PER_MONTH": LimitChange("MAX_PER_USER_PER_MONTH", "30", ANA, NINE),
    "TRAINING_USERS": LimitChange("TRAINING_USERS", f"{ANA},{BEN}", BEN, NINE),
}
_SPENDERS: Final = (
    PersonSpending(ANA, 3, 1, timedelta(minutes=4)),
    PersonSpending(BEN, 1, 0, timedelta(seconds=40)),
)
GROUPS: Final = (Group(id="S0MARKETING", name="Marketing", handle="marketing"),)
_SPENDING: Final = MonthSpending(NINE, _SPENDERS)
_IN_FORCE: Final = LimitsInForce(
    replace(_SETTINGS, max_per_user_per_month=30, training_users=frozenset({ANA, BEN})),
    _SETTINGS,
    _CHANGES,
)
ADMIN: Final = admin_sections(
    _IN_FORCE,
    _SPENDING,
    health_text(used=12, limit=500),
    past=(*_CHANGES.values(), LimitChange("MAX_SCRIPT", "3000", BEN, NINE, before="1000")),
    media_hosts="stream.example.com",
)
IN_TROUBLE: Final = admin_sections(
    LimitsInForce(_SETTINGS, _SETTINGS, {}),
    MonthSpending(NINE),
    health_text(
        used=12,
        limit=500,
        unsent=3,
        key_refused=True,
        next_try=NINE,
        slowed_down=True,
        to_approve=2,
    ),
)
DOWN: Final = admin_sections(
    LimitsInForce(_SETTINGS, _SETTINGS, {}),
    MonthSpending(NINE),
    health_text(used=12, limit=500, down_since=NINE, waiting=12),
)


def approval_messages() -> Iterator[tuple[str, Message]]:
    """Yield a request that waits for approval: its card, what approvers see, and how it ends."""
    asked = Approval(asked=("C1",), until=NINE)
    waiting = cards.job(State.WAITING_FOR_APPROVAL, approval=asked)
    yield "The card", card(waiting, PRESENTER)
    directly = replace(waiting, approval=replace(asked, asked=(BEN,)))
    yield "The card, asked directly", card(directly, PRESENTER)
    unnamed = bot_cards.card(directly, PRESENTER, names={ANA: NAMES[ANA]})
    yield "Without names", unnamed
    many = replace(waiting, approval=replace(asked, asked=(BEN, "U1", "U2")))
    yield "With many approvers", card(many, PRESENTER)
    nobody = replace(waiting, approval=replace(asked, asked=()))
    unreached = card(nobody, PRESENTER, approvers=[BEN])
    yield "Nothing could be sent", unreached
    yield "No approver is left", card(nobody, PRESENTER)
    owed = replace(OWED, role=Role.APPROVAL, number=0)
    request = approval_request(owed, waiting, PRESENTER, [BEN], replica="Anna")
    yield "For approvers", request
    again = replace(waiting, attempts=1)
    yield (
        "Create again, for approvers",
        approval_request(owed, again, PRESENTER, [BEN], replica="Anna"),
    )
    yield "Create again, on the card", card(again, PRESENTER)
    copied = approval_request(owed, replace(waiting, copied=True), PRESENTER, [BEN])
    yield "After a backup was restored", copied
    decided = replace(asked, decided_by=BEN, decided_at=NINE)
    over = {}
    for settlement, failure in (
        (Settlement.APPROVED, None),
        (Settlement.DECLINED, Failure.DECLINED),
        (Settlement.CANCELLED, Failure.WITHDRAWN),
        (Settlement.UNANSWERED, Failure.NOT_APPROVED),
        (Settlement.TURNED_UP, None),
    ):
        reason = "Please shorten it." if failure is Failure.DECLINED else ""
        settled = replace(owed, settled_as=settlement, settled_by=BEN)
        by_nobody = settlement is Settlement.UNANSWERED
        ended = replace(waiting, approval=asked if by_nobody else decided, reason=reason)
        name = settlement.value.capitalize().replace("_", " ")
        yield f"{name}, for approvers", approval_request(settled, ended, PRESENTER)
        if failure is not None:
            over[name] = replace(ended, state=State.FAILED, failure=failure)
    for name, ended in over.items():
        yield f"{name}, on the card", card(ended, PRESENTER)
    for name, ended in over.items():
        yield f"{name}, in the closing reply", reply(ended, PRESENTER)
    of_owner = replace(directly, user=ANA, owner=BEN, asks_owner=True)
    notice = approval_request(
        replace(owed, direct=True, addressee=BEN), of_owner, PRESENTER, replica="Anna"
    )
    yield "For an owner", notice
    made = notice_of_day([cards.WELL, cards.rendering()], {cards.WELL.id}, PRESENTERS)
    yield "For an owner, once a day", made
    yield "For the person in the footage", training_notice(cards.rendering(), "Ben, office")
    yield "Approved, on the card", card(replace(cards.WELL, approval=decided), PRESENTER)


if __name__ == "__main__":
    PAGE.write_text(asyncio.run(page()), encoding="utf-8")
