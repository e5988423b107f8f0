"""Who is served: people of other organisations, payloads of other apps, guests, listed people."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Literal

import pytest

from sandbox.delivery import Response
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Hang, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack import RESPONSE_TIMEOUT
from sandbox.slack_objects import Message
from tests.journeys.test_home import opened, words
from tests.journeys.test_limits import PER_DAY, limits_form
from tests.modes import bot_with, on_both_engines
from tests.world import REPLICA, World, number_of

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


async def test_a_command_of_a_person_of_another_organisation_is_refused_in_private(
    world: World, subtests: pytest.Subtests
) -> None:
    for text in ["", "help", "list", "status 1", "add r-1", "default r-1"]:
        for command in ["/video", "/replica"]:
            with subtests.test(text=text, command=command):
                sam = stranger(world)
                answer = await world.after(sam.command(command, text))
                assert answer.shown.visible_to == sam.user.id
                assert ONLY_HERE in answer.shown.text
                assert sam.modal is None
                assert not world.service.requests
                assert not world.posts()


async def test_a_button_pressed_by_a_person_of_another_organisation_does_nothing(
    world: World,
) -> None:
    sam = stranger(world)
    card = await unconfirmed(world)
    await sam.click(world.question(card), "Create again")
    await world.after(sam.click(world.question(card), "Cancel request"))
    assert ONLY_HERE in private_texts(world, sam)
    assert world.created_count() == 0
    assert "Did this video get made?" in world.now(card).text


async def test_people_of_other_workspaces_of_the_same_organisation_are_served(quiet: World) -> None:
    quiet.slack.enterprise = "E0OURS"
    quiet.slack.add_user("fay", team="T0SIBLING", enterprise="E0OURS", channels=["studio"])
    fay = Person(quiet.slack, "fay")
    async with quiet.running_bot():
        card = await quiet.request_video(fay)
        asked = await unconfirmed(quiet, fay)
        await quiet.after(fay.click(quiet.question(asked), "Cancel request"))
    assert "Requested by fay" in quiet.now(card).text
    assert "ancelled" in quiet.now(asked).text


async def test_on_enterprise_grid_people_of_other_organisations_are_refused(quiet: World) -> None:
    quiet.slack.enterprise = "E0OURS"
    sam = stranger(quiet, enterprise="E0THEIRS")
    async with quiet.running_bot():
        answer = await sam.command("/video")
        form = await quiet.open_form(quiet.ana)
        await submit_as(form, sam)
        card = await unconfirmed(quiet)
        await sam.click(quiet.question(card), "Create again")
        await quiet.after(sam.click(quiet.question(card), "Cancel request"))
    assert ONLY_HERE in answer.shown.text
    assert ONLY_HERE in " ".join(form.errors.values())
    assert all(ONLY_HERE in text for text in quiet.ephemerals(sam))
    assert "Did this video get made?" in quiet.now(card).text
    assert quiet.created_count() == 0


async def test_a_payload_of_another_app_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.open_form(world.ana)
    for field, value in TYPED.items():
        await form._fill_in(form._field(field), value)
    world.slack.app_id = "A0OTHER"
    await form.submit()
    errors = " ".join(form.errors.values())
    answer = await world.after(world.ana.command("/video"))
    assert "another Slack app" in answer.shown.text
    assert "another Slack app" in errors
    assert world.created_count() == 0
    assert "another app" in caplog.text


async def test_until_the_team_is_known_everything_is_refused_with_please_try_again(
    quiet: World,
) -> None:
    quiet.slack.faults.always("auth.test", CannedResponse(503))
    async with quiet.running_bot():
        answer = await quiet.ana.command("/video")
        assert STARTING in answer.shown.text
        assert quiet.ana.modal is None
        quiet.slack.faults.clear()
        await quiet.after(quiet.request_video(quiet.ana))
    assert quiet.created_count() == 1


async def test_once_it_was_learned_the_start_does_not_depend_on_slack(quiet: World) -> None:
    sam = stranger(quiet)
    async with quiet.running_bot():
        await quiet.settle()
    quiet.slack.faults.always("auth.test", Reset(done=False))
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana)
        answer = await quiet.after(sam.command("/video"))
    assert quiet.created_count() == 1
    assert ONLY_HERE in answer.shown.text


async def test_a_token_of_another_workspace_serves_nobody_and_is_logged(
    quiet: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quiet.running_bot():
        await quiet.settle()
    monkeypatch.setattr("sandbox.web_api.TEAM", ELSEWHERE)
    async with quiet.running_bot():
        await quiet.settle()
        answer = await quiet.ana.command("/video")
    assert "another workspace" in answer.shown.text
    assert "another workspace" in caplog.text


async def test_a_guest_cannot_create_a_video(world: World) -> None:
    gus = guest(world)
    world.slack.faults.always("users.info", CannedResponse(503))
    form = await world.open_form(gus)
    world.slack.faults.always("users.info", None)
    await world.after(form.submit(TYPED))
    assert "Guests" in " ".join(form.errors.values())
    assert form.values["script"] == "Hello, world.", "what was typed stays"
    assert world.created_count() == 0


async def test_a_guest_is_told_before_the_form_the_first_time_too(world: World) -> None:
    gus = guest(world)
    for _ in range(2):
        answer = await gus.command("/video", "Hello")
        assert "Guests" in answer.shown.text
        assert "Hello" in answer.shown.text, "what was typed is not lost"
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
    await world.after(world.ana.click(world.question(card), "Create again"))
    assert "Guests" in private_texts(world, world.ana)
    assert len(world.requests_for("create_video")) == 1


async def test_a_guest_who_is_listed_may_ask_for_what_the_list_is_about(quiet: World) -> None:
    gus = guest(quiet)
    async with quiet.running_bot(VIDEO_USERS=f"{gus.user.id},{quiet.ana.user.id}"):
        card = await unconfirmed(quiet, gus)
        await gus.click(quiet.question(card), "Create again")
        await quiet.after(quiet.request_video(quiet.ana))
        assert quiet.created_count() == 2
        await gus.command("/replica")
        assert gus.modal is None
        assert "Guests" in private_texts(quiet, gus)
        before = private_texts(quiet, gus).count("Guests")
        await quiet.after(gus.command("/replica", f"add {REPLICA}"))
        assert private_texts(quiet, gus).count("Guests") == before + 1
    async with quiet.running_bot(TRAINING_USERS=gus.user.id):
        await quiet.request_replica(gus)
        await gus.command("/video")
        assert gus.modal is None


async def test_if_slack_does_not_say_who_somebody_is_nothing_is_created_and_the_input_stays(
    world: World,
) -> None:
    world.slack.faults.always("users.info", CannedResponse(503))
    form = await world.after(world.submit_form(world.ana, TYPED))
    assert "Please try again" in " ".join(form.errors.values())
    assert world.created_count() == 0
    world.slack.faults.clear()
    await world.after(form.submit())
    assert world.created_count() == 1


async def test_without_users_read_guests_are_treated_as_members(quiet: World) -> None:
    quiet.slack.scopes.discard("users:read")
    gus = guest(quiet)
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(gus))
    assert quiet.created_count() == 1


async def test_what_was_said_of_a_person_counts_while_slack_does_not_answer(world: World) -> None:
    await world.after(world.request_video(world.ana), minutes=11)
    world.slack.faults.always("users.info", CannedResponse(503))
    await world.after(world.request_video(world.ana))
    assert world.created_count() == 2


@pytest.mark.parametrize("flag", ["is_ext_shared", "is_pending_ext_shared"])
async def test_a_shared_channel_is_not_posted_to(world: World, flag: str) -> None:
    world.slack.change_channel("lobby", with_bot=True)
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("where"), "lobby")
    world.slack.change_channel("lobby", **{flag: True})
    await world.after(form.submit(TYPED))
    assert "another organization" in form.errors["where"]
    assert world.created_count() == 0
    await world.after(form.submit({"where": "studio"}))
    assert world.created_count() == 1


async def test_a_channel_is_not_posted_to_while_slack_does_not_say_who_reads_it(
    world: World,
) -> None:
    world.slack.faults.always("conversations.info", CannedResponse(503))
    form = await world.after(world.submit_form(world.ana, TYPED))
    assert form.errors["where"].startswith("I couldn't check who reads this channel")
    assert world.created_count() == 0
    world.slack.faults.clear()
    await world.after(form.submit())
    assert world.created_count() == 1


async def unconfirmed(world: World, person: Person | None = None) -> Message:
    """Return the card of a video whose create call got no answer, once the person is asked."""
    world.service.faults.next("create_video", CannedResponse(500))
    card = await world.request_video(person or world.ana)
    await world.advance(seconds=timedelta(minutes=16).total_seconds())
    return world.now(card)


@pytest.fixture(autouse=True)
async def _faults_are_cleared(quiet: World) -> AsyncIterator[None]:
    yield
    quiet.slack.faults.clear()


def promote(world: World, person: Person, role: Literal["admin", "owner"] = "admin") -> None:
    """Make somebody an admin or owner of the workspace."""
    user = person.user
    world.slack.users[user.id] = replace(world.slack.users[user.id], role=role)


@pytest.mark.parametrize("role", ["admin", "owner"])
async def test_the_workspaces_admins_act_as_admins_where_none_are_named(
    world: World, role: Literal["admin", "owner"]
) -> None:
    promote(world, world.ben, role)
    card = await unconfirmed(world)
    assert "Limits" not in words(await opened(world, world.ana))
    form = await limits_form(world, world.ben)
    await world.after(form.send({PER_DAY: "7"}), seconds=10)
    assert f"Requests per workspace per day: *7*, changed by <@{world.ben.user.id}>" in words(
        world.ben.home
    )
    await world.after(world.ben.click(world.question(card), "Cancel request"))
    assert world.ephemerals(world.ben) == []
    assert "ancelled" in world.now(card).text
    asked = [
        each for each in world.calls("users.info") if each.arguments["user"] == world.ben.user.id
    ]
    assert len(asked) == 1, "what Slack says counts for some minutes"


@bot_with(ADMIN_USERS="{ana}")
async def test_where_admins_are_named_the_workspaces_own_are_nobody(world: World) -> None:
    promote(world, world.ben)
    assert "Limits" not in words(await opened(world, world.ben))
    assert "Limits" in words(await opened(world, world.ana))


async def test_only_full_members_of_the_workspace_are_its_admins(quiet: World) -> None:
    slack = quiet.slack
    slack.enterprise = "E0ORG"
    people = {
        "pam": slack.add_user("pam", team="T0OTHER", enterprise="E0ORG", channels=["studio"]),
        "otto": slack.add_user("otto", team="T0GLOBEX", channels=["studio"]),
        "gus": slack.add_user("gus", guest="multi-channel", channels=["studio"]),
    }
    for user in people.values():
        slack.users[user.id] = replace(user, role="admin")
    async with quiet.running_bot():
        for name in people:
            person = Person(slack, name)
            await quiet.after(person.open_home())
            assert person.home is None or "Limits" not in words(person.home), name


@pytest.mark.parametrize("fault", [Hang(), CannedResponse(503)], ids=["silence", "503"])
async def test_where_slack_does_not_say_it_nobody_is_an_admin(
    world: World, fault: Hang | CannedResponse
) -> None:
    promote(world, world.ben)
    form = await limits_form(world, world.ben)
    world.slack.faults.always("users.info", fault)
    world.slack.response_timeout = RESPONSE_TIMEOUT
    await world.clock.advance(world.timings.person_max_age * 2)
    await form.submit({PER_DAY: "1"})
    assert "Only admins can change limits" in str(form.errors)


NAME: Final = "The spring greeting"
SCRIPT: Final = "Nobody but me has to know this."


async def _status(
    world: World, person: Person, wanted: str, *, channel: str = "studio", command: str = "/video"
) -> str:
    before = len(world.ephemerals(person, channel))
    await world.after(person.command(command, f"status {wanted}", channel))
    [shown] = world.slack.ephemerals(person.user.id, channel)[before:]
    return shown.text + str(shown.blocks)


async def _video(world: World) -> tuple[str, str]:
    """Have Ana's video made in the studio; return its number and its id at the service."""
    card = await world.request_video(world.ana, {"video_name": NAME, "script": SCRIPT})
    await world.advance(minutes=5)
    return number_of(card), list(world.service.videos)[-1]


