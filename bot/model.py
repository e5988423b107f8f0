"""What the bot knows of jobs and messages: values and states, no effects."""

import hashlib
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

    SERVICE_FAILED = "broken"
    """The service began and says that it did not work out."""
    REFUSED = "refused"
    """The service turned the request down."""
    KEY_REJECTED = "key"
    """The service turns our key away."""
    OUT_OF_CREDIT = "credit"
    """The service's account is out of credit."""
    UNREACHABLE = "unreachable"
    """The service could not be reached in time; nothing was created."""
    NOT_FOUND = "forgotten"
    """The service no longer knows what it made."""
    TIMED_OUT = "endless"
    """The service never came to an end."""
    CANCELLED = "given_up"
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
    typical_duration: timedelta | None = None
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
    orphaned_ids: tuple[str, ...] = ()
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
            self.orphaned_ids,
            self.remote_id,
            self.unreachable,
            self.waits_for,
            shown,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One create call that may have cost money, and what is known of it.

    ``candidate_id`` is an id that a callback with this attempt's token named, or that is
    ``user_supplied``; nobody has checked it.
    """

    id: int
    job_id: str
    remote_id: str | None
    made_at: datetime
    candidate_id: str | None
    user_supplied: bool = False


class Role(StrEnum):
    """What a message is to its job."""

    CARD = "card"
    """Says how the job stands: posted once, then only edited."""
    REPLY = "reply"
    """Says how it ended, in the thread: posted once."""


class DeliveryState(StrEnum):
    """How far a message is on its way to Slack."""

    PENDING = "owed"
    SENDING = "sending"
    """A post is under way, or was when the process died."""
    UNCERTAIN = "uncertain"
    """A post got no usable answer: look for it before posting again."""
    POSTED = "posted"
    UNDELIVERABLE = "lost"
    """Slack takes it nowhere, not even as a direct message."""

    @property
    def settled(self) -> bool:
        """Whether it is known where the message is, or that it is nowhere."""
        return self in {DeliveryState.POSTED, DeliveryState.UNDELIVERABLE}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A Slack message that we owe: a row of the outbox."""

    id: int
    job_id: str
    role: Role
    state: DeliveryState
    channel: str
    thread_ts: str | None
    ts: str | None
    """Slack's id of the message in its channel, once it is known."""
    version: int
    """Grows whenever the message should say something new."""
    shown_version: int
    """What of ``version`` the message says."""
    due_at: datetime | None
    claim: int
    failures: int = 0
    refusals: int = 0
    """How often it was refused for no reason that we know, or by the person themselves."""
    direct: bool = False
    """It goes to the requester as a direct message, because the channel would not take it."""
    text_only: bool = False
    """It goes as text alone, because Slack would not take its blocks."""
    sent_at: datetime | None = None
    """When the last post was begun."""


def token_hash(token: str) -> str:
    """Return what is stored of a callback's token: enough to know it again, not to use it."""
    return hashlib.sha256(token.encode()).hexdigest()
