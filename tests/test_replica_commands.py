"""The subcommands of the replica command, and their effect on the picker."""

from datetime import timedelta

import pytest

from sandbox.driver import Person
from sandbox.faults import CannedResponse
from sandbox.scenarios import Pace, Scenario, TrainingFailure
from sandbox.slack_objects import Message
from tests.world import FOOTAGE, REPLICA, World, number_of, offered_ids


async def _says(person: Person, text: str) -> Message:
    """Type the command and return what it says to the person at once."""
    answer = await person.command("/replica", text)
    assert answer.message is not None
    assert answer.message.visible_to == person.user.id
    return answer.message


async def _shown_after(world: World, person: Person, text: str, channel: str = "studio") -> str:
    """Type the command and return the last message that only this person sees."""
    before = len(world.ephemerals(person, channel))
    answer = await person.command("/replica", text, channel)
    assert answer.ok
    await world.settle()
    [shown] = world.ephemerals(person, channel)[before:]
    assert not [post for post in world.posts() if shown in post.text]
    return shown


# ── Help and whatever else is typed ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["help", "  help "])
async def test_help_says_what_the_commands_do(world: World, text: str) -> None:
    shown = await _says(world.ana, text)

    for subcommand in ("", " list", " status <id>", " add <id>", " default <name or id>", " help"):
        assert f"`/replica{subcommand}`" in shown.text
    assert world.ana.modal is None


@pytest.mark.parametrize("text", ["add", "default", "status", "Add"])
async def test_a_subcommand_without_its_id_says_what_it_needs(world: World, text: str) -> None:
    shown = await _says(world.ana, text)

    assert f"`/replica {text.lower()}` needs a replica ID" in shown.text
    assert world.ana.modal is None


async def test_the_case_of_a_subcommand_does_not_matter(world: World) -> None:
    shown = await _shown_after(world, world.ana, f"Add {REPLICA}")

    assert "is ready to use" in shown


@pytest.mark.parametrize("text", ["hepl", "add two words", "list me", "<!channel>", "-- %"])
async def test_an_unknown_subcommand_shows_the_help_and_does_nothing(
    world: World, text: str
) -> None:
    shown = await _says(world.ana, text)

    assert "I don't know that command." in shown.text
    assert "/replica list" in shown.text
    assert world.ana.modal is None
    assert not world.service.requests
    assert not world.posts()


# ── List ──────────────────────────────────────────────────────────────────────────────────────


async def test_the_list_of_a_user_without_trainings_says_how_to_start(world: World) -> None:
    shown = await _says(world.ana, "list")

    assert "don't have any replicas yet. Start with `/replica`" in shown.text
    assert "everybody" not in shown.text


async def test_the_list_shows_my_trainings_and_what_everybody_can_use(world: World) -> None:
    await world.request_replica(world.ana, {"replica_name": "First <b>"})
    world.service.fail(world.last_replica_id(), "Bad.")
    await world.advance(minutes=1)
    await world.request_replica(world.ana, {"replica_name": "Second"})
    world.service.finish(world.last_replica_id())
    await world.advance(minutes=1)
    await world.request_replica(world.ben, {"replica_name": "Bens"})
    await world.advance(minutes=5)
    await _shown_after(world, world.ben, f"default {REPLICA}")

    shown = await _says(world.ana, "list")

    mine, _, all_of_them = shown.text.partition("everyone here can use")
    states = [line.split(" · ")[:2] for line in mine.splitlines() if line.startswith("•")]
    assert states == [["• Ready", "Second"], ["• Failed", "First &lt;b&gt;"]]
    dated = [line for line in all_of_them.splitlines() if line.startswith("•")]
    lines = [line.partition(" · <!date^")[0] for line in dated]
    assert all(" at {time}|2026-03-02 09:0" in line for line in dated)
    first, second, third = list(world.service.replicas)[1:]
    assert lines == [
        f"• Anna · {REPLICA} · this channel's default",
        f"• Bens · {third} · training",
        f"• Second · {second}",
        f"• First &lt;b&gt; · {first} · can't be used",
    ]
    assert "Bens" in str(shown.blocks)
    assert "this channel's default" in str(shown.blocks)
    assert shown.pings == frozenset()


# ── Status ────────────────────────────────────────────────────────────────────────────────────


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


