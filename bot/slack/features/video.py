"""The /video command, the shortcuts and the create form: opening, type-ahead, submission, retry."""

import html
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.response import BoltResponse

from bot.kinds import Invalid
from bot.kinds.video import BACKGROUNDS, MAX_NAME, VIDEO, fingerprint, is_replica_id, parse
from bot.model import Job, Verdict, spoken_time
from bot.setting_values import MAX_BOX
from bot.slack.context import (
    UNKNOWN_JOB,
    Feature,
    HandlerContext,
    Refusal,
    Said,
    answer_command,
    answer_form,
    answer_interaction,
    kept_left,
    missing_id,
    register_clicks,
    updated,
)
from bot.slack.features.forms import (
    MAKE_ANOTHER,
    TELL_CHANNEL,
    FileUnavailable,
    Metadata,
    check_used,
    drawn_fields,
    filled_again,
    fits_in_metadata,
    form,
    is_of_other_version,
    link_field,
    metadata_of,
    note_of,
    of_this_version,
    read_script,
    readable_metadata,
    replica_label,
    retention_note,
    submit_job,
    takes_files,
    text_field,
    where_field,
)
from bot.slack.features.help import video_help
from bot.slack.features.jobs import (
    find_job,
    find_made,
    list_jobs,
    open_retry,
    show_status,
)
from bot.slack.payloads import (
    BlockAction,
    OptionsRequest,
    ShortcutPayload,
    SlashCommand,
    View,
    ViewSubmission,
)
from bot.slack.views.blocks import (
    MAX_QUOTES,
    Json,
    Message,
    actions,
    brief,
    button,
    cut,
    element,
    escape,
    field,
    joined,
    option,
    pieces,
    quotes,
    section,
    spoken,
)
from bot.slack.views.buttons import RETRY
from bot.slack.views.presenters import ANOTHER, MAKE_VIDEO, VideoPresenter
from bot.slack.views.usage import too_long
from bot.store import KnownReplica
from bot.timings import deadline

_KIND: Final = "video"
_MAX_OPTIONS: Final = 100
_SUBCOMMANDS: Final = ("list", "status", "help")
_USE_AS_SCRIPT: Final = "use_as_script"
FIND_HELP: Final = "Add words from a video's name or script: `{command} find onboarding`."
CALLBACK_ID: Final = "create_video"
REPLICA: Final = "video_replica"
BACKGROUND: Final = "video_background"
_MAX_CACHED_OPTIONS: Final = 10_000
_MINUTE: Final = timedelta(minutes=1)
_CHOICES: Final = {
    "none": "No background",
    "background_url": "A web page",
    "background_source_url": "A video file",
}
LINK_FIELDS: Final = {
    "background_url": ("Web page link", "Anyone must be able to open it."),
    "background_source_url": (
        "Direct link to the video file",
        "Anyone must be able to download it for 24 hours.",
    ),
}
_FIELDS: Final = frozenset({"replica_id", "script", "video_name", "background", "where"})
_MORE_BOXES: Final = tuple(f"script_{number}" for number in range(2, 15))
"""The fields for the rest of a script that was typed after the command.

Slack takes up to 40,000 characters: https://docs.slack.dev/reference/methods/chat.postMessage.
"""
_MORE_FIELDS: Final = frozenset({"script_file", TELL_CHANNEL, *LINK_FIELDS, *_MORE_BOXES})