async def test_in_another_channel_others_see_the_state_and_who_can_see_the_rest(
    world: World,
) -> None:
    number, video_id = await _video(world)
    reads = len(world.requests_for("read_video"))

    for wanted in (number, video_id, video_id.upper(), f"`{video_id}`"):
        shown = await _status(world, world.ben, wanted, channel="lobby")
        ana, studio = world.ana.user.id, world.slack.channel("studio").id
        who = f"<@{ana}>, admins and people in <#{studio}>"
        assert f"This video: ready. Only {who} can see the rest." in shown
        assert "http" not in shown
        assert NAME not in shown
        assert SCRIPT not in shown
        assert video_id not in shown

    assert len(world.requests_for("read_video")) == reads, "nobody needs to ask the service"


async def test_in_another_channel_others_see_no_reason_of_a_failure(world: World) -> None:
    world.service.next_video(Scenario(end="error", reason="Cannot fetch anna.mp4"))
    number, _ = await _video(world)

    shown = await _status(world, world.ben, number, channel="lobby")

    assert "This video: failed. Only" in shown
    assert "anna.mp4" not in shown


async def test_in_another_channel_others_see_no_name_of_a_replica(world: World) -> None:
    card = await world.after(world.request_replica(world.ana, {"replica_name": NAME}), hours=5)

    for wanted in (number_of(card), world.last_replica_id()):
        shown = await _status(world, world.ben, wanted, channel="lobby", command="/replica")
        assert "ready. Only" in shown
        assert NAME not in shown
        assert "http" not in shown


