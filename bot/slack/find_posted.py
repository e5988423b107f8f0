"""Finds a message whose post got no answer, by the metadata that it carries."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, BaseModel, ConfigDict, Field, OnErrorOmit
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.model import Delivery
from bot.slack.errors import translated

_EVENT_TYPE: Final = "job_message"
# Slack's clock and ours may differ by this much: a search begins that much earlier.
_MAX_SKEW: Final = timedelta(minutes=5)
_PAGE_SIZE: Final = 200  # messages
_MAX_PAGES: Final = 5


class _Found(BaseModel):
    """A message in a conversation."""

    # What people wrote must not get into a validation error.
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    ts: str = Field(pattern=r"^[0-9]+\.[0-9]+$")
    event_type: Any = Field(default=None, validation_alias=AliasPath("metadata", "event_type"))
    delivery: Any = Field(
        default=None, validation_alias=AliasPath("metadata", "event_payload", "message")
    )


class _Page(BaseModel):
    """Some of the messages in a conversation: Slack's answer to a search."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    messages: list[OnErrorOmit[_Found]] | None = None
    next_cursor: str | None = Field(
        default=None, validation_alias=AliasPath("response_metadata", "next_cursor")
    )


def metadata_for(delivery: Delivery) -> dict[str, Any]:
    """Return the message metadata by which a delivery's message is found again."""
    return {"event_type": _EVENT_TYPE, "event_payload": {"message": _mark(delivery)}}


async def find_posted(
    client: AsyncWebClient, delivery: Delivery, since: datetime, time_limit: timedelta
) -> str | None:
    """Return the ``ts`` of a delivery's message, or None if there is none.

    Args:
        client: calls Slack; it needs the history scopes.
        delivery: what was posted; its channel is where to look.
        since: when the job was asked for, which is before any post. The time of the post itself
            cannot be used: the clock may have been wrong then. When the form came it was right, or
            its signature would not have been accepted.
        time_limit: of one call.

    Raises:
        Refused: Slack does not let us search.
        Unavailable, Uncertain: Slack did not answer.
    """
    if not delivery.channel.startswith(("C", "G", "D")) or delivery.sent_at is None:
        return None  # posted to a user's id: the conversation that this opened is not known
    arguments: dict[str, Any] = {
        "channel": delivery.channel,
        "oldest": f"{(since - _MAX_SKEW).timestamp():.6f}",
        "include_all_metadata": True,
        "limit": _PAGE_SIZE,
    }
    method: Callable[..., Awaitable[AsyncSlackResponse]] = client.conversations_history
    if delivery.thread_ts is not None:
        method = client.conversations_replies
        arguments["ts"] = delivery.thread_ts
    for _ in range(_MAX_PAGES):
        async with translated(time_limit):
            page = _Page.model_validate((await method(**arguments)).data)
        for message in page.messages or ():
            if message.event_type == _EVENT_TYPE and message.delivery == _mark(delivery):
                return message.ts
        if not page.next_cursor:
            return None
        arguments["cursor"] = page.next_cursor
    return None


def _mark(delivery: Delivery) -> str:
    number = f"-{delivery.number}" if delivery.number else ""
    return f"{delivery.job_id}/{delivery.role.value}{number}"
