"""The invariants of every job's life, checked on the recorded requests and on the disk."""

import hashlib
import itertools
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from bot.store import DatabaseInUse
from bot.store.database import optional_moment
from bot.store.sqlite import FileLock
from sandbox.faults import LateCommit
from sandbox.slack import FILE_CONTENT, Call, SandboxSlack
from sandbox.slack_objects import Event, Message
from tests.crash import CrashingWorld, delivery_key, role_of
from tests.databases import usage_differences
from tests.disk import Rows
from tests.world import number_of

_CREATES: Final = {"create_video": "video", "create_replica": "replica"}
_TEXT_FIELD: Final = {"video": "script", "replica": "replica_name"}
_SEARCHES: Final = frozenset(
    {"conversations.history", "conversations.replies", "conversations.open"}
)
# Methods that post no message.
_READS: Final = frozenset(
    {"auth.test", "users.info", "bots.info", "conversations.info", "chat.getPermalink"}
)
#: The calls that share a file: they are checked by what is shared.
UPLOADS: Final = frozenset(
    {"files.getUploadURLExternal", FILE_CONTENT, "files.completeUploadExternal", "files.info"}
)
_NOT_POSTS: Final = _SEARCHES | _READS | UPLOADS | {"chat.update", "views.open", "response_url"}
_UNDER_WAY: Final = frozenset({"running", "overdue"})
_ENDED: Final = frozenset({"succeeded", "failed"})
_SETTLED: Final = frozenset({"posted", "undeliverable", "withdrawn"})
_MAY_BE_THERE: Final = frozenset({"sending", "uncertain", "posted"})


@dataclass
class UserActions:
    """What the users did."""

    submitted: set[str] = field(default_factory=set)
    """The view ids of all submitted forms."""
    accepted: dict[str, dict[str, str]] = field(default_factory=dict)
    """The values of the forms that the bot accepted, by view id."""
    create_again: Counter[str] = field(default_factory=Counter)
    """How often a user pressed *Create again* whom that sufficed for, by job."""
    approved: set[tuple[str, int]] = field(default_factory=set)
    """The jobs, and how many attempts they had, when somebody who may pressed *Approve*."""


