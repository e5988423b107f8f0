"""The /video command and the create form: opening, type-ahead, background, submission, retry."""

import logging
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError
from bot.kinds import Invalid
from bot.kinds.video import BACKGROUNDS, MAX_NAME, Video, is_replica_id, parse
from bot.model import Job, Verdict
from bot.slack.blocks import (
    Json,
    Message,
    actions,
    button,
    element,
    escape,
    field,
    option,
    section,
    spoken,
)
from bot.slack.buttons import ANOTHER, MAKE_VIDEO, RETRY
from bot.slack.context import UNKNOWN_JOB, Feature, HandlerContext, ack_ephemeral, ack_missing_id
from bot.slack.errors import translated
from bot.slack.forms import (
    JobRequest,
    Metadata,
    ack_errors,
    fits_in_metadata,
    form,
    link_field,
    metadata_of,
    note_of,
    retention_note,
    submit_job,
    text_field,
    where_field,
)
from bot.slack.help import video_help
from bot.slack.job_actions import find_failed, retry_metadata
from bot.slack.job_status import list_jobs, show_status
from bot.slack.payloads import BlockAction, OptionsRequest, SlashCommand, View, ViewSubmission, read
from bot.slack.replica_picker import check_used, replica_label
from bot.slack.video_presenter import VideoPresenter
from bot.store import KnownReplica

_LOG: Final = logging.getLogger(__name__)
CALLBACK_ID: Final = "create_video"
_REPLICA: Final = "video_replica"
_BACKGROUND: Final = "video_background"
_KIND: Final = "video"
_MAX_CACHED_OPTIONS: Final = 10_000
_MAX_OPTIONS: Final = 100
_SUBCOMMANDS: Final = ("list", "status", "help")
_USE_AS_SCRIPT: Final = "use_as_script"

_CHOICES: Final = {
    "none": "No background",
    "background_url": "A web page",
    "background_source_url": "A video file",
}
_LINK_FIELDS: Final = {
    "background_url": ("Web page link", "Anyone must be able to open it."),
    "background_source_url": (
        "Direct link to the video file",
        "Anyone must be able to download it for at least 24 hours.",
    ),
}


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners, the most frequent first: Bolt tries them in this order."""
    app.view(CALLBACK_ID)(partial(submit, ctx))
    app.options(_REPLICA)(partial(suggest_replicas, ctx))
    app.command(ctx.command(_KIND))(partial(handle_command, ctx))
    app.action(_BACKGROUND)(partial(switch_background, ctx))
    app.action(f"{_KIND}_{RETRY}")(partial(retry, ctx))
    app.action(ANOTHER)(partial(make_another, ctx))
    app.action(MAKE_VIDEO)(partial(make_video, ctx))
    app.action(_USE_AS_SCRIPT)(partial(use_as_script, ctx))


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def handle_command(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer a subcommand, or open the form with the text as its script."""
    command = read(SlashCommand, body)
    match command.subcommand("status"):
        case "help", _:
            await ack_ephemeral(ack, video_help(ctx.command(_KIND)))
        case "list", _:
            await ack_ephemeral(ack, await list_jobs(ctx, command, _KIND))
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
            await (ack() if error is None else ack_ephemeral(ack, error))


def _suggestion(meant: str, word: str) -> Message:
    """Return the answer to a word that looks like a mistyped subcommand."""
    typed = f"{meant} <id>" if meant.endswith("status") else meant
    text = f"Did you mean `{escape(typed)}`?"
    label = f"Use “{word}” as script"
    return Message(text, [section(text), actions([button(label, _USE_AS_SCRIPT, value=word)])])


