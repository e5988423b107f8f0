"""Checks of the video service: whether it answers, as itself, and accepts the key."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx

from bot import service_clients
from bot.clock import Clock
from bot.doctor.finding import Finding, error, ok, warning
from bot.doctor.network import explain
from bot.errors import OutsideError
from bot.kinds.drift import DriftType
from bot.masking import Mask
from bot.service_errors import UNKNOWN_ID, from_answer, translated
from bot.settings import Settings
from bot.store.inspection import seen_drift
from bot.timings import Timings

_NAME: Final = "video service"
# Nothing has this id: to ask for it costs nothing and changes nothing.
_UNKNOWN: Final = "/v2/videos/is-anyone-there"
_MAX_BODY_BYTES: Final = 64 * 1024
_SILENT: Final = "The video service answered "  # our words where it gave no reason
_MAX_DRIFT: Final = 5  # lines, or fields on one
_DRIFT: Final[Mapping[str, str]] = {
    DriftType.UNKNOWN_STATUS: "the unknown status {field}",
    DriftType.MISSING_FIELD: "the field {field} is missing",
    DriftType.RENAMED_FIELD: "the id is called {field}",
    DriftType.OTHER_TYPE: "the field {field} is no text",
    DriftType.ODD_TIME: "the time in {field} cannot be read",
    DriftType.UNREADABLE: "the answer cannot be read",
}
_STATUS_REMEDY: Final = (
    "The bot waits on, as if the work were going on. If the status means an end, please report it."
)
_DRIFT_REMEDY: Final = "The bot goes on with the rest. If people miss something, please report it."


async def check_service(
    settings: Settings, timings: Timings, clock: Clock
) -> AsyncIterator[Finding]:
    """Yield what a harmless read from the service shows."""
    url, key = settings.video_api_url, settings.video_api_key.get_secret_value()
    found, _ = await read_unknown(
        url, key, settings.proxy_for(url), timings, clock, mask=Mask(settings.secrets)
    )
    yield found


async def read_unknown(
    url: str, key: str, proxy: str | None, timings: Timings, clock: Clock, *, mask: Mask
) -> tuple[Finding, int | None]:
    """Return what a harmless read shows, and the status of the answer; None without one."""
    try:
        async with service_clients.connect(proxy) as clients:
            with translated():
                async with asyncio.timeout(timings.call_timeout.total_seconds()):
                    response, body = await _read(clients.reading, url, key)
    except OutsideError as failure:
        cause = explain(failure, url, timings.call_timeout, "VIDEO_API_URL")
        return error(_NAME, cause.message, cause.remedy), None
    return _judge(response, body, mask, clock), response.status_code


def check_drift(path: Path | str) -> Iterator[Finding]:
    """Yield how the answers of the last 90 days differed from what the bot expects."""
    new: list[str] = []
    found: list[Finding] = []
    for each in seen_drift(path):
        said = _DRIFT.get(each.what)
        if each.what == DriftType.NEW_FIELD:
            new.append(each.field)
        elif said is not None and len(found) < _MAX_DRIFT:
            message = said.format(field=each.field)
            times = "once" if each.count == 1 else f"{each.count:,} times"
            since = f"{each.last_at:%Y-%m-%d}"
            found.append(
                warning(
                    "service answers",
                    f"about a {each.kind}: {message}, {times}, last on {since}",
                    _STATUS_REMEDY if each.what == DriftType.UNKNOWN_STATUS else _DRIFT_REMEDY,
                )
            )
    yield from found
    if new:
        fields = ", ".join(sorted(set(new))[:_MAX_DRIFT])
        said = "" if found else "as expected, with "
        yield ok("service answers", f"{said}fields that are new: {fields}")


async def _read(client: httpx.AsyncClient, url: str, key: str) -> tuple[httpx.Response, bytes]:
    async with client.stream(
        "GET",
        url + _UNKNOWN,
        headers={"x-api-key": key},
        timeout=None,
    ) as response:
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                break
        return response, bytes(body)


def _judge(response: httpx.Response, body: bytes, mask: Mask, clock: Clock) -> Finding:
    status = response.status_code
    reason = from_answer(response, body, mask=mask, now=clock.now()).reason.rstrip(".")
    said = f"{status}: {reason}" if not reason.startswith(_SILENT) else str(status)
    if status == HTTPStatus.UNAUTHORIZED:
        return error(
            _NAME,
            f"rejects VIDEO_API_KEY ({said})",
            "Copy the key again from your account there, into VIDEO_API_KEY.",
        )
    if status == HTTPStatus.FORBIDDEN:
        return error(
            _NAME,
            f"refuses a read with VIDEO_API_KEY ({said})",
            "Check that the key may read and create videos, and that the service allows this "
            "machine's address.",
        )
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return error(
            _NAME,
            f"is out of credit ({said})",
            "Top it up there. What people have asked for is made then.",
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return warning(
            _NAME,
            "answers, but asks to wait: too many calls (429)",
            "Run doctor again in a minute. If it stays so, ask the service for a higher limit.",
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return error(
            _NAME,
            f"does not work: it answered {status}",
            "Try again in some minutes, and look at the service's status page. The bot goes on "
            "by itself once it works.",
        )
    if response.is_redirect:
        return error(
            _NAME,
            f"sends callers to another address ({status})",
            "Set VIDEO_API_URL to the address of the API itself: the bot follows no redirects.",
        )
    if not _is_json(response, body):
        return error(
            _NAME,
            f"{_kind(response)} answers in place of the API ({status})",
            "Set VIDEO_API_URL to the address of the service's API, without /v2.",
        )
    if str(status) not in UNKNOWN_ID:
        return warning(
            _NAME,
            f"answers {status} for a video that does not exist, where 404 is expected",
            "Check that VIDEO_API_URL is the API that the bot is made for.",
        )
    return ok(_NAME, "answers and accepts the key")


def _is_json(response: httpx.Response, body: bytes) -> bool:
    """Return whether an answer is JSON, or so empty or compressed that it may be an API's."""
    if not body.strip() or response.headers.get("content-encoding"):
        return True
    with suppress(ValueError, RecursionError):
        json.loads(body)
        return True
    return False


def _kind(response: httpx.Response) -> str:
    content_type = response.headers.get("content-type", "").partition(";")[0].strip()
    return "a web page" if content_type == "text/html" else content_type or "something else"
