"""What a newcomer finds on the sandbox's page, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


async def test_each_of_the_first_steps_does_or_shows_it(page_world: PageWorld) -> None:
    ana = await page_world.window(place="attic")
    steps = ana.tab.get_by_role("region", name="First steps")
    await expect(steps.get_by_role("listitem")).to_have_text(
        [re.compile("Type /video"), re.compile("Switch user"), re.compile("Break something")]
    )

    await steps.get_by_role("button", name="Type /video").click()
    await expect(ana.tab.get_by_role("heading", level=1)).to_have_text("studio")
    await expect(ana.composer).to_have_value("/video Hello team")
    await expect(ana.composer).to_be_focused()
    await ana.composer.press("Enter")
    await expect(ana.modal.get_by_label("Script")).to_have_value("Hello team")
    await ana.presses("Cancel")

    await ana.composer.fill("Half a thought")
    await steps.get_by_role("button", name="Type /video").click()
    await expect(ana.composer).to_have_value("Half a thought")
    await ana.composer.fill("")

    await steps.get_by_role("button", name="Switch user").click()
    await expect(ana.tab.get_by_role("radio", name="ana")).to_be_focused()
    await ana.tab.keyboard.press("ArrowRight")
    await expect(ana.tab.get_by_role("radio", name="ben")).to_be_checked()

    await steps.get_by_role("button", name="Break something").click()
    await expect(ana.panel).to_be_visible()
