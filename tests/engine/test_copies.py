"""Two copies of the bot on one PostgreSQL database: each request may reach either of them."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bot.app import Bot
from bot.timings import Clock, SystemClock
from sandbox.delivery import deliver, encoded, interaction
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.bot_process import BotProcess
from tests.engine.test_clock import ANA, BEN, WrongClock
from tests.engine.test_service_outage import ask
from tests.journeys.test_retries import CREATE_AGAIN
from tests.postgres_proxy import Hold, PostgresProxy
from tests.processes import QUICK, LiveWorld
from tests.store.test_copies_leases import MAX_DIFFERENCE
from tests.web.test_web import asks_what_to_do, click
from tests.world import REPLICA, World, is_question, offered_ids

VALUES = {"replica_id": REPLICA, "script": "Hello, world."}


@pytest.fixture
def world(world_of_copies: World) -> World:
    return world_of_copies


async def test_a_form_that_one_copy_opened_is_served_and_submitted_at_the_other(
    world: World,
) -> None:
    async with world.running_copies() as (first, second):
        await world.after(world.at(first, world.ana.command("/replica", f"add {REPLICA}")))
        form = await world.at(first, world.open_form(world.ana))
        assert await world.at(first, offered_ids(form)) == [REPLICA]
        assert await world.at(second, offered_ids(form)) == [REPLICA]
        await world.at(second, form.submit(VALUES))
        # Slack sends it once more, elsewhere.
        await world.after(world.at(first, form.resubmit()), minutes=5)
        card, reply = world.posts()
        assert (reply.thread_ts, world.created_count()) == (card.ts, 1)


@pytest.mark.parametrize(
    ("button", "creates", "state"),
    [(CREATE_AGAIN, 2, "Rendering"), ("Cancel request", 1, "ancelled")],
)
async def test_an_answer_to_a_question_that_reaches_both_copies_counts_once(
    button: str, creates: int, state: str, world: World
) -> None:
    async with world.running_copies(PUBLIC_URL="") as copies:
        card = await asks_what_to_do(world)
        body = click(world, world.question(card), button)
        for _ in range(2):
            await asyncio.gather(
                *(world.at(copy, deliver(world.slack, body)) for copy in copies * 2)
            )
            await world.advance(seconds=5)
        assert state in world.now(card).text
        assert len(world.requests_for("create_video")) == creates
        await world.advance(minutes=5)
        assert len(world.replies(card)) == 1


async def test_a_click_that_reaches_the_other_copy_later_changes_nothing(world: World) -> None:
    async with world.running_copies(PUBLIC_URL="") as copies:
        card = await asks_what_to_do(world)
        body = click(world, world.question(card), CREATE_AGAIN)
        for copy in copies:
            await world.after(world.at(copy, deliver(world.slack, body)), seconds=5)
        assert len(world.requests_for("create_video")) == 2


async def test_what_one_copy_learns_of_replicas_the_other_offers_at_once(world: World) -> None:
    async with world.running_copies() as (first, second):
        await world.after(world.at(first, world.ana.command("/replica", f"add {REPLICA}")))
        forms = [await world.open_form(person) for person in (world.ana, world.ben)]
        for form in forms:
            assert await world.at(first, offered_ids(form)) == [REPLICA]
            assert await world.at(second, offered_ids(form)) == [REPLICA]
        world.service.add_replica("r-kim", "Kim")
        await world.after(world.at(first, world.ana.command("/replica", "add r-kim")))
        assert set(await world.at(second, offered_ids(forms[0]))) == {REPLICA, "r-kim"}
        await world.after(world.at(second, world.ana.command("/replica", "default r-kim")))
        assert (await world.at(first, offered_ids(forms[1])))[0] == "r-kim"
        for form in forms:
            await form.close()
        form = await world.at(first, world.open_form(world.ben))
        assert form.values["replica_id"] == "r-kim"


async def test_a_callback_reaches_the_other_copy_at_any_moment_of_a_job(world: World) -> None:
    """During the create call, between polls, during a read, and while its card is posted."""
    async with world.running_copies():
        world.service.callback_plan = CallbackPlan(early=True, times=2)
        await world.request_video(world.ana)
        world.service.callback_plan = CallbackPlan()
        await world.request_video(world.ana)
        video = list(world.service.videos)[-1]

        async def call_back(phase: str, name: str, _: object) -> None:
            if (phase, name) in {("after", "read_video"), ("before", "chat.postMessage")}:
                await world.service.call_back(video)

        world.service.on_request = call_back
        world.slack.on_request = call_back
        await world.after(world.request_video(world.ana), minutes=5)
        assert len(world.requests_for("create_video")) == 3
        cards = world.slack.messages("studio")
        assert ["Ready" in world.now(card).text for card in cards] == [True] * 3
        assert [len(world.replies(card)) for card in cards] == [1] * 3


async def test_a_copy_that_starts_delays_no_edit_of_the_others(world: World) -> None:
    async with world.running_bot():
        card = await world.request_video(world.ana)
        world.slack.faults.next("chat.update", CannedResponse(429, "", {"Retry-After": "5"}))
        video = next(iter(world.service.videos))
        world.service.finish(video)
        await world.after(world.service.call_back(video))
        assert "Ready" not in world.now(card).text, "it is tried again in five seconds"
        async with world.running_bot():
            await world.advance(seconds=10)
            assert "Ready" in world.now(card).text


async def test_an_envelope_that_two_copies_receive_is_one_request(world: World) -> None:
    world.socket_mode = True
    async with world.running_copies():
        assert len(world.slack.socket_mode.connections) == 2
        for twice in (False, True):
            world.slack.socket_mode.delivers_twice = twice
            form = await world.submit_form(world.ana, VALUES)
            assert not form.is_open
            # While the second copy stores it once more, it has the job's row locked.
            async with asyncio.timeout(30):
                while len(world.slack.messages("studio")) <= twice:
                    await world.settle()
        await world.advance(minutes=5)
        assert world.created_count() == 2
        assert len(world.posts()) == 4
        assert all(each.acknowledged for each in world.slack.socket_mode.connections)


async def test_copies_that_ask_a_person_at_once_post_one_message(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.pauses = {**world.pauses, "first_hold": timedelta(0)}
    async with world.running_copies() as copies:
        world.service.faults.next("create_video", *[CannedResponse(500)] * 12)
        for number in range(12):
            asked = {"script": f"Number {number}."}
            await world.at(copies[number % 2], world.request_video(world.ana, asked))
        await world.advance(minutes=16)
        [question] = [each for each in world.posts() if is_question(each)]
        assert "these 12 videos" in question.text


LEASE = timedelta(seconds=1)


@pytest.fixture
def live(tmp_path: Path) -> LiveWorld:
    live = LiveWorld(tmp_path)
    live.on_postgres = True
    live.timings = replace(QUICK, lease=LEASE, drain=timedelta(hours=1))
    return live


async def test_what_a_copy_was_doing_when_it_died_another_does_once_its_lease_ends(
    live: LiveWorld,
) -> None:
    async with live.running():
        survivors: list[BotProcess] = []
        ends: list[int] = []
        leases = "SELECT max(due_at) AS end FROM {} WHERE claimed = 1"

        async def start_another(moment: str, _about: str) -> None:
            """Start the other copy when the first one has claimed what it will never do."""
            if moment == live.kill_at:
                # Before the other copy claims anything.
                found = [live.query(leases.format(table)) for table in ("jobs", "deliveries")]
                ends.extend(row["end"] for [row] in found if row["end"] is not None)
                survivors.append(live.spawn_bot())
                await survivors[0].wait_until_listening()

        # The card is posted, and its answer is lost; the video is rendering.
        live.kill_at = "after card"
        live.on_moment = start_another
        await live.request_video()
        await live.wait_until(lambda: not live.kill_at)
        assert await live.bot.wait() < 0
        died_at = SystemClock().now()
        live.bot = survivors[0]
        assert ends
        for end in ends:
            assert end / 1000 - died_at.timestamp() <= LEASE.total_seconds()
        await live.wait_until(lambda: live.card_says("Ready") and live.replies())
        assert (live.created_count(), len(live.replies()), live.posts()) == (1, 1, 2)


async def test_a_copy_that_is_asked_to_end_says_not_ready_and_answers_requests_meanwhile(
    live: LiveWorld,
) -> None:
    async with live.running():
        os.kill(live.bot.pid, signal.SIGTERM)
        ready = f"http://127.0.0.1:{live.port}/readyz"
        async with asyncio.timeout(30):
            while True:
                async with live.slack.session.get(ready) as answer:
                    if answer.status == 503:
                        break
        form = await live.request_video()
        assert not form.is_open
        assert live.query("SELECT count(*) AS jobs FROM jobs") == [{"jobs": 1}]
        assert live.created_count() == 0, "that is for the others to do"


FORMS = 24


async def forms(world: World, number: int) -> list[bytes]:
    """Return the requests of forms of Ana's, each with a script of its own."""
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "SCRIPT")
    payload = interaction(world.slack, world.ana.user, "view_submission", None)
    text = json.dumps({**payload, "view": form.view.payload()})
    view_id = form.view.payload()["id"]
    await form.close()
    return [
        encoded(json.loads(text.replace("SCRIPT", f"Hello {n}.").replace(view_id, f"{view_id}{n}")))
        for n in range(number)
    ]


