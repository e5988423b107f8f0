"""What a newcomer tries on the sandbox's page because the bot, or its help, said so."""

import re

import pytest
from playwright.async_api import expect

from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


async def test_the_invitation_that_the_form_asks_for_can_be_typed(page_world: PageWorld) -> None:
    page_world.slack.change_channel("vault", with_bot=False)
    ana = await page_world.window()
    await ana.goes_to("vault")
    await ana.opens_form(f"/video {SCRIPT}")
    await ana.picks("Replica", "r-anna-42")
    await ana.presses("Create")
    await expect(ana.modal).to_contain_text("/invite")
    told = re.search(r"/invite @[\w-]+", await ana.modal.inner_text())
    assert told
    await ana.presses("Cancel")

    await ana.types("/invite @nobody")
    main = ana.tab.get_by_role("main")
    await expect(main).to_contain_text(f"Only the app can be invited here: {told[0]}")
    await ana.types(told[0])
    await expect(main).not_to_contain_text("is not a member")
    await expect(ana.composer).to_have_value("")
    await ana.asks(SCRIPT)

    await ana.goes_to("Replica Videos")
    await ana.types(told[0])
    await expect(main).to_contain_text("Nobody can be invited to a direct message.")
