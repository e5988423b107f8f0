"""Makes the README's pictures of the sandbox's page, and the icon: ``python -m tests.pictures``.

Small stories are played under a clock of their own, so that each run gives the same pictures, but
for ids. After a change to the looks, make them again and look at them. The machine needs a font
with emoji, such as Debian's “fonts-noto-color-emoji”.
"""

import asyncio
import base64
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import Browser, Locator, expect
from playwright.async_api import Page as Tab

from sandbox.driver import Person
from tests.browser import PageWorld, Window, browser_runs, within_limit
from tests.world import REPLICA

FOLDER: Final = Path(__file__).parent.parent / "docs" / "pictures"
# In pixels, square, as Slack takes an icon: https://docs.slack.dev/reference/methods/apps.icon.set
_ICON: Final = 512
_SIZE: Final = (1200, 750)
_MOVING_SIZE: Final = (1040, 650)
_STILL: Final[dict[str, Any]] = {"reduced_motion": "reduce"}
# Of the video: pictures a second, and for how many seconds it plays.
_A_SECOND: Final = 8
_PLAYED: Final = 4
_NAME: Final = "Kim's first day"
_WELCOME: Final = "Welcome to the team, Kim! We are glad that you are here."
_NUMBERS: Final = "Our numbers for the first quarter, in one minute."


