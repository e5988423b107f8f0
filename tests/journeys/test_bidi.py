"""Control characters that change the direction of text are not shown, and not lost in a form."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bot.slack.views.blocks import escape, one_line, plain, words
from sandbox.scenarios import Scenario
from tests.world import World, number_of

CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
TURNED = "Kim \u202e4pm.\u2066exe\u200f"


@given(st.text(st.sampled_from(f"{CONTROLS} \nab<שא\u200d")))
def test_no_text_for_slack_has_a_control_character_for_direction(text: str) -> None:
    shown = [escape(text), one_line(text), plain(text, 100)["text"], words(text)["text"]]
    assert not set(CONTROLS) & set("".join(shown))
    assert [letter for letter in shown[0] if letter in "שא\u200d"] == [
        letter for letter in text if letter in "שא\u200d"
    ], "letters and joiners stay"


async def test_a_name_and_a_reason_that_turn_text_round_are_shown_in_order(world: World) -> None:
    world.service.add_replica("r-turned", TURNED)
    world.service.next_video(Scenario(end="error", reason="Too \u202edark\u2069."))
    await world.ana.command("/replica", "add r-turned")
    await world.settle()
    card = await world.request_video(world.ana, {"video_name": TURNED})
    await world.advance(minutes=10)
    await world.ana.command("/video", f"status {number_of(card)}")
    await world.ana.command("/video", "list")
    await world.settle()

    assert "“Kim 4pm.exe”" in world.now(card).text
    assert "“Too dark.”" in world.replies(card)[0].text
    calls = [call for call in world.slack.calls if not call.method.startswith("views.")]
    shown = json.dumps([call.arguments for call in calls], ensure_ascii=False)
    shown += "".join(world.ephemerals(world.ana))
    assert "Kim 4pm.exe" in shown
    assert not set(CONTROLS) & set(shown)
    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert create.body["video_name"] == TURNED, "the service gets what was typed"
    await world.ana.click(world.now(card), "Edit and retry")
    assert world.ana.modal is not None
    assert world.ana.modal.values["video_name"] == TURNED, "nothing that was typed is lost"
