"""Jobs, attempts, snapshots and deliveries: pure values and their states."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

_FIRST_DAY: Final = datetime(1970, 1, 1, 8, tzinfo=UTC)
_WORDS_A_MINUTE: Final = 150
# Chinese and Japanese, which have no spaces. Japanese news are read at 300 characters a minute:
# https://note.com/sakusakusakubun/n/ne553b7d3d7a1
_HALF_A_WORD: Final = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff20]")

# Failed calls in a row after which a card says that the service is out of reach.
_UNREACHABLE_AFTER: Final = 3


class State(StrEnum):
    """How far a job is. The names are ours; the service's own status is kept in the snapshot."""

    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """Set when a job is stored that needs approval, and by "Create again" of one. Next: queued, by
    an approver; failed, by an approver, by "Cancel request", or when its time is over; running, by
    a candidate id that matches."""
    QUEUED = "queued"
    """Set when another job is stored, when one is approved, when a create call certainly made
    nothing, and by "Create again". No create call is under way. Next: creating."""
    CREATING = "creating"
    """Set before each create call: it may cost money from now on. Next: running,
    unconfirmed, failed or queued, as the answer says; unconfirmed if the process died meanwhile."""
    UNCONFIRMED = "unconfirmed"
    """Set when a create call got no usable answer, so that it may have made something.
    Next: running, by a candidate id that matches; queued or failed, by the person's answer; failed,
    when the time for an answer is over."""
    RUNNING = "running"
    """Set when the id is known. Next, by a poll: succeeded, failed or overdue; failed, by "Stop
    waiting"."""
    OVERDUE = "overdue"
    """Set by a poll of a running job that is older than its schedule expects: polled rarely. Next,
    by a poll: succeeded or failed; running, if it turns out to wait for what it uses; failed, by
    "Stop waiting"."""
    SUCCEEDED = "succeeded"
    """Set once, by a poll. Final."""
    FAILED = "failed"
    """Set once, with a ``Failure``. Final."""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self in {State.SUCCEEDED, State.FAILED}


class Failure(StrEnum):
    """Why a job failed. The sentences for it are where it is shown."""

    SERVICE_FAILED = "service_failed"
    """The service began, and reports a failure."""
    REFUSED = "refused"
    """The service refused this request."""
    KEY_REJECTED = "key_rejected"
    """The service refuses our key."""
    OUT_OF_CREDIT = "out_of_credit"
    """The service's account is out of credit."""
    UNREACHABLE = "unreachable"
    """The service could not be reached in time; nothing was created."""
    SERVICE_DOWN = "service_down"
    """The service is down: no job fails with it, nor with the next one. They hold jobs back."""
    SERVICE_TROUBLE = "service_trouble"
    """The service could not do what the same person asked for last, or with the same replica."""
    NOT_FOUND = "not_found"
    """The service no longer knows what it made."""
    TIMED_OUT = "timed_out"
    """The service was not done when its time was up."""
    CANCELLED = "cancelled"
    """It is unknown whether it was created, and a person cancelled the request."""
    UNANSWERED = "unanswered"
    """It is unknown whether it was created, and the question was not answered."""
    STOPPED = "stopped"
    """The person who asked stopped following it: what the service makes of it is unknown."""
    STOPPED_BY_ADMIN = "stopped_by_admin"
    """The same, by an admin."""
    DECLINED = "declined"
    """An approver declined it; nothing was created, as with the next two."""
    NOT_APPROVED = "not_approved"
    """Nobody approved it in time."""
    WITHDRAWN = "withdrawn"
    """A person cancelled it while it waited for approval."""
    STOPPED_BY_OWNER = "stopped_by_owner"
    """The person in the footage of a training stopped it, or the replica of a video was removed."""