async def open_create_form(
    ctx: HandlerContext,
    *,
    user: str,
    trigger_id: str,
    channel: str = "",
    thread_ts: str | None = None,
    script: str = "",
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
    """
    if len(script) > ctx.max_script:
        return (
            f"That script has {len(script):,} characters; the form takes {ctx.max_script:,}. "
            "Please shorten it, or split it into two videos."
        )
    fields = {"script": script} if script else {}
    view = await _form(ctx, fields, {"channel": channel, "thread_ts": thread_ts})
    return await ctx.open_form(user, channel, trigger_id, view)


# ── Buttons that open the form ────────────────────────────────────────────────────────────────


async def retry(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a failed job."""
    action = read(BlockAction, body)
    if (job := await find_failed(ctx, action)) is not None:
        filled = {**_fields_for(action.user, job), "where": job.channel}
        view = await _form(ctx, filled, await retry_metadata(ctx, job), note=retention_note(job))
        if error := await ctx.open_form(action.user, job.channel, action.trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


async def make_another(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a video, for a new one in its channel. Anyone may."""
    action = read(BlockAction, body)
    job = await ctx.store.jobs.fetch(action.value)
    if job is not None and job.kind == _KIND:
        filled = {**_fields_for(action.user, job), "where": job.channel}
        view = await _form(ctx, filled, {"channel": job.channel}, note=retention_note(job))
        error = await ctx.open_form(action.user, job.channel, action.trigger_id, view)
    else:
        error = UNKNOWN_JOB
    if error:
        ctx.respond_ephemeral(action, error)
    await ack()


def _fields_for(user: str, job: Job) -> dict[str, str]:
    """Return the input of a job that a user sees: a script, only if they typed it."""
    shown = job.params if user == job.user else ("replica_id", "video_name")
    return {name: value for name, value in job.params.items() if name in shown}


async def make_video(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the replica of the button. Anyone may use it."""
    action = read(BlockAction, body)
    if is_replica_id(action.value):
        metadata = {"channel": action.channel, "thread_ts": None}
        view = await _form(ctx, {"replica_id": action.value}, metadata)
        error = await ctx.open_form(action.user, action.channel, action.trigger_id, view)
    else:
        error = UNKNOWN_JOB
    if error:
        ctx.respond_ephemeral(action, error)
    await ack()


async def use_as_script(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with a word that looked like a mistyped subcommand."""
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


async def suggest_replicas(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Offer the replicas that match what was typed so far."""
    request = read(OptionsRequest, body)
    query = request.value.strip()
    channel = metadata_of(request.view)["channel"] if request.view is not None else ""
    found = await ctx.store.replicas.find(query, channel, _MAX_OPTIONS - 1)
    # The service may use an id that no option can hold.
    options = [_option(replica) for replica in found if is_replica_id(replica.id)]
    if is_replica_id(query) and all(replica.id != query for replica in found):
        # Last, since Enter picks the first.
        options.append(option(f"Use ID “{query}”", query))
    await ack(options=options)


async def switch_background(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Show the link field of the chosen background."""
    if (view := read(BlockAction, body).view) is not None:
        changed = await _redrawn(ctx, view)
        try:
            async with translated(ctx.timings.view_timeout):
                await ctx.client.views_update(view_id=view.id, hash=view.hash, view=changed)
        except OutsideError as error:
            # Closed, or changed again meanwhile; ``submit`` shows a field that is missing.
            _LOG.info("a form could not be changed", extra={"reason": error.reason})
    await ack()


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Store the video that the form asks for, or say what is wrong with it."""
    submission = read(ViewSubmission, body)
    view, fields, metadata = submission.view, submission.view.fields(), metadata_of(submission.view)
    background = fields.get("background")
    if background in _LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        await ack(response_action="update", view=await _redrawn(ctx, view))
        return
    used = {
        name: text for name, text in fields.items() if name not in BACKGROUNDS or name == background
    }
    try:
        params = parse(used, ctx.max_script)
    except Invalid as error:
        await ack_errors(ack, error.errors)
        return
    deadline = ctx.service_deadline()
    check = await check_used(ctx, ctx.kinds[_KIND], params, deadline)
    if check.error is not None:
        await ack_errors(ack, {"replica_id": check.error})
        return
    request = JobRequest(_KIND, params, deadline, used=check.found)
    await submit_job(
        ctx,
        ack,
        submission,
        request,
        # It is a request of its own from now on.
        lambda note: _form(ctx, fields, {**metadata, "retry_of": None}, note=note),
    )


async def _redrawn(ctx: HandlerContext, view: View) -> Json:
    """Return a form as it is filled in, with the link field of the chosen background.

    Slack drops the value of a field that is removed: the metadata keep it until the field returns.
    A link that does not fit there keeps its field.
    """
    fields, metadata = view.fields(), metadata_of(view)
    typed = {at: fields[at] for at in BACKGROUNDS if at in fields}
    links = {**metadata.get("links", {}), **typed}
    metadata["links"] = {}
    for at in sorted(links.keys() - {fields.get("background")}, key=lambda at: len(links[at])):
        more = {**metadata, "links": {**metadata["links"], at: links[at]}}
        if fits_in_metadata(more):
            metadata = more
    return await _form(ctx, {**links, **fields}, metadata, note=note_of(view))


async def _form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, *, note: str = ""
) -> Json:
    """Return the create form with ``fields`` filled in."""
    background = fields.get("background", "")
    if background not in _CHOICES:
        background = next((name for name in BACKGROUNDS if name in fields), "none")
    blocks: list[Json] = [
        await _replica_field(ctx, fields.get("replica_id"), metadata["channel"]),
        _script_field(fields.get("script"), ctx.max_script),
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
    for at, (label, hint) in _LINK_FIELDS.items():
        link = fields.get(at)
        if at == background:
            blocks.append(link_field(at, label, hint, link))
        elif link and at not in metadata.get("links", {}):
            unused = f"Not used unless you choose “{_CHOICES[at]}”."
            blocks.append(link_field(at, label, unused, link, optional=True))
    blocks.append(where_field(ctx, fields.get("where")))
    return form(
        CALLBACK_ID, "Create a video", submit="Create", metadata=metadata, blocks=blocks, note=note
    )


async def _replica_field(ctx: HandlerContext, chosen: str | None, channel: str) -> Json:
    """Return the picker; without another choice the channel's default is chosen."""
    known = await ctx.store.replicas.find("", channel, 1)
    hint = "Pick a replica or paste a replica ID."
    if not known:
        hint = (
            "There are no replicas here yet. Paste a replica ID from your account at the video "
            f"service, or train one with {ctx.command('replica')}."
        )
    picked = None
    if chosen:
        picked = _option(await ctx.store.replicas.get(chosen) or KnownReplica(chosen))
    elif known and known[0].default and known[0].verdict is not Verdict.FAILED:
        picked = _option(known[0])
    picker = element(
        "external_select",
        _REPLICA,
        initial_option=picked,
        min_query_length=0,
        placeholder="Pick a replica, or paste an ID",
    )
    return field("replica_id", "Replica", picker, hint=hint)


def _script_field(script: str | None, max_script: int) -> Json:
    hint = f"150 words take about a minute. At most {max_script:,} characters."
    if script:
        hint = f"This takes about {spoken(script)} to speak. {hint}"
    box = element(
        "plain_text_input",
        "script",
        multiline=True,
        initial_value=script,
        # A script from before the limit was lowered stays as it was typed, to be shortened.
        max_length=max(max_script, len(script or "")),
        placeholder="What the replica says",
    )
    return field("script", "Script", box, hint=hint)


def _background_field(chosen: str) -> Json:
    options = {value: option(label, value) for value, label in _CHOICES.items()}
    buttons = element(
        "radio_buttons",
        _BACKGROUND,
        options=list(options.values()),
        initial_option=options[chosen],
    )
    return field("background", "Background", buttons, reports=True)


# Each keystroke offers up to 99 replicas, mostly those that the last one offered.
@lru_cache(maxsize=_MAX_CACHED_OPTIONS)
def _option(replica: KnownReplica) -> Json:
    return option(replica_label(replica), replica.id)


FEATURE: Final = Feature(Video(), VideoPresenter(), register)