async def test_in_another_channel_others_see_nothing_of_a_video_without_an_id(world: World) -> None:
    world.service.down = True
    card = await world.request_video(world.ana, {"video_name": NAME})

    shown = await _status(world, world.ben, number_of(card), channel="lobby")

    assert "waiting. Only" in shown
    assert NAME not in shown


async def test_in_another_channel_an_admin_sees_links_and_names(quiet: World) -> None:
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id):
        number, video_id = await _video(quiet)
        shown = await _status(quiet, quiet.ben, number, channel="lobby")

    assert f"/watch/{video_id}" in shown
    assert NAME in shown
    assert SCRIPT not in shown


async def test_in_its_own_channel_people_see_links_and_names(
    world: World, subtests: pytest.Subtests
) -> None:
    for by_id in [False, True]:
        with subtests.test(by_id=by_id):
            number, video_id = await _video(world)

            shown = await _status(world, world.ben, video_id if by_id else number)

            assert f"/watch/{video_id}" in shown
            assert NAME in shown
            assert SCRIPT not in shown


async def _made_elsewhere(world: World) -> str:
    """Have a video made without the bot; return its id."""
    world.service.callback_plan = CallbackPlan(times=0)
    async with world.slack.session.post(
        f"{world.service.url}/v2/videos",
        json={"script": SCRIPT, "replica_id": "r-anna-42"},
        headers={"x-api-key": world.service.api_key},
    ) as answer:
        made = str((await answer.json())["video_id"])
    await world.advance(minutes=5)
    return made


