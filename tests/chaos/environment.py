"""Copies of the bot that are killed by plan, between the sandbox's Slack and video service."""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from aiohttp import web

from bot.timings import PollSchedule, SystemClock, Timings
from sandbox.block_kit import Json
from sandbox.faults import CannedResponse
from sandbox.http import CALLER_PORT, Server
from sandbox.scenarios import Pace
from sandbox.service_limits import RateLimit
from sandbox.slack import DEFAULT_SCOPES, SandboxSlack
from sandbox.slack_objects import Event, Message
from sandbox.video_service import Operation, SandboxVideoService
from tests.chaos.copies import Copies, Copy
from tests.chaos.databases import RunDatabase
from tests.chaos.plan import Kill, Plan, PlannedFaults
from tests.crash import delivery_key, role_of
from tests.processes import FILE_STEPS, Phase
from tests.world import REPLICA, environment_of

_SCHEDULE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=150),
    growth=0.2,
    max_interval=timedelta(milliseconds=600),
    late_after=timedelta(seconds=4),
    overdue_after=timedelta(seconds=8),
    overdue_interval=timedelta(seconds=1),
    give_up_after=timedelta(seconds=15),
)
TIMINGS: Final = Timings(
    minutes=_SCHEDULE,
    hours=_SCHEDULE,
    max_wait=timedelta(seconds=10),
    call_timeout=timedelta(seconds=1),
    lease=timedelta(seconds=3),
    retry_interval=timedelta(milliseconds=100),
    max_retry_interval=timedelta(milliseconds=800),
    reconcile_within=timedelta(seconds=2),
    ask_again_after=timedelta(seconds=3),
    close_after=timedelta(seconds=3),
    approve_within=timedelta(seconds=20),
    callback_spacing=timedelta(milliseconds=100),
    recheck_key=timedelta(milliseconds=200),
    recheck_credit=timedelta(milliseconds=500),
    first_hold=timedelta(milliseconds=100),
    max_hold=timedelta(milliseconds=800),
    turn_timeout=timedelta(milliseconds=200),
    hasten_within=timedelta(milliseconds=300),
    card_delay=timedelta(milliseconds=100),
    name_timeout=timedelta(milliseconds=100),
    post_hold=timedelta(milliseconds=800),
    pause=timedelta(milliseconds=500),
    post_interval=timedelta(milliseconds=50),
    call_interval=timedelta(milliseconds=50),
    home_interval=timedelta(milliseconds=300),
    replica_max_age=timedelta(seconds=2),
    stop_timeout=timedelta(seconds=2),
    socket_heartbeat=timedelta(milliseconds=400),
    reconnect_interval=timedelta(milliseconds=20),
    max_reconnect_interval=timedelta(milliseconds=200),
    max_socket_wait=timedelta(milliseconds=500),
    drain=timedelta(seconds=1),
)
"""The bot's waits, shortened so that a run of a minute covers a week."""

# With several copies, a kill delays what was claimed by a lease, and several may hit one job.
_PATIENT: Final = replace(_SCHEDULE, give_up_after=10 * TIMINGS.lease)
TIMINGS_OF_SEVERAL: Final = replace(TIMINGS, minutes=_PATIENT, hours=_PATIENT)
"""The same for several copies."""

_PACE: Final = Pace(
    queued=timedelta(milliseconds=100),
    generating=timedelta(milliseconds=700),
    training=timedelta(seconds=2),
    training_steps=4,
)
# The moments of calls to Slack, by method.
_STEPS: Final = FILE_STEPS | {
    "chat.update": "edit",
    "conversations.history": "search",
    "conversations.replies": "search",
    "views.open": "form",
}
_HISTORY: Final = frozenset(scope for scope in DEFAULT_SCOPES if scope.endswith(":history"))
# A kill whose moment has not come by then takes place at once.
_MOMENT_TIMEOUT_S: Final = 2.5
# So that two clocks differ by a quarter of the lease at most: half a minute of two.
_MAX_CLOCK_OFFSET: Final = TIMINGS.lease / 8
# Deploys: one, and one more for each of these.
_KILLS_PER_DEPLOY: Final = 100
# A copy that is replaced counts as this many kills in the progress of a run.
_KILLS_PER_REPLACEMENT: Final = 2
# The moments at which a copy certainly has work claimed.
_CLAIMED_MOMENTS: Final = ("after create", "before read", "before edit", "after card")
_TAKEOVER_TIMEOUT: Final = 5 * TIMINGS.lease
_INTERVAL_S: Final = 0.05
_DOWN: Final = CannedResponse(503, {"error": "Down for maintenance"})
# Of an outage, from the restart of the copy that is killed in it.
_OUTAGE_S: Final = 2.0


