"""The gates of the video service's client: when a call is held back, and who finds out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Literal

import pytest

from bot.errors import Refused, Unavailable
from bot.masking import Mask
from bot.model import Failure
from bot.service.client import VideoService, connect
from bot.service.gate import AccountRefused, Held
from bot.timings import Timings
from sandbox.clock import ManualClock
from sandbox.faults import CannedResponse
from sandbox.service_limits import CallRate, RateLimit
from sandbox.video_service import SandboxVideoService
from tests.service.test_video_service import REPLICAS, VIDEOS, create, failed_create

# Many times what anything takes: other work may keep the machine busy.
PATIENT = Timings(call_timeout=timedelta(seconds=30), turn_timeout=timedelta(seconds=30))


@pytest.fixture
async def sandbox(clock: ManualClock) -> AsyncIterator[SandboxVideoService]:
    sandbox = SandboxVideoService(clock)
    sandbox.add_replica("r-anna", "Anna")
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
def recoveries() -> list[str]:
    """What was called at each recovery."""
    return []


@pytest.fixture
def timings() -> Timings:
    return PATIENT


@pytest.fixture
async def service(
    sandbox: SandboxVideoService, clock: ManualClock, recoveries: list[str], timings: Timings
) -> AsyncIterator[VideoService]:
    async with connect() as clients:
        yield VideoService(
            sandbox.url,
            sandbox.api_key,
            mask=Mask([sandbox.api_key]),
            clients=clients,
            clock=clock,
            timings=timings,
            on_recovery=lambda _: recoveries.append("recovered"),
        )


async def outcomes(service: VideoService, count: int) -> list[Any]:
    """Return the results of calls that are made at once."""
    return await asyncio.gather(*(create(service) for _ in range(count)), return_exceptions=True)


def operations(sandbox: SandboxVideoService) -> list[str]:
    return [each.operation for each in sandbox.requests]


async def test_a_rate_limit_of_reads_is_found_with_few_refused_calls(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock
) -> None:
    sandbox.limits.rates["GET"] = CallRate(clock, 4)
    read, seconds = 0, 0
    while read < 60:
        calls = (service.read(REPLICAS, "r-anna") for _ in range(60 - read))
        results = await asyncio.gather(*calls, return_exceptions=True)
        read += sum(isinstance(each, dict) for each in results)
        seconds += 1
        await clock.advance(timedelta(seconds=1))
    assert len(sandbox.requests) <= 60 + 60 + 2 * seconds, "all at once, then few"


async def test_after_a_rate_limit_one_call_finds_out_and_the_others_wait_for_it(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock
) -> None:
    wait = timedelta(seconds=7)
    sandbox.rate_limited = RateLimit(clock.now() + wait, retry_after=wait)
    assert isinstance(await failed_create(service), Held)
    await clock.advance(wait - timedelta(seconds=1))
    assert {type(each) for each in await outcomes(service, 5)} == {Held}
    assert len(sandbox.requests) == 1

    await clock.advance(timedelta(seconds=1))
    seen: list[int] = []

    async def note(phase: Literal["before", "after"], _operation: str, _path: str) -> None:
        if phase == "before":
            await asyncio.sleep(0.02)
            seen.append(len(sandbox.requests))

    sandbox.on_request = note
    assert not [each for each in await outcomes(service, 5) if isinstance(each, Exception)]
    assert seen[0] == 2, "while the first one had no answer, there was no other"


async def test_a_rate_limit_without_a_time_backs_off_for_all_calls_together(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock
) -> None:
    sandbox.faults.always("create_video", CannedResponse(429))
    for _ in range(60):
        await outcomes(service, 3)
        await clock.advance(timedelta(seconds=1))
    assert len(sandbox.requests) <= 7


async def test_a_gate_does_not_stay_closed_because_the_clock_was_set_back(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock
) -> None:
    sandbox.faults.next("create_video", CannedResponse(429, headers={"Retry-After": "3600"}))
    await failed_create(service)
    clock.set(clock.now() - timedelta(hours=2))
    await create(service)


async def test_a_401_is_believed_only_if_a_neutral_read_confirms_it(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.faults.next("create_video", CannedResponse(401, {"message": "Not yours"}))
    error = await failed_create(service)
    assert isinstance(error, Refused)
    assert not isinstance(error, AccountRefused)
    await create(service)
    assert operations(sandbox) == ["create_video", "read_video", "create_video"]


async def test_a_401_that_cannot_be_confirmed_now_is_tried_again(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.faults.next("create_video", CannedResponse(401, {"message": "Not yours"}))
    sandbox.faults.next("read_video", CannedResponse(503))
    assert type(await failed_create(service)) is Unavailable


async def test_of_calls_that_find_a_refused_key_at_once_one_counts_as_refused(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.key_revoked = True
    results = await outcomes(service, 4)
    assert sorted(type(each).__name__ for each in results) == ["AccountRefused", *["Held"] * 3]
    assert operations(sandbox).count("read_video") == 1


async def test_a_read_that_meets_a_refused_key_stops_creates_too(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.key_revoked = True
    with pytest.raises(Refused):
        await service.read(REPLICAS, "r-anna")
    assert isinstance(await failed_create(service), Held)
    assert operations(sandbox) == ["read_replica", "read_video"]


async def test_a_refused_key_is_checked_by_a_read_at_most_twice_a_minute(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock, recoveries: list[str]
) -> None:
    sandbox.key_revoked = True
    await failed_create(service)
    await clock.advance(timedelta(seconds=30))
    assert await service.resolve_doubt() == timedelta(seconds=30)
    await clock.advance(timedelta(seconds=30))
    assert isinstance(await failed_create(service), Held)
    assert operations(sandbox) == ["create_video", "read_video", "read_video"]
    assert recoveries == []
    sandbox.key_revoked = False
    # A check that says nothing of the key is made again.
    sandbox.faults.next("read_video", CannedResponse(429, "Slow down", {"Retry-After": "5"}))
    assert await service.resolve_doubt() == timedelta(seconds=30)
    await clock.advance(timedelta(seconds=30))
    assert await service.resolve_doubt() is None
    assert recoveries == ["recovered"]
    assert (await create(service))["video_id"] in sandbox.videos


async def test_any_read_that_passes_shows_that_the_key_works_again(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.key_revoked = True
    await failed_create(service)
    sandbox.key_revoked = False
    with pytest.raises(Refused):  # the id is unknown, but the key is not
        await service.read(VIDEOS, "nobody")
    assert not service.is_key_refused


async def test_a_403_does_not_show_that_the_key_works_again(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock
) -> None:
    sandbox.key_revoked = True
    await failed_create(service)
    sandbox.key_revoked = False
    await clock.advance(timedelta(seconds=30))
    sandbox.faults.next("read_video", *[CannedResponse(403, "Forbidden")] * 3)
    await service.resolve_doubt()
    with pytest.raises(Refused):
        await service.read(VIDEOS, "nobody")
    with pytest.raises(Refused, match="Forbidden"):
        await service.check()
    assert service.is_key_refused


async def test_without_credit_one_trial_call_is_made_after_ten_minutes(
    service: VideoService, sandbox: SandboxVideoService, clock: ManualClock, recoveries: list[str]
) -> None:
    sandbox.out_of_credit = True
    error = await failed_create(service)
    assert isinstance(error, AccountRefused)
    assert error.failure is Failure.OUT_OF_CREDIT
    await clock.advance(timedelta(minutes=9))
    assert isinstance(await failed_create(service), Held)
    assert len(sandbox.requests) == 1

    await clock.advance(timedelta(minutes=1))
    assert {type(each) for each in await outcomes(service, 2)} == {Held}
    assert len(sandbox.requests) == 2

    sandbox.out_of_credit = False
    await clock.advance(timedelta(minutes=10))
    assert len([each for each in await outcomes(service, 5) if isinstance(each, dict)]) == 5
    assert recoveries == ["recovered"]


async def test_a_402_closes_only_its_own_kind(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.limits.unpaid.add("create_video")
    await failed_create(service)
    await create(service, REPLICAS)
    assert isinstance(await failed_create(service), Held)


async def test_nobody_has_more_than_half_of_the_calls_while_others_wait(
    service: VideoService,
) -> None:
    await outcomes(service, 10)  # from now on, four may be made at the same time after a rest
    entered: Counter[str] = Counter()
    done = asyncio.Event()

    async def call(user: str) -> None:
        async with service.admission(VIDEOS, user):
            entered[user] += 1
            await done.wait()

    async with asyncio.TaskGroup() as calls:
        under_way = [AsyncExitStack() for _ in range(4)]
        for each in under_way:
            await each.enter_async_context(service.admission(VIDEOS, "ana"))
        for user in ("ana", "ana", "ana", "ben", "ben", "ben"):
            calls.create_task(call(user))
        await turns_taken()
        assert not entered
        for each in under_way[:2]:
            await each.aclose()
            await turns_taken()
        assert entered == {"ben": 2}
        for each in under_way[2:]:
            await each.aclose()
        await turns_taken()
        assert entered == {"ben": 2, "ana": 2}
        done.set()


async def turns_taken() -> None:
    """Let those take their turn who can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_list_that_is_limited_holds_no_read_back(
    service: VideoService, sandbox: SandboxVideoService
) -> None:
    sandbox.faults.next("list_replicas", CannedResponse(429, headers={"Retry-After": "3600"}))
    with pytest.raises(Held):
        await service.list_page(REPLICAS, page=1, limit=20)
    await service.read(REPLICAS, "r-anna")
