"""The composition root: builds the bot's parts, starts, monitors and stops them."""

import asyncio
import gc
import logging
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from bot import __version__
from bot.engine import Engine
from bot.engine.loop import Worker
from bot.engine.replica_list import ReplicaList
from bot.engine.steps import Runtime
from bot.engine.sweep import Sweep
from bot.errors import OperatorError
from bot.kinds import DriftLog
from bot.masking import Mask
from bot.metrics import Metrics
from bot.model import ApprovalPolicy
from bot.outages import Outages
from bot.service import client as service_client
from bot.service.client import VideoService
from bot.service.media import VideoSource
from bot.settings import Settings
from bot.slack.access import Access
from bot.slack.app import create_app
from bot.slack.client import SlackCalls, open_session, web_client
from bot.slack.context import Feature, HandlerContext
from bot.slack.features import replica, video
from bot.slack.features.home import HomePublisher
from bot.slack.installation import InstallationSource
from bot.slack.outbox.messenger import Messenger
from bot.slack.socket_mode import SocketMode
from bot.slack.views.usage import Price
from bot.store import LIMITS, DatabaseError, Limits, Memory, Store
from bot.tasks import BackgroundTasks, PartFailed, RequestPriority, start_part
from bot.timings import Clock, SystemClock, Timings
from bot.web.health import Readiness, ServiceCheck
from bot.web.server import WebServer

_LOG: Final = logging.getLogger(__name__)

# One for each kind of job.
FEATURES: Final = (video.FEATURE, replica.FEATURE)

