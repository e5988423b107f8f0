"""Makes the README's pictures of the sandbox's page: ``python -m tests.pictures``.

A small story is played under a clock of its own, so that each run gives the same pictures, but for
ids. After a change to the looks, make them again and look at them.
"""

import asyncio
import base64
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, expect

from sandbox.driver import Person
from tests.browser import PageWorld, Window, browser_runs
from tests.world import REPLICA

FOLDER: Final = Path(__file__).parent.parent / "docs" / "pictures"
_SIZE: Final = (1200, 750)
_NAME: Final = "Kim's first day"
_WELCOME: Final = "Welcome to the team, Kim! We are glad that you are here."
_NUMBERS: Final = "Our numbers for the first quarter, in one minute."


async def make() -> None:
    """Play the story and take the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with browser_runs() as browser:
        with tempfile.TemporaryDirectory() as folder:
            await _play(Path(folder), browser)


async def _play(folder: Path, browser: Browser) -> None:
    async with PageWorld(folder, browser).runs(MEDIA_HOSTS="127.0.0.1") as world:
        await _is_asked_for(world)
        ana = await world.window("ana", _SIZE, at=world.clock.now())
        await ana.tab.get_by_role("button", name="Close the first steps").click()
        await expect(ana.card("Anna in spring")).to_contain_text("Training")
        await _take(ana, "channel")

        await ana.opens_thread(ana.card(_NAME))
        await expect(ana.replies()).to_have_count(3)
        await _take(ana, "thread")
        await ana.thread.get_by_role("button", name="Close the thread").click()

        await _has_a_mistake(ana)
        await _take(ana, "form")
        await ana.presses("Cancel")

        await world.request_video(world.ben, {"script": _NUMBERS})
        await world.advance(seconds=50)
        await ana.tab.clock.set_fixed_time(world.clock.now())
        jobs = await ana.looks_behind("Jobs")
        await expect(jobs.get_by_role("listitem").filter(has_text=_NUMBERS)).to_be_visible()
        await expect(ana.card(_NUMBERS)).to_contain_text("Rendering")
        await _take(ana, "panel")


async def _is_asked_for(world: PageWorld) -> None:
    """Have a video made, and a replica trained."""
    ana, ben, cleo = world.ana, world.ben, Person(world.slack, "cleo")
    await ana.command("/replica", f"add {REPLICA}", "lobby")
    ben.say("Kim starts today. Who says welcome?")
    await world.advance(minutes=2)
    await world.request_video(ana, {"script": _WELCOME, "video_name": _NAME})
    await world.advance(minutes=4)
    cleo.say("Lovely, @ana! :tada: May I have a replica of you in spring?")
    await world.advance(minutes=3)
    await world.request_replica(ana, {"replica_name": "Anna in spring"})
    await world.advance(hours=1, minutes=20)


async def _has_a_mistake(window: Window) -> None:
    """Make the form show a mistake under a field."""
    form = await window.opens_form("/video The new office opens on Monday. Come and see it!")
    await window.picks("Replica", "Anna")
    await form.get_by_label("A web page").check()
    link = form.get_by_label("Web page link")
    await link.fill("http://localhost/office")
    await window.presses("Create")
    await expect(link).to_be_focused()
    await expect(link).to_have_attribute("aria-invalid", "true")


async def _take(window: Window, name: str) -> None:
    # The fonts are there, and what is drawn only once there is time for it is drawn.
    await window.tab.mouse.move(0, 0)
    await window.tab.evaluate("() => document.fonts.ready.then(() => true)")
    await window.tab.evaluate("() => new Promise(done => requestIdleCallback(() => done()))")
    png = await window.tab.screenshot(animations="disabled", caret="hide")
    aside = await window.tab.context.new_page()
    seen = await aside.evaluate(_IN_FEW_COLOURS, base64.b64encode(png).decode())
    await aside.close()
    picture = _png([row.encode("latin-1") for row in seen["rows"]], bytes(seen["palette"]))
    (FOLDER / f"{name}.png").write_bytes(picture)


# Takes a picture apart into its 256 commonest colours: each other one becomes the nearest of them.
_IN_FEW_COLOURS: Final = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (each) => each.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  const { data, width, height } = canvas.getImageData(0, 0, bitmap.width, bitmap.height);
  const parts = (colour) => [colour >> 16, colour >> 8 & 0xff, colour & 0xff];
  const pixels = Array.from({ length: width * height },
    (_, at) => data[at * 4] << 16 | data[at * 4 + 1] << 8 | data[at * 4 + 2]);
  const counts = new Map();
  for (const colour of pixels) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const colours = [...counts.keys()].sort((one, other) => counts.get(other) - counts.get(one));
  const palette = colours.slice(0, 256).map(parts);
  const away = (one, other) => one.reduce((sum, part, at) => sum + (part - other[at]) ** 2, 0);
  const nearest = (colour) => palette.reduce(
    (best, each, at) => away(colour, each) < away(colour, palette[best]) ? at : best, 0);
  const places = new Map(colours.map((colour) => [colour, nearest(parts(colour))]));
  const row = (at) => String.fromCharCode(
    ...pixels.slice(at * width, (at + 1) * width).map((colour) => places.get(colour)));
  return { rows: Array.from({ length: height }, (_, at) => row(at)), palette: palette.flat() };
}"""


def _png(rows: list[bytes], palette: bytes) -> bytes:
    """Return a picture as a file: https://www.w3.org/TR/png-3/#11Chunks."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = {b"IHDR": header, b"PLTE": palette, b"IDAT": pixels, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )


if __name__ == "__main__":
    asyncio.run(make())
