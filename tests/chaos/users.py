"""The users: they submit forms, try again, answer questions, or do nothing."""

import asyncio
import contextlib
import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp

from bot.slack.views.buttons import (
    ANSWER_EACH,
    APPROVE,
    CANCEL_ALL,
    CREATE_AGAIN,
    DECLINE,
    GIVE_UP,
    HAVE_ID,
)
from sandbox.driver import Modal, Person
from sandbox.form import ClientRefusal
from sandbox.scenarios import Echo
from sandbox.slack_objects import Message
from tests.chaos.environment import Environment
from tests.chaos.rows import Result
from tests.crash import role_of
from tests.world import FOOTAGE, REPLICA, delivery_of, is_question

Decision = Literal["again", "its id", "wrong id, then again", "give up", "nothing"]

_CHANNELS: Final = ("studio", "studio", "studio", "lobby", "vault", "attic")
_DECISIONS: Final[tuple[Decision, ...]] = (
    "again",
    "again",
    "its id",
    "its id",
    "wrong id, then again",
    "give up",
    "nothing",
)
# Between two tries to submit a form, and between two reads of the cards.
_INTERVAL_S: Final = 0.25
_LONG_SHARE: Final = 0.5
_LONG_TIMES: Final = 400
_MAX_TRIES: Final = 80
# Requests in the outage of a run.
_QUEUED: Final = 100
_TAG: Final = re.compile(r"No·(\d{5})")


@dataclass
class UserRequest:
    """A request of a user, identified in every text by its ``tag``.

    Attributes:
        is_long: whether the script is in a file, and longer than a message.
        clicks: how often the submit button is clicked.
        decision: what the user does about a question.
        accepted: whether its form closed on an answer.
        create_again_presses: how often *Create again* was pressed.
    """

    tag: str
    person: Person
    channel: str
    decision: Decision
    kind: Literal["video", "replica"] = "video"
    is_long: bool = False
    clicks: int = 1
    accepted: bool = False
    create_again_presses: int = 0
    tried_wrong_id: bool = False