_FROM_MESSAGE: Final = "video_from_message"
_FROM_ANYWHERE: Final = "video_from_anywhere"
_NO_TEXT: Final = "This message has no text to speak. Try another."
_FILES_NOT_READ: Final = "I can't read the attached file. Copy its text."
_IS_ATTACHED: Final = "The script is the attached file."
_MAX_NAMES: Final = 10
# Slack escapes brackets that people type: if one opens within another, neither is Slack's. No
# pattern takes more than linear time.
_ANGLED: Final = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_UNNAMED: Final = re.compile(r"<([@#])([A-Z0-9]{1,40})(?:\|)?>", re.ASCII)
_EMOJI: Final = re.compile(
    r"[ \t]?(?<!\w):(?:[+-]1|[0-9_'-]{0,100}[a-z][a-z0-9_'+-]{0,100}):(?!\w)", re.ASCII
)
_CODE: Final = re.compile(r"`{1,3}([^`]+)`{1,3}")
# It ends at the next mark of its sort, unless that is inside a word: no part is looked at twice.
_EMPHASIS: Final = re.compile(
    r"(?<!\w)(?:"
    + "|".join(rf"{m}(?=\S)((?:[^{m}\n]|(?<=\w){m}(?=\w))*[^{m}\s]){m}" for m in (r"\*", "_", "~"))
    + r")(?!\w)"
)
_QUOTE: Final = re.compile(r"^&gt; ?", re.MULTILINE)
_NESTED: Final = 3
"""Bold, italic and struck out may be inside each other."""
_EVERYONE: Final = frozenset({"channel", "here", "everyone"})


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners, the most frequent first: Bolt tries them in this order."""
    app.view(CALLBACK_ID)(partial(answer_form, ctx, on_submit))
    app.options(REPLICA)(partial(suggest_replicas, ctx))
    app.command(ctx.command(_KIND))(partial(answer_command, ctx, handle_command))
    register_clicks(
        app,
        ctx,
        {
            BACKGROUND: switch_background,
            f"{_KIND}_{RETRY}": retry,
            ANOTHER: make_another,
            MAKE_VIDEO: use_replica,
            _USE_AS_SCRIPT: use_as_script,
        },
    )
    app.shortcut(_FROM_MESSAGE)(partial(answer_interaction, ctx, from_message))
    app.shortcut(_FROM_ANYWHERE)(partial(answer_interaction, ctx, open_create_form))


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def handle_command(ctx: HandlerContext, command: SlashCommand) -> Said:
    """Answer a subcommand, or open the form with the text as its script."""
    match command.subcommand("status", with_words={"find"}):
        case "help", _:
            return video_help(ctx.command(_KIND), ctx.command("replica"))
        case "list", _:
            return await list_jobs(ctx, command, _KIND)
        case "find", "":
            return FIND_HELP.format(command=ctx.command(_KIND))
        case "find", wanted:
            as_script = script_button("Use as script", command.words)
            work = find_made(ctx, command, _KIND, wanted, as_script)
            ctx.answer_later(command, work)
            return None
        case name, "":
            return missing_id(ctx.command(_KIND), name, "video")
        case _, wanted:
            return await show_status(ctx, command, _KIND, wanted)
        case _ if (meant := command.mistyped(*_SUBCOMMANDS)) is not None:
            return _suggestion(f"{ctx.command(_KIND)} {meant}", command.words)
    error = await open_create_form(ctx, command, command.channel, script=command.words)
    return None if error is None else _returned(error, command.words)


def _returned(error: str, script: str) -> Message:
    """Return why no form was opened, and the script: what was typed is gone from the client."""
    return Message.of([section(error), *quotes(cut(script, MAX_QUOTES))])


def _suggestion(meant: str, word: str) -> Message:
    """Return the answer to a word that looks like a mistyped subcommand."""
    typed = f"{meant} <id>" if meant.endswith("status") else meant
    text = f"Did you mean `{escape(typed)}`?"
    return Message.of([section(text), script_button(f"Use “{word}” as script", word)])


def script_button(label: str, script: str) -> Json:
    """Return the button that opens the form with what was typed."""
    return actions([button(label, _USE_AS_SCRIPT, value=script)])


async def open_create_form(
    ctx: HandlerContext,
    request: SlashCommand | BlockAction | ShortcutPayload,
    channel: str = "",
    *,
    thread_ts: str | None = None,
    script: str = "",
    file: str | None = None,
    file_ts: str | None = None,
    note: str = "",
) -> str | None:
    """Open the create form; return None, or a sentence for the user if it was not opened.

    Args:
        ctx: the bot's parts.
        request: the command, the click or the shortcut that asks for it.
        channel: where it was asked, and where to post unless another place is chosen; "" for
            nowhere.
        thread_ts: the thread in ``channel`` to post in.
        script: what is filled in as the script.
        file: the id of a file that is the script, if none is filled in.
        file_ts: the message in ``channel`` that has the file.
        note: what is on top of the form.
    """
    max_script = ctx.store.limits.current.max_script
    if (over := len(script) - max_script) > 0:
        too_many = f"{len(script):,} characters. The limit is {max_script:,}: cut {over:,}."
        note = joined([note, f"The script has {too_many}"])
    boxes = pieces(script, MAX_BOX)
    if len(boxes) > len(_MORE_BOXES) + 1:
        return f"That script has {len(script):,} characters. Please split it into several videos."
    fields = dict(zip(("script", *_MORE_BOXES), boxes, strict=False))
    metadata = {"channel": channel, "thread_ts": thread_ts}
    if file is not None:
        metadata |= {"script_file": file, "script_ts": file_ts}
    return await ctx.open_form(_KIND, request, channel, draw_form(ctx, fields, metadata, note))


def _in_one(fields: Mapping[str, str]) -> dict[str, str]:
    """Return fields with the script of all boxes in one."""
    boxes = [fields[at] for at in ("script", *_MORE_BOXES) if at in fields]
    rest = {at: text for at, text in fields.items() if at not in _MORE_BOXES}
    return {**rest, "script": "".join(boxes)} if boxes else rest


# ── Buttons that open the form ────────────────────────────────────────────────────────────────


async def retry(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form with the input of a failed job."""
    return await open_retry(ctx, action, partial(_draw_again, ctx, action))


