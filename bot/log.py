"""Structured logs: one line of ``key=value`` for each event, with secrets masked.

time=2026-03-02T09:00:00.000Z level=info logger=bot.worker event="job ended" job=17
"""

import json
import logging
import re
import secrets as randomness
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TextIO
from urllib.parse import quote

_MASK: Final = "***"
# Secret by where they stand: callback tokens, and what pydantic quotes of an input it turns down.
_BY_PLACE: Final = (
    r"""(?<=/callbacks/)[^\s/?#"']+""",
    r"(?<=input_value=).*?(?=, input_type=)",
)
_PLAIN: Final = re.compile(r"[\w.:/@+*-]+", re.ASCII)
# What logging itself puts into a record; the rest came with ``extra``. (taskName: Python 3.12.)
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
# They log each request, or with it what people wrote: Bolt does so in its warnings too.
_QUIETED: Final = {
    **dict.fromkeys(("aiohttp.access", "asyncio", "httpx", "slack_sdk"), "WARNING"),
    "slack_bolt": "ERROR",
}


def configure(stream: TextIO, level: int | str, *, secrets: Iterable[str] = ()) -> None:
    """Log everything from ``level`` up to ``stream``, and nothing anywhere else.

    ``secrets`` are masked wherever they occur, in exceptions and tracebacks too. Libraries that
    would log each request are heard from WARNING up, or from ERROR. An event is a short, constant
    sentence, and what varies goes into ``extra``: ids and numbers, never a script or a payload.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Line(secrets))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.getLogger("aiohttp.server").addFilter(_is_ours)
    for name, quieted in _QUIETED.items():
        logging.getLogger(name).setLevel(quieted)


def reference() -> str:
    """Return 8 random hex digits, to tell a person and to log, so that the two can be matched."""
    return randomness.token_hex(4)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for what strangers cause: what is not HTTP, or breaks off."""
    kind = record.exc_info[0] if record.exc_info else None
    if kind is None:
        return True
    theirs = kind.__module__.startswith(("aiohttp.http", "aiohttp.web_protocol"))
    return not theirs and not issubclass(kind, ConnectionError)


class _Line(logging.Formatter):
    """Writes a record as one line. Everything passes here, so the masking is done here."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        # As they are, as repr() and as a link would show them; the longest first, so that no
        # secret that begins like another leaves its end behind.
        forms = {
            form
            for secret in secrets
            if secret
            for form in (secret, repr(secret)[1:-1], quote(secret, safe=""))
        }
        longest_first = sorted(forms, key=len, reverse=True)
        self._secret = re.compile("|".join([*map(re.escape, longest_first), *_BY_PLACE]), re.DOTALL)

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return " ".join(f"{key}={self._value(value)}" for key, value in fields.items())

    def _value(self, value: object) -> str:
        text = self._secret.sub(_MASK, str(value))
        # JSON's quotes keep the line one line, and what a stranger sent from looking like fields.
        return text if _PLAIN.fullmatch(text) else json.dumps(text)
