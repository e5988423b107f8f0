"""Posts and edits the messages that are due: each post once, whenever the process dies.

A post that got no answer waits, is searched for by its metadata, and only then is posted again.
Searching needs the history scopes; without them it is posted again after the wait. At the end is
what a delivery says, in which form, and where it goes.
"""

import logging
import random
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from pydantic import AliasPath, Field

from bot.errors import Refused, Unavailable
from bot.metrics import Metrics
from bot.model import Delivery, DeliveryState, Job, Role, State, notice_day
from bot.service.media import VideoSource
from bot.slack.access import CONVERSATIONS
from bot.slack.client import EVERYTHING, CallLimits
from bot.slack.context import HandlerContext
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.outbox import Outbox, accepted, log_fields
from bot.slack.outbox.files import Uploads
from bot.slack.outbox.find import PostSearch, metadata_for, permalink
from bot.slack.payloads import Payload
from bot.slack.views.blocks import (
    MAX_TEXT,
    Json,
    Message,
    listed,
    short_name,
    shortened,
)
from bot.slack.views.card import card, ended_outside, redirected, reply
from bot.slack.views.failures import AN_ADMIN, FOR_ADMINS
from bot.slack.views.question import (
    approval_request,
    notice_of_day,
    people_asked,
    questions,
    training_notice,
)
from bot.slack.views.usage import month_so_far
from bot.store import Claimed, Limited, Outgoing, covering
from bot.timings import deadline

_LOG: Final = logging.getLogger(__name__)
# Posts of a message that a user does not accept, or that is refused for an unknown reason.
_MAX_REFUSALS: Final = 6
# Calls of conversations.open before a direct message is posted to the user's id, and questions who
# reads a channel before what is owed there is posted as a direct message.
_MAX_OPENINGS: Final = 3
_OPEN: Final = "conversations.open"
# An unknown code, or one about metadata where none were sent.
_UNEXPECTED: Final = {None, ErrorAction.WITHOUT_METADATA}
# A refusal of so few bytes of text is not for their number.
_MIN_TEXT: Final = 100
_NOT_SAID: Final = "Slack does not say who reads a channel"
_OUTSIDE: Final = "another organization reads the channel, or may"


class _Posted(Payload):
    """Slack's answer to a post: where the message is."""

    channel: str = Field(pattern=r"^[A-Z0-9]+$")
    ts: str = Field(pattern=r"^[0-9]+\.[0-9]+$")


class _Opened(Payload):
    """https://docs.slack.dev/reference/methods/conversations.open."""

    id: str = Field(pattern=r"^[CDG][A-Z0-9]+$", validation_alias=AliasPath("channel", "id"))


