"""The version before goes on while a newer one brings the tables up to date, as in a deploy."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from bot.clock import SystemClock
from bot.store.migrate import tables
from bot.store.postgres_migrations import migrate
from sandbox.driver import Person
from sandbox.http import free_port
from sandbox.scenarios import Pace
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService
from tests.postgres import empty_database_url
from tests.processes_of_commands import ROOT, started
from tests.test_deploy import need
from tests.test_postgres_migrations import newer_version
from tests.world import REPLICA

# The release before this one: to be replaced at each release.
_BEFORE: Final = "c228d44439e3e8f30939dc4fbef6a4aff8c1770f"
_TIMEOUT_S: Final = 60.0
# What a migration may do, to each table: there may be none since the version before.
_ADDED: Final = (
    "ALTER TABLE {table} ADD COLUMN newer TEXT NOT NULL DEFAULT 'new';"
    "CREATE INDEX {table}_newer ON {table} (newer);"
)


@pytest.fixture
def code_before(tmp_path: Path) -> Path:
    """Return the folder with the code of the version before."""
    archive = tmp_path / "before.tar"
    made = subprocess.run(
        ["git", "-C", ROOT, "archive", "--output", archive, _BEFORE, "bot", "manifest.yml"],  # noqa: S607
        check=False,
        capture_output=True,
    )
    need(made.returncode == 0, f"the history of the repository, with {_BEFORE}")
    folder = tmp_path / "before"
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)  # noqa: S607
    return folder


@pytest.fixture
def empty_url() -> Iterator[str]:
    """Return the URL of a database without tables."""
    with empty_database_url() as url:
        yield url


async def test_the_version_before_makes_videos_on_the_tables_of_this_one(
    code_before: Path, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        "PYTHONPATH": str(code_before),
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
        async with started("serve", environ=environ, folder=code_before) as before:
            await before.until("listening")
            slack.request_url = f"http://127.0.0.1:{port}/slack/events"
            await make_video("Before the deploy.")
            added = "".join(_ADDED.format(table=table.name) for table in tables())
            (tmp_path / "newer").mkdir()
            with newer_version(monkeypatch, tmp_path / "newer", added) as newest:
                assert migrate(empty_url)[-1] == newest
            await make_video("During the deploy.")
        assert not re.search("Traceback|level=(error|critical)", before.printed), before.printed
        # Its host starts it again meanwhile, or an operator goes back to it.
        async with started("serve", environ=environ, folder=code_before) as again:
            await again.until("listening")
            assert "a newer version has added to the tables" in again.printed
            await make_video("After it was started again.")
        assert not re.search("Traceback|level=(error|critical)", again.printed), again.printed
        assert len(service.videos) == 3
    finally:
        await service.stop()
        await slack.stop()
