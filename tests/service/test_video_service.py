"""The video service's client: the outcome of each answer and of each failure."""

import asyncio
import gzip
import json
import socket
import sys
import traceback
import tracemalloc
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from httpx_aiohttp import AiohttpTransport

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.masking import Mask
from bot.service.client import Clients, VideoService, connect
from bot.service.errors import OUTCOMES, translated
from bot.service.gate import Held
from bot.timings import Timings
from sandbox.clock import ManualClock
from sandbox.faults import CannedResponse, Drip, Fault, Hang, LateCommit, Reset, Truncated
from sandbox.http import Server, free_port
from sandbox.video_service import SandboxVideoService
from tests.tcp import listening

KEY = "sandbox-key"
VIDEOS, REPLICAS = "/v2/videos", "/v2/replicas"
BODY = {"replica_id": "r-anna", "script": "Hello."}
MIB = 1024 * 1024
# For calls that end by themselves, however busy the machine is, and for those that never do.
TIMINGS = Timings(call_timeout=timedelta(seconds=30))
SHORT = Timings(call_timeout=timedelta(seconds=1))


@pytest.fixture
async def sandbox(clock: ManualClock) -> AsyncIterator[SandboxVideoService]:
    sandbox = SandboxVideoService(clock, api_key=KEY)
    sandbox.add_replica("r-anna", "Anna")
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with connect() as clients:
        yield clients


@pytest.fixture
def service(sandbox: SandboxVideoService, clients: Clients, clock: ManualClock) -> VideoService:
    return client_of(sandbox.url, clients, clock)


@pytest.fixture
def short_service(
    sandbox: SandboxVideoService, clients: Clients, clock: ManualClock
) -> VideoService:
    return client_of(sandbox.url, clients, clock, SHORT)


def client_of(
    url: str, clients: Clients, clock: ManualClock, timings: Timings = TIMINGS
) -> VideoService:
    return VideoService(url, KEY, mask=Mask([KEY]), clients=clients, clock=clock, timings=timings)


async def create(service: VideoService, path: str = VIDEOS) -> Any:  # noqa: ANN401 - any JSON
    """Create a video or a replica as the engine does."""
    body = BODY if path == VIDEOS else {"train_video_url": "https://example.com/anna.mp4"}
    async with service.admission(path) as call:
        return await service.create(call, body)


async def failed_create(service: VideoService) -> OutsideError:
    with pytest.raises(OutsideError) as caught:
        await create(service)
    return caught.value


async def failed_read(service: VideoService) -> OutsideError:
    with pytest.raises(OutsideError) as caught:
        await service.read(REPLICAS, "r-anna")
    return caught.value


async def test_a_create_and_a_read_return_the_services_json(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    created = await create(service)
    read = await service.read(VIDEOS, created["video_id"])
    assert read["data"] == {"script": "Hello."}
    assert [(each.operation, each.body) for each in sandbox.requests] == [
        ("create_video", BODY),
        ("read_video", None),
    ]


ENDLESS: list[Fault] = [Hang(), Hang(done=True), Drip()]
LOST: list[Fault] = [
    Reset(),
    Reset(done=True),
    LateCommit(timedelta(minutes=1)),
    Truncated(),
    CannedResponse(200, "nothing of the kind"),
    CannedResponse(200, ""),
    CannedResponse(200, b"\xff\xfe"),
    CannedResponse(200, "[" * 100_000),
    CannedResponse(200, "rubbish", {"Content-Encoding": "gzip"}),
    CannedResponse(200, f"[{' ' * MIB}]"),
    CannedResponse(204),
    CannedResponse(301, headers={"Location": "/v2/elsewhere"}),
    CannedResponse(304),
    CannedResponse(307, headers={"Location": "/v2/elsewhere"}),
    # httpx cannot make an address of these, although it is not to follow them.
    CannedResponse(302, headers={"Location": "localhost:8080/login"}),
    CannedResponse(307, headers={"Location": "https:login"}),
    CannedResponse(303, headers={"Location": "http://xn--zz--/"}),
    CannedResponse(500, {"message": "plan problem"}, done=True),
    CannedResponse(502, "<html>Bad gateway</html>"),
    CannedResponse(503),
    CannedResponse(599),
]


async def test_a_create_without_a_clear_answer_is_uncertain_and_is_not_sent_again(
    sandbox: SandboxVideoService, clients: Clients, clock: ManualClock, subtests: pytest.Subtests
) -> None:
    for number, fault in enumerate(LOST, start=1):
        with subtests.test(fault=fault):
            service = client_of(sandbox.url, clients, clock)
            sandbox.faults.next("create_video", fault)
            assert type(await failed_create(service)) is Uncertain
            assert len(sandbox.requests) == number
    for fault in LOST:
        with subtests.test("a read is never uncertain", fault=fault):
            sandbox.faults.always("read_replica", fault)
            reads = client_of(sandbox.url, clients, clock)
            assert type(await failed_read(reads)) is Unavailable


@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
async def test_a_call_times_out_even_while_bytes_are_coming(
    short_service: VideoService, sandbox: SandboxVideoService, fault: Fault
) -> None:
    sandbox.faults.next("create_video", fault)
    sandbox.faults.next("read_replica", fault)
    assert type(await failed_create(short_service)) is Uncertain
    assert type(await failed_read(short_service)) is Unavailable
    assert len(sandbox.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 413, 422, 451])
