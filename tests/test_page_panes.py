"""The panes of the page, in a real browser: what stays in sight as they open and close."""

import pytest
from playwright.async_api import expect

from tests.browser import PHONE, PageWorld, within_limit

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


@pytest.mark.parametrize("size", [(1280, 800), PHONE], ids=["wide", "phone"])
async def test_a_thread_opened_from_behind_the_panel_has_room_to_reply(
    page_world: PageWorld, size: tuple[int, int]
) -> None:
    await page_world.request_video(page_world.ana, {"script": SCRIPT})
    await page_world.advance(minutes=3)
    ana = await page_world.window(size=size)
    await ana.tab.reload()
    await ana.looks_behind("Jobs")
    await ana.card(SCRIPT).get_by_role("button", name="1 reply").evaluate("node => node.click()")
    await expect(ana.panel).to_be_hidden()
    await expect(ana.thread).to_be_visible()

    reply = ana.thread.get_by_role("textbox", name="Reply in #studio")
    box = await reply.bounding_box()
    assert box is not None
    assert box["height"] > 30
    await expect(ana.thread.get_by_role("button", name="Close the thread")).to_be_focused()


async def test_the_composer_grows_with_what_is_typed_at_every_width(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.composer.fill("a few words " * 8)
    await ana.tab.set_viewport_size({"width": 420, "height": 800})
    hidden = """node => new Promise(resolve => requestAnimationFrame(() => setTimeout(
      () => resolve(node.scrollHeight - node.clientHeight))))"""
    assert await within_limit(ana.composer.evaluate(hidden)) == 0


async def test_the_newest_card_stays_in_sight_when_the_panel_opens(page_world: PageWorld) -> None:
    for number in range(8):
        await page_world.request_video(page_world.ana, {"script": f"{number}. {'All of it. ' * 9}"})
        page_world.ben.say(f"{number}: {'What a long message this is. ' * 12}")
    await page_world.request_video(page_world.ana, {"script": SCRIPT})
    await page_world.advance(minutes=3)
    ana = await page_world.window()
    newest = ana.card(SCRIPT)
    await expect(newest).to_be_in_viewport(ratio=1)
    for _ in range(2):
        await ana.looks_behind("Jobs")
        await expect(newest).to_be_in_viewport(ratio=1)
        await ana.panel.get_by_role("button", name="Close the panel").click()
        await expect(newest).to_be_in_viewport(ratio=1)
    await ana.tab.set_viewport_size({"width": 800, "height": 420})
    await expect(newest.get_by_role("link", name="Watch")).to_be_in_viewport()


@pytest.mark.parametrize("width", [1280, 390])
async def test_all_tabs_of_the_panel_are_in_sight(page_world: PageWorld, width: int) -> None:
    ana = await page_world.window(size=(width, 780))
    await ana.looks_behind("Jobs")
    for tab in await ana.panel.get_by_role("tab").all():
        await expect(tab).to_be_in_viewport(ratio=1)


# How far things have moved since the page was opened, as a share of what is seen, without what a
# person brought about: https://web.dev/articles/cls
_SHIFTS = """() => new Promise((resolve) => {
  const found = [];
  const note = (list) => found.push(...list.getEntries());
  const observer = new PerformanceObserver(note);
  observer.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => {
    note({ getEntries: () => observer.takeRecords() });
    resolve(found.reduce((sum, each) => sum + each.value, 0));
  }, 100);
})"""
_GOOD_SHIFT = 0.1


async def test_nothing_jumps_when_the_page_opens_and_when_messages_arrive(
    page_world: PageWorld,
) -> None:
    for number in range(40):
        page_world.ben.say(f"Message {number}")
    await page_world.request_video(page_world.ana, {"script": SCRIPT})
    ana = await page_world.window()
    await expect(ana.card(SCRIPT)).to_be_visible()
    opening = await within_limit(ana.tab.evaluate(_SHIFTS))
    assert opening < _GOOD_SHIFT
    await ana.card("Message 12").scroll_into_view_if_needed()
    await page_world.advance(minutes=3)
    page_world.ben.say("The newest of all")
    await expect(ana.tab.get_by_role("button", name="1 new message")).to_be_visible()
    assert await within_limit(ana.tab.evaluate(_SHIFTS)) - opening < _GOOD_SHIFT
