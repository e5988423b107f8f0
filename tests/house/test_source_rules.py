"""Rules for the source itself: who may use what."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bot.app import FEATURES
from tests.planted import load_bugs

ROOT = Path(__file__).parent.parent.parent
BOT = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "bot").rglob("*.py"))
}
TREES = {name: ast.parse(text) for name, text in BOT.items()}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the first part of each name that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


SQLITE = {f"bot/store/{name}.py" for name in ("sqlite", "backup", "move")}


def test_only_the_sqlite_engine_and_copies_open_a_connection() -> None:
    opening = {name for name, text in BOT.items() if re.search(r"\bsqlite3\.connect\(", text)}
    assert opening - SQLITE == set()


def test_the_bot_never_imports_the_sandbox_or_the_tests() -> None:
    not_the_bots = {"sandbox", "tests", "benchmarks"}
    assert [name for name, tree in TREES.items() if not_the_bots & set(imported(tree))] == []


KINDS = {feature.kind.name for feature in FEATURES}
# The modules of one kind: its feature, its parameters, and what its cards and forms say.
OF_ONE_KIND = re.compile(
    r"bot/(kinds/(video|replica|answers)"
    r"|slack/(features/(video|replica)|views/kinds)"
    r"|store/replicas)\.py"
)


def test_a_generic_module_names_no_kind() -> None:
    naming = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        if not OF_ONE_KIND.fullmatch(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in KINDS
    ]
    assert naming == []


def test_each_planted_bug_can_be_planted_and_its_tests_are_there() -> None:
    mistakes = []
    for bug in load_bugs():
        if (ROOT / bug.file).read_text(encoding="utf-8").count(bug.old) != 1:
            mistakes.append(f"{bug.name}: its old text has moved or changed")
        for test in bug.caught_by:
            file, _, name = test.partition("[")[0].partition("::")
            tests = (ROOT / file).read_text(encoding="utf-8")
            if not re.search(rf"^(async )?def {name}\(", tests, re.MULTILINE):
                mistakes.append(f"{bug.name}: there is no {test}")
    assert mistakes == [], "see tests/planted.toml"
