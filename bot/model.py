"""What the bot knows of jobs and messages: values, states and waiting times; no effects."""

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

# So many calls in a row found nobody before a card says so.
_NOT_A_MOMENT: Final = 3


class State(StrEnum):
    """How far a job is. The names are ours; the service's own word is kept in the snapshot."""

    QUEUED = "queued"
    """Asked for and stored; no create call is under way."""
    CREATING = "creating"
    """A create call is under way, or was when the process died: it may have cost money."""
    UNCONFIRMED = "unconfirmed"
    """A create call got no usable answer: nobody knows whether it was created."""
    RUNNING = "running"
    """The service has it and we know its id."""
    OVERDUE = "overdue"
    """Running, but past its hard deadline: still read, rarely."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of the job."""
        return self in {State.SUCCEEDED, State.FAILED}


class Failure(StrEnum):
    """Why a job failed: the words for it are chosen where they are shown."""

    BROKEN = "broken"
    """The service began and says that it did not work out."""
    REFUSED = "refused"
    """The service turned the request down."""
    KEY = "key"
    """The service turns our key away."""
    CREDIT = "credit"
    """The service's account is out of credit."""
    UNREACHABLE = "unreachable"
    """The service could not be reached in time; nothing was created."""
    FORGOTTEN = "forgotten"
    """The service no longer knows what it made."""
    ENDLESS = "endless"
    """The service never came to an end."""
    GIVEN_UP = "given_up"
    """It is unknown whether it was created, and a person gave up on it."""
    UNANSWERED = "unanswered"
    """It is unknown whether it was created, and nobody answered the question."""


class Verdict(StrEnum):
    """What a snapshot means for its job."""

    GOING = "going"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the service said about a job's resource at one moment.

    ``status`` is the service's own word, ``reason`` why it failed in the service's own words.
    ``facts`` holds the other fields of the answer that were there and were text, under the names
    that the interface document gives them.
    """

    remote_id: str
    status: str
    verdict: Verdict
    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for, as it comes out of a form.

    ``key`` is the Slack id of the submission: the same key is the same job, however often it comes.
    """

    key: str
    kind: str
    params: Mapping[str, str]
    user: str
    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One thing a person asked for, once.

    ``due_at`` is when to look at it again, or nobody needs to. ``claim`` counts the times that it
    was claimed or woken: a row is put back only under the number it was claimed with.
    """

    id: str
    kind: str
    params: Mapping[str, str]
    user: str
    channel: str
    thread_ts: str | None
    created_at: datetime
    state: State = State.QUEUED
    due_at: datetime | None = None
    claim: int = 0
    attempts: int = 0
    """How many create calls were begun for it."""
    failures: int = 0
    """How many calls in a row found the service out of reach."""
    remote_id: str | None = None
    snapshot: Snapshot | None = None
    failure: Failure | None = None
    reason: str = ""
    """What the service said about the failure, in its own words."""
    late: bool = False
    """Past its soft deadline: the card says that it takes longer than usual."""
    usual: timedelta | None = None
    """How long such jobs took lately, where that is known."""
    started_at: datetime | None = None
    """When its id was received."""
    read_at: datetime | None = None
    woken_at: datetime | None = None
    """When a callback last asked for a read."""
    asked_at: datetime | None = None
    """When the person was last asked whether it was created, or answered."""
    asked: int = 0
    """How many times the person was asked and has not answered."""
    strays: tuple[str, ...] = ()
    """Ids of what earlier create calls turned out to have made after all."""
    waits_for: str | None = None
    """The replica in training without which the service does not begin."""
    ended_at: datetime | None = None
    erased: bool = False
    """Its script and links are gone: they were older than the retention time."""

    @property
    def unreachable(self) -> bool:
        """Whether the service has been out of reach for more than a moment."""
        return self.failures >= _NOT_A_MOMENT

    @property
    def visible(self) -> tuple[object, ...]:
        """All that a card may show: where it changes, the card is edited."""
        shown = self.snapshot and (
            self.snapshot.status,
            self.snapshot.reason,
            # It may change with each read although nothing else does, and no card shows it.
            tuple(sorted((n, v) for n, v in self.snapshot.facts.items() if n != "updated_at")),
        )
        return (
            self.state,
            self.failure,
            self.reason,
            self.late,
            self.asked,
            self.strays,
            self.remote_id,
            self.unreachable,
            self.waits_for,
            shown,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One create call that may have cost money, and what is known of it.

    ``hint`` is an id that a callback with this attempt's token named, or that a person ``vouched``
    for, and that nobody has checked.
    """

    id: int
    job_id: str
    remote_id: str | None
    made_at: datetime
    hint: str | None
    vouched: bool = False


