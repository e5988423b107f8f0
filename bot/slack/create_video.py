"""The /video command and the create form: opening, type-ahead, submission, retry."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError
from bot.kinds import Invalid
from bot.kinds.video import BACKGROUNDS, Video, fingerprint, is_replica_id, parse
from bot.model import Job
from bot.slack.blocks import (
    MAX_QUOTES,
    MAX_TEXT,
    Json,
    Message,
    actions,
    button,
    cut,
    escape,
    escaped,
    joined,
    option,
    quotes,
    section,
    size,
)
from bot.slack.buttons import ANOTHER, MAKE_VIDEO, RETRY
from bot.slack.context import UNKNOWN_JOB, Feature, HandlerContext, ack_ephemeral, ack_missing_id
from bot.slack.create_form import (
    BACKGROUND,
    CALLBACK_ID,
    LINK_FIELDS,
    REPLICA,
    as_option,
    draw_form,
    offering_form,
    redrawn,
    second_form,
)
from bot.slack.errors import translated
from bot.slack.forms import (
    JobRequest,
    metadata_of,
    place_to_retry,
    retention_note,
    submit_job,
)
from bot.slack.help import video_help
from bot.slack.job_actions import find_failed, retry_metadata
from bot.slack.job_status import list_jobs, show_status
from bot.slack.limits import too_long
from bot.slack.payloads import BlockAction, OptionsRequest, SlashCommand, ViewSubmission, read
from bot.slack.replica_picker import ReplicaCheck, check_used
from bot.slack.script_file import MAX_BOX, UnreadableFile, read_script, takes_files
from bot.slack.video_presenter import VideoPresenter

_LOG: Final = logging.getLogger(__name__)
_KIND: Final = "video"
_MAX_OPTIONS: Final = 100
_SUBCOMMANDS: Final = ("list", "status", "help")
_USE_AS_SCRIPT: Final = "use_as_script"


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners, the most frequent first: Bolt tries them in this order."""
    app.view(CALLBACK_ID)(partial(submit, ctx))
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
    match command.subcommand("status"):
        case "help", _:
            await ack_ephemeral(ack, video_help(ctx.command(_KIND), ctx.command("replica")))
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
    file: str | None = None,
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
        note: what is on top of the form.
    """
    limits = (await ctx.store.limits.fetch()).limits
    if len(script) > (limit := min(limits.max_script, MAX_BOX)):
        remedy = "Please shorten it, or split it into two videos."
        if takes_files(ctx, limits.max_script):
            remedy = f"Please type `{ctx.command(_KIND)}` and add it to the form as a text file."
        return f"That script has {len(script):,} characters; the form takes {limit:,}. {remedy}"
    fields = {"script": script} if script else {}
    metadata = {"channel": channel, "thread_ts": thread_ts}
    if file is not None:
        metadata["script_file"] = file
    drawing = draw_form(ctx, fields, metadata, note=note, limits=limits)
    return await ctx.open_form(_KIND, user, channel, trigger_id, drawing)


# ── Buttons that open the form ────────────────────────────────────────────────────────────────


async def retry(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a failed job."""
    action = read(BlockAction, body)
    if (job := await find_failed(ctx, action)) is not None:
        filled = {**_fields_for(action.user, job), **place_to_retry(job, action)}
        metadata = {**await retry_metadata(ctx, job), **_kept_script(filled, job)}
        drawing = draw_form(ctx, filled, metadata, note=retention_note(job))
        if error := await ctx.open_form(
            _KIND, action.user, job.channel, action.trigger_id, drawing
        ):
            ctx.respond_ephemeral(action, error)
    await ack()


async def make_another(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a video, for a new one in its channel. Anyone may."""
    action = read(BlockAction, body)
    job = await ctx.store.jobs.fetch(action.value)
    if job is not None and job.kind == _KIND:
        filled = {**_fields_for(action.user, job), **place_to_retry(job, action)}
        metadata = {"channel": action.channel, **_kept_script(filled, job)}
        drawing = draw_form(ctx, filled, metadata, note=retention_note(job))
        error = await ctx.open_form(_KIND, action.user, job.channel, action.trigger_id, drawing)
    else:
        error = UNKNOWN_JOB
    if error:
        ctx.respond_ephemeral(action, error)
    await ack()


def _fields_for(user: str, job: Job) -> dict[str, str]:
    """Return the input of a job that a user sees: a script, only if they typed it."""
    shown = job.params if user == job.user else ("replica_id", "video_name")
    return {name: value for name, value in job.params.items() if name in shown}


def _kept_script(fields: Mapping[str, str], job: Job) -> Mapping[str, str]:
    """Return the metadata of a form whose script does not fit into its field."""
    return {"script_of": job.id} if len(fields.get("script", "")) > MAX_BOX else {}


async def make_video(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the replica of the button. Anyone may use it."""
    action = read(BlockAction, body)
    if is_replica_id(action.value):
        metadata = {"channel": action.channel, "thread_ts": None}
        drawing = draw_form(ctx, {"replica_id": action.value}, metadata)
        error = await ctx.open_form(_KIND, action.user, action.channel, action.trigger_id, drawing)
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
    options = [as_option(replica) for replica in found if is_replica_id(replica.id)]
    if is_replica_id(query) and all(replica.id != query for replica in found):
        # Last, since Enter picks the first.
        options.append(option(f"Use ID “{query}”", query))
    await ack(options=options)


async def switch_background(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Show the link field of the chosen background."""
    if (view := read(BlockAction, body).view) is not None:
        changed = await redrawn(ctx, view)
        try:
            async with translated(ctx.timings.view_timeout):
                await ctx.client.views_update(view_id=view.id, hash=view.hash, view=changed)
        except OutsideError as error:
            # Closed, or changed again meanwhile; ``submit`` shows a field that is missing.
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
            raise UnreadableFile("Use either the box or a file for the script, not both.")
        return {**used, "script": await read_script(ctx, file, max_script, deadline)}
    metadata = metadata_of(submission.view)
    attached, earlier = metadata.get("script_file"), metadata.get("script_of")
    if attached is not None and "script" not in used:
        used["script"] = await read_script(ctx, attached, max_script, deadline)
    elif earlier is not None and "script" not in used:
        job = await ctx.store.jobs.fetch(earlier)
        if job is not None and job.user == submission.user and "script" in job.params:
            used["script"] = job.params["script"]
    return used


def _other_mistakes(fields: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with a form beside its script."""
    try:
        parse({**fields, "script": "a script"})
    except Invalid as error:
        return dict(error.errors)
    return {}


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Store the video that the form asks for, or say what is wrong with it."""
    submission = read(ViewSubmission, body)
    view, fields = submission.view, submission.view.fields()
    background = fields.get("background")
    if background in LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        await ack(response_action="update", view=await redrawn(ctx, view))
        return
    used = {
        name: text for name, text in fields.items() if name not in BACKGROUNDS or name == background
    }
    params, errors = {name: used[name].strip() for name in ("replica_id",) if name in used}, {}
    deadline = ctx.service_deadline()
    limits = (await ctx.store.limits.fetch()).limits
    try:
        used = await _with_script(ctx, submission, used, limits.max_script, deadline)
        params = parse(used, limits.max_script)
    except Invalid as error:
        errors = dict(error.errors)
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
        request = JobRequest(_KIND, params, deadline, limits, errors=errors)
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


FEATURE: Final = Feature(Video(), VideoPresenter(), register)
