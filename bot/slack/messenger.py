"""Posts what is owed: each message once, wherever the process dies, and each edit until it is in.

A post that got no answer waits, is looked for by the metadata that it carries, and only then goes
again. Looking needs the history scopes; without them it goes again after the wait.
"""

import logging
import random
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, BaseModel, ConfigDict, Field
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.model import Delivery, DeliveryState, Job, Role
from bot.slack.blocks import Message
from bot.slack.cards import Faces, compose, elsewhere
from bot.slack.errors import FATES, Fate, translated
from bot.store import Outgoing, Store
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_EVENT: Final = "job_message"
# Slack's clock and ours may differ by so much: a search begins that much earlier.
_SKEW: Final = timedelta(minutes=5)
_PAGE: Final = 200
_PAGES: Final = 5
# So often a message goes that a person does not take, or that is refused for no reason we know.
_PATIENCE: Final = 6
# What Slack says where this app may post, and not look.
_BLIND: Final = frozenset({"missing_scope", "no_permission", "not_allowed_token_type"})

# So often Slack is asked for the conversation with a person before it goes without.
_OPENINGS: Final = 3
_CONVERSATION: Final = re.compile(r"[CDG][A-Z0-9]+", re.ASCII)

_Call = Callable[..., Awaitable[AsyncSlackResponse]]


class _Answer(BaseModel):
    # What people wrote must not stand in a validation error.
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class _Posted(_Answer):
    """Where a message is: Slack's answer to a post."""

    channel: str = Field(pattern=r"^[A-Z0-9]+$")
    ts: str = Field(pattern=r"^[0-9]+\.[0-9]+$")


class _Found(_Answer):
    """A message that is there; ``mark`` is in its metadata, if we sent it."""

    ts: str = Field(pattern=r"^[0-9]+\.[0-9]+$")
    event: Any = Field(default=None, validation_alias=AliasPath("metadata", "event_type"))
    marked: Any = Field(
        default=None, validation_alias=AliasPath("metadata", "event_payload", "message")
    )

    @property
    def mark(self) -> object:
        """Return what ``_mark`` gave it."""
        return self.marked if self.event == _EVENT else None


class _Page(_Answer):
    """What is in a conversation, in part: Slack's answer to a search."""

    messages: list[_Found] | None = None
    next_cursor: str | None = Field(
        default=None, validation_alias=AliasPath("response_metadata", "next_cursor")
    )