def sent(world: World, copies: Sequence[Bot], requests: Sequence[bytes]) -> list[Any]:
    """Return what sends requests to copies in turn."""
    return [
        world.at(copies[number % len(copies)], deliver(world.slack, request))
        for number, request in enumerate(requests)
    ]


async def waiting_for_limits(url: str) -> int:
    """Return how many transactions wait for the lock that forms wait for."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND query LIKE '%FROM locks%'"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        found = await (await connection.execute(query)).fetchone()
    return int(found[0]) if found else 0


@contextlib.asynccontextmanager
async def limits_locked(url: str, copies: int) -> AsyncIterator[None]:
    """Hold the lock that forms wait for, and let it go once transactions of all copies wait."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT * FROM locks WHERE name = 'limits' FOR UPDATE")
        yield
        async with asyncio.timeout(30):
            while await waiting_for_limits(url) < copies:
                pass


async def test_of_many_forms_that_reach_both_copies_at_once_as_many_are_accepted_as_the_limit_says(
    world: World,
) -> None:
    url = world.postgres_url
    assert url is not None
    async with world.running_copies(MAX_PER_DAY="7", MAX_OPEN_PER_USER="20") as copies:
        requests = await forms(world, FORMS)
        async with limits_locked(url, len(copies)):
            answers = asyncio.gather(*sent(world, copies, requests))
            for copy in (*copies, *copies):  # meanwhile the rest of the forms come in
                assert (await world.at(copy, world.ben.command("/video", "list"))).ok
        await answers
        await world.advance(seconds=10)
        assert world.created_count() == 7
        assert len(world.slack.messages("studio")) == 7


