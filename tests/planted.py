"""Plants known bugs in copies of the tree, one in each, and requires that the named tests fail."""

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
# What the tests need of the tree.
_NEEDED: Final = (
    "bot",
    "sandbox",
    "tests",
    "pyproject.toml",
    "manifest.yml",
    "README.md",
    ".env.example",
)
_PARALLEL: Final = 2
# For the tests of one bug, and for all tests without a bug.
_TIMEOUT_S: Final = 30.0
_TIMEOUT_ALL_S: Final = 120.0
_MAX_OUTPUT: Final = 2000  # characters


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug as a textual change, and the tests that have to fail because of it.

    ``old`` occurs in ``file`` exactly once and is replaced by ``new``. ``caught_by`` are pytest
    node ids, each of a single case.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a bug was caught; ``missed`` is the reason why not, or empty."""

    bug: Bug
    missed: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of a pytest run; ``code`` is None if it timed out."""

    code: int | None
    output: str

    @property
    def tail(self) -> str:
        """The end of its output."""
        late = "\nTimed out." if self.code is None else ""
        return self.output[-_MAX_OUTPUT:] + late

    def reports(self, status: str, test: str) -> bool:
        """Return whether its summary has a test with this status."""
        line = f"{status} {test}"
        return any(f"{each} ".startswith(f"{line} ") for each in self.output.splitlines())


def main() -> int:
    """Plant the chosen bugs; return 1 if one was not caught."""
    bugs = {bug.name: bug for bug in load_bugs()}
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted",
        description="Plant known bugs in copies of the tree, and require that tests fail.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="the name of a bug (default: all)")
    chosen = parser.parse_args().names or list(bugs)
    if unknown := [name for name in chosen if name not in bugs]:
        parser.error(f"no such bug: {', '.join(unknown)}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        caught = _all_caught([bugs[name] for name in chosen], Path(folder))
    print(f"{time.monotonic() - began:6.1f} s")
    return 0 if caught else 1


def load_bugs() -> Iterator[Bug]:
    """Yield the bugs of the list."""
    names = set()
    for each in tomllib.loads(_LIST.read_text(encoding="utf-8"))["bug"]:
        bug = Bug(**{**each, "caught_by": tuple(each["caught_by"])})
        assert bug.name not in names, f"two bugs with the name {bug.name}"
        assert bug.caught_by, f"no test for {bug.name}"
        names.add(bug.name)
        yield bug


def _all_caught(bugs: Sequence[Bug], folder: Path) -> bool:
    original = _copy_tree(folder / "original")
    tests = list(dict.fromkeys(test for bug in bugs for test in bug.caught_by))
    run = _run(original, tests, _TIMEOUT_ALL_S)
    if failing := [test for test in tests if not run.reports("PASSED", test)]:
        print(run.tail)
        print("These tests fail without a bug:", *failing, sep="\n  ")
        return False
    with ThreadPoolExecutor(_PARALLEL) as pool:
        outcomes = []
        for outcome in pool.map(lambda bug: _try(bug, original, folder), bugs):
            outcomes.append(outcome)
            _print(outcome)
    missed = [outcome for outcome in outcomes if outcome.missed]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} planted bugs were caught.")
    return not missed


def _try(bug: Bug, original: Path, folder: Path) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        # With the compiled files, for speed.
        tree = shutil.copytree(original, Path(name) / "tree")
        missed = _plant(bug, tree) or _run_tests(bug, tree)
    return Outcome(bug, missed, time.monotonic() - began)


def _plant(bug: Bug, tree: Path) -> str:
    """Plant a bug in a tree; return why that failed, or ""."""
    file = tree / bug.file
    text = file.read_text(encoding="utf-8")
    if (count := text.count(bug.old)) != 1:
        return f"its old text occurs {count} times in {bug.file}: update the list"
    file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    # Python recognises compiled files by size and a time in whole seconds: not reliable here.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    return ""


def _run_tests(bug: Bug, tree: Path) -> str:
    """Run the tests of a planted bug; return why it was not caught, or ""."""
    run = _run(tree, bug.caught_by, _TIMEOUT_S)
    if passed := [test for test in bug.caught_by if not run.reports("FAILED", test)]:
        return f"not failed: {', '.join(passed)}\n{run.tail}"
    return "" if run.code == 1 else f"pytest ended with {run.code}\n{run.tail}"


def _run(tree: Path, tests: Iterable[str], limit: float) -> _Run:
    # No random order and no cache, so that each run is the same.
    options = "--numprocesses 0 -p no:randomly -p no:cacheprovider -vv --tb=line -rfEsp --basetemp"
    scratch = tree.with_name("scratch")
    command = [sys.executable, "-m", "pytest", *options.split(), str(scratch), *tests]
    output_file = tree.with_name("output.txt")
    # A process group of its own and no pipe: its children are killed too, not waited for.
    with (
        output_file.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command, cwd=tree, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(limit)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return _Run(code, output_file.read_text(encoding="utf-8", errors="replace"))


def _copy_tree(tree: Path) -> Path:
    """Copy the needed files of this tree, without compiled ones."""
    tree.mkdir()
    for name in _NEEDED:
        if (_ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_ROOT / name, tree / name, ignore=ignore)
        else:
            shutil.copy2(_ROOT / name, tree)
    return tree


def _print(outcome: Outcome) -> None:
    bug, seconds = outcome.bug, f"{outcome.seconds:5.1f} s"
    if outcome.missed:
        print(f"✗ MISSED {seconds}  {bug.name}: {outcome.missed}", flush=True)
    else:
        by = ", ".join(test.removeprefix("tests/") for test in bug.caught_by)
        print(f"✓ caught {seconds}  {bug.name}: {by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