class Messenger(Outbox):
    """Takes claimed deliveries one step further.

    Slack's client must not retry a call by itself: a message would be posted twice. Admins are
    mentioned in questions, and asked first with ``admins_first``. ``videos`` fetches what is shown
    in Slack; None if nothing is.
    """

    def __init__(
        self,
        ctx: HandlerContext,
        *,
        admins_first: bool,
        rng: random.Random,
        join_channels: bool,
        metrics: Metrics,
        videos: VideoSource | None = None,
    ) -> None:
        limits: CallLimits[Limited] = CallLimits(ctx.clock, ctx.timings.max_wait)
        super().__init__(ctx, rng, limits)
        self.due = ctx.store.deliveries.due
        self._admins_first = admins_first
        self._metrics = metrics
        self._lost_posts = PostSearch(ctx.client, ctx.timings, join_channels)
        self._uploads = Uploads(ctx, rng, limits, videos)
        self._without_metadata: set[int] = set()  # deliveries

    async def hold_interrupted_edits(self) -> None:
        """Delay the edits of an earlier process that may be under way: Slack may apply them late.

        A newer one that is applied before them would be undone. A lost claim shows no more than
        that an edit was owed, so all of those wait.
        """
        if self._ctx.store.database.is_sole_process:
            await self._ctx.store.deliveries.hold_edits(
                self._ctx.clock.now() + self._ctx.timings.post_hold
            )

    async def hasten(self) -> None:
        """Make messages due that wait for Slack: it answers again.

        None is sent earlier than after a post without an answer: Slack may do what it lost late.
        """
        while hastened := await self._ctx.store.deliveries.hasten(
            self._ctx.clock.now(), self._ctx.timings.post_hold
        ):
            _LOG.info("messages are tried again", extra={"messages": hastened})

    async def claim(self, limit: int, held: Collection[Outgoing] = ()) -> Claimed[Outgoing]:
        """Lease up to ``limit`` due deliveries not ``held``; none during a pause.

        None while Slack refuses our token either. Under a rate limit, one at a time is claimed.
        """
        if self._ctx.calls.refusal:
            return Claimed(next_due=self._ctx.clock.now() + self._ctx.timings.pause)
        if (paused_until := self._ctx.calls.limits.until(EVERYTHING)) is not None:
            return Claimed(next_due=paused_until)
        claimed = await self._ctx.store.deliveries.claim(
            self._ctx.clock.now(), limit, [each.delivery for each in held], self._limits.current()
        )
        for each in claimed:
            limited = covering(each.delivery)
            posts = limited.state == DeliveryState.PENDING
            interval = self._ctx.timings.post_interval if posts else self._ctx.timings.call_interval
            self._limits.begin(limited, interval)
        return claimed

    async def step(self, outgoing: Outgoing) -> None:
        """Take a claimed delivery one step further."""
        if outgoing.job.kind not in self._ctx.presenters:
            return  # its job is logged; another claim follows when its lease ends
        if (until := self._day_ends(outgoing)) is not None and until > self._ctx.clock.now():
            wait = min(until, self._ctx.clock.now() + self._ctx.timings.max_wait)
            await self._release(outgoing.delivery, wait)
            return
        async with self._failures(outgoing.delivery, self._look_up_refused):
            is_pending = outgoing.delivery.state is DeliveryState.PENDING
            if is_pending and not await self._stays_inside(outgoing):
                return
            if outgoing.delivery.role.is_file:
                await self._uploads.step(outgoing)
                return
            match outgoing.delivery.state:
                case DeliveryState.PENDING:
                    await self._post(outgoing)
                case DeliveryState.SENDING:
                    await self._hold_back(outgoing.delivery)
                case DeliveryState.UNCERTAIN:
                    await self._search(outgoing)
                case DeliveryState.POSTED:
                    await self._edit(outgoing)
                case DeliveryState.UNDELIVERABLE:
                    await self._release(outgoing.delivery)

    def _day_ends(self, outgoing: Outgoing) -> datetime | None:
        """Return when the day ends that a notice is about; None of all else."""
        job = outgoing.job
        uses = job.kind not in self._ctx.store.limits.settings.trainings
        if outgoing.delivery.role is not Role.NOTICE or not uses or job.ended_at is None:
            return None
        return notice_day(job.ended_at) + timedelta(days=1)

    # ── Posting ───────────────────────────────────────────────────────────────────────────────

    async def _post(self, outgoing: Outgoing) -> None:
        delivery = placed(outgoing)
        if covering(delivery) != covering(outgoing.delivery) and (
            covering(delivery) in self._limits.current()
        ):
            await self._release(delivery, self._ctx.clock.now())  # it is claimed under the limit
            return
        # If Slack keeps failing to open the conversation, the user's id is used to post.
        person = addressee(delivery, outgoing.job)
        if delivery.channel == person and delivery.failures < _MAX_OPENINGS:
            delivery = replace(delivery, channel=await self._open_conversation(delivery))
        if may_be_in_slack(delivery, outgoing.job):
            await self._search_first(delivery)
            return
        message = await self._message(outgoing, delivery)
        if not await self._begin(delivery, outgoing.marked_at):
            return
        refused = partial(self._post_refused, outgoing.job)
        async with self._failures(delivery, refused, once=True):
            async with translated(self._ctx.timings.call_timeout, self._ctx.calls.outages):
                answer = await self._ctx.client.chat_postMessage(
                    channel=delivery.channel,
                    thread_ts=delivery.thread_ts,
                    reply_broadcast=is_broadcast(delivery, outgoing.job) or None,
                    text=message.text,
                    blocks=message.blocks or None,
                    metadata=self._metadata(delivery),
                    unfurl_links=False,
                    unfurl_media=False,
                )
                posted = _Posted.model_validate(answer.data)
            self._without_metadata.discard(delivery.id)
            self._measure(outgoing)
            await self._release_posted(
                outgoing, replace(accepted(delivery), channel=posted.channel, ts=posted.ts)
            )

    async def _open_conversation(self, delivery: Delivery) -> str:
        """Return the conversation with the user of a direct message, so that it can be found there.

        If the app may not open it, this is the user's id, which also accepts posts.

        Raises:
            Unavailable, Uncertain: Slack did not answer; asking again does no harm.
            Refused: who is asked for approval has left the workspace.
        """
        try:
            opened = await self._call(
                _Opened, _OPEN, lambda: self._ctx.client.conversations_open(users=delivery.channel)
            )
        except Refused as error:
            _LOG.info("a conversation may not be opened", extra=log_fields(delivery, error))
            if error.code == "user_disabled" and delivery.role is Role.APPROVAL:
                raise
            return delivery.channel
        return opened.id

    async def _search_first(self, delivery: Delivery) -> None:
        """Have a message searched for before it is posted for the first time."""
        if await self._ctx.store.deliveries.mark_sending(delivery, self._ctx.clock.now()):
            searched = replace(delivery, state=DeliveryState.UNCERTAIN)
            await self._release(searched, self._ctx.clock.now())

    async def _search(self, outgoing: Outgoing) -> None:
        """Search for a message whose post got no answer; post it again if it is not there."""
        delivery = placed(outgoing)  # a claim that marks a reply does not store its thread
        if delivery.channel == addressee(delivery, outgoing.job):
            # Posted to the user's id: it is in the conversation that this has opened.
            delivery = replace(delivery, channel=await self._open_conversation(delivery))
        ts = await self._lost_posts.find(delivery, outgoing.job.created_at)
        if ts is not None and await self._ctx.store.deliveries.is_other(delivery, ts):
            ts = None  # the newest reply of a thread that cannot be read
        if ts is None:
            pending = replace(delivery, state=DeliveryState.PENDING)
            await self._release(pending, self._ctx.clock.now())
            return
        self._measure(outgoing)
        # Which version it shows is not known: a card is edited to be sure, and an approval, which
        # may be older than a backup. The others are posted in their first version.
        shown = 0 if delivery.role in {Role.CARD, Role.APPROVAL} else 1
        await self._release_posted(
            outgoing, replace(delivery, ts=ts, shown_version=shown, failures=0)
        )

    async def _look_up_refused(self, delivery: Delivery, error: Refused) -> None:
        """Go on with a delivery before whose post something was asked that Slack refused."""
        if delivery.state is DeliveryState.PENDING:  # the approver has left
            await self._ctx.store.jobs.give_up_asking(delivery, self._ctx.clock.now())
            return
        _LOG.info("a message cannot be searched for", extra=log_fields(delivery, error))
        pending = replace(delivery, state=DeliveryState.PENDING)
        await self._release(pending, self._ctx.clock.now())

    async def _release_posted(self, outgoing: Outgoing, delivery: Delivery) -> None:
        """Store that a message is in Slack, and owe the files that follow it."""
        posted = replace(delivery, state=DeliveryState.POSTED)
        # Below a reply that a backup did not know yet, the files may be too.
        is_found = outgoing.job.copied and outgoing.delivery.state is DeliveryState.UNCERTAIN
        following = () if is_found else self._uploads.following(outgoing, posted)
        retried = outgoing.job.retry_of if delivery.role is Role.CARD else None
        if delivery.role is Role.REPLY and outgoing.job.state is State.SUCCEEDED:
            until, asked_at = deadline(self._ctx.timings.name_timeout), outgoing.job.created_at
            is_public = await self._ctx.access.is_public(delivery.channel, until, asked_at)
            posted = replace(posted, public=is_public)
        await self._ctx.store.deliveries.release(
            posted, self._ctx.clock.now(), None, following=following, retried=retried
        )

    # ── Editing ───────────────────────────────────────────────────────────────────────────────

    async def _edit(self, outgoing: Outgoing) -> None:
        delivery, job = outgoing.delivery, outgoing.job
        asks = delivery.role is Role.APPROVAL and delivery.settled_as is None
        if asks and not await self._stays_inside(outgoing):
            return
        is_read_outside = False
        if job.state.ended and delivery.role in {Role.CARD, Role.APPROVAL}:
            # It would show links, or why it failed.
            is_read_outside = await self._is_read_outside(delivery, job)
            if is_read_outside:
                outgoing = replace(outgoing, job=replace(job, reason=""))
        message = await self._message(outgoing, delivery)
        if is_read_outside and delivery.role is Role.CARD:
            message = ended_outside(self._ctx.presenters[job.kind])
        async with self._failures(delivery, self._edit_refused, once=True):
            async with translated(self._ctx.timings.call_timeout, self._ctx.calls.outages):
                await self._ctx.client.chat_update(
                    channel=delivery.channel,
                    ts=delivery.ts or "",
                    text=message.text,
                    blocks=message.blocks,
                    metadata=self._metadata(delivery) if asks else None,
                )
            await self._release(accepted(delivery))

    async def _edit_refused(self, delivery: Delivery, error: Refused) -> None:
        if await self._is_tried_again(delivery, error):
            return
        if delivery.role is Role.APPROVAL and delivery.settled_as is None:
            # It may say something else still: the message that asks has to be seen.
            anew = replace(delivery, state=DeliveryState.PENDING, ts=None, refusals=0)
            await self._release(anew, self._ctx.clock.now())
        else:
            given_up = replace(delivery, shown_version=delivery.version, refusals=0)
            if ERROR_ACTIONS.get(error.code) in _UNEXPECTED:
                _LOG.error("an edit was given up", extra=log_fields(delivery, error))
            else:
                _LOG.info("a card can no longer be edited", extra=log_fields(delivery, error))
            await self._release(given_up)

    # ── Refusals and waits ────────────────────────────────────────────────────────────────────

    async def _is_tried_again(self, delivery: Delivery, error: Refused) -> bool:
        """Return whether a message that Slack refused is sent again, maybe in another form."""
        action, now = ERROR_ACTIONS.get(error.code), self._ctx.clock.now()
        refused = replace(delivery, failures=0, refusals=delivery.refusals + 1)
        if action is ErrorAction.WITHOUT_METADATA and delivery.id not in self._without_metadata:
            # Without them it is not found, should its answer be lost, and may be posted twice.
            _LOG.error("Slack refuses metadata", extra=log_fields(delivery, error))
            self._without_metadata.add(delivery.id)
            await self._release(delivery, now)
        elif action in _UNEXPECTED and refused.refusals < _MAX_REFUSALS:
            _LOG.error(
                "Slack refuses a message for an unknown reason", extra=log_fields(refused, error)
            )
            await self._release(refused, now + self._ctx.timings.back_off(refused.refusals))
        elif action is ErrorAction.REWRITE and can_be_rewritten(delivery):
            _LOG.error("Slack refuses the form of a message", extra=log_fields(refused, error))
            await self._release(rewritten(refused), now)
        else:
            return False
        return True

    async def _post_refused(self, job: Job, delivery: Delivery, error: Refused) -> None:
        if await self._is_tried_again(delivery, error):
            return
        now, refused = self._ctx.clock.now(), replace(delivery, refusals=delivery.refusals + 1)
        if not delivery.direct:
            await self._post_directly(delivery, job, error)
        elif refused.refusals < _MAX_REFUSALS:
            _LOG.warning("a user does not accept a message", extra=log_fields(refused, error))
            retry_at = now + self._ctx.timings.back_off(refused.refusals)
            await self._release(redirect(refused, job), retry_at)
        else:
            _LOG.error("a message could be posted nowhere", extra=log_fields(refused, error))
            if delivery.role is Role.APPROVAL:
                await self._ctx.store.jobs.give_up_asking(delivery, now)
                return
            await self._release(replace(refused, state=DeliveryState.UNDELIVERABLE))

    async def _post_directly(self, delivery: Delivery, job: Job, why: Exception | str) -> None:
        """Have a message posted to the person it is for, not in its channel."""
        now = self._ctx.clock.now()
        if delivery.role is Role.APPROVAL:
            _LOG.warning("approvers are asked directly", extra=log_fields(delivery, why))
            await self._ctx.store.jobs.give_up_asking(delivery, now)
            return
        _LOG.info("a channel does not get a message", extra=log_fields(delivery, why))
        await self._release(redirect(replace(delivery, failures=0, refusals=0), job), now)

    async def _stays_inside(self, outgoing: Outgoing) -> bool:
        """Return whether a message may be posted where it is to go; if not, see to the rest."""
        delivery, job = outgoing.delivery, outgoing.job
        delivery = delivery if delivery.role.is_file else placed(outgoing)
        is_read_outside = await self._is_read_outside(delivery, job)
        if is_read_outside and delivery.role.is_file:
            await self._uploads.give_up(delivery, _OUTSIDE)
        elif is_read_outside:
            await self._post_directly(delivery, job, _OUTSIDE)
        return not is_read_outside

    async def _is_read_outside(self, delivery: Delivery, job: Job) -> bool:
        """Return whether other organisations read the channel of a delivery, or may.

        What Slack said when the request was made counts for a while; an approval goes elsewhere.

        Raises:
            Unavailable: Slack does not say; it may be asked again.
        """
        latest = deadline(self._ctx.timings.call_timeout)
        asked_at = None if delivery.role is Role.APPROVAL else job.created_at
        is_read_outside = await self._ctx.access.is_read_outside(delivery.channel, asked_at, latest)
        if is_read_outside is not None:
            return is_read_outside
        if (until := self._ctx.calls.limits.until(CONVERSATIONS)) is not None:
            raise Unavailable(_NOT_SAID, retry_after=until - self._ctx.clock.now())
        if delivery.failures < _MAX_OPENINGS or self._ctx.calls.outages.current is not None:
            raise Unavailable(_NOT_SAID)
        return True

    def _metadata(self, delivery: Delivery) -> Json | None:
        return None if delivery.id in self._without_metadata else metadata_for(delivery)

    def _measure(self, outgoing: Outgoing) -> None:
        """Measure how long a message took that is in Slack now, if it is a closing reply."""
        job, now = outgoing.job, self._ctx.clock.now()
        if outgoing.delivery.role is Role.REPLY:
            self._metrics.replied(
                job.kind, job.state.value, now - job.created_at, now - (job.ended_at or now)
            )

    async def _message(self, outgoing: Outgoing, delivery: Delivery) -> Message:
        """Return what a delivery says now, in the form that Slack has not refused yet."""
        message = await self._said(outgoing, delivery)
        if delivery.direct and delivery.addressee is None:  # others are not for who asked
            message = redirected(message, outgoing.job, self._ctx.access.bot_name)
        return as_sent(message, delivery)

    async def _said(self, outgoing: Outgoing, delivery: Delivery) -> Message:
        """Return what a delivery says now, in full form."""
        job, presenters, store = outgoing.job, self._ctx.presenters, self._ctx.store
        presenter, admins = presenters[job.kind], store.limits.current.admins
        if delivery.role is Role.QUESTION:
            first = self._admins_first
            return questions(delivery, job, outgoing.listed, presenters, admins, admins_first=first)
        until = deadline(self._ctx.timings.name_timeout)
        if delivery.role is Role.NOTICE:
            is_of_day = self._day_ends(outgoing) is not None
            if is_of_day and (made := await store.jobs.list_of_day(job)):
                return notice_of_day(made, await self._ctx.access.public(made, until), presenters)
            return training_notice(job, presenter.name(job))
        approvers = store.jobs.approvals.people(job.user)
        used = presenter.replica_id(job) or ""
        replica = store.replicas.names({used}).get(used, "")
        if delivery.role is Role.APPROVAL:
            counted = store.limits.used("", self._ctx.clock.now())["max_per_month"]
            month = month_so_far(counted, store.limits.current.max_per_month)
            return approval_request(
                delivery,
                job,
                presenter,
                approvers,
                replica=replica,
                month=month,
                price=self._ctx.price,
            )
        people = people_named(delivery, job, approvers, admins)
        found = await self._ctx.access.names(people, until)
        names = {user: safe for user, name in found.items() if (safe := short_name(name))}
        known = [names[each] for each in sorted(admins) if each in names]
        who, retry = listed(known, "or") if known else AN_ADMIN, None
        if (retried := outgoing.retry) is not None:
            # Others cannot open a direct message.
            is_open = retried.ts is not None and not retried.direct
            retry = await permalink(self._ctx.client, retried, self._ctx.timings) if is_open else ""
        if delivery.role is Role.REPLY:
            return reply(job, presenter, retry=retry, names=names, who=who)
        return card(
            job,
            presenter,
            replica=replica,
            retry=retry,
            approvers=approvers,
            names=names,
            who=who,
        )


