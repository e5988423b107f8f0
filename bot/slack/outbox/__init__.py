"""The messages and files that the bot owes: posted, edited and found again."""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.model import Delivery, DeliveryState
from bot.slack.client import EVERYTHING, CallLimits
from bot.slack.context import HandlerContext
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.outbox.find import CANNOT_LOOK
from bot.slack.payloads import Payload
from bot.store import Limited, covering

_LOG: Final = logging.getLogger(__name__)
_M = TypeVar("_M", bound=Payload)


class Outbox:
    """What messages and files have in common: calls of Slack's methods, releases and waits."""

    def __init__(
        self,
        ctx: HandlerContext,
        rng: random.Random,
        limits: CallLimits[Limited],
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

    @asynccontextmanager
    async def _failures(
        self,
        delivery: Delivery,
        refused: Callable[[Delivery, Refused], Awaitable[None]],
        *,
        once: bool = False,
    ) -> AsyncIterator[None]:
        """Go on later with a delivery for which a call fails, or do what ``refused`` does.

        ``once``: it is the call that shows it. Without an answer it may have been done, so that it
        is not sent again before that is known; with one, Slack accepts something from this app.
        """
        is_search = delivery.state is DeliveryState.UNCERTAIN
        # Without it, a message can be posted: the app may have no right to do more.
        is_optional = is_search or delivery.role.is_file
        try:
            yield
        except Refused as error:
            is_paused = ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE
            if is_paused and not (is_optional and error.code in CANNOT_LOOK):
                await self._release(delivery, self._pause(error))
            else:
                await refused(delivery, error)
        except OutsideError as error:
            # Other calls are under the limits of their methods.
            has_limit = (once or is_search) and not delivery.role.is_file
            if once and isinstance(error, Uncertain):
                _LOG.warning("a call got no usable answer", extra=log_fields(delivery, error))
                await self._hold_back(delivery)
            elif has_limit and self._limits.note(covering(delivery), error):
                await self._release(delivery, self._ctx.clock.now())
            else:
                await self._back_off(delivery, error)
        else:
            if once:
                self._ctx.calls.limits.end(EVERYTHING)

    def _pause(self, error: Refused) -> datetime:
        """Send nothing for a while, since the workspace refuses this app; return until when."""
        limits = self._ctx.calls.limits
        if EVERYTHING not in limits.current():
            _LOG.error("Slack accepts nothing from this app", extra={"code": error.code})
        return limits.limit(EVERYTHING, self._ctx.timings.pause)

    async def _hold_back(self, delivery: Delivery) -> None:
        """Wait before Slack is asked about what got no answer: it may do it late.

        An edit is made again after that: an earlier one could come after the next.
        """
        if delivery.state is not DeliveryState.POSTED:
            delivery = replace(delivery, state=DeliveryState.UNCERTAIN)
        await self._release(delivery, self._ctx.clock.now() + self._ctx.timings.post_hold)

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


def accepted(delivery: Delivery) -> Delivery:
    """Return a delivery whose current version Slack shows. The next one is tried in full length."""
    return replace(
        delivery,
        shown_version=delivery.version,
        failures=0,
        refusals=0,
        rewrites=min(delivery.rewrites, 1),
    )


def log_fields(delivery: Delivery, reason: Exception | str) -> dict[str, str]:
    """Return what a log line says of a delivery and of what became of a call for it."""
    return {"job": delivery.job_id, "role": delivery.role.value, "reason": str(reason)}
