"""The composition root: builds everything, starts it, and stops it so that nothing is lost."""

import asyncio
import logging
import random
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import aiohttp
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from bot import video_service
from bot.background import Background
from bot.clock import Clock, SystemClock
from bot.engine import Engine
from bot.model import Job
from bot.settings import Settings
from bot.slack import jobs, replica, video
from bot.slack.desk import Desk, Feature
from bot.slack.messenger import Messenger
from bot.slack.routes import Routes
from bot.store import Outgoing, Store
from bot.sweep import Sweep
from bot.timings import Timings
from bot.video_service import VideoService
from bot.web import WebServer
from bot.worker import Worker

_LOG: Final = logging.getLogger(__name__)

# What the bot can do: a new kind of job is one more of these.
FEATURES: Final = (video.FEATURE, replica.FEATURE)

_SLOTS: Final = 64
# For the requests that are being answered when the process is asked to end.
_SHUTDOWN_TIMEOUT: Final = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Bot:
    """The running bot."""

    host: str
    port: int
    """Where it listens: what the system chose where the settings said 0."""
    routes: Routes
    store: Store
    _engine: Worker[Job]
    _messenger: Worker[Outgoing]
    _background: Background
    _sweep: Sweep
    _tasks: Sequence[asyncio.Task[None]]

    async def until(self, ended: asyncio.Event) -> None:
        """Return when ``ended`` is set; raise what ends a part of the bot before that."""
        waiting = _own(ended.wait())
        done, _ = await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for task in done - {waiting}:
            task.result()

    async def settled(self) -> bool:
        """Return when nothing is due or under way; say whether anything was."""
        parts = (self._engine, self._messenger, self._background, self._sweep)
        return any([await part.settled() for part in parts])


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

    It begins nothing more, gives its last answers, ends what is in hand, and closes its memory.

    Raises:
        StoreError: the database cannot be used.
        OSError: the port is taken.
    """
    clock = clock or SystemClock()
    timings = timings or Timings()
    rng = rng or random.Random()  # noqa: S311 - for jitter
    background = Background()
    kinds = {feature.kind.name: feature.kind for feature in features}
    faces = {feature.kind.name: feature.face for feature in features}
    async with (
        Store.open(settings.database, timings) as store,
        video_service.connect() as clients,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        service = VideoService(
            settings.video_api_url,
            settings.video_api_key.get_secret_value(),
            clients=clients,
            clock=clock,
            timings=timings,
        )
        client = _slack_client(settings, session, timings)
        desk = Desk(
            store=store,
            service=service,
            kinds=kinds,
            faces=faces,
            client=client,
            session=session,
            background=background,
            clock=clock,
            timings=timings,
            admins=settings.admin_users,
        )
        messenger = Messenger(store, client, faces, clock=clock, timings=timings, rng=rng)
        engine = Engine(
            store,
            service,
            kinds,
            clock=clock,
            timings=timings,
            rng=rng,
            public_url=settings.public_url,
            ask_person=messenger.nudge,
        )
        workers = (
            Worker(engine, clock, timings, slots=_SLOTS),
            Worker(messenger, clock, timings, slots=_SLOTS),
        )
        routes = Routes(desk.whisper)
        for register in (jobs.register, *(feature.register for feature in features)):
            register(routes, desk)
        server = WebServer(
            _bolt(client, routes),
            settings.slack_signing_secret.get_secret_value(),
            store,
            kinds.values(),
            clock=clock,
            timings=timings,
            shutdown_timeout=_SHUTDOWN_TIMEOUT,
            is_ready=lambda: all(worker.healthy for worker in workers),
        )
        sweep = Sweep(store, kinds.values(), clock, timings, settings.retention)
        endless = (sweep.run(), store.database.lasts())
        tasks = [_own(each) for each in (*(worker.run() for worker in workers), *endless)]
        try:
            port = await server.start(settings.host, settings.port)
            yield Bot(settings.host, port, routes, store, *workers, background, sweep, tasks)
        finally:
            for worker in workers:
                worker.stop()
            for task in tasks[len(workers) :]:
                task.cancel()
            await server.stop()
            await background.stop(timings.stop_timeout - _SHUTDOWN_TIMEOUT)
            await asyncio.wait(tasks)


async def serve(settings: Settings, *, timings: Timings | None = None) -> None:
    """Run the bot until the process is asked to end (SIGTERM, SIGINT)."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with running(settings, timings=timings) as bot:
        _LOG.info("listening", extra={"host": bot.host, "port": bot.port})
        await bot.until(ended)
        _LOG.info("ending: what is under way is finished, what is not is kept")
    _LOG.info("ended")


def _own(work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
    return asyncio.create_task(work)  # noqa: TID251 - whoever calls waits for it


def _slack_client(
    settings: Settings, session: aiohttp.ClientSession, timings: Timings
) -> AsyncWebClient:
    return AsyncWebClient(
        token=settings.slack_bot_token.get_secret_value(),
        base_url=settings.slack_api_url,
        session=session,
        timeout=max(1, round(timings.call_timeout.total_seconds())),
        # By default it sends again after a dropped connection: a message would be posted twice.
        retry_handlers=[],
    )


def _bolt(client: AsyncWebClient, routes: Routes) -> AsyncApp:
    async def authorize() -> AuthorizeResult:
        # One workspace: no need to ask Slack who we are before the first answer.
        return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=client.token)

    bolt = AsyncApp(
        name="replica-videos",
        client=client,
        authorize=authorize,
        # The answer leaves when the handler returns; otherwise Bolt looks for it every 10 ms.
        process_before_response=True,
        # What these would do is done in bot.web, or never needed.
        request_verification_enabled=False,
        ssl_check_enabled=False,
        ignoring_self_events_enabled=False,
        attaching_function_token_enabled=False,
        logger=logging.getLogger("slack_bolt"),
    )

    @bolt.error
    async def hand_on(error: Exception) -> None:
        # Handlers answer for their own errors; what Bolt cannot read is answered in bot.web.
        raise error

    bolt.use(routes)
    return bolt
