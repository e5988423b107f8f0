"""Why a call to the outside failed, in one word for the log and in a sentence for a person."""

import ssl
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import aiohttp
import httpx

HTTP: Final = "http "
"""The cause of an answer with an error status begins with this; its status follows."""

# The first that fits decides: a certificate that is not accepted is also an error of the system.
_CAUSES: Final[Mapping[type[BaseException], str]] = {
    aiohttp.ClientConnectorDNSError: "dns",
    aiohttp.ClientSSLError: "tls",
    ssl.SSLError: "tls",
    ConnectionRefusedError: "refused",
    TimeoutError: "timeout",
    httpx.PoolTimeout: "timeout",
}
_SENTENCES: Final = {
    "dns": "Its name cannot be resolved (DNS).",
    "tls": "Its TLS certificate is not accepted, or it does not speak TLS.",
    "refused": "The connection was refused.",
    "broken": "The connection broke or the answer could not be read.",
}


def http_cause(status: int) -> str:
    """Return the cause of a call that was answered with an error status."""
    return f"{HTTP}{status}"


def cause_of(error: BaseException) -> str:
    """Return ``dns``, ``refused``, ``tls`` or ``timeout``; ``broken`` for everything else."""
    for each in _chain(error):
        for listed, cause in _CAUSES.items():
            if isinstance(each, listed):
                return cause
    return "broken"


def describe(cause: str, timeout: timedelta) -> str:
    """Return a cause as a sentence, for calls that are limited to ``timeout``."""
    if cause.startswith(HTTP):
        return f"It answered {cause.removeprefix(HTTP)}."
    if cause == "timeout":
        return f"There was no answer within {timeout.total_seconds():g} s."
    return _SENTENCES.get(cause, "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it comes from: aiohttp's come from those of the system."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__
