"""The meaning of each way in which a call to the video service can fail.

A create call without a usable answer is ``Uncertain``, unless it is known that nothing was done.
Why a call to the outside failed, as a word for the log and a clause for a person, is here too.
"""

import json
import ssl
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from typing import Any, Final

import aiohttp
import httpx

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.links import without_keys
from bot.masking import MASKED, Mask
from bot.model import Failure

HTTP: Final = "http "
"""The cause of an answer with an error status begins with this; its status follows."""

# The first that fits decides: a certificate that is not accepted is also an error of the system.
_CAUSES: Final[Mapping[type[BaseException], str]] = {
    aiohttp.ClientProxyConnectionError: "proxy",
    aiohttp.ClientHttpProxyError: "proxy",
    aiohttp.ClientConnectorDNSError: "dns",
    aiohttp.ClientSSLError: "tls",
    ssl.SSLError: "tls",
    ConnectionRefusedError: "refused",
    TimeoutError: "timeout",
    httpx.PoolTimeout: "timeout",
}
_CLAUSES: Final = {
    "proxy": "the proxy does not answer, or opens no connection to it",
    "dns": "its name cannot be resolved (DNS)",
    "tls": "its TLS certificate is not accepted, or it does not speak TLS",
    "refused": "the connection was refused",
    "broken": "the connection broke, or the answer could not be read",
}


def http_cause(status: int) -> str:
    """Return the cause of a call that was answered with an error status."""
    return f"{HTTP}{status}"


def cause_of(error: BaseException) -> str:
    """Return ``proxy``, ``dns``, ``refused``, ``tls`` or ``timeout``, and else ``broken``."""
    for each in chain(error):
        for listed, cause in _CAUSES.items():
            if isinstance(each, listed):
                return cause
    return "broken"


def clause_of(cause: str, timeout: timedelta) -> str:
    """Return a cause as a clause, for calls that are limited to ``timeout``; "" if it is empty."""
    if cause.startswith(HTTP):
        return f"it answered {cause.removeprefix(HTTP)}"
    if cause == "timeout":
        return f"no answer within {timeout.total_seconds():g} s"
    return _CLAUSES.get(cause, "")


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it comes from: aiohttp's come from those of the system."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


# ── What an answer says went wrong ────────────────────────────────────────────────────────────────

# The best first: what is in a list is more exact than the sentence beside it, and the title of a
# problem (RFC 9457) is the same for all of its type.
_NAMES: Final = (
    *("errors", "error", "error_message", "error_details", "error_description"),
    *("message", "detail", "details", "msg", "reason", "description", "title"),
)
_MAX_DEPTH: Final = 6
WITHHELD: Final = "The video service gave a reason that can't be shown."
"""What people read in place of a reason that may hold part of a secret."""
_MAX_PARTS: Final = 5
_PHRASES: Final = frozenset(status.phrase.casefold() for status in HTTPStatus)


def reason_in(answer: Any, depth: int = 0) -> str:  # noqa: ANN401 - any JSON
    """Return what a JSON value says went wrong; "" if it says nothing.

    Of several members the first with a sentence counts, before codes such as "invalid_request" and
    words that only repeat the status. The texts of a list are joined, those of an object of lists
    with the names of their fields. Texts are not cut.
    """
    if isinstance(answer, str):
        return answer.strip()
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(answer, list):
        parts = (reason_in(each, depth + 1) for each in answer[:_MAX_PARTS])
        return "; ".join(dict.fromkeys(filter(None, parts)))
    if not isinstance(answer, dict):
        return ""
    found = [said for name in _NAMES if (said := reason_in(answer.get(name), depth + 1))]
    if found:
        best = next(filter(_is_sentence, found), found[0])
        # FastAPI names the field: "loc" is ["body", "script"].
        place = answer.get("loc")
        field = place[-1] if isinstance(place, list) and place else None
        return f"{field}: {best}" if isinstance(field, str) else best
    fields = (
        (name, reason_in(texts, depth + 1))
        for name, texts in islice(answer.items(), _MAX_PARTS)
        if isinstance(texts, list)
    )
    return "; ".join(f"{name}: {said}" for name, said in fields if said)


def shown(reason: str) -> str:
    """Return a reason for people: a sentence in place of one that was masked as a whole."""
    return WITHHELD if reason == MASKED else reason


def _is_sentence(text: str) -> bool:
    return " " in text and text.casefold().rstrip(".") not in _PHRASES


# ── What a failed call means ──────────────────────────────────────────────────────────────────────

