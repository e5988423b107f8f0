"""Requests on the wire on the sandbox's page, in a real browser: found, cleared, and whose."""

import re

import pytest
from playwright.async_api import Locator, expect

from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

MINE = "Welcome to the team, Kim!"
# How the call stands on the wire; forms and buttons have the same name.
CREATE_CALL = re.compile(r"bot → video service\s*create_video")
OTHER = "Our numbers in one minute."


def _shown(wire: Locator) -> Locator:
    return wire.get_by_role("group").filter(visible=True)


async def test_requests_are_searched_and_cleared_in_every_window(page_world: PageWorld) -> None:
    ana, ben = await page_world.window("ana"), await page_world.window("ben")
    await ana.asks(MINE)
    await page_world.request_video(page_world.ben, {"script": OTHER})
    await page_world.advance(minutes=3)
    wire, others = await ana.looks_behind("Wire"), await ben.looks_behind("Wire")
    await wire.get_by_label("Show").select_option("video service → bot")
    await expect(_shown(wire).filter(has_text=CREATE_CALL)).to_have_count(0)
    await expect(_shown(wire).filter(has_text="callback").first).to_be_visible()
    await wire.get_by_label("Show").select_option("")
    await wire.get_by_label("Search").fill("NUMBERS in")
    await expect(_shown(wire).filter(has_text=CREATE_CALL)).to_have_count(1)
    # What comes later is searched too.
    page_world.ben.say("A line")
    await page_world.request_video(page_world.ben, {"script": OTHER})
    await expect(_shown(wire).filter(has_text=CREATE_CALL)).to_have_count(2)
    await wire.get_by_label("Search").fill("nobody wrote this")
    await expect(wire.get_by_text("No request matches.")).to_be_visible()

    await wire.get_by_role("button", name="Clear").click()
    await expect(wire.get_by_text("No requests yet.")).to_be_visible()
    await expect(others.get_by_text("No requests yet.")).to_be_visible()
    await wire.get_by_label("Search").fill("")
    await page_world.ana.command("/replica", "list")
    await expect(_shown(wire).first).to_contain_text("/replica")
