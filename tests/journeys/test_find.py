"""`/video find`: one's own videos, and those in public channels, by words of name and script."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import timedelta

import pytest

from sandbox.driver import Person
from sandbox.faults import CannedResponse
from sandbox.scenarios import Scenario
from sandbox.slack_objects import Message
from tests.journeys.test_people import guest
from tests.modes import bot_with, on_both_engines
from tests.world import World

WHO_READS = "conversations.info"


async def make(world: World, person: Person, name: str, script: str = "", where: str = "") -> None:
    """Have a video made, of a name and a script, in a channel."""
    values = {"video_name": name or None, "script": script or f"This is {name}."}
    await world.after(world.request_video(person, values, where or "studio"), minutes=5)


async def answer(world: World, person: Person, words: str, channel: str = "studio") -> Message:
    """Type the search and return what the person is shown, and nobody else is."""
    before = len(world.slack.ephemerals(person.user.id, channel))
    posts = world.posts()
    response = await person.command("/video", f"find {words}", channel)
    assert response.ok
    await world.settle()
    [shown] = world.slack.ephemerals(person.user.id, channel)[before:]
    assert world.posts() == posts
    return shown


async def found(world: World, person: Person, words: str, channel: str = "studio") -> Sequence[str]:
    """Return the names of what a person finds, in the order shown."""
    shown = await answer(world, person, words, channel)
    assert "newest first" in shown.text or "No videos with" in shown.text
    return re.findall(r"• Ready · (.*?) · ", shown.text)


@on_both_engines
async def test_my_videos_are_found_by_words_of_name_and_script_in_any_case_and_language(
    world: World,
) -> None:
    await make(world, world.ana, "Onboarding", "Welcome to the team!")
    await make(world, world.ana, "Grüße aus Köln", "Ein schöner Straßenzug")
    await make(world, world.ana, "Новости", "Добро пожаловать в команду")
    news = "Team news, what\u2019s 100% new_and_old"
    await make(world, world.ana, "", news)
    for words, names in [
        ("ONBOARDING", ["Onboarding"]),
        ("team welcome", ["Onboarding"]),
        ("team", [news, "Onboarding"]),
        ("grüSSE", ["Grüße aus Köln"]),
        (unicodedata.normalize("NFD", "köln schöner"), ["Grüße aus Köln"]),
        ("НОВОСТИ команду", ["Новости"]),
        ("what's new_and", [news]),
        ("100%", [news]),
        ("team missing", []),
        ("new%old", [news]),
        ("%", [news]),
        ("\N{CLAPPER BOARD}", []),
    ]:
        assert await found(world, world.ana, words) == names, words
    shown = await answer(world, world.ana, "onboarding")
    assert "/watch/" in shown.text
    assert "/watch/" in str(shown.blocks)


async def test_what_has_failed_or_is_not_ready_is_not_found(world: World) -> None:
    world.service.next_video(Scenario(end="error", reason="No."), Scenario(end="never"))
    await make(world, world.ana, "Plan A")
    await make(world, world.ana, "Plan B")
    assert await found(world, world.ana, "plan") == []


async def test_the_newest_ten_are_shown_and_how_many_more_there_are(world: World) -> None:
    for number in range(12):
        await make(world, world.ana, f"News {number}")
    shown = await answer(world, world.ben, "news")
    names = re.findall("News [0-9]+", shown.text)
    assert names == [f"News {number}" for number in range(11, 1, -1)]
    assert "At least 2 more. Add a word to narrow it down." in shown.text
    assert "At least 2 more. Add a word to narrow it down." in str(shown.blocks)


async def test_where_nothing_is_found_the_answer_says_what_was_searched(world: World) -> None:
    shown = await answer(world, world.ana, "<!here> *keys*")
    assert shown.text.startswith("No videos with “&lt;!here&gt; *keys*”.")
    assert "Try fewer words" in shown.text


@on_both_engines
async def test_a_video_in_a_public_channel_is_found_by_others_and_says_where_it_is(
    world: World,
) -> None:
    await make(world, world.ana, "Onboarding")
    shown = await answer(world, world.ben, "onboarding", "lobby")
    studio = world.slack.channel("studio").id
    assert f"<#{studio}>" in shown.text
    assert {"type": "channel", "channel_id": studio} in [
        each
        for block in shown.blocks
        if block["type"] == "rich_text"
        for part in block["elements"]
        for item in part["elements"]
        for each in item["elements"]
    ]
    assert f"<#{studio}>" not in (await answer(world, world.ana, "onboarding")).text


@on_both_engines
async def test_a_video_in_a_private_channel_or_conversation_is_found_by_its_person_alone(
    world: World,
) -> None:
    world.slack.change_channel("vault", with_bot=True)
    dm = world.slack.dm("ana").id
    await make(world, world.ana, "Secret one", where="vault")
    await make(world, world.ana, "Secret two", where=dm)
    await make(world, world.ana, "Secret three")
    assert await found(world, world.ben, "secret", "vault") == ["Secret three"]
    assert await found(world, world.ana, "secret") == ["Secret three", "Secret two", "Secret one"]


async def test_a_guest_finds_their_own_videos_alone(quiet: World) -> None:
    gus = guest(quiet)
    async with quiet.running_bot(VIDEO_USERS=f"{gus.user.id},{quiet.ana.user.id}"):
        await make(quiet, quiet.ana, "Secret one")
        await make(quiet, gus, "Secret two")
        assert await found(quiet, gus, "secret") == ["Secret two"]
        assert len(await found(quiet, quiet.ana, "secret")) == 2


async def test_who_cannot_be_told_from_a_guest_finds_their_own_videos_alone(world: World) -> None:
    await make(world, world.ana, "Secret one")
    await make(world, world.ben, "Secret two")
    world.slack.faults.always("users.info", CannedResponse(503))
    await world.advance(hours=1)
    world.slack.add_user("kim", channels=["studio"])
    assert await found(world, Person(world.slack, "kim"), "secret") == []


async def test_a_colleague_from_another_workspace_finds_no_channel_of_this_one(
    quiet: World,
) -> None:
    quiet.slack.enterprise = "E0"
    async with quiet.running_bot():
        await make(quiet, quiet.ana, "Secret")
        quiet.slack.add_user("olga", team="T0OTHER", enterprise="E0", channels=["studio"])
        olga = Person(quiet.slack, "olga")
        assert await found(quiet, olga, "secret") == []


@pytest.mark.parametrize("change", ["private", "is_ext_shared", "is_pending_ext_shared"])
async def test_a_channel_that_is_not_public_any_more_hides_its_videos_from_others(
    world: World, change: str
) -> None:
    await make(world, world.ana, "Secret")
    assert await found(world, world.ben, "secret") == ["Secret"]
    if change == "private":
        world.slack.channel("studio").kind = "private"
    else:
        world.slack.change_channel("studio", **{change: True})
    await world.advance(minutes=11)
    assert await found(world, world.ben, "secret") == []
    assert await found(world, world.ana, "secret") == ["Secret"]


async def test_a_private_channel_that_becomes_public_keeps_what_was_posted_before(
    world: World,
) -> None:
    world.slack.change_channel("vault", with_bot=True)
    await make(world, world.ana, "Secret", where="vault")
    world.slack.channel("vault").kind = "public"
    await world.advance(minutes=11)
    assert await found(world, world.ben, "secret") == []


async def test_a_shared_channel_is_searched_where_sharing_is_allowed(quiet: World) -> None:
    quiet.slack.change_channel("studio", is_ext_shared=True)
    async with quiet.running_bot(ALLOW_SHARED_CHANNELS="yes"):
        await make(quiet, quiet.ana, "Onboarding")
        assert await found(quiet, quiet.ben, "onboarding") == ["Onboarding"]
    async with quiet.running_bot():
        assert await found(quiet, quiet.ben, "onboarding", "lobby") == []


async def test_where_slack_does_not_say_who_reads_a_channel_its_videos_are_not_found(
    world: World,
) -> None:
    await world.after(make(world, world.ana, "Secret"), minutes=11)
    world.slack.faults.always(WHO_READS, CannedResponse(503))
    assert await found(world, world.ben, "secret") == []
    world.slack.faults.clear()
    await make(world, world.ana, "Another secret", where="lobby")
    assert await found(world, world.ben, "secret") == ["Another secret", "Secret"]


@on_both_engines
@bot_with(RETENTION_DAYS="20")
async def test_after_the_retention_time_a_video_is_found_by_its_name_and_not_by_its_script(
    world: World,
) -> None:
    await make(world, world.ana, "Onboarding", "A word that is erased.")
    await make(world, world.ana, "", "Onboarding without a name.")
    await jump(world, timedelta(days=20, hours=1))
    for person in (world.ana, world.ben):
        assert await found(world, person, "erased") == []
        assert await found(world, person, "onboarding") == ["Onboarding"]
    assert "/watch/" in (await answer(world, world.ben, "onboarding")).text
    await jump(world, timedelta(days=20))
    assert await found(world, world.ana, "onboarding") == []


async def jump(world: World, duration: timedelta) -> None:
    """Set the clock ahead, and let all happen that the next hour brings."""
    world.clock.set(world.clock.now() + duration)
    await world.advance(hours=1)


async def test_what_was_typed_can_still_be_the_script(world: World) -> None:
    shown = await answer(world, world.ana, "my  keys")
    await world.ana.click(shown, "Use as script")
    assert world.ana.form.values["script"] == "find my  keys"


async def test_a_text_that_is_too_long_for_a_search_is_a_script(world: World) -> None:
    script = "Find your way around our new office. " * 6
    form = await world.open_form(world.ana, script)
    assert form.values["script"] == script.strip()


async def test_find_alone_explains_itself(world: World) -> None:
    response = await world.ana.command("/video", "Find")
    assert response.shown.text.startswith("Add words from")
