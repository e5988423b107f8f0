"""Why a call to the outside failed: a word for the log, and a clause for a person."""

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
_CLAUSES: Final = {
    "dns": "its name cannot be resolved (DNS)",
    "tls": "its TLS certificate is not accepted, or it does not speak TLS",
    "refused": "the connection was refused",
    "broken": "the connection broke, or the answer could not be read",
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
    """Return a cause as a clause, for calls that are limited to ``timeout``; "" if it is empty."""
    if cause.startswith(HTTP):
        return f"it answered {cause.removeprefix(HTTP)}"
    if cause == "timeout":
        return f"no answer within {timeout.total_seconds():g} s"
    return _CLAUSES.get(cause, "")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it comes from: aiohttp's come from those of the system."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__
