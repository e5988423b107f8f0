"""The files to deploy with: each is valid for its program, and leads to a bot that works."""

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml

from bot.settings import environment
from bot.timings import Timings
from sandbox.http import free_port
from tests.house.test_docs import blocks
from tests.ops import container
from tests.ops.container import Image, Namespace
from tests.world import World

_ROOT: Final = Path(__file__).parent.parent.parent
_UNIT: Final = _ROOT / "docs/systemd/replica-videos.service"
_INSTALLED: Final = "/opt/replica-videos"
_OPERATIONS: Final = [each for block in blocks("docs/operations.md") for each in block]
_START_S: Final = 30.0
_STOP_S: Final = 10.0


def need(is_there: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Skip the test where something is missing; in CI it fails."""
    if not is_there:
        (pytest.fail if environment(with_file=False).get("CI") else pytest.skip)(f"needs {what}")


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[Namespace, Image]]:
    """The image, built once: that takes most of the time."""
    need(container.is_possible(), "root and Linux's namespaces")
    with Namespace.hold() as namespace:
        yield namespace, container.build(namespace, _ROOT)


@pytest.mark.slow
async def test_the_image_runs_read_only_as_a_user_without_rights_and_stops_within_ten_seconds(
    built: tuple[Namespace, Image], quiet: World
) -> None:
    namespace, image = built

    # It has the bot and what it needs, compiled, and nothing else.
    assert image.settings["FROM"].startswith("python:3.11-slim")
    files = set(container.run(namespace, image, "find", "/app", "-type", "f").split())
    assert {each.split("/")[2] for each in files} == {".venv", "bot", "manifest.yml"}
    modules = {str(each) for each in (_ROOT / "bot").rglob("*.py")}
    modules = {each.replace(str(_ROOT), "/app") for each in modules}
    assert modules <= files
    # The image's Python is the one that runs the tests.
    ending = f".{sys.implementation.cache_tag}.pyc"
    compiled = {each.replace("__pycache__/", "").replace(ending, ".py") for each in files}
    assert len([each for each in files if each.endswith(ending)]) >= len(modules)
    assert modules <= compiled
    library = f"/app/.venv/lib/python3.{sys.version_info.minor}/site-packages"
    packages = container.run(namespace, image, "ls", library)
    assert not {"pip", "setuptools", "pytest", "blockkit"} & set(packages.split())
    assert {"psycopg", "psycopg_binary"} <= set(packages.split()), "it runs on PostgreSQL too"

    # Its commands work without settings.
    container.make_read_only(namespace, image, "/data")
    bot = image.argv("ENTRYPOINT")
    assert "serve" in container.run(namespace, image, *bot, "--help")
    assert "slash_commands" in container.run(namespace, image, *bot, "manifest")
    with pytest.raises(AssertionError, match="Read-only file system"):
        container.run(namespace, image, "touch", "/app/file")

    # It runs with a volume alone, as process 1.
    environ = quiet.environment(str(free_port()))
    del environ["DATABASE_URL"], environ["HOST"]
    image.environ |= environ
    serve = container.command_in(image, [*bot, *image.argv("CMD")])
    process = namespace.start(*serve)
    try:
        await asyncio.to_thread(_wait_until_healthy, namespace, image, process)
        assert int(image.user.partition(":")[0]) > 0
        (child,) = _children(process)
        status = _read(f"/proc/{child}/status")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert set(status.split("Uid:")[1].splitlines()[0].split()) == {
            image.user.partition(":")[0]
        }
        assert "bot.db" in container.run(namespace, image, "ls", "/data")
        for typed in _OPERATIONS:
            _, found, command = typed.partition("docker compose exec bot ")
            if found:
                await asyncio.to_thread(container.run, namespace, image, *shlex.split(command))
        assert "backup.db" in container.run(namespace, image, "ls", "/data").split()

        assert image.settings["STOPSIGNAL"] == "SIGTERM"
        began = time.monotonic()
        os.kill(child, signal.SIGTERM)
        code = await asyncio.to_thread(process.wait, _STOP_S)
        assert (code, time.monotonic() - began < _STOP_S) == (0, True)
    finally:
        said = _end(process)
    assert "Traceback" not in said, said


def _children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in _read(f"/proc/{process.pid}/task/{process.pid}/children").split()]


def _end(process: subprocess.Popen[str]) -> str:
    """End it, if it has not ended, and return what it said."""
    if process.poll() is None:
        # The change of its user has undone --kill-child:
        # https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html
        for child in _children(process):
            os.kill(child, signal.SIGKILL)
    process.kill()
    said, _ = process.communicate()
    return said


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _wait_until_healthy(namespace: Namespace, image: Image, process: subprocess.Popen[str]) -> None:
    check = image.argv("HEALTHCHECK")
    assert any("/healthz" in part for part in check)
    until = time.monotonic() + _START_S
    while True:
        try:
            container.run(namespace, image, *check)
        except AssertionError:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        else:
            return


def test_nothing_secret_gets_into_the_image() -> None:
    names = [
        "bot/app.py",
        "manifest.yml",
        "requirements-postgres.txt",
        ".env",
        ".env.example",
        ".git/config",
        "bot.db",
        "bot.db-wal",
        "bot/.env",
        "bot/old.db",
        "bot/__pycache__/app.cpython-311.pyc",
        "sandbox/slack.py",
        "tests/world.py",
    ]
    assert container.sent(_ROOT, names) == names[:3]


def test_compose_runs_the_image_as_confined_as_it_can_be() -> None:
    compose = yaml.safe_load((_ROOT / "compose.yaml").read_text(encoding="utf-8"))
    schema = json.loads((_ROOT / "tests/data/compose.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft201909Validator.check_schema(schema)
    errors = jsonschema.Draft201909Validator(schema).iter_errors(compose)
    assert [error.message for error in errors] == []
    assert "version" not in compose
    (bot,) = compose["services"].values()
    assert bot["read_only"] is True
    assert bot["cap_drop"] == ["ALL"]
    assert bot["security_opt"] == ["no-new-privileges:true"]
    assert bot["environment"]["DATABASE_URL"].startswith("sqlite:////data/")
    assert bot["volumes"] == ["data:/data"]
    assert "data" in compose["volumes"]
    assert "ports" not in bot
    # Four videos are fetched at a time. What the kernel keeps there counts as memory.
    [temporary] = bot["tmpfs"]
    path, _, size = temporary.partition(":size=")
    assert path == "/tmp"
    assert _mebibytes(size) * 2**20 >= 4 * Timings().max_video_bytes
    assert _mebibytes(bot["mem_limit"]) - _mebibytes(size) >= 512


def _mebibytes(size: str) -> int:
    assert size.endswith("m")
    return int(size[:-1])


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, for an installation in this folder."""
    text = _UNIT.read_text(encoding="utf-8")
    text = text.replace(f"{_INSTALLED}/.venv/bin/python", sys.executable)
    path = tmp_path / _UNIT.name
    path.write_text(text.replace(_INSTALLED, str(_ROOT)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "check",
    [
        "verify --man=no",
        # Ten times what it prints: 10 is a service with nothing to lose, 96 one without any line.
        "security --offline=yes --threshold=20 --no-pager",
    ],
)
def test_systemd_accepts_the_unit_and_finds_it_confined(check: str, unit: Path) -> None:
    need(shutil.which("systemd-analyze") is not None, "systemd-analyze (Debian: systemd)")
    command = ["systemd-analyze", *check.split(), str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


async def test_slacks_command_line_gets_the_manifest_and_starts_the_bot(quiet: World) -> None:
    hooks = json.loads((_ROOT / ".slack/hooks.json").read_text(encoding="utf-8"))
    # Else it would connect by itself, and start a process for each event.
    assert hooks["config"]["sdk-managed-connection-enabled"] is True
    # Commands are split at spaces, and the first one gets the project's folder:
    # https://github.com/slackapi/slack-cli/blob/main/internal/app/manifest.go
    get_manifest, start = (
        [sys.executable, *hooks["hooks"][name].split()[1:]] for name in ("get-manifest", "start")
    )
    assert all(each.startswith(".venv/bin/python -m bot ") for each in hooks["hooks"].values())
    process = await asyncio.create_subprocess_exec(
        *get_manifest, f"--source={_ROOT}", cwd=_ROOT, env={}, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    schema = json.loads((_ROOT / "tests/data/manifest.schema.json").read_text(encoding="utf-8"))
    manifest = json.loads(printed)
    jsonschema.Draft7Validator(schema).validate(manifest)
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert "YOUR-HOST" not in printed.decode()

    # It sets both tokens, and no signing secret:
    # https://github.com/slackapi/slack-cli/blob/main/.github/cli-sdk-specification.md
    quiet.socket_mode = True
    quiet.slack.socket_mode.enabled = True
    environ = quiet.environment(str(free_port()), callbacks=False)
    process = await asyncio.create_subprocess_exec(
        *start, cwd=_ROOT, env=environ, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(_START_S):
        await quiet.slack.socket_mode.reached()
    # It is asked to end with SIGINT, and killed five seconds later.
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(5):
        _, said = await process.communicate()
    assert process.returncode == 0, said