async def test_the_status_of_a_replica_from_elsewhere_is_what_the_service_says(
    world: World,
) -> None:
    shown = await _shown_after(world, world.ana, f"status {REPLICA}")

    assert "completed" in shown
    assert "Anna" in shown
    assert await offered_ids(await world.open_form(world.ana)) == [], "a look puts it nowhere"


async def test_an_unknown_id_is_reported_with_the_services_words(world: World) -> None:
    shown = await _shown_after(world, world.ana, "status r-<nobody>")

    assert "replica “r-&lt;nobody&gt;”" in shown
    assert "Invalid replica_id" in shown


async def test_each_command_points_to_the_other_for_a_job_of_the_other_kind(world: World) -> None:
    video, training = await world.request_video(world.ana), await world.request_replica(world.ana)

    shown = await _shown_after(world, world.ana, f"status {number_of(video)}")
    assert f"That's a video: `/video status {number_of(video)}`" in shown
    answer = await world.ana.command("/video", f"status {number_of(training)}")
    assert answer.message is not None
    assert f"That's a replica: `/replica status {number_of(training)}`" in answer.message.text


async def test_while_the_service_is_down_the_status_shows_what_was_last_known(world: World) -> None:
    card = await world.request_replica(world.ana)
    await world.advance(minutes=10)
    world.service.down = True

    shown = await _shown_after(world, world.ana, f"status {number_of(card)}")

    assert "Training" in shown
    assert "Couldn't be checked just now" in shown


# ── Add ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("written", [REPLICA, f"`{REPLICA}`"])
async def test_a_replica_that_is_added_is_in_everybodys_picker(world: World, written: str) -> None:
    shown = await _shown_after(world, world.ana, f"add {written}")

    assert f"Anna · {REPLICA} is ready to use by everyone" in shown
    form = await world.open_form(world.ben, channel="lobby")
    assert await offered_ids(form) == [REPLICA]


async def test_a_replica_in_training_can_be_added_and_is_shown_as_such(world: World) -> None:
    world.service.add_replica("r-new", "New", status="training")

    shown = await _shown_after(world, world.ana, "add r-new")

    assert "New · r-new · training is ready to use by everyone" in shown
    form = await world.open_form(world.ben)
    [option] = await form.suggest("replica_id")
    assert option["text"]["text"] == "New · r-new · training"


@pytest.mark.parametrize("subcommand", ["add", "default"])
@pytest.mark.parametrize("code", [400, 404])
async def test_an_id_that_the_service_does_not_know_is_not_added(
    world: World, subcommand: str, code: int
) -> None:
    world.service.unknown_id_status = code

    shown = await _shown_after(world, world.ana, f"{subcommand} r-nobody")

    assert "can't find a replica “r-nobody”" in shown
    assert "“Invalid replica_id”" in shown
    assert await offered_ids(await world.open_form(world.ana)) == []


@pytest.mark.parametrize("subcommand", ["add", "default"])
@pytest.mark.parametrize("written", ["``", "../videos/v1", "<!channel>", "x" * 151, "ä"])
async def test_an_impossible_id_causes_no_call(world: World, subcommand: str, written: str) -> None:
    shown = await _shown_after(world, world.ana, f"{subcommand} {written}")

    said = {"add": "That's not an ID", "default": "There's no replica"}
    assert said[subcommand] in shown
    assert not world.service.requests


@pytest.mark.parametrize("subcommand", ["add", "default"])
async def test_a_replica_in_error_is_refused_with_its_reason(world: World, subcommand: str) -> None:
    broken = world.service.add_replica("r-bad", "Bad", status="training")
    world.service.fail("r-bad", "Two <people>")
    assert broken.reason == "Two <people>"

    shown = await _shown_after(world, world.ana, f"{subcommand} r-bad")

    assert "Bad · r-bad · can't be used." in shown
    assert "“Two &lt;people&gt;”" in shown
    form = await world.open_form(world.ana)
    assert form.values["replica_id"] is None


@pytest.mark.parametrize("subcommand", ["add", "default"])
async def test_a_replica_in_error_without_a_reason_is_refused_with_the_services_status(
    world: World, subcommand: str
) -> None:
    world.service.add_replica("r-bad", "Bad", status="error")

    shown = await _shown_after(world, world.ana, f"{subcommand} r-bad")

    assert "the video service calls it “error” and doesn't say why" in shown


