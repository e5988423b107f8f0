"""Plants bugs in copies of the tree, one in each, and requires that the tests named for it fail."""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent
_LIST: Final = Path(__file__).with_suffix(".toml")
# What the tests that are named need of the tree.
_NEEDED: Final = (
    "bot",
    "sandbox",
    "tests",
    "pyproject.toml",
    "manifest.yml",
    "README.md",
    ".env.example",
)
_AT_ONCE: Final = 2
# In seconds: so long the tests of one bug may take, and so long all of them without any.
_LIMIT: Final = 30.0
_LIMIT_SOUND: Final = 120.0
_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True)
class Bug:
    """A small change for the worse, and the tests that have to notice it.

    ``old`` stands in ``file`` exactly once; ``new`` takes its place. ``caught_by`` are ids of
    tests, each of one case.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a bug: ``missed`` says why it was not caught, and is empty where it was."""

    bug: Bug
    missed: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Run:
    """How a run of pytest ended: ``code`` is None where it took too long."""

    code: int | None
    said: str

    @property
    def end(self) -> str:
        """The end of what it said."""
        late = "\nIt took too long." if self.code is None else ""
        return self.said[-_SHOWN:] + late

    def says(self, word: str, test: str) -> bool:
        """Return whether its summary says this word of a test."""
        line = f"{word} {test}"
        return any(f"{each} ".startswith(f"{line} ") for each in self.said.splitlines())


def main() -> int:
    """Plant the bugs that were asked for; return the exit code: 1 if one was not caught."""
    bugs = {bug.name: bug for bug in _listed()}
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted",
        description="Plant bugs in copies of the tree, and see that the tests notice each of them.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a bug by its name; all if none")
    chosen = parser.parse_args().names or list(bugs)
    if unknown := [name for name in chosen if name not in bugs]:
        parser.error(f"no such bug: {', '.join(unknown)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        caught = _all_caught([bugs[name] for name in chosen], Path(folder))
    print(f"{time.monotonic() - began:6.1f} s")
    return 0 if caught else 1


def _listed() -> Iterator[Bug]:
    names = set()
    for each in tomllib.loads(_LIST.read_text(encoding="utf-8"))["bug"]:
        bug = Bug(**{**each, "caught_by": tuple(each["caught_by"])})
        assert bug.name not in names, f"two bugs are called {bug.name}"
        assert bug.caught_by, f"nobody has to catch {bug.name}"
        names.add(bug.name)
        yield bug


def _all_caught(bugs: Sequence[Bug], folder: Path) -> bool:
    sound = _copied(folder / "sound")
    tests = list(dict.fromkeys(test for bug in bugs for test in bug.caught_by))
    run = _run(sound, tests, _LIMIT_SOUND)
    if failing := [test for test in tests if not run.says("PASSED", test)]:
        print(run.end)
        print("These do not pass without any bug:", *failing, sep="\n  ")
        return False
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        verdicts = []
        for verdict in pool.map(lambda bug: _judged(bug, sound, folder), bugs):
            verdicts.append(verdict)
            _print(verdict)
    missed = [verdict for verdict in verdicts if verdict.missed]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} planted bugs were caught.")
    return not missed


def _judged(bug: Bug, sound: Path, folder: Path) -> Verdict:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        # With what Python has compiled in it, for speed.
        tree = shutil.copytree(sound, Path(name) / "tree")
        missed = _planted(bug, tree) or _survived(bug, tree)
    return Verdict(bug, missed, time.monotonic() - began)


def _planted(bug: Bug, tree: Path) -> str:
    """Plant a bug in a tree; return why it cannot be, "" if it is there now."""
    file = tree / bug.file
    text = file.read_text(encoding="utf-8")
    if (count := text.count(bug.old)) != 1:
        return f"its old text is in {bug.file} {count} times: the patch has to be made anew"
    file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    # What Python has compiled is known by its time in whole seconds and its size alone.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    return ""


def _survived(bug: Bug, tree: Path) -> str:
    """Run the tests of a planted bug; return how it got past them, "" if it did not."""
    run = _run(tree, bug.caught_by, _LIMIT)
    if unmoved := [test for test in bug.caught_by if not run.says("FAILED", test)]:
        return f"not failed: {', '.join(unmoved)}\n{run.end}"
    return "" if run.code == 1 else f"pytest ended with {run.code}\n{run.end}"


def _run(tree: Path, tests: Iterable[str], limit: float) -> _Run:
    # Neither chance nor memory: the same bug meets the same tests each time.
    options = "--numprocesses 0 -p no:randomly -p no:cacheprovider -vv --tb=line -rfEsp --basetemp"
    scratch = tree.with_name("scratch")
    command = [sys.executable, "-m", "pytest", *options.split(), str(scratch), *tests]
    said = tree.with_name("said.txt")
    # A group of its own, and no pipe: whatever it has started ends with it, and is not waited for.
    with (
        said.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command, cwd=tree, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return _Run(code, said.read_text(encoding="utf-8", errors="replace"))


def _copied(tree: Path) -> Path:
    """Copy what is needed of this tree, without what Python has compiled of it."""
    tree.mkdir()
    for name in _NEEDED:
        if (_ROOT / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_ROOT / name, tree / name, ignore=leave)
        else:
            shutil.copy2(_ROOT / name, tree)
    return tree


def _print(verdict: Verdict) -> None:
    bug, seconds = verdict.bug, f"{verdict.seconds:5.1f} s"
    if verdict.missed:
        print(f"✗ MISSED {seconds}  {bug.name}: {verdict.missed}", flush=True)
    else:
        by = ", ".join(test.removeprefix("tests/") for test in bug.caught_by)
        print(f"✓ caught {seconds}  {bug.name}: {by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
