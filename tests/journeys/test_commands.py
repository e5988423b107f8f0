"""The subcommands of the video command, and the buttons of cards and replies."""

import asyncio
import re
import time
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from bot.app import FEATURES
from bot.model import Failure, Job, State
from bot.slack import errors
from bot.slack.features.video import spoken_text
from bot.slack.views.card import card, reply
from bot.store import DatabaseUnavailable, DatabaseUncertain, RowUnreadable
from bot.store.jobs import Jobs
from bot.store.replicas import Replicas
from sandbox import events
from sandbox.delivery import button_action, find_button, interact, interaction
from sandbox.driver import Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack_objects import BOT, Message
from tests.house.test_house_rules import JOB, PRESENTERS
from tests.modes import bot_with, in_both_modes
from tests.world import REPLICA, World, number_of

DOCUMENTED = tomllib.loads(
    (Path(__file__).parent.parent / "data/slack_errors.toml").read_text(encoding="utf-8")
)
BUTTONS = ["I found it", "Create again", "Cancel request"]
WHAT_TO_DO = {
    None: "Please try again",
    errors.ErrorAction.RETRY: "Please try again",
    errors.ErrorAction.RECONCILE: "Please try again",
    errors.ErrorAction.EXPIRED: "Please try again",
    errors.ErrorAction.PAUSE: "Let a workspace admin know",
    errors.ErrorAction.REDIRECT: "Let a workspace admin know",
    errors.ErrorAction.WITHOUT_METADATA: "Please try again",
    errors.ErrorAction.REWRITE: "Please try again.*give a workspace admin this code: ",
}


