"""What the forms of all kinds share: fields, metadata, and storing what is submitted.

The workspace's replicas are here as users pick them: their labels, and whether they can be used.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import aiohttp
from pydantic import AliasPath, Field

from bot.errors import OutsideError, Refused, Unavailable
from bot.kinds import Kind, Unreadable
from bot.links import only_hosts
from bot.model import Job, Request, Snapshot, State, Verdict
from bot.service.errors import UNKNOWN_ID
from bot.setting_values import MAX_BOX
from bot.slack.client import is_slacks
from bot.slack.context import (
    HandlerContext,
    Refusal,
    field_errors,
    general_error,
    kept_left,
    updated,
)
from bot.slack.errors import translated
from bot.slack.payloads import (
    BlockAction,
    InvalidPayload,
    Payload,
    PrivateMetadata,
    Shares,
    View,
    ViewSubmission,
    is_plain_text,
)
from bot.slack.views.blocks import (
    MAX_QUOTES,
    MAX_SECTION,
    Json,
    ago,
    anchor,
    cut,
    element,
    field,
    joined,
    modal,
    one_line,
    quotes,
    section,
)
from bot.slack.views.presenters import Presenter
from bot.slack.views.question import NOBODY_TO_APPROVE
from bot.slack.views.usage import bound_error, limit_sentence, resets_in_form
from bot.store import (
    AlreadyRequested,
    Bound,
    KnownReplica,
    LimitReached,
    NobodyToApprove,
    NotAllowed,
)

_MAX_NAME: Final = 36
_MAX_ID: Final = 20
_VERDICTS: Final = {Verdict.GOING: "training", Verdict.FAILED: "can't be used"}


def replica_label(replica: KnownReplica) -> str:
    """Return name and state in at most 75 characters; the id too where two look the same."""
    parts = [
        cut(one_line(replica.name), _MAX_NAME),
        cut(replica.id, _MAX_ID) if replica.has_namesake else "",
    ]
    if not replica.name:
        parts = [cut(replica.id, _MAX_NAME + _MAX_ID)]
    if replica.verdict in _VERDICTS:
        parts.append(_VERDICTS[replica.verdict])
    return " · ".join(filter(None, parts))


def why_unusable(replica: KnownReplica | Snapshot) -> str:
    """Return why a replica cannot be used that has failed; the reason has not been escaped."""
    reason = _one_sentence(replica.reason)
    if not reason:
        status = f"its status is “{cut(one_line(replica.status), _MAX_ID)}”"
        reason = "it was deleted" if replica.status.casefold() == "deleted" else status
    return f"This replica can't be used: {reason}"


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


async def check_used(
    ctx: HandlerContext, kind: Kind, params: Mapping[str, str], deadline: float
) -> Snapshot | None:
    """Check by ``deadline`` whether a job with ``params`` can be requested with what it uses.

    It can with one in training: the video waits for it. It can also if the service does not say
    in time: the create call will show it. Return what the service just said about a replica that
    the picker does not offer yet.

    Raises:
        Refusal: it cannot.
    """
    used = kind.uses(params)
    if used is None:
        return None
    used_kind, replica_id = ctx.kinds[used[0]], used[1]
    known, now = ctx.store.replicas.get(replica_id), ctx.clock.now()
    max_age = ctx.timings.replica_max_age
    if known is not None and known.read_at is not None and abs(now - known.read_at) <= max_age:
        _check_usable(known)
        return None
    try:
        snapshot = await read_replica(ctx, used_kind, replica_id, deadline)
    except Refused as error:
        if error.code not in UNKNOWN_ID:
            return None
        raise Refusal(f"I can't find this replica: {_one_sentence(error.reason)}") from None
    except OutsideError:
        return None
    is_new = known is None or known.deleted
    if not is_new:
        ctx.background.spawn(ctx.store.replicas.learn(snapshot, now))
    _check_usable(snapshot)
    return snapshot if is_new else None


def _check_usable(replica: KnownReplica | Snapshot) -> None:
    if replica.verdict is Verdict.FAILED:
        raise Refusal(why_unusable(replica))


def _one_sentence(reason: str) -> str:
    return cut(one_line(only_hosts(reason)), 200)


# ── Forms ─────────────────────────────────────────────────────────────────────────────────────────

Metadata = Mapping[str, Any]
"""A form's ``private_metadata``: ``channel`` and ``thread_ts``, where it was opened, and more."""

