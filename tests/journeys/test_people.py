"""Who is served: people of other organisations, payloads of other apps, guests, listed people."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.delivery import Response
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Hang, Reset
from sandbox.slack import RESPONSE_TIMEOUT
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

ELSEWHERE = "T0ELSEWHERE"
ONLY_HERE = "only people in my workspace"
STARTING = "still starting"
TYPED = {"replica_id": REPLICA, "script": "Hello, world."}


def stranger(world: World, *, enterprise: str | None = None) -> Person:
    """Return a person of another organisation who is in the studio."""
    world.slack.add_user("sam", team=ELSEWHERE, enterprise=enterprise, channels=["studio"])
    return Person(world.slack, "sam")


def guest(world: World) -> Person:
    """Return a guest in the studio."""
    world.slack.add_user("gus", guest="single-channel", channels=["studio"])
    return Person(world.slack, "gus")


def private_texts(world: World, person: Person) -> str:
    """Return all that only this person was shown in the studio."""
    return "\n".join(world.ephemerals(person))


async def submit_as(form: Modal, person: Person) -> Response:
    """Submit a form as another person than the one who filled it in."""
    for field, value in TYPED.items():
        await form._fill_in(form._field(field), value)
    form._user = person.user
    return await form.submit()


# ── Other organisations ───────────────────────────────────────────────────────────────────────


async def test_a_command_of_a_person_of_another_organisation_is_refused_in_private(
    world: World, subtests: pytest.Subtests
) -> None:
    for text in ["", "help", "list", "status 1", "add r-1", "default r-1"]:
        for command in ["/video", "/replica"]:
            with subtests.test(text=text, command=command):
                sam = stranger(world)
                answer = await sam.command(command, text)
                await world.settle()
                assert answer.message is not None
                assert answer.message.visible_to == sam.user.id
                assert ONLY_HERE in answer.message.text
                assert sam.modal is None
                assert not world.service.requests
                assert not world.posts()


async def test_a_button_pressed_by_a_person_of_another_organisation_does_nothing(
    world: World,
) -> None:
    sam = stranger(world)
    card = await unconfirmed(world)
    await sam.click(world.question(card), "Create again")
    await sam.click(world.question(card), "Cancel request")
    await world.settle()
    assert ONLY_HERE in private_texts(world, sam)
    assert world.created_count() == 0
    assert "Did this video get made?" in world.now(card).text


async def test_people_of_other_workspaces_of_the_same_organisation_are_served(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.enterprise = "E0OURS"
    world.slack.add_user("fay", team="T0SIBLING", enterprise="E0OURS", channels=["studio"])
    fay = Person(world.slack, "fay")
    async with world.running_bot():
        card = await world.request_video(fay)
        asked = await unconfirmed(world, fay)
        await fay.click(world.question(asked), "Cancel request")
        await world.settle()
    assert "Requested by fay" in world.now(card).text
    assert "ancelled" in world.now(asked).text


async def test_on_enterprise_grid_people_of_other_organisations_are_refused(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.enterprise = "E0OURS"
    sam = stranger(world, enterprise="E0THEIRS")
    async with world.running_bot():
        answer = await sam.command("/video")
        form = await world.open_form(world.ana)
        await submit_as(form, sam)
        card = await unconfirmed(world)
        await sam.click(world.question(card), "Create again")
        await sam.click(world.question(card), "Cancel request")
        await world.settle()
    assert answer.message is not None
    assert ONLY_HERE in answer.message.text
    assert ONLY_HERE in " ".join(form.errors.values())
    assert all(ONLY_HERE in text for text in world.ephemerals(sam))
    assert "Did this video get made?" in world.now(card).text
    assert world.created_count() == 0


# ── Other apps, and what is known of ours ─────────────────────────────────────────────────────


async def test_a_payload_of_another_app_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.open_form(world.ana)
    for field, value in TYPED.items():
        await form._fill_in(form._field(field), value)
    world.slack.app_id = "A0OTHER"
    await form.submit()
    errors = " ".join(form.errors.values())
    answer = await world.ana.command("/video")
    await world.settle()
    assert answer.message is not None
    assert "another Slack app" in answer.message.text
    assert "another Slack app" in errors
    assert world.created_count() == 0
    assert "another app" in caplog.text


async def test_until_the_team_is_known_everything_is_refused_with_please_try_again(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.faults.always("auth.test", CannedResponse(503))
    async with world.running_bot():
        answer = await world.ana.command("/video")
        assert answer.message is not None
        assert STARTING in answer.message.text
        assert world.ana.modal is None
        world.slack.faults.clear()
        await world.request_video(world.ana)
        await world.settle()
    assert world.created_count() == 1


async def test_once_it_was_learned_the_start_does_not_depend_on_slack(quiet_world: World) -> None:
    world = quiet_world
    sam = stranger(world)
    async with world.running_bot():
        await world.settle()
    world.slack.faults.always("auth.test", Reset(done=False))
    async with world.running_bot():
        await world.request_video(world.ana)
        answer = await sam.command("/video")
        await world.settle()
    assert world.created_count() == 1
    assert answer.message is not None
    assert ONLY_HERE in answer.message.text


async def test_a_token_of_another_workspace_serves_nobody_and_is_logged(
    quiet_world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.settle()
    monkeypatch.setattr("sandbox.web_api.TEAM", ELSEWHERE)
    async with world.running_bot():
        await world.settle()
        answer = await world.ana.command("/video")
    assert answer.message is not None
    assert "another workspace" in answer.message.text
    assert "another workspace" in caplog.text


# ── Guests, and listed people ─────────────────────────────────────────────────────────────────


async def test_a_guest_cannot_create_a_video(world: World) -> None:
    gus = guest(world)
    world.slack.faults.always("users.info", CannedResponse(503))
    form = await world.open_form(gus)
    world.slack.faults.always("users.info", None)
    await form.submit(TYPED)
    await world.settle()
    assert "Guests" in " ".join(form.errors.values())
    assert form.values["script"] == "Hello, world.", "what was typed stays"
    assert world.created_count() == 0


async def test_a_guest_is_told_before_the_form_the_first_time_too(world: World) -> None:
    gus = guest(world)
    for _ in range(2):
        answer = await gus.command("/video", "Hello")
        assert answer.message is not None
        assert "Guests" in answer.message.text
        assert "Hello" in answer.message.text, "what was typed is not lost"
    assert gus.modal is None
    assert len(world.calls("users.info")) == 1


async def test_a_form_does_not_wait_long_for_slack_to_say_who_asks(world: World) -> None:
    world.slack.response_timeout = RESPONSE_TIMEOUT
    world.slack.faults.always("users.info", Hang())
    form = await world.open_form(world.ana)
    assert form.is_open


async def test_a_guest_cannot_create_again(world: World) -> None:
    card = await unconfirmed(world)
    world.slack.users[world.ana.user.id] = replace(world.ana.user, is_restricted=True)
    await world.advance(hours=1)
    await world.ana.click(world.question(card), "Create again")
    await world.settle()
    assert "Guests" in private_texts(world, world.ana)
    assert len(world.requests_for("create_video")) == 1


async def test_a_guest_who_is_listed_may_ask_for_what_the_list_is_about(
    quiet_world: World,
) -> None:
    world = quiet_world
    gus = guest(world)
    async with world.running_bot(VIDEO_USERS=f"{gus.user.id},{world.ana.user.id}"):
        card = await unconfirmed(world, gus)
        await gus.click(world.question(card), "Create again")
        await world.request_video(world.ana)
        await world.settle()
        assert world.created_count() == 2
        await gus.command("/replica")
        assert gus.modal is None
        assert "Guests" in private_texts(world, gus)
        before = private_texts(world, gus).count("Guests")
        await gus.command("/replica", f"add {REPLICA}")
        await world.settle()
        assert private_texts(world, gus).count("Guests") == before + 1
    async with world.running_bot(TRAINING_USERS=gus.user.id):
        await world.request_replica(gus)
        await gus.command("/video")
        assert gus.modal is None


async def test_if_slack_does_not_say_who_somebody_is_nothing_is_created_and_the_input_stays(
    world: World,
) -> None:
    world.slack.faults.always("users.info", CannedResponse(503))
    form = await world.open_form(world.ana)
    await form.submit(TYPED)
    await world.settle()
    assert "Please try again" in " ".join(form.errors.values())
    assert world.created_count() == 0
    world.slack.faults.clear()
    await form.submit()
    await world.settle()
    assert world.created_count() == 1


async def test_without_users_read_guests_are_treated_as_members(quiet_world: World) -> None:
    world = quiet_world
    world.slack.scopes.discard("users:read")
    gus = guest(world)
    async with world.running_bot():
        await world.request_video(gus)
        await world.settle()
    assert world.created_count() == 1


async def test_what_was_said_of_a_person_counts_while_slack_does_not_answer(
    world: World,
) -> None:
    await world.request_video(world.ana)
    await world.advance(minutes=11)
    world.slack.faults.always("users.info", CannedResponse(503))
    await world.request_video(world.ana)
    await world.settle()
    assert world.created_count() == 2


# ── Channels that other organisations share ───────────────────────────────────────────────────


@pytest.mark.parametrize("flag", ["is_ext_shared", "is_pending_ext_shared"])
async def test_a_shared_channel_is_not_posted_to(world: World, flag: str) -> None:
    world.slack.change_channel("lobby", with_bot=True)
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("where"), "lobby")
    world.slack.change_channel("lobby", **{flag: True})
    await form.submit(TYPED)
    await world.settle()
    assert "another organization" in form.errors["where"]
    assert world.created_count() == 0
    await form.submit({"where": "studio"})
    await world.settle()
    assert world.created_count() == 1


async def test_a_channel_is_not_posted_to_while_slack_does_not_say_who_reads_it(
    world: World,
) -> None:
    world.slack.faults.always("conversations.info", CannedResponse(503))
    form = await world.open_form(world.ana)
    await form.submit(TYPED)
    await world.settle()
    assert form.errors["where"].startswith("I couldn't check who reads this channel")
    assert world.created_count() == 0
    world.slack.faults.clear()
    await form.submit()
    await world.settle()
    assert world.created_count() == 1


async def unconfirmed(world: World, person: Person | None = None) -> Message:
    """Return the card of a video whose create call got no answer, once the person is asked."""
    world.service.faults.next("create_video", CannedResponse(500))
    card = await world.request_video(person or world.ana)
    await world.advance(seconds=timedelta(minutes=16).total_seconds())
    return world.now(card)


@pytest.fixture(autouse=True)
async def _faults_are_cleared(quiet_world: World) -> AsyncIterator[None]:
    yield
    quiet_world.slack.faults.clear()