class InvariantChecker:
    """Observes a world from its start; ``check`` raises if an invariant is broken."""

    def __init__(self, world: CrashingWorld, actions: UserActions) -> None:
        self._world = world
        self._actions = actions
        self._before = Rows()
        self._typed: dict[str, dict[str, str]] = {}
        self._posted: list[tuple[int, Message]] = []
        self._files = SharedFiles()
        self._violations: list[str] = []
        self._errors = ErrorRecorder(self._violations)
        logging.getLogger().addHandler(self._errors)
        world.on_moment = self._on_moment
        self._unsubscribe = world.slack.subscribe(self._note)

    def detach(self) -> None:
        """Stop observing."""
        logging.getLogger().removeHandler(self._errors)
        self._unsubscribe()

    @property
    def rows(self) -> Rows:
        """What was on the disk at the last check."""
        return self._before

    def check(self) -> None:
        """Check all invariants; the bot must be idle."""
        now = self._world.disk.rows()
        for id_, job in now.jobs.items():
            if not job["erased"]:
                self._typed.setdefault(id_, _params(job))
        assert not self._violations, self._violations
        self._check_submissions(now)
        self._check_moves(now)
        self._check_ids(now)
        self._check_payment(now)
        different = usage_differences(now.jobs.values(), now.attempts, now.usage)
        assert not different, different
        self._check_waits(now)
        self._check_posts(now)
        check_questions(now)
        check_approvals(now)
        self._check_lock()
        self._before = now

    # ── At each moment ────────────────────────────────────────────────────────────────────────────

    def _on_moment(self, moment: str, about: str) -> None:
        if moment == "before create":
            self._expect_attempts(self._world.disk.rows())
        elif moment in {"before card", "before question", "before reply"}:
            self._expect_delivery(about, self._world.disk.rows())

    def _expect_attempts(self, rows: Rows) -> None:
        """Each create call has its own attempt on the disk before it is sent."""
        written = Counter(attempt["token_hash"] for attempt in rows.attempts)
        made = Counter(map(_hash, filter(None, map(_token, self._creates()))))
        self._violations += [
            f"a create call that is not on the disk: {hash_}" for hash_ in made - written
        ]
        by_text = Counter(
            (attempt["kind"], self._text(rows, attempt["job_id"])) for attempt in rows.attempts
        )
        calls = Counter((_CREATES[each.operation], _text_of(each.body)) for each in self._creates())
        self._violations += [f"create calls without an attempt: {each}" for each in calls - by_text]

    def _expect_delivery(self, key: str, rows: Rows) -> None:
        """A delivery is marked as sending before it is sent, a reply only after the job ended."""
        late = any(isinstance(call.fault, LateCommit) for call in self._posts_of(key))
        delivery = rows.deliveries.get(key, {"state": "nowhere"})
        if delivery["state"] not in _MAY_BE_THERE and not late:
            self._violations.append(f"{key} is posted while it is {delivery['state']}")
        job, _, role = key.partition("/")
        if role == "reply" and rows.jobs[job]["ended_at"] is None:
            self._violations.append(f"a reply before the end of {job}")

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind != "posted" or message is None or not message.is_from_bot:
            return
        if message.files:
            self._violations += filter(None, [self._files.note(message)])
        else:
            self._posted.append((len(self._world.slack.calls), message))

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────────

    def _check_submissions(self, now: Rows) -> None:
        by_key = {job["request_key"]: job for job in now.jobs.values()}
        assert len(by_key) == len(now.jobs), "one job per submission"
        assert by_key.keys() <= self._actions.submitted, "a job without a submission"
        assert self._actions.accepted.keys() <= by_key.keys(), "an accepted request is lost"
        for key, typed in self._actions.accepted.items():
            job = by_key[key]
            stored = {**self._typed[job["id"]], "where": job["channel"]}
            assert {name: stored.get(name) for name in typed} == typed, "something else is stored"
        assert self._before.jobs.keys() <= now.jobs.keys(), "a job is gone"

    def _check_moves(self, now: Rows) -> None:
        for id_, was in self._before.jobs.items():
            job = now.jobs[id_]
            move = f"{id_}: {was['state']} → {job['state']}"
            assert job["erased"] or was["params"] == job["params"], (
                f"the parameters of {id_} changed"
            )
            if was["ended_at"] is not None:
                for name in ("state", "failure", "ended_at", "remote_id", "attempts"):
                    assert was[name] == job[name], f"changed after its end: {move}"
            if was["state"] in _UNDER_WAY:
                assert job["state"] in _UNDER_WAY | _ENDED, move
            assert was["remote_id"] in {None, job["remote_id"]}, f"another id: {move}"
            assert was["attempts"] <= job["attempts"], move
        for job in now.jobs.values():
            assert (job["state"] in _ENDED) == (job["ended_at"] is not None)

    def _check_ids(self, now: Rows) -> None:
        owner: dict[tuple[str, str], str] = {}
        for attempt in now.attempts:
            if attempt["remote_id"] is not None:
                named = attempt["kind"], attempt["remote_id"]
                assert named not in owner, f"{named} belongs to two attempts"
                owner[named] = attempt["job_id"]
        service = self._world.service
        for id_, job in now.jobs.items():
            kind = job["kind"]
            for remote_id in filter(None, [job["remote_id"], *_ids(job["orphaned_ids"])]):
                assert owner.get((kind, remote_id)) == id_, f"{id_} has a resource of another job"
                typed = self._typed[id_][_TEXT_FIELD[kind]]
                if kind == "video" and (video := service.videos.get(remote_id)):
                    assert video.script == typed, f"{id_} took another's video"
                if kind == "replica" and (replica := service.replicas.get(remote_id)):
                    assert replica.name == typed, f"{id_} took another's replica"
            if job["state"] == "succeeded":
                made = service.videos.get(job["remote_id"]) or service.replicas[job["remote_id"]]
                assert made.ended(self._world.clock.now()) in {"success", "deleted"}, "not ready"

    def _check_payment(self, now: Rows) -> None:
        """Nothing is created twice unless a user said so, or before it is approved."""
        allowed: Counter[tuple[str, str]] = Counter()
        for id_, job in now.jobs.items():
            approved = sum(each == id_ for each, _ in self._actions.approved)
            may = approved + (job["approval_until"] is None)
            allowed[job["kind"], self._text(now, id_)] += may + self._actions.create_again[id_]
        service, foreign = self._world.service, self._world.foreign_ids
        made = Counter(
            ("video", video.script) for id_, video in service.videos.items() if id_ not in foreign
        )
        made += Counter(
            ("replica", each.name) for id_, each in service.replicas.items() if id_ not in foreign
        )
        assert not made - allowed, f"paid twice: {made - allowed}"
        calls: Counter[tuple[str, str]] = Counter()
        for each in self._creates():
            if each.status not in {401, 402, 429}:  # it is made again
                calls[_CREATES[each.operation], _text_of(each.body)] += 1
        assert not calls - allowed, f"create calls that no user wanted: {calls - allowed}"
        tokens = Counter(filter(None, map(_token, self._creates())))
        assert tokens.total() == len(tokens), "two calls for one attempt"

    def _check_waits(self, now: Rows) -> None:
        """Every open row is due at some moment; an idle bot has no row that is due now."""
        clock, longest = self._world.clock.now(), self._world.timings.max_wait
        for id_, job in now.jobs.items():
            due = optional_moment(job["due_at"])
            if job["ended_at"] is None:
                assert due is not None, f"{id_} is {job['state']} and never due"
            # What waits for the end of an outage of the service stays due.
            earliest = clock - longest if job["held_by"] == "service_down" else clock
            assert due is None or earliest < due <= clock + longest, (
                f"{id_} is {job['state']} and due {due}, now it is {clock}"
            )
            assert not job["claimed"], f"{id_} is {job['state']}, and its lease was not released"
        for key, delivery in now.deliveries.items():
            assert not delivery["claimed"], f"the lease of {key} was not released"
            due = optional_moment(delivery["due_at"])
            if delivery["state"] not in _SETTLED:
                waits = self._waits(now, key)
                assert (due is None) is waits, f"{key} is {delivery['state']} and due {due}"
            if delivery["state"] == "posted" and delivery["role"] != "reply":
                assert due is not None or delivery["shown_version"] == delivery["version"], (
                    "not shown"
                )
            if due is not None and not self._is_paused(clock):
                assert clock < due <= clock + longest, (
                    f"{key} is {delivery['state']} and due {due}, now it is {clock}"
                )

    def _is_paused(self, clock: datetime) -> bool:
        timings = self._world.timings

        def pauses(call: Call) -> timedelta:
            headers = getattr(call.fault, "headers", {})
            asked_for = timedelta(seconds=float(headers.get("Retry-After", 0)))
            return max(timings.pause, min(asked_for, timings.max_wait))

        failed = (call for call in self._world.slack.calls if not call.ok)
        return any(call.at <= clock < call.at + pauses(call) for call in failed)

    def _waits(self, now: Rows, key: str) -> bool:
        """Return whether it goes into the thread of a card that has yet to be posted."""
        job = key.partition("/")[0]
        card = now.deliveries[f"{job}/card"]
        return role_of(key) not in {"card", "approval"} and card["state"] not in _SETTLED

    def _check_lock(self) -> None:
        """No other bot can use a file meanwhile."""
        if self._world.postgres_url is not None:
            return
        with pytest.raises(DatabaseInUse):
            FileLock(self._world.database)

    # ── Messages ──────────────────────────────────────────────────────────────────────────────────

    def _check_posts(self, now: Rows) -> None:
        slack = self._world.slack
        methods = {call.method for call in slack.calls} - _NOT_POSTS
        assert methods <= {"chat.postMessage"}, f"unexpected calls of {methods}"
        copies: defaultdict[str, list[tuple[int, Message]]] = defaultdict(list)
        for at, message in self._posted:
            key = delivery_key({"metadata": message.metadata})
            assert key in now.deliveries, f"a post without a delivery: {message.text}"
            copies[key].append((at, message))
        for key, posts in copies.items():
            for (first, message), (second, _) in itertools.pairwise(posts):
                searches = slack.calls[first:second]
                assert any(map(_search_failed, searches)) or self._to_person(key), (
                    f"posted again without a search: {message.text}"
                )
            job = key.partition("/")[0]
            for _, message in posts:
                if role_of(key) == "card":
                    shown = slack.find(message.channel, message.ts) or message
                    assert not shown.blocks or number_of(shown) == job, shown.text
                    assert not message.pings, message.text
                    continue
                if role_of(key) == "approval":
                    continue
                cards = [m.ts for _, m in copies[f"{job}/card"]]
                outside = message.thread_ts not in cards and not now.deliveries[key]["direct"]
                assert not outside, f"outside its thread: {message.text}"
                if role_of(key) == "question":
                    asked = {now.jobs[job]["user_id"], self._world.cleo.user.id}
                    if "The person who asked can answer too." in message.text:
                        assert not now.deliveries[key]["direct"], message.text
                        asked = {self._world.cleo.user.id}
                    shortened = now.deliveries[key]["rewrites"]
                    assert message.pings == asked or shortened, f"not asked: {message.text}"
                else:
                    self._check_reply(now, job, message)

    def _check_reply(self, now: Rows, job: str, reply: Message) -> None:
        row = now.jobs[job]
        assert row["ended_at"] is not None, "a reply before the end"
        _, words = ending_of(row)
        assert words in reply.text, f"{row['state']}: {reply.text}"
        assert (row["user_id"] in reply.pings) is (row["failure"] != "stopped")

    def _to_person(self, key: str) -> bool:
        """Return whether it was posted to a user id, so that the conversation is not known."""
        return any(
            str(call.arguments.get("channel")).startswith("U") for call in self._posts_of(key)
        )

    def _posts_of(self, key: str) -> list[Call]:
        return [
            call
            for call in self._world.slack.calls
            if call.method == "chat.postMessage" and delivery_key(call.arguments) == key
        ]

    def _search_failed_after(self, key: str) -> bool:
        """Return whether Slack refused a search after a message was posted."""
        [first, *_] = [
            at for at, m in self._posted if delivery_key({"metadata": m.metadata}) == key
        ]
        return any(map(_search_failed, self._world.slack.calls[first:]))

    # ── At the end ────────────────────────────────────────────────────────────────────────────────

    def open_questions(self) -> Iterable[str]:
        """Return the ids of the jobs with an open question."""
        return [
            id_
            for id_, job in self._before.jobs.items()
            if job["state"] == "unconfirmed" and job["asked"]
        ]

    def unfinished(self) -> list[str]:
        """Return the jobs and deliveries that are still due."""
        jobs = [id_ for id_, job in self._before.jobs.items() if job["due_at"] is not None]
        return jobs + [m for m, each in self._before.deliveries.items() if each["due_at"]]

    def check_end(self) -> None:
        """Check that every job ended and that its messages were posted."""
        now = self._before
        posts = Counter(delivery_key({"metadata": message.metadata}) for _, message in self._posted)
        for id_, job in now.jobs.items():
            assert job["ended_at"] is not None, f"{id_} never ended: {job['state']}"
            for key in (key for key, each in now.deliveries.items() if each["job_id"] == id_):
                if role_of(key) == "transcript":
                    self._files.check_final(now.deliveries[key], self._world.slack)
                elif now.deliveries[key]["state"] == "withdrawn":
                    found = not posts[key] or self._to_person(key) or self._search_failed_after(key)
                    assert found, f"{key} was posted and withdrawn"
                elif now.deliveries[key]["state"] == "undeliverable":
                    refused = [call for call in self._posts_of(key) if not call.ok]
                    places = 0 if role_of(key) == "approval" else 1
                    assert len(refused) > places, f"{key} was not tried in both places"
                else:
                    assert posts[key], f"{key} was not posted"
            assert {f"{id_}/card", f"{id_}/reply"} <= now.deliveries.keys()
            self._check_final_card(now, id_)
        check_final_questions(now, self._world.slack)
        check_final_approvals(now, self._world.slack)
        assert not self._world.disk.complaints()

    def _check_final_card(self, now: Rows, job: str) -> None:
        """The card shows the outcome, if Slack allowed the edit."""
        slack, card = self._world.slack, now.deliveries[f"{job}/card"]
        edits = [
            call
            for call in slack.calls
            if call.method == "chat.update" and call.arguments.get("ts") == card["ts"]
        ]
        if card["state"] == "posted" and all(call.ok and not call.fault for call in edits[-1:]):
            shown = slack.find(card["channel"], card["ts"])
            row = now.jobs[job]
            word, _ = ending_of(row)
            assert shown is not None
            assert word in shown.text, shown.text

    # ── Parts of the above ────────────────────────────────────────────────────────────────────────

    def _creates(self) -> list[Any]:
        return [each for each in self._world.service.requests if each.operation in _CREATES]

    def _text(self, rows: Rows, job: str) -> str:
        row = rows.jobs[job]
        return self._typed.get(job, _params(row))[_TEXT_FIELD[row["kind"]]]