_NOTE: Final = "note"
_NO_FIELDS: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OTHER_VERSION: Final = "I was just updated. Please check this form and submit it again."
_MAX_METADATA: Final = 3000  # characters
# With a user's id, it would be posted to that user as a direct message.
_CONVERSATION: Final = re.compile(r"[CDG][A-Z0-9]{1,40}", re.ASCII)
# The menu offers no other: a direct message may be somebody else's.
_CHANNEL: Final = re.compile(r"[CG][A-Z0-9]{1,40}", re.ASCII)
_STAYS: Final = "What you entered stays here."
_BOUND_BY: Final = {Bound.CHANNEL: "where", Bound.SCRIPT: "script", Bound.REPLICA: "replica_id"}
"""The fields that say what is not allowed; who may ask is in none."""
_KEY_REFUSED: Final = (
    "I've lost access to the video service. Let {} know. What you entered stays here."
)
_CORRECTED: Final = (
    "I made it a direct link. If anyone with the link may see the file, submit this again."
)
SCOPE: Final = "files:read"
TELL_CHANNEL: Final = "tell_channel"
MAKE_ANOTHER: Final = "Create another"
"""The button of a form that asks for what there is already."""
_ALREADY: Final = {
    State.SUCCEEDED: "This {noun} already exists.",
    State.UNCONFIRMED: "This {noun} has already been requested.",
    State.WAITING_FOR_APPROVAL: "This {noun} is already waiting for approval.",
}
_BEING_MADE: Final = "This {noun} is already being made."
_MAX_BYTES_PER_CHARACTER: Final = 4  # UTF-8
_MAX_MARK: Final = 3  # bytes of a byte order mark
_NOT_READ: Final = "I couldn't read the file. Please try again, or paste the script."
_NOT_YOURS: Final = "That file isn't yours. Add your own, or paste the script."
_NOT_YOUR_RETRY: Final = (
    "Only the person who asked or an admin can retry this. What you entered stays here."
)
_NOT_TEXT: Final = "This isn't a plain text file. Save the script as UTF-8 text (.txt)."


class _Metadata(PrivateMetadata):
    channel: str = Field(pattern=f"^({_CONVERSATION.pattern})?$")
    """"" for a form that was opened in no conversation."""
    thread_ts: str | None = Field(default=None, pattern=r"^[0-9]+\.[0-9]+$")
    name: str = ""
    script_of: str | None = None
    script_file: str | None = None
    script_ts: str | None = None
    """The message in ``channel`` that has the file, if it may be another person's."""
    links: dict[str, str] = Field(default_factory=dict)
    warned: list[str] = Field(default_factory=list)
    retry_of: str | None = None
    anew: str | None = None
    """The fingerprint of what the person was told that there is, and may ask for all the same."""


def metadata_of(view: View) -> dict[str, Any]:
    """Return a form's metadata.

    Raises:
        InvalidPayload: it is not that of one of our forms.
    """
    return view.metadata(_Metadata).model_dump(exclude_unset=True)


def is_of_other_version(
    view: View, always: frozenset[str], sometimes: frozenset[str] = _NO_FIELDS
) -> bool:
    """Return whether another version of the bot drew a form: with other fields, or metadata.

    Args:
        view: the form.
        always: the ids of the fields that this version always draws.
        sometimes: those of the others that it may draw.
    """
    if readable_metadata(view) is None:
        return True
    there = {name for block in view.blocks if isinstance(name := block.get("block_id"), str)}
    return not (always <= there and view.fields().keys() <= always | sometimes)


def readable_metadata(view: View) -> dict[str, Any] | None:
    """Return a form's metadata; None if they are not those of one of our forms."""
    with suppress(InvalidPayload):
        return metadata_of(view)
    return None


def of_this_version(view: View, draw: Callable[[Metadata, str], Json]) -> Json:
    """Return the answer to a form of another version: this one's, with all that was entered.

    What was entered in fields that are no longer there is shown, to be copied. ``draw`` returns the
    form with these metadata, under a note.
    """
    fields, metadata = view.fields(), readable_metadata(view) or {"channel": ""}
    if (file := fields.pop("script_file", None)) is not None:  # such a field cannot be filled in
        metadata["script_file"] = file
    drawn = kept_left(draw(metadata, _OTHER_VERSION), view.blocks)
    there = {block.get("block_id") for block in drawn["blocks"]}
    rest = "\n".join(text for name, text in fields.items() if name not in there)
    lost = [section("You also entered:"), *quotes(cut(rest, MAX_QUOTES))] if rest else []
    blocks = drawn["blocks"]
    after = 1 + [block.get("block_id") for block in blocks].index(_NOTE)
    return updated({**drawn, "blocks": [*blocks[:after], *lost, *blocks[after:]]})