async def test_forms_that_wait_for_the_other_copy_leave_the_rest_of_their_own_free(
    world: World,
) -> None:
    url = world.postgres_url
    assert url is not None
    async with world.running_copies() as copies:
        requests = await forms(world, FORMS)
        await world.settle()  # the first sweep of each copy takes the same lock
        async with limits_locked(url, 1):
            answers = asyncio.gather(*sent(world, copies[:1], requests))
            # Otherwise two wait within a tenth of a second of a processor.
            until = asyncio.get_running_loop().time() + 1
            while asyncio.get_running_loop().time() < until:
                assert (await world.at(copies[0], world.ben.command("/video", "list"))).ok
                assert await waiting_for_limits(url) <= 1
        assert not any(answer.body for answer in await answers), "all forms were accepted"
        # A create call that waits for others for two seconds is put off.
        await world.advance(seconds=10)
        assert world.created_count() == FORMS
        assert len(world.slack.messages("studio")) == FORMS


#: More than a lease, and less than Slack's signatures allow.
FOUR_MINUTES = timedelta(minutes=4)


@contextlib.asynccontextmanager
async def running_apart(world: World, difference: timedelta) -> AsyncIterator[list[Bot]]:
    """Start two copies, of which the clock of the second one is ahead by ``difference``."""
    wrong = WrongClock(world.clock)
    async with world.running_bot() as first:
        world.bot_clock = wrong
        wrong.off = difference
        async with world.running_bot() as second:
            yield [first, second]


