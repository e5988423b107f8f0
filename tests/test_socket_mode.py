"""Socket Mode: what Slack sends arrives over a connection that the bot opens."""

from tests.world import World


async def test_a_video_is_asked_for_over_the_socket(quiet_world: World) -> None:
    world = quiet_world
    world.socket_mode = True
    async with world.running_bot():
        card = await world.request_video(world.ana)
        world.service.finish(list(world.service.videos)[-1])
        await world.advance(minutes=2)
        assert len(world.replies(card)) == 1
    assert world.slack.socket_mode.refused == []
