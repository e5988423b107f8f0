"""Requests on the wire on the sandbox's page, in a real browser: found, cleared, and whose."""

import re

import pytest
from playwright.async_api import Locator, expect

from sandbox.faults import Reset
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


async def test_a_card_leads_to_its_requests_and_they_lead_back(page_world: PageWorld) -> None:
    ana = await page_world.window()
    page_world.service.faults.next("create_video", Reset(done=True))
    card = await ana.asks(MINE)
    await page_world.request_video(page_world.ben, {"script": OTHER})
    await page_world.advance(minutes=5)
    await expect(card).to_contain_text("Ready")
    await card.get_by_role("button", name="Requests").click()

    wire = ana.panel.get_by_role("tabpanel", name="Wire")
    await expect(wire).to_be_visible()
    await expect(_shown(wire).filter(has_text=CREATE_CALL)).to_have_count(1)
    shown = await _shown(wire).all_inner_texts()
    for said in ("view_submission", "chat.postMessage", "chat.update", "read_video", "callback"):
        assert any(said in each for each in shown), said
    await _shown(wire).evaluate_all("all => all.forEach((each) => { each.open = true; })")
    await expect(_shown(wire).filter(has_text=CREATE_CALL)).to_contain_text(MINE)
    others = [each for each in await _shown(wire).all_inner_texts() if OTHER in each]
    assert [each[:80] for each in others] == []

    await wire.get_by_role("button", name="Show the card").first.click()
    await expect(card).to_be_focused()
    await wire.get_by_role("button", name="Show all requests").click()
    theirs = wire.get_by_role("group").filter(has_text=CREATE_CALL).first
    await theirs.evaluate("node => { node.open = false; node.open = true; }")
    await expect(theirs).to_contain_text(OTHER)
    await ana.goes_to("lobby")
    await theirs.get_by_role("button", name="Show the card").click()
    await expect(ana.card(OTHER)).to_be_focused()
