"""The /replica command and the training form: its subcommands, opening, submission, retry."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Invalid, Kind
from bot.kinds.replica import MAX_NAME, Replica, parse
from bot.kinds.video import is_replica_id
from bot.links import expiry_of, only_hosts
from bot.model import Snapshot, Verdict
from bot.service.errors import UNKNOWN_ID
from bot.slack.context import (
    Feature,
    HandlerContext,
    ack_ephemeral,
    ack_missing_id,
    kept_left,
)
from bot.slack.features.actions import find_failed, retry_metadata
from bot.slack.features.forms import (
    JobRequest,
    Metadata,
    ack_other_version,
    drawn_fields,
    form,
    is_of_other_version,
    known_from,
    link_field,
    metadata_of,
    place_to_retry,
    read_replica,
    replica_label,
    retention_note,
    submit_job,
    text_field,
    unexplained_failure,
    where_field,
)
from bot.slack.features.help import replica_help
from bot.slack.features.list import list_jobs, show_status
from bot.slack.payloads import BlockAction, SlashCommand, ViewSubmission, read
from bot.slack.views.blocks import (
    Json,
    Message,
    bullets,
    date,
    element,
    escape,
    escaped,
    field,
    joined,
    moment_of,
    option,
    paragraph,
    preformatted,
    rich,
    section,
    unformatted,
    words,
)
from bot.slack.views.buttons import OPEN_TRAIN, RETRY
from bot.slack.views.kinds import ReplicaPresenter
from bot.store import KnownReplica

CALLBACK_ID: Final = "train_replica"
_KIND: Final = "replica"
_AGREED: Final = "agreed"
_FIELDS: Final = frozenset(
    {"train_video_url", "consent_video_url", "replica_name", _AGREED, "where"}
)
# Without those that look alike.
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_NAME_LENGTH: Final = 5
# The service may fetch the footage only after hours.
_LINK_LIFETIME: Final = timedelta(hours=24)

_NEEDS: Final = (
    "*What the footage needs*\n"
    "• An mp4 (H.264), up to 750 MB, at least a minute long, 25 frames a second or more\n"
    "• One person, face always in view\n"
    "• Good light, no noise"
)
_CONSENT: Final = "Without one, the training video must begin with the consent statement."
_CONFIRMED: Final = "The person in the video has agreed to be trained as a replica."
_MAX_LISTED: Final = 30
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the command and the form."""
    app.view(CALLBACK_ID)(partial(on_submit, ctx))
    app.command(ctx.command(_KIND))(partial(handle_command, ctx))
    app.action(f"{_KIND}_{RETRY}")(partial(retry, ctx))
    app.action(OPEN_TRAIN)(partial(open_from_home, ctx))


# ── The command and the button ────────────────────────────────────────────────────────────────


