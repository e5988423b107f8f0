"""The forms in which services send callbacks: no format is documented."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

_Headers = Mapping[str, str]
_JSON: Final[_Headers] = {"Content-Type": "application/json"}
_FORM: Final[_Headers] = {"Content-Type": "application/x-www-form-urlencoded"}
_FILLING: Final = "x" * 300_000


def encoded(body: object, shape: str) -> tuple[bytes, _Headers]:
    """Return the content and the headers of a callback; ``shape`` is one of ``SHAPES``."""
    return SHAPES[shape](body)


def _json(body: object) -> tuple[bytes, _Headers]:
    return json.dumps(body).encode(), _JSON


def _form(body: object) -> tuple[bytes, _Headers]:
    fields = body if isinstance(body, dict) else {"payload": json.dumps(body)}
    return urlencode({name: _flat(value) for name, value in fields.items()}).encode(), _FORM


def _flat(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _trailing_comma(body: object) -> tuple[bytes, _Headers]:
    text = json.dumps(body, indent=2)
    return f"{text[:-2]},\n{text[-1]}".encode(), _JSON


def _huge(body: object) -> tuple[bytes, _Headers]:
    return json.dumps({"event": body, "transcript": _FILLING}).encode(), _JSON


def _compressed(
    coding: str, compress: Callable[[bytes], bytes]
) -> Callable[[object], tuple[bytes, _Headers]]:
    headers = {**_JSON, "Content-Encoding": coding}
    return lambda body: (compress(json.dumps(body).encode()), headers)


SHAPES: Final[Mapping[str, Callable[[Any], tuple[bytes, _Headers]]]] = {
    "json": _json,
    "form": _form,
    "list": lambda body: _json([body]),
    "nested": lambda body: _json({"event": {"type": "done", "object": body}}),
    "text in JSON": lambda body: _json({"payload": json.dumps(body)}),
    "trailing comma": _trailing_comma,
    "gzip": _compressed("gzip", gzip.compress),
    "deflate": _compressed("deflate", zlib.compress),
    "unannounced gzip": lambda body: (gzip.compress(json.dumps(body).encode()), _JSON),
    "huge": _huge,
    "byte order mark": lambda body: (b"\xef\xbb\xbf" + json.dumps(body).encode(), _JSON),
    "UTF-16": lambda body: (json.dumps(body).encode("utf-16"), _JSON),
    "text around": lambda body: (f"event: {json.dumps(body)}\n-- end".encode(), _JSON),
}
"""Each form, and what makes a body of it."""
