"""A lost create call whose video the service lists: people are offered it, and decide."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from sandbox.faults import CannedResponse, Fault, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack_objects import Message
from tests.modes import on_both_engines
from tests.world import REPLICA, World, buttons_of

SCRIPT = "Welcome to the team, Kim!"
USE = "Use this video"
SILENT = CallbackPlan(times=0)
HTML = CannedResponse(200, "<html>Sign in</html>")


@dataclass
class Lists:
    """A world whose bot looks at the service's lists, and is called back by nobody."""

    world: World

    async def lose(self, *, made: bool = True, callbacks: bool = False) -> Message:
        """Have a create call of Ana's lose its answer; return its card when she was asked."""
        world = self.world
        world.service.callback_plan = SILENT
        world.service.faults.next("create_video", Reset(done=made))
        card = await world.request_video(world.ana, {"script": SCRIPT})
        assert "Checking" in world.now(card).text
        await world.advance(minutes=16 if callbacks else 3)
        return world.now(card)

    async def make(self, script: str = SCRIPT, replica: str = REPLICA) -> str:
        """Have somebody make a video at the service; return its id."""
        service = self.world.service
        async with self.world.slack.session.post(
            f"{service.url}/v2/videos",
            json={"script": script, "replica_id": replica},
            headers={"x-api-key": service.api_key},
        ) as answer:
            return str((await answer.json())["video_id"])

    def offers(self, card: Message) -> bool:
        """Return whether the open question offers a video."""
        question = self.world.question(card)
        labels = [each["text"]["text"] for each in buttons_of(question.blocks)]
        assert ("the same script" in question.text) == (USE in labels)
        return USE in labels


@pytest.fixture
async def lists(quiet_world: World) -> AsyncIterator[Lists]:
    async with quiet_world.running_bot(callbacks=False, VIDEO_API_LISTS="yes"):
        yield Lists(quiet_world)


@pytest.fixture
async def called_back(quiet_world: World) -> AsyncIterator[Lists]:
    async with quiet_world.running_bot(VIDEO_API_LISTS="yes"):
        yield Lists(quiet_world)


@on_both_engines
async def test_a_single_match_is_offered_and_used_when_the_person_says_so(
    quiet_world: World,
) -> None:
    world, lists = quiet_world, Lists(quiet_world)
    async with world.running_bot(callbacks=False, VIDEO_API_LISTS="yes"):
        await lists.make("Something else.")
        asking = await lists.lose()
        question = world.question(asking)
        assert "it has a video with the same script, created " in question.text
        assert "Is it yours?" in question.text
        assert not world.replies(asking), "it is not adopted before somebody says so"

    async with world.running_bot(callbacks=False, VIDEO_API_LISTS="yes"):
        await world.ben.click(question, USE)
        await world.settle()
        assert "Only" in world.ephemerals(world.ben)[-1]
        await world.ana.click(question, USE)
        await world.settle()
        await world.ana.click(question, USE)  # from before the message was edited
        await world.settle()
        assert world.ephemerals(world.ana)[-1] == "That has already been settled."
        await world.advance(minutes=5)

    [reply] = world.replies(asking)
    assert f"/watch/{list(world.service.videos)[-1]}" in reply.text
    assert f"Settled: <@{world.ana.user.id}> found it." in world.now(question).text
    assert len(world.requests_for("create_video")) == 2, "one of them was made by hand"


@pytest.mark.parametrize("times", ["http", "no zone", "none"])
async def test_a_match_is_offered_in_whatever_form_its_time_is(lists: Lists, times: str) -> None:
    lists.world.service.lists.times = times  # type: ignore[assignment]
    lists.world.service.lists.replica_ids = times != "none"
    asking = await lists.lose()
    assert lists.offers(asking)
    assert (
        "created" in lists.world.question(asking).text.split("Is it")[0].split("script")[1]
    ) == (times != "none")


async def test_of_two_matches_none_is_offered(lists: Lists) -> None:
    await lists.make()
    asking = await lists.lose()
    assert not lists.offers(asking)


@pytest.mark.parametrize(
    ("script", "replica"), [(f"{SCRIPT} And Ben.", REPLICA), (SCRIPT, "r-ben")]
)
async def test_what_is_not_the_same_is_not_offered(lists: Lists, script: str, replica: str) -> None:
    lists.world.service.add_replica("r-ben", "Ben")
    await lists.make(script, replica)
    asking = await lists.lose(made=False)
    assert not lists.offers(asking)


@on_both_engines
async def test_what_another_request_made_is_not_offered(quiet_world: World) -> None:
    world, lists = quiet_world, Lists(quiet_world)
    async with world.running_bot(callbacks=False, VIDEO_API_LISTS="yes"):
        await world.request_video(world.ben, {"script": SCRIPT})
        asking = await lists.lose(made=False)
        assert not lists.offers(asking)


