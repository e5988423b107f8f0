"""Plants known bugs in copies of the tree, one in each, and requires that the named tests fail."""

import argparse
import compileall
import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parent.parent
_LIST: Final = Path(__file__).with_suffix(".toml")
# What the tests need of the tree.
_NEEDED: Final = (
    "bot",
    "docs",
    "sandbox",
    "tests",
    "pyproject.toml",
    "manifest.yml",
    "README.md",
    ".env.example",
)
# Three for each core, as tests wait in real time for what a bug prevents: a run takes 0.5 s of a
# processor on average, and more than three seconds.
_PARALLEL: Final = 6
# Each run of pytest is a fork of a process that has imported these, which takes longer than most
# tests. The tree is imported after the fork.
_LIBRARIES: Final = (
    "_hypothesis_pytestplugin",
    "aiosqlite",
    "anyio.pytest_plugin",
    "blockkit",
    "dotenv",
    "httpx_aiohttp",
    "hypothesis.stateful",
    "jsonschema",
    "pdb",
    "pexpect",
    "platformdirs.pytest_plugin",
    "playwright.async_api",
    "prometheus_client.parser",
    "psycopg",
    "pydantic.json_schema",
    "pydantic.main",
    "pydantic.types",
    "pytest_asyncio.plugin",
    "slack_bolt.adapter.socket_mode.aiohttp",
    "slack_bolt.async_app",
    "xdist.looponfail",
    "xdist.plugin",
    "yaml",
)
_FORKS: Final = multiprocessing.get_context("forkserver")
# For the tests of one bug, and for all tests without a bug.
_TIMEOUT_S: Final = 120.0
_TIMEOUT_ALL_S: Final = 300.0
_MAX_OUTPUT: Final = 2000  # characters
_MAX_TRACEBACKS: Final = 20_000  # characters
_TRACEBACKS: Final = re.compile(
    r"^=+ (?:ERRORS|FAILURES) =+$.*?(?=^=+ short test summary info)", re.DOTALL | re.MULTILINE
)
# Of more tests that fail without a bug, none is run a second time.
_MAX_UNSTEADY: Final = 5


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
    """The result of a pytest run; ``code`` is None if it timed out or died."""

    code: int | None
    output: str

    @property
    def tail(self) -> str:
        """The end of its output."""
        late = "\nTimed out, or died." if self.code is None else ""
        return self.output[-_MAX_OUTPUT:] + late

    @property
    def tracebacks(self) -> str:
        """How its tests failed."""
        found = _TRACEBACKS.search(self.output)
        return found.group()[:_MAX_TRACEBACKS] if found and self.code is not None else self.tail

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
    parser.add_argument(
        "--bugs-only",
        action="store_true",
        help="do not run the tests without a bug first, where the whole suite runs too",
    )
    options = parser.parse_args()
    chosen = options.names or list(bugs)
    if unknown := [name for name in chosen if name not in bugs]:
        parser.error(f"no such bug: {', '.join(unknown)}")
    began = time.monotonic()
    _FORKS.set_forkserver_preload(list(_LIBRARIES))
    with tempfile.TemporaryDirectory(prefix="planted-", ignore_cleanup_errors=True) as folder:
        planted = [bugs[name] for name in chosen]
        caught = _all_caught(planted, Path(folder), bugs_only=options.bugs_only)
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


def _all_caught(bugs: Sequence[Bug], folder: Path, *, bugs_only: bool) -> bool:
    original = _copy_tree(folder / "original")
    with ThreadPoolExecutor(_PARALLEL) as pool:
        tests = list(dict.fromkeys(test for bug in bugs for test in bug.caught_by))
        if bugs_only:
            compileall.compile_dir(original, quiet=1)
        elif failing := _failing_without_bug(pool, tests, original, folder):
            print("These tests fail without a bug:", *failing, sep="\n  ")
            return False
        outcomes = []
        for outcome in pool.map(lambda bug: _try(bug, original, folder), bugs):
            outcomes.append(outcome)
            _print(outcome)
    missed = [outcome for outcome in outcomes if outcome.missed]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} planted bugs were caught.")
    return not missed


