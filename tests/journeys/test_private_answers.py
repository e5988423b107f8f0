"""Private answers: shown where the person clicked, and never the only carrier of what matters."""

import pytest

from sandbox.faults import CannedResponse
from sandbox.slack_objects import Message
from tests.world import World


async def failed_reply(world: World) -> Message:
    """Return the reply of a failed video, in its card's thread: it has a button."""
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    world.service.fail(video_id, "No.")
    await world.advance(minutes=5)
    [reply] = world.replies(card)
    return reply


async def test_a_private_answer_to_a_click_in_a_thread_is_in_that_thread(world: World) -> None:
    reply = await failed_reply(world)
    await world.ben.click(reply, "Edit and retry")
    await world.settle()

    [answer] = world.slack.ephemerals(world.ben.user.id, "studio")
    assert answer.thread_ts == reply.thread_ts


async def test_a_private_answer_to_a_click_on_a_card_is_in_its_channel(world: World) -> None:
    reply = await failed_reply(world)
    card = world.slack.find(reply.channel, reply.thread_ts or "")
    assert card is not None
    await world.ben.click(card, "Edit and retry")
    await world.settle()

    [answer] = world.slack.ephemerals(world.ben.user.id, "studio")
    assert answer.thread_ts is None


@pytest.mark.parametrize(
    "code",
    [
        *("invalid_arguments", "view_too_large", "duplicate_external_id", "hash_conflict"),
        *("moon_phase_wrong", "error_42"),
    ],
)
async def test_a_form_that_slack_refuses_is_a_line_in_the_log_and_a_sentence(
    world: World, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    world.slack.faults.next("views.open", CannedResponse(200, {"ok": False, "error": code}))
    answer = await world.ana.command("/video", "Good morning, Monday.")

    assert answer.message is not None
    assert "Slack didn't open the form. Please try again." in answer.message.text
    assert "Good morning, Monday." in answer.message.text, "what was typed is gone elsewhere"
    [line] = [each for each in caplog.records if each.message == "Slack refuses a form"]
    assert line.exc_info is None
    assert str(vars(line)["reference"]) in answer.message.text
    assert code in str(vars(line)["reason"])


@pytest.mark.parametrize("headers", [{"Retry-After": "30"}, {}])
async def test_a_private_answer_comes_after_a_429_at_its_response_url(
    world: World, headers: dict[str, str]
) -> None:
    reply = await failed_reply(world)
    limited = CannedResponse(429, {"ok": False, "error": "ratelimited"}, headers)
    world.slack.faults.next("response_url", limited, limited)
    await world.ben.click(reply, "Edit and retry")
    await world.settle()
    assert not world.slack.ephemerals(world.ben.user.id, "studio")

    await world.advance(minutes=1)

    assert len(world.slack.ephemerals(world.ben.user.id, "studio")) == 1
    assert len(world.calls("response_url")) == 3


async def test_a_private_answer_that_is_always_refused_for_a_limit_is_dropped(world: World) -> None:
    reply = await failed_reply(world)
    limited = CannedResponse(429, {"ok": False, "error": "ratelimited"})
    world.slack.faults.always("response_url", limited)
    await world.ben.click(reply, "Edit and retry")
    await world.advance(hours=2)
    assert len(world.calls("response_url")) == 6
