"""What a newcomer finds on the sandbox's page, in a real browser."""

import re

import pytest
from playwright.async_api import expect

from tests.browser import PHONE, PageWorld

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


async def test_on_a_phone_the_first_steps_open_the_drawer(page_world: PageWorld) -> None:
    ana = await page_world.window("ana", PHONE)
    steps = ana.tab.get_by_role("region", name="First steps")
    await steps.get_by_role("button", name="Switch user").click()
    await expect(ana.tab.get_by_role("radio", name="ana")).to_be_focused()


async def test_the_first_steps_stay_closed_in_this_browser(page_world: PageWorld) -> None:
    ana = await page_world.window()
    steps = ana.tab.get_by_role("region", name="First steps")
    await steps.get_by_role("button", name="Close the first steps").click()
    await expect(steps).to_be_hidden()
    await expect(ana.composer).to_be_focused()

    await ana.tab.reload()
    await expect(ana.tab.get_by_role("radio", name="ana")).to_be_checked()
    await ana.becomes("ben")
    await expect(steps).to_be_hidden()
    # Another browser has not seen them yet.
    cleo = await page_world.window("cleo")
    await expect(cleo.tab.get_by_role("region", name="First steps")).to_be_visible()


async def test_an_empty_composer_says_what_can_be_written_there(page_world: PageWorld) -> None:
    page_world.slack.direct_message("ana", "ben")
    page_world.ben.say(SCRIPT)
    ana = await page_world.window()
    await expect(ana.composer).to_have_attribute("placeholder", "Try /video Hello team")
    await ana.card(SCRIPT).hover()
    await ana.card(SCRIPT).get_by_role("button", name="Reply in thread").click()
    reply = ana.thread.get_by_role("textbox")
    await expect(reply).to_have_attribute("placeholder", "Reply to this thread")
    await ana.goes_to("ben")
    await expect(ana.composer).to_have_attribute("placeholder", "Message ben")
