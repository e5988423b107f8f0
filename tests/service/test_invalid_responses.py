"""Invalid responses of the video service and of Slack: nothing is done or posted twice."""

import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.delivery import interact, interaction
from sandbox.driver import Modal
from sandbox.faults import CannedResponse
from sandbox.slack_objects import Message
from tests.invalid_cases import CREATE_RESPONSES, READ_RESPONSES, SLACK_RESPONSES, ServerResponse
from tests.invalid_input import FAST, BotUnderTest, submitted_view
from tests.world import REPLICA, World, number_of


@pytest.fixture
async def polling_bot(memory: Path, logged: io.StringIO) -> AsyncIterator[BotUnderTest]:
    """A bot without callbacks: it asks about unconfirmed videos at once."""
    world = World(memory)
    admin = world.ana.user.id
    async with world.running_sandbox(), world.running_bot(callbacks=False, ADMIN_USERS=admin):
        yield BotUnderTest(world, logged)


@dataclass(frozen=True)
class Requester:
    """A person who submits one open form again and again."""

    world: World
    form: Modal

    async def request_video(self, script: str = "Hello, world.") -> Message:
        """Ask for a video and return its card as it was first posted."""
        view, before = submitted_view(self.form), len(self.world.slack.messages("studio"))
        view["state"]["values"]["script"]["script"]["value"] = script
        ana, studio = self.world.ana.user, self.world.slack.channel("studio")
        sent = interaction(self.world.slack, ana, "view_submission", studio)
        answer = await interact(self.world.slack, {**sent, "view": view})
        assert (answer.status, answer.body) == (200, "")
        await self.world.settle()
        new = self.world.slack.messages("studio")[before:]
        return new[0] if new else Message("", "", "", "")


@pytest.fixture
async def requester(polling_bot: BotUnderTest) -> Requester:
    """Ana, with the form open."""
    world = polling_bot.world
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "Hello, world.")
    return Requester(world, form)


async def test_after_any_response_to_a_create_call_the_video_is_created_once_or_asked_about(
    polling_bot: BotUnderTest, requester: Requester, subtests: pytest.Subtests
) -> None:
    bot, world = polling_bot, polling_bot.world
    for case in CREATE_RESPONSES:
        with subtests.test(case.name):
            await world.advance(minutes=8)  # after a failed call, creates wait for a while
            world.service.faults.next("create_video", case.fault(world))
            creates = len(world.requests_for("create_video"))
            card = await requester.request_video()
            if case.outcome == "retried":
                assert not world.replies(card)
                await world.advance(seconds=5)
                creates += 1
            assert len(world.requests_for("create_video")) == creates + 1
            assert outcome(world, card) == case.outcome.replace("retried", "created")
            if case.outcome == "unconfirmed":
                await world.after(world.ana.click(world.question(card), "Cancel request"))
                assert len(world.replies(card)) == 1
            check_harmless(world, card)
            bot.check_log()
    await bot.check_works()


async def test_after_any_response_to_a_read_the_video_is_reported_once(
    polling_bot: BotUnderTest, requester: Requester, subtests: pytest.Subtests
) -> None:
    bot, world = polling_bot, polling_bot.world
    cases, cards = READ_RESPONSES, []
    for _ in cases:
        cards.append(await requester.request_video())
        await world.advance(seconds=0.1)
    assert not world.requests_for("read_video")
    await world.advance(seconds=9.95 - 0.1 * len(cases))
    for case in cases:
        # Each has its first read at another time, and so gets its own response.
        world.service.faults.next("read_video", case.fault(world))
        await world.advance(seconds=0.1)
    read = [request.path.rpartition("/")[2] for request in world.requests_for("read_video")]
    # Where one could not be read, something harmless is.
    read = [each for each in read if each in world.service.videos]
    assert read == list(world.service.videos), "each of them once"
    await bot.check_works()
    for case, card, video in zip(cases, cards, read, strict=True):
        with subtests.test(case.name):
            assert outcome(world, card) == case.outcome.replace("running", "created")
            check_harmless(world, card, case)
            await world.ana.command("/video", f"status {number_of(card)}")
            if case.outcome == "running":
                world.service.finish(video)
    await bot.check_works()
    await world.advance(minutes=5)
    for case, card in zip(cases, cards, strict=True):
        with subtests.test(case.name):
            assert outcome(world, card) == case.outcome.replace("running", "ready")
            check_harmless(world, card, case)
    await bot.check_works()


def outcome(world: World, card: Message) -> str:
    """Return the outcome of a video according to its card and its thread."""
    text, replies = world.now(card).text, world.replies(card)
    words = {"Needs an answer": "unconfirmed", "Rendering": "created"}
    words |= {"Failed": "failed", "Deleted": "failed", "Ready": "ready"}
    [found] = [what for word, what in words.items() if word in text] or [text]
    assert len(replies) == (found in {"failed", "ready"}), replies
    return found


def check_harmless(world: World, card: Message, case: ServerResponse | None = None) -> None:
    """Check that the service's text is shown and mentions no one."""
    messages = [world.now(card), *world.replies(card)]
    received = "".join(message.text + json.dumps(message.blocks) for message in messages)
    assert all(message.pings <= {world.ana.user.id} for message in messages)
    if case is not None:
        assert case.shown in received
        assert not case.hidden or case.hidden not in received


async def test_after_any_response_to_a_post_or_an_edit_the_message_is_there_once(
    polling_bot: BotUnderTest, requester: Requester, subtests: pytest.Subtests
) -> None:
    bot, world = polling_bot, polling_bot.world
    world.service.pace = FAST
    searches = [case for case in SLACK_RESPONSES if case.method == "conversations.history"]
    others = [
        case for case in SLACK_RESPONSES if case.method in {"chat.postMessage", "chat.update"}
    ]
    # Lost posts are searched for half a minute later, in the same order: so these come first.
    for case in [*searches, *others]:
        if case in searches:
            world.slack.faults.next("chat.postMessage", CannedResponse(503, b""))
        world.slack.faults.next(case.method, case.fault(world))
        await world.after(requester.request_video(case.name), seconds=0.1)
        bot.check_log()
    await world.advance(minutes=15)
    for case in [*searches, *others]:
        with subtests.test(case.name):
            cards = [message for message in world.posts() if message.thread_ts is None]
            [card] = [each for each in cards if each.text.split("\n")[0] == case.name]
            [reply] = world.replies(card)
            assert "Ready" in card.text
            assert "is ready" in reply.text
    assert len(world.posts()) == 2 * len([*searches, *others])
    await bot.check_works()


async def test_after_any_response_to_a_form_or_a_private_reply_the_bot_works(
    polling_bot: BotUnderTest, subtests: pytest.Subtests
) -> None:
    bot, world = polling_bot, polling_bot.world
    for case in SLACK_RESPONSES:
        if case.method in {"views.open", "response_url"}:
            with subtests.test(case.name):
                text = "Hello." if case.method == "views.open" else "status v-nobody"
                world.slack.faults.next(case.method, case.fault(world))
                answer = await world.ana.command("/video", text)
                assert answer.ok
                assert case.answer in answer.body
                await bot.check_works()
    assert not world.posts()
