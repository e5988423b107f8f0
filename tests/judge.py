"""What must hold of every life of the bot's jobs, judged from the wire and from the disk."""

import contextlib
import hashlib
import itertools
import json
import logging
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from bot.database import moment_of
from sandbox.faults import LateCommit
from sandbox.slack import Call
from sandbox.workspace import Event, Message
from tests.disk import Rows
from tests.mortal import MortalWorld, mark_of

_CREATES: Final = {"create_video": "video", "create_replica": "replica"}
_WORDS: Final = {"video": "script", "replica": "replica_name"}
_SEARCHES: Final = frozenset(
    {"conversations.history", "conversations.replies", "conversations.open"}
)
# Beside cards and replies: forms, and words to one person.
_QUIET: Final = _SEARCHES | {"chat.update", "chat.postEphemeral", "views.open", "response_url"}
_UNDER_WAY: Final = frozenset({"running", "overdue"})
_ENDED: Final = frozenset({"succeeded", "failed"})
# How card and reply say how it ended.
_FAILED: Final = ("Failed", "could not be made")
_ENDINGS: Final = {
    "succeeded": ("Ready", "is ready"),
    "given_up": ("Given up", "was given up"),
    "unanswered": ("Given up", "was given up"),
}
_SETTLED: Final = frozenset({"posted", "lost"})
_MAY_BE_THERE: Final = frozenset({"sending", "uncertain", "posted"})


