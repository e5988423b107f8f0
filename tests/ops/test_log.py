"""The log: one line for each event, and no secret in any of them."""

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from pydantic import BaseModel, ValidationError

from bot import log

_TOKEN = "xoxb-made-up"
_KEY = 'k"ey\\with+odd/ends'
_LIBRARIES = ["aiohttp.access", "asyncio", "httpx", "slack_sdk"]

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """Log to memory, and return a function that returns the lines so far."""
    monkeypatch.setattr(logging.root, "handlers", [])
    loggers = [logging.root, *map(logging.getLogger, _LIBRARIES)]
    levels = [logger.level for logger in loggers]
    stream = io.StringIO()
    log.configure(stream, "INFO", secrets=[_TOKEN, _TOKEN + "-longer", _KEY, ""])
    yield lambda: stream.getvalue().splitlines()
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_an_event_is_one_line_with_its_fields(lines: Lines) -> None:
    logging.getLogger("bot.engine.loop").info("job ended", extra={"job": 17, "state": "succeeded"})
    (line,) = lines()
    assert re.fullmatch(
        r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info logger=bot\.engine\.loop "
        r'event="job ended" job=17 state=succeeded',
        line,
    )


def test_text_from_outside_cannot_forge_fields_or_lines(lines: Lines) -> None:
    forged = 'a\nlevel=error event="forged"\u2028\x1b[31m'
    logging.getLogger("bot").info("odd", extra={"answer": forged, "nothing": ""})
    (line,) = lines()
    head, _, rest = line.partition(" answer=")
    value, _, nothing = rest.rpartition(" nothing=")
    assert head.endswith("event=odd")
    assert json.loads(value) == forged
    assert nothing == '""'


@pytest.mark.parametrize("secret", [_TOKEN, _TOKEN + "-longer", _KEY])
def test_a_secret_is_masked_everywhere(lines: Lines, secret: str) -> None:
    logger = logging.getLogger("bot")
    logger.info("token is %s", secret)
    logger.info("fields", extra={"text": f"<{secret}>", "nested": {"headers": [secret]}})
    logger.info("bytes", extra={"header": secret.encode()})
    logger.info("link", extra={"url": "https://example.com/?k=k%22ey%5Cwith%2Bodd%2Fends"})
    for line in lines():
        assert "made-up" not in line
        assert "ends" not in line
        assert "longer" not in line
    assert lines()[0].endswith('event="token is ***"')


def test_a_traceback_is_logged_in_one_line_without_its_secrets(lines: Lines) -> None:
    def fail() -> None:
        raise RuntimeError(f"no answer with {_TOKEN}") from KeyError(_TOKEN)

    try:
        fail()
    except RuntimeError:
        logging.getLogger("bot").exception("unforeseen", extra={"reference": "0a1b2c3d"})
    (line,) = lines()
    assert " reference=0a1b2c3d error=" in line
    assert "RuntimeError: no answer with ***" in line
    assert "KeyError: '***'" in line
    assert "test_log.py" in line
    assert "made-up" not in line
    logging.getLogger("bot").error("odd", exc_info=KeyError(_KEY))  # repr() escapes it
    assert "with+odd" not in "".join(lines())


def test_a_callback_token_is_masked_in_paths(lines: Lines) -> None:
    logger = logging.getLogger("bot.web.server")
    logger.info("POST /callbacks/t0k3n?x=1 HTTP/1.1")
    logger.info(
        "odd", extra={"path": "/callbacks/t0k3n/more", "url": "'https://b/callbacks/t0k3n'"}
    )
    first, second = lines()
    assert 'event="POST /callbacks/***?x=1 HTTP/1.1"' in first
    assert "path=/callbacks/***/more url=\"'https://b/callbacks/***'\"" in second


def test_an_input_that_pydantic_rejects_is_masked(lines: Lines) -> None:
    class Form(BaseModel):
        script: int

    typed = {"script": "Dear colleagues, ..."}
    try:
        Form.model_validate(typed)
    except ValidationError:
        logging.getLogger("bot").exception("unforeseen")
    (line,) = lines()
    assert "input_value=***, input_type=str" in line
    assert "colleagues" not in line


@pytest.mark.parametrize("name", _LIBRARIES)
def test_libraries_that_log_requests_log_from_warnings_up(lines: Lines, name: str) -> None:
    logging.getLogger(name).info("request with everything in it")
    logging.getLogger(name).warning("low on memory")
    (line,) = lines()
    assert line.endswith(f'level=warning logger={name} event="low on memory"')


def test_bolt_logs_errors_only_because_its_warnings_quote_people(
    lines: Lines,
) -> None:
    logging.getLogger("slack_bolt").warning("unhandled request with everything in it")
    assert lines() == []


@pytest.mark.parametrize(
    "client_error",
    [
        BadHttpMessage("Content-Length: zz"),
        web.RequestPayloadError("truncated"),
        ConnectionResetError("closed"),
    ],
)
def test_invalid_http_and_broken_connections_leave_no_traceback(
    lines: Lines, client_error: Exception
) -> None:
    server = logging.getLogger("aiohttp.server")
    for error in (client_error, RuntimeError("our own")):
        server.error("Error handling request", exc_info=error)
    (line,) = lines()
    assert "our own" in line
