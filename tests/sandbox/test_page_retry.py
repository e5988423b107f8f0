"""Retries, questions and *Stop waiting* on the sandbox's page, in a real browser."""

import pytest
from playwright.async_api import expect

from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan, Scenario
from tests.browser import PageWorld

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "A few words on our competitors."


async def test_a_retry_is_found_from_the_card_it_retries_and_followed_no_longer(
    page_world: PageWorld,
) -> None:
    world = page_world
    ana = await world.window()
    world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    await world.request_video(world.ana, {"script": SCRIPT})
    await world.advance(minutes=5)
    card = ana.card(SCRIPT)
    await card.get_by_role("button", name="Edit and retry").click()
    await expect(ana.modal.get_by_label("Script")).to_have_value(SCRIPT)
    await ana.presses("Create")
    await expect(ana.modal).to_be_hidden()
    await world.advance(seconds=5)

    await card.get_by_role("link", name="Retried here").click()
    retry = ana.replies().nth(2)
    await expect(retry).to_be_focused()
    await expect(retry).to_contain_text("Rendering")
    assert len(ana.tab.context.pages) == 1

    await retry.get_by_role("button", name="Stop waiting").click()
    confirm = ana.tab.get_by_role("alertdialog", name="Stop waiting for this video?")
    await confirm.get_by_role("button", name="Keep waiting").click()
    await expect(retry).to_contain_text("Rendering")
    await retry.get_by_role("button", name="Stop waiting").click()
    await confirm.get_by_role("button", name="Stop waiting").click()
    await world.settle()
    await expect(retry).not_to_contain_text("Rendering")


async def test_a_question_is_answered_in_its_thread(page_world: PageWorld) -> None:
    world = page_world
    ana = await world.window()
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    await world.request_video(world.ana, {"script": SCRIPT})
    await world.advance(minutes=16)
    await ana.opens_thread(ana.card(SCRIPT))
    question = ana.replies().nth(1)
    await expect(question).to_contain_text("Did this video get made?")
    await question.get_by_role("button", name="I found it").click()
    await ana.presses("Cancel")
    await question.get_by_role("button", name="Cancel request").click()
    await ana.tab.get_by_role("alertdialog").get_by_role("button").last.click()
    await world.settle()
    await expect(question.get_by_role("button", name="I found it")).to_be_hidden()
