"""What the page says to tell things apart, in a real browser: threads, videos, tabs."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from sandbox.page.server import Page
from sandbox.scenarios import CallbackPlan, Scenario
from tests.browser import GONE, PageWorld, Window

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = (
    "Welcome to the team, Kim! Your seat is by the window, and lunch is at noon. See you there."
)
OTHER = "Our numbers for the third quarter, in one minute."


async def test_jobs_say_whether_the_bot_learned_of_their_end_by_callback_or_by_polling(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window()
    jobs = await ana.looks_behind("Jobs")
    await page_world.request_video(page_world.ana, {"script": SCRIPT})
    page_world.service.next_video(Scenario(callback_plan=CallbackPlan(times=0)))
    await page_world.request_video(page_world.ana, {"script": OTHER})
    called, polled = (
        jobs.get_by_role("listitem").filter(has_text=words) for words in (SCRIPT[:40], OTHER)
    )
    await expect(called).to_contain_text("0 callbacks sent")
    await expect(jobs).not_to_contain_text("the bot learned")
    await page_world.advance(minutes=4)

    await expect(called).to_contain_text("1 callback sent · the bot learned it by callback")
    await expect(polled).to_contain_text("0 callbacks sent · the bot learned it by polling")
    known_before = jobs.get_by_role("listitem", name="Anna", exact=True)
    await expect(known_before).not_to_contain_text("the bot learned")


async def test_the_watch_page_is_headed_by_the_name_or_the_beginning_of_the_script(
    page_world: PageWorld,
) -> None:
    await page_world.request_video(page_world.ana, {"script": SCRIPT})
    await page_world.request_video(page_world.ana, {"script": OTHER, "video_name": "Numbers"})
    await page_world.request_video(page_world.ana, {"script": "ありがとう" * 50})
    titles = []
    ana = await page_world.window()
    for video in page_world.service.videos:
        await ana.tab.goto(f"{page_world.service.url}/watch/{video}")
        titles.append(await ana.tab.get_by_role("heading", level=1).inner_text())
        assert (await ana.tab.title()).startswith(titles[-1])
    beginning, name, unbroken = titles
    assert (
        beginning
        == "Welcome to the team, Kim! Your seat is by the window, and lunch is at noon. See…"
    )
    assert name == "Numbers"
    assert re.fullmatch("ありがとう.*…", unbroken)


async def test_threads_with_news_are_told_apart_by_the_title_of_their_card(
    page_world: PageWorld,
) -> None:
    ana = await page_world.window(place="lobby")
    for script in (SCRIPT, OTHER):
        await page_world.request_video(page_world.ana, {"script": script})
    await page_world.advance(minutes=4)
    threads = ana.tab.get_by_role("navigation").get_by_role("button", name="1 new reply")
    await expect(threads).to_have_count(2)
    for thread, title in zip(await threads.all(), ("Welcome to the team", OTHER[:20]), strict=True):
        await expect(thread).to_have_text(re.compile(f"^{title}"))
    looks = {await thread.screenshot() for thread in await threads.all()}
    assert len(looks) == 2
    await threads.last.click()
    await expect(ana.replies().first).to_contain_text(OTHER)


async def test_an_open_form_is_shown_only_in_the_tab_that_opened_it(page_world: PageWorld) -> None:
    ana = await page_world.window()
    await ana.opens_form("/video Half a sentence")
    other = Window(await ana.tab.context.new_page())
    await other.tab.goto(f"{page_world.page.url}/?as=ana")
    await expect(other.composer).to_be_visible()
    await other.types("/vidoe")
    await expect(other.tab.get_by_text("/vidoe is not a command")).to_be_visible()
    await expect(other.modal).to_be_hidden()
    await expect(ana.modal).to_be_visible()

    await ana.tab.reload()
    await expect(ana.modal.get_by_label("Script")).to_have_value("Half a sentence")
    await other.composer.fill("")
    await other.opens_form("/replica")
    await expect(ana.modal).to_be_hidden()


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