def _search_failed(call: Call) -> bool:
    """Return whether a search for a post was refused or failed."""
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


def _text_of(body: Any) -> str:  # noqa: ANN401 - any JSON
    return str(body.get("script") or body.get("replica_name"))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


_SETTLED_WORDS = ("Approved by", "Declined by", "Cancelled by", "Not approved in time")
_NOWHERE = frozenset({"undeliverable", "withdrawn"})


def check_questions(rows: Rows) -> None:
    """Check that a job has an open question while it waits for an answer, and only then."""
    asked = {
        id_ for id_, job in rows.jobs.items() if job["state"] == "unconfirmed" and job["asked"]
    }
    owed: Counter[str] = Counter()
    states = {delivery["id"]: delivery["state"] for delivery in rows.deliveries.values()}
    for key, delivery in rows.deliveries.items():
        is_listed = delivery["state"] == "listed"
        assert is_listed or delivery["listed_in"] is None, f"{key} is in two messages"
        if delivery["role"] == "question" and delivery["settled_as"] is None:
            state = states[delivery["listed_in"]] if is_listed else delivery["state"]
            is_open = state not in _NOWHERE
            assert not is_open or delivery["job_id"] in asked, f"{key} is still open"
            owed[delivery["job_id"]] += is_open
    for id_ in asked:
        assert id_ in owed, f"{id_} waits for an answer, and nobody is asked"
        assert owed[id_] <= 1, f"{id_} is asked about twice"