def fits_in_metadata(metadata: Metadata) -> bool:
    """Return whether Slack takes ``metadata``: https://docs.slack.dev/reference/views/modal-views."""
    return len(json.dumps(dict(metadata))) <= _MAX_METADATA


def drawn_fields(view: View) -> dict[str, str]:
    """Return what is filled in, for the same form drawn again: a place that was cleared as ""."""
    return {"where": "", **view.fields()}


def note_of(view: View) -> str:
    """Return the note on top of a form."""
    notes = (block.get("text") for block in view.blocks if block.get("block_id") == _NOTE)
    return next((str(note.get("text", "")) for note in notes if isinstance(note, dict)), "")


def retention_note(job: Job) -> str:
    """Return the note of a form that retries a job, if what was entered has been erased."""
    return "I no longer have what was entered. Please fill in the form again." if job.erased else ""


def filled_again(job: Job, action: BlockAction, shared: Collection[str]) -> dict[str, str]:
    """Return the input of a job for who presses a button: others see no more than is ``shared``.

    Where to post is not filled in if they may not see that place.
    """
    shown = job.params if action.user == job.user else shared
    filled = {name: value for name, value in job.params.items() if name in shown}
    if job.tell_channel:
        filled[TELL_CHANNEL] = "yes"
    is_seen = action.user == job.user or action.channel == job.channel
    if is_seen and job.channel.startswith(("C", "G")):
        filled["where"] = job.channel
    return filled


def form(
    callback_id: str,
    title: str,
    *,
    submit: str,
    metadata: Metadata,
    blocks: list[Json],
    note: str = "",
) -> Json:
    """Return a form with its fields, and a note on top if there is one."""
    if note:
        blocks = [section(note, block_id=_NOTE), *blocks]
    return modal(
        callback_id,
        title,
        submit=submit,
        close="Cancel",
        private_metadata=json.dumps(dict(metadata)),
        blocks=blocks,
    )


def text_field(
    name: str, label: str, hint: str, value: str | None, longest: int, *, placeholder: str
) -> Json:
    """Return a field for a line of text that may be left empty."""
    return field(
        name,
        label,
        element(
            "plain_text_input",
            name,
            initial_value=value,
            max_length=longest,
            placeholder=placeholder,
        ),
        hint=hint,
        optional=True,
    )


def link_field(
    name: str, label: str, hint: str, value: str | None, *, optional: bool = False
) -> Json:
    """Return a field for a link."""
    link = element("url_text_input", name, initial_value=value, placeholder="https://")
    return field(name, label, link, hint=hint, optional=optional)


def where_field(ctx: HandlerContext, chosen: str | None) -> Json:
    """Return the field for where to post: this channel, unless another or none ("") is chosen.

    It lists channels alone: a filter that lets the app's own direct message through lets everyone's
    through, where the bot cannot post. So that one is meant where nothing is chosen, as when the
    form was opened in it, or the chosen channel is none that this person sees.
    https://docs.slack.dev/reference/block-kit/composition-objects/conversation-filter-object
    """
    return field(
        "where",
        "Where to post",
        element(
            "conversations_select",
            "where",
            initial_conversation=chosen,
            default_to_current_conversation=chosen is None,
            filter=ctx.access.conversation_filter,
            placeholder="In a direct message to you",
        ),
        hint="I'll post updates in this channel.",
        optional=True,
    )


def _place(submission: ViewSubmission, metadata: Metadata) -> str:
    """Return where to post: the person's id stands for the app's direct message with them."""
    chosen = submission.view.fields().get("where")
    if chosen is None and metadata.get("thread_ts") and metadata["channel"].startswith("D"):
        return str(metadata["channel"])
    return chosen or submission.user


async def _place_refusal(
    ctx: HandlerContext, submission: ViewSubmission, channel: str, deadline: float
) -> str | None:
    chosen = submission.view.fields().get("where")
    if chosen is not None and not _CHANNEL.fullmatch(chosen):
        return "I can't post there. Please choose another channel."
    not_allowed = await ctx.access.channel_refusal(channel, deadline)
    return not_allowed or await ctx.access.posting_refusal(channel, deadline)


