"""Why something failed: found in any answer, and told in the card, the reply and the status."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.kinds import DriftLog, DriftType, drift_in
from bot.kinds.video import VIDEO as VIDEO_KIND
from bot.metrics import Metrics
from bot.service.errors import reason_in
from sandbox.faults import CannedResponse
from sandbox.scenarios import MISSING, Scenario
from tests.web.test_health import scrape
from tests.world import World, number_of

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "errors", "message", "detail", "msg", "loc", "title", "script"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_any_json_has_one_reason_or_none(answer: Any) -> None:  # noqa: ANN401 - any JSON
    said = reason_in(answer)
    assert said == reason_in(answer)
    assert said == said.strip()
    if isinstance(answer, str):
        assert reason_in({"error": answer}) == said


def test_a_reason_is_found_in_bounded_time_and_depth() -> None:
    deep: Any = "down here"
    for _ in range(500):
        deep = {"error": deep}
    assert reason_in(deep) == ""
    wide: Any = "a b"
    for _ in range(30):
        wide = [wide] * 50
    assert reason_in(wide) == ""


async def test_a_refusal_is_told_in_the_services_words_wherever_they_stand(world: World) -> None:
    body = {"error": {"type": "validation", "message": "The script is too rude."}}
    world.service.faults.next("create_video", CannedResponse(422, body))
    card = await world.request_video(world.ana)
    assert "“The script is too rude.”" in world.now(card).text
    assert "“The script is too rude.”" in world.reply(card).text


@pytest.mark.parametrize("details", ["The video was deleted", None])
async def test_a_deleted_video_is_told_as_deleted_on_card_reply_and_status(
    world: World, details: str | None
) -> None:
    overrides = {"status_details": details}
    world.service.next_video(Scenario(end="deleted", overrides=overrides))
    card = await world.after(world.request_video(world.ana), minutes=10)

    [reply] = world.replies(card)
    assert "“Hello, world.” was deleted at the video service." in reply.text
    for told in (world.now(card).text, reply.text):
        assert told.casefold().count("deleted") == 1, "it is said once"
        assert "couldn't be created" not in told
        assert "No reason given" not in told
    assert "*Deleted* at the video service" in world.now(card).text
    await world.after(world.ana.command("/video", f"status {number_of(card)}"))
    status = world.ephemerals(world.ana)[-1]
    assert "Status: Deleted" in status
    assert (details or "") in status


AT = "2024-08-28 15:27:40.824457"
VIDEO_ANSWER = {
    "video_id": "v-1",
    "status": "generating",
    "data": {"script": "Hello"},
    "download_url": None,
    "stream_url": "",
    "hosted_url": "https://video.example.com/v-1",
    "status_details": None,
    "created_at": "Mon, 14 Jul 2025 09:14:24 GMT",
    "updated_at": AT,
}


def without(answer: dict[str, Any], name: str, **changed: object) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != name} | changed


@pytest.mark.parametrize(
    ("answer", "drift"),
    [
        (VIDEO_ANSWER, []),
        (VIDEO_ANSWER | {"generation_progress": "40/100", "replica_id": "r-1"}, []),
        (without(VIDEO_ANSWER, "stream_url"), [(DriftType.MISSING_FIELD, "stream_url")]),
        (VIDEO_ANSWER | {"shiny_url": "https://x"}, [(DriftType.NEW_FIELD, "shiny_url")]),
        (VIDEO_ANSWER | {"Say hello to Ana": 1}, [(DriftType.NEW_FIELD, "other")]),
        (VIDEO_ANSWER | {"created_at": "14.7.2025"}, [(DriftType.ODD_TIME, "created_at")]),
        (
            [VIDEO_ANSWER],
            [(DriftType.MISSING_FIELD, name) for name in sorted(VIDEO_KIND.promised_read)],
        ),
    ],
)
def test_each_difference_of_a_video_is_found(
    answer: object, drift: list[tuple[DriftType, str]]
) -> None:
    assert list(drift_in(VIDEO_KIND, answer, created=False)) == drift


async def test_each_type_of_drift_is_counted_each_time_and_logged_once(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {"updated_at": "yesterday", "stream_url": MISSING, "mood": "good"}
    quiet.service.next_video(*[Scenario(statuses=("Polishing",), overrides=odd)] * 2)
    async with quiet.running_bot(callbacks=False):
        for person in (quiet.ana, quiet.ben):
            await quiet.request_video(person)
        await quiet.advance(seconds=40)
        found = await scrape(quiet)
    for what in ("unknown_status", "missing_field", "odd_time", "new_field"):
        assert found.value("replica_bot_drift_total", kind="video", what=what) >= 2
    ours = [each for each in caplog.records if each.name == "bot.kinds"]
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
        drift.compare(VIDEO_KIND, VIDEO_ANSWER | {f"field_{number}": 1}, created=False)
    assert [each.message for each in caplog.records] == ["the service sends a new field"]
