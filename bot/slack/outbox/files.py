"""Shares a transcript or a video as a file in a thread: once, whenever the process dies.

Slack takes a file in three steps: a URL for its content, the content, and the call that shares it
(https://docs.slack.dev/messaging/working-with-files#uploading_files). The first two show nothing to
anybody, and are repeated. The file's id is stored before the third: if that got no answer, Slack is
asked whether the file is shared.

A file follows the closing reply, which has the link and the mention, and waits for nothing: Slack
shares a file some time after it has answered, and what is posted next may be above it
(https://github.com/slackapi/node-slack-sdk/issues/2260).
"""

import asyncio
import io
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import IO, Final, TypeAlias

from pydantic import AliasPath, Field

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.model import Delivery, DeliveryState, Job, Role
from bot.service.media import VideoSource, reader_of, temporary_file
from bot.slack.client import CallLimits, is_slacks
from bot.slack.context import HandlerContext
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.installation import FILE_SCOPES
from bot.slack.outbox import Outbox, accepted, log_fields
from bot.slack.outbox.find import CANNOT_LOOK
from bot.slack.payloads import Payload, Shares
from bot.slack.views.blocks import title
from bot.slack.views.card import FILE_COMMENT, file_name, needs_file
from bot.store import Limited, Outgoing

_LOG: Final = logging.getLogger(__name__)
_WORKSPACE: Final = ""
_GET_URL: Final = "files.getUploadURLExternal"
_NO_SUCH_FILE: Final = "file_not_found"
# Opens what is sent: aiohttp closes it, in a thread of its own.
_Content: TypeAlias = Callable[[], IO[bytes]]
# Times that one file is begun again, fetched or looked for in vain. With the waits between, half an
# hour: a video's host may be down for as long as a deploy of it takes.
_MAX_TRIES: Final = 13


class _Ticket(Payload):
    """https://docs.slack.dev/reference/methods/files.getUploadURLExternal."""

    upload_url: str
    file_id: str = Field(pattern=r"^F[A-Z0-9]+$")


class _File(Payload):
    """The answer of files.info: https://docs.slack.dev/reference/methods/files.info."""

    shares: Shares = Field(default=Shares(), validation_alias=AliasPath("file", "shares"))


@dataclass(frozen=True, slots=True)
class _Attachment:
    """A file as it is shared: its ``content`` is a text, or an MP4 at this address."""

    name: str
    comment: str
    content: bytes | str


class _NotTaken(Exception):
    """The content of a file did not get to Slack; ``str()`` says why."""


