"""This version goes on while the next one adds to its tables, as in a deploy."""

import asyncio
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Final

from bot.clock import SystemClock
from bot.store.migrate import MIGRATIONS
from bot.store.move import tables
from bot.store.postgres.engine import migrate
from sandbox.driver import Person
from sandbox.http import free_port
from sandbox.scenarios import Pace
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService
from tests.databases import installed
from tests.processes_of_commands import started
from tests.store.test_migrations import migrations
from tests.world import REPLICA

_TIMEOUT_S: Final = 60.0
# What a migration may do, to each table.
_ADDED: Final = (
    "ALTER TABLE {table} ADD COLUMN newer TEXT NOT NULL DEFAULT 'new';"
    "CREATE INDEX {table}_newer ON {table} (newer);"
)


async def test_this_version_makes_videos_on_tables_that_the_next_one_has_added_to(
    empty_url: str, tmp_path: Path
) -> None:
    clock, moment = SystemClock(), timedelta(milliseconds=50)
    slack = SandboxSlack(clock)
    slack.response_timeout = timedelta(seconds=_TIMEOUT_S)
    service = SandboxVideoService(clock, pace=Pace(queued=moment, generating=moment))
    service.add_replica(REPLICA, "Anna")
    ana = Person(slack, "ana")
    await slack.start()
    await service.start()
    port = str(free_port())
    environ = {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_SIGNING_SECRET": slack.signing_secret,
        "SLACK_API_URL": slack.api_url,
        "VIDEO_API_URL": service.url,
        "VIDEO_API_KEY": service.api_key,
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "DATABASE_URL": empty_url,
        "HOST": "127.0.0.1",
        "PORT": port,
    }

    changed = asyncio.Event()
    slack.subscribe(lambda _: changed.set())

    def is_ready(script: str) -> bool:
        cards = [each for each in slack.messages("studio") if script in each.text]
        return any(
            "is ready" in reply.text for card in cards for reply in slack.thread("studio", card.ts)
        )

    async def make_video(script: str) -> None:
        answer = await ana.command("/video", "", "studio")
        assert answer.ok
        assert ana.modal is not None
        form = ana.modal
        await form.submit({"replica_id": REPLICA, "script": script})
        assert not form.is_open, form.errors
        async with asyncio.timeout(_TIMEOUT_S):
            while not is_ready(script):
                changed.clear()
                await changed.wait()

    try:
        async with started("serve", environ=environ, folder=tmp_path) as bot:
            await bot.until("listening")
            await installed(empty_url)
            slack.request_url = f"http://127.0.0.1:{port}/slack/events"
            await make_video("Before the deploy.")
            # One for each table: a transaction that locks all would deadlock with the bot's own.
            added = {
                f"9{number:03}_newer": _ADDED.format(table=table.name)
                for number, table in enumerate(tables(), start=1)
            }
            shutil.copytree(MIGRATIONS, tmp_path / "next")
            with migrations(tmp_path / "next", **added):
                assert migrate(empty_url) == list(added)
            await make_video("During the deploy.")
        assert not re.search("Traceback|level=(error|critical)", bot.printed), bot.printed
        # Its host starts it again meanwhile, or an operator goes back to it.
        async with started("serve", environ=environ, folder=tmp_path) as again:
            await again.until("listening")
            assert "a newer version has added to the tables" in again.printed
            await make_video("After it was started again.")
        assert not re.search("Traceback|level=(error|critical)", again.printed), again.printed
        assert len(service.videos) == 3
    finally:
        await service.stop()
        await slack.stop()
