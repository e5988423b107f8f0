"""What each person sees and finds on the sandbox's page, in a real browser, also after breaks."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from sandbox.block_kit import Json
from sandbox.page.server import Page
from sandbox.slack_objects import Message
from tests.browser import GONE, PageWorld, Window, within_limit

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim!"


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


def _button(words: str, **more: str) -> Json:
    text = {"type": "plain_text", "text": words}
    button = {"type": "button", "action_id": "press", "text": text, **more}
    return {"type": "actions", "elements": [button]}


def _posts(world: PageWorld, text: str, blocks: list[Json]) -> None:
    """Have the app post blocks that the bot has no use for."""
    studio, app = world.slack.channel("studio").id, world.slack.bot.id
    world.slack.post(Message(studio, "", app, text, blocks, is_from_bot=True))


async def test_a_sandbox_that_has_ended_says_so_and_how_to_start_it_again(
    page_world: PageWorld,
) -> None:
    command = "python -m sandbox --port 9000"
    await page_world.page.stop()
    page_world.page = Page(page_world.slack, page_world.service, command=command)
    await page_world.page.start(0)
    ana = await page_world.window()
    page_world.windows.forgiven = GONE
    port = urlsplit(page_world.page.url).port
    assert port
    await page_world.page.stop()

    status = ana.tab.get_by_role("status")
    await expect(status).to_have_text(f"The sandbox has ended. To start it again: {command}")
    await expect(ana.tab.get_by_text("Connecting")).to_have_count(0)
    await page_world.page.start(port)
    await expect(status).to_be_hidden()
    page_world.ben.say("Here again")
    await expect(ana.card("Here again")).to_be_visible()


async def test_each_of_the_first_steps_does_or_shows_it(page_world: PageWorld) -> None:
    ana = await page_world.window(place="attic")
    steps = ana.tab.get_by_role("region", name="First steps")
    await expect(steps.get_by_role("listitem")).to_have_text(
        [re.compile("Type /video"), re.compile("Switch user"), re.compile("Break something")]
    )

    await steps.get_by_role("button", name="Type /video").click()
    await expect(ana.tab.get_by_role("heading", level=1)).to_have_text("studio")
    await expect(ana.composer).to_have_value("/video Hello team")
    await expect(ana.composer).to_be_focused()
    await ana.composer.press("Enter")
    await expect(ana.modal.get_by_label("Script")).to_have_value("Hello team")
    await ana.presses("Cancel")

    await ana.composer.fill("Half a thought")
    await steps.get_by_role("button", name="Type /video").click()
    await expect(ana.composer).to_have_value("Half a thought")
    await ana.composer.fill("")

    await steps.get_by_role("button", name="Switch user").click()
    await expect(ana.tab.get_by_role("radio", name="ana")).to_be_focused()
    await ana.tab.keyboard.press("ArrowRight")
    await expect(ana.tab.get_by_role("radio", name="ben")).to_be_checked()

    await steps.get_by_role("button", name="Break something").click()
    await expect(ana.panel).to_be_visible()


GLAD = "Welcome to the team, Kim! We are glad that you are here."
# How the call stands on the wire; forms and buttons have the same name.


async def test_the_watch_link_opens_a_page_with_the_video_and_its_script(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    card = await ana.asks(GLAD)
    await page_world.advance(minutes=3)
    async with ana.tab.expect_popup() as opened:
        await card.get_by_role("link", name="Watch").click()
    film = await opened.value

    await expect(film.get_by_role("note")).to_contain_text("this is neither Slack nor a video")
    await expect(film.get_by_role("blockquote")).to_have_text(GLAD)
    video = film.locator("video")
    loaded = """video => new Promise(resolve => {
      if (video.readyState >= 2) resolve();
      else video.addEventListener("loadeddata", () => resolve());
    })"""
    await within_limit(video.evaluate(loaded))
    subtitled = """track => new Promise(resolve => {
      if (track.readyState === 2) resolve();
      else track.addEventListener("load", () => resolve());
    })"""
    await within_limit(video.locator("track").evaluate(subtitled))
    shown = """video => {
      const [track] = video.textTracks;
      const said = [...track.cues].map(cue => cue.text).join(" ");
      return [track.mode, said, video.videoWidth > 0, video.duration > 5];
    }"""
    assert await video.evaluate(shown) == ["showing", GLAD, True, True]
    plays = """video => new Promise(resolve => {
      video.addEventListener("timeupdate", () => video.currentTime > 0.1 && resolve());
      video.play();
    })"""
    await within_limit(video.evaluate(plays))
    assert await film.evaluate("window.opener") is None
