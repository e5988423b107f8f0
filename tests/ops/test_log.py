"""The log: one line for each event, and no secret in any of them."""

import gc
import html
import io
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from urllib.parse import quote, unquote

import pytest
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from bot import log
from bot.masking import MASKED, Mask

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


def test_bolt_logs_errors_only_because_its_warnings_quote_people(lines: Lines) -> None:
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


SECRET = "sk_live/Jx9+4=&q<7>"
MASK = Mask([SECRET, "xoxb-1111-2222-aaaaBBBBccccDDDD"])

_ESCAPES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, all": lambda text: "".join(f"%{ord(each):02x}" for each in text),
    "HTML": html.escape,
    "HTML, decimal": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "HTML, hex": lambda text: "".join(f"&#X{ord(each):X};" for each in text),
    "HTML, named": lambda text: text.replace("+", "&plus;").replace("/", "&sol;"),
    "JSON": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON, all": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "repr": lambda text: repr(text)[1:-1],
    "capitals": str.upper,
    "small letters": str.lower,
}


def _from_json(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


_DECODERS: tuple[Callable[[str], str], ...] = (unquote, html.unescape, _from_json)


def _shows(text: str, secret: str) -> bool:
    """Return whether a reader who decodes in any order gets the secret from a text."""
    views = {text}
    for _ in range(3):
        views |= {decode(view) for view, decode in product(views, _DECODERS)}
    return any(secret.casefold() in view.casefold() for view in views)


def test_a_text_with_a_secret_in_any_two_layers_of_escapes_is_withheld(
    subtests: pytest.Subtests,
) -> None:
    for outer, escape_again in _ESCAPES.items():
        for inner, escape in _ESCAPES.items():
            with subtests.test(outer=outer, inner=inner):
                written = escape_again(escape(SECRET))
                is_plain = written.casefold() == SECRET.casefold()
                expected = f"Invalid key “{MASKED}”. Try again." if is_plain else MASKED
                assert MASK(f"Invalid key “{written}”. Try again.") == expected


@given(
    secret=st.text(st.sampled_from("aZ09_-./+=~:@!$*(),?#[]'<>|^`{}&%"), min_size=8, max_size=40),
    layers=st.lists(st.sampled_from(sorted(_ESCAPES)), max_size=3),
    before=st.text(st.sampled_from("key: é&\\'\"<(=/x\n"), max_size=5),
    after=st.text(st.sampled_from(" .)'\"<é;/x\n"), max_size=5),
    escaped=st.integers(min_value=0),
)
@settings(max_examples=300, deadline=None)
def test_no_masked_text_gives_a_secret_back(
    secret: str, layers: list[str], before: str, after: str, escaped: int
) -> None:
    # With digits after it, such an end is an escape itself: which of them it swallows is open.
    assume(not before.endswith(("\\x", "&")))
    written = secret
    for number, layer in enumerate(layers):
        # Each layer escapes some of the text and leaves the rest.
        at = escaped % (len(written) + 1) if number == 0 else 0
        written = written[:at] + _ESCAPES[layer](written[at:])
    text = before + written + after
    masked = Mask([secret])(text)
    if _shows(text, secret):
        assert MASKED in masked
    assert not _shows(masked, secret)


def test_a_text_without_a_secret_stays_as_it_is(subtests: pytest.Subtests) -> None:
    for text in [
        "The video is ready",
        "https://storage.example.com/sea.mp4?X-Amz-Signature=7fe2%2Bb1&x=%252F",
        "50 % off & more \\ \\u00 &#43; &plus; &unknown; sk_live/ xoxb-1111",
        "İstanbul ﬀ Straße",
        "",
    ]:
        with subtests.test(text=text):
            assert MASK(text) is text


def test_a_text_that_may_hold_half_of_a_secret_is_withheld_whole(subtests: pytest.Subtests) -> None:
    for text in (
        f"The key is {SECRET[:14]}",
        f"The key {SECRET[:14]}... is wrong",
        f"{SECRET[:14]} is the beginning",
        f"The key is {quote(SECRET[:12], safe='')}%2",
        f"The key is {SECRET[:12]}&#4",
        f"The key is {SECRET[:6]}\u200b{SECRET[6:14]}.",
        f'"{SECRET[:-3].upper()}" is wrong',
        f"{SECRET[:-4]}****",
        f"No key {SECRET[3:]} here",
        f"No key x{SECRET[4:-4]}x here",
        f"{SECRET} and {SECRET[:-3]}",
    ):
        with subtests.test(text=text):
            assert MASK(text) == MASKED
    for text in ("Keys begin with sk_live/", f"Keys end with {SECRET[-8:]}, say"):
        with subtests.test(text=text):
            assert MASK(text) == text


def test_of_two_secrets_with_the_same_beginning_the_longer_one_is_masked_whole() -> None:
    mask = Mask(["made-up-token", "made-up-token-longer"])
    assert mask("made-up-token-longer, made-up-token") == "***, ***"


def test_a_value_that_is_too_short_for_a_secret_masks_nothing() -> None:
    assert Mask(["", "a", "key", "1234567"])("a key: 1234567") == "a key: 1234567"


def test_a_text_with_invisible_characters_or_spaces_in_a_secret_is_withheld(
    subtests: pytest.Subtests,
) -> None:
    for between in [
        "\u200b",
        "\u202a",
        "\xad",
        "\0",
        "\ufeff",
        "\ufffd",
        "\ufe0f",
        "\u034f",
        "\r\n  ",
        " ",
    ]:
        with subtests.test(between=between):
            broken = f"{SECRET[:9]}{between}{SECRET[9:]}"
            assert MASK(f"The key {broken} is wrong") == MASKED
            assert MASK(f"The key {between.join(SECRET)}.") == MASKED
            assert MASK(f"The key {between.join(quote(SECRET, safe=''))}.") == MASKED
            word = "nothing-to-escape"
            assert Mask([word])(f"The key {between.join(word)}.") == MASKED


def test_the_token_of_a_callback_address_is_masked_and_other_addresses_are_not() -> None:
    token = "aB3-" * 10 + "_x9"
    assert MASK(f"https://bot.example.com/callbacks/{token}?x=1") == (
        "https://bot.example.com/callbacks/***?x=1"
    )
    assert (
        MASK(f"u=https%3A%2F%2Fb%2Fcallbacks%2F{token}.") == "u=https%3A%2F%2Fb%2Fcallbacks%2F***."
    )
    for other in (f"/callbacks/{token}0", f"/videos/{token}", "/callbacks/sea.mp4"):
        assert MASK(f"https://cdn.example.com{other}") == f"https://cdn.example.com{other}"


# Secrets and parts of them, what escapes begin with and what they end with.
_PIECES = (
    *(SECRET, SECRET[:10], SECRET[4:], SECRET[-9:], quote(SECRET, safe=""), SECRET.upper()),
    *("callbacks/" + "aB3-" * 10 + "_x9", "callbacks%2F", "sk_live", "a script", "https://x/y?z=1"),
    *("%", "%2", "%25", "5", "41", "&", "&am", "p;", "&#4", "3;", "\\", "\\u00", "41", "\\x", "|"),
    *("\u200b", "\ufe0f", " ", "ß", "İ", '"', ""),
)
_TEXT = st.lists(st.sampled_from(_PIECES), max_size=6).map("".join)


@given(
    texts=st.lists(_TEXT, max_size=8),
    layers=st.lists(st.sampled_from(sorted(_ESCAPES)), max_size=8),
)
@settings(max_examples=1000, deadline=None)
def test_what_is_masked_in_an_answer_is_what_is_masked_in_each_of_its_texts(
    texts: list[str], layers: list[str]
) -> None:
    texts = [
        _ESCAPES[layer](text) for text, layer in zip(texts, [*layers, *["plain"] * 8], strict=False)
    ]
    answer = json.loads(json.dumps([texts, {"error": texts[:1]}, *({text: 1} for text in texts)]))
    each = [MASK(text) for text in texts]
    assert MASK.json(answer) == [each, {"error": each[:1]}, *({text: 1} for text in each)]


def test_what_one_text_ends_with_is_no_escape_of_what_the_next_begins_with() -> None:
    mask = Mask(["5b41f00dcafe0815"])
    for end in ("50 %", "\\x", "\\u00"):
        assert mask.json([end, "5b41f00%64"]) == [end, MASKED]


def _hostile(size: int) -> dict[str, object]:
    """Return what takes long to mask, of about ``size`` characters each."""
    texts = {
        "escapes": "%25",
        "escapes of escapes": "%2525252541",
        "escapes of JSON": "\\u0041",
        "invisible characters": "a\u200b",
        "spaces": "a ",
        "halves of a secret": SECRET[:10],
        "escaped halves": quote(SECRET[:10], safe=""),
        "secrets": SECRET,
    }
    hostile: dict[str, object] = {}
    for name, text in texts.items():
        hostile[name] = text * (size // len(text))
        hostile[f"many {name}"] = [text] * (size // len(text))
    return hostile


def _work(value: object) -> int:
    """Return how many functions are called to mask a value."""
    calls = Counter[str]()
    gc.disable()  # what it finalizes would be counted
    sys.setprofile(lambda _frame, event, _function: calls.update([event]))
    try:
        MASK.json(value)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls.total()


def test_the_work_for_an_answer_that_is_made_to_cost_much_grows_with_its_length_alone(
    subtests: pytest.Subtests,
) -> None:
    short, long = _hostile(8_000), _hostile(32_000)
    for name, value in short.items():
        with subtests.test(name):
            assert _work(long[name]) < 6 * _work(value) + 1000


def test_a_text_that_is_longer_than_any_that_is_of_use_is_cut_and_masked(
    subtests: pytest.Subtests,
) -> None:
    short, long = _hostile(32_768), _hostile(1_000_000)
    for name, text in long.items():
        if isinstance(text, str):
            with subtests.test(name):
                assert _work(text) < 1.1 * _work(short[name]) + 1000
                masked = MASK.json(text)
                assert len(masked) <= 32_768
                assert SECRET[:10] not in masked
    assert MASK.json("why & " * 80_000).startswith("why & why")
