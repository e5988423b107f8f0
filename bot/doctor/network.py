"""Why another machine cannot be reached, and what to do about it."""

import ssl
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from bot.causes import describe
from bot.errors import OutsideError

# The codes of OpenSSL for a certificate that is not accepted:
# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME: Final = frozenset({62, 64})
_PROXY_LOGIN: Final = 407


class Cause(NamedTuple):
    """Why a call failed, as a clause, and a sentence that says what to do."""

    message: str
    remedy: str
    may_be_near: bool = False
    """Others may reach it although this machine does not, such as through its own router."""


def explain(error: BaseException, url: str, limit: timedelta, setting: str) -> Cause:
    """Return why a call failed.

    Args:
        error: what the call raised.
        url: what was called; only its host is shown.
        limit: how long the call was allowed to take.
        setting: the name of the setting that has the address.
    """
    host = urlsplit(url).hostname or ""
    chain = list(_chain(error))
    for each in chain:
        if isinstance(each, aiohttp.ClientProxyConnectionError):
            return Cause(
                "cannot be reached: the proxy does not answer",
                "Check HTTPS_PROXY, or list the host in NO_PROXY to call it directly.",
            )
        if isinstance(each, aiohttp.ClientHttpProxyError):
            return _of_proxy(each.status, host)
        if isinstance(each, ssl.SSLCertVerificationError):
            return _of_certificate(getattr(each, "verify_code", 0), host)
        if isinstance(each, aiohttp.ClientConnectorDNSError):
            return Cause(
                f"cannot be reached: the name {host} cannot be resolved (DNS)",
                f"Check the host in {setting}, and this machine's DNS.",
            )
        if isinstance(each, ssl.SSLError):
            return Cause(
                f"cannot be reached: {host} does not speak TLS on that port",
                f"Check the scheme and the port in {setting}.",
            )
        if isinstance(each, ConnectionRefusedError):
            return Cause(
                "cannot be reached: the connection was refused (nothing listens there)",
                f"Check the host and port in {setting}, and that the server there runs.",
                may_be_near=True,
            )
        if isinstance(each, TimeoutError):
            return Cause(
                f"cannot be reached: {describe('timeout', limit)}",
                f"Check {setting}, and that no firewall keeps this machine from {host}.",
                may_be_near=True,
            )
    if isinstance(error, OutsideError):
        said = describe(error.cause, limit) or error.reason.rstrip(".")
    else:
        said = describe("broken", limit)
    return Cause(
        f"does not work: {said}", f"Try again in some minutes. If it stays so, check {setting}."
    )


def _of_proxy(status: int, host: str) -> Cause:
    if status == _PROXY_LOGIN:
        return Cause(
            "cannot be reached: the proxy wants a user name and password (407)",
            "Put them into HTTPS_PROXY: http://user:password@host:port.",
        )
    return Cause(
        f"cannot be reached: the proxy opens no connection to {host} (it answered {status})",
        f"Have the proxy allow {host}, or list it in NO_PROXY.",
    )


def _of_certificate(code: int, host: str) -> Cause:
    if code == _EXPIRED:
        return Cause(
            f"cannot be reached: the TLS certificate of {host} has expired",
            "Renew it there. If it is new, check this machine's clock.",
        )
    if code == _NOT_YET_VALID:
        return Cause(
            f"cannot be reached: the TLS certificate of {host} is not valid yet",
            "Check this machine's clock.",
        )
    if code in _OTHER_NAME:
        return Cause(
            f"cannot be reached: the TLS certificate there is not for {host}",
            "Use the name that the certificate is for, or have it issued for this one.",
        )
    if code in _UNKNOWN_ISSUER:
        return Cause(
            f"cannot be reached: nobody that this machine trusts has signed the TLS certificate of "
            f"{host}",
            "If a proxy of your network opens TLS, install its root certificate on this machine. "
            "If not, the server needs a certificate with its whole chain.",
        )
    return Cause(
        f"cannot be reached: the TLS certificate of {host} is not accepted",
        f"Look at it with: openssl s_client -connect {host}:443",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, aiohttp.ClientConnectorCertificateError):
            yield found.certificate_error  # it is of the same type, but has no code itself
        yield found
        found = found.__cause__
