"""The messages and files that the bot owes: posted, edited and found again."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import OutsideError, Unavailable
from bot.model import Delivery, DeliveryState
from bot.slack.client import RateLimits
from bot.slack.context import HandlerContext
from bot.slack.errors import translated
from bot.slack.payloads import Payload

_M = TypeVar("_M", bound=Payload)


class Outbox:
    """What messages and files have in common: calls of Slack's methods, releases and waits."""

    def __init__(
        self,
        ctx: HandlerContext,
        rng: random.Random,
        limits: RateLimits,
    ) -> None:
        self._ctx = ctx
        self._rng = rng
        self._limits = limits

    async def _call(
        self, model: type[_M], method: str, call: Callable[[], Awaitable[AsyncSlackResponse]]
    ) -> _M:
        """Return the answer to a call of a method, unless Slack asks to wait with that.

        Raises:
            Refused, Unavailable, Uncertain: there is none.
        """
        until = self._ctx.calls.limits.begin(method, self._ctx.timings.call_interval)
        if until is not None:
            wait = max(until - self._ctx.clock.now(), timedelta(0))
            raise Unavailable("Slack asks to wait.", retry_after=wait)
        async with translated(self._ctx.timings.call_timeout, self._ctx.calls.outages):
            return model.model_validate((await call()).data)

    async def _begin(self, delivery: Delivery, marked_at: datetime | None = None) -> bool:
        """Mark a delivery as being sent, unless its claim did; return whether its call may begin.

        What came since its claim may have taken long: then it is marked anew. It may not begin
        where it was claimed again meanwhile, or is too late for its lease.
        """
        at = self._ctx.clock.now()
        if marked_at is not None and self._ctx.timings.may_call(marked_at, at):
            return True
        if not await self._ctx.store.deliveries.mark_sending(delivery, at):
            return False
        if self._ctx.timings.may_call(at, self._ctx.clock.now()):
            return True
        await self._release(delivery, self._ctx.clock.now())
        return False

    async def _hold_back(self, delivery: Delivery) -> None:
        """Wait before Slack is asked about what got no answer: it may do it late."""
        await self._release(
            replace(delivery, state=DeliveryState.UNCERTAIN),
            self._ctx.clock.now() + self._ctx.timings.post_hold,
        )

    async def _back_off(self, delivery: Delivery, error: OutsideError) -> None:
        """Go on with a delivery later, after as long as Slack asks for."""
        wait = error.retry_after
        if wait is None:
            delivery = replace(delivery, failures=delivery.failures + 1)
            wait = self._ctx.timings.back_off(delivery.failures)
        await self._release(
            delivery, self._ctx.clock.now() + self._ctx.timings.jittered(wait, self._rng)
        )

    async def _release(self, delivery: Delivery, due_at: datetime | None = None) -> None:
        await self._ctx.store.deliveries.release(delivery, self._ctx.clock.now(), due_at)
