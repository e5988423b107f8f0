"""Requests on the sandbox's page, in a real browser: from a form or menu to the closing reply."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Locator, expect

from sandbox.faults import Reset
from sandbox.http import free_port
from sandbox.scenarios import CallbackPlan
from tests.browser import PageWorld, Window, Windows, within_limit
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


async def test_a_mistake_is_shown_under_its_field_and_no_input_is_lost(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    form = await ana.opens_form(f"/video {SCRIPT}")
    await ana.picks("Replica", REPLICA)
    await form.get_by_label("Name").fill("Kim's first day")
    await form.get_by_label("A web page").check()
    link = form.get_by_label("Web page link")
    await link.fill("http://localhost/office")
    await ana.presses("Create")

    await expect(link).to_have_accessible_description(
        re.compile("isn't reachable from the internet")
    )
    await expect(link).to_have_attribute("aria-invalid", "true")
    await expect(link).to_be_focused()
    await expect(link).to_have_value("http://localhost/office")
    await expect(form.get_by_label("Replica")).to_have_value(re.compile(REPLICA))
    await expect(form.get_by_label("Script")).to_have_value(SCRIPT)
    await expect(form.get_by_label("Name")).to_have_value("Kim's first day")
    await expect(form.get_by_label("A web page")).to_be_checked()

    await link.fill("https://example.com/office")
    await ana.presses("Create")

    await expect(ana.modal).to_be_hidden()
    await expect(ana.card("Kim's first day")).to_contain_text("Rendering")
    [create] = page_world.requests_for("create_video")
    assert create.body["background_url"] == "https://example.com/office"
    [video] = page_world.service.videos.values()
    assert (video.script, video.name) == (SCRIPT, "Kim's first day")


async def test_the_answer_appears_in_the_thread_without_a_reload(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.tab.evaluate("window.isSameAsEver = true")
    card = await ana.asks(SCRIPT)
    await expect(card).to_contain_text("Rendering")
    await expect(card.get_by_role("button", name="Watch")).to_have_count(0)

    await page_world.advance(minutes=3)

    await expect(card).to_contain_text("Ready")
    await expect(card.get_by_role("link", name="Watch")).to_be_visible()
    await ana.opens_thread(card)
    await expect(ana.replies()).to_have_count(2)
    await expect(ana.replies().nth(1)).to_contain_text(re.compile("@ana, “.+” is ready\\."))
    await expect(ana.replies().nth(1).get_by_role("blockquote")).to_have_text(SCRIPT)
    assert await ana.tab.evaluate("window.isSameAsEver")


async def test_a_form_that_got_no_answer_says_so_and_can_be_sent_again(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    form = await ana.opens_form(f"/video {SCRIPT}")
    await ana.picks("Replica", REPLICA)
    there = page_world.slack.request_url
    page_world.slack.request_url = f"http://127.0.0.1:{free_port()}/slack/events"
    await ana.presses("Create")
    problem = form.get_by_role("alert").filter(has_text="trouble connecting")
    await expect(problem).to_be_visible()
    await expect(form.get_by_label("Script")).to_have_value(SCRIPT)

    page_world.slack.request_url = there
    await ana.presses("Create")

    await expect(ana.modal).to_be_hidden()
    await expect(ana.card(SCRIPT)).to_contain_text("Rendering")
    assert page_world.created_count() == 1


async def test_on_the_page_of_the_command_a_video_can_be_requested_at_once(
    windows: Windows,
) -> None:
    sandbox = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sandbox", "--no-browser", f"--port={free_port()}"),
        cwd=Path(__file__).parent.parent.parent,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert sandbox.stdout is not None
        printed = await within_limit(sandbox.stdout.readuntil(b" in a browser"))
        ana = await windows.open(printed.decode().split()[1])
        await expect(ana.card("Training takes")).to_contain_text("steps done")
        welcome = ana.card("Welcome to the team, Kim!")
        await expect(welcome.get_by_role("link", name="Watch")).to_be_visible()

        card = await ana.asks("We have a page for it.", "r-anna")
        await expect(card).to_contain_text("Rendering")
        jobs = await ana.looks_behind("Jobs")
        job = jobs.get_by_role("listitem").filter(has_text="We have a page for it.")
        await job.get_by_role("button", name="Finish video").click()

        await expect(card).to_contain_text("Ready")
        await windows.close()
    finally:
        sandbox.terminate()
        assert await within_limit(sandbox.wait()) == 0


async def _knows_replicas(world: PageWorld) -> None:
    """Have the bot know Anna, Benno and Clara."""
    world.service.add_replica("r-benno-7", "Benno")
    world.service.add_replica("r-clara-1", "Clara")
    for replica in (REPLICA, "r-benno-7", "r-clara-1"):
        await world.ben.command("/replica", f"add {replica}", "lobby")
    await world.settle()


async def test_a_replica_is_found_while_typing_and_picked_with_the_keyboard(
    page_world: PageWorld,
) -> None:
    await _knows_replicas(page_world)
    ana = await page_world.window()
    form = await ana.opens_form()
    field, options = form.get_by_role("combobox", name="Replica"), form.get_by_role("option")
    await expect(field).to_be_focused()
    await field.press("ArrowDown")
    await expect(options).to_have_count(3)
    await field.press("ArrowDown")
    marked = options.and_(form.locator("[aria-selected=true]"))
    await expect(marked).to_have_count(1)
    first = await marked.inner_text()
    await field.press("ArrowDown")
    await expect(marked).not_to_have_text(first)
    await expect(field).to_have_attribute("aria-activedescendant", re.compile("option"))
    await field.press("Escape")
    await expect(options).to_have_count(0)
    await expect(ana.modal).to_be_visible()

    await field.press_sequentially("clara")
    await expect(options.filter(has_text="Clara").first).to_be_visible()
    await expect(marked).to_contain_text("Clara")
    await field.press("Enter")

    await expect(field).to_have_value(re.compile("Clara"))
    await expect(field).to_have_attribute("aria-expanded", "false")


AGAIN = "Create again"


async def _is_asked(world: PageWorld, ana: Window, *, made: bool = True) -> Locator:
    """Have the create call lose its answer, and return the card that asks about it."""
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=made))
    card = await ana.asks(SCRIPT)
    await expect(card).to_contain_text("Checking")
    await world.advance(minutes=16)
    await expect(card).to_contain_text("Needs an answer")
    await ana.opens_thread(card)
    await expect(_question(ana)).to_contain_text("Did this video get made?")
    return card


def _question(ana: Window) -> Locator:
    """Return the question in the open thread."""
    return ana.replies().nth(1)


async def _confirms(ana: Window, button: str) -> None:
    """Press a button of the dialog that asks once more."""
    dialog = ana.tab.get_by_role("alertdialog")
    await dialog.get_by_role("button", name=button, exact=True).click()
    await expect(dialog).to_have_count(0)


async def test_nothing_is_created_again_before_it_was_confirmed(page_world: PageWorld) -> None:
    ana = await page_world.window()
    card = await _is_asked(page_world, ana)
    button = _question(ana).get_by_role("button", name=AGAIN)
    await button.click()
    dialog = ana.tab.get_by_role("alertdialog", name="Create the video again?")
    await expect(dialog).to_have_accessible_description(re.compile("you.ll pay twice"))
    await _confirms(ana, "Keep waiting")
    await expect(button).to_be_focused()
    assert not _sent(page_world, "block_actions")
    assert page_world.created_count() == 1

    await button.click()
    await _confirms(ana, "Create again")
    await expect(card).not_to_contain_text("Needs an answer")
    await page_world.advance(minutes=10)

    await expect(card).to_contain_text("Ready")
    assert page_world.created_count() == 2


async def test_a_video_is_asked_for_without_a_mouse(page_world: PageWorld) -> None:
    ana = await page_world.window()
    keys = ana.tab.keyboard
    await expect(ana.composer).to_be_focused()
    await _tabs_to(ana, ana.tab.get_by_role("link", name="Skip to the composer"), "Shift+Tab")
    await keys.press("Enter")
    await expect(ana.composer).to_be_focused()

    await keys.type("/vi")
    commands = ana.tab.get_by_role("listbox", name="Commands")
    await expect(commands.get_by_role("option")).to_have_count(1)
    await keys.press("Enter")
    await expect(ana.composer).to_have_value("/video ")
    await keys.type(SCRIPT)
    await keys.press("Enter")

    await expect(ana.modal.get_by_label("Replica")).to_be_focused()
    await keys.type(REPLICA)
    await expect(ana.modal.get_by_role("option")).to_have_count(1)
    await keys.press("Enter")
    await keys.press("Tab")
    await expect(ana.modal.get_by_label("Script")).to_be_focused()
    await expect(ana.modal.get_by_label("Script")).to_have_value(SCRIPT)
    create = ana.modal.get_by_role("button", name="Create")
    await _tabs_to(ana, create)
    await keys.press("Enter")

    await expect(ana.modal).to_be_hidden()
    await expect(ana.composer).to_be_focused()
    await page_world.advance(minutes=3)
    await expect(ana.card(SCRIPT)).to_contain_text("Ready")


async def _tabs_to(window: Window, wanted: Locator, key: str = "Tab") -> None:
    """Press Tab until something has the focus."""
    for _ in range(40):
        if await wanted.evaluate("node => node === document.activeElement"):
            return
        await window.tab.keyboard.press(key)
    raise AssertionError("it can't be reached")


def _sent(world: PageWorld, kind: str) -> list[object]:
    """Return the requests of a kind that went from Slack to the bot."""
    shown = [world.slack.wire.shown(each) for each in world.slack.wire.exchanges]
    return [each for each in shown if str(each["about"]).startswith(kind)]


async def test_a_reply_that_is_told_to_the_channel_is_shown_there_and_in_its_thread(
    page_world: PageWorld,
) -> None:
    typed = {"script": "Welcome to the team, Kim!", "tell_channel": ["yes"]}
    await page_world.request_video(page_world.ana, typed)
    ana = await page_world.window()
    await expect(ana.channel.locator(":scope > li")).to_have_count(1)
    await page_world.advance(minutes=5)
    told = ana.card("Replied to a thread")
    await expect(told).to_contain_text("is ready")
    await told.get_by_role("button", name="Replied to a thread").click()
    await expect(ana.replies()).to_have_count(2)
    await expect(ana.replies().nth(1)).to_contain_text("is ready")


async def test_a_message_and_a_reply_are_made_a_video_from_their_menu(
    page_world: PageWorld,
) -> None:
    parent = page_world.ben.say(SCRIPT)
    page_world.ben.say("And thank you all.", thread_ts=parent.ts)
    ana = await page_world.window()
    message = ana.card(SCRIPT)
    await message.hover()
    more = message.get_by_role("button", name="More actions")
    await more.click()
    await ana.tab.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await more.press("Enter")
    await expect(ana.tab.get_by_role("menuitem", name="Make a video from this")).to_be_focused()
    await ana.tab.keyboard.press("Enter")
    await expect(ana.modal.get_by_label("Script")).to_have_value(SCRIPT)
    await ana.presses("Cancel")

    await ana.opens_thread(message)
    reply = ana.replies().filter(has_text="And thank you all.")
    await reply.hover()
    await reply.get_by_role("button", name="More actions").click()
    await ana.tab.get_by_role("menuitem", name="Make a video from this").click()
    await expect(ana.modal.get_by_label("Script")).to_have_value("And thank you all.")


LONG = "A sentence with an é. " * 300 + "The end."


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