# ── What is said, in which form, and where ────────────────────────────────────────────────────────


def people_named(
    delivery: Delivery, job: Job, approvers: Collection[str] = (), admins: Collection[str] = ()
) -> set[str]:
    """Return the ids of those whose names a card or a reply says instead of mentioning them."""
    people = {job.user} if delivery.role is Role.CARD else set[str]()
    if FOR_ADMINS & {job.held_by, job.failure}:
        people.update(admins)
    if (approval := job.approval) is not None:
        if approval.decided_by is not None:
            people.add(approval.decided_by)
        if job.state is State.WAITING_FOR_APPROVAL:
            people.update(people_asked(approval, approvers))
    return people


def as_sent(message: Message, delivery: Delivery) -> Message:
    """Return a delivery's message in the form that Slack has not refused yet.

    Each refusal of a text alone halves it, so that a limit that we do not know ends that too.
    """
    if not delivery.rewrites:
        return message
    return Message(shortened(message.text, _text_limit(delivery)))


def can_be_rewritten(delivery: Delivery) -> bool:
    """Return whether there is another form to try."""
    return not delivery.rewrites or _text_limit(delivery) > _MIN_TEXT


def rewritten(delivery: Delivery) -> Delivery:
    """Return a delivery, whose form was refused, in the next one."""
    return replace(delivery, rewrites=delivery.rewrites + 1, refusals=0)


