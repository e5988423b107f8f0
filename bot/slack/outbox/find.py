"""Finds posted messages: one whose post got no answer, by its metadata, and the link to one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from pydantic import AliasPath, Field, OnErrorOmit
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import OutsideError, Refused
from bot.model import Delivery
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.payloads import Payload
from bot.slack.views.blocks import Json, link
from bot.timings import Timings

CANNOT_LOOK: Final = frozenset({"missing_scope", "no_permission", "not_allowed_token_type"})
"""Slack's codes if the app may post, but not search."""
_NOT_A_MEMBER: Final = "not_in_channel"
_EVENT_TYPE: Final = "job_message"
# Slack's clock and ours may differ by this much: a search begins that much earlier, and ends later.
_MAX_SKEW: Final = timedelta(minutes=5)
# Where a thread cannot be read, its newest reply is ours if it is no older than the post, by clocks
# that differ by no more than this.
_MAX_REPLY_SKEW: Final = timedelta(seconds=10)
_PAGE_SIZE: Final = 200  # messages
_MAX_PAGES: Final = 50
_M = TypeVar("_M", bound=Payload)


class _Found(Payload):
    """A message in a conversation: https://docs.slack.dev/reference/methods/conversations.history.

    ``latest_reply`` and ``reply_users`` are those of the first message of a thread.
    """

    ts: str = Field(pattern=r"^[0-9]+\.[0-9]+$")
    event_type: Any = Field(default=None, validation_alias=AliasPath("metadata", "event_type"))
    delivery: Any = Field(
        default=None, validation_alias=AliasPath("metadata", "event_payload", "message")
    )
    latest_reply: str | None = Field(default=None, pattern=r"^[0-9]+\.[0-9]+$")
    reply_users: list[str] = Field(default_factory=list)


class _Page(Payload):
    """Some of the messages in a conversation: Slack's answer to a search."""

    messages: list[OnErrorOmit[_Found]] | None = None
    next_cursor: str | None = Field(
        default=None, validation_alias=AliasPath("response_metadata", "next_cursor")
    )


class _Identity(Payload):
    """The answer of auth.test: https://docs.slack.dev/reference/methods/auth.test."""

    user_id: str


def metadata_for(delivery: Delivery) -> dict[str, Any]:
    """Return the message metadata by which a delivery's message is found again."""
    return {"event_type": _EVENT_TYPE, "event_payload": {"message": _mark(delivery)}}


@dataclass(frozen=True, slots=True)
class PostSearch:
    """Looks for messages in Slack; ``client`` needs the history scopes.

    ``join_channels``: whether to join a public channel in order to look. Slack lets an app post to
    those that it is not in, and read only those that it is in.
    """

    client: AsyncWebClient
    timings: Timings
    join_channels: bool = False

    async def find(self, delivery: Delivery, since: datetime) -> str | None:
        """Return the ``ts`` of a delivery's message, or None if there is none.

        Args:
            delivery: what was posted; its channel is where to look.
            since: when the job was asked for, which is before any post.

        Raises:
            Refused: Slack does not let us search.
            Unavailable, Uncertain: Slack did not answer.
        """
        if not delivery.channel.startswith(("C", "G", "D")) or delivery.sent_at is None:
            return None  # posted to a user's id: the conversation that this opened is not known
        try:
            return await self._look(delivery, delivery.sent_at, since)
        except Refused as error:
            if error.code != _NOT_A_MEMBER or not self.join_channels:
                raise
        await self._call(Payload, self.client.conversations_join, channel=delivery.channel)
        return await self._look(delivery, delivery.sent_at, since)

    async def _look(self, delivery: Delivery, sent_at: datetime, since: datetime) -> str | None:
        # First around the post, before what was written later. Our clock may have been wrong then,
        # so that this finds nothing. When the form came it was right, or its signature would not
        # have been accepted: the second search, from there, finds it even then.
        timings = self.timings
        until = sent_at + timings.call_timeout + timings.post_hold + _MAX_SKEW
        near = {"oldest": _ts(sent_at - _MAX_SKEW), "latest": _ts(until)}
        everything = {"oldest": _ts(since - _MAX_SKEW)}
        for window in (near, everything):
            try:
                async for message in self._messages(delivery, window):
                    if message.event_type == _EVENT_TYPE and message.delivery == _mark(delivery):
                        return message.ts
            except Refused as error:
                if delivery.thread_ts is None or not _is_about_threads(error):
                    raise
                return await self._look_from_outside(delivery, delivery.thread_ts, sent_at)
        return None

    async def _messages(self, delivery: Delivery, window: Json) -> AsyncIterator[_Found]:
        """Yield a thread's messages, oldest first, or those of a channel, newest first."""
        arguments: Json = {
            "channel": delivery.channel,
            "include_all_metadata": True,
            "limit": _PAGE_SIZE,
            **window,
        }
        method: Callable[..., Awaitable[AsyncSlackResponse]] = self.client.conversations_history
        if delivery.thread_ts is not None:
            method = self.client.conversations_replies
            arguments["ts"] = delivery.thread_ts
        for _ in range(_MAX_PAGES):
            page = await self._call(_Page, method, **arguments)
            for message in page.messages or ():
                yield message
            if not page.next_cursor:
                return
            arguments["cursor"] = page.next_cursor

    async def _look_from_outside(
        self, delivery: Delivery, thread_ts: str, sent_at: datetime
    ) -> str | None:
        """Return the newest reply in a thread that cannot be read, if it is of our bot since then.

        Slack documents that bots may read threads in direct messages only
        (https://docs.slack.dev/reference/methods/conversations.replies).
        """
        history = await self._call(
            _Page,
            self.client.conversations_history,
            channel=delivery.channel,
            oldest=thread_ts,
            latest=thread_ts,
            inclusive=True,
            limit=1,
        )
        parent = next((each for each in history.messages or () if each.ts == thread_ts), None)
        if parent is None or parent.latest_reply is None:
            return None
        if float(parent.latest_reply) < (sent_at - _MAX_REPLY_SKEW).timestamp():
            return None
        bot = await self._call(_Identity, self.client.auth_test)
        return parent.latest_reply if bot.user_id in parent.reply_users else None

    async def _call(
        self,
        model: type[_M],
        method: Callable[..., Awaitable[AsyncSlackResponse]],
        **arguments: object,
    ) -> _M:
        async with translated(self.timings.call_timeout):
            return model.model_validate((await method(**arguments)).data)


def _is_about_threads(error: Refused) -> bool:
    """Return whether a thread may be refused because a bot asks for it.

    With which code is not documented. A workspace that refuses everything is another case.
    """
    if error.code in {_NOT_A_MEMBER, "channel_not_found", "thread_not_found"}:
        return False
    return error.code in CANNOT_LOOK or ERROR_ACTIONS.get(error.code) is not ErrorAction.PAUSE


def _ts(moment: datetime) -> str:
    return f"{moment.timestamp():.6f}"


def _mark(delivery: Delivery) -> str:
    number = f"-{delivery.number}" if delivery.number else ""
    return f"{delivery.job_id}/{delivery.role.value}{number}"


async def permalink(client: AsyncWebClient, posted: Delivery, timings: Timings) -> str:
    """Return the link to a message that is in Slack; "" if Slack does not give it.

    It needs no scope: https://docs.slack.dev/reference/methods/chat.getPermalink.
    """
    try:
        async with translated(timings.call_timeout):
            answer = await client.chat_getPermalink(
                channel=posted.channel, message_ts=posted.ts or ""
            )
    except OutsideError:
        return ""
    given = answer.get("permalink")
    return link(given) or "" if isinstance(given, str) else ""
