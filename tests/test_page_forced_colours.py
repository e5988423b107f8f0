"""The sandbox's page in forced colours, as contrast themes have them, in a real browser."""

from typing import Final

import pytest
from playwright.async_api import Locator, expect

from tests.browser import PageWorld, Window
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The colours of an element once they have changed, where what is transparent shows the canvas. With
# reduced motion, each change is a very short transition, which begins with the old colours.
_COLOURS: Final = """async (node) => {
  await Promise.allSettled(node.getAnimations().map((each) => each.finished));
  const { backgroundColor, color, borderBottomColor } = getComputedStyle(node);
  const isClear = backgroundColor.startsWith("rgba") && backgroundColor.endsWith(" 0)");
  return [isClear ? "rgb(255, 255, 255)" : backgroundColor, color, borderBottomColor].join(" on ");
}"""


async def _window(page_world: PageWorld) -> Window:
    return await page_world.window(forced_colors="active", reduced_motion="reduce")


async def _colours(node: Locator) -> str:
    return str(await node.evaluate(_COLOURS))


async def test_what_is_selected_has_other_colours_than_the_rest(page_world: PageWorld) -> None:
    ana = await _window(page_world)
    places = ana.tab.get_by_role("navigation")
    here, there = (places.get_by_role("button", name=name) for name in ("studio", "lobby"))
    assert await _colours(here) != await _colours(there)
    me, other = (ana.tab.locator(".person label", has_text=name) for name in ("ana", "ben"))
    assert await _colours(me) != await _colours(other)

    tabs = (await ana.looks_behind("Video service")).page.get_by_role("tab")
    chosen, unchosen = tabs.nth(1), tabs.nth(2)
    assert await _colours(chosen) != await _colours(unchosen)

    switches = ana.panel.get_by_role("switch")
    on, off = switches.nth(0), switches.nth(1)
    assert await _colours(on) == await _colours(off)
    await on.check()
    assert await _colours(on) != await _colours(off)
    # Its knob can be seen, on and off.
    for switch in (on, off):
        background = await switch.evaluate("node => getComputedStyle(node).backgroundColor")
        knob = await switch.evaluate("node => getComputedStyle(node, '::before').backgroundColor")
        assert background != knob


async def test_the_active_option_of_a_list_has_other_colours_than_the_rest(
    page_world: PageWorld,
) -> None:
    await page_world.ana.command("/replica", f"add {REPLICA}")
    page_world.service.add_replica("r-ben", "Ben")
    await page_world.ana.command("/replica", "add r-ben")
    await page_world.settle()
    ana = await _window(page_world)
    await ana.composer.fill("/")
    commands = ana.tab.get_by_role("listbox", name="Commands").get_by_role("option")
    assert await _colours(commands.nth(0)) != await _colours(commands.nth(1))

    form = await ana.opens_form()
    # The first that is found is active at once.
    await form.get_by_label("Replica").fill("r-")
    options = form.get_by_role("option")
    await expect(options.filter(has_text="r-ben")).to_be_visible()
    await expect(options.first).to_have_attribute("aria-selected", "true")
    assert await _colours(options.first) != await _colours(options.last)


async def test_the_main_button_and_the_one_that_can_be_pressed_stand_out(
    page_world: PageWorld,
) -> None:
    ana = await _window(page_world)
    send = ana.tab.get_by_role("button", name="Send")
    closed = await _colours(send)
    await ana.composer.fill("Hello")
    await expect(send).to_be_enabled()
    assert await _colours(send) != closed
    form = await ana.opens_form()
    create, cancel = (form.get_by_role("button", name=name) for name in ("Create", "Cancel"))
    assert await _colours(create) != await _colours(cancel)


async def test_the_number_of_mentions_can_be_read(page_world: PageWorld) -> None:
    ana = await page_world.window(forced_colors="active", place="lobby")
    page_world.ben.say("You, @ana?")
    count = ana.tab.locator(".count")
    await expect(count).to_have_text("1")
    # Where colours are forced, the browser would lay a strip under the words, in their own colour.
    adjusted = "node => getComputedStyle(node).forcedColorAdjust"
    assert await count.evaluate(adjusted) == "none"