class Verdict(StrEnum):
    """What a snapshot means for its job."""

    GOING = "going"
    """It is not finished, or has a status that we do not know."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the service said about a job's resource at one moment."""

    remote_id: str
    status: str
    """As the service wrote it."""
    verdict: Verdict
    reason: str = ""
    """Why it failed, as the service put it."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """The other text fields of the answer, under the names of the interface document. The card of
    a job that has not ended shows none of them but those whose names end in "progress"."""

    @property
    def deleted(self) -> bool:
        """Whether it was deleted at the service."""
        return self.verdict is Verdict.FAILED and self.status.casefold() == "deleted"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where the Slack app is installed."""

    team_id: str
    enterprise_id: str | None = None
    """The organisation on Enterprise Grid that the team belongs to."""
    app_id: str | None = None
    """None where Slack does not tell it: it needs a scope."""
    scopes: frozenset[str] | None = None
    """What the token may do; None until Slack said it to this process."""
    bot_name: str = ""
    """What people type after @ to invite the bot; "" until Slack said it to this process."""
    team_name: str = ""
    """Likewise."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for in a form."""

    key: str
    """The Slack id of the submission. The same key always means the same job."""
    kind: str
    params: Mapping[str, str]
    user: str
    channel: str
    thread_ts: str | None = None
    retry_of: str | None = None
    """The id of the failed job that it retries."""
    fingerprint: str | None = None
    """Two requests with the same one ask for the same; None if its kind compares none."""
    owner: str | None = None
    """Of a training, the person in the footage."""
    tell_channel: bool = False
    """Whether the channel, and not the thread alone, is told when it is ready."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long recent jobs of a kind took from the create call to their end."""

    typical: timedelta
    """Their median."""
    slow: timedelta | None
    """The time that 9 of 10 of them did not exceed; None if there are fewer than 10."""


