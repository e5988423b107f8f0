"""Retries: in the thread of what failed, which links to them, and each once."""

import asyncio
import json

import pytest

from sandbox.delivery import deliver
from sandbox.driver import ClientRefusal
from sandbox.faults import CannedResponse
from sandbox.scenarios import Scenario
from sandbox.slack import Call
from sandbox.slack_objects import Message
from tests.modes import bot_with, on_both_engines
from tests.web.test_web import asks_what_to_do, click, replay
from tests.world import REPLICA, World, number_of


async def _fails(world: World, channel: str = "studio") -> Message:
    """Return the card of a video that failed."""
    world.service.next_video(Scenario(end="error", reason="The replica is shy."))
    card = await world.request_video(world.ana, {"video_name": "Greeting"}, channel)
    await world.advance(minutes=5)
    return world.now(card)


async def _retries(world: World, message: Message, script: str = "Better.") -> None:
    await world.ana.click(message, "Edit and retry")
    form = world.ana.form
    await world.after(form.send({"script": script}))


async def test_a_retry_goes_into_the_thread_of_its_card_which_links_to_it_and_has_no_button(
    world: World,
) -> None:
    card = await _fails(world)
    reply = world.replies(card)[0]

    await _retries(world, card)

    assert world.slack.messages("studio") == [world.now(card)], "nothing new in the channel"
    _, again = world.replies(card)
    assert again.text.startswith("Greeting\n")
    link = f"https://sandbox.slack.com/archives/{card.channel}/p{again.ts.replace('.', '')}"
    for message in (world.now(card), world.now(reply)):
        assert f"<{link}?thread_ts={card.ts}&amp;cid={card.channel}|Retried here>" in message.text
        with pytest.raises(ClientRefusal):
            await world.ana.click(message, "Edit and retry")
    assert mentions(world.now(reply)) == 1, "an edit, which pings nobody"

    await world.advance(minutes=5)
    _, again, ending = world.replies(card)
    assert "Ready" in world.now(again).text
    assert "“Greeting” is ready" in ending.text
    assert ending.pings == {world.ana.user.id}
    edits = len(world.calls("chat.update"))
    await world.advance(hours=1)
    assert len(world.calls("chat.update")) == edits


async def test_nobody_retries_the_request_of_somebody_else_by_its_number(world: World) -> None:
    failed = await _fails(world)
    form = await world.open_form(world.ben)
    held = json.loads(form.view.body["private_metadata"])
    forged = json.dumps({**held, "retry_of": number_of(failed)})
    form.view.body["private_metadata"] = forged
    await form.submit({"replica_id": REPLICA, "script": "Not mine."})
    assert form.is_open
    assert "Only the person who asked or an admin can retry this." in " ".join(form.errors.values())
    await world.settle()
    assert world.created_count() == 1
    assert world.now(failed) == failed, "Ana can still retry it"


async def test_a_second_click_says_that_it_was_retried_and_links_to_it(world: World) -> None:
    stale = await _fails(world)
    await _retries(world, stale)
    _, again = world.replies(stale)

    await world.after(world.ana.click(stale, "Edit and retry"))

    assert world.ana.modal is None
    link = f"/archives/{again.channel}/p{again.ts.replace('.', '')}"
    said = world.ephemerals(world.ana)[-1]
    assert said.startswith("This has already been retried. <https")
    assert link in said
    assert world.created_count() == 2


@bot_with(ADMIN_USERS="{ben}")
async def test_a_form_that_was_open_when_another_retried_asks_before_it_makes_a_third(
    world: World,
) -> None:
    card = await _fails(world)
    await world.ben.click(card, "Edit and retry")
    left_open = world.ben.form
    await _retries(world, card, "Better.")

    await left_open.submit({"script": "A third one."})
    asking = world.ben.form
    note = "This has already been retried. Submitting this creates another video."
    assert note in str(asking.view.body)
    assert asking.values["script"] == "A third one.", "nothing typed is lost"
    await world.advance(minutes=1)
    assert world.created_count() == 2
    await world.after(asking.submit(), minutes=5)
    assert world.created_count() == 3


@on_both_engines
@bot_with(ADMIN_USERS="{ben}")
async def test_two_who_retry_with_the_same_words_make_one(world: World) -> None:
    card = await _fails(world)
    await world.ben.click(card, "Edit and retry")
    left_open = world.ben.form
    await _retries(world, card, "Better.")
    await world.after(left_open.submit({"script": "Better."}), minutes=5)
    assert world.ben.modal is None
    assert world.created_count() == 2


async def test_a_retry_elsewhere_is_posted_there_and_still_linked_to(world: World) -> None:
    card = await _fails(world)
    await world.ana.click(card, "Edit and retry")
    await world.after(world.ana.form.submit({"where": world.slack.channel("lobby").id}))

    [again] = world.slack.messages("lobby")
    assert again.thread_ts is None
    assert f"/archives/{again.channel}/p" in world.now(card).text
    assert len(world.replies(card)) == 1


