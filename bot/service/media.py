"""Fetches a finished video, to show it in Slack: from the hosts that the operator listed alone.

A link of the service's may lead anywhere. It is followed over https, to public addresses: what
counts is the address that is connected to, whatever a name resolves to
(https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html).
Behind a proxy, the proxy connects, and decides about addresses. A host of this machine is called as
it is, where it is listed.
"""

import asyncio
import os
import re
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from errno import EACCES
from fnmatch import fnmatchcase
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import IO, Any, Final, TypeAlias

import aiohttp
import httpx

from bot.errors import OutsideError, Refused, Unavailable
from bot.links import is_public, only_hosts
from bot.model import Job
from bot.service.client import http_client
from bot.service.errors import NOTHING_DONE, chain, translated
from bot.setting_values import HOST_NAME, is_loopback

_MAX_REDIRECTS: Final = 3
_READ_BYTES: Final = 1024 * 1024
_HTTPS: Final = 443
# ISO/IEC 14496-12, 4.2 and 4.3: an MP4 begins with the length and the type of its first box.
_TYPE: Final = slice(4, 8)
_FIRST: Final = b"ftyp"

_Address: TypeAlias = IPv4Address | IPv6Address


def hosts_to_allow(finished: Iterable[Job], allowed: Collection[str]) -> str:
    """Return what ``MEDIA_HOSTS`` would be with the hosts of these videos; "" if it has them all.

    It names no addresses, and no ports.
    """
    snapshots = (job.snapshot for job in finished if job.snapshot is not None)
    hosts = {only_hosts(each.facts.get("download_url", "")).lower() for each in snapshots}
    new = {
        host
        for host in hosts
        if re.fullmatch(HOST_NAME, host) and not any(fnmatchcase(host, each) for each in allowed)
    }
    return ",".join(sorted(new.union(allowed))) if new else ""


class VideoSource:
    """Fetches videos from ``hosts``; one that begins with ``*.`` stands for all hosts below it.

    ``proxy_for`` returns the proxy for calls to an address, or None.
    """

    def __init__(
        self, hosts: Collection[str], proxy_for: Callable[[str], str | None], max_bytes: int
    ) -> None:
        self._hosts = frozenset(hosts)
        self._proxy_for = proxy_for
        self._max_bytes = max_bytes

    async def fetch(self, link: str, file: IO[bytes]) -> int:
        """Write the MP4 that a link leads to into an empty file; return its size in bytes.

        Raises:
            Refused: it must not be called, or is nothing that can be shown.
            Unavailable: it may be there later.
        """
        with _translated():
            url: httpx.URL | None = httpx.URL(link)
            for _ in range(1 + _MAX_REDIRECTS):
                assert url is not None  # noqa: S101 - it redirected
                url = await self._fetch(url, file)
                if url is None:
                    break
            else:
                raise Refused("its link redirects too often", code="redirects")
        size = file.tell()
        if not size:
            raise Unavailable("it is empty")
        file.flush()
        return size

    async def _fetch(self, url: httpx.URL, file: IO[bytes]) -> httpx.URL | None:
        """Write what is at an address into a file; return where it redirects to instead."""
        async with self._client(url) as client, client.stream("GET", url) as response:
            if response.has_redirect_location:
                return url.join(response.headers["location"])
            if response.status_code != HTTPStatus.OK:
                raise _failure(response.status_code)
            self._check_size(int(response.headers.get("content-length", 0)))
            async for chunk in response.aiter_raw(_READ_BYTES):
                if not file.tell() and chunk[_TYPE] != _FIRST:
                    raise Refused("it is no MP4", code="type")
                self._check_size(file.tell() + len(chunk))
                with _disk_errors_refused():
                    await asyncio.to_thread(file.write, chunk)
        return None

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise Refused(f"it has more than {self._max_bytes // 1_000_000} MB", code="size")

    def _client(self, url: httpx.URL) -> httpx.AsyncClient:
        """Return a client for one address.

        Raises:
            Refused: it must not be called.
        """
        host = url.raw_host.decode("ascii").lower()
        above = {f"*{host[at:]}" for at, letter in enumerate(host) if letter == "."}
        if not self._hosts & {host, *above}:
            raise Refused(
                f"its host {host} is not in MEDIA_HOSTS: add it if you trust it", code="host"
            )
        if is_loopback(host):
            return _client(lambda address: address.is_loopback)
        if url.scheme != "https" or (url.port or _HTTPS) != _HTTPS or url.userinfo:
            raise Refused(f"its link to {host} is not plain https", code="scheme")
        proxy = self._proxy_for(str(url))
        return _client(is_public) if proxy is None else _client(None, proxy)


class _AddressRefused(OSError):
    """An address that must not be connected to."""


def _client(
    is_allowed: Callable[[_Address], bool] | None, proxy: str | None = None
) -> httpx.AsyncClient:
    """Return a client that connects only to what ``is_allowed``; None for the proxy alone."""

    def open_socket(found: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = found
        if is_allowed is not None and not is_allowed(ip_address(place[0].partition("%")[0])):
            raise _AddressRefused(EACCES, "its host has no public address")
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(force_close=True, socket_factory=open_socket)
    return http_client(connector, proxy, accept="video/mp4")


@contextmanager
def _translated() -> Iterator[None]:
    """Raise ``Refused`` or ``Unavailable`` in place of what a call raises."""
    try:
        with translated():
            yield
    except Refused:
        raise
    except OutsideError as error:
        if not error.cause:
            raise
        if any(isinstance(each, _AddressRefused) for each in chain(error)):
            raise Refused("its host has no public address", code="address") from error
        raise Unavailable(f"its host does not answer ({error.cause})", cause=error.cause) from error


def _failure(status: int) -> OutsideError:
    said = f"its host answers {status}"
    if status in NOTHING_DONE or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(said)
    return Refused(said, code=str(status))


def temporary_file() -> IO[bytes]:
    """Return an empty file that no other process can open, and that is gone with this one.

    Raises:
        Refused: none can be written.
    """
    with _disk_errors_refused():
        return tempfile.TemporaryFile()


def reader_of(file: IO[bytes]) -> IO[bytes]:
    """Return another object that reads a file from its beginning, and is closed apart from it."""
    reader = os.fdopen(os.dup(file.fileno()), "rb")
    reader.seek(0)
    return reader


@contextmanager
def _disk_errors_refused() -> Iterator[None]:
    """Raise ``Refused`` where a file cannot be written."""
    try:
        yield
    except OSError as error:
        reason = f"no temporary file can be written: {error.strerror}"
        raise Refused(reason, code="disk") from error
