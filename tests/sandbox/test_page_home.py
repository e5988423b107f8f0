"""The app's Home tab on the sandbox's page, in a real browser."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser import PageWorld, Window
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _opens_home(window: Window) -> None:
    await window.goes_to("Replica Videos")
    await window.tab.get_by_role("tab", name="Home").click()
    await expect(window.tab.get_by_role("tabpanel", name="Home")).to_be_visible()


async def test_a_video_is_created_from_home_and_listed_there(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await _opens_home(ana)
    home = ana.tab.get_by_role("tabpanel", name="Home")
    await page_world.settle()
    await expect(home).to_contain_text("Nothing here yet")

    await home.get_by_role("button", name="Create a video").click()
    await ana.picks("Replica", REPLICA)
    await ana.modal.get_by_label("Script").fill("Welcome to the team, Kim!")
    await ana.presses("Create")
    await expect(ana.modal).to_be_hidden()
    await page_world.advance(seconds=5)
    await expect(home).to_contain_text("Welcome to the team, Kim! · Rendering")
    await page_world.advance(minutes=5)
    await expect(home).to_contain_text("Welcome to the team, Kim! · Ready")

    await home.get_by_role("button", name="More options").first.click()
    await home.get_by_role("menuitem", name="Details").click()
    await expect(ana.modal).to_contain_text("Welcome to the team, Kim!")
    await expect(ana.modal).to_contain_text(REPLICA)


async def test_home_has_more_pages_and_keeps_the_focus(page_world: PageWorld) -> None:
    for number in range(11):
        await page_world.request_video(page_world.ana, {"video_name": f"Video {number}"})
        await page_world.advance(seconds=20)
    await page_world.advance(minutes=5)
    ana = await page_world.window(size=(390, 780))
    await ana.tab.get_by_role("button", name="Channels and people").click()
    await _opens_home(ana)
    await page_world.settle()
    home = ana.tab.get_by_role("tabpanel", name="Home")
    await expect(home.get_by_text("Video 10")).to_be_visible()
    await expect(home.get_by_text("Video 0")).to_be_hidden()

    await home.get_by_role("button", name="Next", exact=True).click()
    await page_world.advance(seconds=5)
    await expect(home.get_by_text("Video 0")).to_be_in_viewport()
    await home.get_by_role("button", name="Back", exact=True).press("Enter")
    await page_world.advance(seconds=5)
    await expect(home.get_by_text("Video 10")).to_be_visible()
    await expect(home).to_be_focused()


async def test_an_admin_changes_limits_in_home(memory: Path, browser: Browser) -> None:
    page_world = PageWorld(memory, browser)
    admin = page_world.ana.user.id
    async with page_world.runs(ADMIN_USERS=admin, MAX_PER_USER_PER_DAY="100"):
        await page_world.request_video(page_world.ben)
        ana = await page_world.window()
        await _opens_home(ana)
        await page_world.settle()
        home = ana.tab.get_by_role("tabpanel", name="Home")
        await expect(home).to_contain_text("1 video, about 1 sec spoken")

        await home.get_by_role("button", name="Change limits").click()
        number = ana.modal.get_by_label("Requests per person per day")
        await expect(number).to_have_value("100")
        await number.fill("0")
        await ana.presses("Save")
        await expect(ana.modal).to_contain_text("Please enter 1 or more.")
        await number.fill("20")
        for name in ("@ben", "@cleo"):
            await ana.picks("Who can train replicas", name)
        await ana.modal.get_by_role("button", name="Remove @cleo").click()
        await ana.picks("Channels to post in", "#studio")
        await ana.presses("Save")
        await expect(ana.modal).to_be_hidden()
        await page_world.advance(seconds=5)
        await expect(home).to_contain_text("Requests per person per day: 20, changed by @ana")
        await expect(home).to_contain_text("Who can train replicas: @ben, changed by @ana")
        await expect(home).to_contain_text("Channels to post in: #studio, changed by @ana")
        await expect(home).to_contain_text("lowered requests per person per day from 100 to 20")

        await home.get_by_role("button", name="Change limits").click()
        await expect(ana.modal.get_by_role("button", name="Remove @ben")).to_be_visible()
        await ana.presses("Cancel")
        await home.get_by_role("button", name="View usage").click()
        await expect(ana.modal).to_contain_text("@ben: 1 video")