@pytest.mark.parametrize("subcommand", ["add", "default"])
async def test_a_service_that_is_down_is_reported_and_nothing_is_changed(
    world: World, subcommand: str
) -> None:
    world.service.faults.next("read_replica", CannedResponse(503, "<html>Down</html>"))

    shown = await _shown_after(world, world.ana, f"{subcommand} {REPLICA}")

    assert "couldn't be checked" in shown
    assert "try again" in shown
    assert "<html>" not in shown
    form = await world.open_form(world.ana)
    assert form.values["replica_id"] is None
    assert await offered_ids(form) == []


# ── Default ───────────────────────────────────────────────────────────────────────────────────


async def test_the_default_of_a_channel_is_chosen_beforehand_there_and_nowhere_else(
    world: World,
) -> None:
    shown = await _shown_after(world, world.ana, f"default {REPLICA}")
    assert f"Anna · {REPLICA} is now this channel's default" in shown

    form = await world.open_form(world.ben)
    assert form.values["replica_id"] == REPLICA
    await form.submit({"script": "Hello."})
    await world.settle()
    [video] = world.service.videos.values()
    assert video.replica_id == REPLICA
    elsewhere = await world.open_form(world.ben, channel="lobby")
    assert elsewhere.values["replica_id"] is None


@pytest.mark.parametrize("typed", ["Anna", "anna", "`ANNA`", "ann"])
async def test_a_replica_becomes_the_default_by_its_name_where_only_one_has_it(
    world: World, typed: str
) -> None:
    await _shown_after(world, world.ana, f"add {REPLICA}")

    shown = await _shown_after(world, world.ana, f"default {typed}")

    assert f"Anna · {REPLICA} is now this channel's default" in shown


async def test_a_name_of_several_words_is_a_name_too(world: World) -> None:
    world.service.add_replica("r-bob", "Bob of Sales")
    await _shown_after(world, world.ana, "add r-bob")

    shown = await _shown_after(world, world.ana, "default  bob of  sales ")

    assert "Bob of Sales · r-bob is now this channel's default" in shown


async def test_a_name_that_several_replicas_have_is_answered_with_all_of_them(
    world: World,
) -> None:
    for replica_id, name in (("r-1", "Max"), ("r-2", "max"), ("r-3", "Maxine")):
        world.service.add_replica(replica_id, name)
        await _shown_after(world, world.ana, f"add {replica_id}")

    shown = await _shown_after(world, world.ana, "default Max")

    assert "Several replicas match “Max”. Use the ID:" in shown
    assert ("Max · r-1" in shown, "max · r-2" in shown, "r-3" in shown) == (True, True, False)
    shown = await _shown_after(world, world.ana, "default Maxine")
    assert "Maxine · r-3 is now" in shown


async def test_a_name_that_no_replica_has_says_where_they_are_listed(world: World) -> None:
    shown = await _shown_after(world, world.ana, "default <b>Nobody here")

    assert "There's no replica “&lt;b&gt;Nobody here” here. `/replica list` shows them." in shown


async def test_a_new_default_replaces_the_old_one(world: World) -> None:
    world.service.add_replica("r-bob", "Bob")
    await _shown_after(world, world.ana, f"default {REPLICA}")
    await _shown_after(world, world.ana, "default r-bob", channel="lobby")
    await _shown_after(world, world.ben, "default r-bob")
    await _shown_after(world, world.ben, "default r-bob")

    for channel in ("studio", "lobby"):
        form = await world.open_form(world.ana, channel=channel)
        assert form.values["replica_id"] == "r-bob"
        assert await offered_ids(form) == ["r-bob", REPLICA]


async def test_a_default_that_fails_later_is_refused_with_its_reason(
    world: World,
) -> None:
    world.service.add_replica("r-new", "New", status="training")
    await _shown_after(world, world.ana, "default r-new")
    world.service.fail("r-new", "Too dark.")
    await world.advance(minutes=11)

    form = await world.open_form(world.ana)
    assert form.values["replica_id"] == "r-new"
    await form.submit({"script": "Hello."})

    assert form.errors == {"replica_id": "This replica can't be used: Too dark."}
    assert not world.requests_for("create_video")