def card(world: World, script: str) -> Message | None:
    """Return the card of a video, if it is posted."""
    cards = [m for m in world.slack.messages("studio") if script in m.text]
    assert len(cards) <= 1, "it was posted twice"
    return cards[0] if cards else None


async def slow_call(world: World, call: str, copies: list[Bot]) -> None:
    """Have a call for Ana take nearly as long as it may, while both copies look for due work."""
    first, second = copies
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(phase: str, name: str, about: object) -> None:
        its = name != "chat.postMessage" or ANA in str(about)
        if armed and (phase, name) == ("after", call) and its and not reached.is_set():
            reached.set()
            await goes_on.wait()

    world.slack.on_request = hold
    world.service.on_request = hold
    # The card of a video is edited once it is ready, and before only if it was posted early.
    armed = call != "chat.update"
    await world.at(first, ask(world, world.ana, script=ANA))
    if not armed:
        await world.card_time()
        armed = True
        world.service.finish(*world.service.videos)
    async with asyncio.timeout(30):
        await reached.wait()
        delay = world.timings.card_delay
        world.clock.set(world.clock.now() + world.timings.call_timeout - delay * len(copies))
        for number, copy in enumerate((first, second)):
            script = f"{BEN} {number}"
            await world.at(copy, ask(world, world.ben, script=script))
            world.clock.set(world.clock.now() + delay)
            while card(world, script) is None:  # noqa: ASYNC110 - of whichever copy posts it
                await asyncio.sleep(0)
    goes_on.set()
    await world.settle()


