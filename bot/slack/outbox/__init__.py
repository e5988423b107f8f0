"""The messages and files that the bot owes: posted, edited and found again."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.clock import Clock
from bot.errors import Outages, OutsideError, Unavailable
from bot.model import Delivery, DeliveryState
from bot.slack.errors import translated
from bot.slack.installation import InstallationSource
from bot.slack.payloads import Payload
from bot.slack.rate_limits import CallLimits, RateLimits
from bot.slack.views.presenters import Presenters
from bot.store import Store
from bot.timings import Timings

_M = TypeVar("_M", bound=Payload)


class Outbox:
    """What messages and files have in common: calls of Slack's methods, releases and waits."""

    def __init__(
        self,
        store: Store,
        client: AsyncWebClient,
        presenters: Presenters,
        *,
        clock: Clock,
        timings: Timings,
        rng: random.Random,
        limits: RateLimits,
        methods: CallLimits[str],
        outages: Outages,
        installation: InstallationSource,
    ) -> None:
        self._store = store
        self._client = client
        self._presenters = presenters
        self._clock = clock
        self._timings = timings
        self._rng = rng
        self._limits = limits
        self._methods = methods
        self._outages = outages
        self._installation = installation

    async def _call(
        self, model: type[_M], method: str, call: Callable[[], Awaitable[AsyncSlackResponse]]
    ) -> _M:
        """Return the answer to a call of a method, unless Slack asks to wait with that.

        Raises:
            Refused, Unavailable, Uncertain: there is none.
        """
        until = self._methods.begin(method, self._timings.call_interval)
        if until is not None:
            wait = max(until - self._clock.now(), timedelta(0))
            raise Unavailable("Slack asks to wait.", retry_after=wait)
        try:
            async with translated(self._timings.call_timeout, self._outages):
                return model.model_validate((await call()).data)
        except OutsideError as error:
            self._methods.note(method, error)
            raise

    async def _hold_back(self, delivery: Delivery) -> None:
        """Wait before Slack is asked about what got no answer: it may do it late."""
        uncertain = replace(delivery, state=DeliveryState.UNCERTAIN)
        await self._release(uncertain, self._clock.now() + self._timings.post_hold)

    async def _back_off(self, delivery: Delivery, error: OutsideError) -> None:
        """Go on with a delivery later, after as long as Slack asks for."""
        wait = error.retry_after
        if wait is None:
            delivery = replace(delivery, failures=delivery.failures + 1)
            wait = self._timings.back_off(delivery.failures)
        await self._release(delivery, self._clock.now() + self._timings.jittered(wait, self._rng))

    async def _release(self, delivery: Delivery, due_at: datetime | None = None) -> None:
        await self._store.deliveries.release(delivery, self._clock.now(), due_at)
