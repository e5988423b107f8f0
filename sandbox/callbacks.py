"""The callbacks that the video service sends when a job ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs

from bot.timings import Clock
from sandbox import service_bodies
from sandbox.callback_shapes import encoded
from sandbox.scenarios import AS_SEEN, CallbackPlan
from sandbox.scheduler import Scheduler
from sandbox.service_jobs import Replica, Video
from sandbox.wire import NO_ANSWER, Wire

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)


@dataclass
class Callback:
    """One callback that was sent; ``status`` is None if it got no answer."""

    url: str
    method: str
    body: object
    at: datetime
    status: int | None = None


class CallbackSender:
    """Sends callbacks as their jobs' plans say.

    Attributes:
        sent: every callback that was sent, in order.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        wire: Callable[[], Wire],
        base_url: Callable[[], str],
    ) -> None:
        """Make a sender.

        Args:
            clock: the time of the service.
            scheduler: runs what is due later.
            wire: returns the log of requests.
            base_url: returns the service's own address.
        """
        self.sent: list[Callback] = []
        self._clock = clock
        self._scheduler = scheduler
        self._wire = wire
        self._base_url = base_url

    async def job_created(self, job: Video | Replica) -> None:
        """Send an early callback, or plan the one at the job's end."""
        if job.callback_url is not None and job.callback_plan.early:
            await self._send_as_planned(job, job.callback_url)
        self.plan(job)

    def plan(self, job: Video | Replica) -> None:
        """Plan the callback at the job's end, in place of an earlier plan."""
        url, plan, ends_at = job.callback_url, job.callback_plan, job.ends_at
        job.call_back_at = None
        if url is None or plan.early or ends_at is None or job.end == "deleted":
            return
        moment = job.call_back_at = ends_at + plan.after

        async def call_back() -> None:
            # The job may have been ended by hand since: only the newest plan counts.
            if job.call_back_at == moment:
                job.call_back_at = None
                await self._send_as_planned(job, url)

        self._scheduler.at(moment, call_back)

    async def send(self, job: Video | Replica, url: str, body: object = AS_SEEN) -> None:
        """Send the job's callback once, now, even if the job goes on."""
        plan = job.callback_plan if body is AS_SEEN else replace(job.callback_plan, body=body)
        content = service_bodies.callback(job, plan, self._clock.now(), self._base_url())
        await self._send(url, plan, content)

    def has_told(self, job: Video | Replica) -> bool:
        """Return whether the bot has accepted a callback since the job's end."""
        return any(
            each.url == job.callback_url
            and each.status == HTTPStatus.OK
            and (job.ends_at is None or each.at >= job.ends_at)
            for each in self.sent
        )

    async def _send_as_planned(self, job: Video | Replica, url: str) -> None:
        for _ in range(job.callback_plan.times):
            await self.send(job, url)

    async def _send(self, url: str, plan: CallbackPlan, body: object) -> None:
        method = plan.method
        callback = Callback(url, method, body, self._clock.now())
        self.sent.append(callback)
        headers: Mapping[str, str] = {hdrs.CONTENT_TYPE: "text/plain"}
        if isinstance(body, str):
            data = body.encode()
        else:
            data, headers = encoded(body, plan.shape)
        path = urlsplit(url).path
        with self._wire().exchange("service", "bot", method, path, data) as exchange:
            try:
                async with (
                    aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                    session.request(
                        method, url, data=data, headers=headers, allow_redirects=False
                    ) as response,
                ):
                    callback.status = response.status
                    exchange.answered(response.status, await response.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                # The real service does not retry either: `status` stays None.
                exchange.failed = f"{NO_ANSWER}: {type(error).__name__}"