def check_approvals(rows: Rows) -> None:
    """Check that approvers are asked about a job while it waits for them, and only then."""
    asked, approved = set(), set()
    for key, delivery in rows.deliveries.items():
        if delivery["role"] == "approval":
            asked.add(delivery["job_id"])
            if delivery["settled_as"] == "approved":
                approved.add(delivery["job_id"])
            waits = rows.jobs[delivery["job_id"]]["state"] == "waiting_for_approval"
            is_open = delivery["settled_as"] is None and delivery["state"] not in _NOWHERE
            assert not is_open or waits, f"{key} is still open"
    for id_, job in rows.jobs.items():
        assert job["approval_until"] is None or id_ in asked, f"nobody is asked to approve {id_}"
        # Of one that waits, or waited, to be created again, the first approval is settled so.
        if job["approval_until"] is not None and job["attempts"] and id_ not in approved:
            assert job["decided_by"] not in {None, job["user_id"]}, f"{id_} was not approved"


def _edited(rows: Rows, slack: SandboxSlack, role: str) -> Iterator[Message]:
    """Check that each posted message of a role was edited; yield those that Slack let change."""
    for key, delivery in rows.deliveries.items():
        if delivery["role"] != role or delivery["state"] != "posted":
            continue
        edits = [
            call
            for call in slack.calls
            if call.method == "chat.update" and call.arguments.get("ts") == delivery["ts"]
        ]
        assert edits, f"{key} was never edited"
        if edits[-1].ok and not edits[-1].fault:
            shown = slack.find(delivery["channel"], delivery["ts"])
            assert shown is not None
            yield shown


