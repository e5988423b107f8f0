"""The subcommands of the replica command, and their effect on the picker."""

from datetime import timedelta

import pytest

from sandbox.driver import Person
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


# ── List ──────────────────────────────────────────────────────────────────────────────────────


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


async def test_each_command_points_to_the_other_for_a_job_of_the_other_kind(world: World) -> None:
    video, training = await world.request_video(world.ana), await world.request_replica(world.ana)

    shown = await _shown_after(world, world.ana, f"status {number_of(video)}")
    assert f"That's a video: `/video status {number_of(video)}`" in shown
    answer = await world.ana.command("/video", f"status {number_of(training)}")
    assert answer.message is not None
    assert f"That's a replica: `/replica status {number_of(training)}`" in answer.message.text


# ── Add ───────────────────────────────────────────────────────────────────────────────────────


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

                assert "can't find a replica “r-nobody”" in shown
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

            assert "Bad · can't be used: “Two" in shown
            assert "“Two &lt;people&gt;”" in shown
            form = await world.open_form(world.ana)
            assert form.values["replica_id"] is None


# ── Default ───────────────────────────────────────────────────────────────────────────────────


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