async def submit_job(
    ctx: HandlerContext,
    submission: ViewSubmission,
    kind: str,
    params: Mapping[str, str],
    redraw: Callable[[str, Metadata], Json],
    *,
    deadline: float,
    errors: Mapping[str, str] = _NOTHING,
    links: Mapping[str, str] = _NOTHING,
    used: Snapshot | None = None,
    fingerprint: str | None = None,
    owner: str | None = None,
) -> Json:
    """Store what a form asks for, and return the answer to the form.

    A form that was submitted before, and has been changed since, opens again under a note. So does
    a form that retries what was retried meanwhile. If the same was asked for recently, where the
    person may see it, the form offers that first. If nothing is wrong but links that can be
    corrected, it opens again with those.

    Args:
        ctx: the bot's parts.
        submission: the form.
        kind: what it asks for.
        params: its parameters, as in ``Request``, like ``fingerprint`` and ``owner``.
        redraw: returns the form as it is filled in, under a note, with these changes in its
            metadata.
        deadline: when to stop waiting for the service, by the event loop's clock.
        errors: what is wrong with it, by the id of the field; then it is not stored.
        links: what can be used instead of wrong links, by the id of the field; ``redraw`` fills it
            in.
        used: what the service said about a replica that is not offered yet: it is from now on.
        fingerprint: of what is asked for.
        owner: of the replica that is asked for.

    Raises:
        Refusal: it is not stored.
    """
    view, user, metadata = submission.view, submission.user, metadata_of(submission.view)
    channel = _place(submission, metadata)
    wrong = dict(errors)
    if not_there := await _place_refusal(ctx, submission, channel, deadline):
        wrong["where"] = not_there
    not_allowed = await ctx.access.asking_refusal(kind, user, deadline)
    if errors or (
        (wrong or not_allowed) and await ctx.store.jobs.fetch_by_request(view.id) is None
    ):
        if not_allowed:
            return general_error(view.blocks, f"{not_allowed} {_STAYS}", wrong)
        if wrong.keys() == links.keys():
            # Pushed, since an update leaves in a field what was typed.
            return {"response_action": "push", "view": redraw(_CORRECTED, {})}
        return field_errors(view, wrong)
    retry_of = metadata.get("retry_of")
    refusal = await _refusal(ctx, user, retry_of, deadline)
    if refusal is not None and await ctx.store.jobs.fetch_by_request(view.id) is None:
        raise Refusal(refusal)
    asked = Request(
        key=view.id,
        kind=kind,
        params=params,
        user=user,
        channel=channel,
        thread_ts=metadata.get("thread_ts") if channel == metadata["channel"] else None,
        retry_of=retry_of,
        fingerprint=fingerprint,
        owner=owner,
        tell_channel=TELL_CHANNEL in view.fields(),
    )
    try:
        job = await _stored(ctx, asked, metadata, deadline)
    except AlreadyRequested as same:
        note = offer(same.job, ctx.presenters[kind], user)
        return updated(redraw(note, {"anew": fingerprint}))
    stored = (job.params, job.channel, job.owner or job.user)
    if stored != (params, channel, owner or stored[2]):
        noun = ctx.presenters[kind].noun
        note = f"You already submitted this. Submitting again creates another {noun}."
        if retry_of is not None:
            note = f"This has already been retried. Submitting this creates another {noun}."
        # It is a request of its own from now on.
        return {
            "response_action": "push",
            "view": redraw(note, {"retry_of": None, "anew": fingerprint}),
        }
    if used is not None:
        ctx.background.spawn(ctx.store.replicas.learn(used, ctx.clock.now()))
    return {} if view.root_view_id in {"", view.id} else {"response_action": "clear"}


async def _stored(ctx: HandlerContext, asked: Request, metadata: Metadata, deadline: float) -> Job:
    """Store a request and return its job.

    Raises:
        AlreadyRequested: the same was asked for, and is offered.
        Refusal: it is not stored.
    """
    user, now = asked.user, ctx.clock.now()
    seen_in, sees_all = None, False
    if asked.fingerprint is not None and metadata.get("anew") != asked.fingerprint:
        seen_in, sees_all = metadata["channel"], await ctx.access.is_admin(user, deadline)
    membership = await ctx.access.membership(asked.kind, user, deadline)
    try:
        return await ctx.store.jobs.submit(
            asked, now, seen_in=seen_in, sees_all=sees_all, groups=membership.groups
        )
    except NotAllowed as outside:
        who = await ctx.access.admin_names(deadline)
        text = bound_error(outside, asked.params.get("script", ""), membership, who)
        at = _BOUND_BY.get(outside.bound)
        raise Refusal(text if at else f"{text} {_STAYS}", at) from None
    except NobodyToApprove:
        raise Refusal(f"{NOBODY_TO_APPROVE} {_STAYS}") from None
    except LimitReached as reached:
        who = await ctx.access.admin_names(deadline)
        resets = resets_in_form(reached.left, ctx.access.zone(user), now)
        raise Refusal(limit_sentence(reached.left, resets, who=who)) from None