FAILURES: Final = {"401": Failure.KEY_REJECTED, "402": Failure.OUT_OF_CREDIT}
"""The HTTP statuses that may be about our key or our account, and not about one request."""
TOO_MANY_CALLS: Final = http_cause(HTTPStatus.TOO_MANY_REQUESTS)
"""The cause of a call that the service asks to send later."""
KEY_NOT_ACCEPTED: Final = frozenset({"401", "403"})
"""The HTTP statuses of a read that do not show that our key is accepted. A 403 may be about the key
or about what is read: it does not stop create calls either."""
UNKNOWN_ID: Final = frozenset({"400", "404", "410"})
"""The HTTP statuses of a read that say that nothing has its id. Some services answer 400."""
NOTHING_DONE: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""The HTTP statuses that say that the same request may be sent again later."""
_MAX_REASON: Final = 500  # characters
_MAX_RETRY_AFTER_S: Final = 24 * 60 * 60

_NOT_SENT: Final = (Unavailable, "The video service can't be reached.")
_NO_ANSWER: Final = (Uncertain, "The video service didn't answer in time.")
_BROKEN: Final = (Uncertain, "The connection to the video service broke.")
_UNREADABLE: Final = (Uncertain, "The video service's answer couldn't be read.")

OUTCOMES: Final[Mapping[type[Exception], tuple[type[Unavailable | Uncertain], str]]] = {
    # HTTPError
    # ├── RequestError
    # │   ├── TransportError
    # │   │   ├── TimeoutException
    httpx.ConnectTimeout: _NOT_SENT,
    httpx.PoolTimeout: _NOT_SENT,
    httpx.ReadTimeout: _NO_ANSWER,
    httpx.WriteTimeout: _NO_ANSWER,
    httpx.TimeoutException: _NO_ANSWER,
    # │   │   ├── NetworkError
    httpx.ConnectError: _NOT_SENT,
    httpx.ReadError: _BROKEN,
    httpx.WriteError: _BROKEN,
    httpx.CloseError: _BROKEN,
    httpx.NetworkError: _BROKEN,
    # │   │   ├── ProtocolError
    httpx.LocalProtocolError: _UNREADABLE,
    httpx.RemoteProtocolError: _UNREADABLE,
    httpx.ProtocolError: _UNREADABLE,
    # │   │   └── others
    httpx.ProxyError: _BROKEN,
    httpx.UnsupportedProtocol: _NOT_SENT,
    httpx.TransportError: _BROKEN,
    # │   └── others
    httpx.DecodingError: _UNREADABLE,
    httpx.TooManyRedirects: _UNREADABLE,
    httpx.RequestError: _BROKEN,
    # └── HTTPStatusError
    httpx.HTTPStatusError: _UNREADABLE,
    httpx.HTTPError: _BROKEN,
    # httpx's exceptions outside that family.
    httpx.InvalidURL: _NOT_SENT,
    httpx.CookieConflict: _UNREADABLE,
    httpx.StreamConsumed: _UNREADABLE,
    httpx.StreamClosed: _UNREADABLE,
    httpx.ResponseNotRead: _UNREADABLE,
    httpx.RequestNotRead: _UNREADABLE,
    httpx.StreamError: _UNREADABLE,
    # The transport's own. httpx-aiohttp makes httpx.ConnectTimeout of a refused connection and of
    # one that broke after the request was sent alike: the cause tells them apart, and decides.
    aiohttp.ClientConnectorError: _NOT_SENT,  # name not found, refused, TLS
    aiohttp.ClientHttpProxyError: _NOT_SENT,  # the proxy opens no connection
    aiohttp.ConnectionTimeoutError: _NOT_SENT,
    aiohttp.InvalidURL: _NOT_SENT,
    aiohttp.ServerTimeoutError: _NO_ANSWER,
    aiohttp.ClientConnectionError: _BROKEN,
    aiohttp.ClientPayloadError: _BROKEN,
    aiohttp.ClientError: _UNREADABLE,
    # Python's.
    TimeoutError: _NO_ANSWER,
    OSError: _BROKEN,
    ValueError: _UNREADABLE,
    zlib.error: _UNREADABLE,
    RecursionError: _UNREADABLE,  # of JSON that is nested too deeply
}
"""What each exception means; for one that is not listed, its nearest base class that is."""
_LISTED: Final = tuple(OUTCOMES)


@contextmanager
def translated() -> Iterator[None]:
    """Raise ``Unavailable`` or ``Uncertain`` in place of what a call raises, by ``OUTCOMES``."""
    try:
        yield
    except _LISTED as error:
        cause = error.__cause__
        found = type(cause if isinstance(cause, aiohttp.ClientError) else error)
        outcome, reason = next(OUTCOMES[each] for each in found.__mro__ if each in OUTCOMES)
        raise outcome(reason, cause=cause_of(error)) from error


def from_answer(response: httpx.Response, body: bytes, *, mask: Mask) -> OutsideError:
    """Return what an answer means that is not 2xx, with the service's own words as the reason.

    Args:
        response: The answer: its status decides.
        body: Its content, as far as it came.
        mask: Masks our key, which some services quote.
    """
    status = response.status_code
    said = without_keys(shown(_reason(body, mask)))  # some services quote what they were sent
    reason = said or f"The video service answered {status} without saying why."
    if status in NOTHING_DONE:
        retry_after = _retry_after(response.headers.get("retry-after", ""))
        return Unavailable(reason, retry_after=retry_after, cause=http_cause(status))
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(reason, code=str(status))
    return Uncertain(reason, cause=http_cause(status))


def _reason(body: bytes, mask: Mask) -> str:
    """Return the sentence in an error's body, or the body itself if it is text."""
    text = body.decode(json.detect_encoding(body), errors="replace").strip()
    try:
        answer = mask.json(json.loads(text))
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else _cut(mask.json(text))
    return _cut(reason_in(answer))


def _cut(text: str) -> str:
    # Lone surrogates, left where a text was cut, can be neither stored nor sent.
    words = " ".join(text.encode(errors="replace").decode().split())
    return words if len(words) <= _MAX_REASON else words[: _MAX_REASON - 1] + "…"


def _retry_after(value: str) -> timedelta | None:
    """Return the wait that a ``Retry-After`` header asks for in seconds; a date is not read."""
    with suppress(ValueError):
        return timedelta(seconds=min(max(int(value), 0), _MAX_RETRY_AFTER_S))
    return None
