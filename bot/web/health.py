"""Whether the bot can do its work now, part by part: what ``/readyz`` says.

"Not ready" (503) is what another copy may do better, and what accepting requests makes no better:
no durable writes, a token that Slack refuses, a socket that stays closed, or both Slack and the
service out of reach, which points to this machine. An outage of one of them is the same for every
copy, and forms are still accepted and answered later: then the bot is ready but "degraded".

It is public: it names no person, no text and no secret. Anybody may ask, as often as they like, so
all who ask within a second get the same answer.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from bot.metrics import Metrics
from bot.outages import Outage
from bot.service.errors import clause_of
from bot.slack.context import HandlerContext
from bot.slack.socket_mode import SocketMode
from bot.store import DatabaseError, Figures


class ServiceCheck:
    """Resolves doubts about the service: at the start, after calls that failed, while it is down.

    The service logs what is wrong, and that it is right again.
    """

    def __init__(self, ctx: HandlerContext) -> None:
        self._ctx = ctx
        self._checked_at: datetime | None = None
        self._wait: timedelta | None = None
        ctx.service.in_doubt.set()

    def refresh(self) -> None:
        """Check, if nothing has shown for a while that the service answers."""
        now, interval = self._ctx.clock.now(), self._ctx.timings.recheck_side
        moments = (self._checked_at, self._ctx.service.outages.last_answer)
        if not any(each and abs(now - each) < interval for each in moments):
            self._ctx.service.in_doubt.set()

    async def run(self) -> None:
        """Check when the service is in doubt, and again until it is not."""
        while True:
            if self._wait is None:
                await self._ctx.clock.wait(self._ctx.service.in_doubt)
            else:
                await self._ctx.clock.wait(asyncio.Event(), self._ctx.clock.now() + self._wait)
            if self._wait is not None or self._ctx.service.in_doubt.is_set():
                self._checked_at = self._ctx.clock.now()
                self._wait = await self._ctx.service.resolve_doubt()


# ── What /readyz says ─────────────────────────────────────────────────────────────────────────────

_T = TypeVar("_T")

_DATABASE_TIMEOUT_S: Final = 2.0
# Work that is due for longer is not being done, or comes faster than it is done.
_MAX_OVERDUE: Final = timedelta(minutes=5)
# Bolt opens a closed socket again within seconds.
_MAX_SOCKET_CLOSED: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Check:
    """One part, which is ok unless there is a reason why not."""

    reason: str = ""
    """What is wrong and what to do, or "" if it is ok."""
    details: Mapping[str, object] = field(default_factory=dict)
    is_out: bool = False
    """The other side is out of reach."""
    stops: bool = False
    """The bot is not ready because of it."""


async def _told(answer: Awaitable[_T]) -> _T | None:
    """Return what the database says; None if it does not in time."""
    try:
        async with asyncio.timeout(_DATABASE_TIMEOUT_S):
            return await answer
    except (DatabaseError, TimeoutError):
        return None


class Readiness:
    """Reports on the parts of the bot.

    It asks Slack and the service itself only while somebody asks for the report, and where nothing
    else has for a minute.

    Args:
        service_check: finds out whether the service answers.
        socket: None where Slack's requests come over HTTP.
    """

    def __init__(
        self,
        ctx: HandlerContext,
        service_check: ServiceCheck,
        metrics: Metrics,
        socket: SocketMode | None = None,
    ) -> None:
        self._ctx = ctx
        self._service_check = service_check
        self._metrics = metrics
        self._socket = socket
        self.is_stopping = False
        self._looking = asyncio.Lock()
        self._last: tuple[dict[str, object], bytes] | None = None
        self._started_at = self._looked_at = ctx.clock.now()

    async def report(self) -> tuple[dict[str, object], bytes]:
        """Return how things stand, or stood a moment ago, and all metrics with it.

        Somebody looks who asks when nobody has within ``report_max_age``; the others wait for it.
        """
        async with self._looking:
            age, max_age = self._ctx.clock.now() - self._looked_at, self._ctx.timings.report_max_age
            # A report from before the stop would say "ready".
            is_old = self.is_stopping and self._last is not None and self._last[0]["ready"]
            if self._last is None or is_old or not timedelta(0) <= age < max_age:
                self._last = await self._look()
                self._looked_at = self._ctx.clock.now()
            return self._last

    async def _look(self) -> tuple[dict[str, object], bytes]:
        self._ctx.installation.refresh()
        self._service_check.refresh()
        figures = await _told(self._ctx.store.figures(self._ctx.clock.now()))
        checks = {
            "database": await self._database(),
            "slack": self._slack_check(),
            "video_service": await self._service_status(),
            "work": self._work(figures),
        }
        if self._socket is not None:
            checks["socket"] = self._socket_check(self._socket)
        # Both are out of reach at once: it is more likely that this machine is cut off.
        cut_off = checks["slack"].is_out and checks["video_service"].is_out
        ready = not (cut_off or self.is_stopping or any(each.stops for each in checks.values()))
        oks = {name: not each.reason for name, each in checks.items()}
        self._metrics.set_readiness(ready=ready, blocked=self._blocked())
        if figures is not None:  # else the report says so
            self._metrics.set_jobs(figures.jobs)
            for queue, due in figures.due.items():
                self._metrics.set_queue(queue, due, figures.oldest_due[queue])
        report: dict[str, object] = {
            "ready": ready,
            "degraded": not all(oks.values()),
            "checks": {
                name: {"ok": oks[name], "reason": each.reason, **each.details}
                for name, each in checks.items()
            },
        }
        return report, self._metrics.exposition()

    async def _database(self) -> Check:
        if self.is_stopping:
            return Check("the bot is stopping")
        try:
            async with asyncio.timeout(_DATABASE_TIMEOUT_S):
                await self._ctx.store.database.check()
        except (DatabaseError, TimeoutError):
            reason = "nothing can be stored: the log and `python -m bot doctor` say why"
            return Check(reason, stops=True)
        return Check()

    def _slack_check(self) -> Check:
        slack = self._ctx.installation
        seen = {"last_success": _shown(slack.calls.outages.last_answer)}
        reasons = {
            f"Slack refuses SLACK_BOT_TOKEN ({slack.calls.refusal}): install the app again and "
            "copy its Bot User OAuth Token": bool(slack.calls.refusal),
            "SLACK_BOT_TOKEN belongs to another workspace than the database: use that "
            "workspace's token, or another database": slack.is_of_other_team,
        }
        for reason, holds in reasons.items():
            if holds:
                return Check(reason, seen, stops=True)
        return self._side("Slack", "SLACK_API_URL", slack.calls.outages.current, seen)

    async def _service_status(self) -> Check:
        service = self._ctx.service
        outage = service.outages.current
        seen: dict[str, object] = {"last_success": _shown(service.outages.last_answer)}
        if outage is not None:
            counts = await _told(self._ctx.store.jobs.count_waiting())
            seen["waiting"] = None if counts is None else counts["held"]
            return self._side("the video service", "VIDEO_API_URL", outage, seen)
        blocked = self._blocked()
        closed = [name for name in _GATES if blocked[f"service_{name}"]]
        seen |= {"held_back_by": closed, "next_try": _shown(service.next_credit_try)}
        return Check(_GATES[closed[0]] if closed else "", seen)

    def _side(
        self, side: str, setting: str, outage: Outage | None, seen: Mapping[str, object]
    ) -> Check:
        if outage is None:
            return Check(details=seen)
        cause = clause_of(outage.cause, self._ctx.timings.call_timeout) or "it does not work"
        return Check(
            f"{side} does not answer ({cause}): is {setting} right and reachable from here?",
            {**seen, "since": _shown(outage.since)},
            is_out=True,
        )

    def _socket_check(self, socket: SocketMode) -> Check:
        details = {
            "connected": socket.is_connected,
            "last_success": _shown(socket.last_received_at),
        }
        if socket.is_connected:
            return Check(details=details)
        silent_for = abs(self._ctx.clock.now() - (socket.last_received_at or self._started_at))
        return Check(
            "the socket to Slack is closed: is SLACK_APP_TOKEN right, and Slack reachable?",
            details,
            stops=silent_for >= _MAX_SOCKET_CLOSED,
        )

    def _work(self, figures: Figures | None) -> Check:
        if figures is None:
            return Check("it is not known what is due: see database")
        reason = ""
        if max(figures.oldest_due.values()) > _MAX_OVERDUE:
            reason = "work is overdue: if nothing else is wrong here, see the log and the load"
        details = {
            "oldest_due_job_s": round(figures.oldest_due["jobs"].total_seconds()),
            "oldest_due_delivery_s": round(figures.oldest_due["deliveries"].total_seconds()),
        }
        return Check(reason, details)

    def _blocked(self) -> Mapping[str, bool]:
        slack, service = self._ctx.installation, self._ctx.service
        return {
            "slack_token": bool(slack.calls.refusal),
            "service_key": service.is_key_refused,
            "service_credit": service.next_credit_try is not None,
            "service_rate": service.is_slowed_down,
        }


# The first one that is closed says what to do.
_GATES: Final = {
    "key": "the service refuses VIDEO_API_KEY: copy the key again and restart the bot",
    "credit": "the service's account is out of credit: top it up; the next form tries again",
    "rate": "the service asks the bot to wait: nothing to do, requests wait their turn",
}


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
