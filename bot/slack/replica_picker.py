"""The workspace's replicas as users pick them: their labels, and whether they can be used."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bot.errors import OutsideError, Refused, Unavailable
from bot.kinds import Kind, Unreadable
from bot.links import only_hosts
from bot.model import Snapshot, Verdict
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import cut, one_line
from bot.slack.context import HandlerContext
from bot.store import DatabaseError, KnownReplica

_LOG: Final = logging.getLogger(__name__)
_MAX_NAME: Final = 36
_MAX_ID: Final = 20
_VERDICTS: Final = {Verdict.GOING: "training", Verdict.FAILED: "can't be used"}


def replica_label(replica: KnownReplica) -> str:
    """Return name, id and state in at most 75 characters, for the picker and for lists."""
    parts = [
        cut(one_line(replica.name), _MAX_NAME),
        cut(replica.id, _MAX_ID) if replica.name else "",
    ]
    if not replica.name:
        parts = [cut(replica.id, _MAX_NAME + _MAX_ID)]
    if replica.verdict in _VERDICTS:
        parts.append(_VERDICTS[replica.verdict])
    return " · ".join(filter(None, parts))


def unexplained_failure(status: str) -> str:
    """Return why a replica cannot be used if the service gives no reason."""
    if status.casefold() == "deleted":
        return "it was deleted at the video service"
    return f"the video service calls it “{cut(one_line(status), _MAX_ID)}” and doesn't say why"


def known_from(snapshot: Snapshot) -> KnownReplica:
    """Return a replica as the service just described it."""
    return KnownReplica(
        snapshot.remote_id,
        snapshot.facts.get("replica_name", ""),
        snapshot.status,
        snapshot.verdict,
        snapshot.reason,
    )


@dataclass(frozen=True, slots=True)
class ReplicaCheck:
    """Whether a video with a replica can be requested."""

    error: str | None = None
    """Why not, as a sentence for the form."""
    found: Snapshot | None = None
    """What the service just said about a replica that the picker does not offer yet."""


async def read_replica(
    ctx: HandlerContext, kind: Kind, replica_id: str, deadline: float
) -> Snapshot:
    """Read a replica from the service. One that it does not know is no longer offered.

    Args:
        ctx: the bot's parts.
        kind: its kind.
        replica_id: its id.
        deadline: when to stop waiting, by the event loop's clock.

    Raises:
        Refused: the service does not know it, or does not accept our key.
        Unavailable: the service cannot be asked now.
    """
    try:
        async with asyncio.timeout_at(deadline):
            answer = await ctx.service.read(kind.path, replica_id)
        return kind.read(answer, replica_id)
    except Refused as error:
        if error.code in UNKNOWN_ID:
            await ctx.store.replicas.forget(replica_id)
        raise
    except TimeoutError as error:
        raise Unavailable("The video service didn't answer in time.") from error
    except Unreadable as error:
        raise Unavailable("The video service's answer couldn't be read.") from error


def learn_later(ctx: HandlerContext, snapshot: Snapshot) -> None:
    """Store what the service said about a replica, while nobody waits for that."""
    ctx.background.spawn(_learn(ctx, snapshot))


async def _learn(ctx: HandlerContext, snapshot: Snapshot) -> None:
    try:
        await ctx.store.replicas.learn(snapshot, ctx.clock.now())
    except DatabaseError as error:
        _LOG.warning("a replica was not stored", extra={"reason": str(error)})


async def check_used(
    ctx: HandlerContext, kind: Kind, params: Mapping[str, str], deadline: float
) -> ReplicaCheck:
    """Check by ``deadline`` whether a job with ``params`` can be requested with what it uses.

    It can with one in training: the video waits for it. It can also if the service does not say
    in time: the create call will show it.
    """
    used = kind.uses(params)
    if used is None:
        return ReplicaCheck()
    used_kind, replica_id = ctx.kinds[used[0]], used[1]
    known, now = ctx.store.replicas.get(replica_id), ctx.clock.now()
    if known is not None and known.read_at is not None:
        age = abs(now - known.read_at)
        if age <= ctx.timings.replica_max_age:
            return ReplicaCheck(_unusable(known))
    try:
        snapshot = await read_replica(ctx, used_kind, replica_id, deadline)
    except Refused as error:
        if error.code not in UNKNOWN_ID:
            return ReplicaCheck()
        reason = _one_sentence(error.reason)
        return ReplicaCheck(f"The video service can't find this replica. It says: {reason}")
    except OutsideError:
        return ReplicaCheck()
    if known is None or known.deleted:
        return ReplicaCheck(_unusable(snapshot), snapshot)
    learn_later(ctx, snapshot)
    return ReplicaCheck(_unusable(snapshot))


def _unusable(replica: KnownReplica | Snapshot) -> str | None:
    if replica.verdict is not Verdict.FAILED:
        return None
    reason = _one_sentence(replica.reason) or unexplained_failure(replica.status)
    return f"This replica can't be used: {reason}"


def _one_sentence(reason: str) -> str:
    return cut(one_line(only_hosts(reason)), 200)
