"""How a video service quotes the key that it was called with, as some do in errors and links."""

import html
import json
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from aiohttp import web

from sandbox.block_kit import Json

# Members that get a link with the key; the others get a sentence.
_LINKS: Final = ("download_url", "stream_url", "hosted_url", "thumbnail_video_url")
_SENTENCES: Final = ("status_details", "error_message", "error", "message", "replica_name")


class KeyQuote(StrEnum):
    """How the key is written."""

    PLAIN = "plain"
    PERCENT = "percent-encoded"
    TWICE = "percent-encoded twice"
    HTML = "escaped as in HTML"
    JSON = "escaped as in JSON"
    CAPITALS = "in capitals"
    CUT = "without its end"
    ENDING = "without its beginning"
    BROKEN = "with an invisible character in it"


HIDDEN: Final = frozenset(KeyQuote) - {KeyQuote.PLAIN, KeyQuote.JSON, KeyQuote.CAPITALS}
"""Those that show a part of the key, or hide it: the bot withholds such a sentence or link as a
whole."""


def quoting(response: web.Response, key: str, how: KeyQuote) -> web.Response:
    """Return a JSON response with the key in each of its sentences and links."""
    body: Json = json.loads(response.text or "{}")
    written = _written(key, how)
    for name in _SENTENCES:
        if name in body:
            body[name] = f"{body[name] or 'No error'}, says the key {written}"
    for name in _LINKS:
        if isinstance(body.get(name), str):
            body[name] += f"?key={written}"
    text = json.dumps(body)
    if how is KeyQuote.JSON:
        # More than JSON asks for, as some libraries do with "/", "+" and "<".
        escaped = "".join(each if each.isalnum() else f"\\u{ord(each):04x}" for each in key)
        text = text.replace(json.dumps(key)[1:-1], escaped)
    return web.json_response(text=text, status=response.status)


def _written(key: str, how: KeyQuote) -> str:
    match how:
        case KeyQuote.PERCENT:
            return quote(key, safe="")
        case KeyQuote.TWICE:
            return quote(quote(key, safe=""), safe="")
        case KeyQuote.HTML:
            return html.escape(key).replace("/", "&#x2F;").replace("+", "&#43;")
        case KeyQuote.CAPITALS:
            return key.upper()
        case KeyQuote.CUT:
            return key[:-3]
        case KeyQuote.ENDING:
            return key[3:]
        case KeyQuote.BROKEN:
            return f"{key[:9]}\u200b{key[9:]}"
    return key
