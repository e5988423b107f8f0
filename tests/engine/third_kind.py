"""A third kind of job, as a developer would add it: the kind, its presenter and its listeners.

In the bot it would be one module in ``bot/kinds`` and one in ``bot/slack``; only the list of
features names it. The sandbox's service has no trailers, so videos stand in for them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from slack_bolt.async_app import AsyncApp

from bot.kinds import Comparison, Kind, Unreadable
from bot.kinds.answers import Answer as ServiceAnswer
from bot.kinds.answers import Id, Text
from bot.model import Job, Snapshot, State, Verdict
from bot.slack.context import (
    Feature,
    HandlerContext,
    Refusal,
    Said,
    answer_command,
    answer_form,
    register_clicks,
)
from bot.slack.features.forms import (
    JobRequest,
    Metadata,
    form,
    metadata_of,
    submit_job,
    text_field,
    where_field,
)
from bot.slack.features.jobs import find_job, list_jobs, show_status
from bot.slack.payloads import BlockAction, SlashCommand, ViewSubmission
from bot.slack.views.blocks import Json, link
from bot.slack.views.buttons import RETRY
from bot.slack.views.presenters import Presenter
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


class TrailerPresenter(Presenter):
    """How trailers look in Slack."""

    noun: Final = "trailer"
    slow: Final = False
    running_word: Final = "Being cut"

    def name(self, job: Job) -> str:
        return job.params.get("video_name", "")

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

    def progress(self, job: Job) -> tuple[int, int] | None:  # noqa: ARG002 - nobody knows
        return None

    def ready(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return ": curtain up"

    def next_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - there are none
        return ()


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the command, the form and the button of a failed one."""
    app.view(CALLBACK_ID)(partial(answer_form, ctx, submit))
    app.command(COMMAND)(partial(answer_command, ctx, handle_command))
    register_clicks(app, ctx, {f"{TRAILER.name}_{RETRY}": retry})


async def handle_command(ctx: HandlerContext, command: SlashCommand) -> Said:
    match command.words.split():
        case ["list"]:
            return await list_jobs(ctx, command, TRAILER.name)
        case ["status", wanted]:
            return await show_status(ctx, command, TRAILER.name, wanted)
    view = _draw_form(ctx, {}, {"channel": command.channel})
    return await ctx.open_form(TRAILER.name, command, command.channel, view)


async def retry(ctx: HandlerContext, action: BlockAction) -> str | None:
    job = await find_job(ctx, action)
    view = _draw_form(ctx, job.params, {"channel": job.channel})
    return await ctx.open_form(TRAILER.name, action, job.channel, view)


async def submit(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    fields, metadata = submission.view.fields(), metadata_of(submission.view)
    if "video_name" not in fields:
        raise Refusal("What is it called?", "video_name")

    def redraw(note: str, changes: Metadata) -> Json:
        return _draw_form(ctx, fields, {**metadata, **changes}, note)

    params = {"video_name": fields["video_name"]}
    request = JobRequest(TRAILER.name, params, ctx.service_deadline(), redraw)
    return await submit_job(ctx, submission, request)


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
