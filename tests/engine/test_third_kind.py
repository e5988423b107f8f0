"""A third kind of job, as a developer would add it, from request to closing reply.

In the bot it would be a module in ``bot/kinds`` and one in ``bot/slack``; only the list of features
names it. The sandbox's service has no trailers: videos stand in for them.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from slack_bolt.async_app import AsyncApp

from bot.app import FEATURES
from bot.kinds.video import VIDEO
from bot.model import Job, State
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
from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

TRAILER: Final = replace(VIDEO, name="trailer", kept_params=frozenset({"video_name"}))
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

    spoken = {"replica_id": REPLICA, "script": "Coming soon."}
    params = {"video_name": fields["video_name"], **spoken}
    until = ctx.service_deadline()
    return await submit_job(ctx, submission, TRAILER.name, params, redraw, deadline=until)


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


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    """A world whose bot has one feature more."""
    async with quiet.running_bot(features=(*FEATURES, FEATURE)):
        yield quiet


async def _cuts(world: World, name: str = "Spring") -> Message:
    """Ask for a trailer with its form and return its card."""
    form = await world.submit_form(world.ana, {"video_name": name}, command=COMMAND)
    assert not form.is_open
    await world.settle()
    return world.posts()[-1]


async def test_it_is_made_and_reported_in_the_thread_once(world: World) -> None:
    card = await world.after(_cuts(world), minutes=1)
    assert world.now(card).text.startswith("Spring\n*Being cut*. I'll reply here.")

    await world.advance(minutes=5)

    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert create.body.pop("callback_url")
    spoken = {"replica_id": REPLICA, "script": "Coming soon."}
    assert create.body == {"video_name": "Spring", **spoken}
    [reply] = world.replies(card)
    assert "“Spring” is ready" in reply.text
    assert "is ready: curtain up." in reply.text
    assert "|Show>" in reply.text
    assert reply.pings == {world.ana.user.id}
    assert world.posts() == [world.now(card), reply]


async def test_when_its_create_answer_is_lost_a_person_decides(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.after(_cuts(world), minutes=16)
    assert "Did this trailer get made?" in world.now(card).text
    [video_id] = world.service.videos

    await world.ana.click(world.question(card), "I found it")
    form = world.ana.form
    await world.after(form.send({"remote_id": video_id}), minutes=5)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


async def test_the_video_form_works_beside_a_second_kind_that_other_jobs_can_use(
    quiet: World,
) -> None:
    catalogued = replace(FEATURE, kind=replace(TRAILER, catalogued=True))
    async with quiet.running_bot(features=(*FEATURES, catalogued)):
        await quiet.request_video(quiet.ana)
        await quiet.after(quiet.ana.command("/replica", f"add {REPLICA}"))

    assert quiet.created_count() == 1
    assert "is ready to use" in quiet.ephemerals(quiet.ana)[-1]


async def test_its_jobs_wait_while_no_feature_knows_it_and_then_go_on(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    features = (*FEATURES, FEATURE)
    async with quiet.running_bot(features=features):
        cards = [await _cuts(quiet, name) for name in ("Spring", "Summer")]
    async with quiet.running_bot():
        video = await quiet.after(quiet.request_video(quiet.ben), hours=5)

    assert "is ready" in quiet.replies(video)[0].text
    assert not any(quiet.replies(card) for card in cards)
    assert "a step failed" not in caplog.messages
    logged = [each for each in caplog.records if "unknown kind" in each.message]
    assert {(each.levelname, vars(each)["kind"]) for each in logged} == {("ERROR", "trailer")}

    async with quiet.running_bot(features=features):
        await quiet.advance(hours=1, minutes=5)

    for card in cards:
        assert "” is ready" in quiet.reply(card).text
    assert len(quiet.service.videos) == 3