@dataclass
class Told:
    """What people did that the judge has to know."""

    keys: set[str] = field(default_factory=set)
    """The ids of all forms that were sent off."""
    accepted: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was typed into those that the bot closed, by id."""
    again: Counter[str] = field(default_factory=Counter)
    """How often somebody who may do so pressed *Create again*, by job."""


class Judge:
    """Looks on from the start; ``look`` raises where a promise is broken."""

    def __init__(self, world: MortalWorld, told: Told) -> None:
        self._world = world
        self._told = told
        self._before = Rows()
        self._typed: dict[str, dict[str, str]] = {}
        self._posted: list[tuple[int, Message]] = []
        self._wrong: list[str] = []
        self._ear = _Ear(self._wrong)
        logging.getLogger().addHandler(self._ear)
        world.witness = self._witness
        self._leave = world.slack.subscribe(self._note)

    def leave(self) -> None:
        """Look no longer."""
        logging.getLogger().removeHandler(self._ear)
        self._leave()

    @property
    def rows(self) -> Rows:
        """What was on the disk when the judge last looked."""
        return self._before

    def look(self) -> None:
        """Hold everything against what there is to see, now that the bot is at rest."""
        now = self._world.disk.rows()
        for id_, job in now.jobs.items():
            if not job["erased"]:
                self._typed.setdefault(id_, _params(job))
        assert not self._wrong, self._wrong
        self._judge_submissions(now)
        self._judge_moves(now)
        self._judge_ids(now)
        self._judge_payment(now)
        self._judge_waits(now)
        self._judge_posts(now)
        self._judge_lock()
        self._before = now

    # ── At the moment itself ──────────────────────────────────────────────────────────────────

    def _witness(self, moment: str, about: str) -> None:
        if moment == "before create":
            self._expect_attempts(self._world.disk.rows())
        elif moment in {"before card", "before reply"}:
            self._expect_mark(about, self._world.disk.rows())

    def _expect_attempts(self, rows: Rows) -> None:
        """Whatever may cost money is written down first, each call by itself."""
        written = Counter(attempt["token_hash"] for attempt in rows.attempts)
        made = Counter(map(_hashed, filter(None, map(_token, self._creates()))))
        self._wrong += [f"an unwritten create call {hash_}" for hash_ in made - written]
        by_words = Counter(
            (attempt["kind"], self._words(rows, attempt["job_id"])) for attempt in rows.attempts
        )
        calls = Counter((_CREATES[each.operation], _said(each.body)) for each in self._creates())
        self._wrong += [f"create calls without an attempt: {each}" for each in calls - by_words]

    def _expect_mark(self, mark: str, rows: Rows) -> None:
        """A post is marked before it is sent, and a reply goes out after the end."""
        late = any(isinstance(call.fault, LateCommit) for call in self._posts_of(mark))
        delivery = rows.deliveries.get(mark, {"posting": "nowhere"})
        if delivery["posting"] not in _MAY_BE_THERE and not late:
            self._wrong.append(f"{mark} is posted while it is {delivery['posting']}")
        job, _, role = mark.partition("/")
        if role == "reply" and rows.jobs[job]["ended_at"] is None:
            self._wrong.append(f"a reply before the end of {job}")

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind == "posted" and message is not None and message.is_from_bot:
            self._posted.append((len(self._world.slack.calls), message))

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────

    def _judge_submissions(self, now: Rows) -> None:
        by_key = {job["request_key"]: job for job in now.jobs.values()}
        assert len(by_key) == len(now.jobs), "one job per submission"
        assert by_key.keys() <= self._told.keys, "nobody asked for this"
        assert self._told.accepted.keys() <= by_key.keys(), "an accepted request is lost"
        for key, typed in self._told.accepted.items():
            job = by_key[key]
            kept = {**self._typed[job["id"]], "where": job["channel"]}
            assert {name: kept.get(name) for name in typed} == typed, "something else is stored"
        assert self._before.jobs.keys() <= now.jobs.keys(), "a job is gone"

    def _judge_moves(self, now: Rows) -> None:
        for id_, was in self._before.jobs.items():
            job = now.jobs[id_]
            move = f"{id_}: {was['state']} → {job['state']}"
            assert job["erased"] or was["params"] == job["params"], f"{id_} asks for something else"
            if was["ended_at"] is not None:
                for name in ("state", "failure", "ended_at", "remote_id", "attempts"):
                    assert was[name] == job[name], f"changed after its end: {move}"
            if was["state"] in _UNDER_WAY:
                assert job["state"] in _UNDER_WAY | _ENDED, move
            assert was["remote_id"] in {None, job["remote_id"]}, f"another id: {move}"
            assert was["attempts"] <= job["attempts"], move
        for job in now.jobs.values():
            assert (job["state"] in _ENDED) == (job["ended_at"] is not None)

    def _judge_ids(self, now: Rows) -> None:
        owner: dict[tuple[str, str], str] = {}
        for attempt in now.attempts:
            if attempt["remote_id"] is not None:
                named = attempt["kind"], attempt["remote_id"]
                assert named not in owner, f"{named} belongs to two attempts"
                owner[named] = attempt["job_id"]
        service = self._world.service
        for id_, job in now.jobs.items():
            kind = job["kind"]
            for remote_id in filter(None, [job["remote_id"], *_ids(job["strays"])]):
                assert owner.get((kind, remote_id)) == id_, f"{id_} has what is not its own"
                typed = self._typed[id_][_WORDS[kind]]
                if kind == "video" and (video := service.videos.get(remote_id)):
                    assert video.script == typed, f"{id_} took another's video"
                if kind == "replica" and (replica := service.replicas.get(remote_id)):
                    assert replica.name == typed, f"{id_} took another's replica"
            if job["state"] == "succeeded":
                made = service.videos.get(job["remote_id"]) or service.replicas[job["remote_id"]]
                assert made.ended(self._world.clock.now()) in {"success", "deleted"}, "not ready"

    def _judge_payment(self, now: Rows) -> None:
        """Nothing is created twice unless a person said so; what is refused is not created."""
        allowed: Counter[tuple[str, str]] = Counter()
        for id_, job in now.jobs.items():
            allowed[job["kind"], self._words(now, id_)] += 1 + self._told.again[id_]
        service, others = self._world.service, self._world.others
        made = Counter(
            ("video", video.script) for id_, video in service.videos.items() if id_ not in others
        )
        made += Counter(
            ("replica", each.name) for id_, each in service.replicas.items() if id_ not in others
        )
        assert not made - allowed, f"paid twice: {made - allowed}"
        calls: Counter[tuple[str, str]] = Counter()
        for each in self._creates():
            if each.status != 429:
                calls[_CREATES[each.operation], _said(each.body)] += 1
        assert not calls - allowed, f"create calls that nobody wanted: {calls - allowed}"
        tokens = Counter(filter(None, map(_token, self._creates())))
        assert tokens.total() == len(tokens), "two calls for one attempt"

    def _judge_waits(self, now: Rows) -> None:
        """What is open is due at some moment; at rest, nothing that could be done is left."""
        clock, longest = self._world.clock.now(), self._world.timings.max_wait
        for id_, job in now.jobs.items():
            due = moment_of(job["due_at"])
            if job["ended_at"] is None:
                assert due is not None, f"{id_} is {job['state']} and never looked at again"
            assert due is None or clock < due <= clock + longest, (
                f"{id_} is {job['state']} and due {due}, now it is {clock}"
            )
            assert not job["claimed"], f"{id_} is {job['state']}, and nobody works on it"
        for mark, delivery in now.deliveries.items():
            assert not delivery["claimed"], f"{mark} is in nobody's hands"
            due = moment_of(delivery["due_at"])
            if delivery["posting"] not in _SETTLED:
                waits = self._waits(now, mark)
                assert (due is None) is waits, f"{mark} is {delivery['posting']} and due {due}"
            if delivery["posting"] == "posted" and delivery["role"] == "card":
                assert due is not None or delivery["shown"] == delivery["wanted"], "not shown"
            if due is not None and not self._is_paused(clock):
                assert clock < due <= clock + longest, (
                    f"{mark} is {delivery['posting']} and due {due}, now it is {clock}"
                )

    def _is_paused(self, clock: datetime) -> bool:
        since = clock - self._world.timings.pause
        return any(since < call.at <= clock and not call.ok for call in self._world.slack.calls)

    def _waits(self, now: Rows, mark: str) -> bool:
        """Return whether it is a reply whose card has yet to be posted."""
        job, _, role = mark.partition("/")
        return role == "reply" and now.deliveries[f"{job}/card"]["posting"] not in _SETTLED

    def _judge_lock(self) -> None:
        """Nobody else gets at the file meanwhile."""
        other = sqlite3.connect(self._world.database, timeout=0, isolation_level=None)
        with contextlib.closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")

    # ── Messages ──────────────────────────────────────────────────────────────────────────────

    def _judge_posts(self, now: Rows) -> None:
        slack = self._world.slack
        methods = {call.method for call in slack.calls} - _QUIET
        assert methods <= {"chat.postMessage"}, f"nobody expects {methods}"
        copies: defaultdict[str, list[tuple[int, Message]]] = defaultdict(list)
        for at, message in self._posted:
            mark = mark_of({"metadata": message.metadata})
            assert mark in now.deliveries, f"posted out of the blue: {message.text}"
            copies[mark].append((at, message))
        for mark, posts in copies.items():
            for (first, message), (second, _) in itertools.pairwise(posts):
                looks = slack.calls[first:second]
                assert any(map(_was_blind, looks)) or self._to_person(mark), (
                    f"posted again without a look: {message.text}"
                )
            job, _, role = mark.partition("/")
            for _, message in posts:
                if role == "card":
                    shown = slack.find(message.channel, message.ts) or message
                    assert f"No. {job}" in shown.text, shown.text
                else:
                    self._judge_reply(now, job, message, [m.ts for _, m in copies[f"{job}/card"]])

    def _judge_reply(self, now: Rows, job: str, reply: Message, cards: list[str]) -> None:
        row = now.jobs[job]
        assert row["ended_at"] is not None, "a reply before the end"
        _, told = _ENDINGS.get(row["failure"] or row["state"], _FAILED)
        assert told in reply.text, f"{row['state']}: {reply.text}"
        assert row["user_id"] in reply.pings
        direct = now.deliveries[f"{job}/reply"]["direct"]
        assert direct or reply.thread_ts in cards, "a reply outside its thread"

    def _to_person(self, mark: str) -> bool:
        """Return whether a post of it went to a person whose conversation is not known."""
        return any(
            str(call.arguments.get("channel")).startswith("U") for call in self._posts_of(mark)
        )

    def _posts_of(self, mark: str) -> list[Call]:
        return [
            call
            for call in self._world.slack.calls
            if call.method == "chat.postMessage" and mark_of(call.arguments) == mark
        ]

    # ── At the end ────────────────────────────────────────────────────────────────────────────

    def questions(self) -> Iterable[str]:
        """Return the jobs that ask a person."""
        return [
            id_
            for id_, job in self._before.jobs.items()
            if job["state"] == "unconfirmed" and job["asked"]
        ]

    def restless(self) -> list[str]:
        """Return what has not come to its end."""
        jobs = [id_ for id_, job in self._before.jobs.items() if job["due_at"] is not None]
        return jobs + [m for m, each in self._before.deliveries.items() if each["due_at"]]

    def close(self) -> None:
        """Hold against the promises how it all ended: everything is told, and told once."""
        now = self._before
        posts = Counter(mark_of({"metadata": message.metadata}) for _, message in self._posted)
        for id_, job in now.jobs.items():
            assert job["ended_at"] is not None, f"{id_} never ended: {job['state']}"
            for mark in (f"{id_}/card", f"{id_}/reply"):
                if now.deliveries[mark]["posting"] == "lost":
                    refused = [call for call in self._posts_of(mark) if not call.ok]
                    assert len(refused) > 1, f"{mark} was not tried where it could be"
                else:
                    assert posts[mark], f"{mark} is nowhere"
            self._judge_last_look(now, id_)
        assert not self._world.disk.complaints()

    def _judge_last_look(self, now: Rows, job: str) -> None:
        """The card shows how it ended, if Slack let it be edited."""
        slack, card = self._world.slack, now.deliveries[f"{job}/card"]
        edits = [
            call
            for call in slack.calls
            if call.method == "chat.update" and call.arguments.get("ts") == card["ts"]
        ]
        if card["posting"] == "posted" and all(call.ok and not call.fault for call in edits[-1:]):
            shown = slack.find(card["channel"], card["ts"])
            row = now.jobs[job]
            word, _ = _ENDINGS.get(row["failure"] or row["state"], _FAILED)
            assert shown is not None
            assert word in shown.text, shown.text

    # ── Parts of the above ────────────────────────────────────────────────────────────────────

    def _creates(self) -> list[Any]:
        return [each for each in self._world.service.requests if each.operation in _CREATES]

    def _words(self, rows: Rows, job: str) -> str:
        row = rows.jobs[job]
        return self._typed.get(job, _params(row))[_WORDS[row["kind"]]]


class _Ear(logging.Handler):
    """Hears of what nobody foresaw. What the sandbox has to say of itself does not count."""

    def __init__(self, wrong: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not record.name.startswith("sandbox"):
            self._wrong.append(self._formatter.format(record))


def _was_blind(call: Call) -> bool:
    """Return whether a look for a post was turned down, or went to a person's id."""
    return call.method in _SEARCHES and not (call.ok and call.fault is None)


def _params(job: Mapping[str, Any]) -> dict[str, str]:
    params: dict[str, str] = json.loads(job["params"])
    return params


def _ids(stored: str) -> list[str]:
    ids: list[str] = json.loads(stored)
    return ids


def _token(create: Any) -> str | None:  # noqa: ANN401 - a request
    address = create.body.get("callback_url")
    return None if address is None else urlsplit(address).path.rpartition("/")[2]


def _said(body: Any) -> str:  # noqa: ANN401 - any JSON
    return str(body.get("script") or body.get("replica_name"))


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
