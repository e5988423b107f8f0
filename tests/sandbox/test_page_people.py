"""What each person sees on the sandbox's page, in a real browser, also after interruptions."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from sandbox.block_kit import Json
from sandbox.page.server import Page
from sandbox.slack_objects import Message
from tests.browser import GONE, PageWorld, Window

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


# ── People ────────────────────────────────────────────────────────────────────────────────────


async def test_an_ephemeral_message_is_shown_to_its_recipient_only(page_world: PageWorld) -> None:
    ana, ben = await page_world.window("ana"), await page_world.window("ben")
    await ana.types("/video help")
    help_ = ana.card("open the form")
    await expect(help_).to_contain_text("Only visible to you")
    await ana.types("Hello, everybody!")
    await expect(ben.card("Hello, everybody!")).to_be_visible()
    await expect(ben.card("open the form")).to_have_count(0)

    said = ana.tab.get_by_role("log")
    await expect(said).to_contain_text("open the form")
    await ana.becomes("cleo")
    await expect(ana.card("Hello, everybody!")).to_be_visible()
    await expect(help_).to_have_count(0)
    assert "open the form" not in (await said.text_content() or "")
    await ana.becomes("ana")
    await expect(help_).to_be_visible()


async def test_an_unsent_draft_belongs_to_the_person_who_wrote_it(page_world: PageWorld) -> None:
    window = await page_world.window("ana")
    await window.composer.fill("I think that")
    await window.becomes("ben")
    await expect(window.composer).to_have_value("")
    await window.becomes("ana")
    await expect(window.composer).to_have_value("I think that")


# ── Breaks ────────────────────────────────────────────────────────────────────────────────────


async def _writes(page_world: PageWorld) -> Window:
    """Return a window in which there is something of everything."""
    ana = await page_world.window()
    card = await ana.asks(SCRIPT)
    await page_world.advance(minutes=3)
    await ana.types("/video help")
    await expect(ana.card("open the form")).to_be_visible()
    await ana.opens_thread(card)
    await expect(ana.replies()).to_have_count(2)
    return ana


async def test_a_reload_finds_everything_where_it_was(page_world: PageWorld) -> None:
    ana = await _writes(page_world)
    form = await ana.opens_form("/video Half a sentence")
    before = await ana.channel.get_by_role("listitem").all_inner_texts()
    await ana.tab.reload()

    await expect(form.get_by_label("Script")).to_have_value("Half a sentence")
    await ana.presses("Cancel")
    await expect(ana.modal).to_be_hidden()
    await expect(ana.replies()).to_have_count(2)
    assert await ana.channel.get_by_role("listitem").all_inner_texts() == before


@pytest.mark.parametrize("new_server", [False, True], ids=["the same server", "another server"])
async def test_nothing_is_lost_or_doubled_after_the_server_was_away(
    page_world: PageWorld, *, new_server: bool
) -> None:
    ana = await _writes(page_world)
    messages = ana.channel.get_by_role("listitem")
    before = await messages.all_inner_texts()
    page_world.windows.forgiven = GONE
    await page_world.page.stop()
    away = ana.tab.get_by_role("status")
    await expect(away).to_contain_text(re.compile("Connecting|has ended"))
    await ana.types("Is anybody there?")
    problem = ana.tab.get_by_role("alert").filter(has_text="The sandbox does not answer")
    await expect(problem).to_be_visible()
    await expect(ana.composer).to_have_value("Is anybody there?")
    page_world.ben.say("Written meanwhile")

    port = urlsplit(page_world.page.url).port
    assert port
    if new_server:
        page_world.page = Page(page_world.slack, page_world.service)
    await page_world.page.start(port)

    await expect(ana.card("Written meanwhile")).to_have_count(1)
    await expect(away).to_be_hidden()
    await expect(problem).to_have_count(0)
    await ana.composer.press("Enter")
    await expect(ana.card("Is anybody there?")).to_have_count(1)
    page_world.ben.say("Written afterwards")
    await expect(ana.card("Written afterwards")).to_have_count(1)
    now = await messages.all_inner_texts()
    assert len(now) == len(before) + 3
    assert now[: len(before)] == before
    await expect(ana.replies()).to_have_count(2)


# Playwright shows all tabs at once: this is what a hidden tab gets from a real browser.
_TURNS_AWAY = """isHidden => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
_SIX_AND_MORE = 7


