"""The clock, and all timeouts, intervals and schedules.

The clock is the only place that asks the operating system for the time. The sandbox and the tests
run the same code with other values.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """How often a running job is polled, and when it is late."""

    first_interval: timedelta
    """From the create call to the first poll, and the shortest time between two polls."""
    growth: float
    """The time between two polls, as a share of the job's age."""
    max_interval: timedelta
    """Between two polls of a job that is not overdue."""
    late_after: timedelta
    """Then the card says that it takes longer than usual."""
    overdue_after: timedelta
    """Then it is overdue: polled rarely, with a button to check it now."""
    overdue_interval: timedelta
    """Between two polls of an overdue job."""
    give_up_after: timedelta
    """Then it has timed out."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """All of them, by what uses them."""

    # For every call to the outside.
    call_timeout: timedelta = timedelta(seconds=30)
    """The whole of one call, its last byte included."""

    # For checks whether Slack and the video service answer, and accept our token and key.
    recheck_side: timedelta = timedelta(minutes=1)
    """Between two checks of one that is quiet, while somebody asks for the bot's health."""
    recheck_down: timedelta = timedelta(seconds=3)
    """Between two harmless reads from a video service that is down."""
    report_max_age: timedelta = timedelta(seconds=1)
    """How old an answer about the bot's health may be: anybody may ask, as often as they like."""

    # For rows of work: leases, waits and retries.
    #
    # No wait is longer than ``max_wait``: a row that is due later was released under a clock that
    # has been set back since. A lease outlasts every call, so that no two workers call for one row,
    # even if the clock of one is half a minute ahead of the other's.
    max_wait: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    """Up to this share is added to each wait, so that jobs do not poll in step."""
    lease: timedelta = timedelta(minutes=2)
    retry_interval: timedelta = timedelta(seconds=2)
    """The first wait after a call that found the other side unavailable; it doubles."""
    max_retry_interval: timedelta = timedelta(minutes=5)
    claim_interval: timedelta = timedelta(milliseconds=10)
    """Between two claims: what becomes due meanwhile is claimed in one go."""
    request_pause: timedelta = timedelta(milliseconds=10)
    """From an answer to background work: in a burst, the next request is near."""
    max_request_delay: timedelta = timedelta(milliseconds=100)
    """All requests together delay background work no longer."""
    stop_timeout: timedelta = timedelta(seconds=5)
    """For steps under way, when the process is asked to end."""

    # For callbacks and what they name.
    callback_spacing: timedelta = timedelta(seconds=2)
    """Between two reads of one job that callbacks ask for."""
    check_candidate_within: timedelta = timedelta(minutes=15)
    """From the naming of what a create call may have made to the end of waiting for it: then it is
    given up if the service does not find it, and keeps a person from nothing if it cannot be read.
    """

    # For Home tabs.
    home_interval: timedelta = timedelta(seconds=3)
    """From one publication of a person's Home tab to the next: it shows the newest of all changes
    meanwhile."""
    home_kept_for: timedelta = timedelta(days=7)
    """From the opening of a Home tab to the end of its publication: then it is published when it is
    opened again."""

    # For the database, all in real time; all but the first are for a server.
    lock_timeout: timedelta = timedelta(seconds=10)
    """How long a start waits for another process to close the file, or for a server to start."""
    max_database_wait: timedelta = timedelta(seconds=2)
    """How long works wait for a server that is away: Slack waits three seconds for our answer."""
    database_silence: timedelta = timedelta(seconds=15)
    """From a statement without an answer to the end of its connection: longer than any takes."""
    slow_poll: timedelta = timedelta(seconds=10)
    """Between two looks for due work that no notification was received of."""
    pooled_slow_poll: timedelta = timedelta(seconds=5)
    """The same, where a pooler keeps notifications away."""

    # For what forms show.
    memory_interval: timedelta = timedelta(seconds=10)
    """How old what is in memory may be, where another copy of the bot has changed it and that was
    not notified."""

    # For what is stored.
    hasten_within: timedelta = timedelta(seconds=5)
    """After an outage, the jobs that wait are tried again within this time."""
    same_within: timedelta = timedelta(days=1)
    """How long after a request the same one is not stored again without a question."""
    approve_within: timedelta = timedelta(days=7)
    """How long a request waits for approval; then it expires."""

    ask_anew_after: timedelta = timedelta(hours=1)
    """From a message to approvers to the next that the same person can cause who cancels what it
    asks about: what they ask for until then is shown by an edit of it, which notifies nobody."""

    # For the engine.
    minutes: PollSchedule = PollSchedule(
        first_interval=timedelta(seconds=10),
        growth=0.15,
        max_interval=timedelta(minutes=2),
        late_after=timedelta(minutes=15),
        overdue_after=timedelta(hours=3),
        overdue_interval=timedelta(hours=1),
        give_up_after=timedelta(days=14),
    )
    """For work that takes minutes."""
    hours: PollSchedule = PollSchedule(
        first_interval=timedelta(minutes=2),
        growth=0.05,
        max_interval=timedelta(minutes=10),
        late_after=timedelta(hours=8),
        overdue_after=timedelta(days=3),
        overdue_interval=timedelta(hours=1),
        give_up_after=timedelta(days=30),
    )
    """For work that takes hours."""
    create_within: timedelta = timedelta(days=1)
    """A job that could not be created by then has failed."""
    missing_within: timedelta = timedelta(hours=1)
    """How long the service must not find what it made before that is believed: a gateway without
    its service answers 404 too."""
    reconcile_within: timedelta = timedelta(minutes=15)
    """How long a callback may take to name what an unanswered create call made."""
    ask_again_after: timedelta = timedelta(days=1)
    close_after: timedelta = timedelta(days=6)
    """From asking again to the end of a job whose question was not answered."""
    check_ended_within: timedelta = timedelta(days=7)
    """From the end of a job to the last try to read what an attempt of it may have made."""

    # For the video service's client.
    recheck_key: timedelta = timedelta(seconds=30)
    """Between two checks whether a refused service key works again."""
    recheck_credit: timedelta = timedelta(minutes=10)
    """From "out of credit" to the one create call that tries again."""
    first_hold: timedelta = timedelta(seconds=2)
    """From the first refusal for too many calls to the next try, if the service names no time; it
    doubles with each refusal in a row."""
    max_hold: timedelta = timedelta(minutes=5)
    hang_after: timedelta = timedelta(seconds=10)
    """Then a create call without an answer counts as failed for those who wait, and the service
    that does not answer a harmless read as down; in real time."""
    outage_within: timedelta = timedelta(minutes=1)
    """Two creates for different people that fail within this time show that all would."""
    turn_timeout: timedelta = timedelta(seconds=2)
    """For a call to wait until others are done, where not all may be made at the same time."""

    # For messages to Slack.
    card_delay: timedelta = timedelta(seconds=1)
    """From a request to its card, unless its job changes before: a create call is answered within
    that, so that the card is posted once as it stays for a while. A person sees their form close
    meanwhile; who waits longer for a sign asks again."""
    name_timeout: timedelta = timedelta(milliseconds=300)
    """For the names of people that a message says: then it goes without them. With the delay of a
    card, it is in Slack 1.5 seconds after the request; in real time."""
    name_max_age: timedelta = timedelta(hours=6)
    """After this time Slack is asked again for the name of a person: it seldom changes."""
    post_hold: timedelta = timedelta(seconds=30)
    """From a post without an answer to the search for it in Slack."""
    pause: timedelta = timedelta(minutes=1)
    """From a refusal for the whole workspace to the next try."""
    post_interval: timedelta = timedelta(seconds=1.1)
    """Between two posts into a channel under a rate limit: Slack allows one a second, and no two
    calls take equally long to get there."""
    retry_files: timedelta = timedelta(hours=1)
    """From the refusal of a file to the next one that is shared there."""
    transfer_timeout: timedelta = timedelta(seconds=80)
    """For a video to be fetched and taken to Slack. With the calls beside it, it ends before the
    lease."""
    max_video_bytes: int = 200_000_000
    """Of a video that is taken to Slack: as much is on the disk meanwhile."""
    call_interval: timedelta = timedelta(seconds=1.3)
    """Between two edits, or two searches, under a rate limit: Slack allows about 50 a minute."""

    # For answers that a person waits for.
    view_timeout: timedelta = timedelta(seconds=2)
    """For opening a form: Slack waits three seconds for our answer."""
    message_timeout: timedelta = timedelta(milliseconds=800)
    """For what a message refers to, names or a file, before a form with its text opens."""
    person_timeout: timedelta = timedelta(milliseconds=500)
    """For who asks for the first time, before their form opens."""
    service_deadline: timedelta = timedelta(seconds=2)
    """For all reads from the service together that one answer waits for."""
    replica_max_age: timedelta = timedelta(minutes=10)
    """After this time a form reads a replica from the service again."""
    person_max_age: timedelta = timedelta(minutes=10)
    """After this time Slack is asked again what a person may do, or about a channel."""
    installation_timeout: timedelta = timedelta(seconds=1)
    """How long an answer waits at a first start until the workspace is known."""

    # For requests from outside.
    receive_timeout: timedelta = timedelta(seconds=10)
    """For the headers of a request to arrive, and again for its body."""
    drain: timedelta = timedelta(seconds=3)
    """From "not ready" to accepting no more requests, where other copies may take them: balancers
    learn of it late (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/). Also where
    the database cannot be used any more: until then, each request is answered so."""

    # For Socket Mode, all in real time.
    socket_heartbeat: timedelta = timedelta(seconds=10)
    """From the last message to a ping of ours; half as long after it, a silent connection ends."""
    reconnect_interval: timedelta = timedelta(seconds=1)
    """From the opening of a connection to the next one at least; from a connection that could not
    be opened to the next try, where it doubles."""
    max_reconnect_interval: timedelta = timedelta(minutes=1)
    """Between two tries."""
    max_socket_wait: timedelta = timedelta(minutes=5)
    """The longest wait that Slack may ask for between two tries."""

    # For housekeeping.
    sweep_interval: timedelta = timedelta(minutes=1)
    """Between two searches for rows that a wrong clock postponed too far."""
    erase_interval: timedelta = timedelta(hours=1)
    """Between two searches for scripts and links that are old enough to erase."""
    keep_ended_for: timedelta = timedelta(days=30)
    """How long an ended job is kept at least: a late callback, or a form that was left open, may
    still be about it."""

    # For the service's list of replicas.
    list_interval: timedelta = timedelta(minutes=10)

    def jittered(self, wait: timedelta, rng: random.Random) -> timedelta:
        """Return ``wait`` and a little more, or less where that would be beyond ``max_wait``."""
        return min(wait, self.max_wait / (1 + self.jitter)) * (1 + self.jitter * rng.random())

    def may_call(self, leased_at: datetime, now: datetime) -> bool:
        """Return whether a call that begins now ends before a lease that began at ``leased_at``.

        It does not where this process was stopped since, or its machine: another one may have gone
        on with the row. A fourth of a lease is far more than a commit takes, and leaves enough for
        the longest call and for clocks that differ.
        """
        return now - leased_at <= self.lease / 4

    def back_off(self, failures: int) -> timedelta:
        """Return the wait after ``failures`` calls in a row without the other side."""
        return doubled(self.retry_interval, failures, self.max_retry_interval)


def doubled(first: timedelta, failures: int, longest: timedelta) -> timedelta:
    """Return the wait after ``failures`` in a row: ``first``, then twice as long each time."""
    return min(first * float(2 ** min(failures - 1, 16)), longest)


# ── The clock ─────────────────────────────────────────────────────────────────────────────────────

# The wall clock may be set during a wait: it is read at least this often.
_CHECK_INTERVAL: Final = timedelta(seconds=30)


class Clock(Protocol):
    """The time, for the bot and its sandbox. Tests have one that they move by hand."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set or ``until`` has come, whichever is first.

        It may return early: check the event and the time again.
        """


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or after half a minute."""
        limit = _CHECK_INTERVAL if until is None else min(_CHECK_INTERVAL, until - self.now())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, limit.total_seconds())):
                await event.wait()


def deadline(after: timedelta) -> float:
    """Return a moment from now, by the event loop's clock."""
    return asyncio.get_running_loop().time() + after.total_seconds()