class Role(StrEnum):
    """What a message is to its job."""

    CARD = "card"
    """Says how the job stands: posted once, then only edited."""
    REPLY = "reply"
    """Says how it ended, in the thread: posted once."""


class Posting(StrEnum):
    """How far a message is on its way to Slack."""

    OWED = "owed"
    SENDING = "sending"
    """A post is under way, or was when the process died."""
    UNCERTAIN = "uncertain"
    """A post got no usable answer: look for it before posting again."""
    POSTED = "posted"
    LOST = "lost"
    """Slack takes it nowhere, not even as a direct message."""

    @property
    def settled(self) -> bool:
        """Whether it is known where the message is, or that it is nowhere."""
        return self in {Posting.POSTED, Posting.LOST}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A Slack message that we owe: a row of the outbox."""

    id: int
    job_id: str
    role: Role
    posting: Posting
    channel: str
    thread_ts: str | None
    ts: str | None
    """Slack's id of the message in its channel, once it is known."""
    wanted: int
    """Grows whenever the message should say something new."""
    shown: int
    """What of ``wanted`` the message says."""
    due_at: datetime | None
    claim: int
    failures: int = 0
    refusals: int = 0
    """How often it was refused for no reason that we know, or by the person themselves."""
    direct: bool = False
    """It goes to the requester as a direct message, because the channel would not take it."""
    plain: bool = False
    """It goes as text alone, because Slack would not take its blocks."""
    sent_at: datetime | None = None
    """When the last post was begun."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a running job is read, and when it is late."""

    first: timedelta
    """From the create call to the first read, and the shortest time between two."""
    growth: float
    """The time between two reads, as a share of the job's age."""
    longest: timedelta
    soft: timedelta
    """Then the card says that it takes longer than usual."""
    hard: timedelta
    """Then it is overdue: read rarely, with a button to read it now."""
    rare: timedelta
    """Between two reads of an overdue job."""
    end: timedelta
    """Then it has failed: nobody waits any longer."""


_MINUTES: Final = Patience(
    first=timedelta(seconds=10),
    growth=0.15,
    longest=timedelta(minutes=2),
    soft=timedelta(minutes=15),
    hard=timedelta(hours=3),
    rare=timedelta(hours=1),
    end=timedelta(days=14),
)
_HOURS: Final = Patience(
    first=timedelta(minutes=2),
    growth=0.05,
    longest=timedelta(minutes=10),
    soft=timedelta(hours=8),
    hard=timedelta(days=3),
    rare=timedelta(hours=1),
    end=timedelta(days=30),
)