def check_final_approvals(rows: Rows, slack: SandboxSlack) -> None:
    """Check that each approval says how it was settled, if Slack allowed the edit."""
    for shown in _edited(rows, slack, "approval"):
        assert "*Approve this" not in shown.text, shown.text
        assert any(word in shown.text for word in _SETTLED_WORDS), shown.text


def check_final_questions(rows: Rows, slack: SandboxSlack) -> None:
    """Check that each question says how it was settled, if Slack allowed the edit."""
    for shown in _edited(rows, slack, "question"):
        assert " get made?" in shown.text, shown.text
        assert "I found it" not in str(shown.blocks), shown.text
        assert "Answer each" not in str(shown.blocks), shown.text


class SharedFiles:
    """The files of a workspace, by channel and thread."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str | None], str] = {}

    def note(self, message: Message) -> str | None:
        """Note what a message shares; return what is wrong with that."""
        place = message.channel, message.thread_ts
        again = place in self._ids
        self._ids[place] = str(message.files[0]["id"])
        return f"a second file in the thread {place}" if again else None

    def check_final(self, delivery: Mapping[str, Any], slack: SandboxSlack) -> None:
        """Check that a file is in its thread, unless Slack refused it."""
        if delivery["state"] == "posted":
            place = delivery["channel"], delivery["thread_ts"]
            assert self._ids.get(place) == delivery["file_id"], "not shared"
        else:
            assert delivery["state"] == "undeliverable", delivery
            calls = [each for each in slack.calls if each.method in UPLOADS]
            assert any(call.fault or not call.ok for call in calls), "given up without a reason"


_FAILED: Final = ("Failed", "couldn't be created")  # on the card and in the reply
_ENDINGS: Final = {
    "succeeded": ("Ready", "is ready"),
    **dict.fromkeys(("cancelled", "withdrawn"), ("Cancelled", "was cancelled")),
    "unanswered": ("Closed", "was closed"),
    "stopped": ("Stopped", "stopped"),
    "stopped_by_admin": ("Stopped", "ended your"),
    "declined": ("Declined", "was declined"),
    "not_approved": ("Not approved in time", "wasn't approved in time"),
    **dict.fromkeys(("timed_out", "not_found"), ("Failed", "didn't finish")),
}
_DELETED: Final = ("Deleted", "was deleted")


def ending_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the card and the reply of an ended job say."""
    snapshot = json.loads(row["snapshot"] or "{}")
    if row["failure"] == "service_failed" and snapshot.get("status") == "deleted":
        return _DELETED
    return _ENDINGS.get(row["failure"] or row["state"], _FAILED)


class ErrorRecorder(logging.Handler):
    """Records logged exceptions, except the sandbox's own."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not record.name.startswith("sandbox"):
            self._violations.append(self._formatter.format(record))
