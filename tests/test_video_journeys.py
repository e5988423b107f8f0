"""What people live through who ask for a video."""

from tests.world import World


async def test_a_video_that_gets_ready_is_told_in_the_thread_once(world: World) -> None:
    card = await world.asks(world.ana, {"video_name": "Greeting"})
    assert "Greeting" in card.text

    await world.passes(minutes=5)

    [video] = world.service.videos.values()
    [reply] = world.replies(card)
    assert world.ana.user.id in reply.pings
    assert f"/watch/{video.video_id}" in reply.text
    assert "Hello, world." in reply.text
    assert "Ready" in world.now(card).text
    assert world.posts() == [world.now(card), reply]
    assert world.creates() == 1