def _text_limit(delivery: Delivery) -> int:
    """Return how many bytes of text a delivery without blocks may have."""
    return MAX_TEXT >> (delivery.rewrites - 1)


def placed(outgoing: Outgoing) -> Delivery:
    """Return the delivery with its channel and thread: below the card, unless it has its own."""
    delivery, card = outgoing.delivery, outgoing.card
    if delivery.role in {Role.CARD, Role.APPROVAL} or delivery.direct:
        return delivery
    if card.ts is None:
        return redirect(delivery, outgoing.job)
    thread_ts = card.ts if card.direct else outgoing.job.thread_ts or card.ts
    return replace(delivery, channel=card.channel, thread_ts=thread_ts)


def addressee(delivery: Delivery, job: Job) -> str:
    """Return the user to whom a delivery goes directly, always or if a channel refuses it."""
    return delivery.addressee or job.user


def redirect(delivery: Delivery, job: Job) -> Delivery:
    """Return the delivery as a direct message to the user who asked."""
    return replace(delivery, direct=True, channel=addressee(delivery, job), thread_ts=None)


def is_broadcast(delivery: Delivery, job: Job) -> bool:
    """Return whether a reply is shown in its channel too, and not in the thread alone.

    Not once Slack has refused its form: it may be this.
    """
    in_thread = delivery.thread_ts is not None and delivery.channel.startswith(("C", "G"))
    is_good = delivery.role is Role.REPLY and job.state is State.SUCCEEDED
    return job.tell_channel and is_good and in_thread and not delivery.rewrites


def may_be_in_slack(delivery: Delivery, job: Job) -> bool:
    """Return whether a message that is not posted yet, as far as we know, may be in Slack.

    It may if its job comes from a backup, until it is posted or searched for. A question is asked
    again: what it asks is open again.
    """
    return job.copied and delivery.sent_at is None and delivery.role is not Role.QUESTION
