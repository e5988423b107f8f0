"""The sandbox's page for people who force colours or prefer reduced motion, in a real browser."""

from typing import Final

import pytest
from playwright.async_api import Locator, expect

from tests.browser import PageWorld
from tests.sandbox.page_content import SCRIPT
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
_MOVING: Final = """() => [...document.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node);
  const longest = (times) => Math.max(...times.split(",").map(parseFloat));
  const takes = Math.max(longest(style.animationDuration), longest(style.transitionDuration));
  const goesOn = style.animationName !== "none" && style.animationIterationCount === "infinite";
  return takes > 0.01 || goesOn || style.scrollBehavior === "smooth";
}).map((node) => node.outerHTML.slice(0, 100))"""


async def _differ(one: Locator, other: Locator) -> bool:
    return bool(await one.evaluate(_COLOURS) != await other.evaluate(_COLOURS))


async def test_with_forced_colours_what_is_chosen_differs_from_the_rest(
    page_world: PageWorld,
) -> None:
    await page_world.ana.command("/replica", f"add {REPLICA}")
    page_world.service.add_replica("r-ben", "Ben")
    await page_world.ana.command("/replica", "add r-ben")
    await page_world.settle()
    page_world.ben.say("You, @ana?")
    ana = await page_world.window(forced_colors="active", reduced_motion="reduce", place="lobby")
    count = ana.tab.locator(".count")
    await expect(count).to_have_text("1")
    # Else the browser would lay a strip under the words, in their own colour.
    adjusted = "node => getComputedStyle(node).forcedColorAdjust"
    assert await count.evaluate(adjusted) == "none"
    places = ana.tab.get_by_role("navigation")
    here, there = (places.get_by_role("button", name=name) for name in ("lobby", "studio"))
    assert await _differ(here, there)
    me, other = (ana.tab.locator(".person label", has_text=name) for name in ("ana", "ben"))
    assert await _differ(me, other)

    await ana.looks_behind("Video service")
    switches = ana.panel.get_by_role("switch")
    await switches.nth(0).check()
    assert await _differ(switches.nth(0), switches.nth(1))

    await ana.composer.fill("/")
    commands = ana.tab.get_by_role("listbox", name="Commands").get_by_role("option")
    assert await _differ(commands.nth(0), commands.nth(1))
    form = await ana.opens_form()
    create, cancel = (form.get_by_role("button", name=name) for name in ("Create", "Cancel"))
    assert await _differ(create, cancel)
    # The first that is found is active at once.
    await form.get_by_label("Replica").fill("r-")
    options = form.get_by_role("option")
    await expect(options.filter(has_text="Ben")).to_be_visible()
    await expect(options.first).to_have_attribute("aria-selected", "true")
    assert await _differ(options.first, options.last)


async def test_nothing_moves_for_people_who_prefer_reduced_motion(page_world: PageWorld) -> None:
    ana = await page_world.window(reduced_motion="reduce")
    await ana.asks(SCRIPT)
    await ana.looks_behind("Jobs")
    await ana.opens_form()
    assert await ana.tab.evaluate(_MOVING) == []
