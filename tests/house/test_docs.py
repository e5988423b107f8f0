"""The pages for people: their links lead somewhere, and what they name is in the code."""

import ast
import asyncio
import contextlib
import re
import signal
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import click
import pytest
import yaml

from bot.command_line import cli
from bot.metrics import Metrics
from bot.settings import Settings
from sandbox.http import free_port
from tests import settings_pages
from tests.postgres import empty_database_url
from tests.postgres_server import installed
from tests.world import World

ROOT = Path(__file__).parent.parent.parent
FIELDS = {
    str(field.alias or name.upper()): (name, field) for name, field in Settings.model_fields.items()
}
REQUIRED = {
    "SLACK_BOT_TOKEN": "xoxb-1234-abcd",
    "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99eeeeee85a5",
    "VIDEO_API_URL": "https://videos.example.com",
    "VIDEO_API_KEY": "key-1234",
}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Variables of other programs.
NOT_THE_BOTS = {"ALL_PROXY", "CHROMIUM_REQUIRED", "HTTP_PROXY", "PGBOUNCER_REQUIRED"}


def without_code(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


class Row(NamedTuple):
    """One row of a table of settings."""

    name: str
    meaning: str
    without: str
    example: str


def rows() -> Iterator[Row]:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if line.startswith("| `"):
            name, meaning, without, example = map(str.strip, line.strip("|").split("|"))
            yield Row(name.strip("`"), meaning, without, example.strip("`"))


ROWS = list(rows())


def test_the_page_and_the_example_are_what_the_table_of_settings_says() -> None:
    assert sorted(row.name for row in ROWS) == sorted(FIELDS)
    remedy = "run: python -m tests.settings_pages"
    assert settings_pages.PAGE.read_text(encoding="utf-8") == settings_pages.settings_page(), remedy
    assert settings_pages.EXAMPLE.read_text(encoding="utf-8") == settings_pages.env_example()


def test_the_page_says_what_happens_without_a_setting(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        name, field = FIELDS[row.name]
        with subtests.test(row.name):
            assert row.meaning
            if field.is_required():
                assert row.without == "the bot doesn't start"
            elif default := re.match(r"`([^`]+)`", row.without):
                given = Settings.read(REQUIRED | {row.name: default[1]})
                assert getattr(given, name) == getattr(Settings.read(REQUIRED), name)
            else:
                assert not field.default, "the page does not begin with the default"


def test_the_page_has_examples_that_the_bot_accepts(subtests: pytest.Subtests) -> None:
    for row in ROWS:
        if "YOUR-" not in row.example:
            with subtests.test(row.name):
                Settings.read(REQUIRED | {row.name: row.example})


# Scopes


def test_the_table_of_scopes_has_each_scope_of_the_manifest_and_what_declining_costs() -> None:
    scopes = yaml.safe_load((ROOT / "manifest.yml").read_text(encoding="utf-8"))["oauth_config"]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    table = page.partition("## What each scope is for")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w.:]+)` \| (.*) \|$", table, re.MULTILINE))
    assert rows.keys() == set(scopes["scopes"]["bot"])
    optional = {name for name, row in rows.items() if row.startswith("*optional*: ")}
    assert optional == set(scopes["scopes"]["bot_optional"])
    declined = {name for name, row in rows.items() if row.endswith("| it can't be declined")}
    assert declined == rows.keys() - optional


# Links


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.replace(" ", "-") for each in kept}


def test_links_between_pages_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        text = without_code(page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith(("https://", "http://")):
                continue
            name, _, anchor = target.partition("#")
            linked = (page.parent / name).resolve() if name else page
            if not linked.is_file() or (anchor and anchor not in anchors(linked)):
                dead.append(f"{page.name} links to {target}")
    assert dead == []


def test_pages_name_only_settings_and_files_that_exist() -> None:
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        settings = re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", text)
        files = re.findall(r"`((?:bot|docs|sandbox|tests|deploy)/[\w./-]+\.\w+)`", text)
        unknown = set(settings) - FIELDS.keys() - NOT_THE_BOTS
        unknown |= {name for name in files if not (ROOT / name).is_file()}
        missing += [f"{page.name} names {name}" for name in sorted(unknown)]
    assert missing == []


# Dependencies


def test_the_commands_that_lock_dependencies_are_those_that_the_files_were_made_with() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\.venv/bin/(uv pip compile .*)$", page, re.MULTILINE)
    headers = [each.read_text(encoding="utf-8") for each in ROOT.glob("requirements*.txt")]
    made_with = [re.findall(r"^# +(uv pip compile .*)$", each, re.MULTILINE) for each in headers]
    assert sorted(commands) == sorted(command for [command] in made_with)


# Pictures


def test_the_icon_has_a_size_that_slack_takes_and_init_names_it() -> None:
    icon = ROOT / "docs/pictures/icon.png"
    png = icon.read_bytes()
    assert png.startswith(b"\x89PNG")
    # https://www.w3.org/TR/png-3/#11IHDR
    width, height = struct.unpack_from(">II", png, 16)
    assert width == height
    assert 512 <= width <= 2000
    assert str(icon.relative_to(ROOT)) in spoken()


# Words


def spoken() -> str:
    """Return every text in the code of the bot, one after the other."""
    texts = []
    for path in sorted((ROOT / "bot").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                ]
                texts.append("".join(parts))
    return "\n".join(texts)


def test_what_troubleshooting_quotes_is_what_the_bot_says() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    said = spoken() + (ROOT / "docs/messages.md").read_text(encoding="utf-8")
    said = " ".join(said.split()).lower()
    quoted = re.findall(r"“((?:[^“”]|“[^“”]*”)+)”", " ".join(page.split()))
    assert quoted
    assert [each for each in quoted if each.lower() not in said] == []


# Metrics


def test_the_page_about_operations_names_each_metric_of_the_bot() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    metrics = Metrics().exposition().decode()
    there = set(re.findall(r"^# TYPE (replica_bot_\w+) ", metrics, re.MULTILINE))
    there -= {name for name in there if name.endswith("_created")}
    assert set(re.findall(r"`(replica_bot_\w+)`", page)) == there


WITH_COMMANDS = (
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
    ".venv/bin/python -m sandbox": "tests/sandbox/test_page_journeys.py runs it",
    ".venv/bin/python -m sandbox --story": "tests/ops/test_command_line.py runs it",
    r".venv/bin/python -m tests\.(messages|settings_pages|pictures)": "it changes the tree",
    r".venv/bin/python -m tests\.(planted|chaos .*)": ".ci/run runs it",
    r".venv/bin/uv pip compile .*": "it asks the package index",
    r"(sudo|journalctl|cd /opt/replica-videos)\b.*": "they need systemd and root",
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
async def machine(quiet: World, tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path, quiet)
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
    for page in WITH_COMMANDS:
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
    for page in WITH_COMMANDS:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name, rest in re.findall(r"-m bot ([a-z-]+)([^`\n]*)", text):
            with subtests.test(page, command=name + rest):
                command, options = cli.commands[name], rest
                if isinstance(command, click.Group) and rest:
                    part, _, options = rest.strip().partition(" ")
                    command = command.commands[part]
                known = {each for parameter in command.params for each in parameter.opts}
                assert set(re.findall(r"--[a-z-]+", options)) <= {*known, "--help"}