class Environment:
    """The sandbox, the copies of the bot, and the balancer through which the outside reaches them.

    With several, one is killed for good after a third of the kills, and all are replaced now and
    then as in a deploy.

    Attributes:
        copies: the copies of the bot.
        database: a file with all that they have stored, once they have stopped.
        log_files: the logs of all copies.
        admin: who may answer every question.
        posted: every message that the bot posted, as it was then.
        kills_by_moment: the number of kills by moment.
        disturbances: the number of disturbed connections of Socket Mode by what was done to them.
        deploys: how often all copies were replaced, one by one.
        takeover: from the death of the copy that was killed for good until the others had taken
            over the last of its work; None before that.
        not_taken_over: what they had not taken over in several leases.
        processes_in_outage: how many processes of the bot found that the service was down.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        run_database: RunDatabase,
        rng: random.Random,
        *,
        can_search: bool,
        copies: int = 1,
        socket_mode: bool = False,
    ) -> None:
        clock = SystemClock()
        # With groups:read, forms would be refused instead of answered in direct messages.
        scopes = DEFAULT_SCOPES - {"groups:read"} - (set() if can_search else _HISTORY)
        self.slack = SandboxSlack(clock, scopes=scopes)
        self.admin = self.slack.user("cleo")
        self.approvers = [self.slack.add_user(f"approver-{n}").name for n in (1, 2)]
        self.slack.add_channel("approvals")
        self.service = SandboxVideoService(clock, pace=_PACE)
        self.service.add_replica(REPLICA, "Anna")
        self.service.next_video(*plan.scenarios)
        self.slack.faults = self._slack_faults = PlannedFaults(plan.faults)
        self.service.faults = self._service_faults = PlannedFaults(plan.faults)
        self.run_database, self.database = run_database, run_database.path
        self._rng = rng
        self.copies = Copies(
            [
                Copy(
                    number,
                    self._environ,
                    TIMINGS_OF_SEVERAL if copies > 1 else TIMINGS,
                    folder / f"bot-{number}.log",
                    _MAX_CLOCK_OFFSET * (rng.uniform(-1, 1) if copies > 1 else 0),
                )
                for number in range(1, copies + 1)
            ],
            run_database,
            rng,
        )
        self.log_files = [copy.log_file for copy in self.copies.all]
        self.deploys = 0
        self.takeover: timedelta | None = None
        self.not_taken_over: list[str] = []
        self.posted: list[Message] = []
        self.kills_by_moment: Counter[str] = Counter()
        self.disturbances: Counter[str] = Counter()
        self.slack.socket_mode.enabled = self._socket_mode = socket_mode
        self._kills = plan.kills
        self._spells = plan.spells
        self._quotes = itertools.cycle(plan.quotes)
        self._kill_at: str | None = None
        self._killed: asyncio.Future[Copy] | None = None
        self.processes_in_outage = 0
        self._steps_done = 0
        # While the database's server restarts, no copy is killed for good, and the other way round.
        self._calm = asyncio.Lock()
        self._server_restarts = plan.server_restarts
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    @property
    def url(self) -> str:
        """Return the bot's public URL, which stays the same over restarts."""
        return self._relay_server.url

    @property
    def progress(self) -> float:
        """Return the share of the planned kills and deploys that is done, from 0 to 1."""
        return min(1.0, self._steps_done / self._steps) if self._kills else 1.0

    @property
    def faults_hit(self) -> Counter[str]:
        """Return the number of faults that were hit, by operation."""
        return self._slack_faults.faults_hit + self._service_faults.faults_hit

    @property
    def address(self) -> Path:
        """Return where the database is."""
        return self.database

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the sandbox, the database and the bot, and stop all at the end."""
        self.slack.on_request, self.service.on_request = self._on_slack, self._on_service
        leave = self.slack.subscribe(self._note)
        for server in (self.slack, self.service, self._relay_server):
            await server.start()
        self.slack.request_url = f"{self.url}/slack/events"
        self.slack.socket_mode.on_envelope = self._on_envelope
        try:
            async with self.run_database.running(), self.copies.running():
                yield
        finally:
            leave()
            for server in (self._relay_server, self.service, self.slack):
                await server.stop()

    async def kill(self) -> None:
        """Kill copies as planned and restart each time; between kills, deploy and kill for good."""
        several = len(self.copies.all) > 1
        # One of several is restarted while others are killed, but not all are down at a time.
        may_be_down = asyncio.Semaphore(len(self.copies.all) - 1 or 1)
        kills = len(self._kills)
        deploys = [round(kills * (n + 1) / (self._deploys + 1)) for n in range(self._deploys)]
        async with asyncio.TaskGroup() as restarts:
            for number, kill in enumerate(self._kills):
                if several and number == kills // 3:
                    await self._kill_for_good()
                if number in deploys:
                    await self._deploy()
                await may_be_down.acquire()
                copy = await self._wait_and_kill(kill.moment, kill.delay)
                restart = restarts.create_task(self._restart(copy, kill))
                restart.add_done_callback(lambda _: may_be_down.release())
                if not several:
                    await restart
                self._steps_done += 1

    async def restart_server(self) -> None:
        """Restart the database's server as planned."""
        for each in self._server_restarts:
            while self.progress < each.progress:
                await asyncio.sleep(_INTERVAL_S)
            await asyncio.sleep(each.delay.total_seconds())
            async with self._calm:
                await self.run_database.restart(each.how, each.downtime.total_seconds())

    async def turn_away(self) -> None:
        """Let the service turn everybody away for a while, again and again, until cancelled."""
        service = self.service
        try:
            for spell in self._spells:
                await asyncio.sleep(spell.after.total_seconds())
                service.key_revoked = spell.why == "key"
                service.out_of_credit = spell.why == "credit"
                if spell.why == "rate":
                    until = self.slack.clock.now() + spell.duration
                    service.rate_limited = RateLimit(until, timedelta(seconds=1))
                await asyncio.sleep(spell.duration.total_seconds())
                service.key_revoked = service.out_of_credit = False
        finally:
            service.key_revoked = service.out_of_credit = False

    async def disturb_sockets(self, rng: random.Random) -> None:
        """Do to the connections of Socket Mode all that Slack and networks do, until cancelled."""
        socket = self.slack.socket_mode
        try:
            while self._socket_mode:
                await asyncio.sleep(rng.uniform(0.1, 1.0))
                what = rng.choice(("silent", "closed", "warning", "refreshed", "twice"))
                match what:
                    case "silent":
                        socket.go_silent()
                    case "closed":
                        await socket.close()
                    case "warning":
                        await socket.disconnect("warning", close=False)
                    case "refreshed":
                        await socket.disconnect("refresh_requested")
                    case "twice":
                        socket.delivers_twice = not socket.delivers_twice
                self.disturbances[what] += 1
        finally:
            socket.delivers_twice = False

    @contextlib.asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Let the service answer 503 to everything; a copy is killed in it, and restarted."""
        self.service.answer_all(_DOWN)
        try:
            yield
            self.processes_in_outage = len(self.copies.up) + 1
            copy = self._rng.choice(self.copies.up)
            await self._kill(copy, "at random")
            await self.copies.start(copy)
            await asyncio.sleep(_OUTAGE_S)
        finally:
            self.service.answer_all(None)

    def stop_faults(self) -> None:
        """Inject no faults from here on."""
        self._slack_faults.clear()
        self._service_faults.clear()

    async def stop(self) -> None:
        """Send SIGTERM to all copies that are left, and wait for them to end."""
        async with asyncio.TaskGroup() as group:
            for copy in self.copies.up:
                group.create_task(self.copies.terminate(copy))

    # ── Kills ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def _deploys(self) -> int:
        """How often all copies are replaced in a run."""
        return 1 + len(self._kills) // _KILLS_PER_DEPLOY if len(self.copies.all) > 1 else 0

    @property
    def _steps(self) -> int:
        replaced = self._deploys * (len(self.copies.all) - 1)
        return len(self._kills) + _KILLS_PER_REPLACEMENT * replaced

    async def _wait_and_kill(self, moment: str | None, delay: timedelta) -> Copy:
        """Kill the copy that reaches a moment; any after ``delay`` if there is no such moment."""
        while not self.copies.up:
            await asyncio.sleep(_INTERVAL_S)
        if moment is None:
            await asyncio.sleep(delay.total_seconds())
        else:
            self._killed = asyncio.get_running_loop().create_future()
            self._kill_at = moment
            try:
                async with asyncio.timeout(_MOMENT_TIMEOUT_S):
                    return await asyncio.shield(self._killed)
            except TimeoutError:
                self._kill_at = None
                if self._killed.done():
                    return self._killed.result()
        copy = self._rng.choice(self.copies.up)
        await self._kill(copy, "at random")
        return copy

    async def _kill(self, copy: Copy, moment: str) -> None:
        self.kills_by_moment[moment] += 1
        await self.copies.kill(copy)

    async def _restart(self, copy: Copy, kill: Kill) -> None:
        await asyncio.sleep(kill.downtime.total_seconds())
        if kill.kill_again_after is not None:
            copy.spawn()
            await asyncio.sleep(kill.kill_again_after.total_seconds())
            await self._kill(copy, "during the start")
        await self.copies.start(copy)

    async def _kill_for_good(self) -> None:
        """Kill a copy with work under way, never to be restarted; wait for the others to do it."""
        async with self._calm:
            copy = await self._wait_and_kill(self._rng.choice(_CLAIMED_MOMENTS), timedelta(0))
            self.copies.current.remove(copy)
            began = time.monotonic()
            left = await self.run_database.claims()
            self.takeover = timedelta(0)
            while left and self.takeover < _TAKEOVER_TIMEOUT:
                await asyncio.sleep(_INTERVAL_S)
                now = await self.run_database.claims()
                left = {row: claim for row, claim in left.items() if now.get(row) == claim}
                self.takeover = timedelta(seconds=time.monotonic() - began)
            self.not_taken_over = [" ".join(row) for row in left]

    async def _deploy(self) -> None:
        """Replace all copies, one by one, once all have started."""
        for copy in self.copies.current:
            while not copy.port:
                await asyncio.sleep(_INTERVAL_S)
            await self.copies.replace(copy)
            self._steps_done += _KILLS_PER_REPLACEMENT
        self.deploys += 1

    def _environ(self) -> dict[str, str]:
        values = environment_of(self.slack, self.service, self.run_database.url)
        if self._socket_mode:
            del values["SLACK_SIGNING_SECRET"]
            values["SLACK_APP_TOKEN"] = self.slack.socket_mode.app_token
        return values | {
            "PUBLIC_URL": self.url,
            "ADMIN_USERS": self.admin.id,
            "MAX_SCRIPT": "20000",
            "APPROVERS": ",".join(self.slack.user(name).id for name in self.approvers),
            "APPROVAL_ABOVE": "1000",
            "APPROVAL_CHANNEL": self.slack.channel("approvals").id,
            "MEDIA_HOSTS": "127.0.0.1",
        }

    async def _at(self, moment: str, copy: Copy | None = None) -> None:
        """Kill the copy that has reached a moment, if that is planned: it calls, or ``copy``."""
        if moment == self._kill_at and (copy := copy or self.copies.calling(CALLER_PORT.get())):
            assert self._killed is not None
            self._kill_at = None
            # First, as the kill of a copy may cancel this: it is called for its connection.
            self._killed.set_result(copy)
            await self._kill(copy, moment)
            raise web.HTTPServiceUnavailable

    # ── Moments ───────────────────────────────────────────────────────────────────────────────────

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        match method:
            case "chat.postMessage":
                await self._at(f"{phase} {role_of(delivery_key(arguments))}")
            case _ if method in _STEPS:
                await self._at(f"{phase} {_STEPS[method]}")

    async def _on_service(self, phase: Phase, operation: Operation, _path: str) -> None:
        self.service.quotes_key = next(self._quotes)
        await self._at(f"{phase} {'create' if operation.startswith('create') else 'read'}")

    async def _relay(self, request: web.Request) -> web.Response:
        """Forward a request to one of the copies, as a load balancer does."""
        body = await request.read()
        name = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            name = "callback"
        copy = self.copies.choose()
        if copy is None:
            raise web.HTTPBadGateway
        await self._at(f"before {name}", copy)
        answer = await self.copies.forward(copy, request, body, self.slack.session)
        await self._at(f"after {name}", copy)
        return answer

    async def _on_envelope(self, phase: Phase, payload: Json) -> None:
        """Kill a copy before an envelope is sent, or the one that answers before that is taken."""
        name = "submission" if payload.get("type") == "view_submission" else "request"
        try:
            await self._at(f"{phase} {name}")
        except web.HTTPServiceUnavailable:
            if phase == "after":
                raise ConnectionError from None

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind == "posted" and message is not None and message.is_from_bot:
            self.posted.append(message)
