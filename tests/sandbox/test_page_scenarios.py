"""The scenarios of the sandbox's page, in a real browser: they play, explain, and put back."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from bot.timings import Timings
from sandbox.page.run import TIMINGS
from tests.browser import PageWorld, Window
from tests.world import REPLICA, is_question

pytestmark = pytest.mark.asyncio(loop_scope="session")

BACK = "Everything works again"
_DOWN: Final = "The video service is down. I'll send this when it's back."
_FIGURES: Final = re.compile(r"(\d+) were made without help\.(?: For (\d+), nobody knows)?")
# Milliseconds, on a busy machine: of the longest one.
_A_SCENARIO: Final = 60_000
# A little longer than a scenario takes from one look at the page to the next.
_A_LOOK: Final = "() => new Promise((done) => setTimeout(done, 60))"


async def _plays(window: Window, title: str) -> Locator:
    """Play a scenario and return its note."""
    scenarios = await window.looks_behind("Scenarios")
    await scenarios.get_by_role("button", name=f"Play “{title}”").click()
    note = window.tab.get_by_role("region", name=title)
    await expect(note).to_be_visible()
    return note


@pytest_asyncio.fixture(loop_scope="session")
async def quick_world(memory: Path, browser: Browser) -> AsyncIterator[PageWorld]:
    """A world whose bot is as quick as the sandbox's."""
    timings = replace(TIMINGS, jitter=0)
    async with PageWorld(memory, browser, timings).runs() as world:
        yield world


@contextlib.asynccontextmanager
async def _time_passing(world: PageWorld, window: Window) -> AsyncIterator[None]:
    """Let the clock go on while a scenario plays: by a second each time the page has looked."""

    async def advance() -> None:
        while True:
            await world.advance(seconds=1)
            await window.tab.evaluate(_A_LOOK)

    task = asyncio.create_task(advance())  # noqa: TID251 - cancelled below
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _plays_to_its_end(world: PageWorld, window: Window, title: str) -> Locator:
    note = await _plays(window, title)
    async with _time_passing(world, window):
        await expect(note).to_contain_text(BACK, timeout=_A_SCENARIO)
    await world.advance(seconds=5)
    return note


async def _switches(window: Window) -> dict[str, object]:
    panel = await window.tab.evaluate("() => fetch('/api/panel').then((got) => got.json())")
    service, slack, bot = panel["service"], panel["slack"], panel["bot"]
    kept = (
        "down",
        "stalled",
        "key_revoked",
        "out_of_credit",
        "rate_limited_until",
        "callbacks",
        "pace",
        "next",
    )
    return {
        **{name: service[name] for name in kept},
        **{name: slack[name] for name in ("channels", "next")},
        "approval": bot["approval"],
    }


async def test_a_video_that_fails_explains_itself_twice_in_a_busy_channel(
    quick_world: PageWorld,
) -> None:
    ana = await quick_world.window(reduced_motion="reduce")
    before = await _switches(ana)
    await ana.composer.fill("Half a thought")
    for number in (1, 2):
        quick_world.ben.say("Has anybody seen the numbers?")
        await quick_world.request_video(quick_world.ben, {"script": "Ben's own words."})
        note = await _plays_to_its_end(quick_world, ana, "A video that fails")
        await expect(note).to_contain_text("the video service's own reason")
        assert await _switches(ana) == before
        failed = ana.card("Thank you, Taylor").filter(has_text="Failed")
        await expect(failed).to_have_count(number)
        await expect(failed.last).to_contain_text("a name that this replica may not say")
    await expect(ana.composer).to_have_value("Half a thought")
    await expect(ana.card("Ben's own words").filter(has_text="Failed")).to_have_count(0)

    await note.get_by_role("button", name="Open the thread").click()
    await expect(ana.replies().nth(1)).to_contain_text("a name that this replica may not say")
    await note.get_by_role("button", name="Close the scenario").click()
    await expect(note).to_be_hidden()


@pytest.mark.parametrize(
    ("title", "words", "end"),
    [
        ("An outage while a video is made", "The bot keeps asking", "Ready"),
        ("The answer gets lost", "One request, one video, one charge.", "Ready"),
        ("Too many requests", "429", "Ready"),
        ("The account is out of credit", "402", "Failed"),
        ("The API key is revoked", "401", "Failed"),
    ],
)
async def test_a_failure_of_the_service_is_played_and_put_back(
    quick_world: PageWorld, title: str, words: str, end: str
) -> None:
    await quick_world.ben.command("/replica", f"add {REPLICA}", "lobby")
    ben = await quick_world.window("ben", reduced_motion="reduce")
    before = await _switches(ben)
    note = await _plays_to_its_end(quick_world, ben, title)
    await expect(note).to_contain_text(words)
    await expect(ben.channel.get_by_role("listitem").last).to_contain_text(end)
    assert quick_world.created_count() == (1 if end == "Ready" else 0)
    assert await _switches(ben) == before


