"""Whom the sandbox's video service turns away, apart from its switches for everybody."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from aiohttp import hdrs, web

from bot.timings import Clock

_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True)
class RateLimit:
    """Refuse everything until a moment; ``retry_after`` is in the responses if set."""

    until: datetime
    retry_after: timedelta | None = None


class CallRate:
    """At most ``per_second`` calls in each second; the others are to come back in a second."""

    def __init__(self, clock: Clock, per_second: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._began = clock.now()
        self._calls = 0

    def take(self) -> bool:
        """Count a call; return whether it is accepted."""
        now = self._clock.now()
        if not timedelta(0) <= now - self._began < _SECOND:
            self._began, self._calls = now, 0
        self._calls += 1
        return self._calls <= self._per_second


@dataclass
class Limits:
    """Limits for some requests.

    Attributes:
        rates: by HTTP method, how many calls are accepted in a second.
        unauthorized: ids of videos and replicas, read or used, for which the answer is 401.
        forbidden: likewise 403.
        throttled: ids of videos and replicas, read or used, for which the answer is 429, each with
            the Retry-After.
        unpaid: replica ids, and operations such as ``create_replica``, that are answered 402.
        broken: ids of videos and replicas, read or used, for which the answer is 500.
    """

    rates: dict[str, CallRate] = field(default_factory=dict)
    unauthorized: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    throttled: dict[str, timedelta] = field(default_factory=dict)
    unpaid: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def refusal(
        self,
        operation: str,
        request: web.Request,
        body: Any,  # noqa: ANN401 - any JSON
    ) -> web.Response | None:
        """Return the response to a request that is over a limit."""
        used = body.get("replica_id") if isinstance(body, dict) else None
        ids = {used, request.match_info.get("id")}
        if ids & self.forbidden:
            return web.json_response({"message": "Forbidden"}, status=403)
        if ids & self.unauthorized:
            return web.json_response({"message": "You do not own this"}, status=401)
        for wait in (self.throttled[id_] for id_ in self.throttled if id_ in ids):
            headers = {hdrs.RETRY_AFTER: f"{wait.total_seconds():.0f}"}
            return web.json_response({"message": "Too many of this"}, status=429, headers=headers)
        if ids & self.broken:
            return web.json_response({"error": "Internal error"}, status=500)
        rate = self.rates.get(request.method)
        if rate is not None and not rate.take():
            headers = {hdrs.RETRY_AFTER: "1"}
            return web.json_response({"message": "Too many requests"}, status=429, headers=headers)
        creates = operation.startswith("create")
        if creates and {operation, used} & self.unpaid:
            return web.json_response({"error": "Not within your plan"}, status=402)
        return None
