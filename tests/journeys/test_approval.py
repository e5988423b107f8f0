"""Approval before spending: a request waits until somebody else says yes to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from bot.model import Failure
from bot.ops import doctor
from bot.slack.views import buttons
from bot.slack.views.presenters import CHECK_NOW
from sandbox.block_kit import Json
from sandbox.delivery import deliver
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.databases import query
from tests.modes import bot_with, on_both_engines, on_sqlite_alone
from tests.ops.test_backup import restore
from tests.store.test_restore import back
from tests.store.test_usage import used
from tests.web.test_web import click
from tests.world import REPLICA, World, buttons_of, delivery_of, labels

SCRIPT = "Welcome <@U1> to the team!\nWe are glad that you are here."


def settings(world: World, *, above: int = 0, channel: str = "approvals") -> dict[str, Any]:
    """Return settings with which ben and cleo approve, in a channel of theirs."""
    approvers = f"{world.ben.user.id},{world.slack.user('cleo').id}"
    found = {"APPROVERS": approvers, "APPROVAL_ABOVE": str(above)}
    return {**found, "APPROVAL_CHANNEL": world.slack.channel(channel).id} if channel else found


@pytest.fixture
def approving(quiet: World) -> World:
    """A world with a channel in which ben and cleo approve."""
    quiet.slack.add_channel("approvals")
    return quiet


@pytest.fixture
async def world(approving: World, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    more = approving.settings_of(request)
    async with approving.running_bot(**settings(approving), **more):
        yield approving


def requests(world: World, channel: str = "approvals") -> list[Message]:
    """Return the messages that ask for approval, oldest first."""
    return [each for each in world.slack.messages(channel) if "/approval" in delivery_of(each)]


def audit(world: World) -> list[tuple[Any, ...]]:
    """Return what was recorded: what was done, by whom, and why."""
    rows = query(world.address, "SELECT action, user_id, detail FROM audit ORDER BY id")
    return [(row["action"], row["user_id"], row["detail"]) for row in rows]


async def ask(world: World, values: Mapping[str, Any] | None = None) -> tuple[Message, Message]:
    """Ask for a video as ana; return its card, and the message that asks for approval."""
    card = await world.request_video(world.ana, {"script": SCRIPT, **(values or {})})
    return card, requests(world)[-1]


async def decline(world: World, asked: Message, person: Person, reason: str) -> Modal:
    await person.click(world.now(asked), "Decline")
    form = person.form
    await world.after(form.submit({"decline_reason": reason}, clicks=2))
    return form


@on_both_engines
async def test_a_request_is_created_once_an_approver_says_so(world: World) -> None:
    card, asked = await world.after(ask(world), minutes=30)
    assert world.created_count() == 0
    shown = world.now(card)
    assert "Waiting for approval" in shown.text
    assert f"I asked in <#{world.slack.channel('approvals').id}>." in shown.text
    assert labels(shown) == ["Cancel request", "Details"]
    assert labels(asked) == ["Approve", "Decline", "Details"]
    assert f"Requested by <@{world.ana.user.id}>" in asked.text
    assert asked.text.startswith(f"<@{world.ben.user.id}> <@")
    assert "We are glad" in str(asked.blocks)
    assert "&lt;@U1&gt;" in asked.text

    for _ in range(3):
        await world.ben.click(asked, "Approve")
    await world.advance(minutes=5)
    assert world.created_count() == 1
    settled = world.now(asked)
    assert f"Approved by <@{world.ben.user.id}>." in settled.text
    assert not labels(settled)
    assert "We are glad" not in str(settled.blocks)
    assert "Requested by ana · Approved by ben" in world.now(card).text
    assert "is ready" in world.reply(card).text
    assert len(requests(world)) == 1
    assert audit(world) == [("approved", world.ben.user.id, "")]


async def test_a_declined_request_is_closed_with_who_and_why(world: World) -> None:
    card, asked = await ask(world)
    form = await decline(world, asked, world.ben, "Too long, ask <@U1> & <!channel> first")
    assert form.title == "Decline this video"
    assert not form.is_open
    await world.after(world.ben.click(asked, "Approve"), minutes=5)
    assert world.created_count() == 0
    [reply] = world.replies(card)
    name, ana, ben = "Welcome &lt;@U1&gt; to the team!", world.ana.user.id, world.ben.user.id
    assert reply.text == (
        f"<@{ana}>, “{name}” was declined by ben.\n"
        "“Too long, ask &lt;@U1&gt; &amp; &lt;!channel&gt; first” You weren't charged."
    )
    assert labels(reply) == ["Edit and retry"]
    assert "*Declined* by ben\n" in world.now(card).text
    assert reply.pings == {ana}
    assert not world.now(card).pings
    assert f"Declined by <@{ben}>." in world.now(asked).text
    assert "&lt;!channel&gt; first" in world.now(asked).text
    assert not labels(world.now(asked))
    assert world.ephemerals(world.ben, "approvals") == [f"<@{ben}> has already declined this."]
    why = "Too long, ask <@U1> & <!channel> first"
    assert audit(world) == [("declined", ben, why)]

    # What is asked again waits again.
    await world.ana.click(world.now(reply), "Edit and retry")
    await world.after(world.ana.form.submit())
    assert world.created_count() == 0
    assert len(requests(world)) == 2


async def test_nobody_approves_their_own_request_or_somebody_elses_without_being_asked(
    approving: World,
) -> None:
    world = approving
    cleo = Person(world.slack, "cleo")
    both: dict[str, Any] = {"ADMIN_USERS": world.ana.user.id, **settings(world)}
    async with world.running_bot(**both):
        card = await world.request_video(world.ben, {"script": SCRIPT})
        [asked] = requests(world)
        for button in ("Approve", "Decline"):
            await world.ben.click(asked, button)
        await world.advance(minutes=5)
        assert world.ben.modal is None
        own = "You can't approve your own request."
        assert world.ephemerals(world.ben, "approvals") == [own, own]
        assert "Waiting for approval" in world.now(card).text
        assert f"<@{world.ben.user.id}>" not in asked.text.partition("Requested")[0]

        # An admin who asked cannot either, but may decide about what others ask.
        await world.request_video(world.ana, {"script": SCRIPT})
        await world.after(world.ana.click(requests(world)[-1], "Approve"), minutes=5)
        assert world.created_count() == 0
        await world.after(world.ana.click(asked, "Approve"), minutes=5)
        assert world.created_count() == 1
        await world.after(cleo.click(requests(world)[-1], "Approve"), minutes=5)
        assert world.created_count() == 2

    async with world.running_bot(**{**settings(world), "APPROVERS": cleo.user.id}):
        await world.request_video(world.ana, {"script": SCRIPT})
        await world.after(world.ben.click(requests(world)[-1], "Approve"))
        assert world.ephemerals(world.ben, "approvals")[-1] == "Only an approver can do that."
        form = await world.submit_form(cleo, {"replica_id": "r-anna-42", "script": SCRIPT})
        assert "You're the only approver" in str(form.errors)
        await world.settle()
        assert len(requests(world)) == 3
        assert world.created_count() == 2


async def test_an_approval_that_nobody_gives_expires(approving: World) -> None:
    world = approving
    assert world.timings.approve_within == timedelta(days=7)
    world.pauses = {**world.pauses, "approve_within": timedelta(hours=3)}
    async with world.running_bot(**settings(world)):
        card, asked = await world.after(ask(world), hours=2, minutes=59)
        assert "Waiting for approval" in world.now(card).text
        await world.advance(minutes=2)
        assert "Not approved in time" in world.now(card).text
        [reply] = world.replies(card)
        assert reply.text.endswith("wasn't approved in time.\nYou weren't charged.")
        assert labels(reply) == ["Edit and retry"]
        assert "Not approved in time." in world.now(asked).text
        for button in ("Approve", "Decline"):
            await world.ben.click(asked, button)
        await world.advance(minutes=5)
        assert world.created_count() == 0
        assert len(world.replies(card)) == 1
        expired = "This wasn't approved in time."
        assert world.ephemerals(world.ben, "approvals") == [expired, expired]
        assert audit(world) == [("expired", None, "")]


async def test_a_request_is_tried_for_a_day_from_its_approval_on(world: World) -> None:
    card, asked = await world.after(ask(world), days=2)
    wait = CannedResponse(429, {"message": "Slow down."}, {"Retry-After": "3600"})
    world.service.faults.next("create_video", wait)
    await world.after(world.ben.click(asked, "Approve"), hours=2)
    assert "is ready" in world.replies(card)[0].text


async def test_nobody_is_left_with_an_approval_that_was_settled_while_it_was_posted(
    approving: World,
) -> None:
    world, ana = approving, approving.ana.user.id
    channel = world.slack.channel("approvals").id
    async with world.running_bot(**settings(world)) as bot:

        async def cancels(when: str, method: str, arguments: Json) -> None:
            if (when, method, arguments.get("channel")) == ("before", "chat.postMessage", channel):
                world.slack.on_request = None
                [job] = world.query("SELECT id FROM jobs WHERE ended_at IS NULL")
                now = world.clock.now()
                assert await bot.store.jobs.close(job["id"], 0, Failure.WITHDRAWN, ana, now)

        world.slack.on_request = cancels
        await world.after(ask(world), minutes=5)
        [asked] = requests(world)
        assert f"Cancelled by <@{ana}>." in asked.text
        assert not labels(asked)

        world.slack.change_channel("approvals", is_archived=True)
        world.slack.on_request = cancels
        await world.after(world.request_video(world.ana), minutes=5)
        assert requests(world) == [asked]
        assert not requests(world, world.slack.dm("ben").id), "its channel has refused it"


async def test_a_person_cancels_a_request_that_waits(world: World) -> None:
    card, asked = await ask(world)
    await world.after(world.ben.click(card, "Cancel request"))
    assert "Waiting for approval" in world.now(card).text
    await world.ana.click(card, "Cancel request")
    await world.ana.click(card, "Cancel request")
    await world.after(world.ben.click(asked, "Approve"), minutes=5)
    ana = world.ana.user.id
    assert world.created_count() == 0
    assert f"Cancelled by <@{ana}>." in world.now(asked).text
    assert world.reply(card).text.endswith("was cancelled.\nYou weren't charged.")
    assert world.ephemerals(world.ana) == [f"<@{ana}> has already cancelled this."]
    assert world.ephemerals(world.ben, "approvals") == [f"<@{ana}> has already cancelled this."]


async def test_only_what_is_above_the_threshold_waits_and_trainings_always_do(
    approving: World,
) -> None:
    world = approving
    async with world.running_bot(**settings(world, above=20, channel="")):
        await world.request_video(world.ana, {"script": "x" * 20})
        assert world.created_count() == 1
        card = await world.request_video(world.ana, {"script": "x" * 21})
        assert world.created_count() == 1
        assert "Waiting for ben or cleo." in card.text
        assert not card.pings
        # Each of them is asked, and one of them decides for both.
        [to_ben], [to_cleo] = (requests(world, world.slack.dm(name).id) for name in ("ben", "cleo"))
        assert to_ben.text.startswith("*Approve this video?*")
        await world.after(Person(world.slack, "cleo").click(to_cleo, "Approve"))
        assert world.created_count() == 2
        assert f"Approved by <@{world.slack.user('cleo').id}>." in world.now(to_ben).text

        training = await world.request_replica(world.ana)
        assert "Waiting for approval" in world.now(training).text
        assert len(world.service.replicas) == 1
        [_, asked] = requests(world, world.slack.dm("ben").id)
        assert "Footage: " in asked.text
        await world.after(world.ben.click(asked, "Approve"))
        assert len(world.service.replicas) == 2


async def test_a_request_for_approval_whose_answer_was_lost_is_posted_once(
    approving: World,
) -> None:
    world = approving
    for channel in ("approvals", ""):
        async with world.running_bot(**settings(world, channel=channel)):
            world.slack.faults.next("chat.postMessage", Reset(done=True))
            world.slack.faults.next("chat.postMessage", Reset(done=True))
            card = await world.after(world.request_video(world.ana, {"script": SCRIPT}), minutes=10)
            place = "approvals" if channel else world.slack.dm("ben").id
            [asked] = requests(world, place)
            await world.after(world.ben.click(asked, "Approve"), minutes=5)
            assert f"Approved by <@{world.ben.user.id}>." in world.now(asked).text
            assert len(world.replies(card)) == 1


async def test_home_shows_what_waits_to_who_asked_and_to_approvers(world: World) -> None:
    card, _ = await ask(world, {"video_name": "Welcome"})
    for person in (world.ana, world.ben):
        await person.open_home()
    await world.settle()
    mine, theirs = str(world.ana.tab.view.body), str(world.ben.tab.view.body)
    assert "Waiting for approval" in mine
    assert "Cancel request" in mine
    assert "Approve" not in mine
    assert "Waiting for your approval" in theirs
    await world.ben.tab.click("Details")
    assert "We are glad" in str(world.ben.form.view.body)
    await world.ben.form.close()
    await world.after(world.ben.tab.click("Approve"), minutes=5)
    assert "Waiting for your approval" not in str(world.ben.tab.view.body)
    assert "Ready" in str(world.ana.tab.view.body)
    assert "Requested by ana · Approved by ben" in world.now(card).text


async def test_of_approve_and_decline_at_once_on_two_copies_one_counts(
    world_of_copies: World,
) -> None:
    world = world_of_copies
    world.slack.add_channel("approvals")
    cleo = Person(world.slack, "cleo")
    async with world.running_copies(2, **settings(world)) as (first, second):
        for number in range(4):
            card, asked = await ask(world, {"script": f"Number {number}"})
            await cleo.click(asked, "Decline")
            form = cleo.form
            await asyncio.gather(
                world.at(first, world.ben.click(asked, "Approve")),
                world.at(second, form.submit({"decline_reason": "No"})),
                world.at(second, world.ben.click(asked, "Approve")),
            )
            await world.advance(minutes=5)
            if form.is_open:
                assert "That's already settled." in str(form.errors)
                await form.close()
            was_created = any(video.script == f"Number {number}" for video in made(world))
            assert ("Approved by" in world.now(asked).text) is was_created
            assert ("*Declined* by" in world.now(card).text) is not was_created
            assert len(world.replies(card)) == 1


def made(world: World) -> list[Any]:
    return list(world.service.videos.values())


async def test_doctor_says_whether_approvers_can_be_asked(approving: World) -> None:
    world = approving
    two, private = settings(world), settings(world, channel="vault")
    alone = {**two, "APPROVERS": world.ben.user.id}

    async def said(**given: str) -> str:
        environ = {**world.environment("0"), **given}
        found = [each async for each in doctor.examine(environ) if each.name == "approval"]
        return " ".join(f"{each.state.name} {each.message}" for each in found)

    assert await said() == ""
    assert (await said(APPROVAL_ABOVE="1000")).startswith("WARNING APPROVERS is not set")
    assert await said(**two) == "OK approvers are asked in #approvals"
    assert "only one person may approve" in await said(**alone)
    assert "instead" in await said(**private)
    world.slack.change_channel("approvals", is_archived=True)
    assert (await said(**two)).startswith("ERROR APPROVAL_CHANNEL (#approvals) is archived")


@on_both_engines
async def test_what_nobody_approves_is_given_back(world: World) -> None:
    for answer in ("Decline", "Cancel request", None):
        card, asked = await ask(world)
        assert len(used(world)) == 2
        if answer == "Decline":
            await world.ben.click(asked, answer)
            await world.ben.form.submit({"decline_reason": "No."})
        elif answer is not None:
            await world.ana.click(world.now(card), answer)
        else:
            world.clock.set(world.clock.now() + timedelta(days=8))
        await world.settle()
        await world.advance(minutes=2)
        assert world.replies(card)
        assert used(world) == {}


async def asks(approving: World, number: int) -> Message:
    """Ask for a video as ana; return its card."""
    return await approving.request_video(approving.ana, {"script": f"Number {number}."})


async def cancels(approving: World, card: Message) -> None:
    await approving.after(approving.ana.click(approving.now(card), "Cancel request"))


@on_both_engines
@pytest.mark.parametrize("channel", ["approvals", ""])
async def test_asking_and_cancelling_25_times_notifies_approvers_once(
    approving: World, channel: str
) -> None:
    place = channel or approving.slack.dm("ben").id
    async with approving.running_bot(**settings(approving, channel=channel)):
        for number in range(25):
            card = await asks(approving, number)
            [asked] = requests(approving, place)
            assert f"Number {number}." in str(asked.blocks)
            assert labels(asked) == ["Approve", "Decline", "Details"]
            if number < 24:
                await cancels(approving, card)
                assert "Cancelled by" in approving.now(asked).text
        [first] = requests(approving, place)
        await approving.ben.click(first, "Details")
        assert "Number 24." in str(approving.ben.form.view.body)
        await approving.ben.form.close()
        await approving.after(approving.ben.click(first, "Approve"), minutes=5)
        assert [video.script for video in approving.service.videos.values()] == ["Number 24."]
        assert "Approved by" in approving.now(first).text
        assert "is ready" in approving.replies(card)[-1].text
        posts = [
            call for call in approving.calls("chat.postMessage") if "Approve this" in str(call)
        ]
        assert len(posts) == (1 if channel else 2)


async def test_a_request_that_is_still_open_keeps_its_message(world: World) -> None:
    first = await asks(world, 1)
    await asks(world, 2)
    await world.request_video(world.ben, {"script": "Of somebody else."})
    assert len(requests(world)) == 3
    await cancels(world, first)
    await asks(world, 3)
    shown = [str(each.blocks) for each in requests(world)]
    assert ["Number 3." in shown[0], "Number 2." in shown[1]] == [True, True]
    assert "Of somebody else." in shown[2]


async def test_after_an_hour_approvers_are_notified_again(world: World) -> None:
    await world.after(cancels(world, await asks(world, 1)), minutes=61)
    await asks(world, 2)
    first, second = requests(world)
    assert "Cancelled by" in first.text
    assert "Number 2." in str(second.blocks)


async def test_a_click_from_before_the_edit_says_so_and_changes_nothing(world: World) -> None:
    card = await asks(world, 1)
    [before] = requests(world)
    await cancels(world, card)
    await asks(world, 2)
    for button in ("Approve", "Decline", "Details"):
        await world.ben.click(before, button)
    await world.advance(minutes=5)
    assert "has already cancelled this." in world.ephemerals(world.ben, "approvals")[0]
    [asked] = requests(world)
    assert "Number 2." in str(asked.blocks), "it was not taken for a copy"
    assert not world.service.videos


@pytest.mark.parametrize("why", ["deleted", "archived", "shared"])
async def test_approvers_are_asked_in_another_message_where_the_one_cannot_be_edited(
    world: World, why: str
) -> None:
    await cancels(world, await asks(world, 1))
    [before] = requests(world)
    flags: dict[str, Any] = {"archived": "is_archived", "shared": "is_ext_shared"}
    if why == "deleted":
        gone = CannedResponse(200, {"ok": False, "error": "message_not_found"})
        world.slack.faults.next("chat.update", gone)
    else:
        await world.advance(minutes=11)
        world.slack.change_channel("approvals", **{flags[why]: True})
    await world.after(asks(world, 2), minutes=1)
    place = "approvals" if why == "deleted" else world.slack.dm("ben").id
    asked = requests(world, place)[-1]
    assert "Number 2." in str(asked.blocks)
    assert "Number 2." not in str(world.now(before).blocks)
    await world.after(world.ben.click(asked, "Approve"), minutes=5)
    assert len(world.service.videos) == 1


async def test_a_message_that_is_edited_when_it_asks_about_another_request_shows_that(
    world: World,
) -> None:
    card = await asks(world, 1)
    again: list[Message] = []

    async def edits(when: str, method: str, arguments: Json) -> None:
        if (when, method) == ("before", "chat.update") and "Cancelled by" in str(arguments):
            world.slack.on_request = None
            await world.submit_form(world.ana, {"replica_id": "r-anna-42", "script": "Number 2."})
            again.append(card)

    world.slack.on_request = edits
    await world.after(cancels(world, card), minutes=2)
    assert again
    [asked] = requests(world)
    assert "Number 2." in str(asked.blocks)


@pytest.mark.parametrize("flag", ["is_ext_shared", "is_pending_ext_shared"])
async def test_no_script_is_posted_for_approval_where_another_organization_reads(
    approving: World, flag: str
) -> None:
    approving.slack.change_channel("approvals", **{flag: True})
    async with approving.running_bot(**settings(approving)):
        card = await approving.request_video(approving.ana, {"script": SCRIPT})
        assert not requests(approving)
        assert "Waiting for ben or cleo." in approving.now(card).text
        [asked] = requests(approving, approving.slack.dm("ben").id)
        await approving.after(approving.ben.click(asked, "Approve"))
        assert approving.created_count() == 1
    async with approving.running_bot(**settings(approving), ALLOW_SHARED_CHANNELS="yes"):
        await ask(approving)
        assert len(requests(approving)) == 1


async def test_no_script_is_posted_for_approval_while_slack_does_not_say_who_reads_it(
    world: World,
) -> None:
    form = await world.after(world.open_form(world.ana))
    world.slack.faults.always("conversations.info", CannedResponse(503))
    await world.after(form.submit({"replica_id": REPLICA, "script": SCRIPT}), seconds=20)
    assert not requests(world)
    assert len(requests(world, world.slack.dm("ben").id)) == 1


async def test_a_request_says_who_can_approve_it_where_nobody_could_be_asked(
    approving: World, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("approvals", approving.slack.dm("cleo").id):
        approving.slack.change_channel(place, is_archived=True)
    async with approving.running_bot(**settings(approving)):
        card = await approving.request_video(approving.ana, {"script": SCRIPT})
        await approving.advance(hours=2)
        # Who was not reached is not named as asked.
        assert "Waiting for ben." in approving.now(card).text
        await approving.ben.click(requests(approving, approving.slack.dm("ben").id)[-1], "Approve")
        await approving.settle()
        assert approving.created_count() == 1

        approving.slack.change_channel(approving.slack.dm("ben").id, is_archived=True)
        card = await approving.request_video(
            approving.ana, {"script": SCRIPT, "video_name": "Second"}
        )
        await approving.advance(hours=2)
        told = approving.now(card)
        assert "Ask ben or cleo to approve it in my *Home* tab." in told.text
        assert labels(told) == ["Cancel request", "Details"]
        assert any("posted nowhere" in each.message for each in caplog.records)
        assert SCRIPT not in caplog.text
        await approving.after(approving.ben.open_home())
        await approving.after(approving.ben.tab.click("Approve"), minutes=5)
        assert approving.created_count() == 2
        assert "is ready" in approving.reply(card).text


OTHERS: Final = (
    buttons.APPROVE,
    buttons.DECLINE,
    buttons.CREATE_AGAIN,
    buttons.GIVE_UP,
    buttons.STOP,
    CHECK_NOW,
)


async def test_no_other_button_of_a_request_that_waits_creates_it(approving: World) -> None:
    ana, ben = approving.ana, approving.ben
    async with approving.running_bot(ADMIN_USERS=ana.user.id, **settings(approving)):
        card, asked = await ask(approving)
        [job] = query(approving.address, "SELECT id FROM jobs")
        body, id_ = click(approving, approving.now(card), "Cancel request"), job["id"].encode()
        for value in (id_, id_ + b"%3A0", id_ + b"%3A1"):
            for action in OTHERS:
                forged = body.replace(b"approval_withdraw", action.encode()).replace(id_, value)
                assert forged != body
                await deliver(approving.slack, forged)
        await approving.advance(minutes=5)
        assert approving.created_count() == 0
        assert "Waiting for approval" in approving.now(card).text

        # Who opened the form to decline no longer may once the approvers are others.
        await ben.click(asked, "Decline")
        form = ben.form
    cleo = Person(approving.slack, "cleo")
    async with approving.running_bot(**{**settings(approving), "APPROVERS": cleo.user.id}):
        await form.submit({"decline_reason": "No"})
        assert "Only an approver can do that." in str(form.errors)
        await approving.after(ben.click(asked, "Approve"), minutes=5)
        assert approving.created_count() == 0
        await approving.after(cleo.click(asked, "Approve"), minutes=5)
        assert approving.created_count() == 1


@on_sqlite_alone
async def test_nobody_is_told_that_nothing_was_created_since_a_backup(
    approving: World, tmp_path: Path
) -> None:
    async with approving.running_bot(**settings(approving)):
        card, asked = await ask(approving)
        backup = await back(approving, tmp_path)
        await approving.after(approving.ben.click(asked, "Approve"), minutes=5)
        assert approving.created_count() == 1
    restore(backup, approving.database)
    async with approving.running_bot(**settings(approving)):
        await approving.advance(minutes=5)
        assert "comes from a backup" in approving.now(asked).text
        await decline(approving, approving.now(asked), approving.ben, "It was made before")
        await approving.advance(minutes=5)
        shown = approving.now(card).text
        assert "You weren't charged" not in shown
        assert "the video may have been made since." in shown
        assert approving.created_count() == 1
        assert len(approving.replies(card)) == 1


AGAIN = "Create again"
CHARGED_TWICE = "If it worked, you'll pay twice."


@pytest.fixture
def silent(world: World) -> World:
    """A world with a channel in which ben and cleo approve, and a service that calls nobody."""
    world.service.callback_plan = CallbackPlan(times=0)
    return world


async def lost(silent: World) -> Message:
    """Return the card of a video that was approved and made, in a call whose answer was lost."""
    silent.service.faults.next("create_video", Reset(done=True))
    card, asked = await ask(silent)
    await silent.after(silent.ben.click(asked, "Approve"), minutes=16)
    return card


def creates(silent: World) -> int:
    return len(silent.requests_for("create_video"))


def outstanding(silent: World) -> list[Message]:
    """Return the messages in which something can be approved."""
    return [each for each in requests(silent) if "Approve" in labels(each)]


@on_both_engines
async def test_each_create_call_needs_an_approval_however_often_create_again_is_pressed(
    silent: World,
) -> None:
    card = await lost(silent)
    for number in range(2, 5):
        silent.service.faults.next("create_video", Reset(done=True))
        question = silent.question(card)
        for _ in range(3):
            await silent.ana.click(question, AGAIN)
        await silent.advance(hours=1)
        assert creates(silent) == number - 1, "nobody has approved it"
        assert len(used(silent)) == 2
        shown = silent.now(card)
        assert "Waiting for approval" in shown.text
        [cancel] = [each for each in buttons_of(shown.blocks) if "confirm" in each]
        assert "Nothing has been created" not in str(cancel["confirm"])
        [asked] = outstanding(silent)
        assert len(requests(silent)) == number
        assert CHARGED_TWICE in asked.text
        assert SCRIPT.splitlines()[1] in str(asked.blocks)

        await silent.ben.click(asked, "Approve")
        await silent.after(silent.ben.click(asked, "Approve"), minutes=16)
        assert creates(silent) == number
        assert not outstanding(silent)
    [first, *_, last] = audit(silent)
    assert (first[0], last[0]) == ("approved", "approved")
    acts = [each[:2] for each in audit(silent)]
    assert acts.count(("created_again", silent.ana.user.id)) == 3
    assert acts.count(("approved", silent.ben.user.id)) == 4


async def test_an_earlier_approve_or_decline_counts_for_no_later_create_call(silent: World) -> None:
    silent.service.faults.next("create_video", Reset(done=True))
    card, asked = await ask(silent)
    await silent.ben.click(asked, "Decline")
    form = silent.ben.form
    await silent.after(silent.ben.click(asked, "Approve"), minutes=16)
    await silent.after(silent.ana.click(silent.question(card), AGAIN))
    assert outstanding(silent)
    await silent.ben.click(asked, "Approve")
    await silent.after(form.submit({"decline_reason": "No"}), minutes=5)
    assert "That's already settled." in str(form.errors)
    assert "That's already settled." in silent.ephemerals(silent.ben, "approvals")
    assert creates(silent) == 1
    assert outstanding(silent)


@bot_with(ADMIN_USERS="{ben}")
async def test_an_approver_who_creates_again_for_somebody_else_approves_it_with_that(
    silent: World,
) -> None:
    card = await lost(silent)
    await silent.after(silent.ben.click(silent.question(card), AGAIN), minutes=5)
    assert creates(silent) == 2
    assert len(requests(silent)) == 1
    assert "is ready" in silent.replies(card)[-1].text


@bot_with(ADMIN_USERS="{ana}")
async def test_nobody_approves_creating_their_own_request_again(silent: World) -> None:
    card = await lost(silent)
    await silent.after(silent.ana.click(silent.question(card), AGAIN))
    await silent.after(silent.ana.click(outstanding(silent)[0], "Approve"), minutes=5)
    assert creates(silent) == 1
    assert "You can't approve your own" in silent.ephemerals(silent.ana, "approvals")[-1]


@pytest.mark.parametrize("how", ["declined", "cancelled", "expired"])
async def test_what_is_not_approved_again_may_have_been_created_before(
    silent: World, how: str
) -> None:
    card = await lost(silent)
    await silent.after(silent.ana.click(silent.question(card), AGAIN))
    [asked] = outstanding(silent)
    assert len(used(silent)) == 2
    if how == "declined":
        await decline(silent, asked, silent.ben, "Once is enough")
    elif how == "cancelled":
        await silent.ana.click(silent.now(card), "Cancel request")
    else:
        await silent.advance(days=8)
    await silent.advance(minutes=2)
    [reply] = silent.replies(card)
    for message in (reply, silent.now(card)):
        assert "You weren't charged" not in message.text
        assert "You may still be charged." in message.text
    assert not outstanding(silent)
    # What it made after all is shown.
    [made] = silent.service.videos
    await silent.after(silent.service.call_back(made), minutes=5)
    assert "An earlier try worked too" in silent.now(card).text
    assert creates(silent) == 1
    assert set(used(silent).values()) == {1}


@on_both_engines
async def test_what_turns_up_while_it_waits_to_be_approved_again_is_not_created_again(
    silent: World,
) -> None:
    card = await lost(silent)
    await silent.after(silent.ana.click(silent.question(card), AGAIN))
    await silent.after(silent.ben.open_home())
    assert "Waiting for your approval" in str(silent.ben.tab.view.body)
    [asked], [made] = outstanding(silent), silent.service.videos
    silent.service.faults.next("read_video", CannedResponse(503))
    await silent.after(silent.service.call_back(made), minutes=5)
    assert "is ready" in silent.replies(card)[-1].text
    assert "An earlier try worked, so there's nothing to approve." in silent.now(asked).text
    assert not outstanding(silent)
    assert "Waiting for your approval" not in str(silent.ben.tab.view.body)
    await silent.after(silent.ben.click(asked, "Approve"), minutes=5)
    assert "That's already settled." in silent.ephemerals(silent.ben, "approvals")[-1]
    assert creates(silent) == 1
    assert set(used(silent).values()) == {1}


async def test_creating_again_is_tried_for_a_day_from_its_approval_on(silent: World) -> None:
    card = await lost(silent)
    await silent.after(silent.ana.click(silent.question(card), AGAIN), days=2)
    wait = CannedResponse(429, {"message": "Slow down."}, {"Retry-After": "3600"})
    silent.service.faults.next("create_video", wait)
    await silent.ben.click(outstanding(silent)[0], "Approve")
    await silent.advance(seconds=timedelta(hours=2).total_seconds())
    assert "is ready" in silent.replies(card)[0].text