async def test_any_number_of_tabs_can_be_open_and_each_catches_up_when_it_is_seen(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    last = ana
    for _ in range(_SIX_AND_MORE):
        await last.tab.evaluate(_TURNS_AWAY, True)
        last = Window(await ana.tab.context.new_page())
        await last.tab.goto(f"{page_world.page.url}/?as=ana")
    await last.types("Is there room for me?")
    await expect(last.card("Is there room for me?")).to_be_visible()
    page_world.ben.say("There is.")
    await expect(last.card("There is.")).to_be_visible()
    await expect(ana.card("There is.")).to_have_count(0)

    await ana.tab.evaluate(_TURNS_AWAY, False)

    await expect(ana.card("Is there room for me?")).to_have_count(1)
    await expect(ana.card("There is.")).to_have_count(1)


# ── Words of all sorts ────────────────────────────────────────────────────────────────────────

HOSTILE = (
    "<script>window.harm = 1</script> <img src=x onerror='window.harm = 2'> <!channel> "
    "<https://example.com|click> *not bold* `no code` :tada: &amp; <@U000000002> javascript:1"
)


async def test_hostile_text_is_text(page_world: PageWorld) -> None:
    ana = await page_world.window()
    card = await ana.asks(HOSTILE)
    await expect(card).to_contain_text(HOSTILE[:40])
    await page_world.advance(minutes=3)
    await ana.opens_thread(card)
    said = ana.replies().nth(1).get_by_role("blockquote")
    await expect(said).to_have_text(HOSTILE)
    await expect(said.locator("b, strong, code, a, img")).to_have_count(0)

    await ana.types(f"To all: {HOSTILE}")
    await expect(ana.card("To all:")).to_contain_text(HOSTILE[:65])
    title = HOSTILE.replace(":tada:", "")
    blocks: list[Json] = [
        {"type": "header", "text": {"type": "plain_text", "text": title}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "<javascript:window.harm=3|Here>"}},
        {"type": "image", "image_url": "javascript:window.harm=4", "alt_text": HOSTILE},
        _button("Press", url="javascript:window.harm=5"),
    ]
    _posts(page_world, "Hostile", blocks)
    posted = ana.card("Press")
    await expect(posted.get_by_role("heading")).to_have_text(title)
    await expect(posted.get_by_text("Here")).to_be_visible()
    await expect(posted.get_by_role("link")).to_have_count(0)

    await expect(ana.tab.locator(".message script, .message img")).to_have_count(0)
    assert await ana.tab.evaluate("window.harm") is None


async def test_a_block_that_cannot_be_drawn_says_so_and_the_rest_is_drawn(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    picker = {"type": "datepicker", "action_id": "day"}
    blocks: list[Json] = [
        {"type": "header", "text": {"type": "plain_text", "text": "Before"}},
        {"type": "table", "rows": []},
        {"type": "section", "text": {"type": "mrkdwn", "text": "*Between*"}},
        {"type": "actions", "elements": [picker, *_button("Press")["elements"]]},
        {"type": "rich_text", "elements": [{"type": "rich_text_sketch"}]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "_After_"}]},
    ]
    _posts(page_world, "Of all sorts", blocks)
    posted = ana.card("Before")

    cannot = posted.get_by_text(re.compile("^Cannot draw this: "))
    kinds = ["table", "datepicker", "rich_text_sketch"]
    await expect(cannot).to_have_text([f"Cannot draw this: {kind}" for kind in kinds])
    await expect(posted.locator("strong").filter(has_text="Between")).to_be_visible()
    await expect(posted.get_by_role("button", name="Press")).to_be_visible()
    await expect(posted.locator("em, i").filter(has_text="After")).to_be_visible()


def _button(words: str, **more: str) -> Json:
    text = {"type": "plain_text", "text": words}
    button = {"type": "button", "action_id": "press", "text": text, **more}
    return {"type": "actions", "elements": [button]}


def _posts(world: PageWorld, text: str, blocks: list[Json]) -> None:
    """Have the app post blocks that the bot has no use for."""
    studio, app = world.slack.channel("studio").id, world.slack.bot.id
    world.slack.post(Message(studio, "", app, text, blocks, is_from_bot=True))