def offer(job: Job, presenter: Presenter, viewer: str) -> str:
    """Return what there is already, who asked for it, and what the form's button does.

    The viewer may see the job: they are who asked, an admin, or where it was posted.
    """
    who, made = "You" if viewer == job.user else f"<@{job.user}>", job.state is State.SUCCEEDED
    status, did = _ALREADY.get(job.state, _BEING_MADE), "made it" if made else "requested it"
    where = f" in <#{job.channel}>" if job.channel.startswith(("C", "G")) else ""
    links = [anchor(url, label) for label, url in presenter.links(job).items()]
    text = f"*{status.format(noun=presenter.noun)}* {who} {did} {ago(job.created_at)}{where}."
    remedy = f"*{MAKE_ANOTHER}* charges you again."
    # A signed link may be too long for a block: then the message where it was posted has it.
    shown = joined(links, MAX_SECTION - len(text) - len(remedy) - 2, by=" · ")
    return joined([text, shown, remedy], MAX_SECTION)


async def _refusal(
    ctx: HandlerContext, user: str, retry_of: str | None, deadline: float
) -> str | None:
    """Return why nothing can be created, or not as a retry of the job with this id."""
    if ctx.service.is_key_refused:
        return _KEY_REFUSED.format(await ctx.access.admin_names(deadline))
    retried = await ctx.store.jobs.fetch(retry_of) if retry_of is not None else None
    is_theirs = retried is None or await ctx.may_press(user, retried)
    return None if is_theirs else _NOT_YOUR_RETRY


class FileUnavailable(Refusal):
    """A file did not come from Slack, or not in time: it may come later."""


class _File(Payload):
    """The answer of files.info: https://docs.slack.dev/reference/methods/files.info."""

    size: int = Field(validation_alias=AliasPath("file", "size"))
    mimetype: str = Field(validation_alias=AliasPath("file", "mimetype"))
    url: str = Field(validation_alias=AliasPath("file", "url_private_download"))
    user: str = Field(default="", validation_alias=AliasPath("file", "user"))
    shares: Shares = Field(default=Shares(), validation_alias=AliasPath("file", "shares"))


def takes_files(ctx: HandlerContext, max_script: int) -> bool:
    """Return whether a script may come in a file: where one may be longer than a field holds."""
    return max_script > MAX_BOX and ctx.access.has_scope(SCOPE)


async def read_script(
    ctx: HandlerContext,
    file: str,
    max_script: int,
    deadline: float,
    *,
    user: str,
    message: tuple[str, str] | None = None,
) -> str:
    """Return the text of the file with this id, by ``deadline`` of the event loop's clock.

    The bot's token may read more than the person who asks: it is used for a file of this ``user``
    alone, or of a ``message``, by its channel and ``ts``, that they have chosen. A file that
    certainly has more than ``max_script`` characters is not read.

    Raises:
        Refusal: it is no plain text in UTF-8, too large, or somebody else's.
        FileUnavailable: it did not come in time.
    """
    try:
        async with asyncio.timeout_at(deadline):
            async with translated(ctx.timings.call_timeout):
                about = _File.model_validate((await ctx.client.files_info(file=file)).data)
            channel, ts = message or ("", "")
            if about.user != user and ts not in about.shares.messages(channel):
                raise Refusal(_NOT_YOURS)
            return await _download(ctx, about, max_script)
    # A link that is none is a ValueError, and so is an answer that cannot be read.
    except (OutsideError, TimeoutError, ValueError, aiohttp.ClientError):
        raise FileUnavailable(_NOT_READ) from None


async def _download(ctx: HandlerContext, file: _File, max_script: int) -> str:
    max_bytes = max_script * _MAX_BYTES_PER_CHARACTER + _MAX_MARK
    too_large = Refusal(f"That file is too large. A script can have {max_script:,} characters.")
    if not is_plain_text(file.mimetype):
        raise Refusal(_NOT_TEXT)
    if file.size > max_bytes:
        raise too_large
    if not is_slacks(file.url, ctx.client.base_url):
        raise FileUnavailable(_NOT_READ)
    headers = {"Authorization": f"Bearer {ctx.client.token}"}
    async with ctx.session.get(file.url, headers=headers, allow_redirects=False) as answer:
        # Without the permission, Slack answers with its sign-in page.
        if answer.status != 200 or answer.content_type == "text/html":  # noqa: PLR2004 - OK
            raise FileUnavailable(_NOT_READ)
        content = b""
        while len(content) <= max_bytes and (chunk := await answer.content.readany()):
            content += chunk
    if len(content) > max_bytes:
        raise too_large
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(_NOT_TEXT) from None
    if "\0" in text:
        raise Refusal(_NOT_TEXT)
    return text.replace("\r\n", "\n")