class Messenger:
    """Takes claimed deliveries one step further.

    ``client`` must not repeat a call by itself: a message would be posted twice.
    """

    def __init__(
        self,
        store: Store,
        client: AsyncWebClient,
        faces: Faces,
        *,
        clock: Clock,
        timings: Timings,
        rng: random.Random,
    ) -> None:
        self.due = store.deliveries_due
        self._store = store
        self._client = client
        self._faces = faces
        self._clock = clock
        self._timings = timings
        self._rng = rng
        self._held: dict[tuple[str, str], datetime] = {}
        self._paused_until: datetime | None = None

    async def claim(self, limit: int, in_hand: Collection[Outgoing] = ()) -> Sequence[Outgoing]:
        """Lease up to ``limit`` deliveries that are due, none while the workspace takes nothing."""
        if self._is_ahead(self._paused_until):
            return ()
        ids = [each.delivery.id for each in in_hand]
        return await self._store.deliveries.claim(self._clock.now(), limit, ids)

    async def next_due(self, in_hand: Collection[Outgoing] = ()) -> datetime | None:
        """Return when the next delivery is due that is not in hand."""
        due = await self._store.deliveries.next_due([each.delivery.id for each in in_hand])
        if due is None or self._paused_until is None or not self._is_ahead(self._paused_until):
            return due
        return max(due, self._paused_until)

    async def step(self, outgoing: Outgoing) -> None:
        """Take a claimed delivery one step further."""
        match outgoing.delivery.state:
            case DeliveryState.PENDING:
                await self._post(outgoing)
            case DeliveryState.SENDING:
                await self._doubt(outgoing.delivery)
            case DeliveryState.UNCERTAIN:
                await self._look(outgoing)
            case DeliveryState.POSTED:
                await self._edit(outgoing)
            case DeliveryState.UNDELIVERABLE:
                await self._store.deliveries.release(outgoing.delivery, self._clock.now(), None)

    async def nudge(self, job: Job) -> None:
        """Tell a person, visibly to nobody else, that a card has a question for them."""
        noun = self._faces[job.kind].noun
        card = await self._store.deliveries.fetch_card(job)
        text = (
            f"I do not know whether the {noun} that you asked for was made, and need your answer: "
            f"please look at its card here (No. {job.id})."
        )
        try:
            async with translated(self._timings.call_timeout):
                await self._client.chat_postEphemeral(
                    channel=card.channel, user=job.user, text=text
                )
        except OutsideError as error:
            _LOG.info("a nudge did not arrive", extra={"job": job.id, "reason": error.reason})

    # ── Posting ───────────────────────────────────────────────────────────────────────────────

    async def _post(self, outgoing: Outgoing) -> None:
        delivery = _placed(outgoing)
        method, now = self._client.chat_postMessage, self._clock.now()
        if (until := self._hold(method, delivery)) is not None:
            await self._store.deliveries.release(delivery, now, until)
            return
        # A method that stays out of order does not keep the answer back: the id serves to post.
        if delivery.channel == outgoing.job.user and delivery.failures < _OPENINGS:
            try:
                delivery = replace(delivery, channel=await self._conversation(delivery))
            except OutsideError as error:
                await self._wait(delivery, error, self._client.conversations_open)
                return
        if not await self._store.deliveries.mark_sending(delivery, self._clock.now()):
            return
        message = self._message(outgoing.job, delivery)
        try:
            async with translated(self._timings.call_timeout):
                answer = await method(
                    channel=delivery.channel,
                    thread_ts=delivery.thread_ts,
                    text=message.text,
                    blocks=None if delivery.text_only else message.blocks,
                    metadata={
                        "event_type": _EVENT,
                        "event_payload": {"message": _mark(delivery)},
                    },
                    unfurl_links=False,
                    unfurl_media=False,
                )
                there = _Posted.model_validate(answer.data)
        except Refused as error:
            await self._turned_down(delivery, outgoing.job, error)
        except Unavailable as error:
            await self._wait(delivery, error, method)
        except Uncertain as error:
            _LOG.warning("a post got no usable answer", extra=_about(delivery, error))
            await self._doubt(delivery)
        else:
            self._resume()
            posted = replace(
                delivery,
                state=DeliveryState.POSTED,
                channel=there.channel,
                ts=there.ts,
                shown_version=delivery.version,
                failures=0,
            )
            await self._store.deliveries.release(posted, self._clock.now(), None)

    async def _conversation(self, delivery: Delivery) -> str:
        """Return where direct messages to a person stand, so that one can be looked for there.

        Where the app may not open it, the person's id serves to post.

        Raises:
            Unavailable, Uncertain: Slack did not say; asking again does no harm.
        """
        try:
            async with translated(self._timings.call_timeout):
                answer = await self._client.conversations_open(users=delivery.channel)
                opened = answer["channel"]["id"]
        except Refused as error:
            _LOG.info("a conversation may not be opened", extra=_about(delivery, error))
            return delivery.channel
        except (KeyError, TypeError):
            opened = None
        if not isinstance(opened, str) or not _CONVERSATION.fullmatch(opened):
            raise Uncertain("Slack's answer could not be read.")
        return opened

    async def _doubt(self, delivery: Delivery) -> None:
        now = self._clock.now()
        doubtful = replace(delivery, state=DeliveryState.UNCERTAIN)
        await self._store.deliveries.release(doubtful, now, now + self._timings.post_hold)

    async def _look(self, outgoing: Outgoing) -> None:
        """Look for a message whose post got no answer; post it again if it is not there."""
        delivery = outgoing.delivery
        try:
            ts = await self._find(delivery, outgoing.job)
        except Refused as error:
            if FATES.get(error.code) is Fate.PAUSE and error.code not in _BLIND:
                await self._store.deliveries.release(
                    delivery, self._clock.now(), self._pause(error)
                )
                return
            _LOG.info("a message cannot be looked for", extra=_about(delivery, error))
            ts = None
        except OutsideError as error:
            waiting = replace(delivery, failures=delivery.failures + 1)
            await self._wait(waiting, error, self._client.conversations_history)
            return
        if ts is None:
            owed = replace(delivery, state=DeliveryState.PENDING)
            await self._store.deliveries.release(owed, self._clock.now(), self._clock.now())
            return
        # What it said is not known: a card is edited to be sure, a reply is never edited.
        shown = delivery.version if delivery.role is Role.REPLY else 0
        found = replace(
            delivery, state=DeliveryState.POSTED, ts=ts, shown_version=shown, failures=0
        )
        await self._store.deliveries.release(found, self._clock.now(), None)

    async def _find(self, delivery: Delivery, job: Job) -> str | None:
        if not delivery.channel.startswith(("C", "G", "D")) or delivery.sent_at is None:
            return None  # sent to a person: the conversation that this opened is not known
        arguments: dict[str, Any] = {
            "channel": delivery.channel,
            # Not from when it was sent: a clock may have been wrong then. When the form came it was
            # right, or its signature would have been too old, or too new.
            "oldest": f"{(job.created_at - _SKEW).timestamp():.6f}",
            "include_all_metadata": True,
            "limit": _PAGE,
        }
        method: _Call = self._client.conversations_history
        if delivery.thread_ts is not None:
            method = self._client.conversations_replies
            arguments["ts"] = delivery.thread_ts
        for _ in range(_PAGES):
            async with translated(self._timings.call_timeout):
                page = _Page.model_validate((await method(**arguments)).data)
            for message in page.messages or ():
                if message.mark == _mark(delivery):
                    return message.ts
            if not page.next_cursor:
                return None
            arguments["cursor"] = page.next_cursor
        return None

    # ── Editing ───────────────────────────────────────────────────────────────────────────────

    async def _edit(self, outgoing: Outgoing) -> None:
        delivery, method = outgoing.delivery, self._client.chat_update
        if (until := self._hold(method, delivery)) is not None:
            await self._store.deliveries.release(delivery, self._clock.now(), until)
            return
        message = self._message(outgoing.job, delivery)
        try:
            async with translated(self._timings.call_timeout):
                await method(
                    channel=delivery.channel,
                    ts=delivery.ts or "",
                    text=message.text,
                    blocks=[] if delivery.text_only else message.blocks,
                )
        except Refused as error:
            await self._edit_turned_down(delivery, error)
        except Uncertain as error:
            # It may be sent again, but not at once: Slack may do this one late, after the next.
            _LOG.info("an edit got no usable answer", extra=_about(delivery, error))
            now = self._clock.now()
            waiting = replace(delivery, failures=delivery.failures + 1)
            await self._store.deliveries.release(waiting, now, now + self._timings.post_hold)
        except OutsideError as error:
            waiting = replace(delivery, failures=delivery.failures + 1)
            await self._wait(waiting, error, method)
        else:
            self._resume()
            edited = replace(delivery, shown_version=delivery.version, failures=0)
            await self._store.deliveries.release(edited, self._clock.now(), None)

    async def _edit_turned_down(self, delivery: Delivery, error: Refused) -> None:
        fate, now = FATES.get(error.code), self._clock.now()
        if fate is Fate.PAUSE:
            await self._store.deliveries.release(delivery, now, self._pause(error))
        elif fate is Fate.REWRITE and not delivery.text_only:
            _LOG.error("Slack refuses the blocks of a card", extra=_about(delivery, error))
            await self._store.deliveries.release(replace(delivery, text_only=True), now, now)
        else:
            _LOG.info("a card can no longer be edited", extra=_about(delivery, error))
            await self._store.deliveries.release(
                replace(delivery, shown_version=delivery.version), now, None
            )

    # ── Refusals and waits ────────────────────────────────────────────────────────────────────

    async def _turned_down(self, delivery: Delivery, job: Job, error: Refused) -> None:
        fate, now = FATES.get(error.code), self._clock.now()
        owed = replace(delivery, state=DeliveryState.PENDING, failures=0)
        if fate is Fate.PAUSE:
            await self._store.deliveries.release(owed, now, self._pause(error))
            return
        owed = replace(owed, refusals=delivery.refusals + 1)
        if fate is None and owed.refusals < _PATIENCE:
            _LOG.error("Slack refuses a message for an unknown reason", extra=_about(owed, error))
            await self._store.deliveries.release(
                owed, now, now + self._timings.back_off(owed.refusals)
            )
            return
        if fate is Fate.REWRITE and not delivery.text_only:
            _LOG.error("Slack refuses the blocks of a message", extra=_about(owed, error))
            await self._store.deliveries.release(replace(owed, text_only=True), now, now)
        elif not delivery.direct:
            _LOG.info("a channel takes no message", extra=_about(owed, error))
            direct = replace(owed, direct=True, channel=job.user, thread_ts=None, refusals=0)
            await self._store.deliveries.release(direct, now, now)
        elif owed.refusals < _PATIENCE:
            _LOG.warning("a person takes no message", extra=_about(owed, error))
            again = replace(owed, channel=job.user, thread_ts=None)
            await self._store.deliveries.release(
                again, now, now + self._timings.back_off(owed.refusals)
            )
        else:
            _LOG.error("a message could be posted nowhere", extra=_about(owed, error))
            await self._store.deliveries.release(
                replace(owed, state=DeliveryState.UNDELIVERABLE), now, None
            )

    async def _wait(self, delivery: Delivery, error: OutsideError, method: _Call) -> None:
        """Put a delivery back; where Slack asks to wait, hold back what would hear the same."""
        now = self._clock.now()
        asked_for = error.retry_after if isinstance(error, Unavailable) else None
        if delivery.state is DeliveryState.PENDING:
            delivery = replace(delivery, failures=delivery.failures + 1)
        wait = min(
            asked_for or self._timings.back_off(max(1, delivery.failures)), self._timings.max_wait
        )
        until = now + self._timings.jittered(wait, self._rng)
        if asked_for is not None:
            self._held = {key: at for key, at in self._held.items() if at > now}
            self._held[_key(method, delivery)] = now + wait
        await self._store.deliveries.release(delivery, now, until)

    def _hold(self, method: _Call, delivery: Delivery) -> datetime | None:
        until = self._held.get(_key(method, delivery))
        return until if self._is_ahead(until) else None

    def _is_ahead(self, until: datetime | None) -> bool:
        """Return whether to wait until then; not where the clock was set back since."""
        now = self._clock.now()
        return until is not None and now < until <= now + self._timings.max_wait

    def _pause(self, error: Refused) -> datetime:
        if self._paused_until is None:
            _LOG.error("Slack takes nothing from this app", extra={"code": error.code})
        self._paused_until = self._clock.now() + self._timings.pause
        return self._paused_until

    def _resume(self) -> None:
        if self._paused_until is not None:
            _LOG.info("Slack takes messages again")
            self._paused_until = None

    def _message(self, job: Job, delivery: Delivery) -> Message:
        message = compose(delivery, job, self._faces)
        return elsewhere(message, job) if delivery.direct else message


def _placed(outgoing: Outgoing) -> Delivery:
    """Return the delivery with the place where it belongs: a reply follows its card."""
    delivery, card = outgoing.delivery, outgoing.card
    if delivery.role is Role.CARD or delivery.direct:
        return delivery
    if card.ts is None:
        return replace(delivery, direct=True, channel=outgoing.job.user, thread_ts=None)
    thread_ts = card.ts if card.direct else outgoing.job.thread_ts or card.ts
    return replace(delivery, channel=card.channel, thread_ts=thread_ts)


def _mark(delivery: Delivery) -> str:
    return f"{delivery.job_id}/{delivery.role.value}"


def _key(method: _Call, delivery: Delivery) -> tuple[str, str]:
    return getattr(method, "__name__", ""), delivery.channel


def _about(delivery: Delivery, error: Exception) -> dict[str, str]:
    return {"job": delivery.job_id, "role": delivery.role.value, "reason": str(error)}
