"""What the status command shows of another person's job: all of it only where the job is shown."""

from typing import Any, Final

import pytest

from sandbox.driver import Person
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan, Scenario
from tests.modes import on_both_engines
from tests.world import World, number_of

NAME: Final = "The spring greeting"
SCRIPT: Final = "Nobody but me has to know this."


async def _status(
    world: World, person: Person, wanted: str, *, channel: str = "studio", command: str = "/video"
) -> str:
    before = len(world.ephemerals(person, channel))
    await person.command(command, f"status {wanted}", channel)
    await world.settle()
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
    card = await world.request_replica(world.ana, {"replica_name": NAME})
    await world.advance(hours=5)

    for wanted in (number_of(card), world.last_replica_id()):
        shown = await _status(world, world.ben, wanted, channel="lobby", command="/replica")
        assert "ready. Only" in shown
        assert NAME not in shown
        assert "http" not in shown


async def test_in_another_channel_others_see_nothing_of_a_video_without_an_id(
    world: World,
) -> None:
    world.service.down = True
    card = await world.request_video(world.ana, {"video_name": NAME})

    shown = await _status(world, world.ben, number_of(card), channel="lobby")

    assert "waiting. Only" in shown
    assert NAME not in shown


async def test_in_another_channel_the_requester_sees_everything(world: World) -> None:
    number, video_id = await _video(world)

    shown = await _status(world, world.ana, number, channel="lobby")

    assert f"/watch/{video_id}" in shown
    assert NAME in shown
    assert SCRIPT in shown


async def test_in_another_channel_an_admin_sees_links_and_names(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
        number, video_id = await _video(world)
        shown = await _status(world, world.ben, number, channel="lobby")

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


async def test_a_video_made_elsewhere_is_shown_to_admins_alone_without_its_script(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
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
    quiet_world: World,
) -> None:
    world = quiet_world
    settings: dict[str, Any] = {"ADMIN_USERS": world.ben.user.id, "RETENTION_DAYS": "1"}
    den = world.slack.add_channel("den", kind="private")
    async with world.running_bot(**settings):
        await world.request_video(world.ana, {"video_name": NAME, "script": SCRIPT}, channel="den")
        await world.advance(minutes=5)
        await world.request_replica(world.ana, {"replica_name": NAME}, channel="den")
        await world.advance(hours=5)
    den.members.discard(world.slack.user("cleo").id)
    await world.advance(days=40)
    async with world.running_bot(**settings):
        await world.settle()
        assert world.query("SELECT id FROM jobs") == []
        [video_id], replica_id = world.service.videos, world.last_replica_id()

        cleo = Person(world.slack, "cleo")
        shown = await _status(world, cleo, video_id)
        assert "http" not in shown
        # Everybody can pick the replica, whose name is in the menu.
        shown = await _status(world, cleo, replica_id, command="/replica")
        assert "Video service status: completed" in shown
        assert "http" not in shown

        assert f"/watch/{video_id}" in await _status(world, world.ben, video_id)
        shown = await _status(world, world.ben, replica_id, command="/replica")
        assert f"/files/{replica_id}.mp4" in shown


async def test_a_link_in_a_status_is_shown_as_its_host_on_the_card_and_to_those_who_ask(
    admin_world: World,
) -> None:
    world = admin_world
    link = "https://files.example.com/t-s3cretPath"
    card = await world.request_video(world.ben)
    [video_id] = world.service.videos
    answer = {"video_id": video_id, "status": f"at {link}", "status_details": f"see {link}"}
    world.service.faults.always("read_video", CannedResponse(200, answer))
    await world.advance(minutes=1)
    await world.ana.command("/video", f"status {video_id}")
    await world.settle()
    answer["video_id"] = "v-elsewhere"
    await world.ana.command("/video", "status v-elsewhere")
    await world.settle()

    details = await world.details(world.ana, card)
    shown = [details.text, *world.ephemerals(world.ana)]
    assert len(shown) == 3
    assert all("at files.example.com" in each and "s3cret" not in each for each in shown)
    assert "see files.example.com" in shown[-1]


async def test_a_link_in_a_refusal_is_shown_as_its_host(
    admin_world: World, subtests: pytest.Subtests
) -> None:
    world = admin_world
    for command in ["status", "add"]:
        for status in [404, 422]:
            with subtests.test(command=command, status=status):
                refusal = {"message": "not found: https://files.example.com/t-s3cretPath"}
                world.service.faults.always("read_replica", CannedResponse(status, refusal))

                await world.ana.command("/replica", f"{command} r-elsewhere")
                await world.settle()

                shown = world.ephemerals(world.ana)[-1]
                assert "not found: files.example.com" in shown
                assert "s3cret" not in shown


@on_both_engines
async def test_others_are_not_sent_to_a_direct_conversation_for_the_rest_of_a_status(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        number, _ = await _video(world)
    world.query("UPDATE jobs SET channel = 'D0ANA' WHERE id = :id", id=number)

    async with world.running_bot():
        shown = await _status(world, world.ben, number)

    assert f"Only <@{world.ana.user.id}> or an admin can see the rest." in shown
