"""The bot dies at each step of a video into its thread: it is there once, and so is the reply."""

from pathlib import Path

from tests.processes import LiveWorld

# What is before a call that carries nothing over is as after the one that goes before it.
MOMENTS = ["after upload url", "after upload", "before sharing", "after sharing", "after file info"]


async def test_a_video_is_in_its_thread_once_although_the_bot_dies_at_each_step(
    tmp_path: Path,
) -> None:
    world = LiveWorld(tmp_path)
    world.settings = {"MEDIA_HOSTS": "127.0.0.1"}
    first, *others = MOMENTS
    async with world.running() as live:
        live.kill_at = first
        await live.request_video()
        for moment in (*others, ""):
            await live.wait_until(lambda: not live.kill_at)
            assert await live.bot.wait() < 0
            live.kill_at = moment
            await live.start_bot()
        await live.wait_until(lambda: any(each.files for each in live.replies()))
        await live.stop_when_idle()
        reply, video = live.replies()
        assert reply.pings == {live.ana.user.id}
        assert "|Download>" in reply.text
        assert [each["filetype"] for each in video.files] == ["mp4"]
        assert live.posts() == 2
