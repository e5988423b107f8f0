"""Approvals: approvers press Approve and Decline, twice and at once, and what became of that."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final, Literal

from bot.slack.views.buttons import APPROVE, DECLINE
from sandbox.driver import Person
from sandbox.form import ClientRefusal
from sandbox.slack_objects import Message
from tests.chaos.environment import Environment
from tests.chaos.rows import Result
from tests.chaos.users import UserRequest, Users, tag_in
from tests.crash import role_of
from tests.world import delivery_of

Answer = Literal["approve", "decline", "both", "nothing"]

_ANSWERS: Final[tuple[Answer, ...]] = (
    *("approve",) * 6,
    "decline",
    "both",
    "both",
    "nothing",
)
_INTERVAL_S: Final = 0.25


class Approvals:
    """What the approvers do: videos with long scripts and trainings need their approval.

    Attributes:
        approved: the tags of requests, and the messages, in which *Approve* was pressed, however it
            was answered.
        declined: the tags of requests for which *Decline* was pressed.
        presses: how often either was pressed.
    """

    def __init__(self, env: Environment, users: Users, rng: random.Random) -> None:
        self._env = env
        self._users = users
        self._rng = rng
        self._people = [Person(env.slack, name) for name in env.approvers]
        self._answers: dict[str, Answer] = {
            request.tag: rng.choice(_ANSWERS) for request in users.requests if needs(request)
        }
        self.approved: set[tuple[str, str]] = set()
        self.declined: set[str] = set()
        self.presses = 0

    async def answer_all(self) -> None:
        """Answer what is open, again until it is settled, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            for message in self._open():
                tag = tag_in(message.text) or ""
                match self._answers.get(tag, "nothing"):
                    case "approve":
                        await asyncio.gather(*(self._approve(tag, message) for _ in range(2)))
                    case "decline":
                        await self._decline(tag, message)
                    case "both":
                        await asyncio.gather(
                            self._approve(tag, message), self._decline(tag, message)
                        )
                    case "nothing":
                        pass

    async def _approve(self, tag: str, message: Message) -> None:
        self.approved.add((tag, delivery_of(message)))
        self.presses += 1
        with contextlib.suppress(ClientRefusal):
            await self._rng.choice(self._people).click(message, APPROVE)

    async def _decline(self, tag: str, message: Message) -> None:
        self.declined.add(tag)
        self.presses += 1
        person = self._rng.choice(self._people)
        async with self._users.form_lock(person):
            with contextlib.suppress(ClientRefusal):
                await person.click(message, DECLINE)
            form = person.modal
            if form is not None:
                with contextlib.suppress(ClientRefusal):
                    await form.submit({"decline_reason": "Not <!here> & now."}, clicks=2)
                if form.is_open:
                    await form.close()

    def _open(self) -> list[Message]:
        """Return the messages that ask for approval now."""
        found = [self._env.slack.find(m.channel, m.ts) for m in self._posted()]
        return [each for each in found if each is not None and APPROVE in str(each.blocks)]

    def _posted(self) -> Iterator[Message]:
        return (m for m in list(self._env.posted) if role_of(delivery_of(m)) == "approval")

    @property
    def posted(self) -> defaultdict[str, list[Message]]:
        """The messages that ask for approval, by delivery."""
        found = defaultdict[str, list[Message]](list)
        for message in self._posted():
            found[delivery_of(message)].append(message)
        return found

    def left_open(self, replies: defaultdict[str, list[Message]]) -> list[str]:
        """Return the tags of those that still ask about a request that has ended.

        A message whose post could not be searched for is not known: another of its delivery is.
        """
        open_ones = Counter(delivery_of(each) for each in self._open())
        return [
            key
            for key, messages in self.posted.items()
            if open_ones[key] == len(messages) and replies[tag_in(messages[0].text) or ""]
        ]

    def rows(self, creates: Counter[str]) -> Iterator[Result]:
        """Yield what was done, and the promises that were broken."""
        yield Result("presses of Approve and Decline", self.presses)
        yield Result("approvals posted", sum(map(len, self.posted.values())))
        needed = {each.tag for each in self._users.requests if needs(each)}
        approved = Counter(tag for tag, _ in self.approved)
        unapproved = [tag for tag in creates if tag in needed and creates[tag] > approved[tag]]
        yield Result("create calls before an approval", len(unapproved), 0, unapproved)

    def is_wrong(self, request: UserRequest, reply: Message, *, was_created: bool) -> bool:
        """Return whether a closing reply that says "not approved" is wrong."""
        was_declined = "declined by" in reply.text
        was_first = not request.create_again_presses
        return (was_created and was_first) or (was_declined and request.tag not in self.declined)


def needs(request: UserRequest) -> bool:
    """Return whether a request needs approval."""
    return request.is_long or request.kind == "replica"
