"""Texts close to Slack's limits: counted as Slack may count them, and shortened where refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.slack.views.blocks import MAX_TEXT, cut, shortened, size
from tests.journeys.test_approval import requests, settings
from tests.world import World

#: What a text consists of: people's words are escaped, and only links and mentions have "<".
PIECES = ("a", " ", "|", ";", "é", "你", "😀", "&amp;", "&lt;", "<@U012>", "<https://e.org/a|b>")


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_has_no_more_utf16_units_than_its_limit(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short) <= len(short.encode("utf-16-le")) // 2 <= limit


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.integers(10, 60))
def test_a_shortened_text_fits_and_has_no_half_of_a_link(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert size(short) <= limit
    assert short == text or not re.search(r"<[^>]*\Z|&[a-z]*\Z", short.removesuffix("…"))
    assert text.startswith(short.removesuffix("…"))


def test_a_shortened_text_keeps_its_mention_or_loses_it_as_a_whole() -> None:
    assert shortened("<@U1> hello &amp; goodbye", 18) == "<@U1> hello…"
    assert shortened("a mention of <@U0123456789> here", 25) == "a mention of…"


async def test_every_message_of_a_script_of_any_letters_is_shown_in_full_form(
    world: World, subtests: pytest.Subtests
) -> None:
    for letter in ["😀", "你", "é", "&", "a"]:
        with subtests.test(letter=letter):
            words = "a" + letter * 1499
            card = await world.request_video(
                world.ana, {"script": words, "video_name": letter * 50}
            )
            await world.advance(minutes=5)

            [reply] = world.replies(card)
            assert world.now(card).blocks
            assert reply.blocks
            assert all(call.error is None for call in world.slack.calls)
            assert size(reply.text) <= MAX_TEXT


async def test_a_request_for_approval_of_a_script_of_any_letters_is_shown_in_full_form(
    quiet_world: World, subtests: pytest.Subtests
) -> None:
    world = quiet_world
    world.slack.add_channel("approvals")
    async with world.running_bot(**settings(world)):
        for letter in ["😀", "你", "é", "&", "a"]:
            with subtests.test(letter=letter):
                await world.request_video(world.ana, {"script": "a" + letter * 1499})

                shown = requests(world)[-1]
                assert shown.blocks
                assert all(call.error is None for call in world.slack.calls)
                assert size(shown.text) <= MAX_TEXT


@pytest.mark.parametrize("limit", [1000, 120])
async def test_a_card_is_shortened_until_slack_takes_it(world: World, limit: int) -> None:
    card = await world.request_video(world.ana, {"video_name": "A very long name " * 5})
    world.slack.text_limit = limit
    [video_id] = world.service.videos
    world.service.fail(video_id, "It failed for this reason: " + "é" * 700)
    await world.advance(minutes=5)

    shown = world.now(card)
    assert "Failed" in shown.text
    assert size(shown.text) <= limit
    [reply] = world.replies(card)
    assert size(reply.text) <= limit
    assert f"<@{world.ana.user.id}>" in reply.text


async def test_a_card_that_was_shortened_is_shown_in_full_again_once_it_may_be(
    world: World,
) -> None:
    world.slack.text_limit = 100
    card = await world.request_video(world.ana, {"video_name": "A very long name " * 5})
    assert card.text.endswith("…")
    world.slack.text_limit = 4000
    await world.advance(minutes=5)

    assert "Watch" in world.now(card).text
