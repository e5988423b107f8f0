"""The panel of the sandbox's page, in a real browser: its switches and what people then see."""

import re

import pytest
from playwright.async_api import Locator, expect

from tests.browser import PageWorld, within_limit
from tests.world import REPLICA

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "Welcome to the team, Kim! We are glad that you are here."
REASON = "The voice could not be generated: please try again"
# How the call stands on the wire; forms and buttons have the same name.


def _job(jobs: Locator) -> Locator:
    return jobs.get_by_role("listitem").filter(has_text=SCRIPT)


# ── Jobs ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_video_is_made_ready_at_once(page_world: PageWorld) -> None:
    ana = await page_world.window()
    none = ana.tab.get_by_text("No jobs yet.")
    await expect(none).to_have_attribute("hidden", "")  # it is not known yet
    jobs = await ana.looks_behind("Jobs")
    card = await ana.asks(SCRIPT)
    await expect(_job(jobs)).to_contain_text("queued")
    await expect(_job(jobs)).to_contain_text("0 callbacks sent")
    await _job(jobs).get_by_role("button", name="Finish video").click()
    await expect(_job(jobs)).to_contain_text("ready")
    await page_world.advance(seconds=5)

    await expect(card).to_contain_text("Ready")
    await expect(_job(jobs)).to_contain_text("1 callback sent")
    await expect(_job(jobs).get_by_role("button", name="Finish video")).to_be_hidden()


# ── Switches ──────────────────────────────────────────────────────────────────────────────────


async def test_where_the_bot_may_not_post_the_answer_is_a_direct_message(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    slack = await ana.looks_behind("Slack")
    vault = slack.get_by_role("group", name="vault")
    member = vault.get_by_role("switch", name="App is a member")
    await member.check()
    await expect(member).to_be_checked()
    await ana.goes_to("vault")
    await expect(ana.tab.get_by_role("main")).to_contain_text("4 members")
    await member.uncheck()
    await expect(ana.tab.get_by_role("main")).to_contain_text("Replica Videos is not a member")
    page_world.slack.change_channel("vault", with_bot=True)
    await ana.opens_form(f"/video {SCRIPT}")
    await ana.picks("Replica", "r-anna-42")
    page_world.slack.change_channel("vault", with_bot=False)
    await ana.presses("Create")
    await expect(ana.modal).to_be_hidden()
    news = ana.tab.get_by_role("button", name=re.compile("^Replica Videos.*1 new"))
    await expect(news).to_be_visible()
    await page_world.advance(minutes=3)
    await ana.goes_to("Replica Videos")

    card = ana.card(SCRIPT[:20])
    await expect(card).to_contain_text("I couldn't post in")
    await ana.opens_thread(card)
    await expect(ana.replies().nth(1)).to_contain_text("” is ready")
    assert not page_world.slack.messages("vault")


async def test_approval_is_switched_on_and_off(page_world: PageWorld) -> None:
    await page_world.ana.command("/replica", f"add {REPLICA}")
    ana = await page_world.window()
    slack = await ana.looks_behind("Slack")
    approval = slack.get_by_role("switch", name="Approval")
    await expect(approval).not_to_be_checked()
    await approval.check()
    waiting = await ana.asks(SCRIPT)
    await page_world.settle()
    await expect(waiting).to_contain_text("Waiting for approval")
    await ana.panel.get_by_role("button", name="Reset all").click()
    await expect(approval).not_to_be_checked()
    await ana.asks("This one needs none.")
    await page_world.settle()
    assert page_world.created_count() == 1
    # What waited before it was switched off can still be approved.
    await ana.becomes("ben")
    await ana.goes_to("Replica Videos")
    await ana.tab.get_by_role("tab", name="Messages").click()
    asked = ana.card(SCRIPT)
    await asked.get_by_role("button", name="Approve").click()
    await expect(asked).to_contain_text("Approved by")
    await page_world.settle()
    assert page_world.created_count() == 2


# ── Watch ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_watch_link_opens_a_page_with_the_video_and_its_script(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    card = await ana.asks(SCRIPT)
    await page_world.advance(minutes=3)
    async with ana.tab.expect_popup() as opened:
        await card.get_by_role("link", name="Watch").click()
    film = await opened.value

    await expect(film.get_by_role("note")).to_contain_text("this is neither Slack nor a video")
    await expect(film.get_by_role("blockquote")).to_have_text(SCRIPT)
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
    assert await video.evaluate(shown) == ["showing", SCRIPT, True, True]
    plays = """video => new Promise(resolve => {
      video.addEventListener("timeupdate", () => video.currentTime > 0.1 && resolve());
      video.play();
    })"""
    await within_limit(video.evaluate(plays))
    assert await film.evaluate("window.opener") is None