async def make_another(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form with the input of a video, for a new one in its channel.

    All who see the video there may.
    """
    job = await find_job(ctx, action, what="use this here", is_shared=True)
    view = _draw_again(ctx, action, job, {"channel": action.channel})
    return await ctx.open_form(_KIND, action, job.channel, view)


def _draw_again(ctx: HandlerContext, action: BlockAction, job: Job, metadata: Metadata) -> Json:
    """Return the form with the input of a job: a script, only for who typed it."""
    filled = filled_again(job, action, ("replica_id", "video_name"))
    if len(filled.get("script", "")) > MAX_BOX:  # it does not fit into its field
        metadata = {**metadata, "script_of": job.id}
    return draw_form(ctx, filled, metadata, retention_note(job))


async def use_replica(
    ctx: HandlerContext, action: BlockAction, replica_id: str | None = None
) -> str | None:
    """Open the form with a replica chosen: that of the button, unless its value holds more."""
    replica_id = action.value if replica_id is None else replica_id
    if not is_replica_id(replica_id):
        return UNKNOWN_JOB
    metadata = {"channel": action.channel, "thread_ts": None}
    view = draw_form(ctx, {"replica_id": replica_id}, metadata)
    return await ctx.open_form(_KIND, action, action.channel, view)


async def use_as_script(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form with what was, or looked like, a subcommand."""
    return await open_create_form(ctx, action, action.channel, script=action.value)


# ── Shortcuts ───────────────────────────────────────────────────────────────────────────────────


async def from_message(ctx: HandlerContext, shortcut: ShortcutPayload) -> str | None:
    """Open the form with a message's text as script; card and reply go into its thread."""
    script, file, note = await _attached_script(ctx, shortcut)
    if not script and file is None:
        # Those that Slack tells soon: the form has to open.
        ids = sorted({found.group(2) for found in _UNNAMED.finditer(shortcut.text)})
        until = deadline(ctx.timings.message_timeout)
        names = await ctx.access.names(ids[:_MAX_NAMES], until)
        script = spoken_text(shortcut.text, names)
    if not script and file is None:
        await ctx.show_notice(shortcut.trigger_id, note or _NO_TEXT)
        return None
    return await open_create_form(
        ctx,
        shortcut,
        shortcut.channel,
        thread_ts=shortcut.thread_ts,
        script=script,
        file=file,
        file_ts=shortcut.ts,
        note=note,
    )


async def _attached_script(
    ctx: HandlerContext, shortcut: ShortcutPayload
) -> tuple[str, str | None, str]:
    """Return what a message's text file gives, as far as Slack gives it soon.

    That is a script, or the file to read when the form is submitted, and a note for the form.
    """
    if (file := shortcut.text_file) is None:
        return "", None, ""
    max_script = ctx.store.limits.current.max_script
    if not takes_files(ctx, max_script):
        return "", None, _FILES_NOT_READ
    try:
        script = await read_script(
            ctx,
            file,
            max_script,
            deadline(ctx.timings.message_timeout),
            user=shortcut.user,
            message=(shortcut.channel, shortcut.ts),
        )
    except FileUnavailable:
        return "", file, _IS_ATTACHED
    except Refusal as error:
        return "", None, str(error)
    script = script.strip()
    if len(script) <= MAX_BOX:
        return script, None, ""
    return "", file, f"{_IS_ATTACHED} It takes about {spoken(script)} to speak."


def spoken_text(text: str, names: Mapping[str, str]) -> str:
    """Return a message's ``text`` in plain words.

    ``names`` has the names of those that are mentioned without one, as far as they are known.
    """

    def plain(found: re.Match[str]) -> str:
        target, label = found.group(1), found.group(2) or ""
        sigil, rest = target[:1], target[1:]
        match sigil:
            case "@":
                return label.removeprefix("@") or names.get(rest, "someone")
            case "#":
                return label.removeprefix("#") or names.get(rest, "a channel")
            case "!":
                kind = rest.partition("^")[0]
                return "everyone" if kind in _EVERYONE else label.removeprefix("@")
        return label or target.removeprefix("mailto:")

    words = _ANGLED.sub(plain, _QUOTE.sub("", text))
    words = _CODE.sub(r"\1", _EMOJI.sub("", words))
    for _ in range(_NESTED):
        words = _EMPHASIS.sub(r"\1\2\3", words)
    return html.unescape(words).strip()


# ── In the form ───────────────────────────────────────────────────────────────────────────────


async def suggest_replicas(ctx: HandlerContext, sent: OptionsRequest) -> BoltResponse:
    """Offer the replicas that match what was typed so far.

    https://docs.slack.dev/reference/block-kit/block-elements/select-menu-element#external_select
    """
    query = sent.value.strip()
    known = readable_metadata(sent.view) if sent.view is not None else None
    channel = known["channel"] if known is not None else ""
    found = ctx.store.replicas.find(query, channel, _MAX_OPTIONS - 1)
    options = [text for replica in found if (text := _option_json(replica))]
    if is_replica_id(query) and all(replica.id != query for replica in found):
        # Last, since Enter picks the first.
        options.append(json.dumps(option(f"Use ID “{query}”", query)))
    return BoltResponse(status=HTTPStatus.OK, body=f'{{"options": [{", ".join(options)}]}}')


async def switch_background(ctx: HandlerContext, action: BlockAction) -> None:
    """Show the link field of the chosen background; ``on_submit`` shows one that is missing."""
    if (view := action.view) is not None:
        await ctx.update_view(view, redrawn(ctx, view))


async def _with_script(
    ctx: HandlerContext,
    submission: ViewSubmission,
    fields: Mapping[str, str],
    max_script: int,
    deadline: float,
) -> dict[str, str]:
    """Return the fields with the whole script, which may be in a file or in an earlier request.

    Raises:
        Refusal: the file is no script, or there is another script beside it.
    """
    used = {name: text for name, text in fields.items() if name != "script_file"}
    if (file := fields.get("script_file")) is not None:
        if used.get("script", "").strip():
            raise Refusal("Use the box or a file for the script, not both.")
        script = await read_script(ctx, file, max_script, deadline, user=submission.user)
        return {**used, "script": script}
    metadata = metadata_of(submission.view)
    attached, earlier = metadata.get("script_file"), metadata.get("script_of")
    if attached is not None and "script" not in used:
        used["script"] = await read_script(
            ctx,
            attached,
            max_script,
            deadline,
            user=submission.user,
            message=(metadata["channel"], metadata.get("script_ts") or ""),
        )
    elif earlier is not None and "script" not in used:
        job = await ctx.store.jobs.fetch(earlier)
        if job is not None and job.user == submission.user and "script" in job.params:
            used["script"] = job.params["script"]
    return used


def _other_mistakes(fields: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with a form beside its script."""
    try:
        parse({**fields, "script": "a script"}, MAX_BOX)
    except Invalid as error:
        return dict(error.errors)
    return {}


async def on_submit(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Store the video that the form asks for, or say what is wrong with it."""
    view, fields = submission.view, submission.view.fields()
    if is_of_other_version(view, _FIELDS, _MORE_FIELDS):
        return of_this_version(view, partial(draw_form, ctx, drawn_fields(view)))
    background = fields.get("background")
    if background in LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        return updated(redrawn(ctx, view))
    used = {
        name: text for name, text in fields.items() if name not in BACKGROUNDS or name == background
    }
    used, links = _in_one(used), dict[str, str]()
    params, errors = {name: used[name].strip() for name in ("replica_id",) if name in used}, {}
    deadline = ctx.service_deadline()
    limits = ctx.store.limits.current
    try:
        used = await _with_script(ctx, submission, used, limits.max_script, deadline)
        params = parse(used, limits.max_script)
    except Invalid as error:
        errors, links = dict(error.errors), dict(error.links)
        if "script" in errors and len(script := used.get("script", "").strip()) > limits.max_script:
            who = await ctx.access.admin_names(deadline)
            errors["script"] = too_long(script, limits.max_script, who)
    except Refusal as error:
        errors = {**_other_mistakes(used), "script_file": str(error)}
    found = None
    if "replica_id" not in errors:
        try:
            found = await check_used(ctx, ctx.kinds[_KIND], params, deadline)
        except Refusal as refusal:
            errors["replica_id"] = str(refusal)
    return await submit_job(
        ctx,
        submission,
        _KIND,
        params,
        lambda note, changes: redrawn(ctx, view, {**_kept_file(view), **changes}, note, links),
        deadline=deadline,
        errors=errors,
        links=links,
        used=found,
        fingerprint=None if errors else fingerprint(params),
    )


FEATURE: Final = Feature(VIDEO, VideoPresenter(), register)


def redrawn(
    ctx: HandlerContext,
    view: View,
    changes: Metadata | None = None,
    note: str | None = None,
    links: Mapping[str, str] | None = None,
) -> Json:
    """Return a form as it is filled in, with the link field of the chosen background.

    Slack drops the value of a field that is removed: the metadata keep it until the field returns.
    A link that does not fit there keeps its field.

    Args:
        ctx: the bot's parts.
        view: the form.
        changes: what is different in its metadata.
        note: what is on top of it, if that changes.
        links: what is in its fields for links instead of what was typed.
    """
    fields, metadata = drawn_fields(view), {**metadata_of(view), **(changes or {})}
    fields |= links or {}
    typed = {at: fields[at] for at in BACKGROUNDS if at in fields}
    kept = {**metadata.get("links", {}), **typed}
    metadata["links"] = {}
    for at in sorted(kept.keys() - {fields.get("background")}, key=lambda at: len(kept[at])):
        more = {**metadata, "links": {**metadata["links"], at: kept[at]}}
        if fits_in_metadata(more):
            metadata = more
    note = note_of(view) if note is None else note
    drawn = draw_form(ctx, {**kept, **fields}, metadata, note)
    return kept_left(drawn, view.blocks)


def _kept_file(view: View) -> dict[str, str]:
    """Return what the metadata keep of a chosen file: a field for one cannot be filled in.

    https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
    """
    file = view.fields().get("script_file")
    return {} if file is None else {"script_file": file}


def draw_form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, note: str = ""
) -> Json:
    """Return the create form with ``fields`` filled in."""
    background = fields.get("background", "")
    if background not in _CHOICES:
        background = next((name for name in BACKGROUNDS if name in fields), "none")
    blocks: list[Json] = [
        _replica_field(ctx, fields.get("replica_id"), metadata["channel"]),
        *_script_fields(ctx, fields, metadata),
        text_field(
            "video_name",
            "Name",
            "",
            fields.get("video_name"),
            MAX_NAME,
            placeholder="For example: Welcome video",
        ),
        _background_field(background),
    ]
    for at, (label, hint) in LINK_FIELDS.items():
        link = fields.get(at)
        if at == background:
            blocks.append(link_field(at, label, hint, link))
        elif link and at not in metadata.get("links", {}):
            unused = f"Not used unless you choose “{_CHOICES[at]}”."
            blocks.append(link_field(at, label, unused, link, optional=True))
    blocks += [where_field(ctx, fields.get("where")), _tell_field(chosen=TELL_CHANNEL in fields)]
    return form(
        CALLBACK_ID,
        "Create a video",
        submit=MAKE_ANOTHER if metadata.get("anew") else "Create",
        metadata=metadata,
        blocks=blocks,
        note=note,
    )


def _replica_field(ctx: HandlerContext, chosen: str | None, channel: str) -> Json:
    """Return the picker; without another choice the channel's default is chosen."""
    known = ctx.store.replicas.find("", channel, 1)
    hint = "Pick a replica or paste a replica ID."
    if not known:
        hint = f"No replicas yet. Paste a replica ID, or train one with {ctx.command('replica')}."
    picked = None
    if chosen:
        picked = as_option(ctx.store.replicas.get(chosen) or KnownReplica(chosen))
    elif known and known[0].default and known[0].verdict is not Verdict.FAILED:
        picked = as_option(known[0])
    picker = element(
        "external_select",
        REPLICA,
        initial_option=picked,
        min_query_length=0,
        placeholder="Search by name or ID",
    )
    return field("replica_id", "Replica", picker, hint=hint)


def _script_fields(
    ctx: HandlerContext, filled: Mapping[str, str], metadata: Metadata
) -> list[Json]:
    """Return the fields for a script: a box, more if one was typed that is longer, and a file."""
    script, whole = filled.get("script"), _in_one(filled).get("script", "")
    max_script = ctx.store.limits.current.max_script
    with_file, attached = takes_files(ctx, max_script), metadata.get("script_file") is not None
    is_kept = attached or metadata.get("script_of") is not None
    box_holds = min(max_script, MAX_BOX)
    hint = f"Up to {box_holds:,} characters."
    if is_kept and len(script or "") not in range(1, MAX_BOX + 1):
        what = "the attached file" if attached else "the same script: it's too long to show here"
        script, hint = None, f"Leave this blank to use {what}."
    elif whole:
        usual = f" and usually {took} to create" if (took := _time_to_create(ctx, whole)) else ""
        cost = _cost(ctx, spoken_time(whole))
        hint = f"This takes about {spoken(whole)} to speak{cost}{usual}. {hint}"
    else:
        took = _time_to_create(ctx, None)
        usual = f" Videos usually take {took} to create." if took else ""
        hint = f"150 words take about a minute{_cost(ctx, _MINUTE)}. {hint}{usual}"
    box = element(
        "plain_text_input",
        "script",
        multiline=True,
        initial_value=script,
        # A script from before the limit was lowered stays as it was typed, to be shortened.
        max_length=max(box_holds, len(script or "")),
        placeholder="What the replica says",
    )
    fields = [field("script", "Script", box, hint=hint, optional=with_file or is_kept)]
    for at in filter(filled.get, _MORE_BOXES):
        more = element("plain_text_input", at, multiline=True, initial_value=filled[at])
        fields.append(field(at, "Script, continued", more, optional=True))
    if with_file:
        # Its kinds are not limited: what counts is what is in it.
        file = element("file_input", "script_file", max_files=1)
        longer = f"For longer scripts: a .txt file, up to {max_script:,} characters."
        fields.append(field("script_file", "Script file", file, hint=longer, optional=True))
    return fields


def _cost(ctx: HandlerContext, speech: timedelta) -> str:
    return f" ({cost})" if (cost := ctx.price.of(speech)) else ""


def _time_to_create(ctx: HandlerContext, script: str | None) -> str:
    """Return how long recent videos took with scripts as long; "" if there are none."""
    durations = ctx.store.jobs.durations.get(VIDEO.name, script)
    return "" if durations is None else f"about {brief(durations.typical)}"


def _background_field(chosen: str) -> Json:
    options = {value: option(label, value) for value, label in _CHOICES.items()}
    buttons = element(
        "radio_buttons",
        BACKGROUND,
        options=list(options.values()),
        initial_option=options[chosen],
    )
    return field("background", "Background", buttons, reports=True)


def _tell_field(*, chosen: bool) -> Json:
    tell = option("Also tell the channel", "yes")
    box = element(
        "checkboxes", TELL_CHANNEL, options=[tell], initial_options=[tell] if chosen else None
    )
    return field(TELL_CHANNEL, "When it's ready", box, optional=True)


# Each keystroke offers up to 99 replicas, mostly those that the last one offered.
@lru_cache(maxsize=_MAX_CACHED_OPTIONS)
def _option_json(replica: KnownReplica) -> str:
    """Return a replica as one of the picker's options, in JSON; "" if none can hold its id."""
    return json.dumps(as_option(replica)) if is_replica_id(replica.id) else ""


def as_option(replica: KnownReplica) -> Json:
    """Return a replica as one of the picker's options."""
    return option(replica_label(replica), replica.id)