class Uploads(Outbox):
    """Takes claimed files one step further. ``videos`` is None if no video is shown in Slack."""

    def __init__(
        self,
        ctx: HandlerContext,
        rng: random.Random,
        limits: CallLimits[Limited],
        videos: VideoSource | None,
    ) -> None:
        super().__init__(ctx, rng, limits)
        self._videos = videos
        # By role and channel, or for the workspace: where no such file is shared for a while.
        self._refused_in: CallLimits[tuple[Role, str]] = CallLimits(
            ctx.clock, ctx.timings.retry_files
        )

    def following(self, outgoing: Outgoing, posted: Delivery) -> Sequence[Role]:
        """Return the roles of the files that follow a message that was posted."""
        if posted.role is not Role.REPLY:
            return ()
        job, presenter = outgoing.job, self._ctx.presenters[outgoing.job.kind]
        roles = []
        if self._videos is not None and presenter.clip(job) is not None:
            roles.append(Role.CLIP)
        if needs_file(job, presenter):
            roles.append(Role.TRANSCRIPT)
        return [role for role in roles if self._can_share(role, posted.channel)]

    async def step(self, outgoing: Outgoing) -> None:
        """Take a claimed file one step further."""
        async with self._failures(outgoing.delivery, self._refused):
            match outgoing.delivery.state:
                case DeliveryState.PENDING:
                    await self._send(outgoing.delivery, outgoing.job)
                case DeliveryState.SENDING:
                    await self._hold_back(outgoing.delivery)
                case DeliveryState.UNCERTAIN:
                    await self._look(outgoing.delivery)
                case _:
                    await self._release(outgoing.delivery)

    # ── The three steps ───────────────────────────────────────────────────────────────────────

    async def _send(self, delivery: Delivery, job: Job) -> None:
        file = self._attachment(delivery.role, job)
        if file is None or not self._can_share(delivery.role, delivery.channel):
            await self.give_up(delivery, "it is erased, or files are refused there")
            return
        if delivery.file_id is None:
            try:
                uploaded = replace(delivery, file_id=await self._upload(file))
            except _NotTaken as error:
                await self._try_again(delivery, str(error))
                return
            if delivery.is_transfer:  # it may have taken long: what is posted meanwhile goes first
                await self._release(uploaded, self._ctx.clock.now())
                return
            delivery = uploaded
        async with self._failures(delivery, self._refused):  # it has the file's id now
            await self._share(delivery, file)

    async def _share(self, delivery: Delivery, file: _Attachment) -> None:
        if not await self._begin(delivery):
            return
        async with self._failures(delivery, self._refused, once=True):
            await self._call(
                Payload,
                "files.completeUploadExternal",
                lambda: self._ctx.client.files_completeUploadExternal(
                    files=[{"id": delivery.file_id, "title": file.name}],
                    channel_id=delivery.channel,
                    thread_ts=delivery.thread_ts,
                    initial_comment=file.comment,
                ),
            )
            await self._shared(delivery)

    def _attachment(self, role: Role, job: Job) -> _Attachment | None:
        """Return the file of a job; None if there is none any more."""
        presenter = self._ctx.presenters[job.kind]
        name = title(presenter.name(job))
        if role is Role.CLIP:
            clip = presenter.clip(job)
            if clip is None:
                return None
            name = file_name(name, otherwise=presenter.noun.capitalize(), ending="mp4")
            return _Attachment(name, clip.comment, clip.url)
        text = presenter.transcript(job).strip().encode()
        return _Attachment(file_name(name), FILE_COMMENT, text) if text else None

    async def _upload(self, file: _Attachment) -> str:
        """Return the id of a file that is at Slack, which shows it to nobody yet.

        Raises:
            _NotTaken: it may be the next time.
            Refused, Unavailable, Uncertain: Slack has no URL for it, or it cannot be fetched.
        """
        if isinstance(file.content, str):
            return await self._transfer(file.name, file.content)
        content = partial(io.BytesIO, file.content)
        size = len(file.content)
        return await self._hand_over(file.name, content, size, self._ctx.timings.call_timeout)

    async def _transfer(self, name: str, link: str) -> str:
        """Return the id of a video that was fetched and is at Slack.

        Raises:
            _NotTaken: it may be the next time.
            Refused, Unavailable, Uncertain: Slack has no URL for it, or it cannot be fetched.
        """
        if self._videos is None:
            raise Refused("MEDIA_HOSTS is not set any more", code="host")
        if (until := self._ctx.calls.limits.until(_GET_URL)) is not None:
            raise Unavailable("Slack asks to wait.", retry_after=until - self._ctx.clock.now())
        limit = self._ctx.timings.transfer_timeout
        try:
            async with asyncio.timeout(limit.total_seconds()):
                with temporary_file() as content:
                    try:
                        size = await self._videos.fetch(link, content)
                    except Unavailable as error:
                        raise _NotTaken(error.reason) from error
                    return await self._hand_over(name, partial(reader_of, content), size, limit)
        except TimeoutError as error:
            raise _NotTaken(f"it took longer than {limit.total_seconds():g} s") from error

    async def _hand_over(
        self, name: str, content: _Content, size: int, time_limit: timedelta
    ) -> str:
        """Return the id of a file once its content is at Slack.

        Raises:
            _NotTaken: Slack has no content. It may be sent again, to another URL.
            Refused, Unavailable, Uncertain: Slack has no URL for it.
        """
        ticket = await self._call(
            _Ticket,
            _GET_URL,
            lambda: self._ctx.client.files_getUploadURLExternal(filename=name, length=size),
        )
        try:
            await self._send_content(ticket.upload_url, content, time_limit)
        except OutsideError as error:
            raise _NotTaken(error.reason) from error
        return ticket.file_id

    async def _send_content(self, url: str, content: _Content, time_limit: timedelta) -> None:
        """Send the content of a file to the URL for it, which is of another host than the methods.

        Raises:
            OutsideError: it may not be there. It may be sent again, to another URL.
        """
        session = self._ctx.client.session
        async with translated(time_limit):
            if session is None or not is_slacks(url, self._ctx.client.base_url):
                raise Uncertain("Slack's answer could not be read.")
            async with session.post(url, data=content(), allow_redirects=False) as answer:
                status = answer.status
        if status != HTTPStatus.OK:
            raise Unavailable(f"Slack did not take the content ({status})")

    # ── Looking for a file ────────────────────────────────────────────────────────────────────

    async def _look(self, delivery: Delivery, *, is_open: bool = True) -> None:
        """Find out whether a file is shared, and go on with it if it is not.

        ``is_open``: whether its upload may still be completed. "This method can only be called
        once" (https://docs.slack.dev/reference/methods/files.completeUploadExternal): a second call
        shares what the first did not, and is refused if the first did.
        """
        try:
            found = await self._call(
                _File,
                "files.info",
                lambda: self._ctx.client.files_info(file=delivery.file_id or ""),
            )
        except Refused as error:
            if error.code != _NO_SUCH_FILE:
                raise
            found = None
        # It was uploaded for one thread alone.
        if found and delivery.channel in {*found.shares.public, *found.shares.private}:
            await self._shared(delivery)
        elif is_open:
            await self._release(
                replace(delivery, state=DeliveryState.PENDING), self._ctx.clock.now()
            )
        elif found is None:  # "the uploaded file and associated metadata will be discarded"
            begun_again = replace(delivery, state=DeliveryState.PENDING, file_id=None)
            await self._try_again(begun_again, "Slack discarded the upload")
        else:
            # "There can be a visible delay": https://github.com/slackapi/python-slack-sdk/issues/1277
            await self._try_again(
                replace(delivery, state=DeliveryState.UNCERTAIN), "Slack has not shared it"
            )

    # ── Refusals and waits ────────────────────────────────────────────────────────────────────

    def _can_share(self, role: Role, channel: str) -> bool:
        """Return whether nothing is known that keeps a file from a channel."""
        installation = self._ctx.installation.current
        scopes = None if installation is None else installation.scopes
        refused = any(self._refused_in.until((role, each)) for each in (_WORKSPACE, channel))
        return not refused and (scopes is None or scopes >= FILE_SCOPES)

    async def _refused(self, delivery: Delivery, error: Refused) -> None:
        if error.code == _NO_SUCH_FILE:
            await self._look(delivery, is_open=False)
            return
        action = ERROR_ACTIONS.get(error.code)
        # "Make sure your app is a member of the conversation": no_permission.
        if action is ErrorAction.REDIRECT or error.code == "no_permission":
            self._refused_in.limit((delivery.role, delivery.channel), self._ctx.timings.retry_files)
        elif action is ErrorAction.WITHOUT_FILE or error.code in CANNOT_LOOK:
            self._refused_in.limit((delivery.role, _WORKSPACE), self._ctx.timings.retry_files)
        await self.give_up(delivery, str(error))

    async def give_up(self, delivery: Delivery, reason: str) -> None:
        """Share no file: the reply has the link, and says where the whole transcript is."""
        _LOG.warning("a file is not shared", extra=log_fields(delivery, reason))
        await self._release(replace(delivery, state=DeliveryState.UNDELIVERABLE))

    async def _try_again(self, delivery: Delivery, reason: str) -> None:
        """Go on later with a file that cannot be had, or that Slack did not take, a few times."""
        delivery = replace(delivery, refusals=delivery.refusals + 1)
        if delivery.refusals >= _MAX_TRIES:
            await self.give_up(delivery, reason)
            return
        wait = self._ctx.timings.back_off(delivery.refusals)
        await self._release(
            delivery, self._ctx.clock.now() + self._ctx.timings.jittered(wait, self._rng)
        )

    async def _shared(self, delivery: Delivery) -> None:
        await self._release(replace(accepted(delivery), state=DeliveryState.POSTED))