_MAX_STEPS: Final = 64  # of one worker at a time
_MAX_HOMES: Final = 8  # published at a time
# For the requests that are being answered when the process is asked to end.
_SHUTDOWN_TIMEOUT: Final = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Bot:
    """The running bot."""

    host: str
    port: int
    """Chosen by the system where the settings say 0."""
    store: Store
    _workers: Sequence[Worker[Any]]
    _background: BackgroundTasks
    _readiness: Readiness
    _parts: Sequence[asyncio.Task[None]]
    """They run until the bot is stopped: one that ends earlier has failed."""

    async def run_until(self, stop: asyncio.Event) -> None:
        """Return when ``stop`` is set.

        Raises:
            DatabaseError: the database cannot be used any more.
            PartFailed: a part of the bot ended by itself.
        """
        stopped = asyncio.create_task(stop.wait())  # noqa: TID251 - cancelled below
        done, _ = await asyncio.wait([stopped, *self._parts], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for part in done - {stopped}:
            error = None if part.cancelled() else part.exception()
            if isinstance(error, DatabaseError):
                raise error
            name = part.get_name()
            _LOG.error("a part of the bot ended", extra={"part": name}, exc_info=error)
            raise PartFailed(
                f"The bot ends, because its {name} ended. The log says more."
            ) from error

    async def drain(self, duration: timedelta) -> None:
        """Say "not ready" and begin no work, and answer requests for ``duration``."""
        self._readiness.is_stopping = True
        for worker in self._workers:
            worker.stop()
        await asyncio.sleep(duration.total_seconds())


@asynccontextmanager
async def running(
    settings: Settings,
    *,
    clock: Clock | None = None,
    timings: Timings | None = None,
    rng: random.Random | None = None,
    features: Sequence[Feature] = FEATURES,
) -> AsyncIterator[Bot]:
    """Start the bot and stop it at the end, in little more than ``timings.stop_timeout``.

    To stop, it claims no more work, answers the requests that have arrived, lets the work under way
    end, and closes the database.

    Raises:
        DatabaseError: the database cannot be used.
        OperatorError: it cannot listen on the port.
    """
    clock = clock or SystemClock()
    timings = timings or Timings()
    rng = rng or random.Random()  # noqa: S311 - for jitter
    price = Price(settings.price_per_minute, settings.price_currency)
    mask = Mask(settings.secrets)
    metrics = Metrics(__version__)
    background = BackgroundTasks()
    kinds = {feature.kind.name: feature.kind for feature in features}
    presenters = {feature.kind.name: feature.presenter for feature in features}
    async with (
        Store.open(
            settings.database_address,
            timings,
            Limits(
                **{each.field: getattr(settings, each.field) for each in LIMITS.values()},
                admins=settings.admin_users,
                trainings=frozenset(kind.name for kind in kinds.values() if kind.catalogued),
            ),
            metrics,
            ApprovalPolicy(
                approvers=settings.approvers,
                admins=settings.admin_users,
                above=settings.approval_above,
                channel=settings.approval_channel,
            ),
        ) as store,
        service_client.connect(settings.proxy_for(settings.video_api_url)) as clients,
        open_session(settings.proxy_for(settings.slack_api_url)) as session,
    ):
        service = VideoService(
            settings.video_api_url,
            settings.video_api_key.get_secret_value(),
            mask=mask,
            clients=clients,
            clock=clock,
            timings=timings,
            # The engine is made below; no call is made before.
            on_recovery=lambda failures: background.spawn(engine.hasten(failures)),
            newest_made=lambda: engine.newest_made(),  # noqa: PLW0108 - likewise
            metrics=metrics,
        )
        calls = SlackCalls(
            Outages(
                "Slack",
                clock,
                on_end=lambda: background.spawn(messenger.hasten()),
                remedy="is SLACK_API_URL right, and reachable from here?",
            ),
            metrics,
            clock,
            timings,
        )
        client = web_client(
            settings.slack_bot_token.get_secret_value(),
            settings.slack_api_url,
            session,
            timings.call_timeout.total_seconds(),
            calls,
        )
        installation = InstallationSource(
            client,
            calls,
            store,
            background,
            command_prefix=settings.command_prefix,
            is_reachable=lambda: socket_mode is None or socket_mode.is_connected,
            clock=clock,
            timings=timings,
        )
        await installation.load()
        handler_context = HandlerContext(
            store=store,
            service=service,
            kinds=kinds,
            presenters=presenters,
            client=client,
            session=session,
            background=background,
            clock=clock,
            timings=timings,
            consent_statement=settings.consent_statement,
            media_hosts=settings.media_hosts,
            command_prefix=settings.command_prefix,
            price=price,
            installation=installation,
            access=Access(
                client,
                installation,
                background,
                clock,
                timings,
                limits=store.limits,
                allow_shared_channels=settings.allow_shared_channels,
            ),
            # Made below; nobody opens one before.
            open_home=lambda user, page: homes.open(user, page),  # noqa: PLW0108 - likewise
            calls=calls,
        )
        source = VideoSource(settings.media_hosts, settings.proxy_for, timings.max_video_bytes)
        messenger = Messenger(
            handler_context,
            # No callback can say what happened, and most people have no account at the service.
            admins_first=settings.public_url is None,
            rng=rng,
            join_channels=settings.join_public_channels,
            metrics=metrics,
            videos=source if settings.media_hosts else None,
        )
        runtime = Runtime(
            store, service, kinds, clock, timings, rng, settings.public_url, DriftLog(metrics)
        )
        engine = Engine(runtime)
        replica_list = ReplicaList(runtime, kinds.values() if settings.video_api_lists else ())
        priority = RequestPriority(timings)
        homes = HomePublisher(handler_context)
        workers = (
            Worker(engine, clock, timings, priority, slots=_MAX_STEPS),
            Worker(messenger, clock, timings, priority, slots=_MAX_STEPS),
            Worker(homes, clock, timings, priority, slots=_MAX_HOMES),
        )
        bolt = create_app(handler_context, features)
        socket_mode = None
        if settings.slack_app_token is not None:
            socket_mode = SocketMode(
                bolt,
                handler_context,
                settings.slack_app_token.get_secret_value(),
                proxy_for=settings.proxy_for,
                priority=priority,
                metrics=metrics,
            )
        service_check = ServiceCheck(handler_context)
        readiness = Readiness(handler_context, service_check, metrics, socket_mode)
        server = WebServer(
            bolt,
            secret.get_secret_value() if (secret := settings.slack_signing_secret) else None,
            handler_context,
            mask=mask,
            priority=priority,
            shutdown_timeout=_SHUTDOWN_TIMEOUT,
            readiness=readiness,
            report_token=settings.report_token,
            metrics=metrics,
        )
        sweep = Sweep(store, kinds.values(), clock, timings, settings.retention)
        store.jobs.durations.follow(kinds)
        memory = Memory(store.database, store.in_memory, clock, timings)
        await memory.refresh()  # what forms show is there for the first one
        await messenger.hold_interrupted_edits()
        try:
            port = await server.start(settings.host, settings.port)
        except OSError as error:  # its text may begin with the address, and with "[errno 98] "
            why = str(error.strerror or error).rpartition("] ")[2].rpartition(": ")[2]
            raise OperatorError(
                f"The bot cannot listen on {settings.host}:{settings.port}: {why}. Correct HOST "
                "and PORT, or end the program that has the port."
            ) from error
        installation.learn()
        endless = [
            start_part(memory.run, "memory"),
            start_part(sweep.run, "sweep"),
            start_part(replica_list.run, "list of replicas"),
            start_part(installation.run, "check of the installation"),
            start_part(service_check.run, "check of the video service"),
            start_part(metrics.watch_event_loop, "watch on the event loop"),
            start_part(store.database.watch, "database"),
        ]
        if socket_mode is not None:
            endless.append(start_part(socket_mode.run, "Socket Mode"))
        parts = [
            start_part(workers[0].run, "engine"),
            start_part(workers[1].run, "messenger"),
            start_part(workers[2].run, "home publisher"),
            *endless,
        ]
        try:
            yield Bot(
                settings.host,
                port,
                store,
                workers,
                background,
                readiness,
                parts,
            )
        finally:
            readiness.is_stopping = True
            for worker in workers:
                worker.stop()  # it claims no more
            for part in endless:
                part.cancel()
            sockets = [socket_mode] if socket_mode is not None else []
            closing = (each.stop(_SHUTDOWN_TIMEOUT) for each in sockets)
            await asyncio.gather(server.stop(), *closing)
            await background.stop(timings.stop_timeout - _SHUTDOWN_TIMEOUT)
            await asyncio.gather(*parts, return_exceptions=True)


async def serve(
    settings: Settings, *, clock: Clock | None = None, timings: Timings | None = None
) -> None:
    """Run the bot until the process is asked to end (SIGTERM, SIGINT).

    Raises:
        DatabaseError: the database cannot be used, or cannot any more.
        PartFailed: a part of the bot ended by itself.
        OperatorError: it cannot listen on the port.
    """
    timings = timings or Timings()
    stop = asyncio.Event()
    start = asyncio.current_task()
    assert start is not None  # noqa: S101 - this is a coroutine
    _on_signals(start.cancel)  # it may be waiting for another process to close the database
    try:
        async with running(settings, clock=clock, timings=timings) as bot:
            _on_signals(stop.set)
            # What exists now stays. Traversing it at each garbage collection costs 0.5 ms a job.
            gc.freeze()
            _LOG.info("listening", extra={"host": bot.host, "port": bot.port})
            try:
                await bot.run_until(stop)
            except DatabaseError:
                # Those who are asking for something now are told that it cannot be saved.
                await bot.drain(timings.drain)
                raise
            _LOG.info("stopping")
            # Where there may be other copies, a balancer needs a moment to send requests to them.
            if not bot.store.database.is_sole_process:
                await bot.drain(timings.drain)
    except asyncio.CancelledError:
        _LOG.info("asked to end before it had started")
    _LOG.info("stopped")


def _on_signals(act: Callable[[], object]) -> None:
    """Call ``act`` when the process is asked to end, and nothing else."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)