@bot_with(ADMIN_USERS="{ben}")
async def test_a_video_made_elsewhere_is_shown_to_admins_alone_without_its_script(
    world: World,
) -> None:
    made = await _made_elsewhere(world)

    reads = len(world.requests_for("read_video"))
    for wanted in (made, made.upper(), "v-nobody", "j7"):
        shown = await _status(world, world.ana, wanted, channel="lobby")
        assert f"I can't find a video “{wanted}”" in shown
        assert f"Ask <@{world.ben.user.id}> to look it up." in shown
    assert len(world.requests_for("read_video")) == reads, "nobody learns whether it is there"

    shown = await _status(world, world.ben, made, channel="lobby")
    assert f"/watch/{made}" in shown
    assert SCRIPT not in shown


@on_both_engines
async def test_what_was_made_in_private_and_is_deleted_here_is_shown_to_nobody_but_admins(
    quiet: World,
) -> None:
    settings: dict[str, Any] = {"ADMIN_USERS": quiet.ben.user.id, "RETENTION_DAYS": "1"}
    den = quiet.slack.add_channel("den", kind="private")
    async with quiet.running_bot(**settings):
        await quiet.request_video(quiet.ana, {"video_name": NAME, "script": SCRIPT}, channel="den")
        await quiet.advance(minutes=5)
        await quiet.request_replica(quiet.ana, {"replica_name": NAME}, channel="den")
        await quiet.advance(hours=5)
    den.members.discard(quiet.slack.user("cleo").id)
    await quiet.advance(days=40)
    async with quiet.running_bot(**settings):
        await quiet.settle()
        assert quiet.query("SELECT id FROM jobs") == []
        [video_id], replica_id = quiet.service.videos, quiet.last_replica_id()

        cleo = Person(quiet.slack, "cleo")
        shown = await _status(quiet, cleo, video_id)
        assert "http" not in shown
        # Everybody can pick the replica, whose name is in the menu.
        shown = await _status(quiet, cleo, replica_id, command="/replica")
        assert "Video service status: completed" in shown
        assert "http" not in shown

        assert f"/watch/{video_id}" in await _status(quiet, quiet.ben, video_id)
        shown = await _status(quiet, quiet.ben, replica_id, command="/replica")
        assert f"/files/{replica_id}.mp4" in shown


