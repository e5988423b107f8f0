"""Rules for the source itself: its language, its size, and who may use what."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.app import FEATURES
from tests.planted import Bug, load_bugs

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAX_LINES = 420

BOT = sorted((ROOT / "bot").rglob("*.py"))
SANDBOX = sorted((ROOT / "sandbox").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
HELPERS = [path for path in TESTS if not path.name.startswith("test_")]
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> Iterator[str]:
    """Yield the first part of each name that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


# Size


@pytest.mark.parametrize("path", [*BOT, *SANDBOX, *HELPERS, *BENCHMARKS], ids=name_of)
def test_a_module_is_short_enough_to_be_read_at_once(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


# Who may use what

SQLITE = {f"bot/store/{name}.py" for name in ("sqlite", "sqlite_file", "backup", "copying")}


@pytest.mark.parametrize("path", BOT, ids=name_of)
def test_only_the_sqlite_engine_and_copies_open_a_connection(path: Path) -> None:
    opened = re.findall(r"\bsqlite3\.connect\(", path.read_text(encoding="utf-8"))
    assert not opened or name_of(path) in SQLITE


@pytest.mark.parametrize("path", BOT, ids=name_of)
def test_the_bot_never_imports_the_sandbox_or_the_tests(path: Path) -> None:
    assert not {"sandbox", "tests", "benchmarks"} & set(imported(path))


# What a dependency is called in an import, where that differs from its name.
IMPORTED_AS = {
    "pyyaml": "yaml",
    "python-dotenv": "dotenv",
    "slack-bolt": "slack_bolt",
    "slack-sdk": "slack_sdk",
}
# deptry's list of those that are declared before they are used.
NOT_YET = PYPROJECT["tool"]["deptry"].get("per_rule_ignores", {}).get("DEP002", [])
DEPENDENCIES = [
    name
    for each in PYPROJECT["project"]["dependencies"]
    if (name := re.split(r"[<>=\[ ]", each)[0]) not in NOT_YET
]


@pytest.mark.parametrize("dependency", DEPENDENCIES)
def test_each_dependency_of_the_product_is_used_in_the_bot(dependency: str) -> None:
    name = IMPORTED_AS.get(dependency, dependency.replace("-", "_"))
    assert any(name in imported(path) for path in BOT)


# Kinds

KINDS = {feature.kind.name for feature in FEATURES}
# The modules of one kind: its feature, its parameters, and what its cards and forms say.
OF_ONE_KIND = re.compile(
    r"bot/(kinds/(video|replica|wire)"
    r"|slack/(create_video|create_form|train_replica|(video|replica)_\w+)"
    r"|store/replicas)\.py"
)


@pytest.mark.parametrize(
    "path", [path for path in BOT if not OF_ONE_KIND.fullmatch(name_of(path))], ids=name_of
)
def test_a_generic_module_names_no_kind(path: Path) -> None:
    constants = {
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not constants & KINDS


# Language

# Words of an older dialect of this project, each with the standard term in docs/architecture.md.
FORBIDDEN = re.compile(
    r"\b("
    r"whisper(s|ed)?|desk|fates?|deeds?|vouched|strays?|nudges?|patience|insistent"
    r"|repeatable(?! read)|garbled|parked|unheard|mortal|canary"
    r"|so (many|long|often) (times|of them|works|videos|jobs)|people first|in hand"
    r"|tells? of|told of|hears? of|let go"
    r")\b",
    re.IGNORECASE,
)
# These name the columns of older databases, or are this list.
WITH_OLD_NAMES = {
    "tests/test_source_rules.py",
    "tests/test_old_database.py",
    "tests/data/old_database.sql",
}
TEXTS = sorted(
    path
    for folder in ("bot", "sandbox", "tests", "benchmarks", "docs")
    for ending in ("*.py", "*.md", "*.toml", "*.js", "*.html", "*.css")
    for path in (ROOT / folder).rglob(ending)
    if "node_modules" not in path.parts
)


@pytest.mark.parametrize(
    "path",
    [path for path in (*TEXTS, ROOT / "README.md") if name_of(path) not in WITH_OLD_NAMES],
    ids=name_of,
)
def test_a_text_has_no_words_of_the_old_dialect(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [f"{at}: {line.strip()}" for at, line in enumerate(lines, 1) if FORBIDDEN.search(line)]
    assert not found


# Planted bugs


@pytest.mark.parametrize("bug", list(load_bugs()), ids=lambda bug: bug.name)
def test_a_planted_bug_can_be_planted_and_its_tests_are_there(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.old) == 1, "its old text has moved or changed: see tests/planted.toml"
    for test in bug.caught_by:
        file, _, name = test.partition("[")[0].partition("::")
        tests = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", tests, re.MULTILINE), test