async def test_a_command_is_answered_although_the_database_fails_after_it_was_acknowledged(
    world: World, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    await world.request_video(world.ana)
    [video_id] = world.service.videos
    for error, sentence in [
        (DatabaseUnavailable("the disk is full"), r"couldn't be saved\. Please try again"),
        (DatabaseUncertain("the disk is full"), "^This may not have been saved"),
        (RowUnreadable("jobs", "1", "1"), "is damaged. Let"),
        (RuntimeError("unforeseen"), r"Something went wrong.* give .* this code: [0-9a-f]{8}"),
    ]:
        for command, owner, method in [
            ("/video status {video}", Jobs, "wake"),
            ("/replica status {replica}", Replicas, "learn"),
            ("/replica add {replica}", Replicas, "add"),
            ("/replica default {replica}", Replicas, "set_default"),
        ]:
            with subtests.test(error=error, command=command):
                fail = AsyncMock(side_effect=error)
                told = len(world.ephemerals(world.ana))
                name, _, text = command.format(video=video_id, replica=REPLICA).partition(" ")
                with monkeypatch.context() as patched:
                    patched.setattr(owner, method, fail)
                    answer = await world.ana.command(name, text)
                    assert answer.ok
                    await world.settle()
                [said] = world.ephemerals(world.ana)[told:]
                assert re.search(sentence, said)


async def _says(person: Person, text: str) -> Message:
    """Type the command and return what it says to the person at once."""
    answer = await person.command("/video", text)
    assert answer.shown.visible_to == person.user.id
    return answer.shown


async def _status(world: World, person: Person, wanted: str) -> str:
    """Ask for a status and return what the person is shown in the end."""
    before = len(world.ephemerals(person))
    answer = await person.command("/video", f"status {wanted}")
    assert answer.ok
    await world.settle()
    [shown] = world.ephemerals(person)[before:]
    return shown


async def test_the_list_shows_my_videos_newest_first_with_states_and_links(world: World) -> None:
    world.service.next_video(Scenario(), Scenario(end="error", reason="No."), Scenario(end="never"))
    for name in ("First", "Second", "Third"):
        await world.after(world.request_video(world.ana, {"video_name": f"{name} <b>"}), minutes=5)
    await world.request_video(world.ben, {"video_name": "Not mine"})
    shown = await _says(world.ana, "list")

    lines = shown.text.splitlines()[1:]
    assert [line.split(" · ")[:2] for line in lines] == [
        ["• Rendering", "Third &lt;b&gt;"],
        ["• Failed", "Second &lt;b&gt;"],
        ["• Ready", "First &lt;b&gt;"],
    ]
    assert ["/watch/" in line for line in lines] == [False, False, True]
    assert "Not mine" not in str(shown)


async def test_the_status_of_my_video_is_what_the_service_says_now(world: World) -> None:
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    await world.advance(seconds=15)

    for wanted in (number_of(card), f"`{number_of(card)}`", video_id):
        shown = await _status(world, world.ana, wanted)
        assert "Rendering" in shown
        assert "generating" in shown
        assert video_id in shown
        assert "Hello, world." in shown
        assert "/watch/" not in shown, "the link is there already, and leads nowhere yet"

    await world.advance(minutes=5)
    shown = await _status(world, world.ana, video_id)
    assert "Video service status: ready" in shown
    assert f"/watch/{video_id}" in shown
    assert len(world.posts()) == 2


@bot_with(ADMIN_USERS="{ana}")
async def test_the_status_of_an_unconfirmed_video_does_not_reveal_its_script(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    await world.request_video(world.ben, {"script": "A secret script."})
    [made] = world.service.videos
    await world.advance(minutes=5)

    shown = await _status(world, world.ana, made)

    assert "ready" in shown
    assert "secret" not in shown


@bot_with(ADMIN_USERS="{ana}")
async def test_while_the_service_is_down_the_status_shows_what_was_last_known(world: World) -> None:
    card = await world.after(world.request_video(world.ana), seconds=15)
    world.service.down = True

    shown = await _status(world, world.ana, number_of(card))
    assert "Rendering" in shown
    assert "Couldn't check just now" in shown

    shown = await _status(world, world.ana, "somewhere-else")
    assert "couldn't look up" in shown
    assert "<html>" not in shown


async def _fails(world: World) -> Message:
    """Have a video of Ana's fail that had everything filled in, and return its closing reply."""
    world.service.next_video(Scenario(end="error", reason="Too dark."))
    form = await world.open_form(world.ana, "A secret script.")
    await form.choose("background", "background_url")
    values = {"replica_id": REPLICA, "video_name": "Kept", "where": "lobby"}
    await form.submit(values | {"background_url": "https://example.com/secret"})
    await world.advance(minutes=5)
    [card] = world.slack.messages("lobby")
    [reply] = world.replies(card)
    return reply


async def test_edit_and_retry_opens_the_form_with_all_that_was_typed(world: World) -> None:
    reply = await _fails(world)

    await world.ana.click(reply, "Edit and retry")

    form = world.ana.form
    assert form.values == {
        "tell_channel": [],
        "replica_id": REPLICA,
        "script": "A secret script.",
        "video_name": "Kept",
        "background": "background_url",
        "background_url": "https://example.com/secret",
        "where": world.slack.channel("lobby").id,
    }
    await world.after(form.send({"script": "A brighter script."}), minutes=5)
    assert [video.script for video in world.service.videos.values()] == [
        "A secret script.",
        "A brighter script.",
    ]
    [first] = world.slack.messages("lobby")
    assert len(world.replies(first)) == 3, "its reply, the card of the retry and its reply"


@bot_with(ADMIN_USERS="{ben}")
async def test_an_admin_who_retries_does_not_see_what_the_user_typed(world: World) -> None:
    reply = await _fails(world)
    await world.ben.click(reply, "Edit and retry")

    form = world.ben.form
    assert form.values["replica_id"] == REPLICA
    assert form.values["script"] is None
    assert "secret" not in str(form.view.body)


async def test_buttons_of_other_peoples_cards_do_nothing_and_say_why(world: World) -> None:
    reply = await _fails(world)
    posted = world.posts()

    await world.after(world.ben.click(reply, "Edit and retry"))

    [shown] = world.ephemerals(world.ben, "lobby")
    assert f"Only <@{world.ana.user.id}> or an admin" in shown
    assert world.ben.modal is None
    assert not world.ephemerals(world.ana, "lobby")
    assert world.posts() == posted


async def test_only_the_requester_decides_about_an_unconfirmed_video(world: World) -> None:
    world.service.faults.next("create_video", Reset())
    card = await world.after(world.request_video(world.ana), minutes=16)
    asking, question = world.now(card), world.question(card)

    for button in BUTTONS:
        await world.after(world.ben.click(question, button))
        assert world.ben.modal is None

    told = world.ephemerals(world.ben)
    assert ["or an admin can do that" in each for each in told] == [True] * 3
    assert world.now(card) == asking
    assert world.posts() == [asking, question]
    assert len(world.requests_for("create_video")) == 1


async def test_a_button_of_a_settled_question_says_that_it_is_settled(world: World) -> None:
    world.service.callback_plan = CallbackPlan(after=timedelta(minutes=20))
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.after(world.request_video(world.ana), minutes=16)
    stale = world.question(card)
    asked_before = len(world.ephemerals(world.ana))
    await world.advance(minutes=10)
    settled = world.posts()
    assert len(settled) == 3

    for button in BUTTONS:
        await world.after(world.ana.click(stale, button), minutes=5)

    told = world.ephemerals(world.ana)[asked_before:]
    assert ["already settled" in each for each in told] == [True] * 3
    assert world.posts() == settled
    assert world.ana.modal is None
    assert len(world.requests_for("create_video")) == 1


USED = [code for code, action in errors.ERROR_ACTIONS.items() if action is errors.ErrorAction.DONE]


def one_of_each_action(method: str) -> list[str]:
    """Return a documented error of a method for each way in which the bot handles errors."""
    codes = {errors.ERROR_ACTIONS.get(code): code for code in DOCUMENTED[method].split()}
    return list(codes.values())


async def test_for_any_error_at_opening_a_form_the_user_learns_what_to_do(
    world: World, subtests: pytest.Subtests
) -> None:
    for code in set(one_of_each_action("views.open")) - set(USED):
        with subtests.test(code=code):
            world.slack.faults.next("views.open", CannedResponse(200, {"ok": False, "error": code}))

            answer = await world.ana.command("/video", "Hello.")

            assert world.ana.modal is None
            assert re.search(WHAT_TO_DO[errors.ERROR_ACTIONS.get(code)], answer.shown.text), (
                answer.shown.text
            )
            form = await world.open_form(world.ana, "Hello.")
            await form.close()


async def test_a_trigger_that_a_copy_of_the_command_has_used_is_no_error(
    world: World, subtests: pytest.Subtests
) -> None:
    for code in USED:
        with subtests.test(code=code):
            world.slack.faults.next("views.open", CannedResponse(200, {"ok": False, "error": code}))

            answer = await world.ana.command("/video", "Hello.")

            assert answer.ok
            assert answer.message is None, "the form is open: its copy did that"


@pytest.mark.parametrize(
    ("value", "creates"), [("{job}", 1), ("{job}:1", 2), ("{job}:2", 1), ("{job}:", 1)]
)
async def test_a_button_means_the_attempt_that_it_names_and_no_other(
    world: World, value: str, creates: int
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    card = await world.after(world.request_video(world.ana), minutes=16)
    block, button = find_button(world.question(card).blocks, "Create again")
    studio = world.slack.channel("studio")
    action = button_action(
        world.slack, block, {**button, "value": value.format(job=number_of(card))}
    )
    payload = interaction(world.slack, world.ana.user, "block_actions", studio)

    await interact(world.slack, {**payload, "channel": {"id": studio.id}, "actions": [action]})
    await world.settle()

    assert len(world.requests_for("create_video")) == creates


async def test_a_script_may_contain_the_name_of_a_field_of_slacks(world: World) -> None:
    form = await world.open_form(world.ana, "The payload is 100% payload=%7B & more + more")
    assert form.values["script"] == "The payload is 100% payload=%7B & more + more"


@pytest.fixture
def typed_scripts() -> list[str]:
    return [
        "Write &lt;b&gt; &amp;amp; for a bold & sign",
        "Ask <@U012ABCDEF> in <#C012ABCDE|> about <https://example.com|this>",
        "Ask @ben in #studio: https://example.com/?a=1&b=2, 1 < 2 > 0",
        "*not bold* _or_ `code`, :tada:",
    ]


async def test_a_script_is_what_was_typed_letter_for_letter(
    world: World, typed_scripts: list[str]
) -> None:
    for typed in typed_scripts:
        form = await world.open_form(world.ana, typed)
        assert form.values["script"] == typed


async def test_a_script_for_which_no_form_can_be_opened_is_given_back(world: World) -> None:
    script = "Welcome to the team! " * 240 + "<!here>"
    world.slack.faults.next("views.open", CannedResponse(503))
    response = await world.ana.command("/video", script)
    assert world.ana.modal is None
    assert "Slack didn't open the form." in response.shown.text
    quoted = [
        element["text"]
        for block in response.shown.blocks
        if block["type"] == "rich_text"
        for part in block["elements"]
        for element in part["elements"]
    ]
    assert "".join(quoted) == script


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("statsu", "status <id>"), ("Stauts", "status <id>"), ("lsit", "list"), ("hepl", "help")],
)
async def test_a_mistyped_subcommand_is_suggested_and_can_still_be_the_script(
    world: World, typed: str, meant: str
) -> None:
    answer = await world.ana.command("/video", typed, "studio")

    assert answer.json is not None
    assert answer.json["response_type"] == "ephemeral"
    assert answer.shown.text == f"Did you mean `/video {meant.replace('<id>', '&lt;id&gt;')}`?"
    assert not world.calls("views.open")
    await world.ana.click(answer.shown, f"Use “{typed}” as script")
    assert world.ana.form.values["script"] == typed
    await world.after(world.ana.form.submit({"replica_id": "r-anna-42"}))
    assert [video.script for video in world.service.videos.values()] == [typed]


async def test_a_subcommand_alone_explains_itself_in_any_case_and_opens_no_form(
    world: World,
) -> None:
    for command, typed in (
        ("/video", "status"),
        ("/video", "Status"),
        ("/replica", "Status"),
        ("/replica", "Add"),
        ("/replica", "DEFAULT"),
    ):
        answer = await world.ana.command(command, typed)
        assert answer.json is not None
        assert answer.json["response_type"] == "ephemeral"
        lacks = "Try `" if typed == "DEFAULT" else f"`{command} {typed.lower()}` needs a "
        assert answer.shown.text.startswith(lacks)
        assert world.ana.modal is None


@bot_with(COMMAND_PREFIX="acme-")
async def test_with_a_prefix_the_commands_have_it_and_every_text_names_them_so(
    world: World,
) -> None:
    world.service.replicas.clear()
    form = await world.open_form(world.ana, command="/acme-video")
    said = [str(form.view.body)]
    for command, text in (
        ("/acme-video", "help"),
        ("/acme-video", "list"),
        ("/acme-video", "status"),
        ("/acme-video", "statsu"),
        ("/acme-video", "status nope"),
        ("/acme-replica", "help"),
        ("/acme-replica", "list"),
        ("/acme-replica", "add"),
        ("/acme-replica", "what is this"),
    ):
        answer = await world.ana.command(command, text)
        assert answer.ok
        said.append(answer.body)
    await world.settle()
    said += world.ephemerals(world.ana)
    assert "I don't recognize this" in (await world.ana.command("/video")).body
    for each in said:
        assert "/video" not in each.replace("/v2/videos", "")
        assert "/replica" not in each
    assert sum("/acme-" in each for each in said) > 9


@in_both_modes
async def test_a_mention_is_answered_in_its_thread_once(world: World) -> None:
    message = world.ana.mention("what can you do?")
    await world.settle()
    [help_] = world.slack.thread(message.channel, message.ts)
    assert "/video Welcome to the team!" in help_.text
    assert help_.blocks

    # Slack may send an event again, also after the bot was started again.
    for _ in range(2):
        assert (await events.send_again(world.slack, world.slack.sent_events[-1])).ok
        await world.settle()
    assert world.posts() == [help_]

    inside = world.ben.mention("and here?", thread_ts=message.ts)
    await world.settle()
    assert world.posts()[-1].thread_ts == message.ts
    assert inside.thread_ts == message.ts
    assert len(world.posts()) == 2


@in_both_modes
async def test_help_is_not_posted_again_after_a_restart(quiet: World) -> None:
    async with quiet.running_bot():
        quiet.ana.mention("hello")
        await quiet.settle()
    async with quiet.running_bot():
        assert (await events.send_again(quiet.slack, quiet.slack.sent_events[-1])).ok
        await quiet.settle()
    assert len(quiet.posts()) == 1


async def test_what_is_written_to_the_app_gets_help_once_a_message(world: World) -> None:
    written = world.ana.write_direct("hi")
    # A bot that answers itself never has nothing left to do.
    async with asyncio.timeout(30):
        await world.settle()
    [help_] = world.posts()
    assert help_.channel == written.channel
    assert help_.thread_ts is None
    world.slack.edit(written, text="hello", blocks=[], metadata=None)
    await world.settle()
    assert world.posts() == [help_], "neither its own message nor an edit is answered"

    assert (await world.ana.command("/video", "help", written.channel)).message
    # A video that is asked for there is answered there.
    card = await world.request_video(world.ana, {"where": "studio"}, channel="studio")
    assert card.channel != written.channel


async def test_people_of_other_organisations_get_no_help(world: World) -> None:
    world.slack.add_user("zoe", team="T0OTHER", channels=["studio"])
    zoe = Person(world.slack, "zoe")
    zoe.mention("hello")
    await world.settle()
    assert world.posts() == []
    await world.advance(minutes=10)
    assert len(world.slack.sent_events) == 1, "the event was accepted"


async def test_the_request_url_is_verified(world: World) -> None:
    assert await events.verify_request_url(world.slack)


async def test_a_message_of_an_app_is_not_answered(world: World) -> None:
    place = world.slack.channel("studio").id
    event = {
        "type": "message",
        "channel": place,
        "channel_type": "im",
        "user": world.slack.bot.id,
        "ts": "1.2",
    }
    answer = await events.send(world.slack, {**event, "bot_id": BOT, "text": "Hi"}, "message.im")
    assert answer.ok
    await world.settle()
    assert world.posts() == []


@pytest.mark.parametrize("kind", ["channel", "group", "mpim", None])
async def test_what_people_write_in_channels_is_not_answered(
    world: World, kind: str | None
) -> None:
    """The Slack app may subscribe to messages there, for another purpose or by mistake."""
    place = world.slack.channel("studio").id
    event = {"type": "message", "channel": place, "user": world.ana.user.id, "ts": "1.2"}
    event |= {"text": "Hi", **({"channel_type": kind} if kind else {})}
    assert (await events.send(world.slack, event, "message.im")).ok
    await world.settle()
    assert world.posts() == []


CLAIMS = (
    "nothing was",
    "nothing is",
    "pays twice",
    "pay twice",
    "weren't charged",
    "won't be charged",
    "wasn't created",
    "was not created",
)
KINDS = [feature.kind.name for feature in FEATURES]


def claims_in(text: str) -> list[str]:
    """Return the sentences in a text that say that nothing was done."""
    return [each for each in CLAIMS if each in text.casefold()]


def after_create_again(kind: str) -> list[Job]:
    """Return a job in every state after *Create again*, when the first attempt may have worked."""
    base = replace(JOB, kind=kind, attempts=2, asked_at=JOB.created_at + timedelta(hours=1))
    going = [
        replace(base, state=state, asked=asked, failures=failures, remote_id=remote_id)
        for state in State
        if state is not State.FAILED
        for asked in (0, 1, 2)
        for failures in (0, 5)
        for remote_id in (None, "x1")
    ]
    failed = [
        replace(base, state=State.FAILED, failure=failure, reason=reason)
        for failure in Failure
        for reason in ("", "Not today.")
    ]
    return [*going, *failed]


def test_after_create_again_no_message_says_that_nothing_was_created(
    subtests: pytest.Subtests,
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            for job in after_create_again(kind):
                for message in (card(job, PRESENTERS[kind]), reply(job, PRESENTERS[kind])):
                    assert not claims_in(message.text), (job.state, job.failure, message.text)
                    assert not claims_in(str(message.blocks)), (job.state, job.failure)


def test_after_create_again_a_refusal_says_what_is_not_known_of_the_earlier_attempt(
    subtests: pytest.Subtests,
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            refused = replace(
                JOB,
                kind=kind,
                state=State.FAILED,
                failure=Failure.REFUSED,
                attempts=2,
                asked_at=JOB.created_at,
            )
            assert "charged for an earlier try" in reply(refused, PRESENTERS[kind]).text
            first = replace(refused, attempts=1, asked_at=None)
            assert "You weren't charged." in reply(first, PRESENTERS[kind]).text


@pytest.mark.parametrize("failure", [DatabaseUncertain, DatabaseUnavailable, RuntimeError])
async def test_a_form_that_could_not_be_saved_does_not_say_that_nothing_was_started(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    # The first copy was saved and its answer lost, or its commit got no answer.
    form = await world.open_form(world.ana)
    submit = Jobs.submit

    async def save_without_an_answer(jobs: Jobs, *request: Any, **options: Any) -> None:  # noqa: ANN401
        await submit(jobs, *request, **options)
        raise failure("its disk does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(Jobs, "submit", save_without_an_answer)
        await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    said = " ".join(form.errors.values())
    assert re.search("try again|submit again", said.lower())
    assert not claims_in(said.replace("It's safe to try again", ""))
    await world.after(form.submit(), minutes=10)
    assert world.created_count() == 1, "the second submission found the first"


@in_both_modes
async def test_a_video_from_a_message_is_answered_in_its_thread(world: World) -> None:
    message = world.ben.say("*Welcome*, @ana! See https://example.com/start & say _hi_ :wave:")
    answer = await world.ana.message_shortcut(message)
    assert answer.ok
    form = world.ana.form
    assert form.values["script"] == "Welcome, ana! See https://example.com/start & say hi"
    assert form.values["where"] == message.channel

    await world.after(form.send({"replica_id": REPLICA}), minutes=5)
    card, reply = world.slack.thread(message.channel, message.ts)
    assert f"<@{world.ana.user.id}>" in reply.text
    assert world.posts() == [card, reply]


async def test_a_video_from_a_reply_goes_into_the_same_thread(world: World) -> None:
    parent = world.ben.say("What shall we say?")
    reply = world.ana.say("Good morning, everyone.", thread_ts=parent.ts)
    await world.ben.message_shortcut(reply)
    await world.after(world.ben.form.submit({"replica_id": REPLICA}))
    [card] = world.posts()
    assert card.thread_ts == parent.ts

    # Posted elsewhere, it is in no thread.
    await world.ben.message_shortcut(reply)
    await world.after(world.ben.form.submit({"replica_id": REPLICA, "where": "lobby"}))
    assert world.posts()[-1].channel == world.slack.channel("lobby").id
    assert world.posts()[-1].thread_ts is None


async def test_a_message_without_text_or_with_too_much_explains_itself(world: World) -> None:
    picture = world.ben.say(":tada:")
    assert (await world.ana.message_shortcut(picture)).ok
    assert "no text" in str(world.ana.form.view.body["blocks"])
    await world.ana.form.close()

    long = world.ben.say("word " * 700)
    assert (await world.ana.message_shortcut(long)).ok
    assert "The script has 3,499 characters" in str(world.ana.form.view.body["blocks"])


@in_both_modes
async def test_the_global_shortcut_asks_where_to_post(world: World) -> None:
    assert (await world.ana.shortcut()).ok
    form = world.ana.form
    assert not form.values["where"]
    await form.submit({"replica_id": REPLICA, "script": "Hello.", "where": "studio"})
    await world.advance(minutes=5)
    card, reply = world.posts()
    assert card.channel == world.slack.channel("studio").id
    assert reply.thread_ts == card.ts


@bot_with(VIDEO_USERS="{ben}")
async def test_who_may_not_ask_is_told_so_by_shortcuts_too(world: World) -> None:
    await world.after(world.ana.shortcut())
    assert "Only some people here" in str(world.ana.form.view.body["blocks"])
    await world.ana.form.close()
    await world.after(world.ana.message_shortcut(world.ben.say("Hello.")))
    assert "Only some people here" in world.ephemerals(world.ana)[-1]

    world.slack.add_user("zoe", team="T0OTHER", channels=["studio"])
    zoe = Person(world.slack, "zoe")
    await world.after(zoe.message_shortcut(world.ben.say("Hello.")))
    assert "Sorry" in world.ephemerals(zoe)[-1]
    assert zoe.modal is None


def test_markup_becomes_plain_words(subtests: pytest.Subtests) -> None:
    for text, spoken in [
        ("*bold* _italic_ ~struck~ `code` ```block```", "bold italic struck code block"),
        ("*_both_*", "both"),
        ("*one* and *two*, _snake_case_, *2*3 is six*", "one and two, snake_case, 2*3 is six"),
        (
            "2 * 3 * 4 = 24, snake_case_name, ~5 and ~6",
            "2 * 3 * 4 = 24, snake_case_name, ~5 and ~6",
        ),
        ("&lt;tag&gt; &amp;amp; R&amp;D", "<tag> &amp; R&D"),
        ("<https://a.example/x|our page> <mailto:a@b.example|a@b.example>", "our page a@b.example"),
        ("<https://a.example/x>", "https://a.example/x"),
        ("<@U1> <@U2|cleo> <#C1> <#C2|news> <#C3|>", "Ana cleo studio news a channel"),
        ("<!here> <!channel> <!subteam^S1|@team>", "everyone everyone team"),
        ("<!date^1392734382^{date}|18 February 2014>", "18 February 2014"),
        ("At 10:30:45 :wave: hello :+1::skin-tone-2:", "At 10:30:45 hello"),
        ("&gt; quoted\nplain", "quoted\nplain"),
        ("one\n\ntwo", "one\n\ntwo"),
    ]:
        with subtests.test(text=text, spoken=spoken):
            assert spoken_text(text, {"U1": "Ana", "C1": "studio"}) == spoken


async def test_while_slack_does_not_say_who_somebody_is_a_message_opens_no_form(
    world: World,
) -> None:
    world.slack.add_user("sam", team="T0ELSEWHERE", channels=["studio"])
    sam = Person(world.slack, "sam")
    world.slack.faults.always("users.info", CannedResponse(503, b""))
    assert (await sam.message_shortcut(world.ben.say("Hello, everyone."))).ok
    await world.settle()
    assert sam.modal is None
    assert "couldn't check who you are" in world.ephemerals(sam)[-1]


def test_no_message_takes_long_to_turn_into_words(subtests: pytest.Subtests) -> None:
    for unit in ["*a ", "*a*a ", "_a", "*_~", "<@", ":a", "`", "~ ~"]:
        with subtests.test(unit=unit):
            began = time.process_time()
            spoken_text(unit * (40_000 // len(unit)), {})
            assert time.process_time() - began < 0.3
