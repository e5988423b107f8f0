"""A third kind of job, as a developer would add it: the kind, its presenter and its listeners.

In the bot it would be one module in ``bot/kinds`` and one in ``bot/slack``; only the list of
features names it. The sandbox's service has no trailers, so videos stand in for them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.kinds import Comparison, Kind, Unreadable
from bot.kinds.answers import Answer as ServiceAnswer
from bot.kinds.answers import Id, Text
from bot.model import Job, Snapshot, State, Verdict
from bot.slack.context import Feature, HandlerContext, ack_ephemeral
from bot.slack.features.actions import find_job
from bot.slack.features.forms import (
    JobRequest,
    Metadata,
    ack_errors,
    form,
    metadata_of,
    submit_job,
    text_field,
    where_field,
)
from bot.slack.features.list import list_jobs, show_status
from bot.slack.payloads import BlockAction, SlashCommand, ViewSubmission, read
from bot.slack.views.blocks import Json, link
from bot.slack.views.buttons import RETRY
from tests.world import REPLICA

# ── What it is ────────────────────────────────────────────────────────────────────────────────

_VERDICTS: Final = {"ready": Verdict.SUCCEEDED, "error": Verdict.FAILED, "deleted": Verdict.FAILED}


class _Trailer(ServiceAnswer):
    video_id: Id = ""
    video_name: Text = ""
    status: Text = ""
    hosted_url: Text = ""
    status_details: Text = ""


def _body(params: Mapping[str, str]) -> dict[str, str]:
    return {**params, "replica_id": REPLICA, "script": "Coming soon."}


def _created(answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
    trailer = _Trailer.of(answer)
    if not trailer.video_id:
        raise Unreadable("the answer names no id")
    return Snapshot(trailer.video_id, trailer.status, Verdict.GOING)


def _read(answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
    trailer = _Trailer.of(answer)
    if not trailer.status:
        raise Unreadable("the answer has no status")
    verdict = _VERDICTS.get(trailer.status, Verdict.GOING)
    reason = trailer.status_details if verdict is Verdict.FAILED else ""
    facts = trailer.facts("video_name", "hosted_url")
    return Snapshot(remote_id, trailer.status, verdict, reason, facts)


def _compare(params: Mapping[str, str], snapshot: Snapshot) -> Comparison:
    named = snapshot.facts.get("video_name") == params["video_name"]
    return Comparison.SAME if named else Comparison.UNKNOWN


TRAILER: Final = Kind(
    name="trailer",
    path="/v2/videos",
    id_field="video_id",
    promised_created=frozenset({"video_id", "status"}),
    promised_read=frozenset({"video_id", "status"}),
    seen_fields=frozenset({"hosted_url"}),
    schedule="minutes",
    in_progress=frozenset({"queued", "generating"}),
    kept_params=frozenset({"video_name"}),
    body=_body,
    created=_created,
    read=_read,
    compare=_compare,
)


# ── How it is shown ──────────────────────────────────────────────────────────────────────────

COMMAND: Final = "/trailer"
CALLBACK_ID: Final = "create_trailer"


class TrailerPresenter:
    """How trailers look in Slack."""

    noun: Final = "trailer"
    slow: Final = False
    running_word: Final = "Being cut"

    def name(self, job: Job) -> str:
        return job.params.get("video_name", "")

    def replica_id(self, job: Job) -> str | None:  # noqa: ARG002 - none
        return None

    def details(self, job: Job) -> Mapping[str, str]:  # noqa: ARG002 - there are none
        return {}

    def given_links(self, job: Job) -> Mapping[str, str]:  # noqa: ARG002 - there are none
        return {}

    def links(self, job: Job) -> Mapping[str, str]:
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}
        url = link(job.snapshot.facts.get("hosted_url", ""))
        return {} if url is None else {"Show": url}

    def clip(self, job: Job) -> None:  # noqa: ARG002 - there is none
        return None

    def transcript(self, job: Job) -> str:  # noqa: ARG002 - nobody speaks
        return ""

    def progress(self, job: Job) -> tuple[int, int] | None:  # noqa: ARG002 - nobody knows
        return None

    def ready(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return ": curtain up"

    def advice(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - there are none
        return ()

    def more_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - there are none
        return ()


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the command, the form and the button of a failed one."""
    app.view(CALLBACK_ID)(partial(submit, ctx))
    app.command(COMMAND)(partial(handle_command, ctx))
    app.action(f"{TRAILER.name}_{RETRY}")(partial(retry, ctx))


async def handle_command(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    command = read(SlashCommand, body)
    match command.words.split():
        case ["list"]:
            await ack_ephemeral(ack, await list_jobs(ctx, command, TRAILER.name))
        case ["status", wanted]:
            await show_status(ctx, ack, command, TRAILER.name, wanted)
        case _:
            view = _draw_form(ctx, {}, {"channel": command.channel})
            user, channel, trigger_id = command.user, command.channel, command.trigger_id
            if error := await ctx.open_form(TRAILER.name, user, channel, trigger_id, view):
                await ack_ephemeral(ack, error)
            else:
                await ack()


async def retry(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    action = read(BlockAction, body)
    if (job := await find_job(ctx, action)) is not None:
        view = _draw_form(ctx, job.params, {"channel": job.channel})
        user, trigger_id = action.user, action.trigger_id
        if error := await ctx.open_form(TRAILER.name, user, job.channel, trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    submission = read(ViewSubmission, body)
    fields, metadata = submission.view.fields(), metadata_of(submission.view)
    if "video_name" not in fields:
        await ack_errors(ack, submission.view, {"video_name": "What is it called?"})
        return

    def redraw(note: str) -> Json:
        return _draw_form(ctx, fields, metadata, note)

    params = {"video_name": fields["video_name"]}
    limits = ctx.store.limits.current
    request = JobRequest(TRAILER.name, params, ctx.service_deadline(), limits)
    await submit_job(ctx, ack, submission, request, redraw)


def _draw_form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, note: str = ""
) -> Json:
    name = fields.get("video_name")
    blocks: list[Json] = [
        text_field("video_name", "Name", "", name, 100, placeholder="What is it called?"),
        where_field(ctx, fields.get("where")),
    ]
    return form(
        CALLBACK_ID, "Cut a trailer", submit="Cut", metadata=metadata, blocks=blocks, note=note
    )


FEATURE: Final = Feature(TRAILER, TrailerPresenter(), register)