@dataclass(frozen=True, slots=True)
class Approval:
    """That somebody else has to approve a request before anything is created for it."""

    asked: tuple[str, ...]
    """The ids of who was asked: of a channel, or of people; none if nobody could be asked."""
    until: datetime
    """When it expires."""
    decided_by: str | None = None
    """The person who approved, declined or cancelled the request; None if nobody did."""
    decided_at: datetime | None = None

    @property
    def channel(self) -> str | None:
        """The channel in which it was asked for; None if people were asked directly."""
        return self.asked[0] if self.asked and self.asked[0].startswith(("C", "G")) else None


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Which requests need approval, and whose."""

    approvers: frozenset[str] = frozenset()
    """The ids of the people who are asked; nothing needs approval without any."""
    admins: frozenset[str] = frozenset()
    """The ids of those who may decide too."""
    above: int = 0
    """The longest script that needs none, in characters."""
    channel: str | None = None
    """Where they are asked; None for a direct message to each."""

    @property
    def everybody(self) -> frozenset[str]:
        """Who may decide about some requests."""
        return self.approvers | self.admins

    def is_needed(self, script: str | None) -> bool:
        """Return whether a request needs approval; ``script`` is None for a training."""
        return bool(self.approvers) and (script is None or len(script) > self.above)

    def may_decide(self, user: str, requester: str) -> bool:
        """Return whether ``user`` may approve or decline: nobody may decide about their own."""
        return user != requester and user in self.everybody

    def may_settle(self, user: str, job: "Job") -> bool:
        """Return whether ``user`` may decide what a job waits for: its owner's approval, or ours.

        Admins were asked for the owner's where the owner could not be reached.
        """
        if not job.asks_owner:
            return self.may_decide(user, job.user)
        asked = job.approval.asked if job.approval is not None else ()
        return user == job.owner or user in self.admins.intersection(asked) - {job.user}

    def people(self, requester: str) -> tuple[str, ...]:
        """Return who is asked about a request: the approvers, or else the admins."""
        others = (self.approvers - {requester}) or (self.admins - {requester})
        return tuple(sorted(others))

    def asked(self, requester: str) -> tuple[str, ...]:
        """Return the ids of who is asked about a request; none if nobody could approve it."""
        people = self.people(requester)
        return (self.channel,) if self.channel is not None and people else people


@dataclass(frozen=True, slots=True)
class Attempt:
    """One create call that may have cost money."""

    id: int
    job_id: str
    remote_id: str | None
    """What it made, once that is known."""
    made_at: datetime
    """When it was begun."""
    candidate_id: str | None
    """What it may have made, unverified: a callback with its token named it, or a person."""
    user_supplied: bool = False
    """Whether a person named ``candidate_id``."""
    named_by: str | None = None
    """The person who named ``candidate_id``, if one did."""
    named_at: datetime | None = None
    """When ``candidate_id`` was named first."""


@dataclass(frozen=True, slots=True)
class Job:
    """One thing a person asked for, once."""

    id: str
    kind: str
    params: Mapping[str, str]
    user: str
    channel: str
    thread_ts: str | None
    created_at: datetime
    state: State = State.QUEUED
    due_at: datetime | None = None
    """When a worker claims it next; None for never again."""
    claim: int = 0
    """How often it was claimed, or woken while nobody had it. It is written only under the number
    that it was claimed with."""
    attempts: int = 0
    """How many create calls were begun."""
    failures: int = 0
    """How many calls in a row found the service out of reach."""
    remote_id: str | None = None
    """The service's id for what was created."""
    snapshot: Snapshot | None = None
    failure: Failure | None = None
    reason: str = ""
    """Why it failed, as the service put it, or who declined it."""
    late: bool = False
    """It takes longer than its schedule expects."""
    typical_duration: timedelta | None = None
    """The median time of recent jobs like it, if there are any."""
    slow_after: timedelta | None = None
    """The time that 9 of 10 recent jobs like it did not exceed, if there are enough."""
    slow: bool = False
    """It takes longer than ``slow_after``."""
    started_at: datetime | None = None
    """When its id was received, or when the service could begin."""
    read_at: datetime | None = None
    """When it was last polled, whether or not it could be read."""
    woken_at: datetime | None = None
    """When a poll was last asked for: by a callback, by *Check now* or by a status command."""
    asked_at: datetime | None = None
    """When the person was last asked whether it was created, or chose "Create again"."""
    asked: int = 0
    """How often the person was asked, without an answer."""
    orphaned_ids: tuple[str, ...] = ()
    """Ids of what its earlier attempts turned out to have made."""
    held_by: Failure | None = None
    """Why its create call or its reads are held back; None if there is no reason, or only for a
    moment. A queued job fails with it if that does not end, but for an outage."""
    held_until: datetime | None = None
    """When the first try since then was due."""
    waits_for: str | None = None
    """The remote id of what the service has to finish before it begins."""
    missing_since: datetime | None = None
    """Since when the service has not found what it made; None if the last read found it."""
    ended_at: datetime | None = None
    retry_of: str | None = None
    """The id of the failed job that it retries; None if that is none, or was deleted."""
    erased: bool = False
    """Its script and links were erased after the retention time."""
    approval: Approval | None = None
    """Of one that needs, or needed, approval."""
    owner: str | None = None
    """The owner of the replica that it uses or trains, if that is not who asked."""
    asks_owner: bool = False
    """The approval that it waits for is the owner's."""
    copied: bool = False
    """It was in a backup that was restored: its messages may have been posted since."""
    tell_channel: bool = False
    """As in ``Request``."""
    visible_before: tuple[object, ...] | None = field(default=None, compare=False)
    """Of a claimed job, and what a step makes of it: what was visible when it was claimed."""

    @property
    def unreachable(self) -> bool:
        """Whether the service has been out of reach for more than a moment."""
        return self.failures >= _UNREACHABLE_AFTER

    @property
    def unusual(self) -> bool:
        """Whether its card says that it takes longer than usual.

        What the workspace's own jobs took counts; without enough of them, the schedule.
        """
        return self.late if self.slow_after is None else self.slow

    @property
    def deleted(self) -> bool:
        """Whether it failed because what it made was deleted at the service."""
        by_service = self.failure is Failure.SERVICE_FAILED
        return by_service and self.snapshot is not None and self.snapshot.deleted

    @property
    def visible(self) -> tuple[object, ...]:
        """All that a card may show: when it changes, the card is edited."""
        facts = self.snapshot.facts if self.snapshot is not None else {}
        # The others may change with every poll: a service may sign its links again each time. The
        # end of a job, which shows links, edits its card anyway.
        shown = tuple(sorted((n, v) for n, v in facts.items() if n.endswith("progress")))
        return (
            self.state,
            self.failure,
            self.reason,
            self.unusual,
            self.asked,
            self.orphaned_ids,
            self.remote_id,
            self.unreachable,
            self.waits_for,
            self.held_by,
            self.held_until,
            self.approval,
            self.asks_owner,
            shown,
        )


class Role(StrEnum):
    """What a message is for."""

    CARD = "card"
    """Shows how far the job is: posted once, then edited."""
    QUESTION = "question"
    """Asks whether a create call made something: posted in the card's thread each time the job's
    people are asked, then edited once, when it is settled."""
    REPLY = "reply"
    """Says how the job ended: posted once, in the card's thread."""
    TRANSCRIPT = "transcript"
    """The whole transcript as a file, where the reply has only its beginning: shared once, below
    the reply."""
    CLIP = "clip"
    """What was made, as an MP4 that plays in Slack: shared once, below the reply, which has its
    link."""
    APPROVAL = "approval"
    """Asks for approval: posted once in the approvers' channel, or to each of them; edited when it
    is settled."""
    NOTICE = "notice"
    """Tells the person in the footage of a training, or an owner what was made in a day: posted
    once, as a direct message."""

    @property
    def is_file(self) -> bool:
        """Whether it is shared as a file, not posted."""
        return self in {Role.TRANSCRIPT, Role.CLIP}


