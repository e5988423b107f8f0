"""Shares: users post what was made for them in another channel, and what became of that."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from bot.slack.buttons import SHARE
from sandbox.driver import Modal
from sandbox.form import ClientRefusal
from sandbox.slack_objects import Message
from tests.chaos.environment import Environment
from tests.chaos.users import UserRequest, Users, tag_in
from tests.crash import role_of
from tests.world import delivery_of

_CHANNELS: Final = ("studio", "attic", "lobby")
_SHARED: Final = 0.5
_INTERVAL_S: Final = 0.25
_MAX_TRIES: Final = 20


class Shares:
    """The shares of a run.

    Attributes:
        accepted: the tags of the forms that closed on an answer.
    """

    def __init__(self, env: Environment, users: Users, rng: random.Random) -> None:
        self._env = env
        self._users = users
        self._channels = {
            request.tag: rng.choice(_CHANNELS)
            for request in users.requests
            if request.kind == "video" and rng.random() < _SHARED
        }
        self.accepted: list[str] = []

    async def share_all(self) -> None:
        """Share each video that is to be, once it is there, until the last kill is done."""
        left = {each.tag: each for each in self._users.requests if each.tag in self._channels}
        async with asyncio.TaskGroup() as group:
            while self._env.progress < 1:
                await asyncio.sleep(_INTERVAL_S)
                for tag, card in self._ready_cards():
                    if (request := left.pop(tag, None)) is not None:
                        group.create_task(self._share(request, card))

    async def _share(self, request: UserRequest, card: Message) -> None:
        form: Modal | None = None
        for _ in range(_MAX_TRIES):
            async with self._users.form_lock(request.person):
                with contextlib.suppress(ClientRefusal):
                    await request.person.click(card, SHARE)
                form = request.person.modal
                if form is not None and "share_channel" in {f.block_id for f in form.view.fields()}:
                    await self._submit(request, form)
                    return
            await asyncio.sleep(_INTERVAL_S)

    async def _submit(self, request: UserRequest, form: Modal) -> None:
        for _ in range(_MAX_TRIES):
            channel = self._channels[request.tag]
            await form.submit({"share_channel": channel}, clicks=request.clicks)
            if not form.is_open:
                self.accepted.append(request.tag)
                return
            await asyncio.sleep(_INTERVAL_S)
        await form.close()

    def _ready_cards(self) -> Iterator[tuple[str, Message]]:
        for posted in list(self._env.posted):
            if role_of(delivery_of(posted)) == "card" and (tag := tag_in(posted.text)):
                card = self._env.slack.find(posted.channel, posted.ts)
                if card is not None and SHARE in str(card.blocks):
                    yield tag, card

    @property
    def posted(self) -> defaultdict[str, list[Message]]:
        """The messages that say that something is shared, or that it was refused, by delivery."""
        found = defaultdict[str, list[Message]](list)
        for message in self._env.posted:
            if role_of(delivery_of(message)) == "share":
                found[delivery_of(message)].append(message)
        return found

    def missing(self) -> list[str]:
        """Return the tags of accepted shares that are neither posted nor told to the person."""
        posted = {tag_in(those[0].text) for those in self.posted.values()}
        return [tag for tag in self.accepted if tag not in posted]

    def wrong(self) -> list[str]:
        """Return the tags of shares that nobody asked for, or not there, or not as often."""
        slack = self._env.slack
        people = {each.tag: each.person.user.id for each in self._users.requests}
        shared = Counter(tag_in(those[0].text) or "no tag" for those in self.posted.values())
        places = {
            (tag, place)
            for tag, channel in self._channels.items()
            for place in (slack.channel(channel).id, slack.dm(people[tag]).id)
        }
        return [tag for tag, times in shared.items() if times > 1] + [
            tag_in(each.text) or each.text
            for those in self.posted.values()
            for each in those
            if (tag_in(each.text), each.channel) not in places
        ]
