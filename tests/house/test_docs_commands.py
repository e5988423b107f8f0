"""The commands in the docs: each one runs here, in the order of the page, or it is said why not.

They run in a copy of the tree, against the sandbox's Slack and video service.
"""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import click
import pytest

from bot.command_line import cli
from sandbox.http import free_port
from tests.postgres import empty_database_url
from tests.postgres_server import installed
from tests.world import World

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/settings.md",
    "docs/install.md",
    "docs/operations.md",
    "docs/troubleshooting.md",
    "docs/postgresql.md",
)
INIT: Final = ".venv/bin/python -m bot init"
#: What is not run here, and why. What follows the reason has to be in the tree.
NOT_RUN: Final = {
    "python3 -m venv .venv": "the tests run in that environment: .ci/run makes it",
    r".venv/bin/pip install .*--require-hashes .*": "likewise, with requirements-dev.txt",
    INIT: "tests/ops/test_init.py answers it on a pseudo-terminal; here its file is written",
    ".venv/bin/python -m pytest": "this is it: .ci/run takes the command from the README",
    ".venv/bin/python -m pytest tests/slack/test_cards.py": "likewise",
    ".venv/bin/python -m sandbox": "tests/sandbox/test_sandbox_page.py runs it",
    ".venv/bin/python -m sandbox --story": "tests/ops/test_command_line.py runs it",
    r".venv/bin/python -m tests\.(messages|settings_pages|pictures)": "it changes the tree",
    r".venv/bin/python -m tests\.(planted|chaos .*)": ".ci/run runs it",
    r".venv/bin/uv pip compile .*": "it asks the package index",
    r"(sudo|journalctl|cd /opt/replica-videos)\b.*": "tests/ops/test_deploy.py runs them",
    r"docker compose exec bot .*": "tests/ops/test_deploy.py runs it in the image",
    # Word for word, since nothing else would notice a mistake in them.
    r"docker compose (up --detach --build|logs --follow)": "there is no Docker in CI",
    r"docker compose up --detach --build --scale bot=2": "likewise",
    r"docker compose (down( --volumes)?|cp bot:/data/backup\.db \.)": "likewise",
    r"docker compose (stop bot|run --rm --entrypoint sh bot -ec .*|start bot)": "likewise",
}
SERVE: Final = ".venv/bin/python -m bot serve"
#: A database of the pages, as which an empty one is used here.
POSTGRES: Final = re.compile(r"postgresql://bot:PASSWORD@db\.example\.com/(\w+)")
_TIMEOUT_S: Final = 60


def blocks(page: str) -> list[list[str]]:
    """Return the commands of each block of a page, and those in its sentences, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [
        block or inline
        for block, inline in re.findall(
            r"^ *```sh\n(.*?)^ *```$"
            r"|`((?:\.venv/bin/|python3 -m venv |curl |docker |install )[^`\n]+)`",
            text,
            re.MULTILINE | re.DOTALL,
        )
    ]
    return [
        [
            command
            for line in block.replace("\\\n", " ").splitlines()
            if (typed := line.partition(" # ")[0].strip()) and not typed.startswith("#")
            for command in typed.split(" && ")
        ]
        for block in found
    ]


def why_not(command: str) -> str | None:
    return next((why for each, why in NOT_RUN.items() if re.fullmatch(each, command)), None)


class Machine:
    """A machine on which somebody follows the docs: a copy of the tree, and a shell in it."""

    def __init__(self, folder: Path, world: World) -> None:
        for path in ROOT.iterdir():
            if path.name not in {".env", ".git"} and not path.name.startswith("bot.db"):
                (folder / path.name).symlink_to(path)
        if not (folder / ".venv").exists():
            (folder / ".venv").unlink(missing_ok=True)
            (folder / ".venv").symlink_to(sys.prefix)
        self.folder = folder
        self.databases: dict[str, str] = {}
        self.exits = contextlib.ExitStack()
        self.port = str(free_port())
        self.settings = world.environment(self.port) | {"DATABASE_URL": "sqlite:///bot.db"}
        self.bot: asyncio.subprocess.Process | None = None

    async def run(self, command: str) -> str:
        """Run a command that ends, and return what it printed."""
        process = await self._start(command)
        async with asyncio.timeout(_TIMEOUT_S):
            out, _ = await process.communicate()
        printed = out.decode()
        assert process.returncode == 0, f"{command} ended with {process.returncode}: {printed}"
        return printed

    async def serve(self, command: str) -> None:
        """Start the bot, and wait until it answers."""
        self.bot = await self._start(command)
        async with asyncio.timeout(_TIMEOUT_S), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with session.get(f"http://127.0.0.1:{self.port}/readyz") as answer:
                        assert answer.status == 200
                        return
                assert self.bot.returncode is None, "the bot did not start"
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Stop the bot as a host does."""
        if self.bot is not None:
            self.bot.send_signal(signal.SIGTERM)
            async with asyncio.timeout(_TIMEOUT_S):
                await self.bot.communicate()
            assert self.bot.returncode == 0
            self.bot = None

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *("/bin/sh", "-euc", self._here(command)),
            cwd=self.folder,
            env={"PATH": f"{installed() / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    def _here(self, command: str) -> str:
        """Return a command with the addresses of this machine."""
        command = command.replace("127.0.0.1:3000", f"127.0.0.1:{self.port}")
        return POSTGRES.sub(lambda found: self._database(found[1]), command)

    def _database(self, name: str) -> str:
        if name not in self.databases:
            self.databases[name] = self.exits.enter_context(empty_database_url())
        return self.databases[name]

    def fill_in_settings(self) -> None:
        """Write the settings where the example has placeholders."""
        lines = [f"{name}='{value}'\n" for name, value in self.settings.items()]
        with (self.folder / ".env").open("a", encoding="utf-8") as file:
            file.writelines(lines)


@pytest.fixture
async def machine(quiet_world: World, tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, quiet_world)
    try:
        yield machine
    finally:
        if machine.bot is not None and machine.bot.returncode is None:
            machine.bot.kill()
            await machine.bot.communicate()
        machine.exits.close()


@pytest.mark.slow
async def test_the_commands_of_the_docs_work_in_the_order_of_the_pages(machine: Machine) -> None:
    ran = []
    for page in PAGES:
        for block in blocks(page):
            for command in block:
                if command == INIT:
                    machine.fill_in_settings()
                if why_not(command) is not None or (command in ran and command != SERVE):
                    continue
                if command == SERVE:
                    if machine.bot is None:
                        await machine.serve(f"exec {command}")
                elif command.endswith(SERVE):  # with a setting of its own
                    await machine.stop()
                    await machine.serve(command.replace(SERVE, f"exec {SERVE}"))
                    await machine.stop()
                elif command.startswith("cp ") or "move-database" in command:
                    await machine.stop()  # as the page says
                    await machine.run(command)
                else:
                    await machine.run(command)
                if command.startswith("install ") and command.endswith(" .env"):
                    machine.fill_in_settings()
                ran.append(command)
    await machine.stop()
    assert SERVE in ran


def test_commands_of_the_bot_in_the_text_exist(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, rest in re.findall(r"-m bot ([a-z-]+)([^`\n]*)", text):
            with subtests.test(page, command=name + rest):
                command, options = cli.commands[name], rest
                if isinstance(command, click.Group) and rest:
                    part, _, options = rest.strip().partition(" ")
                    command = command.commands[part]
                known = {each for parameter in command.params for each in parameter.opts}
                assert set(re.findall(r"--[a-z-]+", options)) <= {*known, "--help"}
