"""The /video command and the create form: opening, drawing, type-ahead, submission, retry."""

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck
from slack_bolt.response import BoltResponse

from bot.errors import OutsideError
from bot.kinds import Invalid
from bot.kinds.video import BACKGROUNDS, MAX_NAME, VIDEO, fingerprint, is_replica_id, parse
from bot.model import Job, State, Verdict, spoken_time
from bot.setting_values import MAX_BOX
from bot.slack.context import (
    UNKNOWN_JOB,
    Feature,
    HandlerContext,
    ack_ephemeral,
    ack_missing_id,
    kept_left,
)
from bot.slack.errors import translated
from bot.slack.features.actions import find_failed, find_job, retry_metadata
from bot.slack.features.forms import (
    TELL_CHANNEL,
    JobRequest,
    Metadata,
    ReplicaCheck,
    UnreadableFile,
    ack_other_version,
    check_used,
    drawn_fields,
    fits_in_metadata,
    form,
    is_of_other_version,
    link_field,
    metadata_of,
    note_of,
    place_to_retry,
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
from bot.slack.features.list import find_made, list_jobs, show_status
from bot.slack.payloads import BlockAction, OptionsRequest, SlashCommand, View, ViewSubmission, read
from bot.slack.views.blocks import (
    MAX_QUOTES,
    MAX_SECTION,
    MAX_TEXT,
    Json,
    Message,
    actions,
    ago,
    anchor,
    brief,
    button,
    cut,
    element,
    escape,
    escaped,
    field,
    joined,
    option,
    quotes,
    section,
    size,
    spoken,
)
from bot.slack.views.buttons import ANOTHER, MAKE_VIDEO, RETRY
from bot.slack.views.kinds import VideoPresenter
from bot.slack.views.limits import too_long
from bot.slack.views.presenters import Presenter
from bot.store import KnownReplica

_LOG: Final = logging.getLogger(__name__)
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
MAKE_ANOTHER: Final = "Make a new one"
"""The button of such a form."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners, the most frequent first: Bolt tries them in this order."""
    app.view(CALLBACK_ID)(partial(on_submit, ctx))
    app.options(REPLICA)(partial(suggest_replicas, ctx))
    app.command(ctx.command(_KIND))(partial(handle_command, ctx))
    app.action(BACKGROUND)(partial(switch_background, ctx))
    app.action(f"{_KIND}_{RETRY}")(partial(retry, ctx))
    app.action(ANOTHER)(partial(make_another, ctx))
    app.action(MAKE_VIDEO)(partial(make_video, ctx))
    app.action(_USE_AS_SCRIPT)(partial(use_as_script, ctx))


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def handle_command(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer a subcommand, or open the form with the text as its script."""
    command = read(SlashCommand, body)
    match command.subcommand("status", with_words="find"):
        case "help", _:
            await ack_ephemeral(ack, video_help(ctx.command(_KIND), ctx.command("replica")))
        case "list", _:
            await ack_ephemeral(ack, await list_jobs(ctx, command, _KIND))
        case "find", "":
            await ack_ephemeral(ack, FIND_HELP.format(command=ctx.command(_KIND)))
        case "find", wanted:
            as_script = script_button("Use as script", command.words)
            work = find_made(ctx, command, _KIND, wanted, as_script)
            ctx.answer_later(command.response_url, work)
            await ack()
        case name, "":
            await ack_missing_id(ack, ctx.command(_KIND), name, "video")
        case _, wanted:
            await show_status(ctx, ack, command, _KIND, wanted)
        case _ if (meant := command.mistyped(*_SUBCOMMANDS)) is not None:
            await ack_ephemeral(ack, _suggestion(f"{ctx.command(_KIND)} {meant}", command.words))
        case _:
            error = await open_create_form(
                ctx,
                user=command.user,
                trigger_id=command.trigger_id,
                channel=command.channel,
                script=command.words,
            )
            await (ack() if error is None else ack_ephemeral(ack, _returned(error, command.words)))


def _returned(error: str, script: str) -> Message:
    """Return why no form was opened, and the script: what was typed is gone from the client."""
    if not script:
        return Message(error, ())
    text = [error, escaped(script, MAX_TEXT - size(error) - 1)]
    return Message(joined(text), [section(error), *quotes(cut(script, MAX_QUOTES))])


def _suggestion(meant: str, word: str) -> Message:
    """Return the answer to a word that looks like a mistyped subcommand."""
    typed = f"{meant} <id>" if meant.endswith("status") else meant
    text = f"Did you mean `{escape(typed)}`?"
    return Message(text, [section(text), script_button(f"Use “{word}” as script", word)])


def script_button(label: str, script: str) -> Json:
    """Return the button that opens the form with what was typed."""
    return actions([button(label, _USE_AS_SCRIPT, value=script)])


async def open_create_form(
    ctx: HandlerContext,
    *,
    user: str,
    trigger_id: str,
    channel: str = "",
    thread_ts: str | None = None,
    script: str = "",
    file: str | None = None,
    file_ts: str | None = None,
    note: str = "",
) -> str | None:
    """Open the create form; return None, or a sentence for the user if it was not opened.

    Args:
        ctx: the bot's parts.
        user: who asks.
        trigger_id: of the command, the button or the shortcut.
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
    boxes = [*_boxes(script)]
    if len(boxes) > len(_MORE_BOXES) + 1:
        return f"That script has {len(script):,} characters. Please split it into several videos."
    fields = dict(zip(("script", *_MORE_BOXES), boxes, strict=False))
    metadata = {"channel": channel, "thread_ts": thread_ts}
    if file is not None:
        metadata |= {"script_file": file, "script_ts": file_ts}
    view = draw_form(ctx, fields, metadata, note=note)
    return await ctx.open_form(_KIND, user, channel, trigger_id, view)


def _boxes(script: str) -> Iterator[str]:
    """Yield a script in parts that fit into a field each, between words where that is possible."""
    while len(script) > MAX_BOX:
        at = script.rfind(" ", 1, MAX_BOX + 1)
        at = MAX_BOX if at < 0 else at
        yield script[:at]
        script = script[at:]
    if script:
        yield script


def _in_one(fields: Mapping[str, str]) -> dict[str, str]:
    """Return fields with the script of all boxes in one."""
    boxes = [fields[at] for at in ("script", *_MORE_BOXES) if at in fields]
    rest = {at: text for at, text in fields.items() if at not in _MORE_BOXES}
    return {**rest, "script": "".join(boxes)} if boxes else rest


# ── Buttons that open the form ────────────────────────────────────────────────────────────────


async def retry(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a failed job."""
    action = read(BlockAction, body)
    if (job := await find_failed(ctx, action)) is not None:
        filled = {**_fields_for(action.user, job), **place_to_retry(job, action)}
        metadata = {**await retry_metadata(ctx, job), **_kept_script(filled, job)}
        view = draw_form(ctx, filled, metadata, note=retention_note(job))
        if error := await ctx.open_form(_KIND, action.user, job.channel, action.trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


async def make_another(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a video, for a new one in its channel.

    All who see the video there may.
    """
    action = read(BlockAction, body)
    job = await find_job(ctx, action, what="use this here", is_shared=True)
    if job is not None:
        filled = {**_fields_for(action.user, job), **place_to_retry(job, action)}
        metadata = {"channel": action.channel, **_kept_script(filled, job)}
        view = draw_form(ctx, filled, metadata, note=retention_note(job))
        if error := await ctx.open_form(_KIND, action.user, job.channel, action.trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


def _fields_for(user: str, job: Job) -> dict[str, str]:
    """Return the input of a job that a user sees: a script, only if they typed it."""
    shown = job.params if user == job.user else ("replica_id", "video_name")
    told = {TELL_CHANNEL: "yes"} if job.tell_channel else {}
    return {name: value for name, value in job.params.items() if name in shown} | told


def _kept_script(fields: Mapping[str, str], job: Job) -> Mapping[str, str]:
    """Return the metadata of a form whose script does not fit into its field."""
    return {"script_of": job.id} if len(fields.get("script", "")) > MAX_BOX else {}


async def make_video(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the replica of the button. Anyone may use it."""
    action = read(BlockAction, body)
    await use_replica(ctx, action, action.value)
    await ack()


async def use_replica(ctx: HandlerContext, action: BlockAction, replica_id: str) -> None:
    """Open the form with a replica chosen."""
    if is_replica_id(replica_id):
        metadata = {"channel": action.channel, "thread_ts": None}
        view = draw_form(ctx, {"replica_id": replica_id}, metadata)
        error = await ctx.open_form(_KIND, action.user, action.channel, action.trigger_id, view)
    else:
        error = UNKNOWN_JOB
    if error:
        ctx.respond_ephemeral(action, error)


async def use_as_script(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with what was, or looked like, a subcommand."""
    action = read(BlockAction, body)
    error = await open_create_form(
        ctx,
        user=action.user,
        trigger_id=action.trigger_id,
        channel=action.channel,
        script=action.value,
    )
    if error:
        ctx.respond_ephemeral(action, error)
    await ack()


# ── In the form ───────────────────────────────────────────────────────────────────────────────


async def suggest_replicas(ctx: HandlerContext, body: Json) -> BoltResponse:
    """Offer the replicas that match what was typed so far.

    https://docs.slack.dev/reference/block-kit/block-elements/select-menu-element#external_select
    """
    request = read(OptionsRequest, body)
    query = request.value.strip()
    known = readable_metadata(request.view) if request.view is not None else None
    channel = known["channel"] if known is not None else ""
    found = ctx.store.replicas.find(query, channel, _MAX_OPTIONS - 1)
    options = [text for replica in found if (text := _option_json(replica))]
    if is_replica_id(query) and all(replica.id != query for replica in found):
        # Last, since Enter picks the first.
        options.append(json.dumps(option(f"Use ID “{query}”", query)))
    return BoltResponse(status=HTTPStatus.OK, body=f'{{"options": [{", ".join(options)}]}}')


async def switch_background(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Show the link field of the chosen background."""
    if (view := read(BlockAction, body).view) is not None:
        changed = redrawn(ctx, view)
        try:
            async with translated(ctx.timings.view_timeout):
                await ctx.client.views_update(view_id=view.id, hash=view.hash, view=changed)
        except OutsideError as error:
            # Closed, or changed again meanwhile; ``on_submit`` shows a field that is missing.
            _LOG.info("a form could not be changed", extra={"reason": error.reason})
    await ack()


async def _with_script(
    ctx: HandlerContext,
    submission: ViewSubmission,
    fields: Mapping[str, str],
    max_script: int,
    deadline: float,
) -> dict[str, str]:
    """Return the fields with the whole script, which may be in a file or in an earlier request.

    Raises:
        UnreadableFile: the file is no script, or there is another script beside it.
    """
    used = {name: text for name, text in fields.items() if name != "script_file"}
    if (file := fields.get("script_file")) is not None:
        if used.get("script", "").strip():
            raise UnreadableFile("Use the box or a file for the script, not both.")
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


async def on_submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Store the video that the form asks for, or say what is wrong with it."""
    submission = read(ViewSubmission, body)
    view, fields = submission.view, submission.view.fields()
    if is_of_other_version(view, _FIELDS, _MORE_FIELDS):
        filled = drawn_fields(view)
        await ack_other_version(
            ack, view, lambda metadata, note: draw_form(ctx, filled, metadata, note=note)
        )
        return
    background = fields.get("background")
    if background in LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        await ack(response_action="update", view=redrawn(ctx, view))
        return
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
    except UnreadableFile as error:
        errors = {**_other_mistakes(used), "script_file": str(error)}
    check = ReplicaCheck()
    if "replica_id" not in errors:
        check = await check_used(ctx, ctx.kinds[_KIND], params, deadline)
    if check.error is not None:
        errors["replica_id"] = check.error
    if errors:
        request = JobRequest(
            _KIND,
            params,
            deadline,
            limits,
            errors=errors,
            links=links,
            correct=partial(redrawn, ctx, view, _kept_file(view), links=links),
        )
    else:
        request = JobRequest(
            _KIND,
            params,
            deadline,
            limits,
            used=check.found,
            fingerprint=fingerprint(params),
            offer=partial(offering_form, ctx, view, params, viewer=submission.user),
        )
    await submit_job(ctx, ack, submission, request, partial(second_form, ctx, view, params))


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
    drawn = draw_form(ctx, {**kept, **fields}, metadata, note=note)
    return kept_left(drawn, view.blocks)


def second_form(ctx: HandlerContext, view: View, params: Mapping[str, str], note: str) -> Json:
    """Return a form as it is filled in for a request of its own, to be opened over ``view``.

    ``params`` are what it asks for, unless it is changed.
    """
    return redrawn(ctx, view, {"retry_of": None, **_for_another(view, params)}, note)


def offering_form(
    ctx: HandlerContext, view: View, params: Mapping[str, str], job: Job, viewer: str
) -> Json:
    """Return a form as it is filled in, with the job on top that has asked for the same.

    ``params`` are what it asks for, unless it is changed.
    """
    note = offer(job, ctx.presenters[job.kind], viewer)
    return redrawn(ctx, view, _for_another(view, params), note)


def _for_another(view: View, params: Mapping[str, str]) -> Metadata:
    """Return what the metadata keep of a form that asks for ``params`` once more."""
    return {**_kept_file(view), "anew": fingerprint(params)}


def _kept_file(view: View) -> dict[str, str]:
    """Return what the metadata keep of a chosen file: a field for one cannot be filled in.

    https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
    """
    file = view.fields().get("script_file")
    return {} if file is None else {"script_file": file}


def draw_form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, *, note: str = ""
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
        script, hint = None, f"Leave this empty to use {what}."
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
        longer = f"For longer scripts: a text file (UTF-8), up to {max_script:,} characters."
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


def offer(job: Job, presenter: Presenter, viewer: str) -> str:
    """Return what there is already, who asked for it, and what the form's button does.

    The viewer may see the job: they are who asked, an admin, or where it was posted.
    """
    noun, who = presenter.noun, "You" if viewer == job.user else f"<@{job.user}>"
    match job.state:
        case State.SUCCEEDED:
            status, did = f"This {noun} already exists.", "made it"
        case State.UNCONFIRMED:
            status, did = f"This {noun} has already been requested.", "asked for it"
        case State.WAITING_FOR_APPROVAL:
            status, did = f"This {noun} is already waiting for approval.", "asked for it"
        case _:
            status, did = f"This {noun} is already being made.", "asked for it"
    where = f" in <#{job.channel}>" if job.channel.startswith(("C", "G")) else ""
    links = [anchor(url, label) for label, url in presenter.links(job).items()]
    text = f"*{status}* {who} {did} {ago(job.created_at)}{where}."
    remedy = f"*{MAKE_ANOTHER}* charges you again."
    # A signed link may be too long for a block: then the message where it was posted has it.
    shown = joined(links, MAX_SECTION - len(text) - len(remedy) - 2, by=" · ")
    return joined([text, shown, remedy], MAX_SECTION)