async def handle_command(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer a subcommand, or open the form."""
    command = read(SlashCommand, body)
    match command.subcommand("status", "add", "default"):
        case "help", _:
            await ack_ephemeral(ack, replica_help(ctx.command(_KIND)))
        case "list", _:
            await ack_ephemeral(ack, await list_replicas(ctx, command, _KIND))
        case name, "":
            await ack_missing_id(ack, ctx.command(_KIND), name, "replica")
        case "status", wanted:
            await show_status(ctx, ack, command, _KIND, wanted)
        case "add", replica_id:
            await add_replica(ctx, ack, command, _KIND, replica_id.strip("`"))
        case "default", replica:
            await set_default_replica(ctx, ack, command, _KIND, replica)
        case _ if (several_words := _named_default(command)) is not None:
            await set_default_replica(ctx, ack, command, _KIND, several_words)
        case _ if not command.words:
            await _open_form(ctx, ack, command)
        case _:
            await ack_ephemeral(ack, replica_help(ctx.command(_KIND), "I don't know that command."))


def _named_default(command: SlashCommand) -> str | None:
    """Return the name of several words after "default", if that is what was typed."""
    match command.words.split():
        case [word, *name] if word.casefold() == "default":
            return " ".join(name)
    return None


async def _open_form(ctx: HandlerContext, ack: AsyncAck, command: SlashCommand) -> None:
    view = _draw_form(ctx, {}, {"channel": command.channel, "name": _new_name()})
    if error := await ctx.open_form(_KIND, command.user, command.channel, command.trigger_id, view):
        await ack_ephemeral(ack, error)
    else:
        await ack()


async def open_from_home(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form from a place without a conversation: where to post is asked."""
    action = read(BlockAction, body)
    view = _draw_form(ctx, {}, {"channel": "", "name": _new_name()})
    if error := await ctx.open_form(_KIND, action.user, "", action.trigger_id, view):
        ctx.respond_ephemeral(action, error)
    await ack()


async def retry(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the input of a failed job."""
    action = read(BlockAction, body)
    if (job := await find_failed(ctx, action)) is not None:
        fields = dict(job.params)
        if action.user != job.user:
            # Only the user who typed a link sees it.
            fields = {name: fields[name] for name in ("replica_name",) if name in fields}
        metadata = {**await retry_metadata(ctx, job), "name": _new_name()}
        filled = {**fields, **place_to_retry(job, action)}
        view = _draw_form(ctx, filled, metadata, retention_note(job))
        if error := await ctx.open_form(_KIND, action.user, job.channel, action.trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


# ── The form ──────────────────────────────────────────────────────────────────────────────────


async def on_submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Store the training that the form asks for, or say what is wrong with it."""
    submission = read(ViewSubmission, body)
    fields, now = submission.view.fields(), ctx.clock.now()

    def redraw(note: str, changed: Metadata, links: Mapping[str, str] = _NONE) -> Json:
        named = {"name": _new_name(), **changed}
        drawn = _draw_form(ctx, {**drawn_fields(submission.view), **links}, named, note)
        return kept_left(drawn, submission.view.blocks)

    if is_of_other_version(submission.view, _FIELDS):
        await ack_other_version(ack, submission.view, lambda known, note: redraw(note, known))
        return
    metadata = {"name": _new_name(), **metadata_of(submission.view)}
    params, errors, links = dict(fields), {}, _NONE
    try:
        params = parse(fields)
    except Invalid as error:
        errors, links = dict(error.errors), error.links
    over, soon = _expiring(params, now)
    text = "This link has expired. Please create a new one."
    errors = {**dict.fromkeys(over, text), **errors}
    if not errors and soon and sorted(soon.values()) != metadata.get("warned"):
        warned = {**metadata, "warned": sorted(soon.values())}
        await ack(response_action="update", view=redraw(_warning(soon), warned))
        return
    # If the answer to the create call is lost, the replica can be recognized by its name.
    params.setdefault("replica_name", metadata["name"])

    def second(note: str) -> Json:
        # It is a request of its own from now on.
        return redraw(note, {**metadata, "retry_of": None})

    limits, deadline = ctx.store.limits.current, ctx.service_deadline()
    request = JobRequest(
        _KIND,
        params,
        deadline,
        limits,
        errors=errors,
        links=links,
        correct=partial(redraw, changed=metadata, links=links),
    )
    await submit_job(ctx, ack, submission, request, second)


def _expiring(params: Mapping[str, str], now: datetime) -> tuple[list[str], dict[str, str]]:
    """Return the fields of expired links, and when those expire that may not last."""
    over, soon = [], {}
    for name in ("train_video_url", "consent_video_url"):
        until = expiry_of(params.get(name, ""))
        if until is not None and until <= now:
            over.append(name)
        elif until is not None and until < now + _LINK_LIFETIME:
            soon[name] = date(until)
    return over, soon


def _warning(soon: Mapping[str, str]) -> str:
    labels = {"train_video_url": "training video", "consent_video_url": "consent video"}
    ends = " and ".join(
        f"the link to the {labels[name]} expires {until}" for name, until in soon.items()
    )
    return (
        f":warning: Please check: {ends}. A link should work for 24 hours. Press *Train* to send "
        "it anyway."
    )


def _new_name() -> str:
    """Return a name that no other replica has, without a time: the person's zone is not known."""
    return f"Replica {''.join(secrets.choice(_LETTERS) for _ in range(_NAME_LENGTH))}"


def _draw_form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, note: str = ""
) -> Json:
    """Return the training form with ``fields`` filled in."""
    agreed = option(_CONFIRMED, "yes")
    agreement = element(
        "checkboxes",
        _AGREED,
        options=[agreed],
        initial_options=[agreed] if fields.get(_AGREED) else None,
    )
    blocks: list[Json] = [
        section(_NEEDS),
        *_statement(ctx.consent_statement),
        link_field(
            "train_video_url",
            "Training video link",
            "A direct link that anyone can download from for at least 24 hours.",
            fields.get("train_video_url"),
        ),
        link_field(
            "consent_video_url",
            "Consent video link",
            _CONSENT,
            fields.get("consent_video_url"),
            optional=True,
        ),
        text_field(
            "replica_name",
            "Name",
            f"Everyone here can see it. Leave it empty for “{metadata['name']}”.",
            fields.get("replica_name"),
            MAX_NAME,
            placeholder="For example: Anna, office",
        ),
        field(_AGREED, "Consent", agreement),
        where_field(ctx, fields.get("where")),
    ]
    return form(
        CALLBACK_ID, "Train a replica", submit="Train", metadata=metadata, blocks=blocks, note=note
    )


def _statement(statement: str) -> list[Json]:
    """Return the consent statement, as one piece that can be copied."""
    if not statement:
        return []
    intro = "*Consent statement*: the person says this in the video, word for word."
    return [section(intro), rich(preformatted(statement))]


FEATURE: Final = Feature(Replica(), ReplicaPresenter(), register)


async def list_replicas(ctx: HandlerContext, command: SlashCommand, kind: str) -> Message:
    """Return the user's trainings, and below them the replicas that everyone can use."""
    trainings = await list_jobs(ctx, command, kind)
    known = ctx.store.replicas.find("", command.channel, _MAX_LISTED)
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
    said = (f"{unformatted(line)} · {date(at)}" if at else unformatted(line) for line, at in lines)
    text = joined([heading, *(f"• {each}" for each in said)])
    return Message(text, [section(heading), rich(bullets(items))])


async def add_replica(
    ctx: HandlerContext, ack: AsyncAck, command: SlashCommand, kind: str, replica_id: str
) -> None:
    """Offer a replica in the picker."""

    async def add() -> str:
        if refusal := await _asking_refusal(ctx, command, kind):
            return refusal
        try:
            label = await _learn(ctx, ctx.kinds[kind], replica_id)
        except _Unusable as error:
            return str(error)
        known = ctx.store.replicas.get(replica_id)
        if known is not None and known.verdict is Verdict.GOING:
            return (
                f"{label}. Everyone in this workspace can choose it already. It's still training: "
                "a video waits for it."
            )
        return f"{label} is ready to use by everyone in this workspace."

    ctx.answer_later(command.response_url, add())
    await ack()


async def set_default_replica(
    ctx: HandlerContext, ack: AsyncAck, command: SlashCommand, kind: str, wanted: str
) -> None:
    """Make a replica the default of this channel's create form; ``wanted`` is its name or id."""

    async def set_default() -> str:
        if refusal := await _asking_refusal(ctx, command, kind):
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


async def _asking_refusal(ctx: HandlerContext, command: SlashCommand, kind: str) -> str | None:
    limits = ctx.store.limits.current
    return await ctx.access.asking_refusal(limits, kind, command.user, _deadline(ctx))


class _Unusable(Exception):
    """A replica cannot be used; ``str()`` is a sentence about why."""


async def _named(ctx: HandlerContext, command: SlashCommand, kind: str, wanted: str) -> str:
    """Return the id of the replica with this name or id: of one with the beginning of its name too.

    What may be the id of a replica that is not known here is returned as it is.

    Raises:
        _Unusable: several have the name, or none has it.
    """
    if is_replica_id(wanted) and ctx.store.replicas.get(wanted) is not None:
        return wanted
    known = ctx.store.replicas.find(wanted, command.channel, _MAX_LISTED) if wanted else []
    folded = wanted.casefold()
    found = [each for each in known if " ".join(each.name.split()).casefold() == folded]
    found = found or [each for each in known if each.name.casefold().startswith(folded)]
    if len(found) > 1:
        heading = f"Several replicas match “{escape(wanted)}”. Use the ID:"
        raise _Unusable(
            joined([heading, *(f"• {unformatted(replica_label(each))}" for each in found)])
        )
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
            raise _Unusable(f"I can't find a replica “{escape(replica_id)}”: {says}") from error
        raise _Unusable(f"It couldn't be checked: {says}") from error
    except OutsideError as error:
        why = escape(only_hosts(error.reason))
        text = f"It couldn't be checked: {why} Please try again in a moment."
        raise _Unusable(text) from error
    if snapshot.verdict is Verdict.FAILED:
        raise _Unusable(_failure(snapshot))
    await ctx.store.replicas.learn(snapshot, ctx.clock.now())
    known = ctx.store.replicas.get(replica_id)
    return unformatted(replica_label(known) if known is not None else replica_id)


def _deadline(ctx: HandlerContext) -> float:
    """Return until when an answer in the background waits, by the event loop's clock."""
    return asyncio.get_running_loop().time() + ctx.timings.call_timeout.total_seconds()


def _failure(snapshot: Snapshot) -> str:
    label = unformatted(replica_label(known_from(snapshot)))
    if not snapshot.reason:
        return f"{label}: {escape(unexplained_failure(snapshot.status))}."
    return f"{label}: “{escaped(only_hosts(snapshot.reason), 300)}”"