async def test_a_4xx_answer_is_refused_with_its_status(
    service: VideoService, sandbox: SandboxVideoService, status: int
) -> None:
    answer = CannedResponse(status, {"error": "No."})
    sandbox.faults.next("read_replica", answer)
    sandbox.faults.next("create_video", answer)
    for error in (await failed_read(service), await failed_create(service)):
        assert isinstance(error, Refused)
        assert (error.code, error.reason) == (str(status), "No.")


@pytest.mark.parametrize("status", [408, 425, 429])
async def test_408_425_and_429_mean_that_nothing_was_done(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock, status: int
) -> None:
    sandbox.faults.next(
        "create_video", CannedResponse(status), CannedResponse(status, headers={"Retry-After": "7"})
    )
    sandbox.faults.next("read_replica", CannedResponse(status))
    for error in (await failed_create(service), await failed_read(service)):
        assert isinstance(error, Unavailable)
        assert error.retry_after is None
        assert error.reason == f"The video service answered {status} without saying why."
    await clock.advance(timedelta(seconds=2))
    error = await failed_create(service)
    assert isinstance(error, Unavailable)
    assert error.retry_after == timedelta(seconds=7)


A_DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", timedelta(seconds=7)),
        ("0", timedelta(0)),
        ("-5", timedelta(0)),
        ("86401", A_DAY),
        ("80000000000000", A_DAY),
        ("9" * 30, A_DAY),
        ("9" * 5000, None),
        ("soon", None),
        ("1.5", None),
        ("Mon, 02 Mar 2199 09:00:00 GMT", None),
    ],
)
async def test_retry_after_is_read_as_seconds_and_never_beyond_a_day(
    service: VideoService, sandbox: SandboxVideoService, header: str, wait: timedelta | None
) -> None:
    sandbox.faults.next("read_replica", CannedResponse(429, headers={"Retry-After": header}))
    error = await failed_read(service)
    assert isinstance(error, Unavailable)
    assert error.retry_after == wait


