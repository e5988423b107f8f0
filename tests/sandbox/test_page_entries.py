"""The other ways to the app on the sandbox's page, in a real browser: shortcuts, mentions, Home."""

import re

import pytest
from playwright.async_api import expect

from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


async def test_a_message_and_a_reply_are_made_a_video_from_their_menu(
    page_world: PageWorld,
) -> None:
    parent = page_world.ben.say(SCRIPT)
    page_world.ben.say("And thank you all.", thread_ts=parent.ts)
    ana = await page_world.window()
    message = ana.card(SCRIPT)
    await message.hover()
    more = message.get_by_role("button", name="More actions")
    await more.click()
    await ana.tab.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await more.press("Enter")
    await expect(ana.tab.get_by_role("menuitem", name="Make a video from this")).to_be_focused()
    await ana.tab.keyboard.press("Enter")
    await expect(ana.modal.get_by_label("Script")).to_have_value(SCRIPT)
    await ana.presses("Cancel")

    await ana.opens_thread(message)
    reply = ana.replies().filter(has_text="And thank you all.")
    await reply.hover()
    await reply.get_by_role("button", name="More actions").click()
    await ana.tab.get_by_role("menuitem", name="Make a video from this").click()
    await expect(ana.modal.get_by_label("Script")).to_have_value("And thank you all.")


async def test_the_app_and_people_are_mentioned_by_their_first_letters(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    await ana.composer.press_sequentially("Thanks @be")
    people = ana.tab.get_by_role("listbox", name="People")
    await expect(people.get_by_role("option")).to_have_text([re.compile("@ben")])
    await ana.composer.press("Tab")
    await expect(ana.composer).to_have_value("Thanks @ben ")
    await ana.composer.press("Enter")
    await expect(ana.card("Thanks @ben")).to_be_visible()

    await ana.composer.press_sequentially("@rep")
    await ana.composer.press("Enter")
    await expect(ana.composer).to_have_value("@replica-videos ")
    await ana.composer.press("Enter")
    mention = ana.card("@replica-videos").first
    await expect(mention).to_be_visible()
    await page_world.settle()
    await ana.opens_thread(mention)
    await expect(ana.replies().nth(1)).to_contain_text("/video")


async def test_the_app_answers_in_its_direct_message(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.goes_to("Replica Videos")
    await ana.types("hello")
    await expect(ana.card("hello")).to_be_visible()
    await page_world.settle()
    await expect(ana.channel.get_by_role("listitem").last).to_contain_text("/video")
    form = await ana.opens_form(f"/video {SCRIPT}")
    await expect(form.get_by_label("Script")).to_have_value(SCRIPT)