@bot_with(ADMIN_USERS="{ana}")
async def test_a_link_in_a_status_is_shown_as_its_host_on_the_card_and_to_those_who_ask(
    world: World,
) -> None:
    link = "https://files.example.com/t-s3cretPath"
    card = await world.request_video(world.ben)
    [video_id] = world.service.videos
    answer = {"video_id": video_id, "status": f"at {link}", "status_details": f"see {link}"}
    world.service.faults.always("read_video", CannedResponse(200, answer))
    await world.advance(minutes=1)
    await world.after(world.ana.command("/video", f"status {video_id}"))
    answer["video_id"] = "v-elsewhere"
    await world.after(world.ana.command("/video", "status v-elsewhere"))

    details = await world.details(world.ana, card)
    shown = [details.text, *world.ephemerals(world.ana)]
    assert len(shown) == 3
    assert all("at files.example.com" in each and "s3cret" not in each for each in shown)
    assert "see files.example.com" in shown[-1]


@on_both_engines
async def test_others_are_not_sent_to_a_direct_conversation_for_the_rest_of_a_status(
    quiet: World,
) -> None:
    async with quiet.running_bot():
        number, _ = await _video(quiet)
    quiet.query("UPDATE jobs SET channel = 'D0ANA' WHERE id = :id", id=number)

    async with quiet.running_bot():
        shown = await _status(quiet, quiet.ben, number)

    assert f"Only <@{quiet.ana.user.id}> or an admin can see the rest." in shown


async def failed_reply(world: World) -> Message:
    """Return the reply of a failed video, in its card's thread: it has a button."""
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    world.service.fail(video_id, "No.")
    await world.advance(minutes=5)
    [reply] = world.replies(card)
    return reply


async def test_a_private_answer_to_a_click_in_a_thread_is_in_that_thread(world: World) -> None:
    reply = await failed_reply(world)
    await world.after(world.ben.click(reply, "Edit and retry"))

    [answer] = world.slack.ephemerals(world.ben.user.id, "studio")
    assert answer.thread_ts == reply.thread_ts


@pytest.mark.parametrize(
    "code",
    [
        *("invalid_arguments", "view_too_large", "duplicate_external_id", "hash_conflict"),
        *("moon_phase_wrong", "error_42"),
    ],
)
async def test_a_form_that_slack_refuses_is_a_line_in_the_log_and_a_sentence(
    world: World, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    world.slack.faults.next("views.open", CannedResponse(200, {"ok": False, "error": code}))
    answer = await world.ana.command("/video", "Good morning, Monday.")

    assert "Slack didn't open the form. Please try again." in answer.shown.text
    assert "Good morning, Monday." in answer.shown.text, "what was typed is gone elsewhere"
    [line] = [each for each in caplog.records if each.message == "Slack refuses a form"]
    assert line.exc_info is None
    assert str(vars(line)["reference"]) in answer.shown.text
    assert code in str(vars(line)["reason"])


@pytest.mark.parametrize("headers", [{"Retry-After": "30"}, {}])
async def test_a_private_answer_comes_after_a_429_at_its_response_url(
    world: World, headers: dict[str, str]
) -> None:
    reply = await failed_reply(world)
    limited = CannedResponse(429, {"ok": False, "error": "ratelimited"}, headers)
    world.slack.faults.next("response_url", limited, limited)
    await world.after(world.ben.click(reply, "Edit and retry"))
    assert not world.slack.ephemerals(world.ben.user.id, "studio")

    await world.advance(minutes=1)

    assert len(world.slack.ephemerals(world.ben.user.id, "studio")) == 1
    assert len(world.calls("response_url")) == 3
