"""Two buttons and a menu: Stop waiting, Check now, Another like this, Details."""

from dataclasses import replace

from bot.model import Failure
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack_objects import Message
from tests.modes import in_both_modes
from tests.world import REPLICA, World, number_of

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
    card = await world.request_video(world.ana)
    await world.advance(seconds=30)
    assert shown(world.now(card)) == (["Stop waiting"], ["Details"])
    await world.advance(minutes=5)
    ready = world.now(card)
    assert shown(ready) == (["Watch*", "Another like this"], ["Download", "Details"])

    world.service.next_video(Scenario(end="error", reason="Too shy"))
    failed = await world.request_video(world.ana)
    await world.advance(minutes=5)
    assert shown(world.now(failed)) == (["Edit and retry*"], ["Details"])

    world.service.next_video(Scenario(end="never"))
    late = await world.request_video(world.ana)
    await world.advance(hours=4)
    assert shown(world.now(late)) == (["Check now*", "Stop waiting"], ["Details"])
    await world.ana.click(world.now(late), "Stop waiting")
    await world.settle()
    assert shown(world.now(late)) == (["Check now*", "Edit and retry"], ["Details"])

    await world.ana.open_home()
    await world.settle()
    assert world.ana.home is not None
    rows = [each["elements"] for each in world.ana.home.view.body["blocks"] if "elements" in each]
    menus = [each for each in rows if each[-1].get("type") == "overflow"]
    assert [len(each) for each in menus] == [2, 2, 2], "one button and the menu for each request"


async def test_the_download_in_the_menu_is_a_link_that_opens_nothing_else(world: World) -> None:
    card = await world.request_video(world.ana)
    await world.advance(minutes=5)
    assert (await world.ben.click(world.now(card), "Download")).ok
    await world.settle()
    assert world.ben.modal is None
    assert world.ephemerals(world.ben) == []
    assert (await world.ana.click(world.now(card), "Details")).ok
    assert world.ana.modal is not None


async def test_buttons_of_a_message_from_before_the_menu_still_work(world: World) -> None:
    card = await world.request_video(world.ana)
    await world.advance(minutes=5)
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
    card = await world.request_video(world.ana)
    await world.advance(seconds=30)
    running = world.now(card)
    asked = await world.ana.click(running, "Stop waiting", confirm=False)
    assert asked.dialog is not None
    assert "you may be charged" in str(asked.dialog)

    await world.ben.click(running, "Stop waiting")
    await world.settle()
    assert f"Only <@{world.ana.user.id}> or an admin can do that." in world.ephemerals(world.ben)
    await world.ana.click(running, "Stop waiting")
    await world.ana.click(running, "Stop waiting")
    await world.settle()

    stopped = world.now(card)
    assert "*Stopped* waiting\nYou may still be charged." in stopped.text
    [reply] = world.replies(card)
    assert reply.text == STOPPED
    assert reply.pings == set(), "they know: they pressed it"
    assert ["already settled" in each for each in world.ephemerals(world.ana)] == [True]

    reads = len(world.requests_for("read_video"))
    await world.advance(minutes=10)  # its callback comes
    await world.service.call_back(next(iter(world.service.videos)))
    await world.advance(hours=2)
    assert world.posts() == [stopped, reply]
    assert len(world.requests_for("read_video")) == reads

    await world.ana.click(stopped, "Check now")
    await world.settle()
    assert "Video service status: ready" in world.ephemerals(world.ana)[-1]
    assert world.posts() == [stopped, reply]


async def test_a_click_for_an_earlier_attempt_stops_nothing(world: World) -> None:
    card = await world.request_video(world.ana)
    await world.advance(seconds=30)
    number, now = number_of(card), world.clock.now()
    jobs = world.bot.store.jobs
    for attempts in (0, 2):
        assert not await jobs.stop(number, attempts, Failure.STOPPED, "U1", now)
    await world.advance(minutes=5)
    assert "is ready" in world.replies(card)[0].text


async def test_details_have_everything_for_the_person_who_asked_and_nothing_for_others(
    world: World,
) -> None:
    typed = {"video_name": "Greeting", "script": "A secret script."}
    card = await world.request_video(world.ana, typed)
    await world.advance(seconds=30)
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

    await world.ben.click(world.now(card), "Details")
    await world.settle()
    assert world.ben.modal is None
    [said] = world.ephemerals(world.ben)
    assert said == f"Only <@{world.ana.user.id}> or an admin can see the details."

    assert video_id not in card.text
    assert number_of(card) not in world.now(card).text
    assert "Requested by ana · Replica: Anna" in world.now(card).text

    await world.advance(minutes=5)
    ended = (await world.details(world.ana, card)).text.split("\n")
    assert "Took: 2 minutes" in ended[: ended.index("For support")]


async def test_an_admin_sees_the_details_but_not_the_script(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
        card = await world.request_video(world.ana, {"script": "A secret script."})
        await world.advance(seconds=30)
        shown = await world.details(world.ben, card)
    assert next(iter(world.service.videos)) in shown.text
    assert "secret" not in str(shown)


async def test_another_like_this_opens_the_form_filled_in_for_a_new_request_in_the_channel(
    world: World,
) -> None:
    card = await world.request_video(world.ana, {"video_name": "Greeting"})
    await world.advance(minutes=5)
    await world.ana.click(world.now(card), "Another like this")
    form = world.ana.modal
    assert form is not None
    assert form.values["script"] == "Hello, world."
    assert form.values["video_name"] == "Greeting"
    await form.submit({"script": "Goodbye, world."})
    await world.settle()
    first, second = world.slack.messages("studio")
    assert first == world.now(card), "the first one stays as it was"
    assert second.thread_ts is None

    await world.ben.click(world.now(card), "Another like this")
    assert world.ben.modal is not None
    assert world.ben.modal.values["replica_id"] == REPLICA
    assert world.ben.modal.values["script"] is None, "only the person who typed it sees it there"


async def test_another_like_this_works_for_those_alone_who_see_the_video(world: World) -> None:
    world.slack.add_channel("den", kind="private")
    card = await world.request_video(world.ana, {"video_name": "Greeting"}, "den")
    await world.advance(minutes=5)
    card = world.now(card)
    # A client that is not Slack's names a number that it has guessed.
    elsewhere = replace(card, channel=world.slack.channel("lobby").id)
    await world.ben.click(elsewhere, "Another like this")
    await world.settle()
    assert world.ben.modal is None
    who = f"<@{world.ana.user.id}>"
    assert world.ephemerals(world.ben, "lobby") == [f"Only {who} or an admin can use this here."]
    await world.ana.click(elsewhere, "Another like this")
    assert world.ana.modal is not None
    await world.ben.click(card, "Another like this")
    assert world.ben.modal is not None