def _failing_without_bug(
    pool: ThreadPoolExecutor, tests: Sequence[str], original: Path, folder: Path
) -> Sequence[str]:
    """Return the tests that fail without a bug, twice: the second time alone."""
    parts = [tests[start::_PARALLEL] for start in range(min(_PARALLEL, len(tests)))]
    folders = [folder / f"without bugs {number}" for number in range(len(parts))]
    runs = pool.map(lambda *each: _run(original, *each, limit=_TIMEOUT_ALL_S), folders, parts)
    failing = []
    for run, part in zip(runs, parts, strict=True):
        if failed := [test for test in part if not run.reports("PASSED", test)]:
            print(run.tracebacks)
            failing += failed
    if len(failing) > _MAX_UNSTEADY:
        return failing
    failing_alone = []
    for number, test in enumerate(failing):
        run = _run(original, folder / f"alone {number}", [test], limit=_TIMEOUT_S)
        if run.reports("PASSED", test):
            print(f"! UNSTEADY         {test}: failed once without a bug, then passed alone")
        else:
            print(run.tracebacks)
            failing_alone.append(test)
    return failing_alone


def _try(bug: Bug, original: Path, folder: Path) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        # The same files, the compiled ones too, for speed.
        tree = shutil.copytree(original, Path(name) / "tree", copy_function=os.link)
        missed = _plant(bug, tree) or _run_tests(bug, tree, Path(name) / "run")
    return Outcome(bug, missed, time.monotonic() - began)


def _plant(bug: Bug, tree: Path) -> str:
    """Plant a bug in a tree; return why that failed, or ""."""
    file = tree / bug.file
    text = file.read_text(encoding="utf-8")
    if (count := text.count(bug.old)) != 1:
        return f"its old text occurs {count} times in {bug.file}: update the list"
    file.unlink()  # the file itself is the original's too
    file.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    # Python recognises compiled files by size and a time in whole seconds: not reliable here.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    return ""


def _run_tests(bug: Bug, tree: Path, folder: Path) -> str:
    """Run the tests of a planted bug; return why it was not caught, or ""."""
    run = _run(tree, folder, bug.caught_by, limit=_TIMEOUT_S)
    if passed := [test for test in bug.caught_by if not run.reports("FAILED", test)]:
        return f"not failed: {', '.join(passed)}\n{run.tail}"
    return "" if run.code == 1 else f"pytest ended with {run.code}\n{run.tail}"


def _run(tree: Path, folder: Path, tests: Sequence[str], *, limit: float) -> _Run:
    """Run tests of a tree, with a new folder for what they write, for at most ``limit`` seconds."""
    folder.mkdir()
    output, code = folder / "output.txt", folder / "code.txt"
    output.touch()
    process = _FORKS.Process(target=_run_pytest, args=(tree, folder, tests, output, code))
    process.start()
    process.join(limit)
    group = process.pid
    assert group
    # Its children are killed too, not waited for.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    # Not the exit code of ``process``: when another thread starts one, multiprocessing looks which
    # have ended, and of two threads that ask at once one is told 255.
    ended = int(code.read_text(encoding="ascii")) if code.exists() else None
    return _Run(ended, output.read_text(encoding="utf-8", errors="replace"))


def _run_pytest(tree: Path, folder: Path, tests: Sequence[str], output: Path, code: Path) -> None:
    """Run tests in this process, which has imported nothing of the tree yet; note the exit code."""
    os.setsid()
    with output.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.chdir(tree)
    # Nothing may come from this module's own tree.
    sys.path[:] = [str(tree), *(path for path in sys.path if Path(path).resolve() != _ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in _NEEDED]:
        del sys.modules[name]
    # The collector need not look at the libraries again and again.
    gc.freeze()
    # No random order and no cache, so that each run is the same. Plain assertions, as pytest could
    # not rewrite those of its plugins, which are imported already.
    options = (
        "--numprocesses 0 -p no:randomly -p no:cacheprovider --assert=plain -vv --tb=short -rfEsp"
    )
    ended = pytest.main([*options.split(), "--basetemp", str(folder / "tmp"), *tests])
    # At once and whole, as it may be killed meanwhile.
    part = code.with_suffix(".part")
    part.write_text(str(int(ended)), encoding="ascii")
    part.replace(code)


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
