"""What the service answers differently than expected: counted, and logged once."""

from typing import Any

import pytest

from bot.kinds.answers import DriftLog, DriftType, drift_in
from bot.kinds.video import VIDEO as VIDEO_KIND
from bot.metrics import Metrics
from sandbox.scenarios import MISSING, Scenario
from tests.web.test_metrics import scrape
from tests.world import World

TIME = "2024-08-28 15:27:40.824457"
VIDEO = {
    "video_id": "v-1",
    "status": "generating",
    "data": {"script": "Hello"},
    "download_url": None,
    "stream_url": "",
    "hosted_url": "https://video.example.com/v-1",
    "status_details": None,
    "created_at": "Mon, 14 Jul 2025 09:14:24 GMT",
    "updated_at": TIME,
}
REPLICA = {
    "replica_id": "r-1",
    "replica_name": "Anna",
    "thumbnail_video_url": None,
    "training_progress": "1/2",
    "status": "started",
    "created_at": "2024-01-24T07:14:03.327Z",
    "updated_at": TIME,
}


def without(answer: dict[str, Any], name: str, **changed: object) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != name} | changed


@pytest.mark.parametrize(
    ("answer", "drift"),
    [
        (VIDEO, []),
        (VIDEO | {"generation_progress": "40/100", "replica_id": "r-1"}, []),
        (without(VIDEO, "stream_url"), [(DriftType.MISSING_FIELD, "stream_url")]),
        (VIDEO | {"shiny_url": "https://x"}, [(DriftType.NEW_FIELD, "shiny_url")]),
        (VIDEO | {"Say hello to Ana": 1}, [(DriftType.NEW_FIELD, "other")]),
        (VIDEO | {"created_at": "14.7.2025"}, [(DriftType.ODD_TIME, "created_at")]),
        (
            [VIDEO],
            [(DriftType.MISSING_FIELD, name) for name in sorted(VIDEO_KIND.promised_read)],
        ),
    ],
)
def test_each_difference_of_a_video_is_found(
    answer: object, drift: list[tuple[DriftType, str]]
) -> None:
    assert list(drift_in(VIDEO_KIND, answer, created=False)) == drift


async def test_each_type_of_drift_is_counted_each_time_and_logged_once(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    odd = {"updated_at": "yesterday", "stream_url": MISSING, "mood": "good"}
    world.service.next_video(*[Scenario(statuses=("Polishing",), overrides=odd)] * 2)
    async with world.running_bot(callbacks=False):
        for person in (world.ana, world.ben):
            await world.request_video(person)
        await world.advance(seconds=40)
        found = await scrape(world)
    for what in ("unknown_status", "missing_field", "odd_time", "new_field"):
        assert found.value("replica_bot_drift_total", kind="video", what=what) >= 2
    ours = [each for each in caplog.records if each.name == "bot.kinds.answers"]
    assert sorted(each.message for each in ours if each.levelname == "WARNING") == [
        "the service leaves out a field",
        "the service sends a time that cannot be read",
        "the service uses an unknown status",
    ]
    [new] = [each for each in ours if each.levelname == "INFO"]
    assert (new.message, vars(new)["field"]) == ("the service sends a new field", "mood")


async def test_a_service_that_changes_with_each_answer_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drift = DriftLog(Metrics())
    for number in range(500):
        drift.compare(VIDEO_KIND, VIDEO | {f"field_{number}": 1}, created=False)
    assert [each.message for each in caplog.records] == ["the service sends a new field"]
