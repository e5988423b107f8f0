"""The table of deliveries: its rows as values."""

from typing import Final

from bot.model import Delivery, DeliveryState, Role, Settlement
from bot.store.database import Row, optional_moment
from bot.store.sql import Query
from bot.store.unreadable import number, optional_text, reading, text

# The cards of the jobs that retry these.
RETRIES: Final = Query(
    """
    SELECT deliveries.*, jobs.retry_of FROM jobs JOIN deliveries ON deliveries.job_id = jobs.id
    WHERE jobs.retry_of IN (EACH :job_ids) AND deliveries.role = 'card'
    """
)


def retry_from(row: Row) -> tuple[str, Delivery]:
    """Return the id of a job that was retried, and the card of its retry."""
    return row["retry_of"], delivery_from(row)


def delivery_from(row: Row) -> Delivery:
    """Return a row of the table of deliveries as a value.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("deliveries", row):
        return _delivery_from(row)


def _delivery_from(row: Row) -> Delivery:
    return Delivery(
        id=row["id"],
        job_id=text(row["job_id"]),
        role=Role(row["role"]),
        state=DeliveryState(row["state"]),
        channel=text(row["channel"]),
        thread_ts=optional_text(row["thread_ts"]),
        ts=optional_text(row["ts"]),
        version=number(row["version"]),
        shown_version=number(row["shown_version"]),
        due_at=optional_moment(row["due_at"]),
        claim=number(row["claim"]),
        failures=number(row["failures"]),
        refusals=number(row["refusals"]),
        direct=bool(row["direct"]),
        rewrites=number(row["text_only"]),
        sent_at=optional_moment(row["sent_at"]),
        number=number(row["number"]),
        settled_as=Settlement(row["settled_as"]) if row["settled_as"] else None,
        settled_by=optional_text(row["settled_by"]),
        shared_by=optional_text(row["shared_by"]),
        shared_to=optional_text(row["shared_to"]),
        addressee=optional_text(row["addressee"]),
        file_id=optional_text(row["file_id"]),
    )
