"""The sandbox's page in a real browser, with the real bot behind it.

The browser is the machine's own Chromium, one for each worker; each window is a profile of its own.
"""

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Request,
    Response,
    async_playwright,
    expect,
)
from playwright.async_api import Page as Tab

from bot.settings import environment
from bot.timings import Timings
from sandbox.page.server import Page
from sandbox.running import APP
from tests.world import REPLICA, World

#: Set this where a browser is required: tests then fail without one, instead of being skipped.
REQUIRED: Final = "CHROMIUM_REQUIRED"
# The first one opens a window with a quarter of the others' work.
_NAMES: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
_MISSING: Final = (
    "no Chromium is installed here, and these tests need it: "
    "install your system's package, such as Debian's “chromium-headless-shell”"
)
# It must fetch nothing from elsewhere: only the names of this machine are resolved.
_ARGUMENTS: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Long, for shared machines: what is waited for normally comes within a fraction of it.
_PATIENCE_MILLISECONDS: Final = 15_000
# Requests that the browser cancels itself, when it leaves a page or stops a video.
_CANCELLED: Final = "net::ERR_ABORTED"

#: The errors that a browser reports while the server is away.
GONE: Final = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET"

# The part of a script that its card shows at least, in characters.
_NAMED: Final = 40

WIDE: Final = (1280, 800)
PHONE: Final = (360, 740)

_Result = TypeVar("_Result")