async def test_what_was_created_before_the_request_is_not_offered(lists: Lists) -> None:
    await lists.make()
    await lists.world.advance(minutes=11)
    asking = await lists.lose(made=False)
    assert not lists.offers(asking)


async def test_what_the_list_says_is_checked_before_it_is_used(lists: Lists) -> None:
    other = await lists.make("Something else.")
    lists.world.service.lists.overrides[other] = {"data": {"script": SCRIPT}}
    asking = await lists.lose(made=False)
    assert lists.offers(asking)

    await lists.world.ana.click(lists.world.question(asking), USE)
    await lists.world.advance(minutes=5)

    assert "isn't the one that was requested" in lists.world.ephemerals(lists.world.ana)[-1]
    assert not lists.world.replies(asking)


@pytest.mark.parametrize(
    "fault",
    [
        CannedResponse(500, "<html>Oops</html>"),
        HTML,
        CannedResponse(404, {"message": "Not found"}),
        CannedResponse(200, {"data": None}),
        CannedResponse(200, {"data": [7, {"video_id": None}, {"video_id": "v1", "data": []}]}),
    ],
    ids=["broken", "HTML", "not there", "no list", "odd items"],
)
async def test_people_are_asked_as_without_a_list_while_it_cannot_be_read(
    lists: Lists, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    world = lists.world
    world.service.faults.always("list_videos", fault)
    asking = await lists.lose()
    assert not lists.offers(asking)
    assert "the video service is down" not in caplog.messages
    assert len(world.requests_for("list_videos")) <= 5

    world.service.faults.clear()
    await world.advance(minutes=30)

    assert lists.offers(asking), "the question shows it once the list can be read"
    assert len(world.questions(asking)) == 1
    await world.ana.click(world.question(asking), USE)
    await world.advance(minutes=5)
    assert len(world.replies(asking)) == 1


async def test_what_is_listed_with_the_token_of_the_request_is_used_at_once(
    called_back: Lists,
) -> None:
    world = called_back.world
    world.service.lists.echoes = True
    world.service.callback_plan = SILENT
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana, {"script": SCRIPT})
    await world.advance(minutes=5)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert not world.questions(card)
    assert len(world.requests_for("create_video")) == 1


async def test_what_is_listed_with_another_token_is_not_offered(called_back: Lists) -> None:
    world = called_back.world
    other = await called_back.make()
    world.service.lists.overrides[other] = {"callback_url": "https://bot.example.com/callbacks/x"}
    asking = await called_back.lose(made=False, callbacks=True)
    assert not called_back.offers(asking)


async def test_a_list_that_shows_the_token_with_another_video_is_not_believed(
    called_back: Lists,
) -> None:
    world = called_back.world
    other = await called_back.make("Something else.")
    world.service.faults.next("create_video", Reset())
    card = await world.request_video(world.ana, {"script": SCRIPT})
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    world.service.lists.overrides[other] = {"callback_url": body["callback_url"]}

    await world.advance(minutes=20)

    assert not called_back.offers(card)
    assert not world.replies(card)
    assert len(world.requests_for("read_video")) < 10


async def test_a_callback_is_waited_for_although_the_list_shows_a_match(
    called_back: Lists,
) -> None:
    world = called_back.world
    world.service.callback_plan = CallbackPlan(after=timedelta(minutes=5))
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana, {"script": SCRIPT})
    await world.advance(minutes=12)

    assert len(world.replies(card)) == 1
    assert not world.questions(card)


async def test_the_service_is_not_asked_for_lists_without_the_setting(world: World) -> None:
    world.service.callback_plan = SILENT
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    await world.advance(minutes=16)

    assert USE not in json.dumps(world.question(card).blocks)
    assert not world.requests_for("list_videos")


async def test_a_match_on_a_later_page_is_offered_and_few_pages_are_read(lists: Lists) -> None:
    world = lists.world
    world.service.callback_plan = SILENT
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana, {"script": SCRIPT})
    for number in range(45):
        await lists.make(f"Script {number}")
    await world.advance(minutes=3)
    assert lists.offers(card)
    looks = len(world.requests_for("list_videos"))
    assert looks == 3

    await world.advance(days=2)
    assert len(world.requests_for("list_videos")) == looks, "what was found is not looked for again"


async def test_a_lost_training_is_offered_by_its_name(lists: Lists) -> None:
    world = lists.world
    world.service.next_replica(Scenario(callback_plan=SILENT))
    world.service.faults.next("create_replica", Reset(done=True))
    card = await world.request_replica(world.ana, {"replica_name": "Kim"})
    await world.advance(minutes=3)
    assert "the same name or training video" in world.question(card).text
    await world.ana.click(world.question(card), "Use this replica")
    await world.advance(hours=5)

    assert len(world.replies(card)) == 1
    assert len(world.requests_for("create_replica")) == 1