async def test_an_outage_is_played_twice_and_leaves_a_few_questions(
    memory: Path, browser: Browser
) -> None:
    world = PageWorld(memory, browser, replace(TIMINGS, jitter=0))
    world.pauses = {**world.pauses, "same_within": Timings().same_within}
    async with world.runs():
        await world.ben.command("/replica", f"add {REPLICA}", "lobby")
        ana = await world.window(reduced_motion="reduce")
        before = await _switches(ana)
        for plays in (1, 2):
            note = await _plays_to_its_end(world, ana, "The service goes down")
            said = _FIGURES.search(await note.inner_text())
            assert said is not None
            made, asked = int(said[1]), int(said[2] or 0)
            assert made + asked == 20
            assert made >= 15
            assert asked <= 5
            assert any(_DOWN in each.arguments.get("text", "") for each in world.slack.calls)
            assert await _switches(ana) == before
            shown = [message.text for message in world.slack.messages("studio")]
            assert sum("Ready" in text for text in shown) == world.created_count() >= 15 * plays
        assert len([each for each in world.posts() if is_question(each)]) <= 5 * plays


async def test_a_lost_answer_is_asked_about_and_what_is_expensive_is_approved(
    memory: Path, browser: Browser
) -> None:
    world = PageWorld(memory, browser, replace(TIMINGS, jitter=0))
    ben = world.ben.user.id
    async with world.runs(APPROVERS=ben, APPROVAL_ABOVE="40"):
        ana = await world.window(reduced_motion="reduce")
        before = await _switches(ana)
        note = await _plays_to_its_end(world, ana, "Nobody knows whether it was created")
        await expect(note).to_contain_text("It asks you in the thread")
        await note.get_by_role("button", name="Open the thread").click()
        await ana.replies().nth(1).get_by_role("button", name="I found it").click()
        await ana.modal.get_by_role("textbox").fill(next(iter(world.service.videos)))
        await world.after(ana.presses("Use this video"), seconds=5)
        await expect(ana.card("The canteen")).to_contain_text("Ready")
        assert world.created_count() == 1
        assert await _switches(ana) == before

        note = await _plays_to_its_end(world, ana, "A video that needs approval")
        await expect(note).to_contain_text("Switch to")
        await expect(ana.card("Our founders")).to_contain_text("✋ Waiting for approval")
        assert world.created_count() == 1


async def test_approval_is_played_without_settings_and_decided_after_the_scenario(
    quick_world: PageWorld,
) -> None:
    world = quick_world
    await world.ben.command("/replica", f"add {REPLICA}", "lobby")
    window = await world.window(reduced_motion="reduce")
    before = await _switches(window)
    note = await _plays_to_its_end(world, window, "A video that needs approval")
    await expect(note).to_contain_text("Switch to")
    card = window.card("Our founders")
    await expect(card).to_contain_text("✋ Waiting for approval")
    assert await _switches(window) == before
    assert world.created_count() == 0

    await window.becomes("ben")
    await window.goes_to("Replica Videos")
    await window.tab.get_by_role("tab", name="Messages").click()
    asked = window.card("Our founders")
    await asked.get_by_role("button", name="Approve").click()
    await expect(asked).to_contain_text("Approved by")
    await world.advance(minutes=5)
    await window.goes_to("studio")
    await expect(card).to_contain_text("Ready")
    assert world.created_count() == 1


async def test_a_scenario_that_is_stopped_or_left_puts_everything_back(
    quick_world: PageWorld,
) -> None:
    ana = await quick_world.window(reduced_motion="reduce")
    before = await _switches(ana)
    note = await _plays(ana, "An outage while a video is made")
    await expect(ana.card("The new office")).to_be_visible()
    await note.get_by_role("button", name="Stop").click()
    await expect(note).to_contain_text("Stopped.")
    await expect(note).to_contain_text(BACK)
    assert await _switches(ana) == before

    await note.get_by_role("button", name="Play again").click()
    await expect(ana.card("The new office")).to_have_count(2)
    assert await _switches(ana) != before
    await ana.tab.reload()
    await expect(ana.tab.get_by_role("radio", name="ana")).to_be_checked()
    await expect(ana.card("The new office")).to_have_count(2)
    assert await _switches(ana) == before
