"""What the page says to tell things apart, in a real browser: threads, videos, tabs."""

from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from sandbox.page.server import Page
from tests.browser import GONE, PageWorld, Window

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = (
    "Welcome to the team, Kim! Your seat is by the window, and lunch is at noon. See you there."
)
OTHER = "Our numbers for the third quarter, in one minute."


async def test_an_open_form_is_shown_only_in_the_tab_that_opened_it(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.opens_form("/video Half a sentence")
    other = Window(await ana.tab.context.new_page())
    await other.tab.goto(f"{page_world.page.url}/?as=ana")
    await expect(other.composer).to_be_visible()
    await other.types("/vidoe")
    await expect(other.tab.get_by_text("/vidoe is not a command")).to_be_visible()
    await expect(other.modal).to_be_hidden()
    await expect(ana.modal).to_be_visible()

    await ana.tab.reload()
    await expect(ana.modal.get_by_label("Script")).to_have_value("Half a sentence")
    await other.composer.fill("")
    await other.opens_form("/replica")
    await expect(ana.modal).to_be_hidden()


async def test_a_sandbox_that_has_ended_says_so_and_how_to_start_it_again(
    page_world: PageWorld,
) -> None:
    command = "python -m sandbox --port 9000"
    await page_world.page.stop()
    page_world.page = Page(page_world.slack, page_world.service, command=command)
    await page_world.page.start(0)
    ana = await page_world.window()
    page_world.windows.forgiven = GONE
    port = urlsplit(page_world.page.url).port
    assert port
    await page_world.page.stop()

    status = ana.tab.get_by_role("status")
    await expect(status).to_have_text(f"The sandbox has ended. To start it again: {command}")
    await expect(ana.tab.get_by_text("Connecting")).to_have_count(0)
    await page_world.page.start(port)
    await expect(status).to_be_hidden()
    page_world.ben.say("Here again")
    await expect(ana.card("Here again")).to_be_visible()
