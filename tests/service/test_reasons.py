"""Why something failed: found in any answer, and told in the card, the reply and the status."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.service.errors import reason_in
from sandbox.faults import CannedResponse
from sandbox.scenarios import Scenario
from tests.world import REPLICA, World, number_of

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
    [reply] = world.replies(card)
    assert "“The script is too rude.”" in reply.text


async def test_a_videos_error_message_is_told_if_it_has_no_status_details(world: World) -> None:
    overrides = {"status_details": None, "error_message": None, "error_details": "Frame 7 is dark."}
    world.service.next_video(Scenario(end="error", overrides=overrides))
    card = await world.request_video(world.ana)
    await world.advance(minutes=10)
    [reply] = world.replies(card)
    assert "“Frame 7 is dark.”" in reply.text
    assert "No reason given" not in reply.text


@pytest.mark.parametrize("details", ["The video was deleted", None])
async def test_a_deleted_video_is_told_as_deleted_on_card_reply_and_status(
    world: World, details: str | None
) -> None:
    overrides = {"status_details": details}
    world.service.next_video(Scenario(end="deleted", overrides=overrides))
    card = await world.request_video(world.ana)
    await world.advance(minutes=10)

    [reply] = world.replies(card)
    assert "“Hello, world.” was deleted at the video service." in reply.text
    for told in (world.now(card).text, reply.text):
        assert told.casefold().count("deleted") == 1, "it is said once"
        assert "couldn't be created" not in told
        assert "No reason given" not in told
    assert "Deleted at the video service." in world.now(card).text
    await world.ana.command("/video", f"status {number_of(card)}")
    await world.settle()
    status = world.ephemerals(world.ana)[-1]
    assert "Status: Deleted" in status
    assert (details or "") in status


async def test_a_deleted_replica_is_told_as_deleted(world: World) -> None:
    world.service.next_replica(Scenario(end="deleted"))
    card = await world.request_replica(world.ana)
    await world.advance(hours=8)

    [reply] = world.replies(card)
    for told in (world.now(card).text, reply.text):
        assert "deleted at the video service." in told.casefold()
        assert "No reason given" not in told
    replica_id = world.last_replica_id()
    assert replica_id != REPLICA
    await world.ana.command("/replica", f"status {replica_id}")
    await world.settle()
    assert "Status: Deleted" in world.ephemerals(world.ana)[-1]
    form = await world.open_form(world.ben, "Hello.")
    await form.submit({"replica_id": replica_id})
    assert form.errors["replica_id"] == ("This replica can't be used: it was deleted")
