"""What keeps people from paying unawares, on the sandbox's page, in a real browser."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from bot.timings import Timings
from tests.browser import PageWorld
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


async def test_approvers_approve_and_decline_what_others_ask(
    memory: Path, browser: Browser
) -> None:
    world = PageWorld(memory, browser)
    approvers = f"{world.ben.user.id},{world.slack.user('cleo').id}"
    channel = world.slack.channel("lobby").id
    async with world.runs(APPROVERS=approvers, APPROVAL_CHANNEL=channel):
        window = await world.window(place="studio")
        card = await window.asks(SCRIPT)
        await world.settle()
        await expect(card).to_contain_text("I asked in #lobby.")
        await expect(card.get_by_role("img", name="raised hand")).to_be_visible()
        second = await window.asks("Something too long.")
        await world.settle()

        await window.becomes("ben")
        await window.goes_to("lobby")
        asked = window.card(SCRIPT)
        await expect(asked).to_contain_text("Approve this video?")
        await expect(asked).to_contain_text("Requested by @ana")
        await asked.get_by_role("button", name="Approve").click()
        await world.settle()
        await expect(asked).to_contain_text("Approved by @ben.")
        await expect(asked.get_by_role("button", name="Approve")).to_be_hidden()

        other = window.card("Something too long.")
        await other.get_by_role("button", name="Decline").click()
        await window.modal.get_by_label("Why?").fill("Half of it will do.")
        await window.presses("Decline")
        await expect(window.modal).to_be_hidden()
        await world.settle()
        await expect(other).to_contain_text("Declined by @ben.")

        await window.becomes("ana")
        await window.goes_to("studio")
        await world.advance(minutes=5)
        await expect(card).to_contain_text("Ready")
        await window.opens_thread(second)
        await expect(window.replies().last).to_contain_text("“Half of it will do.”")
        await expect(
            window.replies().last.get_by_role("button", name="Edit and retry")
        ).to_be_visible()
        assert world.created_count() == 1


async def test_a_form_offers_what_is_there_and_says_how_long_it_takes_and_what_is_left(
    memory: Path, browser: Browser
) -> None:
    world = PageWorld(memory, browser)
    world.pauses = {**world.pauses, "same_within": Timings().same_within}
    limits = {"MAX_PER_USER_PER_DAY": "10", "MAX_PER_DAY": "12"}
    async with world.runs(ADMIN_USERS=world.slack.user("cleo").id, **limits):
        for number in range(10):
            await world.request_video(world.ben, {"script": f"{SCRIPT} {number}"})
        await world.advance(minutes=11)
        ana = await world.window()
        form = await ana.opens_form()
        await expect(form).to_contain_text("2 of your workspace's 12 requests are left until")
        await expect(form).to_contain_text("Videos usually take about 2 min to create.")
        await ana.picks("Replica", REPLICA)
        await form.get_by_label("Script").fill(f"{SCRIPT} 1")
        await ana.presses("Create")
        await expect(form).to_contain_text("This video already exists. @ben made it")
        await expect(form.get_by_role("link", name="Watch")).to_be_visible()
        assert world.created_count() == 10
        await ana.presses("Create another")
        await expect(ana.modal).to_be_hidden()
        await world.settle()
        assert world.created_count() == 11
        await expect(ana.card(f"{SCRIPT} 1").last).to_contain_text("usually about 2 min")

        await ana.becomes("ben")
        await ana.types("/video One more.")
        said = ana.channel.locator(":scope > li").last
        await expect(said).to_contain_text("You've reached your limit of 10 requests a day.")
        await expect(said).to_contain_text("Ask @cleo.")
        await expect(said).to_contain_text("One more.")
        await expect(ana.modal).to_be_hidden()
        assert world.created_count() == 11
