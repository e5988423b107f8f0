"""The field for a script file on the sandbox's page, in a real browser."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from tests.browser import PageWorld
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "A sentence with an é. " * 300 + "The end."

# Made in the browser: it takes long to get there.
_CHOOSE_LARGE: Final = """(field) => {
  const chosen = new DataTransfer();
  chosen.items.add(new File([new Uint8Array(10_000_001)], "long.txt"));
  field.files = chosen.files;
  field.dispatchEvent(new Event("change"));
}"""
# Of a video that is there.
_LOADED: Final = """(video) => new Promise((resolve, reject) => {
  if (video.readyState >= HTMLMediaElement.HAVE_METADATA) resolve();
  video.addEventListener("loadedmetadata", () => resolve());
  video.addEventListener("error", () => reject(video.error));
})"""


def text_file(name: str, content: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": content.encode()}


@pytest_asyncio.fixture(loop_scope="session")
async def filed(memory: Path, browser: Browser) -> AsyncIterator[PageWorld]:
    """A world whose bot takes long scripts and shows videos, with the page before it."""
    settings = {"MAX_SCRIPT": "20000", "MEDIA_HOSTS": "127.0.0.1"}
    async with PageWorld(memory, browser).runs(**settings) as world:
        await world.settle()
        yield world


async def test_a_script_file_is_chosen_removed_and_sent(filed: PageWorld) -> None:
    ana = await filed.window()
    form = await ana.opens_form()
    await ana.picks("Replica", REPLICA)
    field = form.get_by_label("Script file")
    await field.set_input_files(text_file("wrong #1.txt", "No."))
    await expect(form.get_by_role("listitem")).to_have_text(["wrong #1.txt3 bytes"])
    await expect(field).to_be_hidden()
    await form.get_by_role("button", name="Remove wrong #1.txt").press("Enter")
    await expect(form.get_by_role("listitem")).to_have_count(0)
    await expect(field).to_be_focused()

    await field.set_input_files(text_file("My script #2.txt", LONG))
    await expect(form.get_by_role("listitem")).to_contain_text("My script #2.txt7 KB")
    # The form changes, and the file stays.
    await form.get_by_label("A web page").check()
    await expect(form.get_by_label("Web page link")).to_be_visible()
    await form.get_by_label("No background").check()
    await expect(form.get_by_label("Web page link")).to_be_hidden()
    await expect(form.get_by_role("listitem")).to_contain_text("My script #2.txt")
    await ana.presses("Create")
    await expect(ana.modal).to_be_hidden()
    await filed.settle()
    assert [video.script for video in filed.service.videos.values()] == [LONG]


async def test_a_file_that_cannot_be_a_script_is_refused_under_its_field(filed: PageWorld) -> None:
    ana = await filed.window()
    form = await ana.opens_form()
    await ana.picks("Replica", REPLICA)
    field = form.get_by_label("Script file")
    await field.evaluate(_CHOOSE_LARGE)
    await expect(form.get_by_text("long.txt is larger than 10 MB.")).to_be_visible()
    await expect(form.get_by_role("listitem")).to_have_count(0)

    await field.set_input_files(
        {"name": "a.pdf", "mimeType": "application/pdf", "buffer": b"%PDF\x00"}
    )
    await expect(form.get_by_text("larger than 10 MB")).to_be_hidden()
    await ana.presses("Create")
    await expect(form.get_by_text("isn't a plain text file")).to_be_visible()
    assert not filed.service.videos


async def test_a_video_plays_in_its_thread_and_a_long_transcript_is_a_link_there(
    filed: PageWorld,
) -> None:
    ana = await filed.window()
    form = await ana.opens_form()
    await ana.picks("Replica", REPLICA)
    script = "Olá. " + LONG * 2
    await form.get_by_label("Script file").set_input_files(text_file("a.txt", script))
    await ana.presses("Create")
    await expect(ana.modal).to_be_hidden()
    await filed.settle()
    await filed.advance(minutes=5)
    await ana.tab.get_by_role("button", name="3 replies").click()
    player = ana.thread.get_by_label("Olá. A sentence").and_(ana.thread.locator("video"))
    await expect(player).to_have_count(1)
    await player.evaluate(_LOADED)
    await expect(ana.thread.get_by_role("link", name=".mp4")).to_contain_text("66 KB")
    link = ana.thread.get_by_role("link", name=".txt")
    await expect(link).to_contain_text("KB")
    address = await link.evaluate("(link) => link.href")
    answer = await ana.tab.request.get(address)
    assert await answer.text() == script
