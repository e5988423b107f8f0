"""What a claimed delivery says, with what it takes from elsewhere: a replica's name, a link."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from slack_sdk.web.async_client import AsyncWebClient

from bot.model import Delivery, Role
from bot.slack.blocks import Message
from bot.slack.message_forms import as_sent
from bot.slack.messages import compose, redirected
from bot.slack.permalinks import permalink
from bot.slack.presenters import Presenters
from bot.store import Outgoing, Store
from bot.timings import CallTimings


async def with_names(
    claimed: Sequence[Outgoing], store: Store, presenters: Presenters
) -> Sequence[Outgoing]:
    """Return deliveries with the names of the replicas that their jobs use: one query for all."""
    used = {
        each.delivery.id: replica_id
        for each in claimed
        if (presenter := presenters.get(each.job.kind)) is not None
        and (replica_id := presenter.replica_id(each.job)) is not None
    }
    names = await store.replicas.names(set(used.values()))
    return [
        replace(each, replica=names.get(used.get(each.delivery.id, ""), "")) for each in claimed
    ]


async def composed(
    outgoing: Outgoing,
    presenters: Presenters,
    admins: Collection[str],
    client: AsyncWebClient,
    timings: CallTimings,
    *,
    approvers: Collection[str],
) -> Message:
    """Return what a delivery says now; ``admins`` can answer a question, ``approvers`` approve."""
    delivery, job, card = outgoing.delivery, outgoing.job, outgoing.retry
    retry = None
    if card is not None:
        # Others cannot open a direct message.
        is_open = card.ts is not None and not card.direct
        retry = await permalink(client, card, timings) if is_open else ""
    message = compose(
        delivery,
        job,
        presenters,
        admins,
        approvers=approvers,
        replica=outgoing.replica,
        retry=retry,
    )
    # A share says so itself, and an approval is for somebody else.
    if delivery.direct and delivery.role not in {Role.SHARE, Role.APPROVAL}:
        message = redirected(message, job)
    return as_sent(message, delivery)


def log_fields(delivery: Delivery, reason: Exception | str) -> dict[str, str]:
    """Return what a log line says of a delivery and of what became of a call for it."""
    return {"job": delivery.job_id, "role": delivery.role.value, "reason": str(reason)}