class Settlement(StrEnum):
    """How a question or an approval was settled. Its sentences are where it is shown."""

    APPROVED = "approved"
    """An approver approved the request."""
    DECLINED = "declined"
    """An approver declined the request."""
    FOUND = "found"
    """A person named what the create call made."""
    TURNED_UP = "turned_up"
    """A callback named what the create call made."""
    CREATED_AGAIN = "created_again"
    """A person chose to create it again."""
    CANCELLED = "cancelled"
    """A person cancelled the request."""
    UNANSWERED = "unanswered"
    """Nobody answered in time, and the request was closed."""
    ASKED_AGAIN = "asked_again"
    """Nobody answered in time, and the same was asked in a new message."""


class DeliveryState(StrEnum):
    """How far a message is on its way to Slack."""

    PENDING = "pending"
    """Set when the message is owed, and when a post certainly did nothing. It is not in Slack.
    Next: sending."""
    SENDING = "sending"
    """Set before each post: it may be in Slack from now on. Next: posted, pending, uncertain or
    undeliverable, as Slack answers; uncertain if the process died meanwhile."""
    UNCERTAIN = "uncertain"
    """Set when a post got no usable answer. The message is looked for. Next: posted if it is found,
    else pending."""
    POSTED = "posted"
    """Set when its ``ts`` is known, or a file is shared. From now on a message is edited. Final."""
    UNDELIVERABLE = "undeliverable"
    """Set when Slack refuses it everywhere, as a direct message too; when a file cannot be shared.
    Final."""
    WITHDRAWN = "withdrawn"
    """Set when a question or an approval is settled that is not in Slack, or whose message asks
    about another request since. Final."""
    LISTED = "listed"
    """Set when a question is owed that the message of an earlier one lists. Final."""

    @property
    def settled(self) -> bool:
        """Whether the state is final: the message is in Slack, or never will be."""
        return self in {
            DeliveryState.POSTED,
            DeliveryState.UNDELIVERABLE,
            DeliveryState.WITHDRAWN,
            DeliveryState.LISTED,
        }


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
    """Slack's id of the message, unique in its channel."""
    version: int
    """It grows when the message has something new to say."""
    shown_version: int
    """The version that Slack shows: below ``version``, an edit is owed."""
    due_at: datetime | None
    """When a worker claims it next; None until it has something new to show."""
    claim: int
    """How often it was claimed. It is written only under the number it was claimed with."""
    failures: int = 0
    """How many calls in a row found Slack out of reach."""
    refusals: int = 0
    """How often in a row Slack refused a post or an edit for an unknown reason, or a post as a
    direct message."""
    direct: bool = False
    """It goes to a person as a direct message, from the start or since the channel refused it."""
    rewrites: int = 0
    """How often Slack refused its form: 1 is text alone, and each further one halves that."""
    sent_at: datetime | None = None
    """When the last post was begun."""
    number: int = 0
    """Of a question or an approval, counted within its job: from 1, but for an approval that is
    asked for in a channel first; 0 of the others."""
    settled_as: Settlement | None = None
    """How a question or an approval was settled; None while it is open."""
    settled_by: str | None = None
    """The person who settled it, if one did."""
    addressee: str | None = None
    """The person to whom it goes as a direct message, where that is not who asked."""
    file_id: str | None = None
    """Slack's id of a file whose content is there; stored before the file is shared."""
    public: bool = False
    """It is the reply of what was made, and Slack said that its channel is public."""

    @property
    def is_transfer(self) -> bool:
        """Whether its next step takes an MP4 to Slack: that shows nothing, and may take long."""
        return self.role is Role.CLIP and self.file_id is None


def token_hash(token: str) -> str:
    """Return the SHA-256 of a callback's token in hex: all of it that is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def notice_day(moment: datetime) -> datetime:
    """Return when the day began of which owners are told together: at 08:00 UTC."""
    return moment - (moment - _FIRST_DAY) % timedelta(days=1)


def spoken_time(script: str) -> timedelta:
    """Return about how long a script takes to speak, at 150 words a minute."""
    rest, halves = _HALF_A_WORD.subn(" ", script)
    return timedelta(minutes=(len(rest.split()) + halves / 2) / _WORDS_A_MINUTE)
