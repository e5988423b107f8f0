"""Publishes the Home tabs that are due: the newest of each, at most one in a few seconds."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from bot.errors import OutsideError, Refused, Unavailable
from bot.slack.admin_view import MAX_PAST, AdminContent, Health
from bot.slack.blocks import Json
from bot.slack.context import HandlerContext
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.home_view import MAX_QUESTIONS, MAX_REPLICAS, PAGE, HomeContent, home_view
from bot.slack.replica_picker import replica_label
from bot.store import Home, Limits

_LOG: Final = logging.getLogger(__name__)


class HomePublisher:
    """Takes claimed Home tabs one step further: it publishes them.

    Lost publications do no harm: the next change, or opening the tab, publishes it again.
    """

    def __init__(self, ctx: HandlerContext) -> None:
        self._ctx = ctx
        self._held_until: datetime | None = None

    @property
    def due(self) -> asyncio.Event:
        """Set when one may have become due."""
        return self._ctx.store.homes.due

    async def claim(self, limit: int, held: Collection[Home] = ()) -> Sequence[Home]:
        """Lease up to ``limit`` that are due; none while Slack asks to wait."""
        if self._wait_until() is not None or self._ctx.installation.is_uninstalled:
            return ()
        return await self._ctx.store.homes.claim(self._ctx.clock.now(), limit, held)

    async def next_due(self, held: Collection[Home] = ()) -> datetime | None:
        """Return when the next one is due that is not ``held``."""
        if self._ctx.installation.is_uninstalled:
            return None
        due, held_until = await self._ctx.store.homes.next_due(held), self._wait_until()
        return due if due is None or held_until is None else max(due, held_until)

    async def step(self, home: Home) -> None:
        """Publish a Home tab as it is now."""
        view, timings = await self._view(home), self._ctx.timings
        due_at, failures = None, 0
        try:
            async with translated(timings.call_timeout):
                await self._ctx.client.views_publish(user_id=home.user, view=view)
        except Refused as error:
            if ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE:
                due_at = self._hold(timings.pause)
            else:  # it is published again with the next change
                _LOG.error("Slack refuses a Home tab", extra={"reason": error.reason})
        except OutsideError as error:
            failures = home.failures + 1
            due_at = self._ctx.clock.now() + timings.back_off(failures)
            if isinstance(error, Unavailable) and error.retry_after is not None:
                due_at = self._hold(error.retry_after)
        now = self._ctx.clock.now()
        await self._ctx.store.homes.release(home, now, failures=failures, due_at=due_at)

    async def _view(self, home: Home) -> Json:
        ctx, store = self._ctx, self._ctx.store
        found = await store.jobs.list_running_first(home.user, home.page * PAGE, PAGE + 1)
        replicas = await store.replicas.find("", "", MAX_REPLICAS)
        is_admin = home.user in ctx.admins
        questions = (
            await store.jobs.list_questions_to_others(home.user, MAX_QUESTIONS) if is_admin else ()
        )
        content = HomeContent(
            jobs=found[:PAGE],
            page=home.page,
            more=len(found) > PAGE,
            replicas=[replica_label(each) for each in replicas],
            retried=await store.jobs.list_retried([job.id for job in found]),
            questions=questions,
            to_approve=await store.jobs.list_to_approve(home.user, MAX_QUESTIONS),
            admin=await self._admin_content() if is_admin else None,
        )
        return home_view(content, ctx.presenters, ctx.command)

    async def _admin_content(self) -> AdminContent:
        store = self._ctx.store
        in_force = await store.limits.fetch()
        return AdminContent(
            health=await self._health(in_force.limits),
            spending=await store.spending.of_month(self._ctx.clock.now()),
            in_force=in_force,
            past=await store.limits.fetch_past(MAX_PAST),
        )

    async def _health(self, limits: Limits) -> Health:
        ctx = self._ctx
        return Health(
            used=await ctx.store.jobs.count_used(ctx.clock.now()),
            limit=limits.per_day,
            unsent=await ctx.store.deliveries.count_unsent(),
            key_refused=ctx.service.known_key_refusal is not None,
            no_credit=ctx.service.is_out_of_credit,
            next_try=ctx.service.next_credit_try,
            slowed_down=ctx.service.is_slowed_down,
            to_approve=await ctx.store.jobs.count_to_approve(),
        )

    def _hold(self, wait: timedelta) -> datetime:
        """Publish nothing for ``wait``; return until when."""
        self._held_until = self._ctx.clock.now() + min(wait, self._ctx.timings.max_wait)
        return self._held_until

    def _wait_until(self) -> datetime | None:
        now, until = self._ctx.clock.now(), self._held_until
        # A wait that is too long is from before the clock was set back.
        if until is None or not now < until <= now + self._ctx.timings.max_wait:
            return None
        return until
