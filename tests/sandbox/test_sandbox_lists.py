"""The list of replicas of the sandbox's video service: pages, as such services answer them."""

from typing import Any

from tests.world import REPLICA, World


async def _lists(world: World, path: str, key: str | None = None) -> tuple[int, Any]:
    headers = {"x-api-key": key or world.service.api_key}
    async with world.slack.session.get(f"{world.service.url}{path}", headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_list_has_pages_the_newest_first(quiet_world: World) -> None:
    world = quiet_world
    for number in range(12):
        world.service.add_replica(f"r-{number}", f"Replica {number}")
        await world.advance(minutes=1)
    _, first = await _lists(world, "/v2/replicas")
    assert first["total_count"] == 13
    assert [each["replica_id"] for each in first["data"]] == [f"r-{11 - at}" for at in range(10)]
    assert first["data"][0]["created_at"].endswith("Z")
    _, last = await _lists(world, "/v2/replicas?limit=5&page=3")
    assert {each["replica_id"] for each in last["data"]} == {"r-1", "r-0", REPLICA}
    assert (await _lists(world, "/v2/replicas?page=9"))[1]["data"] == []
    assert (await _lists(world, "/v2/replicas?replica_type=system"))[1]["total_count"] == 0

    assert (await _lists(world, "/v2/replicas?limit=1000"))[0] == 400
    assert (await _lists(world, "/v2/replicas", "wrong"))[0] == 401
