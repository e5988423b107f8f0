"""The scenarios of the sandbox's page, played again while the bot offers what was made before."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from bot.timings import Timings
from sandbox.page.run import TIMINGS
from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_scenario_can_be_played_again_although_its_video_exists(
    memory: Path, browser: Browser
) -> None:
    # The clock stands still, and a card that waits for approval would wait for it.
    timings = replace(TIMINGS, jitter=0, card_delay=timedelta(0))
    world = PageWorld(memory, browser, timings)
    world.pauses = {**world.pauses, "same_within": Timings().same_within}
    title = "A video that needs approval"
    async with world.runs(APPROVERS=world.ben.user.id):
        ana = await world.window(reduced_motion="reduce")
        scenarios = await ana.looks_behind("Scenarios")
        await scenarios.get_by_role("button", name=f"Play “{title}”").click()
        note = ana.tab.get_by_role("region", name=title)
        await expect(note).to_contain_text("Everything works again")
        await expect(ana.card("Our founders")).to_have_count(1)
        assert "offers" not in await note.inner_text()

        await note.get_by_role("button", name="Play again").click()
        await expect(note).to_contain_text("You press Create another all the same.")
        await expect(note).to_contain_text("Switch to one of them")
        await expect(ana.card("Our founders")).to_have_count(2)