class Users:
    """All users of the workspace, an attacker who forges callbacks, and an outsider.

    The outsider is of another organisation, and presses the buttons of others.

    Attributes:
        requests: all of them.
        queued: those of an outage of the service, which are short videos.
        homes_opened: the ids of those who opened their Home tab, once for each time.
    """

    def __init__(self, env: Environment, rng: random.Random, *, jobs: int) -> None:
        self._env = env
        self._rng = rng
        names = [f"person-{number}" for number in range(max(4, min(24, jobs // 5)))]
        for name in names:
            env.slack.add_user(name)
        env.slack.add_user("outsider", team="T0ELSEWHERE")
        self._outsider = Person(env.slack, "outsider")
        for channel in env.slack.channels.values():
            channel.members |= set(env.slack.users)
            if channel.name in {"lobby", "vault"}:
                channel.members.discard(env.slack.bot.id)
        # A user has one form open at a time.
        self._form_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._people = [Person(env.slack, name) for name in names]
        self.homes_opened: list[str] = []
        self._first = [
            UserRequest(
                tag=f"No·{number:05}",
                person=self._people[number % len(names)],
                channel=rng.choice(_CHANNELS),
                kind="replica" if rng.random() < 0.1 else "video",
                is_long=rng.random() < _LONG_SHARE,
                clicks=rng.choice((1, 1, 1, 2, 3)),
                decision=rng.choice(_DECISIONS),
            )
            for number in range(jobs)
        ]
        self.queued = [
            UserRequest(
                tag=f"No·{number:05}",
                person=self._people[number % len(names)],
                channel=rng.choice(_CHANNELS),
                decision=rng.choice(_DECISIONS),
            )
            for number in range(jobs, jobs + _QUEUED)
        ]
        self.requests = [*self._first, *self.queued]

    def form_lock(self, person: Person) -> asyncio.Lock:
        """Return what is held while a person has a form open."""
        return self._form_locks[person.user.id]

    async def submit_all(self) -> None:
        """Submit the first requests, spread over the time in which the bot is killed."""
        await self._submit_each(self._first)

    async def submit_queued(self) -> None:
        """Submit the requests of the outage."""
        await self._submit_each(self.queued)

    async def answer_questions(self) -> None:
        """Answer the questions, and forge callbacks, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            questions = self._questions()
            for request in self.requests:
                if request.accepted and (question := questions.get(request.tag)):
                    with contextlib.suppress(ClientRefusal):
                        await self._answer(request, question)
            await self._forge_callback()
            await self._intrude([*questions.values()])

    async def open_homes(self) -> None:
        """Open the Home tab as one person after the other, until cancelled."""
        for person in itertools.cycle(self._people):
            await asyncio.sleep(_INTERVAL_S)
            self.homes_opened.append(person.user.id)  # it may be open although its answer is lost
            await person.open_home()

    async def open_homes_again(self) -> None:
        """Open each Home tab that was opened once more: it is current when it is opened."""
        for person in self._people:
            if person.user.id in self.homes_opened:
                while not (await person.open_home()).ok:
                    await asyncio.sleep(_INTERVAL_S)

    async def _submit_each(self, requests: Sequence[UserRequest]) -> None:
        async with asyncio.TaskGroup() as group:
            for person in self._people:
                group.create_task(
                    self._submit_requests([a for a in requests if a.person is person])
                )

    async def _submit_requests(self, requests: Sequence[UserRequest]) -> None:
        for request in requests:
            number = int(request.tag.rpartition("·")[2])
            while self._env.progress < min(1, number / len(self._first)):
                await asyncio.sleep(_INTERVAL_S)
            async with self.form_lock(request.person):
                await self._submit(request)

    async def _submit(self, request: UserRequest) -> None:
        script = f"{request.tag} says *hello* <!here> & bye."
        spoken: dict[str, object] = {"script": script}
        if request.is_long and request.kind == "video":
            content = "\n".join([script] * _LONG_TIMES).encode()
            file = self._env.slack.upload(request.person.user.name, "script.txt", content)
            spoken = {"script_file": [file["id"]]}
        forms: dict[str, dict[str, object]] = {
            "video": {"replica_id": REPLICA, **spoken},
            "replica": {"train_video_url": FOOTAGE, "replica_name": request.tag, "agreed": ["yes"]},
        }
        values = forms[request.kind]
        form: Modal | None = None
        for _ in range(_MAX_TRIES):
            if form is None or not form.is_open:
                await request.person.command(f"/{request.kind}", "", request.channel)
                form = request.person.modal
            if form is not None and not values.keys() <= {f.block_id for f in form.view.fields()}:
                # A bot that does not know its scopes yet offers no field for a file.
                await form.close()
            elif form is not None:
                # The picker offers no id while the bot is down.
                with contextlib.suppress(ClientRefusal):
                    answer = await form.submit(values, clicks=request.clicks)
                    if not form.is_open:
                        request.accepted = True
                        return
                    # What the second click led to, at another copy, may hide what the first did.
                    if answer.ok and not form.errors and "errors" not in (answer.json or {}):
                        raise AssertionError(f"an unexpected answer to a form: {answer}")
            await asyncio.sleep(_INTERVAL_S)
        if form is not None and form.is_open:
            await form.close()

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, request: UserRequest, question: Message) -> None:
        if is_list(question):
            await self._answer_in_list(request, question)
            return
        ids = [id_ for id_, tag in self._tags_by_id().items() if tag == request.tag]
        match request.decision:
            case "give up":
                await request.person.click(question, GIVE_UP)
            case "nothing":
                pass
            case "its id" if ids:
                await self._give_id(request, question, self._rng.choice(ids))
            case "wrong id, then again" if not request.tried_wrong_id:
                others = [id_ for id_, tag in self._tags_by_id().items() if tag != request.tag]
                request.tried_wrong_id = True
                await self._give_id(request, question, self._rng.choice(others or [REPLICA]))
            case _:
                request.create_again_presses += 1
                await request.person.click(question, CREATE_AGAIN)

    async def _answer_in_list(self, request: UserRequest, question: Message) -> None:
        """Cancel or create again, whichever was decided, in the form about several requests."""
        lock = self.form_lock(request.person)
        if request.decision == "nothing" or lock.locked():
            return
        async with lock:
            await request.person.click(question, ANSWER_EACH)
            form = request.person.modal
            fields = form.view.fields() if form is not None else ()
            menus = [each.block_id for each in fields if tag_in(each.label) == request.tag]
            if form is not None and menus:
                chosen = "cancel" if request.decision == "give up" else "again"
                request.create_again_presses += chosen == "again"
                await form.submit({menus[0]: chosen}, clicks=request.clicks)
            if form is not None and form.is_open:
                await form.close()

    async def _give_id(self, request: UserRequest, question: Message, job: str) -> None:
        lock = self.form_lock(request.person)
        if lock.locked():
            return  # the user is busy with another form
        async with lock:
            await self._fill_in_id(request, question, job)

    async def _fill_in_id(self, request: UserRequest, question: Message, job: str) -> None:
        await request.person.click(question, HAVE_ID)
        form = request.person.modal
        if form is not None and "remote_id" in {each.block_id for each in form.view.fields()}:
            await form.submit({"remote_id": job})
            if form.is_open:
                await form.close()

    def _tags_by_id(self) -> dict[str, str]:
        """Return the tag of each video and replica by its id."""
        service = self._env.service
        texts = {v.video_id: v.script for v in service.videos.values()}
        texts |= {r.replica_id: r.name for r in service.replicas.values()}
        return {id_: tag for id_, text in texts.items() if (tag := tag_in(text))}

    def _questions(self) -> dict[str, Message]:
        """Return the open question about each request that has one, by tag."""
        slack = self._env.slack
        shown = [slack.find(m.channel, m.ts) for m in self._env.posted if is_question(m)]
        return {
            tag: question
            for question in shown
            if question is not None and is_open(question)
            for tag in tags_in(question.text)
        }

    async def _intrude(self, questions: Sequence[Message]) -> None:
        """Answer a question as the outsider, and ask for a video; neither has any effect."""
        if questions:
            question = self._rng.choice(questions)
            with contextlib.suppress(ClientRefusal):
                buttons = (
                    (ANSWER_EACH, CANCEL_ALL) if is_list(question) else (CREATE_AGAIN, GIVE_UP)
                )
                await self._outsider.click(question, self._rng.choice(buttons))
        await self._outsider.command("/video", "An outsider's script.")
        if self._outsider.modal is not None:
            raise AssertionError("a form opened for a person of another organisation")

    async def _forge_callback(self) -> None:
        """Send a false callback with an unknown token or a leaked one."""
        made = self._tags_by_id()
        seen = self._env.service.videos
        url = f"{self._env.url}/callbacks/unknown-token"
        known = self._rng.choice([*seen.values()]).callback_url if seen else None
        if known is not None and self._rng.random() < 0.5:
            url = known
            # Where the service shows no script, an attempt's own token is all there is to go by.
            made = {
                id_: tag
                for id_, tag in made.items()
                if id_ not in seen or seen[id_].scenario.echo is not Echo.NO_DATA
            }
        job = self._rng.choice([*made, "v-unknown"])
        false = {
            "video_id": job,
            "replica_id": job,
            "status": "ready",
            "hosted_url": "https://x.example",
        }
        with contextlib.suppress(aiohttp.ClientError):
            async with self._env.slack.session.post(url, json=false) as answer:
                await answer.read()


def tag_in(text: str) -> str | None:
    """Return the tag in a text."""
    found = _TAG.search(text)
    return found and found.group()


def tags_in(text: str) -> set[str]:
    """Return all tags in a text."""
    return {each.group() for each in _TAG.finditer(text)}


def is_open(question: Message) -> bool:
    """Return whether a question can be answered."""
    return CREATE_AGAIN in _action_ids(question) or is_list(question)


def is_list(question: Message) -> bool:
    """Return whether a question is about several requests, of which one is open."""
    return ANSWER_EACH in _action_ids(question)


def _action_ids(question: Message) -> set[str]:
    return {
        element["action_id"]
        for block in question.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    }


Answer = Literal["approve", "decline", "both", "nothing"]

_ANSWERS: Final[tuple[Answer, ...]] = (*("approve",) * 6, "decline", "both", "both", "nothing")


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
