"""The hosts of finished videos: named for ``MEDIA_HOSTS``, which only an operator sets."""

from typing import Any

from sandbox.scenarios import Scenario
from tests.journeys.test_home import opened, words
from tests.modes import on_both_engines
from tests.ops.report import report
from tests.world import World

LINKS = (
    "https://stream.example.com/v.mp4?signature=4f00ta9e",
    "https://a.cdn.example.com/v.mp4",
    "https://10.0.0.1/v.mp4",
    "https://localhost/v.mp4",
)


@on_both_engines
async def test_the_hosts_of_finished_videos_are_named_with_the_line_to_set(
    quiet_world: World,
) -> None:
    world = quiet_world
    admin: dict[str, Any] = {"ADMIN_USERS": world.ana.user.id}
    async with world.running_bot(**admin):
        assert "MEDIA_HOSTS" not in words(await opened(world, world.ana))
        for link in LINKS:
            world.service.next_video(Scenario(overrides={"download_url": link}))
            await world.request_video(world.ana)
            await world.advance(minutes=5)
        line = "MEDIA_HOSTS=a.cdn.example.com,stream.example.com"
        assert f"`{line}`" in words(await opened(world, world.ana))
        found = (await report(world, **admin))["MEDIA_HOSTS"]
        assert found.state == "warning"
        assert f"set {line}." in found.remedy
    async with world.running_bot(**admin, MEDIA_HOSTS="*.cdn.example.com"):
        line = "MEDIA_HOSTS=*.cdn.example.com,stream.example.com"
        assert f"`{line}`" in words(await opened(world, world.ana))
    settled = "a.cdn.example.com,stream.example.com"
    assert (await report(world, MEDIA_HOSTS=settled)).all("MEDIA_HOSTS") == []
