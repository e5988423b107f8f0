"""Trainings from the form to the closing reply, and videos that wait for them."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from bot.timings import Timings
from sandbox.driver import ClientRefusal, Modal, Person
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan, Pace, Scenario, TrainingFailure
from sandbox.slack_objects import Message
from tests.modes import in_both_modes, on_both_engines
from tests.world import FOOTAGE, REPLICA, World, number_of, offered_ids

HOUR = timedelta(hours=1)
SILENT = CallbackPlan(times=0)
# Days pass quicker where a training is looked at once an hour; when it is late stays the same.
HOURLY = Timings(jitter=0, hours=replace(Timings().hours, first_interval=HOUR, max_interval=HOUR))


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    """A world whose bot reads a replica only once an hour, unless a callback wakes it."""
    quiet.timings = HOURLY
    async with quiet.running_bot():
        yield quiet


def _text(world: World, card: Message) -> str:
    return world.now(card).text


@on_both_engines
async def test_a_callback_before_the_answer_to_the_create_call_has_the_training_read_at_once(
    world: World,
) -> None:
    world.service.callback_plan = CallbackPlan(early=True)
    await world.request_replica(world.ana)
    assert len(world.requests_for("read_replica")) == 1, "the step goes on with the menu meanwhile"


@pytest.mark.parametrize("word", ["completed", "ready"])
async def test_a_callback_brings_the_one_reply_of_a_training_at_once(
    world: World, word: str
) -> None:
    world.service.next_replica(Scenario(final_status=word))
    card = await world.request_replica(world.ana, {"replica_name": "Kim <b>"})
    assert "Kim &lt;b&gt;" in card.text

    await world.advance(hours=5)

    [reply] = world.replies(card)
    [callback] = world.service.callbacks
    assert reply.sent_at == callback.at
    assert reply.pings == {world.ana.user.id}
    assert "“Kim &lt;b&gt;” is ready" in reply.text
    assert f"/files/{world.last_replica_id()}.mp4|Preview replica" in reply.text
    assert "Ready" in _text(world, card)
    assert world.posts() == [world.now(card), reply]
    assert len(world.requests_for("create_replica")) == 1


@pytest.mark.parametrize("word", ["completed", "ready"])
async def test_without_a_public_address_polls_some_minutes_apart_do_all(
    quiet: World, word: str
) -> None:
    quiet.service.next_replica(Scenario(final_status=word))
    async with quiet.running_bot(callbacks=False):
        card = await quiet.after(quiet.request_replica(quiet.ana, {"replica_name": "Kim"}), hours=4)

    [create] = quiet.requests_for("create_replica")
    assert create.body == {"train_video_url": FOOTAGE, "replica_name": "Kim"}
    assert not quiet.service.callbacks
    assert "is ready" in quiet.reply(card).text
    gaps = [
        later.at - earlier.at for earlier, later in pairwise(quiet.requests_for("read_replica"))
    ]
    assert min(gaps) >= timedelta(minutes=2)
    assert max(gaps) <= timedelta(minutes=10)


@in_both_modes
async def test_with_one_click_anybody_makes_a_video_with_the_new_replica(world: World) -> None:
    training = await world.after(world.request_replica(world.ana, {"replica_name": "Kim"}), hours=4)
    [reply] = world.replies(training)

    await world.ben.click(reply, "Use in a video")

    form = world.ben.form
    assert form.title == "Create a video"
    assert form.values["replica_id"] == world.last_replica_id()
    assert "Kim" in str(form.view.body)
    await world.after(form.send({"script": "I am new here."}), minutes=5)
    [video] = world.service.videos.values()
    assert (video.replica_id, video.script) == (world.last_replica_id(), "I am new here.")
    [_, card] = world.slack.messages("studio")
    [shown] = world.replies(card)
    assert shown.pings == {world.ben.user.id}
    assert "is ready" in shown.text


MEANINGS = {
    TrainingFailure.NOT_REACHABLE: "needs a sign-in or has expired",
    TrainingFailure.TOO_LARGE: "larger than 750 MB",
    TrainingFailure.WRONG_CODEC: "isn't an H.264 MP4",
    TrainingFailure.TOO_SHORT: "shorter than a minute",
    TrainingFailure.LOW_FRAME_RATE: "fewer than 25 frames a second",
    TrainingFailure.NO_CONSENT: "consent statement is missing",
    TrainingFailure.FACE_HIDDEN: "face was hidden or turned away",
    TrainingFailure.TWO_PEOPLE: "more than one person is in the picture",
    TrainingFailure.BAD_LIGHT: "light was too low",
    TrainingFailure.NOISE: "there's background noise",
}


async def test_a_failed_training_quotes_the_service_and_explains_what_it_means(
    world: World, subtests: pytest.Subtests
) -> None:
    for reason in TrainingFailure:
        with subtests.test(reason=reason):
            before = len(world.posts())
            pace = Pace(training=timedelta(minutes=10))
            world.service.next_replica(Scenario(end="error", reason=reason, pace=pace))
            card = await world.request_replica(world.ana)

            await world.advance(minutes=15)

            [reply] = world.replies(card)
            for message in (world.now(card), reply):
                assert f"“{reason.value}”" in message.text
                _, _, meaning = message.text.partition("Most likely, ")
                assert MEANINGS[reason] in meaning
                assert message.pings <= {world.ana.user.id}
            assert world.posts()[before:] == [world.now(card), reply]


async def test_edit_and_retry_opens_the_form_with_all_that_was_typed(world: World) -> None:
    world.service.next_replica(Scenario(end="error", reason=TrainingFailure.NO_CONSENT))
    typed = {
        "train_video_url": "https://storage.example.com/a.mp4?key=secret",
        "consent_video_url": "https://storage.example.com/yes.mp4",
        "replica_name": "Kim",
    }
    card = await world.after(world.request_replica(world.ana, typed), hours=4)
    [reply] = world.replies(card)
    assert "secret" not in str(world.posts())

    await world.ana.click(reply, "Edit and retry")

    form = world.ana.form
    studio = world.slack.channel("studio").id
    same = {**typed, "owner": world.ana.user.id, "agreed": [], "where": studio}
    assert form.values == same, "it has to be confirmed again"
    better = "https://storage.example.com/b.mp4"
    await world.after(form.send({"train_video_url": better, "agreed": ["yes"]}), hours=4)
    first, second = world.requests_for("create_replica")
    assert second.body["train_video_url"] == better
    assert second.body["consent_video_url"] == first.body["consent_video_url"]
    assert "is ready" in world.replies(card)[-1].text


async def _asks_one_in_training(world: World, *scenario: Scenario) -> tuple[Message, Message]:
    """Have Ben ask for a video with a replica that Ana has in training; return both cards."""
    world.service.next_replica(*scenario)
    training = await world.after(world.request_replica(world.ana, {"replica_name": "Kim"}), hours=1)
    video = await world.request_video(world.ben, {"replica_id": world.last_replica_id()})
    await world.advance(minutes=1)
    return training, video


@on_both_engines
async def test_a_video_goes_on_as_soon_as_its_replica_is_trained(world: World) -> None:
    world.service.next_video(Scenario(callback_plan=SILENT))
    _, video = await world.after(_asks_one_in_training(world), hours=3)

    [trained] = world.service.callbacks
    assert trained.at in [read.at for read in world.requests_for("read_video")]
    assert world.reply(video).sent_at - trained.at < timedelta(minutes=3)


async def test_the_deadlines_of_a_video_begin_when_its_replica_is_trained(world: World) -> None:
    world.service.next_video(Scenario(end="never"))
    _, video = await world.after(_asks_one_in_training(world), hours=2, minutes=28)
    assert "Waiting for its replica" in _text(world, video)
    await world.advance(minutes=14)
    assert "I'll reply here." in _text(world, video)
    assert "longer than usual" not in _text(world, video)

    await world.advance(minutes=5)
    assert "longer than usual" in _text(world, video)
    await world.advance(hours=3)
    assert "Overdue" in _text(world, video)
    assert not world.replies(video)


@pytest.mark.parametrize("callbacks", [True, False])
async def test_a_video_fails_when_the_training_of_its_replica_fails(
    quiet: World, *, callbacks: bool
) -> None:
    async with quiet.running_bot(callbacks=callbacks):
        scenario = Scenario(end="error", reason=TrainingFailure.NOISE)
        training, video = await _asks_one_in_training(quiet, scenario)
        assert "Waiting for its replica" in _text(quiet, video)
        await quiet.advance(hours=3)

    assert TrainingFailure.NOISE.value in quiet.replies(training)[0].text
    [reply] = quiet.replies(video)
    assert "couldn't be created" in reply.text
    assert "The replica of this video could not be trained" in reply.text
    assert len(quiet.posts()) == 4


async def test_a_video_does_not_wait_forever_for_a_training_that_never_ends(quiet: World) -> None:
    schedule = replace(HOURLY.hours, overdue_after=12 * HOUR, give_up_after=24 * HOUR)
    quiet.timings = replace(HOURLY, hours=schedule)
    quiet.service.add_replica("r-elsewhere", "Else", status="training")
    async with quiet.running_bot():
        video = await quiet.request_video(quiet.ana, {"replica_id": "r-elsewhere"})
        await quiet.advance(hours=23)
        assert "Waiting for its replica" in _text(quiet, video)
        await quiet.advance(hours=2)

    assert "didn't finish" in quiet.reply(video).text


async def test_a_video_goes_on_once_its_replica_is_trained_that_somebody_else_trains(
    world: World,
) -> None:
    world.service.add_replica("r-elsewhere", "Else", status="training")
    world.service.next_video(Scenario(pace=Pace(queued=timedelta(days=2))))
    video = await world.request_video(world.ana, {"replica_id": "r-elsewhere"})
    await world.advance(minutes=30)
    assert "Waiting for its replica" in _text(world, video)
    world.service.add_replica("r-elsewhere", "Else")
    await world.advance(hours=1)
    assert "Waiting for its replica" not in _text(world, video)
    await world.advance(hours=3)
    assert "Overdue" in _text(world, video)


@pytest.mark.parametrize("status", [401, 403, 409])
async def test_a_refusal_that_is_not_about_a_replica_keeps_it(world: World, status: int) -> None:
    await world.after(world.ana.command("/replica", f"default {REPLICA}"))
    world.service.faults.next("read_replica", CannedResponse(status, {"message": "Not now"}))
    await world.after(world.ana.command("/replica", f"add {REPLICA}"))

    shown = world.ephemerals(world.ana)[-1]
    assert "can't check the replica" in shown
    assert "does not know" not in shown
    form = await world.open_form(world.ana)
    assert form.values["replica_id"] == REPLICA


async def _says(person: Person, text: str) -> Message:
    """Type the command and return what it says to the person at once."""
    answer = await person.command("/replica", text)
    assert answer.shown.visible_to == person.user.id
    return answer.shown


async def _shown_after(world: World, person: Person, text: str, channel: str = "studio") -> str:
    """Type the command and return the last message that only this person sees."""
    before = len(world.ephemerals(person, channel))
    answer = await person.command("/replica", text, channel)
    assert answer.ok
    await world.settle()
    [shown] = world.ephemerals(person, channel)[before:]
    assert not [post for post in world.posts() if shown in post.text]
    return shown


async def test_the_list_shows_my_trainings_and_what_everybody_can_use(world: World) -> None:
    await world.request_replica(world.ana, {"replica_name": "First <b>"})
    world.service.fail(world.last_replica_id(), "Bad.")
    await world.advance(minutes=1)
    await world.request_replica(world.ana, {"replica_name": "Second"})
    world.service.finish(world.last_replica_id())
    await world.advance(minutes=1)
    await world.after(world.request_replica(world.ben, {"replica_name": "Bens"}), minutes=5)
    await _shown_after(world, world.ben, f"default {REPLICA}")

    shown = await _says(world.ana, "list")

    mine, _, all_of_them = shown.text.partition("everyone here can use")
    states = [line.split(" · ")[:2] for line in mine.splitlines() if line.startswith("•")]
    assert states == [["• Ready", "Second"], ["• Failed", "First &lt;b&gt;"]]
    _, *dated = all_of_them.splitlines()
    lines = [line.partition(" · <!date^")[0] for line in dated]
    assert all(" at {time}|2026-03-02 09:0" in line for line in dated)
    assert lines == [
        "Anna · this channel's default",
        "Bens · training",
        "Second",
        "First &lt;b&gt; · can't be used",
    ]
    assert "Bens" in str(shown.blocks)
    assert "this channel's default" in str(shown.blocks)
    assert shown.pings == frozenset()


async def test_the_status_of_my_training_is_what_the_service_says_now(world: World) -> None:
    world.service.next_replica(Scenario(pace=Pace(training=timedelta(minutes=20))))
    card = await world.request_replica(world.ana, {"replica_name": "Kim"})
    replica_id = world.last_replica_id()
    await world.advance(minutes=10)

    for wanted in (number_of(card), f"`#{number_of(card)}`", replica_id):
        shown = await _shown_after(world, world.ana, f"status {wanted}")
        assert "Status: Training" in shown
        assert "Video service status: training" in shown
        assert "Name at the video service: Kim" in shown
        assert "Progress: 50/100" in shown
        assert replica_id in shown
        assert "Created: <!date^" in shown
        assert "Updated: <!date^" in shown
        assert "Thumbnail" not in shown
    world.service.finish(replica_id)
    shown = await _shown_after(world, world.ana, f"status {replica_id}")
    assert f"/files/{replica_id}.mp4|Thumbnail" in shown


async def test_the_status_of_a_failed_training_explains_it_to_the_requester_and_shows_no_links(
    world: World,
) -> None:
    card = await world.request_replica(world.ana, {"train_video_url": f"{FOOTAGE}?key=secret"})
    world.service.fail(world.last_replica_id(), TrainingFailure.NOISE)
    await world.settle()

    for person in (world.ana, world.ben):
        shown = await _shown_after(world, person, f"status {number_of(card)}")
        assert "Failed" in shown
        assert (TrainingFailure.NOISE.value in shown) == (person is world.ana)
        assert "secret" not in str(world.slack.ephemerals(person.user.id, "studio"))


async def test_each_command_points_to_the_other_for_a_job_of_the_other_kind(world: World) -> None:
    video, training = await world.request_video(world.ana), await world.request_replica(world.ana)

    shown = await _shown_after(world, world.ana, f"status {number_of(video)}")
    assert f"That's a video: `/video status {number_of(video)}`" in shown
    answer = await world.ana.command("/video", f"status {number_of(training)}")
    assert f"That's a replica: `/replica status {number_of(training)}`" in answer.shown.text


async def test_a_replica_that_is_added_while_it_trains_is_not_called_ready(world: World) -> None:
    world.service.add_replica("r-new", "Nina", status="training")

    shown = await _shown_after(world, world.ana, "add r-new")

    assert "Nina · training. Everyone in this workspace can use it." in shown
    assert "Videos wait until it's ready." in shown
    assert "is ready" not in shown
    form = await world.open_form(world.ben)
    assert await offered_ids(form) == ["r-new"]


async def test_an_id_that_the_service_does_not_know_is_not_added(
    world: World, subtests: pytest.Subtests
) -> None:
    for code in [400, 404]:
        for subcommand in ["add", "default"]:
            with subtests.test(code=code, subcommand=subcommand):
                world.service.unknown_id_status = code

                shown = await _shown_after(world, world.ana, f"{subcommand} r-nobody")

                assert "can't find the replica “r-nobody”" in shown
                assert "“Invalid replica_id”" in shown
                assert await offered_ids(await world.open_form(world.ana)) == []


async def test_an_impossible_id_causes_no_call(world: World, subtests: pytest.Subtests) -> None:
    for written in ["``", "../videos/v1", "<!channel>", "x" * 151, "ä"]:
        for subcommand in ["add", "default"]:
            with subtests.test(written=written, subcommand=subcommand):
                shown = await _shown_after(world, world.ana, f"{subcommand} {written}")

                said = {"add": "That doesn't look like", "default": "I can't find a replica"}
                assert said[subcommand] in shown
                assert not world.service.requests


async def test_a_replica_in_error_is_refused_with_its_reason(
    world: World, subtests: pytest.Subtests
) -> None:
    for subcommand in ["add", "default"]:
        with subtests.test(subcommand=subcommand):
            broken = world.service.add_replica("r-bad", "Bad", status="training")
            world.service.fail("r-bad", "Two <people>")
            assert broken.reason == "Two <people>"

            shown = await _shown_after(world, world.ana, f"{subcommand} r-bad")

            assert "This replica can't be used: Two &lt;people&gt;" in shown
            form = await world.open_form(world.ana)
            assert form.values["replica_id"] is None


async def test_a_replica_becomes_the_default_by_its_name_where_only_one_has_it(
    world: World, subtests: pytest.Subtests
) -> None:
    for typed in ["Anna", "anna", "`ANNA`", "ann"]:
        with subtests.test(typed=typed):
            await _shown_after(world, world.ana, f"add {REPLICA}")

            shown = await _shown_after(world, world.ana, f"default {typed}")

            assert "Anna is now this channel's default" in shown


async def test_a_name_that_several_replicas_have_is_answered_with_all_of_them(world: World) -> None:
    for replica_id, name in (("r-1", "Max"), ("r-2", "max"), ("r-3", "Maxine")):
        world.service.add_replica(replica_id, name)
        await _shown_after(world, world.ana, f"add {replica_id}")

    shown = await _shown_after(world, world.ana, "default Max")

    assert "Several replicas match “Max”. Use the ID:" in shown
    assert ("Max · r-1" in shown, "max · r-2" in shown, "r-3" in shown) == (True, True, False)
    shown = await _shown_after(world, world.ana, "default Maxine")
    assert "Maxine is now" in shown


CONSENT = "https://storage.example.com/consent.mp4"
SENT_OFF = {"train_video_url": FOOTAGE, "agreed": ["yes"]}


async def _opens(world: World, values: Mapping[str, Any] | None = None) -> Modal:
    """Open the training form as Ana and send it off with ``values``, if there are any."""
    form = await world.open_form(world.ana, command="/replica")
    if values is not None:
        await form.submit(values)
    return form


def _created(world: World) -> list[dict[str, str]]:
    """Return the bodies of the create calls, without the callback address."""
    bodies = [dict(request.body) for request in world.requests_for("create_replica")]
    return [{name: body[name] for name in body if name != "callback_url"} for body in bodies]


def _signed(signed: datetime, good_for: timedelta, name: str = "anna.mp4") -> str:
    """Return a link as Amazon signs it."""
    return (
        f"https://storage.example.com/{name}?X-Amz-Date={signed:%Y%m%dT%H%M%SZ}"
        f"&X-Amz-Expires={good_for.total_seconds():.0f}&X-Amz-Signature=abc"
    )


def _notes(form: Modal) -> list[str]:
    blocks = form.view.body["blocks"]
    return [block["text"]["text"] for block in blocks if block["block_id"] == "note"]


async def test_every_field_arrives_at_the_service_as_typed(world: World) -> None:
    name = "Zażółć & <b>Kim</b> 你好"
    form = await _opens(
        world, {**SENT_OFF, "consent_video_url": CONSENT, "replica_name": name, "where": "lobby"}
    )
    await world.settle()

    assert not form.is_open
    expected = {"train_video_url": FOOTAGE, "consent_video_url": CONSENT, "replica_name": name}
    assert _created(world) == [expected]
    [create] = world.requests_for("create_replica")
    assert "/callbacks/" in create.body["callback_url"]
    [card] = world.posts()
    assert card.channel == world.slack.channel("lobby").id


async def test_without_a_name_it_gets_one_that_the_form_shows(world: World) -> None:
    form = await world.after(_opens(world), minutes=3)
    await world.after(form.submit(SENT_OFF))

    [created] = _created(world)
    assert created.keys() == {"train_video_url", "replica_name"}
    # It has no time in it: the server's is not the person's.
    assert re.fullmatch("Replica [A-Z2-9]{5}", created["replica_name"])
    assert f"Leave it blank for “{created['replica_name']}”." in str(form.view.body)
    [card] = world.posts()
    assert created["replica_name"] in card.text


async def test_the_links_are_shown_on_the_card_without_their_secrets(world: World) -> None:
    card = await world.request_replica(world.ana, {"train_video_url": f"{FOOTAGE}?key=secret"})
    world.service.finish(world.last_replica_id())
    await world.settle()

    assert len(world.posts()) == 2
    assert "Footage: storage.example.com" in (await world.details(world.ana, card)).text
    assert "secret" not in str([(each.text, each.blocks) for each in world.posts()])


async def test_nothing_is_sent_without_the_confirmation_that_the_person_agreed(
    world: World,
) -> None:
    form = await _opens(world)
    with pytest.raises(ClientRefusal, match="Consent"):
        await form.submit({"train_video_url": FOOTAGE})

    # Clients see to it themselves; the bot does not rely on that.
    for block in form.view.body["blocks"]:
        block["optional"] = True
    await form.submit({"replica_name": "Kept"})
    assert form.errors.keys() == {"agreed"}
    assert "confirm" in form.errors["agreed"]
    assert form.values["train_video_url"] == FOOTAGE
    assert form.values["replica_name"] == "Kept"
    await world.settle()
    assert not world.requests_for("create_replica")

    await world.after(form.send({"agreed": ["yes"]}))
    assert len(_created(world)) == 1


@pytest.mark.parametrize("field", ["train_video_url", "consent_video_url"])
async def test_a_link_that_expires_within_a_day_warns_once_and_is_sent_on_the_second_press(
    world: World, field: str
) -> None:
    link = _signed(world.clock.now(), timedelta(hours=23))
    typed = {**SENT_OFF, "replica_name": "Kept", "where": "lobby", field: link}
    form = await _opens(world, typed)

    [note] = _notes(form)
    assert "expires <!date^" in note
    assert {"train_video_url": "footage", "consent_video_url": "consent"}[field] in note
    assert "24 hours" in note
    kept = {"consent_video_url": None, **typed, "where": world.slack.channel("lobby").id}
    assert form.values == {**kept, "owner": world.ana.user.id}
    await world.settle()
    assert not world.requests_for("create_replica")
    assert not world.posts()

    await world.after(form.send())
    [created] = _created(world)
    assert created[field] == link


async def test_a_link_that_expires_while_the_warning_is_read_is_refused(world: World) -> None:
    link = _signed(world.clock.now(), timedelta(minutes=5))
    form = await _opens(world, {**SENT_OFF, "train_video_url": link})
    assert _notes(form)

    await world.advance(minutes=6)
    await form.submit()

    assert form.errors.keys() == {"train_video_url"}
    assert not world.requests_for("create_replica")


async def test_a_form_that_is_retried_by_an_admin_shows_no_links(quiet: World) -> None:
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id):
        typed = {"consent_video_url": CONSENT, "replica_name": "Kim"}
        card = await quiet.request_replica(quiet.ana, typed)
        quiet.service.fail(quiet.last_replica_id(), "Too dark.")
        await quiet.settle()
        [reply] = quiet.replies(card)
        await quiet.ben.click(reply, "Edit and retry")

    form = quiet.ben.form
    studio = quiet.slack.channel("studio").id
    assert form.values == {
        "train_video_url": None,
        "consent_video_url": None,
        "replica_name": "Kim",
        "owner": quiet.ana.user.id,
        "agreed": [],
        "where": studio,
    }
    assert "storage.example.com" not in json.dumps(form.view.body)


DRIVE_FILE = "1AbCdEfGhIjKlMn"
DIRECT_DRIVE = (
    f"https://drive.usercontent.google.com/download?id={DRIVE_FILE}&export=download&confirm=t"
)
SHAREPOINT = "https://contoso-my.sharepoint.com"

WITH_A_DIRECT_FORM = {
    f"https://drive.google.com/file/d/{DRIVE_FILE}/view?usp=sharing": DIRECT_DRIVE,
    f"https://drive.google.com/file/d/{DRIVE_FILE}/preview": DIRECT_DRIVE,
    f"https://drive.google.com/open?id={DRIVE_FILE}": DIRECT_DRIVE,
    f"https://docs.google.com/file/d/{DRIVE_FILE}/edit": DIRECT_DRIVE,
    "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=0": (
        "https://www.dropbox.com/scl/fi/a1/anna.mp4?rlkey=k3y&dl=1"
    ),
    f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy": (
        f"{SHAREPOINT}/:v:/g/personal/anna/Ea1?e=Xy&download=1"
    ),
}
ONLY_A_PAGE = [
    f"https://drive.google.com/drive/folders/{DRIVE_FILE}",
    "https://photos.google.com/share/AF1Qip",
    "https://www.dropbox.com/scl/fo/a1/h?rlkey=k3y",
    "https://www.dropbox.com/home/Footage?preview=anna.mp4",
    "https://1drv.ms/v/s!AbC",
    "https://onedrive.live.com/?id=ABC&cid=DEF",
    f"{SHAREPOINT}/personal/anna/_layouts/15/stream.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/onedrive.aspx?id=%2Fpersonal%2Fanna%2Fa.mp4",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://music.youtube.com/watch?v=dQw4w9WgXcQ",
    "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ",
    "https://youtu.be/dQw4w9WgXcQ",
    "https://vimeo.com/76979871",
    "https://player.vimeo.com/video/76979871",
    "https://www.loom.com/share/0a1b2c",
    "https://www.icloud.com/iclouddrive/0a1b2c#anna",
    "https://share.icloud.com/photos/0a1b2c",
    "https://acme.app.box.com/s/0a1b2c",
    "https://acme.slack.com/files/U024BE7LH/F024BERPE/anna.mp4",
    "https://files.slack.com/files-pri/T024BE7LD-F024BERPE/anna.mp4",
    "https://us02web.zoom.us/rec/share/0a1b2c",
]
FILES = [
    DIRECT_DRIVE,
    "https://dl.dropboxusercontent.com/scl/fi/a1/anna.mp4?rlkey=k3y",
    "https://player.vimeo.com/progressive_redirect/playback/76979871/rendition/1080p/file.mp4",
    "https://app.box.com/shared/static/0a1b2c.mp4",
    f"{SHAREPOINT}/personal/anna/_layouts/15/download.aspx?UniqueId=0a1b2c",
    "https://storage.googleapis.com/footage/anna.mp4?X-Goog-Signature=5160",
]


async def test_the_form_refuses_footage_that_is_a_page_and_shows_the_direct_link(
    world: World,
) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    passed = []
    for link, direct in [*WITH_A_DIRECT_FORM.items(), *((each, "") for each in ONLY_A_PAGE)]:
        # The bot is not in that channel, so that a link that passes starts no training.
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        said = form.errors.get("train_video_url", "")
        remedy = f"paste this one: {direct}" if direct else "Use one that downloads it"
        if "not the file" not in said or remedy not in said:
            passed.append((link, said))
    assert passed == []


async def test_the_form_takes_direct_links_of_the_same_services(world: World) -> None:
    form = await world.open_form(world.ana, channel="vault", command="/replica")
    for link in FILES:
        await form.submit({"train_video_url": link, "agreed": ["yes"]})
        assert list(form.errors) == ["where"], form.errors
