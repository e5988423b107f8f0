"""Two copies of the bot on one PostgreSQL database: each request may reach either of them."""

import asyncio
from datetime import timedelta

import pytest

from sandbox.delivery import deliver
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from tests.journeys.test_bound_clicks import CREATE_AGAIN
from tests.web.test_web import asks_what_to_do, click
from tests.world import REPLICA, World, is_question, offered_ids

VALUES = {"replica_id": REPLICA, "script": "Hello, world."}


@pytest.fixture
def world(world_of_copies: World) -> World:
    return world_of_copies


# ── Forms ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_form_that_one_copy_opened_is_served_and_submitted_at_the_other(
    world: World,
) -> None:
    async with world.running_copies() as (first, second):
        await world.at(first, world.ana.command("/replica", f"add {REPLICA}"))
        await world.settle()
        form = await world.at(first, world.open_form(world.ana))
        assert await world.at(first, offered_ids(form)) == [REPLICA]
        assert await world.at(second, offered_ids(form)) == [REPLICA]
        await world.at(second, form.submit(VALUES))
        # Slack sends it once more, elsewhere.
        await world.at(first, form.resubmit())
        await world.advance(minutes=5)
        card, reply = world.posts()
        assert (reply.thread_ts, world.created_count()) == (card.ts, 1)


# ── Clicks ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("button", "creates", "state"),
    [(CREATE_AGAIN, 2, "Rendering"), ("Cancel request", 1, "ancelled")],
)
async def test_an_answer_to_a_question_that_reaches_both_copies_counts_once(
    button: str, creates: int, state: str, world: World
) -> None:
    async with world.running_copies(PUBLIC_URL="") as copies:
        card = await asks_what_to_do(world)
        body = click(world, world.question(card), button)
        for _ in range(2):
            await asyncio.gather(
                *(world.at(copy, deliver(world.slack, body)) for copy in copies * 2)
            )
            await world.advance(seconds=5)
        assert state in world.now(card).text
        assert len(world.requests_for("create_video")) == creates
        await world.advance(minutes=5)
        assert len(world.replies(card)) == 1


async def test_a_click_that_reaches_the_other_copy_later_changes_nothing(world: World) -> None:
    async with world.running_copies(PUBLIC_URL="") as copies:
        card = await asks_what_to_do(world)
        body = click(world, world.question(card), CREATE_AGAIN)
        for copy in copies:
            await world.at(copy, deliver(world.slack, body))
            await world.advance(seconds=5)
        assert len(world.requests_for("create_video")) == 2


# ── What one copy learns ──────────────────────────────────────────────────────────────────────


async def test_what_one_copy_learns_of_replicas_the_other_offers_at_once(world: World) -> None:
    async with world.running_copies() as (first, second):
        await world.at(first, world.ana.command("/replica", f"add {REPLICA}"))
        await world.settle()
        forms = [await world.open_form(person) for person in (world.ana, world.ben)]
        for form in forms:
            assert await world.at(first, offered_ids(form)) == [REPLICA]
            assert await world.at(second, offered_ids(form)) == [REPLICA]
        world.service.add_replica("r-kim", "Kim")
        await world.at(first, world.ana.command("/replica", "add r-kim"))
        await world.settle()
        assert set(await world.at(second, offered_ids(forms[0]))) == {REPLICA, "r-kim"}
        await world.at(second, world.ana.command("/replica", "default r-kim"))
        await world.settle()
        assert (await world.at(first, offered_ids(forms[1])))[0] == "r-kim"
        for form in forms:
            await form.close()
        form = await world.at(first, world.open_form(world.ben))
        assert form.values["replica_id"] == "r-kim"


# ── Callbacks, and messages in order ──────────────────────────────────────────────────────────


async def test_a_callback_reaches_the_other_copy_at_any_moment_of_a_job(world: World) -> None:
    """During the create call, between polls, during a read, and while its card is posted."""
    async with world.running_copies():
        world.service.callback_plan = CallbackPlan(early=True, times=2)
        await world.request_video(world.ana)
        world.service.callback_plan = CallbackPlan()
        await world.request_video(world.ana)
        video = list(world.service.videos)[-1]

        async def call_back(phase: str, name: str, _: object) -> None:
            if (phase, name) in {("after", "read_video"), ("before", "chat.postMessage")}:
                await world.service.call_back(video)

        world.service.on_request = call_back
        world.slack.on_request = call_back
        await world.request_video(world.ana)
        await world.advance(minutes=5)
        assert len(world.requests_for("create_video")) == 3
        cards = world.slack.messages("studio")
        assert ["Ready" in world.now(card).text for card in cards] == [True] * 3
        assert [len(world.replies(card)) for card in cards] == [1] * 3


async def test_a_copy_that_starts_delays_no_edit_of_the_others(world: World) -> None:
    async with world.running_bot():
        card = await world.request_video(world.ana)
        world.slack.faults.next("chat.update", CannedResponse(429, "", {"Retry-After": "5"}))
        video = next(iter(world.service.videos))
        world.service.finish(video)
        await world.service.call_back(video)
        await world.settle()
        assert "Ready" not in world.now(card).text, "it is tried again in five seconds"
        async with world.running_bot():
            await world.advance(seconds=10)
            assert "Ready" in world.now(card).text


# ── Socket Mode ───────────────────────────────────────────────────────────────────────────────


async def test_an_envelope_that_two_copies_receive_is_one_request(world: World) -> None:
    world.socket_mode = True
    async with world.running_copies():
        assert len(world.slack.socket_mode.connections) == 2
        for twice in (False, True):
            world.slack.socket_mode.delivers_twice = twice
            form = await world.open_form(world.ana)
            await form.submit(VALUES)
            assert not form.is_open
            # While the second copy stores it once more, it has the job's row locked.
            async with asyncio.timeout(30):
                while len(world.slack.messages("studio")) <= twice:
                    await world.settle()
        await world.advance(minutes=5)
        assert world.created_count() == 2
        assert len(world.posts()) == 4
        assert all(each.acknowledged for each in world.slack.socket_mode.connections)


async def test_copies_that_ask_a_person_at_once_post_one_message(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.pauses = {**world.pauses, "first_hold": timedelta(0)}
    async with world.running_copies() as copies:
        world.service.faults.next("create_video", *[CannedResponse(500)] * 12)
        for number in range(12):
            asked = {"script": f"Number {number}."}
            await world.at(copies[number % 2], world.request_video(world.ana, asked))
        await world.advance(minutes=16)
        [question] = [each for each in world.posts() if is_question(each)]
        assert "these 12 videos" in question.text
