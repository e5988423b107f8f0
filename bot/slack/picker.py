"""The workspace's replicas as people pick them: their names, and whether they can speak."""

import asyncio
from datetime import timedelta
from typing import Final

from bot.errors import Refused, Unavailable
from bot.kinds import Unreadable
from bot.model import Verdict
from bot.replicas import KnownReplica
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import cut, one_line
from bot.slack.desk import Desk

_NAME: Final = 36
_ID: Final = 20
_STANDING: Final = {Verdict.GOING: "in training", Verdict.FAILED: "cannot be used"}


def called(replica: KnownReplica) -> str:
    """Return name, id and standing in at most 75 characters, for a picker and for lists."""
    parts = [cut(one_line(replica.name), _NAME), cut(replica.id, _ID) if replica.name else ""]
    if not replica.name:
        parts = [cut(replica.id, _NAME + _ID)]
    if replica.verdict in _STANDING:
        parts.append(_STANDING[replica.verdict])
    return " · ".join(filter(None, parts))


def unexplained(replica: KnownReplica) -> str:
    """Return what there is to say of a replica that cannot be used, and nobody knows why."""
    return f"the video service calls it “{cut(one_line(replica.status), _ID)}” and does not say why"


async def look_up(desk: Desk, replica_id: str, within: timedelta) -> KnownReplica:
    """Ask the service about a replica, and keep what it says; one that it does not know is dropped.

    Raises:
        Refused: the service does not know it, or does not know us.
        Unavailable: the service cannot be asked now.
    """
    [kind] = [each for each in desk.kinds.values() if each.catalogued]
    try:
        async with asyncio.timeout(within.total_seconds()):
            answer = await desk.service.read(kind.path, replica_id)
        snapshot = kind.read(answer, replica_id)
    except Refused as error:
        if error.code in UNKNOWN_ID:
            await desk.store.replicas.forget(replica_id)
        raise
    except TimeoutError as error:
        raise Unavailable("The video service did not answer in time.") from error
    except Unreadable as error:
        raise Unavailable("The video service's answer could not be read.") from error
    await desk.store.replicas.learn(snapshot, desk.clock.now())
    found = await desk.store.replicas.get(replica_id)
    return found or KnownReplica(replica_id)


async def why_not(desk: Desk, replica_id: str) -> str | None:
    """Return why a replica cannot speak, as a sentence for a form; None where it may be tried.

    One in training may be asked for: the video waits for it. Where the service cannot be asked
    while somebody waits for a form to close, it may be tried too.
    """
    known = await desk.store.replicas.get(replica_id)
    now = desk.clock.now()
    if (
        known is None
        or known.read_at is None
        or abs(now - known.read_at) > desk.timings.replica_max_age
    ):
        try:
            known = await look_up(desk, replica_id, desk.timings.check_timeout)
        except Refused as error:
            if error.code not in UNKNOWN_ID:
                return None
            return f"The video service does not know this replica. It says: {_said(error.reason)}"
        except Unavailable:
            return None
    if known.verdict is Verdict.FAILED:
        return f"This replica cannot be used: {_said(known.reason) or unexplained(known)}"
    return None


def _said(reason: str) -> str:
    return cut(one_line(reason), 200)
