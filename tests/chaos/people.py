"""What people do while everything breaks: they ask, try again, answer questions, or walk away."""

import asyncio
import contextlib
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp

from bot.slack.cards import CREATE_AGAIN, GIVE_UP, HAVE_ID
from sandbox.driver import Modal, Person
from sandbox.form import ClientRefusal
from sandbox.workspace import Message
from tests.chaos.stage import Stage
from tests.world import FOOTAGE, REPLICA

Answer = Literal["again", "its id", "wrong id, then again", "give up", "nothing"]

_PLACES: Final = ("studio", "studio", "studio", "lobby", "vault", "attic")
_ANSWERS: Final[tuple[Answer, ...]] = (
    "again",
    "again",
    "its id",
    "its id",
    "wrong id, then again",
    "give up",
    "nothing",
)
# In seconds: between two tries to get a form off, and between two looks at Slack.
_BREATH: Final = 0.25
# So often somebody tries to get a form off before walking away.
_TRIES: Final = 80
_MARK: Final = re.compile(r"No·(\d{5})")


@dataclass
class Ask:
    """One thing that a person asked for, known everywhere by the ``mark`` in its words.

    ``accepted``: its form closed on an answer. ``presses``: how often *Create again* was pressed.
    """

    mark: str
    person: Person
    place: str
    kind: Literal["video", "replica"]
    clicks: int
    answer: Answer
    accepted: bool = False
    presses: int = 0
    tried_wrong: bool = False


class People:
    """Everybody in the workspace, and a stranger who forges callbacks."""

    def __init__(self, stage: Stage, rng: random.Random, *, jobs: int) -> None:
        self._stage = stage
        self._rng = rng
        names = [f"person-{number}" for number in range(max(4, min(24, jobs // 5)))]
        for name in names:
            stage.slack.add_user(name)
        for channel in stage.slack.channels.values():
            channel.members |= set(stage.slack.users)
            if channel.name in {"lobby", "vault"}:
                channel.members.discard(stage.slack.bot.id)
        # A person has one form at a time in front of them.
        self._hands: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._people = [Person(stage.slack, name) for name in names]
        self.asks = [
            Ask(
                mark=f"No·{number:05}",
                person=self._people[number % len(names)],
                place=rng.choice(_PLACES),
                kind="replica" if rng.random() < 0.1 else "video",
                clicks=rng.choice((1, 1, 1, 2, 3)),
                answer=rng.choice(_ANSWERS),
            )
            for number in range(jobs)
        ]

    async def ask(self) -> None:
        """Ask for everything, spread over the time in which the bot is killed."""
        async with asyncio.TaskGroup() as group:
            for person in self._people:
                group.create_task(self._ask_all([a for a in self.asks if a.person is person]))

    async def answer(self) -> None:
        """Answer the questions that cards have, and forge callbacks, until cancelled."""
        while True:
            await asyncio.sleep(_BREATH)
            cards = self._cards()
            for ask in self.asks:
                if ask.accepted and (card := cards.get(ask.mark)) and _asks(card):
                    with contextlib.suppress(ClientRefusal):
                        await self._reply(ask, card)
            await self._forge()

    async def _ask_all(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            number = int(ask.mark.rpartition("·")[2])
            while self._stage.share < number / len(self.asks):
                await asyncio.sleep(_BREATH)
            async with self._hands[ask.person.user.id]:
                await self._ask(ask)

    async def _ask(self, ask: Ask) -> None:
        forms: dict[str, dict[str, object]] = {
            "video": {"replica_id": REPLICA, "script": f"{ask.mark} says *hello* <!here> & bye."},
            "replica": {"train_video_url": FOOTAGE, "replica_name": ask.mark, "agreed": ["yes"]},
        }
        values = forms[ask.kind]
        form: Modal | None = None
        for _ in range(_TRIES):
            if form is None or not form.is_open:
                await ask.person.command(f"/{ask.kind}", "", ask.place)
                form = ask.person.modal
            if form is not None:
                # The picker may not answer, as nobody may be there: then the id is not offered.
                with contextlib.suppress(ClientRefusal):
                    answer = await form.submit(values, clicks=ask.clicks)
                    if not form.is_open:
                        ask.accepted = True
                        return
                    if answer.ok and not form.errors:
                        raise AssertionError(f"an odd answer to a form: {answer}")
            await asyncio.sleep(_BREATH)
        if form is not None and form.is_open:
            await form.close()

    # ── Questions ─────────────────────────────────────────────────────────────────────────────

    async def _reply(self, ask: Ask, card: Message) -> None:
        made = [job for job, mark in self._made().items() if mark == ask.mark]
        match ask.answer:
            case "give up":
                await ask.person.click(card, GIVE_UP)
            case "nothing":
                pass
            case "its id" if made:
                await self._give_id(ask, card, self._rng.choice(made))
            case "wrong id, then again" if not ask.tried_wrong:
                others = [job for job, mark in self._made().items() if mark != ask.mark]
                ask.tried_wrong = True
                await self._give_id(ask, card, self._rng.choice(others or [REPLICA]))
            case _:
                ask.presses += 1
                await ask.person.click(card, CREATE_AGAIN)

    async def _give_id(self, ask: Ask, card: Message, job: str) -> None:
        hands = self._hands[ask.person.user.id]
        if hands.locked():
            return  # in another form just now
        async with hands:
            await self._fill_id(ask, card, job)

    async def _fill_id(self, ask: Ask, card: Message, job: str) -> None:
        await ask.person.click(card, HAVE_ID)
        form = ask.person.modal
        if form is not None and "remote_id" in {each.block_id for each in form.view.fields()}:
            await form.submit({"remote_id": job})
            if form.is_open:
                await form.close()

    def _made(self) -> dict[str, str]:
        """Return the mark of each video and replica that the service has made."""
        service = self._stage.service
        words = {v.video_id: v.script for v in service.videos.values()}
        words |= {r.replica_id: r.name for r in service.replicas.values()}
        return {job: mark for job, said in words.items() if (mark := mark_in(said))}

    def _cards(self) -> dict[str, Message]:
        slack = self._stage.slack
        tops = [m for channel in slack.channels for m in slack.messages(channel) if m.is_from_bot]
        return {mark: card for card in tops if (mark := mark_in(card.text))}

    async def _forge(self) -> None:
        """Tell lies with a token that somebody once saw, and with one that nobody has."""
        made = self._made()
        seen = [*self._stage.service.videos.values()]
        url = f"{self._stage.url}/callbacks/nobody-has-this"
        if seen and (known := self._rng.choice(seen).callback_url):
            url = self._rng.choice((url, known))
        job = self._rng.choice([*made, "v-unheard-of"])
        lie = {
            "video_id": job,
            "replica_id": job,
            "status": "ready",
            "hosted_url": "https://x.example",
        }
        with contextlib.suppress(aiohttp.ClientError):
            async with self._stage.slack.session.post(url, json=lie) as answer:
                await answer.read()


def mark_in(words: str) -> str | None:
    """Return the mark of the ask that some words are about."""
    found = _MARK.search(words)
    return found and found.group()


def _asks(card: Message) -> bool:
    return CREATE_AGAIN in {
        element["action_id"]
        for block in card.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    }
