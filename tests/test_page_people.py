"""What each person sees on the sandbox's page, in a real browser, also after interruptions."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Locator, expect

from sandbox.block_kit import Json
from sandbox.page.server import Page
from sandbox.scenarios import Scenario
from sandbox.slack_objects import Message
from tests.browser import GONE, PageWorld, Window, within_limit

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

    await ana.becomes("cleo")
    await expect(ana.card("Hello, everybody!")).to_be_visible()
    await expect(help_).to_have_count(0)
    await ana.becomes("ana")
    await expect(help_).to_be_visible()


async def test_another_persons_button_says_whose_it_is(page_world: PageWorld) -> None:
    page_world.service.next_video(Scenario(end="error", reason="The replica is shy"))
    ana, ben = await page_world.window("ana"), await page_world.window("ben")
    await ana.asks(SCRIPT)
    await page_world.advance(minutes=3)
    card = ben.card(SCRIPT)
    await card.get_by_role("button", name="Edit and retry").click()

    shown = ben.card("Only @ana or an admin can do that.")
    await expect(shown).to_contain_text("Only visible to you")
    await expect(ben.modal).to_be_hidden()
    await expect(ana.card("or an admin can do that")).to_have_count(0)


async def test_an_unsent_draft_belongs_to_the_person_who_wrote_it(page_world: PageWorld) -> None:
    window = await page_world.window("ana")
    await window.composer.fill("I think that")
    await window.becomes("ben")
    await expect(window.composer).to_have_value("")
    await window.becomes("ana")
    await expect(window.composer).to_have_value("I think that")


# ── News ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_new_message_in_another_channel_is_marked_until_it_is_read(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window("ana", place="lobby")
    await expect(ana.tab.get_by_role("heading", level=1)).to_have_text("lobby")
    place = ana.tab.get_by_role("navigation").get_by_role("button", name=re.compile("^studio"))
    await expect(place).to_have_accessible_name("studio")
    page_world.ben.say("Has anybody seen the numbers?")
    await expect(place).to_have_accessible_name("studio (1 new)")
    page_world.ben.say("You, @ana?")
    await expect(place).to_have_accessible_name("studio (2 new)")
    await expect(place.locator("[aria-hidden=true]").filter(has_text="1")).to_be_visible()

    await ana.goes_to("studio")

    await expect(place).to_have_accessible_name("studio")
    await ana.tab.reload()
    await expect(place).to_have_accessible_name("studio")


async def test_an_answer_in_my_thread_is_marked_until_it_is_read(
    page_world: PageWorld,
) -> None:
    ana, cleo = await page_world.window("ana"), await page_world.window("cleo")
    card = await ana.asks(SCRIPT)
    await ana.goes_to("lobby")
    await page_world.advance(minutes=3)
    news = ana.tab.get_by_role("navigation").get_by_role("button", name="1 new reply")
    await expect(news).to_contain_text(SCRIPT)
    await expect(cleo.card(SCRIPT)).to_contain_text("Ready")
    await expect(cleo.tab.get_by_role("navigation")).not_to_contain_text("1 new reply")

    await news.click()

    await expect(ana.replies().nth(1)).to_contain_text("your video is ready")
    await expect(news).to_have_count(0)
    await expect(card).to_be_visible()


async def test_a_reader_who_has_scrolled_up_is_notified_of_news_and_not_moved(
    page_world: PageWorld,
) -> None:
    for number in range(60):
        page_world.ben.say(f"Message {number}")
    ana = await page_world.window()
    read = ana.card("Message 12")
    await read.scroll_into_view_if_needed()
    await expect(read).to_be_in_viewport()
    # What is drawn further up meanwhile has its full height only once it was seen.
    before = await _settled_at(read)
    page_world.ben.say("The newest of all")
    news = ana.tab.get_by_role("button", name="1 new message")
    await expect(news).to_be_visible()
    assert await _settled_at(read) == pytest.approx(before, abs=1)

    await news.click()

    await expect(ana.card("The newest of all")).to_be_in_viewport()
    await expect(news).to_be_hidden()


async def _settled_at(node: Locator) -> float:
    """Return how far down on the screen something is, once it has come to rest there."""
    script = """node => new Promise(resolve => {
      let last = null, calm = 0;
      requestAnimationFrame(function look() {
        const now = node.getBoundingClientRect().top;
        calm = now === last ? calm + 1 : 0;
        last = now;
        if (calm < 10) requestAnimationFrame(look); else resolve(now);
      });
    })"""
    return float(await within_limit(node.evaluate(script)))


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


async def test_a_message_without_an_answer_returns_to_the_input_before_newer_text(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    time_limit = """() => {
      AbortSignal.timeout = milliseconds => {
        const limit = new AbortController();
        window.timeIsUp = () => { limit.abort(); return milliseconds; };
        return limit.signal;
      };
    }"""
    await ana.tab.evaluate(time_limit)
    await ana.tab.route("**/type", lambda _: None)
    async with ana.tab.expect_request("**/type"):
        await ana.types("Is anybody there?")
    await ana.composer.fill("Hello?")

    assert await ana.tab.evaluate("timeIsUp()") <= 10_000

    await expect(ana.composer).to_have_value("Is anybody there?\nHello?")
    await expect(ana.tab.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()


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


async def test_text_written_from_right_to_left_starts_on_the_right(
    page_world: PageWorld,
) -> None:
    hebrew = "שלום, Kim!"
    ana = await page_world.window()
    card = await ana.asks(hebrew)
    await page_world.advance(minutes=3)
    await ana.opens_thread(card)
    page_world.ben.say(hebrew)
    said = ana.channel.locator(".message-body").filter(has_text=re.compile("^שלום"))
    quoted = ana.replies().nth(1).get_by_role("blockquote")
    ends_at = """node => {
      const words = document.createRange();
      words.selectNodeContents(node);
      return node.getBoundingClientRect().right - words.getBoundingClientRect().right;
    }"""
    begins_at = ends_at.replace(".right", ".left")
    for text in (said.locator(".text-only"), quoted):
        assert abs(await text.evaluate(ends_at)) < 2
        assert abs(await text.evaluate(begins_at)) > 20
    bidi = "node => getComputedStyle(node).unicodeBidi"
    assert await ana.composer.evaluate(bidi) == "plaintext"


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


async def test_dates_are_in_the_readers_own_zone(page_world: PageWorld) -> None:
    now = page_world.clock.now()
    lisbon = await page_world.window("ana", at=now, timezone_id="Europe/Lisbon")
    tokyo = await page_world.window("ana", at=now, timezone_id="Asia/Tokyo")
    await lisbon.asks(SCRIPT)
    for window, asked in ((lisbon, "today at 9:00 AM"), (tokyo, "today at 6:00 PM")):
        await window.types("/video list")
        await expect(window.tab.get_by_text(f"· {asked}").first).to_be_visible()


async def test_there_is_no_input_where_people_cannot_write(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.goes_to("attic")
    await expect(ana.tab.get_by_text("This channel is archived.")).to_be_visible()
    await expect(ana.composer).to_be_hidden()
    await ana.goes_to("Replica Videos")
    await expect(ana.composer).to_be_visible()


async def test_an_unknown_command_returns_to_the_input(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.types("/vidoe Welcome!")
    await expect(ana.tab.get_by_role("alert").filter(has_text="/vidoe is no")).to_be_visible()
    await expect(ana.composer).to_have_value("/vidoe Welcome!")


def _button(words: str, **more: str) -> Json:
    text = {"type": "plain_text", "text": words}
    button = {"type": "button", "action_id": "press", "text": text, **more}
    return {"type": "actions", "elements": [button]}


def _posts(world: PageWorld, text: str, blocks: list[Json]) -> None:
    """Have the app post blocks that the bot has no use for."""
    studio, app = world.slack.channel("studio").id, world.slack.bot.id
    world.slack.post(Message(studio, "", app, text, blocks, is_from_bot=True))