@contextlib.asynccontextmanager
async def browser_runs() -> AsyncIterator[Browser]:
    """Start the machine's Chromium and stop it at the end; raises ``LookupError`` without one."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        raise LookupError(_MISSING)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


async def within_limit(awaited: Awaitable[_Result]) -> _Result:
    """Await a script in the page, with a time limit: Playwright itself has none."""
    async with asyncio.timeout(_PATIENCE_MILLISECONDS / 1000):
        return await awaited


class Window:
    """The page as one person has it open.

    Attributes:
        tab: the browser's tab.
        composer: where they write into the channel.
        channel: the messages in the middle.
        thread: the pane beside them.
        modal: the form in front of everything.
        panel: what is behind the scenes.
    """

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.composer = tab.get_by_role("textbox", name=re.compile("^Message "))
        self.channel = tab.get_by_role("list", name=re.compile("^Messages in (?!the thread)"))
        self.thread = tab.get_by_role("complementary", name="Thread")
        self.modal = tab.get_by_role("dialog")
        self.panel = tab.get_by_role("complementary", name="Behind the scenes")

    async def types(self, text: str) -> None:
        """Write a line into the channel and send it off, which no dialog lies over."""
        await expect(self.modal).to_be_hidden()
        await self.composer.fill(text)
        await self.composer.press("Enter")

    async def opens_form(self, command: str = "/video") -> Locator:
        """Type a command and return the form that it opened."""
        await self.types(command)
        await expect(self.modal).to_be_visible()
        return self.modal

    async def picks(self, label: str, words: str) -> None:
        """Choose in a field with type-ahead the option found for ``words``.

        A replica that is known is shown with its name alone.
        """
        field = self.modal.get_by_role("combobox", name=label)
        await field.fill(words)
        found = f"{re.escape(words)}|^Anna$" if words in REPLICA else re.escape(words)
        option = self.modal.get_by_role("option", name=re.compile(found))
        await option.first.click()

    async def presses(self, button: str) -> None:
        """Press a button of the form in front, and wait until one that is cancelled is gone."""
        await self.modal.get_by_role("button", name=button, exact=True).click()
        if button == "Cancel":
            await expect(self.modal).to_be_hidden()

    async def asks(self, script: str, replica: str = REPLICA) -> Locator:
        """Ask for a video with the form and return its card."""
        await self.opens_form()
        await self.picks("Replica", replica)
        await self.modal.get_by_label("Script").fill(script)
        await self.presses("Create")
        await expect(self.modal).to_be_hidden()
        card = self.card(script[:_NAMED])
        await expect(card).to_be_visible()
        return card

    def card(self, words: str) -> Locator:
        """Return the message in the channel that has these words."""
        return self.channel.locator(":scope > li").filter(has_text=words)

    def replies(self) -> Locator:
        """Return the messages of the open thread, its parent first."""
        thread = self.thread.get_by_role("list", name="Messages in the thread")
        return thread.get_by_role("listitem")

    async def opens_thread(self, card: Locator) -> None:
        """Open the thread of a message that has replies."""
        await card.get_by_role("button", name=re.compile(r"\d repl(y|ies)")).click()
        await expect(self.thread).to_be_visible()

    async def becomes(self, name: str) -> None:
        """Switch to another person, until the page shows what they see and follows it."""
        async with self.tab.expect_request(re.compile(r"/api/events\?as=")):
            await self.tab.get_by_role("radio", name=name).check()

    async def goes_to(self, place: str) -> None:
        """Go to a channel or to a direct message."""
        sidebar = self.tab.get_by_role("navigation", name="Channels and people")
        await sidebar.get_by_role("button", name=re.compile(f"^{place}")).click()
        await expect(self.tab.get_by_role("heading", level=1)).to_have_text(place)

    async def looks_behind(
        self, tab: Literal["Scenarios", "Jobs", "Video service", "Slack", "Wire"]
    ) -> Locator:
        """Open the panel at one of its tabs and return what is on it."""
        if not await self.panel.is_visible():
            await self.tab.get_by_role("button", name="Behind the scenes").click()
        await self.panel.get_by_role("tab", name=tab, exact=True).click()
        return self.panel.get_by_role("tabpanel", name=tab, exact=True)


class Windows:
    """The windows of a test, and the errors that the browser reported in them.

    Attributes:
        forgiven: a pattern of errors that are allowed; none if empty.
    """

    def __init__(self, browser: Browser) -> None:
        self.forgiven = ""
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []

    async def open(
        self,
        url: str,
        name: str = "ana",
        size: tuple[int, int] = WIDE,
        place: str = "",
        at: datetime | None = None,
        **profile: Any,  # noqa: ANN401 - whatever a browser's profile can have
    ) -> Window:
        """Open the page as a person.

        Args:
            url: where it is.
            name: who.
            size: of what is seen, in pixels.
            place: the channel to begin in.
            at: what the browser takes for now; its own time if None.
            profile: for Playwright's ``new_context``.
        """
        width, height = size
        settings: Mapping[str, Any] = {
            "viewport": {"width": width, "height": height},
            "locale": "en-US",
            "timezone_id": "UTC",
            **profile,
        }
        context = await self._browser.new_context(**settings)
        self._contexts.append(context)
        context.set_default_timeout(_PATIENCE_MILLISECONDS)
        self._listen(context)
        if at is not None:
            await context.clock.set_fixed_time(at)
        tab = await context.new_page()
        await tab.goto(f"{url}/?as={name}{f'#{place}' if place else ''}")
        # On a phone they lie in the drawer, where no role is found.
        await expect(tab.locator(f"#people [value={name}]")).to_be_checked()
        return Window(tab)

    async def close(self) -> None:
        """Close them all."""
        while self._contexts:
            await self._contexts.pop().close()

    def complaints(self) -> list[str]:
        """Return the errors that the browser reported, except those allowed."""
        return [
            each
            for each in self._complaints
            if not (self.forgiven and re.search(self.forgiven, each))
        ]

    def _listen(self, context: BrowserContext) -> None:
        """Record each error of the browser, and each request that leaves this machine."""

        def said(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                where = message.location
                self._complaints.append(f"console: {message.text} ({where.get('url')})")

        def asked(request: Request) -> None:
            address = urlsplit(request.url)
            if address.scheme in {"http", "https"} and address.hostname != "127.0.0.1":
                self._complaints.append(f"a request to elsewhere: {request.url}")

        def failed(request: Request) -> None:
            if request.failure != _CANCELLED:
                self._complaints.append(f"request failed: {request.url} {request.failure}")

        def answered(response: Response) -> None:
            if not response.ok and response.status != HTTPStatus.NOT_MODIFIED:
                self._complaints.append(f"HTTP {response.status}: {response.url}")

        context.on("console", said)
        context.on(
            "weberror", lambda error: self._complaints.append(f"uncaught: {error.error.message}")
        )
        context.on("request", asked)
        context.on("requestfailed", failed)
        context.on("response", answered)


class PageWorld(World):
    """A world with the page before it, and windows on that; ``page`` is the page's server."""

    def __init__(self, folder: Path, browser: Browser, timings: Timings | None = None) -> None:
        # The clock stands still, and a card that waits for it would never come.
        super().__init__(folder, timings or Timings(jitter=0, card_delay=timedelta(0)))
        self.slack.app = APP
        self.page = Page(self.slack, self.service, store=lambda: self.bot.store)
        self.windows = Windows(browser)

    @contextlib.asynccontextmanager
    async def runs(self, **settings: Any) -> AsyncIterator["PageWorld"]:  # noqa: ANN401 - as `running_bot` takes it
        """Start everything and stop it; fail if the browser reported errors."""
        async with self.running_sandbox(), self.running_bot(**settings):
            await self.page.start(0)
            try:
                yield self
            finally:
                await self.windows.close()
                await self.page.stop()
        assert not self.windows.complaints()

    async def window(self, name: str = "ana", size: tuple[int, int] = WIDE, **how: Any) -> Window:  # noqa: ANN401 - as `Windows.open` takes it
        """Open the page as a person, as ``Windows.open`` does."""
        return await self.windows.open(self.page.url, name, size, **how)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The machine's Chromium, started once for all tests of a worker."""
    expect.set_options(timeout=_PATIENCE_MILLISECONDS)
    try:
        async with browser_runs() as started:
            yield started
    except LookupError as error:
        if environment(with_file=False).get(REQUIRED):
            raise
        pytest.skip(str(error))


@pytest_asyncio.fixture(loop_scope="session")
async def windows(browser: Browser) -> AsyncIterator[Windows]:
    """Windows on a page that the test itself has somewhere."""
    windows = Windows(browser)
    yield windows
    await windows.close()
    assert not windows.complaints()


@pytest_asyncio.fixture(loop_scope="session")
async def page_world(memory: Path, browser: Browser) -> AsyncIterator[PageWorld]:
    """A world whose bot runs, with the page before it."""
    async with PageWorld(memory, browser).runs() as world:
        yield world
