"""When a card is posted, what its first version says, and how many calls a video takes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.model import Failure
from bot.timings import Timings
from sandbox.driver import Person
from sandbox.faults import CannedResponse, Drip, Fault, Hang, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack_objects import Message
from tests.journeys.test_approval import decline, requests, settings
from tests.modes import in_both_modes, on_both_engines
from tests.slack.test_slack_client import limited
from tests.world import REPLICA, World, number_of

TYPED = {"replica_id": REPLICA, "script": "Hello, world."}
POST, EDIT = "chat.postMessage", "chat.update"
NAMES = {
    "*Ana* <!channel>": "Ana &lt;!channel&gt;",
    "_ana_lima_ `x` ~y~": "ana_lima x y",
    "<@U1>\u202e & co\nmore": "&lt;@U1&gt; &amp; co",
    "n" * 300: "n" * 57 + "…",
}


@contextlib.asynccontextmanager
async def create_under_way(world: World) -> AsyncIterator[None]:
    """Ask for a video; inside, the service is creating it, and has not answered yet."""
    begun, answers = asyncio.Event(), asyncio.Event()

    async def hold(phase: str, operation: str, _: str) -> None:
        if (phase, operation) == ("before", "create_video"):
            begun.set()
            await answers.wait()

    world.service.on_request = hold
    await world.submit_form(world.ana, TYPED)
    async with asyncio.timeout(30):
        await begun.wait()
        yield
    world.service.on_request = None
    answers.set()
    await world.settle()


async def posted(world: World) -> Message:
    """Return the first message in the channel, once it is there; the service is not waited for."""
    async with asyncio.timeout(30):
        while not (messages := world.slack.messages("studio")):  # noqa: ASYNC110 - by the bot's clock
            await asyncio.sleep(0)
    return messages[0]


def pass_time(world: World, seconds: float) -> None:
    """Push the clock, and let the bot see that without waiting for its calls."""
    world.clock.set(world.clock.now() + timedelta(seconds=seconds))


def methods(world: World) -> list[str]:
    return [call.method for call in world.slack.calls]


@in_both_modes
@on_both_engines
async def test_a_video_takes_three_calls_to_slack(world: World) -> None:
    for _ in range(2):
        form = await world.after(world.open_form(world.ana))
        before, replies = len(world.slack.calls), len(world.posts())
        await world.after(form.submit(TYPED))
        [card] = world.posts()[replies:]
        assert card.text.startswith("Hello, world.\n*Rendering*")
        await world.advance(minutes=5)
        assert sorted(methods(world)[before:]) == [POST, POST, EDIT]
        assert "Ready" in world.now(card).text
        assert len(world.replies(card)) == 1


@on_both_engines
async def test_a_card_whose_create_call_is_not_answered_is_posted_after_a_second(
    world: World,
) -> None:
    async with create_under_way(world):
        pass_time(world, 0.9)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not world.slack.messages("studio")
        pass_time(world, 0.1)
        card = await posted(world)
        assert "Sending your request…" in card.text
        assert "Requested by ana" in card.text
    assert "Rendering" in world.now(card).text
    await world.advance(minutes=5)
    assert Counter(methods(world)) & Counter({POST: 9, EDIT: 9}) == {POST: 2, EDIT: 2}


async def test_a_request_that_is_refused_at_once_is_a_card_and_a_reply(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(400, {"message": "No such replica"}))
    started = world.clock.now()
    card = await world.request_video(world.ana)
    assert world.clock.now() == started, "it does not wait for its time"
    await world.advance(minutes=5)
    assert "Failed" in card.text
    assert "No such replica" in card.text
    assert world.now(card) == card
    assert len(world.replies(card)) == 1
    assert EDIT not in methods(world)


@on_both_engines
async def test_a_job_that_ends_before_its_card_could_be_posted_is_posted_as_it_ended(
    world: World,
) -> None:
    world.slack.faults.next(POST, *[CannedResponse(503)] * 8)
    await world.after(world.submit_form(world.ana, TYPED), hours=1)
    [card] = world.slack.messages("studio")
    assert card.edited is None
    assert "Ready" in card.text
    assert "Requested by ana" in card.text
    assert not card.pings
    assert world.reply(card).ts > card.ts
    assert EDIT not in methods(world)


@on_both_engines
async def test_a_card_comes_though_the_process_ended_right_after_the_form(quiet: World) -> None:
    quiet.timings = Timings(jitter=0, stop_timeout=timedelta(0))
    async with contextlib.AsyncExitStack() as stack:
        async with quiet.running_bot():
            await stack.enter_async_context(create_under_way(quiet))
        assert not quiet.slack.messages("studio")
        quiet.service.faults.always("read_video", CannedResponse(503))
        async with quiet.running_bot():
            await quiet.advance(minutes=3)
            [card] = quiet.slack.messages("studio")
            assert "Checking" in card.text
            assert "Requested by ana" in card.text


async def test_nobody_is_pinged_but_by_the_closing_reply(world: World) -> None:
    for number in range(40):
        await world.submit_form(world.ana, {**TYPED, "video_name": f"Part {number}"})
    pinged = []

    async def note(phase: str, method: str, arguments: dict[str, object]) -> None:
        if (phase, method) == ("before", POST):
            pinged.append("<@" in str(arguments["text"]) + str(arguments["blocks"]))

    world.slack.on_request = note
    await world.advance(minutes=10)
    cards = world.slack.messages("studio")
    assert len(cards) == 40
    for card in cards:
        assert "Requested by ana" in card.text
        assert not card.pings
        assert [reply.pings for reply in world.replies(card)] == [{world.ana.user.id}]


@pytest.mark.parametrize("name", NAMES, ids=["a ping", "formats", "a mention", "long"])
async def test_a_name_is_shown_letter_by_letter(name: str, world: World) -> None:
    world.slack.add_user(name, channels=["studio"])
    card = await world.request_video(Person(world.slack, name))
    shown = f"Requested by {NAMES[name]} · Replica: Anna"
    assert shown in card.text
    assert shown in str(card.blocks)
    assert not card.pings


@pytest.mark.parametrize("name", NAMES, ids=["a ping", "formats", "a mention", "long"])
async def test_the_name_of_a_replica_and_of_a_video_is_shown_letter_by_letter(
    name: str, world: World
) -> None:
    world.service.add_replica("r-other", name)
    await world.after(world.ana.command("/replica", "add r-other"))
    card = await world.request_video(
        world.ana, {"replica_id": "r-other", "video_name": "*Welcome* to _all_"}
    )
    assert f"Replica: {NAMES[name]}" in str(card.blocks)
    assert card.text.startswith("Welcome to all\n")
    assert "*Welcome* to _all_" in str(card.blocks), "a rich text formats nothing"
    await world.advance(minutes=5)
    assert "“Welcome to all”" in world.reply(card).text


async def test_a_decline_before_the_card_pings_no_approver(quiet: World) -> None:
    quiet.slack.add_channel("approvals")
    async with quiet.running_bot(**settings(quiet)):
        await quiet.after(quiet.submit_form(quiet.ana, TYPED))
        assert not quiet.slack.messages("studio")
        [asked] = requests(quiet)
        await decline(quiet, asked, quiet.ben, "Not now.")
        [card] = quiet.slack.messages("studio")
        [reply] = quiet.replies(card)
        assert "*Declined* by ben\n" in card.text
        assert "was declined by ben." in reply.text
        assert not card.pings
        assert reply.pings == {quiet.ana.user.id}
        assert card.edited is None


async def test_a_person_is_looked_up_once_for_many_videos(quiet: World) -> None:
    quiet.timings = replace(quiet.timings, recheck_down=timedelta(minutes=10))
    async with quiet.running_bot(ADMIN_USERS=quiet.ana.user.id):
        for _ in range(3):
            card = await quiet.after(quiet.request_video(quiet.ana), minutes=3)
            assert "Requested by ana" in quiet.now(card).text
        assert len(quiet.calls("users.info")) == 1
        # Their cards are edited long after, without a look at who may ask for what.
        quiet.service.faults.always("read_video", CannedResponse(503))
        card = await quiet.request_video(quiet.ana)
        asked = len(quiet.calls("users.info"))
        await quiet.advance(hours=5)
        assert len(quiet.calls("users.info")) == asked
        assert "Requested by ana" in quiet.now(card).text


@pytest.mark.parametrize(
    "fault",
    [
        CannedResponse(503),
        limited(60),
        Reset(),
        CannedResponse(200, "<html>"),
        CannedResponse(200, {"ok": True, "user": {"real_name": 7}}),
        CannedResponse(200, {"ok": False, "error": "fatal_error"}),
    ],
    ids=str,
)
async def test_a_name_that_slack_did_not_tell_is_there_in_the_next_version(
    fault: Fault, quiet: World
) -> None:
    quiet.slack.faults.always("users.info", fault)
    async with quiet.running_bot(ADMIN_USERS=quiet.ana.user.id):
        card = await quiet.request_video(quiet.ana)
        assert "Rendering" in card.text
        assert "Requested" not in card.text
        assert quiet.ana.user.id not in card.text + str(card.blocks)
        quiet.slack.faults.clear()
        await quiet.advance(minutes=5)
        assert "Ready" in quiet.now(card).text
        assert "Requested by ana" in quiet.now(card).text


@pytest.mark.parametrize("fault", [Hang(), Drip(), CannedResponse(200, {"ok": True})], ids=str)
async def test_a_card_does_not_wait_for_a_name(fault: Fault, quiet: World) -> None:
    quiet.pauses = {**quiet.pauses, "name_timeout": timedelta(milliseconds=50)}
    quiet.timings = Timings(jitter=0, call_timeout=timedelta(seconds=3))
    quiet.slack.faults.always("users.info", fault)
    async with quiet.running_bot(ADMIN_USERS=quiet.ana.user.id):
        began = asyncio.get_running_loop().time()
        await quiet.submit_form(quiet.ana, TYPED)
        card = await posted(quiet)
        assert asyncio.get_running_loop().time() - began < 3, "the call takes that long"
        assert "Rendering" in card.text
        assert "Requested" not in card.text
        assert quiet.ana.user.id not in card.text + str(card.blocks)
        await quiet.advance(minutes=5)
        assert "Ready" in quiet.now(card).text
        assert len(quiet.replies(card)) == 1


async def test_without_users_read_a_card_has_no_name_and_slack_is_asked_once(quiet: World) -> None:
    quiet.slack.scopes.discard("users:read")
    async with quiet.running_bot():
        for _ in range(3):
            card = await quiet.after(quiet.request_video(quiet.ana), minutes=3)
            assert "Requested" not in quiet.now(card).text
        assert len(quiet.calls("users.info")) == 1


STOPPED = "You stopped waiting for this video. You may still be charged."


def shown(message: Message) -> tuple[list[str], list[str]]:
    """Return the buttons of a message, with a star for the main one, and what its menu offers."""
    [elements] = [each["elements"] for each in message.blocks if each["type"] == "actions"]
    *buttons, menu = elements
    assert menu["type"] == "overflow"
    return (
        [each["text"]["text"] + "*" * (each.get("style") == "primary") for each in buttons],
        [each["text"]["text"] for each in menu["options"]],
    )


async def test_a_card_has_at_most_two_buttons_and_a_menu_that_costs_nothing(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    card = await world.after(world.request_video(world.ana), seconds=30)
    assert shown(world.now(card)) == (["Stop waiting"], ["Details"])
    await world.advance(minutes=5)
    ready = world.now(card)
    assert shown(ready) == (["Watch*", "Another like this"], ["Download", "Details"])

    world.service.next_video(Scenario(end="error", reason="Too shy"))
    failed = await world.after(world.request_video(world.ana), minutes=5)
    assert shown(world.now(failed)) == (["Edit and retry*"], ["Details"])

    world.service.next_video(Scenario(end="never"))
    late = await world.after(world.request_video(world.ana), hours=4)
    assert shown(world.now(late)) == (["Check now*", "Stop waiting"], ["Details"])
    await world.after(world.ana.click(world.now(late), "Stop waiting"))
    assert shown(world.now(late)) == (["Check now*", "Edit and retry"], ["Details"])

    await world.after(world.ana.open_home())
    assert world.ana.home is not None
    rows = [each["elements"] for each in world.ana.home.view.body["blocks"] if "elements" in each]
    menus = [each for each in rows if each[-1].get("type") == "overflow"]
    assert [len(each) for each in menus] == [2, 2, 2], "one button and the menu for each request"


async def test_the_download_in_the_menu_is_a_link_that_opens_nothing_else(world: World) -> None:
    card = await world.after(world.request_video(world.ana), minutes=5)
    assert (await world.ben.click(world.now(card), "Download")).ok
    await world.settle()
    assert world.ben.modal is None
    assert world.ephemerals(world.ben) == []
    assert (await world.ana.click(world.now(card), "Details")).ok
    assert world.ana.modal is not None


async def test_buttons_of_a_message_from_before_the_menu_still_work(world: World) -> None:
    card = await world.after(world.request_video(world.ana), minutes=5)
    ready, number = world.now(card), number_of(card)
    old = [
        {"type": "button", "action_id": "open_link_1", "url": "https://example.com/v.mp4"},
        {"type": "button", "action_id": "job_details", "value": number},
    ]
    words = {"type": "plain_text", "text": "Old"}
    elements = [{**each, "text": words} for each in old]
    before = replace(ready, blocks=[{"type": "actions", "block_id": "old", "elements": elements}])
    assert (await world.ana.click(before, "open_link_1")).ok
    assert world.ana.modal is None
    assert (await world.ana.click(before, "job_details")).ok
    assert world.ana.modal is not None


@in_both_modes
async def test_stop_waiting_ends_a_video_once_whatever_comes_later(world: World) -> None:
    card = await world.after(world.request_video(world.ana), seconds=30)
    running = world.now(card)
    asked = await world.ana.click(running, "Stop waiting", confirm=False)
    assert asked.dialog is not None
    assert "you may be charged" in str(asked.dialog)

    await world.after(world.ben.click(running, "Stop waiting"))
    assert f"Only <@{world.ana.user.id}> or an admin can do that." in world.ephemerals(world.ben)
    await world.ana.click(running, "Stop waiting")
    await world.after(world.ana.click(running, "Stop waiting"))

    stopped = world.now(card)
    assert "*Stopped* waiting\nYou may still be charged." in stopped.text
    [reply] = world.replies(card)
    assert reply.text == STOPPED
    assert reply.pings == set(), "they know: they pressed it"
    assert ["already settled" in each for each in world.ephemerals(world.ana)] == [True]

    reads = len(world.requests_for("read_video"))
    await world.advance(minutes=10)  # its callback comes
    await world.after(world.service.call_back(next(iter(world.service.videos))), hours=2)
    assert world.posts() == [stopped, reply]
    assert len(world.requests_for("read_video")) == reads

    await world.after(world.ana.click(stopped, "Check now"))
    assert "Video service status: ready" in world.ephemerals(world.ana)[-1]
    assert world.posts() == [stopped, reply]


async def test_a_click_for_an_earlier_attempt_stops_nothing(world: World) -> None:
    card = await world.after(world.request_video(world.ana), seconds=30)
    number, now = number_of(card), world.clock.now()
    jobs = world.bot.store.jobs
    for attempts in (0, 2):
        assert not await jobs.close(number, attempts, Failure.STOPPED, "U1", now)
    await world.advance(minutes=5)
    assert "is ready" in world.replies(card)[0].text


async def test_details_have_everything_for_the_person_who_asked_and_nothing_for_others(
    world: World,
) -> None:
    typed = {"video_name": "Greeting", "script": "A secret script."}
    card = await world.after(world.request_video(world.ana, typed), seconds=30)
    [video_id] = world.service.videos
    shown = (await world.details(world.ana, card)).text.split("\n")
    assert shown[0] == "Greeting"
    at = shown.index("For support")
    wanted, for_support = shown[:at], shown[at + 1 :]
    assert wanted[-1] == "A secret script."
    assert wanted[1:-1] == [
        "Status: Rendering",
        "Replica: Anna",
        "Length: about 1 second",
        "Requested: 2026-03-02 09:00 UTC",
    ]
    assert {
        f"Request number: {number_of(card)}",
        f"Replica ID: {REPLICA}",
        f"Video ID: {video_id}",
        "Video service status: generating",
    } <= set(for_support)

    await world.after(world.ben.click(world.now(card), "Details"))
    assert world.ben.modal is None
    [said] = world.ephemerals(world.ben)
    assert said == f"Only <@{world.ana.user.id}> or an admin can see the details."

    assert video_id not in card.text
    assert number_of(card) not in world.now(card).text
    assert "Requested by ana · Replica: Anna" in world.now(card).text

    await world.advance(minutes=5)
    ended = (await world.details(world.ana, card)).text.split("\n")
    assert "Took: 2 minutes" in ended[: ended.index("For support")]


async def test_an_admin_sees_the_details_but_not_the_script(quiet: World) -> None:
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id):
        card = await quiet.request_video(quiet.ana, {"script": "A secret script."})
        await quiet.advance(seconds=30)
        shown = await quiet.details(quiet.ben, card)
    assert next(iter(quiet.service.videos)) in shown.text
    assert "secret" not in str(shown)


async def test_another_like_this_opens_the_form_filled_in_for_a_new_request_in_the_channel(
    world: World,
) -> None:
    card = await world.after(world.request_video(world.ana, {"video_name": "Greeting"}), minutes=5)
    await world.ana.click(world.now(card), "Another like this")
    form = world.ana.form
    assert form.values["script"] == "Hello, world."
    assert form.values["video_name"] == "Greeting"
    await world.after(form.submit({"script": "Goodbye, world."}))
    first, second = world.slack.messages("studio")
    assert first == world.now(card), "the first one stays as it was"
    assert second.thread_ts is None

    await world.ben.click(world.now(card), "Another like this")
    assert world.ben.form.values["replica_id"] == REPLICA
    assert world.ben.form.values["script"] is None, "only the person who typed it sees it there"


async def test_another_like_this_works_for_those_alone_who_see_the_video(world: World) -> None:
    world.slack.add_channel("den", kind="private")
    card = await world.request_video(world.ana, {"video_name": "Greeting"}, "den")
    await world.advance(minutes=5)
    card = world.now(card)
    # A client that is not Slack's names a number that it has guessed.
    elsewhere = replace(card, channel=world.slack.channel("lobby").id)
    await world.after(world.ben.click(elsewhere, "Another like this"))
    assert world.ben.modal is None
    who = f"<@{world.ana.user.id}>"
    assert world.ephemerals(world.ben, "lobby") == [f"Only {who} or an admin can use this here."]
    await world.ana.click(elsewhere, "Another like this")
    assert world.ana.modal is not None
    await world.ben.click(card, "Another like this")
    assert world.ben.modal is not None
