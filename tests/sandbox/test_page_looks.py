"""How the sandbox's page looks, in a real browser: on phones, to screen readers, to axe-core."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from bot.settings import environment
from sandbox.faults import Reset
from sandbox.running import add_people
from sandbox.scenarios import CallbackPlan, Scenario
from tests.browser import PHONE, REQUIRED, PageWorld, Window, within_limit
from tests.world import REPLICA, World

pytestmark = pytest.mark.asyncio(loop_scope="session")


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


_MOVING: Final = """() => [...document.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node);
  const longest = (times) => Math.max(...times.split(",").map(parseFloat));
  const takes = Math.max(longest(style.animationDuration), longest(style.transitionDuration));
  const goesOn = style.animationName !== "none" && style.animationIterationCount === "infinite";
  return takes > 0.01 || goesOn || style.scrollBehavior === "smooth";
}).map((node) => node.outerHTML.slice(0, 100))"""


async def test_nothing_moves_for_people_who_prefer_reduced_motion(page_world: PageWorld) -> None:
    ana = await page_world.window(reduced_motion="reduce")
    await ana.asks(SCRIPT)
    await ana.looks_behind("Jobs")
    await ana.opens_form()
    assert await ana.tab.evaluate(_MOVING) == []


_AXE: Final = Path(__file__).parent.parent / "axe/node_modules/axe-core/axe.min.js"
_MISSING: Final = (
    "axe-core is not installed here, and these tests need it: "
    "npm ci --ignore-scripts --prefix tests/axe"
)
_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
# Nothing else depends on the scheme: axe-core's other rules read the document and its layout.
_OF_COLOURS: Final = ("color-contrast", "link-in-text-block")
# Of each rule that is broken: its name, and the elements that break it.
_RUN: Final = """async ([part, rules]) => {
  await Promise.allSettled(document.getAnimations().map((each) => each.finished));
  const { violations } = await axe.run(part, { runOnly: rules, resultTypes: ["violations"] });
  const what = ({ html, any }) => `${html.slice(0, 150)} ${any[0]?.message ?? ""}`;
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(what).join(" AND ")}`);
}"""

_FILE: Final[FilePayload] = {
    "name": "script.txt",
    "mimeType": "text/plain",
    "buffer": b"Welcome to the team, Kim!",
}
_SCHEMES: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "forced_colors": "none"},
    "dark": {"color_scheme": "dark", "forced_colors": "none"},
    "forced colours": {"color_scheme": "light", "forced_colors": "active"},
}
# The drawer is open in the first two. At 200 %, a window has room for half as much each way.
_SIZES: Final = {"390 px": (390, 780), "200 %": (640, 400), "wide": (1280, 800)}


async def _shows_channel(ana: Window) -> None:
    await expect(ana.card("Kim's first day").first).to_be_visible()


async def _shows_drawer(ana: Window) -> None:
    menu = ana.tab.get_by_role("button", name="Channels and people")
    await menu.click()
    await expect(menu).to_have_attribute("aria-expanded", "true")


async def _shows_home(ana: Window) -> None:
    await _shows_drawer(ana)
    await ana.goes_to("Replica Videos")
    await ana.tab.get_by_role("tab", name="Home").click()
    await expect(ana.tab.locator("#home").get_by_role("button").first).to_be_visible()


async def _shows_commands(ana: Window) -> None:
    await ana.types("/vidoe")
    await expect(ana.tab.get_by_text("/vidoe is not a command")).to_be_visible()
    await ana.composer.fill("/")
    await expect(ana.tab.get_by_role("listbox", name="Commands")).to_be_visible()


async def _shows_menu_of_card(ana: Window) -> None:
    await ana.card("Kim's first day").get_by_role("button", name="More options").first.click()
    await expect(ana.tab.get_by_role("menuitem", name="Details")).to_be_visible()


async def _shows_details(ana: Window) -> None:
    await _shows_menu_of_card(ana)
    await ana.tab.get_by_role("menuitem", name="Details").click()
    await expect(ana.modal).to_be_visible()


async def _shows_thread(ana: Window) -> None:
    await ana.opens_thread(ana.card("Kim's first day"))


async def _shows_form(ana: Window) -> None:
    await ana.opens_form()
    await ana.modal.get_by_label("A web page").check()
    await expect(ana.modal.get_by_label("Web page link")).to_be_visible()


async def _shows_form_with_errors(ana: Window) -> None:
    await ana.opens_form()
    await ana.modal.get_by_label("Script file").set_input_files(_FILE)
    await expect(ana.modal.get_by_role("button", name="Remove script.txt")).to_be_visible()
    await ana.presses("Create")
    await expect(ana.modal.get_by_text("complete this required").first).to_be_visible()
    await ana.modal.get_by_label("Replica").press("ArrowDown")
    await expect(ana.modal.get_by_role("option")).not_to_have_count(0)


async def _shows_scenarios(ana: Window) -> None:
    await ana.looks_behind("Scenarios")


async def _shows_scenario(ana: Window) -> None:
    await _shows_scenarios(ana)
    await ana.panel.get_by_role("button", name="Play “A video that fails”").click()
    await expect(ana.tab.locator("#scenario").get_by_role("listitem").first).to_be_visible()


async def _shows_jobs(ana: Window) -> None:
    jobs = await ana.looks_behind("Jobs")
    await jobs.get_by_role("button", name="Fail…").first.click()
    await expect(jobs.get_by_label("Reason").locator("visible=true")).to_be_focused()


async def _shows_service(ana: Window) -> None:
    await ana.looks_behind("Video service")


async def _shows_slack(ana: Window) -> None:
    await ana.looks_behind("Slack")


async def _shows_wire(ana: Window) -> None:
    wire = await ana.looks_behind("Wire")
    await wire.locator("details").first.evaluate("node => node.open = true")
    await expect(wire.locator(".wire-path").first).to_be_visible()


# What shows each view, and the part of the page that is new in it.
_View: TypeAlias = tuple[Callable[[Window], Awaitable[None]], str]
_CHANNEL: Final[dict[str, _View]] = {
    "channel": (_shows_channel, "html"),
    "drawer": (_shows_drawer, "#sidebar"),
    "home": (_shows_home, "#channel"),
    "commands": (_shows_commands, "#composer"),
    "menu of a card": (_shows_menu_of_card, "#messages"),
}
_MODALS: Final[dict[str, _View]] = {
    "details": (_shows_details, "#modal"),
    "thread": (_shows_thread, "#thread"),
    "form": (_shows_form, "#modal"),
    "form with errors": (_shows_form_with_errors, "#modal"),
}
_PANEL: Final[dict[str, _View]] = {
    "scenarios": (_shows_scenarios, "#panel"),
    "scenario": (_shows_scenario, "#scenario"),
    "jobs": (_shows_jobs, "#panel"),
}
_TRAFFIC: Final[dict[str, _View]] = {
    "video service": (_shows_service, "#panel"),
    "slack": (_shows_slack, "#panel"),
    "wire": (_shows_wire, "#panel"),
}


@pytest_asyncio.fixture(loop_scope="session")
async def filed(memory: Path, browser: Browser) -> AsyncIterator[PageWorld]:
    """A world whose form has a field for a file, with people who have titles."""
    world = PageWorld(memory, browser)
    add_people(world.slack)
    async with world.runs(MAX_SCRIPT="20000"):
        yield world


@pytest.fixture
def axe() -> str:
    """axe-core's script."""
    if not _AXE.exists():
        if environment(with_file=False).get(REQUIRED):
            raise LookupError(_MISSING)
        pytest.skip(_MISSING)
    return _AXE.read_text()


async def _findings(window: Window, axe: str, part: str) -> dict[str, list[str]]:
    """Return what axe-core finds, by size and scheme."""
    await window.tab.evaluate(axe)
    found: dict[str, list[str]] = {}
    for size, (width, height) in _SIZES.items():
        await window.tab.set_viewport_size({"width": width, "height": height})
        # Sizes change what is shown, and schemes its colours: no need for each with each.
        for scheme, media in _SCHEMES.items() if size == "wide" else [("light", _SCHEMES["light"])]:
            await window.tab.emulate_media(**media)
            rules = _TAGS if scheme == "light" else _OF_COLOURS
            broken = await within_limit(window.tab.evaluate(_RUN, [part, rules]))
            found |= {f"{size}, {scheme}": broken} if broken else {}
    return found


# In parts, so that each process that runs tests may do one.
@pytest.mark.slow
@pytest.mark.parametrize(
    "views",
    [
        pytest.param(_CHANNEL, id="channel"),
        pytest.param(_MODALS, id="thread and modals"),
        pytest.param(_PANEL, id="panel"),
        pytest.param(_TRAFFIC, id="traffic"),
    ],
)
async def test_axe_finds_nothing_on_any_view(
    views: dict[str, _View], filed: PageWorld, axe: str
) -> None:
    await has_everything(filed)
    found: dict[str, dict[str, list[str]]] = {}
    for name, (shows, part) in views.items():
        ana = await filed.window(size=_SIZES["390 px"])
        await shows(ana)
        if broken := await _findings(ana, axe, part):
            found[name] = broken
        await ana.tab.close()
    assert found == {}


async def test_axe_finds_nothing_on_the_watch_page(page_world: PageWorld, axe: str) -> None:
    for _ in range(3):
        await page_world.request_video(page_world.ana)
    ready, failed, _ = page_world.service.videos
    page_world.service.finish(ready)
    page_world.service.fail(failed, "The replica is shy")
    ana = await page_world.window()
    for video in page_world.service.videos:
        await ana.tab.goto(f"{page_world.service.url}/watch/{video}")
        assert await _findings(ana, axe, "html") == {}


SCRIPT = "Welcome to the team, Kim!"


async def has_everything(world: World) -> None:
    """Have cards of every look in the channel, and ephemeral messages."""
    await world.ana.command("/replica", f"add {REPLICA}")
    await world.request_video(world.ana, {"script": SCRIPT, "video_name": "Kim's first day"})
    world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    await world.request_video(world.ben, {"script": "A few words on our competitors."})
    await world.after(world.request_replica(world.ben, {"replica_name": "Ben"}), minutes=10)
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    await world.request_video(world.ana, {"script": "Our numbers in one minute."})
    await world.advance(minutes=16)
    await world.ana.command("/video", "list")
    world.ben.say("Thank you, *@ana*! `Nice`, see https://example.com and _this_:\n> well said")
    await world.settle()
