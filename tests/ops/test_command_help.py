"""What the command line says of itself, and what it says where it cannot run."""

import asyncio
import shutil
import sys
from pathlib import Path

from bot.command_line import cli
from tests.ops.test_command_line import Result, bot

ROOT = Path(__file__).parent.parents[1]


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


async def test_an_unknown_command_is_answered_with_the_nearest(tmp_path: Path) -> None:
    result = await bot("srve", environ={}, folder=tmp_path)
    assert result.code == 2
    assert "No such command 'srve'. Did you mean 'serve'?" in result.err
    assert "Traceback" not in result.err


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
