"""Structured logs: one line of ``key=value`` pairs for each event, with secrets masked.

time=2026-03-02T09:00:00.000Z level=info logger=bot.engine.loop event="job ended" job=17
"""

import json
import logging
import re
import secrets as randomness
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TextIO

from bot.masking import MASKED, Mask

# Callback tokens, and the input that pydantic quotes when it rejects it.
_SECRET_BY_POSITION: Final = re.compile(
    r"""(?<=/callbacks/)[^\s/?#"']+|(?<=input_value=).*?(?=, input_type=)""", re.DOTALL
)
_UNQUOTED: Final = re.compile(r"[\w.:/@+*-]+", re.ASCII)
_WORD: Final = re.compile("[a-z_-]{1,30}")
# The attributes that logging itself sets; all others came with ``extra``. (taskName: Python 3.12.)
_STANDARD_ATTRIBUTES: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
)
# These libraries log each request, and some the text that people wrote: Bolt even in warnings.
_LIBRARY_LEVELS: Final = {
    **dict.fromkeys(("aiohttp.access", "asyncio", "httpx", "slack_sdk"), "WARNING"),
    "slack_bolt": "ERROR",
}


def configure(stream: TextIO, level: int | str, *, secrets: Iterable[str] = ()) -> None:
    """Log everything from ``level`` up to ``stream``, and nothing anywhere else.

    ``secrets`` are masked wherever they occur, in exceptions and tracebacks too. Libraries that
    would log each request log from WARNING up, or from ERROR. An event is a short, constant
    sentence. What varies goes into ``extra``: ids and numbers, never a script or a payload.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LineFormatter(secrets))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.getLogger("aiohttp.server").addFilter(_is_our_error)
    for name, library_level in _LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(library_level)


def word(text: str) -> str:
    """Return a word that another program chose, such as a status; "other" for anything but a word.

    Links and scripts have been seen in the place of one.
    """
    folded = text.casefold()
    return folded if _WORD.fullmatch(folded) else "other"


def reference() -> str:
    """Return 8 random hex digits, which connect a message to a person with a line of the log."""
    return randomness.token_hex(4)


def _is_our_error(record: logging.LogRecord) -> bool:
    """Return False for errors that clients cause: invalid HTTP and broken connections."""
    error_type = record.exc_info[0] if record.exc_info else None
    if error_type is None:
        return True
    is_invalid_http = error_type.__module__.startswith(("aiohttp.http", "aiohttp.web_protocol"))
    return not is_invalid_http and not issubclass(error_type, ConnectionError)


class _LineFormatter(logging.Formatter):
    """Formats a record as one line, and masks secrets in all of it."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._mask = Mask(secrets)

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= {
            key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        texts = [str(value) for value in fields.values()]
        # All at once, as masking each takes much longer. That finds callback addresses, too.
        if self._mask.may_change(texts) or any("input_value=" in text for text in texts):
            texts = [self._mask(_SECRET_BY_POSITION.sub(MASKED, text)) for text in texts]
        # Quoted as JSON, a value stays on the line and cannot look like further fields.
        return " ".join(
            f"{key}={text if _UNQUOTED.fullmatch(text) else json.dumps(text)}"
            for key, text in zip(fields, texts, strict=True)
        )
