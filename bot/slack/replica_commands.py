"""What can be done with replicas by command: list them, add one, set a channel's default."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Kind
from bot.kinds.video import is_replica_id
from bot.links import only_hosts
from bot.model import Snapshot, Verdict
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import (
    Message,
    bullets,
    date,
    escape,
    escaped,
    joined,
    moment_of,
    paragraph,
    rich,
    section,
    words,
)
from bot.slack.context import HandlerContext
from bot.slack.job_status import list_jobs
from bot.slack.payloads import SlashCommand
from bot.slack.replica_picker import known_from, read_replica, replica_label, unexplained_failure
from bot.store import KnownReplica

_MAX_LISTED: Final = 30


async def list_replicas(ctx: HandlerContext, command: SlashCommand, kind: str) -> Message:
    """Return the user's trainings, and below them the replicas that everyone can use."""
    trainings = await list_jobs(ctx, command, kind)
    known = await ctx.store.replicas.find("", command.channel, _MAX_LISTED)
    if not known:
        return trainings
    replicas = listed_replicas(known)
    text = joined([trainings.text, replicas.text])
    return Message(text, [*trainings.blocks, *replicas.blocks])


def listed_replicas(known: Sequence[KnownReplica]) -> Message:
    """Return a list of replicas: with their ids, which *default* and *status* need, and dates."""
    heading = "Replicas that everyone here can use, last used first:"
    lines = [
        (
            replica_label(each) + (" · this channel's default" if each.default else ""),
            datetime.fromtimestamp(each.used_at / 1000, UTC) if each.used_at else None,
        )
        for each in known
    ]
    items = [
        paragraph(words(f"{line} · "), moment_of(at)) if at else paragraph(words(line))
        for line, at in lines
    ]
    said = (f"{escape(line)} · {date(at)}" if at else escape(line) for line, at in lines)
    text = joined([heading, *(f"• {each}" for each in said)])
    return Message(text, [section(heading), rich(bullets(items))])


async def add_replica(
    ctx: HandlerContext, ack: AsyncAck, command: SlashCommand, kind: str, replica_id: str
) -> None:
    """Offer a replica in the picker."""

    async def add() -> str:
        if refusal := await ctx.access.asking_refusal(command.user, _deadline(ctx)):
            return refusal
        try:
            label = await _learn(ctx, ctx.kinds[kind], replica_id)
        except _Unusable as error:
            return str(error)
        return f"{label} is ready to use by everyone in this workspace."

    ctx.answer_later(command.response_url, add())
    await ack()


async def set_default_replica(
    ctx: HandlerContext, ack: AsyncAck, command: SlashCommand, kind: str, wanted: str
) -> None:
    """Make a replica the default of this channel's create form; ``wanted`` is its name or id."""

    async def set_default() -> str:
        if refusal := await ctx.access.asking_refusal(command.user, _deadline(ctx)):
            return refusal
        try:
            replica_id = await _named(ctx, command, kind, wanted.strip("`"))
            label = await _learn(ctx, ctx.kinds[kind], replica_id)
        except _Unusable as error:
            return str(error)
        await ctx.store.replicas.set_default(command.channel, replica_id)
        return f"{label} is now this channel's default."

    ctx.answer_later(command.response_url, set_default())
    await ack()


class _Unusable(Exception):
    """A replica cannot be used; ``str()`` is a sentence about why."""


async def _named(ctx: HandlerContext, command: SlashCommand, kind: str, wanted: str) -> str:
    """Return the id of the replica with this name or id: of one with the beginning of its name too.

    What may be the id of a replica that is not known here is returned as it is.

    Raises:
        _Unusable: several have the name, or none has it.
    """
    if is_replica_id(wanted) and await ctx.store.replicas.get(wanted) is not None:
        return wanted
    known = await ctx.store.replicas.find(wanted, command.channel, _MAX_LISTED) if wanted else []
    folded = wanted.casefold()
    found = [each for each in known if " ".join(each.name.split()).casefold() == folded]
    found = found or [each for each in known if each.name.casefold().startswith(folded)]
    if len(found) > 1:
        heading = f"Several replicas match “{escape(wanted)}”. Use the ID:"
        raise _Unusable(joined([heading, *(f"• {escape(replica_label(each))}" for each in found)]))
    if found:
        return found[0].id
    if is_replica_id(wanted):
        return wanted
    shows = f"`{ctx.command(kind)} list` shows them."
    raise _Unusable(f"There's no replica “{escaped(wanted, 300)}” here. {shows}")


async def _learn(ctx: HandlerContext, kind: Kind, replica_id: str) -> str:
    """Offer a replica in the picker from now on, and return its label.

    Raises:
        _Unusable: it cannot be used, or could not be looked up.
        DatabaseError: it could not be saved.
    """
    if not is_replica_id(replica_id):
        raise _Unusable("That's not an ID. An ID is one word of letters and digits.")
    try:
        snapshot = await read_replica(ctx, kind, replica_id, _deadline(ctx))
    except Refused as error:
        says = f"“{escaped(only_hosts(error.reason), 300)}”"
        if error.code in UNKNOWN_ID:
            raise _Unusable(
                f"I can't find a replica “{escape(replica_id)}”. The video service says: {says}"
            ) from error
        raise _Unusable(f"It couldn't be checked. The video service says: {says}") from error
    except OutsideError as error:
        why = escape(only_hosts(error.reason))
        text = f"It couldn't be checked: {why} Please try again in a moment."
        raise _Unusable(text) from error
    if snapshot.verdict is Verdict.FAILED:
        raise _Unusable(_failure(snapshot))
    await ctx.store.replicas.learn(snapshot, ctx.clock.now())
    known = await ctx.store.replicas.get(replica_id)
    return escape(replica_label(known) if known is not None else replica_id)


def _deadline(ctx: HandlerContext) -> float:
    """Return until when an answer in the background waits, by the event loop's clock."""
    return asyncio.get_running_loop().time() + ctx.timings.call_timeout.total_seconds()


def _failure(snapshot: Snapshot) -> str:
    label = escape(replica_label(known_from(snapshot)))
    if not snapshot.reason:
        return f"{label}: {escape(unexplained_failure(snapshot.status))}."
    return f"{label}. The video service says: “{escaped(only_hosts(snapshot.reason), 300)}”"