async def test_a_reply_is_posted_though_each_link_to_the_retry_takes_long(world: World) -> None:
    refuses = CannedResponse(200, {"ok": False, "error": "unheard_of"})
    card = await world.request_video(world.ana)
    world.slack.faults.next("chat.postMessage", refuses)
    [video_id] = world.service.videos
    world.service.fail(video_id, "The replica is shy.")
    await world.settle()
    assert world.replies(card) == []

    async def is_slow(when: str, method: str, _: object) -> None:
        if (when, method) == ("before", "chat.getPermalink") and len(links()) < 10:
            world.clock.set(world.clock.now() + world.timings.lease / 3)

    def links() -> list[Call]:
        return world.calls("chat.getPermalink")

    world.slack.on_request = is_slow
    await world.after(_retries(world, world.now(card)), minutes=10)
    failed = [each for each in world.replies(card) if "shy" in each.text]
    assert len(failed) == 1
    assert "Retried here" in failed[0].text
    assert len(links()) < 10, "it was begun again and again"


async def test_a_card_loses_its_button_even_if_slack_gives_no_link(world: World) -> None:
    world.slack.faults.always("chat.getPermalink", CannedResponse(200, {"ok": False, "error": "x"}))
    card = await _fails(world)

    await _retries(world, card)

    assert "*Failed* · Retried\n" in world.now(card).text
    with pytest.raises(ClientRefusal):
        await world.ana.click(world.now(card), "Edit and retry")


async def test_a_job_can_be_deleted_before_its_retry(world: World) -> None:
    card = await _fails(world)
    number, jobs = number_of(card), world.bot.store.jobs
    await world.advance(minutes=10)
    between = world.clock.now()
    await world.after(_retries(world, card), minutes=5)
    [_, again, _] = world.replies(card)

    assert await jobs.erase(between, {}, {}) == 1
    assert await jobs.delete(between) == 1

    assert await jobs.fetch(number) is None
    retry = await jobs.fetch(number_of(again))
    assert retry is not None
    assert retry.retry_of is None


def mentions(message: Message) -> int:
    return message.text.count("<@")


CREATE_AGAIN = "Create again"
SETTLED = "already settled"


async def asks_once_more(world: World, card: Message) -> Message:
    """Create again, without an answer again; return the card that asks about the second attempt."""
    world.service.faults.next("create_video", CannedResponse(500))
    await world.after(world.ana.click(world.question(card), CREATE_AGAIN), seconds=5)
    again = world.now(card)
    assert "Needs an answer" in again.text
    return again


@bot_with(callbacks=False)
async def test_a_late_cancel_request_does_not_cancel_the_next_attempt(world: World) -> None:
    card = await asks_what_to_do(world)
    late = click(world, world.question(card), "job_give_up")
    again = await asks_once_more(world, card)
    await replay(world, late)
    assert "Needs an answer" in world.now(card).text
    assert SETTLED in world.ephemerals(world.ana)[-1]
    await world.after(world.ana.click(world.question(again), "Cancel request"))
    assert "ancelled" in world.now(card).text


@bot_with(callbacks=False)
async def test_an_id_named_for_an_earlier_attempt_is_not_taken_for_the_next(world: World) -> None:
    await world.after(world.request_video(world.ben))
    [other] = world.service.videos
    card = await asks_what_to_do(world)
    await world.ana.click(world.question(card), "I found it")
    form = world.ana.form
    await asks_once_more(world, card)
    await world.after(form.submit({"remote_id": f"{other}x"}))
    assert SETTLED in form.errors["remote_id"]
    assert form.values["remote_id"] == f"{other}x"
    assert "Needs an answer" in world.now(card).text
    paths = [each.path for each in world.requests_for("read_video")]
    assert not [path for path in paths if path.endswith(f"{other}x")]


@pytest.mark.parametrize("button", ["job_create_again", "job_give_up"])
async def test_a_click_counts_once_in_the_next_process_too(quiet: World, button: str) -> None:
    async with quiet.running_bot(callbacks=False):
        card = await asks_what_to_do(quiet)
        body = click(quiet, quiet.question(card), button)
        await asyncio.gather(*(deliver(quiet.slack, body) for _ in range(3)))
        await quiet.settle()
        await quiet.advance(seconds=5)
    creates = len(quiet.requests_for("create_video"))
    assert creates == (2 if button == "job_create_again" else 1)
    async with quiet.running_bot(callbacks=False):
        await quiet.after(replay(quiet, body), minutes=4)
        await replay(quiet, body)
    assert len(quiet.requests_for("create_video")) == creates
    assert len([m for m in quiet.replies(card) if m.is_from_bot]) == 1
