"""The sentences in the source of the bot that people may see in Slack."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bot.store import LIMITS

BOT: Final = Path(__file__).parent.parent / "bot"

_MISTAKES: Final = "Mistakes in forms"
_PRIVATE: Final = "Private answers"
_SERVICE: Final = "Reasons, where the video service gave none"
#: Modules outside ``bot/slack`` whose sentences people see, and under which heading.
_ELSEWHERE: Final = {
    "kinds/video.py": _MISTAKES,
    "kinds/replica.py": _MISTAKES,
    "links.py": _MISTAKES,
    "service/client.py": _SERVICE,
    "service/errors.py": _SERVICE,
    "service/gate.py": _SERVICE,
}
_HEADINGS: Final = {
    "features/video.py": _MISTAKES,
    "features/replica.py": _MISTAKES,
    "features/forms.py": _MISTAKES,
    "access.py": "Who may ask, and where I post",
    "views/kinds.py": "States, and what a failed training usually means",
    "views/card.py": "Further parts of messages",
}
#: In ``bot/slack``: they are about Slack's API, and their words are for the log or a terminal.
_FOR_THE_LOG: Final = {
    "client.py",
    "errors.py",
    "installation.py",
    "outbox/__init__.py",
    "outbox/files.py",
    "outbox/messenger.py",
    "socket_mode.py",
    "views/blocks.py",
}
_NOT_SHOWN: Final = {"compile", "Unreadable", "debug", "info", "warning", "error", "exception"}
_NO_WORDS: Final = {
    *("Bearer {}", "a row cannot be read", "not stored for certain", "not stored", "at 0"),
    # For the log.
    *("is VIDEO_API_URL right, and reachable from here?", "is VIDEO_API_KEY right?"),
    "top up its account",
    *("it answered {}", "the connection was refused", "its name cannot be resolved (DNS)"),
    "its TLS certificate is not accepted, or it does not speak TLS",
    "the connection broke, or the answer could not be read",
}
_WORDS: Final = re.compile(r"[A-Za-z']{2,}[,:;]? [\w“(`*{]|\A[A-Z].*[.?…]\Z", re.DOTALL)
_CODE: Final = re.compile(r"\\|\(\?|[a-z]_[a-z]|\.\*|\|[a-z(]")


def literals(source: str) -> list[str]:
    """Return the texts of a module that people may see; ``{}`` stands for what is filled in."""
    tree = ast.parse(source)
    hidden: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            hidden.update(node.values)
        elif isinstance(node, ast.Call) and _called(node) in _NOT_SHOWN:
            hidden.update(ast.walk(node))
    constants = {
        node.target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    found = [
        (node.lineno, node.col_offset, _text(node, constants))
        for node in ast.walk(tree)
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in hidden
    ]
    texts = (text for *_, text in sorted(found))
    shown = (text for text in texts if _WORDS.search(text) and not _CODE.search(text))
    return [text for text in shown if text not in _NO_WORDS]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _text(node: ast.Constant | ast.JoinedStr, constants: Mapping[str, object]) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_part(each, constants) for each in node.values)


def _part(part: ast.expr, constants: Mapping[str, object]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    code = ast.unparse(part.value)
    if isinstance(known := constants.get(code), str):
        return known
    return next(
        (f"{{{name}}}" for name in ("noun", "command") if re.search(rf"\b{name}\b", code)), "{}"
    )


def sources() -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of each module whose words people see."""
    for path in sorted((BOT / "slack").rglob("*.py")):
        name = str(path.relative_to(BOT / "slack"))
        if name not in _FOR_THE_LOG:
            yield _HEADINGS.get(name, _PRIVATE), path.read_text(encoding="utf-8")
    yield _PRIVATE, str([limit.words for limit in LIMITS.values()])
    for name, heading in _ELSEWHERE.items():
        yield heading, (BOT / name).read_text(encoding="utf-8")
