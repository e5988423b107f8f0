"""What the command line says of itself, and what it says where it cannot run."""

import ast
import asyncio
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from bot.command_line import cli
from tests.test_command_line import Result, bot

ROOT = Path(__file__).parents[1]


async def prepared(first: str, folder: Path, *arguments: str, source: Path = ROOT) -> Result:
    """Run the command line after a statement that makes the Python another one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import runpy, sys\n{first}\nrunpy.run_module('bot', run_name='__main__', alter_sys=True)",
        *arguments,
        env={"PYTHONPATH": str(source)},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


async def test_without_a_command_it_says_what_it_can_do_and_that_nothing_was_done(
    tmp_path: Path,
) -> None:
    result = await bot(environ={}, folder=tmp_path)
    assert result.code == 2
    for name in cli.commands:
        assert f"\n  {name} " in result.err
    assert "the file .env in the working" in result.err
    assert "..." not in result.err.partition("Commands:")[2], "a first line is cut off"


@pytest.mark.parametrize("name", [name for name in cli.commands if name != "help"])
async def test_help_says_the_same_in_two_ways(name: str, tmp_path: Path) -> None:
    command = await bot("help", name, environ={}, folder=tmp_path)
    option = await bot(name, "--help", environ={}, folder=tmp_path)
    assert command == option
    assert option.code == 0
    assert f"Usage: python -m bot {name}" in option.out
    assert "Example" in option.out


@pytest.mark.parametrize("arguments", [("srve",), ("help", "srve")])
async def test_an_unknown_command_is_answered_with_the_nearest(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    result = await bot(*arguments, environ={}, folder=tmp_path)
    assert result.code == 2
    assert "No such command 'srve'. Did you mean 'serve'?" in result.err
    assert "Traceback" not in result.err


async def test_the_version_is_that_of_the_project(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    result = await bot("--version", environ={}, folder=tmp_path)
    assert (result.code, result.out) == (0, f"{project['name']} {project['version']}\n")


async def test_what_is_not_installed_is_named_with_what_installs_it(tmp_path: Path) -> None:
    # A clone without its virtual environment, and one whose environment is not used.
    shutil.copytree(ROOT / "bot", tmp_path / "bot", ignore=shutil.ignore_patterns("__pycache__"))
    for library, command in (("click", "--help"), ("pydantic", "serve")):
        missing = f"sys.modules[{library!r}] = None"
        result = await prepared(missing, tmp_path, command, source=tmp_path)
        assert result.code == 1
        assert result.err.startswith(f"{library} is not installed. ")
        assert "pip install --require-hashes -r requirements.txt\n" in result.err
        assert "Traceback" not in result.err
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch()
    result = await prepared(missing, tmp_path, command, source=tmp_path)
    assert result.err.endswith(f"  {program} -m bot serve\n")


async def test_an_older_python_is_told_which_one_is_needed(tmp_path: Path) -> None:
    ast.parse((ROOT / "bot/__main__.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    older = "sys.version_info = (3, 9, 18)"
    result = await prepared(older, tmp_path, "serve")
    assert result.code == 1
    assert result.err.startswith("The bot needs Python 3.11 or newer, and this is 3.9. ")
    assert "Traceback" not in result.err


async def test_help_does_not_import_what_only_the_bot_needs(tmp_path: Path) -> None:
    missing = "sys.modules |= dict.fromkeys(['pydantic', 'aiohttp', 'httpx', 'aiosqlite'])"
    assert (await prepared(missing, tmp_path, "--help")).code == 0