async def make() -> None:
    """Play the story and take the pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with browser_runs() as browser:
        await _draw_icon(browser)
        with tempfile.TemporaryDirectory() as folder:
            await _play(Path(folder), browser)
        with tempfile.TemporaryDirectory() as folder:
            await _moves(Path(folder), browser)


async def _draw_icon(browser: Browser) -> None:
    tab = await browser.new_page(viewport={"width": _ICON, "height": _ICON})
    drawing = (FOLDER / "icon.svg").read_text(encoding="utf-8")
    await tab.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block }}</style>{drawing}")
    await tab.screenshot(path=FOLDER / "icon.png")
    await tab.close()


async def _play(folder: Path, browser: Browser) -> None:
    async with PageWorld(folder, browser).runs(MEDIA_HOSTS="127.0.0.1") as world:
        await _is_asked_for(world)
        ana = await world.window("ana", _SIZE, at=world.clock.now())
        await ana.tab.get_by_role("button", name="Close the first steps").click()
        await expect(ana.card("Anna in spring")).to_contain_text("Training")
        await _take(ana, "channel")

        await ana.opens_thread(ana.card(_NAME))
        await expect(ana.replies()).to_have_count(3)
        await _plays_to(ana.thread.locator("video"), 2)
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
    await window.tab.mouse.move(0, 0)
    # What is drawn only once there is time for it is drawn.
    await window.tab.evaluate("() => new Promise(done => requestIdleCallback(() => done()))")
    await window.tab.screenshot(path=FOLDER / f"{name}.png", animations="disabled", caret="hide")


async def _plays_to(video: Locator, seconds: float) -> None:
    """Play it until then: nothing turns over the picture any more, as it does before it plays."""
    await within_limit(video.evaluate(_PLAYS_TO, seconds))


# Plays until a moment, and waits there.
_PLAYS_TO: Final = """(video, moment) => new Promise(done => {
  const look = () => {
    if (video.currentTime < moment) return requestAnimationFrame(look);
    video.pause();
    requestAnimationFrame(() => done());
  };
  video.muted = true;
  video.play();
  look();
})"""


class Film:
    """Takes pictures of a window one after the other."""

    def __init__(self, window: Window, aside: Tab) -> None:
        self._window = window
        self._aside = aside
        self._frames: list[Frame] = []

    async def show(self, milliseconds: int) -> None:
        """Show for a time what the window shows now."""
        png = await self._window.tab.screenshot(caret="initial")
        changed = await self._aside.evaluate(_WHAT_CHANGED, base64.b64encode(png).decode())
        if changed is None:
            last = self._frames[-1]
            self._frames[-1] = last._replace(milliseconds=last.milliseconds + milliseconds)
            return
        x, y, width, height, picture = changed
        webp = base64.b64decode(picture)
        self._frames.append(Frame(x, y, width, height, milliseconds, webp))

    def file(self) -> bytes:
        """Return all of it as a file."""
        return animated(*_MOVING_SIZE, self._frames)


# Returns the part that differs from the picture before: where it is, and itself as WebP.
_WHAT_CHANGED: Final = """async (png) => {
  const bytes = Uint8Array.from(atob(png), (each) => each.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes]));
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height).getContext("2d", { alpha: false });
  canvas.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer);
  const before = globalThis.before;
  globalThis.before = pixels;
  let [left, top, right, bottom] = before ? [width, height, 0, 0] : [0, 0, width, height];
  for (let at = 0; before && at < pixels.length; at += 1) {
    if (pixels[at] === before[at]) continue;
    const [x, y] = [at % width, Math.floor(at / width)];
    [left, top] = [Math.min(left, x), Math.min(top, y)];
    [right, bottom] = [Math.max(right, x + 1), Math.max(bottom, y + 1)];
  }
  if (right === 0) return null;
  [left, top] = [left - left % 2, top - top % 2];
  const part = new OffscreenCanvas(right - left, bottom - top);
  part.getContext("2d", { alpha: false }).drawImage(bitmap, -left, -top);
  const blob = await part.convertToBlob({ type: "image/webp", quality: 0.85 });
  const file = new Uint8Array(await blob.arrayBuffer());
  const text = Array.from(file, (each) => String.fromCharCode(each)).join("");
  return [left, top, part.width, part.height, btoa(text)];
}"""


async def _moves(folder: Path, browser: Browser) -> None:
    async with PageWorld(folder, browser).runs(MEDIA_HOSTS="127.0.0.1") as world:
        await world.ana.command("/replica", f"add {REPLICA}", "lobby")
        world.ben.say("Kim starts today. Who says welcome?")
        await world.settle()
        ana = await world.window("ana", _MOVING_SIZE, at=world.clock.now(), **_STILL)
        await ana.tab.get_by_role("button", name="Close the first steps").click()
        film = Film(ana, await browser.new_page())
        await film.show(900)
        command = f"/video {_WELCOME}"
        for length in range(1, len(command) + 1, 3):
            await ana.composer.fill(command[:length])
            await film.show(60)
        form = await ana.opens_form(command)
        await film.show(700)
        replica = form.get_by_role("combobox", name="Replica")
        await replica.fill("Anna")
        await expect(form.get_by_role("option")).not_to_have_count(0)
        await film.show(500)
        await ana.picks("Replica", "Anna")
        await form.get_by_label("Name").first.fill(_NAME)
        await film.show(900)
        await ana.presses("Create")
        await expect(ana.modal).to_be_hidden()
        for seconds in (12, 40):
            await world.advance(seconds=seconds)
            await ana.tab.clock.set_fixed_time(world.clock.now())
            await expect(ana.card(_NAME)).to_contain_text("Rendering")
            await film.show(800)
        await world.advance(minutes=4)
        await ana.tab.clock.set_fixed_time(world.clock.now())
        await expect(ana.card(_NAME)).to_contain_text("Ready")
        await film.show(900)
        await ana.opens_thread(ana.card(_NAME))
        await ana.tab.mouse.move(0, 0)
        video = ana.thread.locator("video")
        for number in range(1, _PLAYED * _A_SECOND):
            await _plays_to(video, number / _A_SECOND)
            await film.show(1000 // _A_SECOND)
        await film.show(1000)
        (FOLDER / "moving.webp").write_bytes(film.file())


# The canvas of the file is animated; no frame has an alpha channel.
_ANIMATED: Final = 0b10
# A frame replaces what lies under it, and stays for the next one.
_REPLACES: Final = 0b10
_PICTURES: Final = (b"VP8 ", b"VP8L")


class Frame(NamedTuple):
    """A picture of the part that has changed.

    Attributes:
        x: where it is, in pixels; even.
        y: likewise.
        width: in pixels.
        height: in pixels.
        milliseconds: for how long it is shown.
        picture: a WebP file.
    """

    x: int
    y: int
    width: int
    height: int
    milliseconds: int
    picture: bytes


def animated(width: int, height: int, frames: Sequence[Frame]) -> bytes:
    """Return a file in which the frames follow each other without end."""
    canvas = struct.pack("<I", _ANIMATED) + _uint24(width - 1) + _uint24(height - 1)
    chunks = [_chunk(b"VP8X", canvas), _chunk(b"ANIM", bytes(6))]
    for each in frames:
        numbers = (each.x // 2, each.y // 2, each.width - 1, each.height - 1, each.milliseconds)
        head = b"".join(map(_uint24, numbers)) + bytes([_REPLACES])
        chunks.append(_chunk(b"ANMF", head + b"".join(_pictures(each.picture))))
    return _chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def _pictures(file: bytes) -> Iterator[bytes]:
    """Yield the chunks of a file that hold its picture."""
    at = 12
    while at < len(file):
        name, size = struct.unpack_from("<4sI", file, at)
        if name in _PICTURES:
            yield _chunk(name, file[at + 8 : at + 8 + size])
        at += 8 + size + size % 2


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def _uint24(number: int) -> bytes:
    return number.to_bytes(3, "little")


if __name__ == "__main__":
    asyncio.run(make())
