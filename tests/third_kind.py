"""A third kind of job, as somebody would add it: what it is, how it shows itself, its command.

In the bot it would be one module in ``bot/kinds`` and one in ``bot/slack``; nothing else knows of
it but the list of features. The sandbox's service has no trailers, so videos stand in for them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from bot.kinds import Unreadable
from bot.kinds.wire import Answer as ServiceAnswer
from bot.kinds.wire import Id, Text
from bot.model import Job, Snapshot, State, Verdict
from bot.slack.blocks import Json, link
from bot.slack.cards import RETRY
from bot.slack.desk import Desk, Feature
from bot.slack.forms import Place, form, place_of, send_off, text_field, where_field, wrong
from bot.slack.jobs import listing, pressed, status, tell
from bot.slack.payloads import Click, Command, Submission
from bot.slack.routes import Answer, Routes
from tests.world import REPLICA

# ── What it is ────────────────────────────────────────────────────────────────────────────────

_VERDICTS: Final = {"ready": Verdict.SUCCEEDED, "error": Verdict.FAILED, "deleted": Verdict.FAILED}


class _Trailer(ServiceAnswer):
    video_id: Id = ""
    video_name: Text = ""
    status: Text = ""
    hosted_url: Text = ""
    status_details: Text = ""


class Trailer:
    """The ``Kind`` of trailers."""

    name: Final = "trailer"
    path: Final = "/v2/videos"
    id_field: Final = "video_id"
    schedule: Literal["minutes", "hours"] = "minutes"
    in_progress = frozenset({"queued", "generating"})
    kept_params = frozenset({"video_name"})
    catalogued: Final = False

    def body(self, params: Mapping[str, str]) -> dict[str, str]:
        return {**params, "replica_id": REPLICA, "script": "Coming soon."}

    def created(self, answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
        trailer = _Trailer.of(answer)
        if not trailer.video_id:
            raise Unreadable("the answer names no id")
        return Snapshot(trailer.video_id, trailer.status, Verdict.GOING)

    def read(self, answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
        trailer = _Trailer.of(answer)
        if not trailer.status:
            raise Unreadable("the answer has no status")
        verdict = _VERDICTS.get(trailer.status, Verdict.GOING)
        reason = trailer.status_details if verdict is Verdict.FAILED else ""
        facts = trailer.facts("video_name", "hosted_url")
        return Snapshot(remote_id, trailer.status, verdict, reason, facts)

    def matches(self, params: Mapping[str, str], snapshot: Snapshot) -> bool:
        return snapshot.facts.get("video_name") == params["video_name"]

    def can_compare(self, snapshot: Snapshot) -> bool:
        return "video_name" in snapshot.facts

    def uses(self, params: Mapping[str, str]) -> tuple[str, str] | None:  # noqa: ARG002 - nothing
        return None

    def is_waiting(self, snapshot: Snapshot) -> bool:  # noqa: ARG002 - for nothing
        return False


# ── How it shows itself ───────────────────────────────────────────────────────────────────────

COMMAND: Final = "/trailer"
_FORM: Final = "trailer_form"


class TrailerFace:
    """How a trailer shows itself."""

    noun: Final = "trailer"
    slow: Final = False
    doing: Final = "Being cut"

    def name(self, job: Job) -> str:
        return job.params.get("video_name", "")

    def facts(self, job: Job) -> Sequence[str]:  # noqa: ARG002 - there are none
        return ()

    def links(self, job: Job) -> Mapping[str, str]:
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}
        url = link(job.snapshot.facts.get("hosted_url", ""))
        return {} if url is None else {"Show": url}

    def transcript(self, job: Job) -> str:  # noqa: ARG002 - nobody speaks
        return ""

    def making(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return "Somebody is cutting it."

    def ready(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return "Curtain up!"

    def advice(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - there are none
        return ()


def register(routes: Routes, desk: Desk) -> None:
    """Answer the command, the form and the button of a failed one."""
    routes.command(COMMAND, partial(_on_command, desk))
    routes.submission(_FORM, partial(_on_form, desk))
    routes.click(f"{Trailer.name}_{RETRY}", partial(_on_retry, desk))


async def _on_command(desk: Desk, command: Command) -> Answer:
    match command.words.split():
        case ["list"]:
            return await listing(desk, command, Trailer.name)
        case ["status", wanted]:
            return await status(desk, command, Trailer.name, wanted)
        case _:
            view = _form({}, {"channel": command.channel})
            told = await desk.open_form(command.trigger_id, view)
            return {"text": told} if told else None


async def _on_retry(desk: Desk, click: Click) -> Answer:
    if (job := await pressed(desk, click)) is not None:
        view = _form(job.params, {"channel": job.channel})
        if told := await desk.open_form(click.trigger_id, view):
            tell(desk, click, told)
    return None


async def _on_form(desk: Desk, submission: Submission) -> Answer:
    fields, place = submission.view.typed(), place_of(submission.view)
    if "video_name" not in fields:
        return wrong({"video_name": "What is it called?"})

    async def redraw(note: str) -> Json:
        return _form(fields, place, note)

    params = {"video_name": fields["video_name"]}
    return await send_off(desk, submission, Trailer.name, params, redraw)


def _form(fields: Mapping[str, str], place: Place, note: str = "") -> Json:
    name = fields.get("video_name")
    blocks: list[Json] = [
        text_field("video_name", "Name", "", name, 100, placeholder="What is it called?"),
        where_field(fields.get("where")),
    ]
    return form(_FORM, "Cut a trailer", submit="Cut", place=place, blocks=blocks, note=note)


FEATURE: Final = Feature(Trailer(), TrailerFace(), register)
