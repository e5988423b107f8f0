"""The sandbox's page under axe-core's rules for WCAG 2.2, levels A and AA, in a real browser."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from bot.settings import environment
from sandbox.running import add_people
from tests.browser import REQUIRED, PageWorld, Window, within_limit
from tests.sandbox.page_content import has_everything

pytestmark = pytest.mark.asyncio(loop_scope="session")

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


async def _shows_people_with_titles(ana: Window) -> None:
    await _shows_drawer(ana)
    await ana.becomes("gus")
    await expect(ana.tab.locator("#people").get_by_text("Guest")).to_be_visible()


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


async def _shows_people(ana: Window) -> None:
    await ana.composer.press_sequentially("@")
    await expect(ana.tab.get_by_role("listbox", name="People")).to_be_visible()


async def _shows_shortcuts(ana: Window) -> None:
    await ana.tab.get_by_role("button", name="Shortcuts").click()
    await expect(ana.tab.get_by_role("menuitem", name="Create a video")).to_be_visible()


async def _shows_message_menu(ana: Window) -> None:
    card = ana.card("Kim's first day").first
    await card.hover()
    await card.get_by_role("button", name="More actions").click()
    await expect(ana.tab.get_by_role("menuitem", name="Make a video from this")).to_be_visible()


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
    "people with titles": (_shows_people_with_titles, "#sidebar"),
    "home": (_shows_home, "#channel"),
    "commands": (_shows_commands, "#composer"),
    "people": (_shows_people, "#composer"),
    "shortcuts": (_shows_shortcuts, "#composer"),
    "menu of a message": (_shows_message_menu, "#messages"),
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
