"""Share to… on the sandbox's page, in a real browser."""

import pytest
from playwright.async_api import expect

from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_finished_video_is_shared_in_a_channel_that_slack_would_list(
    page_world: PageWorld,
) -> None:
    page_world.slack.change_channel("lobby", is_ext_shared=True)
    page_world.slack.change_channel("vault", with_bot=True)
    ana = await page_world.window()
    card = await ana.asks("Welcome, Cleo!")
    await page_world.settle()
    await page_world.advance(minutes=5)
    await card.get_by_role("button", name="Share to…").click()
    menu = ana.modal.get_by_role("combobox", name="Channel")
    await menu.click()
    offered = await ana.modal.get_by_role("option").all_inner_texts()
    assert "#vault" in offered
    assert "#lobby" not in offered, "other organisations read it"
    await ana.picks("Channel", "#vault")
    await ana.presses("Share")
    await expect(ana.modal).to_be_hidden()
    await page_world.settle()
    await ana.goes_to("vault")
    shared = ana.card("shared a video")
    await expect(shared).to_contain_text("@ana shared a video: Welcome, Cleo!")
    await expect(shared.get_by_role("link", name="Watch")).to_be_visible()
