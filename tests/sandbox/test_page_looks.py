"""How the sandbox's page looks, in a real browser: on a phone, and to screen readers."""

import re
from typing import Final

import pytest
from playwright.async_api import expect

from sandbox.scenarios import Scenario
from tests.browser import PHONE, PageWorld, Window
from tests.sandbox.page_content import SCRIPT, has_everything

pytestmark = pytest.mark.asyncio(loop_scope="session")


# ── The panel ─────────────────────────────────────────────────────────────────────────────────

# Labels of fields that are not right above them, and buttons that are not level with the field
# beside them.
_MISPLACED: Final = """() => {
  const box = (node) => node.getBoundingClientRect();
  const shown = (node) => node.checkVisibility();
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const fields = all("#panel .picker:not(.wire-tools *), #panel .seconds");
  const labels = fields.map((each) => [
    each.querySelector("label"), each.querySelector("select, input"),
  ]).filter(([label, field]) =>
    box(label).bottom > box(field).top + 1 || Math.abs(box(label).left - box(field).left) > 1);
  const uneven = all("#panel .picker:not(.is-wide) + button").filter((each) => {
    const field = each.previousElementSibling;
    return Math.abs(box(field).bottom - box(each).bottom) > 1;
  });
  const names = all("#panel .channel-row strong").filter((each) => box(each).height > 30);
  return [...labels.map(([label]) => label), ...uneven, ...names].map((each) => each.textContent);
}"""


@pytest.mark.parametrize("width", [1280, 390])
async def test_labels_of_the_panel_are_where_their_fields_are(
    page_world: PageWorld, width: int
) -> None:
    page_world.slack.add_channel("partners")
    ana = await page_world.window(size=(width, 800))
    for tab in ("Video service", "Slack", "Wire"):
        await ana.looks_behind(tab)
        assert await ana.tab.evaluate(_MISPLACED) == []


# ── On a phone ────────────────────────────────────────────────────────────────────────────────

# Whatever reaches further than the screen, unless it scrolls by itself in what holds it.
_TOO_WIDE: Final = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (node) => {
    for (let each = node.parentElement; each; each = each.parentElement) {
      const { overflowX } = getComputedStyle(each);
      if (overflowX === "auto" || overflowX === "scroll" || overflowX === "hidden") return true;
    }
    return false;
  };
  const found = [...document.querySelectorAll("body *")].filter((node) => {
    if (!node.checkVisibility() || node.closest("[inert]")) return false;
    const box = node.getBoundingClientRect();
    return box.width > 1 && (box.right > width + 1 || box.left < -1) && !scrolls(node);
  });
  const scrolling = [...document.querySelectorAll("body, .scroller, dialog, .view-body")]
    .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1);
  return [document.documentElement.scrollWidth > width, ...found, ...scrolling]
    .filter(Boolean).map((each) => each === true ? "the page" : each.outerHTML.slice(0, 100));
}"""


async def _fits(window: Window) -> None:
    assert await window.tab.evaluate(_TOO_WIDE) == []


async def test_everything_can_be_reached_on_a_phone_and_nothing_overflows(
    page_world: PageWorld,
) -> None:
    await has_everything(page_world)
    page_world.ben.say("W" * 400 + " https://example.com/" + "w" * 300)
    ana = await page_world.window("ana", PHONE, is_mobile=True, has_touch=True)
    await expect(ana.card("WWWW")).to_be_visible()
    await expect(ana.card("WWWW")).to_have_css("content-visibility", "visible")
    await _fits(ana)

    menu = ana.tab.get_by_role("button", name="Channels and people")
    await menu.tap()
    await expect(menu).to_have_attribute("aria-expanded", "true")
    await _fits(ana)
    lobby = ana.tab.get_by_role("navigation").get_by_role("button", name="lobby")
    await lobby.tap()
    await expect(ana.tab.get_by_role("heading", level=1)).to_have_text("lobby")
    await expect(lobby).not_to_be_in_viewport()
    await menu.tap()
    await ana.tab.get_by_role("navigation").get_by_role("button", name=re.compile("^studio")).tap()

    card = ana.card("Kim's first day")
    behind = await card.get_by_role("button", name="Requests").bounding_box()
    reply = await card.get_by_role("button", name="Reply in thread").bounding_box()
    assert behind
    assert reply
    is_beside = behind["x"] + behind["width"] <= reply["x"]
    assert is_beside or behind["y"] >= reply["y"] + reply["height"]
    bar = card.get_by_role("button", name="1 reply")
    await bar.tap()
    await expect(ana.replies()).to_have_count(2)
    await expect(ana.replies().nth(1)).to_be_in_viewport()
    await _fits(ana)
    await ana.thread.get_by_role("button", name="Close the thread").tap()
    await expect(ana.thread).to_be_hidden()

    await ana.tab.get_by_role("button", name="Behind the scenes").tap()
    await expect(ana.panel).to_be_in_viewport(ratio=0.5)
    for tab in await ana.panel.get_by_role("tab").all():
        await tab.tap()
        await _fits(ana)
    await ana.panel.get_by_role("button", name="Close the panel").tap()

    await ana.composer.fill("/video ")
    await ana.tab.get_by_role("button", name="Send").tap()
    await expect(ana.modal.get_by_label("Script")).to_be_visible()
    await ana.modal.get_by_label("A web page").tap()
    await expect(ana.modal.get_by_label("Web page link")).to_be_visible()
    await _fits(ana)
    await ana.presses("Create")
    await expect(ana.modal.get_by_text("complete this required").first).to_be_in_viewport()
    await _fits(ana)


# ── To screen readers ─────────────────────────────────────────────────────────────────────────


async def test_a_form_is_a_dialog_that_keeps_the_focus_and_gives_it_back(
    page_world: PageWorld,
) -> None:
    page_world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    ana = await page_world.window()
    card = await ana.asks(SCRIPT)
    await page_world.advance(minutes=3)
    button = card.get_by_role("button", name="Edit and retry")
    await button.click()
    await expect(ana.tab.get_by_role("dialog", name="Create a video")).to_be_visible()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(16):
            await ana.tab.keyboard.press(key)
            assert await ana.modal.evaluate("node => node.contains(document.activeElement)")
    # The button that opened it is drawn again meanwhile.
    [message] = page_world.slack.messages("studio")
    page_world.slack.edit(message, text="", blocks=message.blocks, metadata=message.metadata)
    await expect(card.get_by_text("(edited)")).to_have_attribute("title", re.compile("9:03:00 AM"))
    await ana.tab.keyboard.press("Escape")

    await expect(ana.modal).to_be_hidden()
    await expect(button).to_be_focused()


async def test_a_new_message_is_announced_to_screen_readers(page_world: PageWorld) -> None:
    ana = await page_world.window()
    page_world.ben.say("Has anybody seen the numbers?")
    said = ana.tab.get_by_role("log")
    await expect(said).to_contain_text("ben")
    await expect(said).to_contain_text("Has anybody seen the numbers?")