@pytest.mark.parametrize("call", ["create_video", "chat.postMessage", "chat.update"])
async def test_a_slow_call_is_left_alone_at_the_greatest_difference_of_clocks(
    call: str, world_of_copies: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of_copies
    async with running_apart(world, MAX_DIFFERENCE) as copies:
        await slow_call(world, call, copies)
        assert "interrupted" not in caplog.text
        await world.advance(minutes=5)
        for message in world.slack.messages("studio"):
            assert "Ready" in message.text
            assert len(world.replies(message)) == 1
        assert len(world.requests_for("create_video")) == 3
        assert len(world.calls("conversations.history")) == 0, "no post was in doubt"


@pytest.mark.parametrize("difference", [FOUR_MINUTES, -FOUR_MINUTES], ids=["ahead", "behind"])
@pytest.mark.parametrize("call", ["create_video", "chat.postMessage"])
async def test_clocks_that_are_far_apart_cost_no_money(
    call: str, difference: timedelta, world_of_copies: World
) -> None:
    world = world_of_copies
    async with running_apart(world, difference) as copies:
        await world.after(slow_call(world, call, copies), minutes=20)
        assert len(world.requests_for("create_video")) == 3
        for message in world.slack.messages("studio"):
            assert "Ready" in message.text
            assert len(world.replies(message)) == 1


MARK_SENDING = "THEN 'sending'"
BEGIN_ATTEMPT = "INSERT INTO attempts"


class StoppableClock:
    """A clock as a process sees it that may be stopped."""

    def __init__(self, right: Clock) -> None:
        self._right = right
        self._stopped_at: datetime | None = None

    def stop(self) -> None:
        self._stopped_at = self._right.now()

    def resume(self) -> None:
        self._stopped_at = None

    def now(self) -> datetime:
        return self._stopped_at or self._right.now()

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        await self._right.wait(event, None if self._stopped_at else until)


class PausedWorld:
    """Two copies, of which the first one is stopped in the middle of something."""

    def __init__(self, world: World, proxy: PostgresProxy) -> None:
        self.world = world
        self.proxy = proxy
        self.clock = StoppableClock(world.clock)
        self.first: Bot

    @contextlib.asynccontextmanager
    async def running_first(self) -> AsyncIterator[None]:
        self.world.bot_clock = self.clock
        async with self.world.running_bot(DATABASE_URL=self.proxy.url, PUBLIC_URL="") as self.first:
            yield

    @contextlib.asynccontextmanager
    async def stopped(self, reached: asyncio.Event) -> AsyncIterator[None]:
        """Stop the first copy once it has ``reached`` something, while a second one goes on."""
        async with asyncio.timeout(30):
            await reached.wait()
        self.clock.stop()
        self._settled = self.world.clock._workers.pop()
        self.world.bot_clock = self.world.clock
        async with self.world.running_bot(PUBLIC_URL=""):
            yield

    async def goes_on_until(self, condition: Callable[[], object]) -> None:
        """Let time pass for the second copy until ``condition`` is true."""
        until = self.world.clock.now() + timedelta(hours=1)
        while not condition():
            assert self.world.clock.now() < until
            await self.world.advance(seconds=15)

    async def resumes(self, hold: Hold | asyncio.Event) -> None:
        """Let the first copy go on, and both do all that is due for a while."""
        self.clock.resume()
        self.world.clock._workers.append(self._settled)
        (hold.let_go if isinstance(hold, Hold) else hold).set()
        await self.world.advance(minutes=5)

    def cards(self) -> list[Message]:
        return [each for each in self.world.posts() if each.thread_ts is None]


@pytest.fixture
async def paused(world_of_copies: World, postgres_url: str) -> AsyncIterator[PausedWorld]:
    async with PostgresProxy(postgres_url).running() as proxy:
        yield PausedWorld(world_of_copies, proxy)


async def test_a_message_that_another_copy_has_posted_meanwhile_is_not_posted_again(
    paused: PausedWorld,
) -> None:
    world = paused.world
    async with paused.running_first():
        hold = paused.proxy.hold_commit_of(MARK_SENDING)
        await ask(world, world.ana)
        async with paused.stopped(hold.reached):
            await paused.goes_on_until(paused.cards)
            await paused.resumes(hold)
            [card] = paused.cards()
            assert "Ready" in card.text
            assert len(world.replies(card)) == 1


async def test_a_request_that_was_cancelled_meanwhile_is_not_created(paused: PausedWorld) -> None:
    world = paused.world
    async with paused.running_first():
        hold = paused.proxy.hold_commit_of(BEGIN_ATTEMPT)
        await ask(world, world.ana)
        async with paused.stopped(hold.reached):
            await paused.goes_on_until(paused.cards)
            [card] = paused.cards()
            await paused.goes_on_until(lambda: world.questions(card))
            await world.ana.click(world.question(card), "Cancel request")
            await paused.goes_on_until(lambda: "ancelled" in world.now(card).text)
            await paused.resumes(hold)
            assert world.requests_for("create_video") == []
            assert len(world.replies(card)) == 1


async def _held(world: World, method: str, words: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the next call of a method with these words, before it is carried out."""
    reached, let_go = asyncio.Event(), asyncio.Event()

    async def hold(phase: str, name: str, about: object) -> None:
        if (phase, name) == ("before", method) and words in str(about) and not reached.is_set():
            reached.set()
            await let_go.wait()

    world.slack.on_request = hold
    return reached, let_go


async def test_an_edit_that_comes_late_is_not_what_a_card_shows_in_the_end(
    paused: PausedWorld,
) -> None:
    world = paused.world
    async with paused.running_first():
        reached, let_go = await _held(world, "chat.update", "Rendering")
        world.creates_slowly()
        await world.after(ask(world, world.ana))
        world.clock.set(world.clock.now() + timedelta(seconds=2))
        async with paused.stopped(reached):
            await paused.goes_on_until(lambda: paused.cards() and "Ready" in paused.cards()[0].text)
            await paused.resumes(let_go)
            [card] = paused.cards()
            assert "Ready" in card.text
            assert len(world.replies(card)) == 1