@dataclass(frozen=True, slots=True)
class Timings:
    """All the waiting times there are: the demo and the tests run the same code with others.

    No wait is longer than ``longest``: a row that seems to be due later is due now, so that a clock
    set back parks nothing. A lease outlives every call, so that no two workers call for one row.
    """

    minutes: Patience = _MINUTES
    """For work that takes minutes."""
    hours: Patience = _HOURS
    """For work that takes hours."""
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    """Up to this share is added to each wait, so that jobs do not march in step."""

    call: timedelta = timedelta(seconds=30)
    """The whole of one call to the outside, its last byte included."""
    lease: timedelta = timedelta(minutes=2)
    retry: timedelta = timedelta(seconds=2)
    """The first wait after the other side was out of reach; it doubles."""
    retry_longest: timedelta = timedelta(minutes=5)
    create_within: timedelta = timedelta(days=1)
    """A job that could not be created by then has failed."""

    heal: timedelta = timedelta(minutes=15)
    """How long a callback may take to name what an unanswered create call made."""
    ask_again: timedelta = timedelta(days=1)
    give_up: timedelta = timedelta(days=6)
    """From asking again to the end of the job."""
    callback_spacing: timedelta = timedelta(seconds=2)
    """Between two reads of one job that callbacks ask for."""

    recheck_key: timedelta = timedelta(seconds=30)
    """Between two looks at whether a refused service key works again."""
    recheck_credit: timedelta = timedelta(minutes=10)
    """From "out of credit" to the one create call that tries again."""

    post_hold: timedelta = timedelta(seconds=30)
    """From a post without an answer to the look whether it is there."""
    pause: timedelta = timedelta(minutes=1)
    """From a refusal for the whole workspace to the next try."""

    arrive: timedelta = timedelta(seconds=10)
    """What the headers of a request may take to come, and then its body."""
    callback_answer: timedelta = timedelta(milliseconds=50)
    """No callback is answered sooner, so that the wait does not tell whether its token is known."""
    give_way: timedelta = timedelta(seconds=1)
    """How long work in the background lets people go first who wait for an answer."""
    breath: timedelta = timedelta(milliseconds=3)
    """From an answer to the next work in the background: often another person comes at once."""
    gather: timedelta = timedelta(milliseconds=10)
    """Between two claims: what becomes due meanwhile is claimed in one go."""
    open_view: timedelta = timedelta(seconds=2)
    """What opening a form may take: Slack waits three seconds for our answer."""
    form_check: timedelta = timedelta(seconds=1.5)
    """What a look at the service may take while somebody waits for a form to close."""
    replica_fresh: timedelta = timedelta(minutes=10)
    """For so long a form believes what is known of a replica."""
    stop: timedelta = timedelta(seconds=5)
    """What work under way may take when the process is asked to end."""
    sweep: timedelta = timedelta(hours=1)
    """Between two looks for scripts and links that are old enough to erase."""
    lock: timedelta = timedelta(seconds=10)
    """How long a start waits for another process to let go of the database."""

    def jittered(self, wait: timedelta, rng: random.Random) -> timedelta:
        """Return ``wait`` and a little more, but never beyond ``longest``."""
        return min(wait * (1 + self.jitter * rng.random()), self.longest)

    def back_off(self, failures: int) -> timedelta:
        """Return the wait after the ``failures``-th call in a row that found nobody."""
        return min(self.retry * float(2 ** min(failures - 1, 16)), self.retry_longest)


def until_next_read(job: Job, timings: Timings, patience: Patience, now: datetime) -> timedelta:
    """Return how long to leave a running job alone, before jitter.

    It grows with the job's age. After a callback it starts anew from seconds: what was announced
    may be readable only a moment later. A clock that was set back makes nobody impatient.
    """
    wait = patience.rare
    if job.state is not State.OVERDUE:
        age = abs(now - (job.started_at or job.created_at))
        wait = min(max(patience.first, age * patience.growth), patience.longest)
    if job.woken_at is not None:
        wait = min(wait, max(timings.callback_spacing, abs(now - job.woken_at)))
    return wait


def lateness(job: Job, patience: Patience, now: datetime) -> tuple[State, bool]:
    """Return the state of a job that is still going, and whether it is late."""
    age = now - (job.started_at or job.created_at)
    state = State.OVERDUE if age >= patience.hard else State.RUNNING
    return state, age >= patience.soft


def token_hash(token: str) -> str:
    """Return what is stored of a callback's token: enough to know it again, not to use it."""
    return hashlib.sha256(token.encode()).hexdigest()