async def test_the_reason_is_what_the_service_says_in_words_that_fit_a_message(
    service: VideoService, sandbox: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for body, reason in [
        ({"error": "Out of  credit\n"}, "Out of credit"),
        ({"error": "first", "message": "second"}, "first"),
        ({"error": {"code": 7, "message": "Too long"}}, "Too long"),
        ({"error": "Bad Request", "message": "The script is too long"}, "The script is too long"),
        ({"errors": ["No replica", "No script", "No script"]}, "No replica; No script"),
        (
            {"errors": [{"code": 1, "detail": "Too long"}, {"msg": "Too loud"}]},
            "Too long; Too loud",
        ),
        ({"message": "Invalid data", "errors": {"script": ["Too long"]}}, "script: Too long"),
        ({"script": ["This field may not be blank."]}, "script: This field may not be blank."),
        ({"type": "about:blank", "title": "Not enough", "detail": "Buy more"}, "Buy more"),
        ({"type": "about:blank", "title": "Not enough credit", "status": 402}, "Not enough credit"),
        (
            {"detail": [{"type": "x", "loc": ["body", "script"], "msg": "Field required"}]},
            "script: Field required",
        ),
        ({"code": "E12", "request": {"script": "A secret."}}, None),
        ({"error": {"error": {"error": {"message": "Deep down"}}}}, "Deep down"),
        (json.loads('{"error":' * 50 + '"lost"' + "}" * 50), None),
        (
            {"errors": ["long"] + [f"more {n}" for n in range(1000)]},
            "long; more 0; more 1; more 2; more 3",
        ),
        (None, None),
        ("just text", "just text"),
        ('"a JSON text"', "a JSON text"),
        ("<html><h1>400</h1></html>", None),
        (b"\xff\xfe?", "\ufffd"),
        ('{"error": "cut in half: \\ud83d"}', "cut in half: ?"),
        ({"error": "long " * 1000}, "long " * 99 + "long…"),
    ]:
        with subtests.test(body=body, reason=reason):
            sandbox.faults.next("read_replica", CannedResponse(400, body))
            error = await failed_read(service)
            assert error.reason == (reason or "The video service answered 400 without saying why.")
            assert len(error.reason) <= 500


async def test_an_answer_of_a_mebibyte_is_read(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.faults.next("read_replica", CannedResponse(200, f"[{' ' * (MIB - 2)}]"))
    assert await service.read(REPLICAS, "r-anna") == []


@contextmanager
def counting(calls: Counter[str]) -> Iterator[None]:
    """Count the functions that this thread calls."""
    sys.setprofile(lambda _frame, event, _function: calls.update([event]))
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("status", [200, 400])
async def test_what_an_answer_of_a_mebibyte_hides_is_looked_for_beside_the_event_loop(
    status: int, service: VideoService, sandbox: SandboxVideoService
) -> None:
    half = f"%73{KEY[1:-2]}"
    work: list[int] = []
    count = MIB // len(half) - 20_000
    for text in (half, "x" * len(half)):
        answer = CannedResponse(status, {"error": text * count, "errors": [text] * 10_000})
        sandbox.faults.next("read_replica", answer)
        calls = Counter[str]()
        with counting(calls), suppress(Refused):
            await service.read(REPLICAS, "r-anna")
        work.append(calls.total())
    # To look at each of these texts takes many calls. How many a read takes depends on its chunks.
    assert max(work) < 40_000, work


async def test_an_answer_that_is_too_long_when_decompressed_is_not_decompressed(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    compressor = zlib.compressobj(9, wbits=31)
    zeros = bytes(MIB)
    bomb = b"".join([*(compressor.compress(zeros) for _ in range(100)), compressor.flush()])
    headers = {"Content-Encoding": "gzip"}
    sandbox.faults.next("read_replica", CannedResponse(200, bomb, headers))
    tracemalloc.start()
    try:
        assert type(await failed_read(service)) is Unavailable
        assert tracemalloc.get_traced_memory()[1] < 10 * MIB
    finally:
        tracemalloc.stop()


async def test_a_compressed_answer_is_read(
    service: VideoService, sandbox: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for encoding in ["gzip", "GZIP", "x-gzip", "deflate"]:
        with subtests.test(encoding=encoding):
            compress = zlib.compress if encoding == "deflate" else gzip.compress
            body, headers = compress(b'{"status": "completed"}'), {"Content-Encoding": encoding}
            sandbox.faults.next("read_replica", CannedResponse(200, body, headers))
            assert await service.read(REPLICAS, "r-anna") == {"status": "completed"}


async def test_a_call_asks_for_an_uncompressed_answer(clients: Clients, clock: ManualClock) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}"
    async with answering(answer) as (url, asked):
        assert await client_of(url, clients, clock).read(VIDEOS, "v1") == {}
    assert b"accept-encoding: identity\r\n" in asked[0].lower()


@pytest.fixture
def closed_port() -> int:
    return free_port()


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose backlog is full, so that connections to it never open."""
    with closing(socket.socket()) as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        yield full.getsockname()[1]
        for other in others:
            other.close()


async def test_a_connection_that_does_not_open_means_that_nothing_was_done(
    sandbox: SandboxVideoService,
    clients: Clients,
    clock: ManualClock,
    closed_port: int,
    full_port: int,
) -> None:
    no_tls = sandbox.url.replace("http:", "https:")
    for url in (f"http://127.0.0.1:{closed_port}", f"http://127.0.0.1:{full_port}", no_tls):
        service = client_of(url, clients, clock, SHORT)
        assert type(await failed_create(service)) is Unavailable, url
        assert type(await failed_read(service)) is Unavailable, url
    assert sandbox.requests == []


async def test_a_call_that_got_no_free_connection_means_that_nothing_was_done(
    sandbox: SandboxVideoService, clients: Clients, clock: ManualClock
) -> None:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, force_close=True))
    async with httpx.AsyncClient(transport=AiohttpTransport(client=session)) as crowded:
        service = client_of(sandbox.url, replace(clients, creating=crowded), clock, SHORT)
        await create(service)  # then two may be made at the same time
        sandbox.faults.next("create_video", Hang())
        first, second = await asyncio.gather(failed_create(service), failed_create(service))
    assert (type(first), type(second)) == (Uncertain, Unavailable)
    assert len(sandbox.requests) == 2


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a server that hangs up after each answer; yield its address and what it is asked for."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answers[min(len(asked), len(answers)) - 1])
        await writer.drain()

    async with listening(answer) as port:
        yield f"http://127.0.0.1:{port}", asked


OK, CHUNKS = b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n\r\n"
NO_HTTP = [
    b"",
    b"220 mail.example ESMTP\r\n",
    b"HTTP/1.1 99999 OK\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    OK + b"x" * 100_000 + b": x\r\n\r\n{}",
    OK + b"Content-Length: -1\r\n\r\n{}",
    OK + b"Content-Length: 2\r\n" + CHUNKS + b"2\r\n{}\r\n0\r\n\r\n",
    OK + CHUNKS + b"zz\r\n{}\r\n0\r\n\r\n",
    OK + CHUNKS + b"2\r\n{}rubbish",
    OK + CHUNKS + b"2\r\n{}\r\n",
]


@pytest.mark.parametrize("answer", NO_HTTP, ids=lambda answer: f"{answer!r:.80}")
async def test_an_answer_that_is_not_http_leaves_a_create_uncertain(
    clients: Clients, clock: ManualClock, answer: bytes
) -> None:
    async with answering(answer) as (url, _):
        service = client_of(url, clients, clock)
        errors = [await failed_create(service), await failed_read(service)]
    assert [type(error) for error in errors] == [Uncertain, Unavailable]
    assert KEY not in "".join("".join(traceback.format_exception(error)) for error in errors)


async def test_the_status_counts_even_if_the_body_breaks_off(
    clients: Clients, clock: ManualClock
) -> None:
    broken = b"HTTP/1.1 %d Odd\r\nContent-Length: 99\r\n\r\nNo"
    async with answering(broken % 402, broken % 429, broken % 500) as (url, _):
        service = client_of(url, clients, clock)
        with pytest.raises(Refused) as refused:
            await service.read(VIDEOS, "v1")
        assert refused.value.code == "402"
        assert type(await failed_create(service)) is Held
        await clock.advance(timedelta(seconds=2))
        assert type(await failed_create(service)) is Uncertain


async def test_a_read_may_be_repeated_where_the_connection_breaks_and_a_create_is_not(
    clients: Clients, clock: ManualClock
) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with answering(b"", answer) as (url, asked):
        assert await client_of(url, clients, clock).read(VIDEOS, "v1") == {}
        assert len(asked) == 2
    async with answering(b"", answer) as (url, asked):
        assert type(await failed_create(client_of(url, clients, clock))) is Uncertain
        assert len(asked) == 1


async def test_calls_use_no_cookies_and_no_proxy_of_the_environment(
    clients: Clients, clock: ManualClock, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}"
    async with answering(answer) as (url, asked):
        service = client_of(url, clients, clock)
        for _ in range(2):
            await create(service)
            await service.read(VIDEOS, "v1")
    assert len(asked) == 4
    assert b"cookie" not in b"".join(asked).lower()


class Listener:
    """Answers every request with ``{}``, and keeps its method and its connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, object]] = []
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self.server = Server(app)

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.requests.append((request.method, request.transport.get_extra_info("peername")))
        return web.json_response({})


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    await listener.server.start()
    yield listener
    await listener.server.stop()


async def test_a_create_has_a_connection_of_its_own_and_reads_share_theirs(
    listener: Listener, clients: Clients, clock: ManualClock
) -> None:
    service = client_of(listener.server.url, clients, clock)
    for _ in range(3):
        await create(service)
        await service.read(VIDEOS, "v1")
    assert len({peer for method, peer in listener.requests if method == "GET"}) == 1
    assert len({peer for method, peer in listener.requests if method == "POST"}) == 3


async def test_an_odd_id_reaches_the_service_as_it_is(
    service: VideoService, sandbox: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for odd in ["a/b", "%2e", "%2e%2e", "%2F", "a b", "ä?ö#ü", "a&b=c", "…", "'; --", "x" * 500]:
        with subtests.test(odd=odd):
            sandbox.add_replica(odd, "Odd")
            assert (await service.read(REPLICAS, odd))["replica_id"] == odd


@pytest.mark.parametrize("dots", [".", ".."])
async def test_an_id_that_would_change_the_path_is_refused_without_a_call(
    listener: Listener, clients: Clients, clock: ManualClock, dots: str
) -> None:
    with pytest.raises(Refused):
        await client_of(listener.server.url, clients, clock).read(REPLICAS, dots)
    assert listener.requests == []


def subclasses(base: type[Exception]) -> list[type[Exception]]:
    """Return ``base`` and all that is derived from it."""
    found = [base]
    for each in found:
        found += each.__subclasses__()
    return list(dict.fromkeys(found))


def bare(raised: type[Exception]) -> Exception:
    """Return an exception of a class that is derived from ``raised`` and needs no arguments."""
    methods = {"__init__": lambda _: None, "__str__": lambda _: "made up"}
    made: Exception = type(raised.__name__, (raised,), methods)()
    return made


def family(base: type[Exception]) -> list[type[Exception]]:
    """Return ``base`` and all that is derived from it, each so that it needs no arguments."""
    return [type(bare(each)) for each in subclasses(base)]


AIOHTTP = family(aiohttp.ClientError)
HTTPX: set[type[Exception]] = {
    each for each in vars(httpx).values() if isinstance(each, type) and issubclass(each, Exception)
}


def test_every_exception_of_httpx_has_an_outcome_of_its_own() -> None:
    derived = {each for base in (httpx.HTTPError, httpx.StreamError) for each in subclasses(base)}
    theirs = {each for each in derived if each.__module__.startswith("httpx")}
    assert len(HTTPX | theirs) > 25
    assert HTTPX | theirs <= OUTCOMES.keys()


NOT_SENT = {
    *(httpx.ConnectTimeout, httpx.ConnectError, httpx.PoolTimeout),
    *(httpx.UnsupportedProtocol, httpx.InvalidURL),
}


def test_only_httpx_exceptions_from_before_a_request_mean_that_nothing_was_sent(
    subtests: pytest.Subtests,
) -> None:
    for raised in sorted(HTTPX, key=str):
        expected = pytest.raises(Unavailable if raised in NOT_SENT else Uncertain)
        with subtests.test(raised=raised), expected, translated():
            raise bare(raised)


def test_only_aiohttp_exceptions_from_before_a_request_mean_that_nothing_was_sent(
    subtests: pytest.Subtests,
) -> None:
    for raised in [*AIOHTTP, OSError, TimeoutError, ValueError, UnicodeError]:
        with subtests.test(raised=raised):
            never_sent = issubclass(
                raised,
                aiohttp.ClientConnectorError
                | aiohttp.ClientHttpProxyError
                | aiohttp.ConnectionTimeoutError
                | aiohttp.InvalidURL,
            )
            with pytest.raises(Unavailable if never_sent else Uncertain), translated():
                raise raised
