"""The /replica command and the training form: its subcommands, opening, submission, retry."""

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp

from bot.errors import OutsideError, Refused
from bot.kinds import Invalid
from bot.kinds.replica import MAX_NAME, REPLICA, parse
from bot.kinds.video import is_replica_id
from bot.links import expiry_of, only_hosts
from bot.model import Job, Verdict
from bot.service.errors import UNKNOWN_ID
from bot.slack.context import (
    Feature,
    HandlerContext,
    Refusal,
    Said,
    answer_command,
    answer_form,
    general_error,
    kept_left,
    missing_id,
    register_clicks,
    updated,
)
from bot.slack.features.forms import (
    Metadata,
    drawn_fields,
    filled_again,
    form,
    is_of_other_version,
    link_field,
    metadata_of,
    of_this_version,
    read_replica,
    replica_label,
    retention_note,
    submit_job,
    text_field,
    where_field,
    why_unusable,
)
from bot.slack.features.help import replica_help
from bot.slack.features.jobs import list_jobs, not_theirs, open_retry, show_status
from bot.slack.payloads import BlockAction, PrivateMetadata, SlashCommand, ViewSubmission
from bot.slack.views.blocks import (
    Json,
    Message,
    actions,
    anchor,
    button,
    date,
    element,
    escape,
    escaped,
    field,
    joined,
    link,
    modal,
    one_line,
    option,
    preformatted,
    rich,
    section,
    unformatted,
)
from bot.slack.views.buttons import ASK_FIRST, MUTE, OPEN_TRAIN, RETRY, STOP_TRAINING, replica_row
from bot.slack.views.presenters import MAKE_VIDEO, ReplicaPresenter
from bot.slack.views.usage import REPLICA_REMOVED
from bot.store import KnownReplica
from bot.timings import deadline

CALLBACK_ID: Final = "train_replica"
_KIND: Final = "replica"
_AGREED: Final = "agreed"
_OWNER: Final = "owner"
_WHO_ASKS: Final = "who_may_use"
_EDIT: Final = "edit_replica"
_REMOVE: Final = "remove_replica"
_NOT_YOURS: Final = not_theirs("its owner")
_AT_SERVICE: Final = "An admin still has to delete it at the video service."
_FIELDS: Final = frozenset(
    {"train_video_url", "consent_video_url", "replica_name", _OWNER, _AGREED, "where"}
)
# Without those that look alike.
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_NAME_LENGTH: Final = 5
# The service may fetch the footage only after hours.
_LINK_LIFETIME: Final = timedelta(hours=24)

_NEEDS: Final = (
    "*What the footage needs*\n"
    "• An MP4 (H.264), up to 750 MB, a minute or longer, 25 fps or more\n"
    "• One person, face always in view\n"
    "• Good light, no noise"
)
_CONSENT: Final = "Without one, the footage must begin with the consent statement."
_CONFIRMED: Final = "The person in the footage has agreed to have a replica made."
_OWNS: Final = "I'll tell them. They own the replica and can limit or remove it."
_EXAMPLE: Final = "For example: Anna, office"
_MAX_LISTED: Final = 30


class _Metadata(PrivateMetadata):
    """The ``private_metadata`` of the forms about a replica."""

    replica: str


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the command and the form."""
    app.view(CALLBACK_ID)(partial(answer_form, ctx, on_submit))
    app.command(ctx.command(_KIND))(partial(answer_command, ctx, handle_command))
    app.view(_EDIT)(partial(answer_form, ctx, edit))
    app.view(_REMOVE)(partial(answer_form, ctx, remove))
    register_clicks(
        app,
        ctx,
        {
            f"{_KIND}_{RETRY}": retry,
            OPEN_TRAIN: open_form,
            STOP_TRAINING: stop_training,
            MUTE: mute,
            ASK_FIRST: ask_first,
        },
    )


# ── The command and the button ────────────────────────────────────────────────────────────────


async def handle_command(ctx: HandlerContext, command: SlashCommand) -> Said:
    """Answer a subcommand, or open the form."""
    match command.subcommand("status", "add", with_words={"default", "rename", "remove"}):
        case "help", _:
            return replica_help(ctx.command(_KIND))
        case "list", _:
            return await list_replicas(ctx, command)
        case ("default" | "rename" | "remove") as name, "":
            typed = ctx.command(_KIND)
            return f"Try `{typed} {name} <name>`. `{typed} list` shows names."
        case name, "":
            return missing_id(ctx.command(_KIND), name, "replica")
        case "status", wanted:
            return await show_status(ctx, command, _KIND, wanted)
        case "add", replica_id:
            ctx.answer_later(command, _add(ctx, command, replica_id.strip("`")))
            return None
        case "default", wanted:
            ctx.answer_later(command, _set_default(ctx, command, wanted.strip("`")))
            return None
        case verb, wanted:
            replica_id = await _find(ctx, command, wanted.strip("`"))
            return await open_change(ctx, verb, command, replica_id)
        case _ if not command.words:
            return await open_form(ctx, command, command.channel)
    return replica_help(ctx.command(_KIND), "I don't know that command.")


async def open_form(
    ctx: HandlerContext, request: SlashCommand | BlockAction, channel: str = ""
) -> str | None:
    """Open the form; without a conversation, it asks where to post."""
    view = _draw_form(ctx, {_OWNER: request.user}, {"channel": channel})
    return await ctx.open_form(_KIND, request, channel, view)


async def retry(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form with the input of a failed job: its links, only for who typed them."""

    def draw(job: Job, metadata: Metadata) -> Json:
        filled = filled_again(job, action, ("replica_name",)) | {_OWNER: job.owner or job.user}
        return _draw_form(ctx, filled, metadata, retention_note(job))

    return await open_retry(ctx, action, draw)


# ── The form ──────────────────────────────────────────────────────────────────────────────────


async def on_submit(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Store the training that the form asks for, or say what is wrong with it."""
    view, fields, now = submission.view, submission.view.fields(), ctx.clock.now()
    if is_of_other_version(view, _FIELDS):
        return of_this_version(view, partial(_draw_form, ctx, drawn_fields(view)))
    metadata = {"name": _new_name(), **metadata_of(view)}

    def redraw(note: str, changes: Metadata) -> Json:
        filled = {**drawn_fields(view), **links}
        return kept_left(_draw_form(ctx, filled, {**metadata, **changes}, note), view.blocks)

    params, errors, links = dict(fields), dict[str, str](), dict[str, str]()
    try:
        params = parse(fields)
    except Invalid as error:
        errors, links = dict(error.errors), dict(error.links)
    over, soon = _expiring(params, now)
    text = "This link has expired. Please create a new one."
    errors = {**dict.fromkeys(over, text), **errors}
    deadline, owner = ctx.service_deadline(), fields.get(_OWNER, submission.user)
    if owner != submission.user and (refusal := await ctx.access.owner_refusal(owner, deadline)):
        errors[_OWNER] = refusal
    if not errors and soon and sorted(soon.values()) != metadata.get("warned"):
        return updated(redraw(_warning(soon), {"warned": sorted(soon.values())}))
    # If the answer to the create call is lost, the replica can be recognized by its name.
    params.setdefault("replica_name", metadata["name"])
    return await submit_job(
        ctx,
        submission,
        _KIND,
        params,
        redraw,
        deadline=deadline,
        errors=errors,
        links=links,
        owner=owner,
    )


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
    labels = {"train_video_url": "footage", "consent_video_url": "consent video"}
    ends = " ".join(
        f"The link to the {labels[name]} expires {until}." for name, until in soon.items()
    )
    return f":warning: {ends} Links should work for 24 hours. Press *Train* to use it anyway."


def _new_name() -> str:
    """Return a name that no other replica has, without a time: the person's zone is not known."""
    return f"Replica {''.join(secrets.choice(_LETTERS) for _ in range(_NAME_LENGTH))}"


def _draw_form(
    ctx: HandlerContext, fields: Mapping[str, str], metadata: Metadata, note: str = ""
) -> Json:
    """Return the training form with ``fields`` filled in."""
    metadata = {"name": _new_name(), **metadata}
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
            "Footage link",
            "A direct link that works for anyone for 24 hours.",
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
            f"Everyone here can see it. Leave it blank for “{metadata['name']}”.",
            fields.get("replica_name"),
            MAX_NAME,
            placeholder=_EXAMPLE,
        ),
        _owner_field("Who is in this footage?", fields.get(_OWNER), _OWNS),
        field(_AGREED, "Consent", agreement),
        where_field(ctx, fields.get("where")),
    ]
    return form(
        CALLBACK_ID, "Train a replica", submit="Train", metadata=metadata, blocks=blocks, note=note
    )


def _owner_field(label: str, owner: str | None, hint: str) -> Json:
    return field(_OWNER, label, element("users_select", _OWNER, initial_user=owner), hint=hint)


def _statement(statement: str) -> list[Json]:
    """Return the consent statement, as one piece that can be copied."""
    if not statement:
        return []
    intro = "*Consent statement*: the person says this in the video, word for word."
    return [section(intro), rich(preformatted(statement))]


FEATURE: Final = Feature(REPLICA, ReplicaPresenter(), register)


async def list_replicas(ctx: HandlerContext, command: SlashCommand) -> Message:
    """Return the user's trainings, and below them the replicas that everyone can use."""
    trainings = await list_jobs(ctx, command, _KIND)
    known = ctx.store.replicas.find("", command.channel, _MAX_LISTED)
    if not known:
        return trainings
    is_admin = await ctx.access.is_admin(command.user)
    replicas = listed_replicas(known, command.user, is_admin=is_admin)
    return Message.of([*trainings.blocks, *replicas.blocks])


def listed_replicas(
    known: Sequence[KnownReplica], user: str = "", *, is_admin: bool = False
) -> Message:
    """Return a list of replicas, each with its menu: all of it for its owner and for admins."""
    rows = [
        replica_row(
            each,
            joined(
                [
                    unformatted(replica_label(each)),
                    "this channel's default" if each.default else "",
                    date(datetime.fromtimestamp(each.used_at / 1000, UTC)) if each.used_at else "",
                ],
                by=" · ",
            ),
            may_change=is_admin or each.owner == user,
        )
        for each in known
    ]
    return Message.of([section("Replicas that everyone here can use, last used first:"), *rows])


async def _add(ctx: HandlerContext, command: SlashCommand, replica_id: str) -> str:
    """Offer a replica in the picker."""
    await _check_asking(ctx, command)
    label = await _learn(ctx, replica_id, command.user)
    known = ctx.store.replicas.get(replica_id)
    if known is not None and known.verdict is Verdict.GOING:
        return f"{label}. Everyone in this workspace can use it. Videos wait until it's ready."
    yours = " You own it." if known is not None and known.owner == command.user else ""
    return f"{label} is ready to use by everyone in this workspace.{yours}"


async def _set_default(ctx: HandlerContext, command: SlashCommand, wanted: str) -> str:
    """Make a replica the default of this channel's create form; ``wanted`` is its name or id."""
    await _check_asking(ctx, command)
    if wanted.casefold() == "none":
        await ctx.store.replicas.set_default(command.channel, None)
        return "This channel has no default replica now."
    replica_id = await _find(ctx, command, wanted)
    label = await _learn(ctx, replica_id)
    await ctx.store.replicas.set_default(command.channel, replica_id)
    return f"{label} is now this channel's default."


async def _check_asking(ctx: HandlerContext, command: SlashCommand) -> None:
    """Raise ``Refusal`` if the person may not change what others see."""
    until = deadline(ctx.timings.call_timeout)
    if refusal := await ctx.access.asking_refusal(_KIND, command.user, until):
        raise Refusal(refusal)


# ── Owners ────────────────────────────────────────────────────────────────────────────────────


async def open_change(
    ctx: HandlerContext, verb: str, request: SlashCommand | BlockAction, replica_id: str
) -> str | None:
    """Open the form that changes a replica, or with "remove", asks; return why not, if so."""
    known, is_admin = ctx.store.replicas.get(replica_id), await ctx.access.is_admin(request.user)
    if known is None or known.removed:
        return REPLICA_REMOVED
    if not (is_admin or request.user == known.owner):
        return not_theirs(f"<@{known.owner}>" if known.owner is not None else "its owner")
    metadata = json.dumps({"replica": known.id})
    if verb == "remove":
        defaults, open_jobs = await ctx.store.replicas.count_uses(known.id)
        uses = f"Default in channels: {defaults}. In progress: {open_jobs}; unsent ones stop."
        picked = f"*{escaped(known.name or known.id, 300)}* can't be picked anymore."
        view = modal(
            _REMOVE,
            "Remove this replica?",
            submit="Remove",
            close="Keep it",
            private_metadata=metadata,
            blocks=[section(joined([picked, uses, _AT_SERVICE]))],
        )
    else:
        called = text_field("replica_name", "Name", "", known.name, MAX_NAME, placeholder=_EXAMPLE)
        asks, sees = "Ask the owner first", "The owner approves each script."
        if request.user == known.owner:
            asks, sees = "Ask me first", "You approve each script."
        options = {"everyone": option("Everyone here", "everyone"), "ask": option(asks, "ask")}
        chosen = options["ask" if known.asks_owner else "everyone"]
        menu = element(
            "radio_buttons", _WHO_ASKS, options=[*options.values()], initial_option=chosen
        )
        whose = _owner_field("Owner", known.owner, "The person whose face it is.")
        view = modal(
            _EDIT,
            "Edit this replica",
            submit="Save",
            close="Cancel",
            private_metadata=metadata,
            blocks=[
                called,
                field(
                    _WHO_ASKS,
                    "Who may use it",
                    menu,
                    hint=sees,
                ),
                *([{**whose, "optional": True}] if is_admin else []),
            ],
        )
    return await ctx.open_view(request.trigger_id, view)


async def preview(ctx: HandlerContext, replica_id: str) -> Message:
    """Return where a replica can be watched: the service may sign that link anew each time."""
    url = None
    known = ctx.store.replicas.get(replica_id)
    if known is not None and not known.removed:
        with suppress(OutsideError):
            snapshot = await read_replica(ctx, ctx.kinds[_KIND], replica_id, ctx.service_deadline())
            url = link(snapshot.facts.get("thumbnail_video_url", ""))
    if url is None:
        return Message("There's no preview of this replica now.")
    text = f"{anchor(url, 'Preview replica')} · `{replica_id}`"
    use = button("Use in a video", MAKE_VIDEO, value=replica_id)
    return Message.of([section(text), actions([use])])


async def mute(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Tell an owner no longer in messages what is made with their face, or again."""
    await ctx.store.replicas.mute(action.user, muted=action.value == "yes")
    if action.response_url is None:
        return None
    return "No more daily messages. My *Home* tab still lists everything."


async def ask_first(ctx: HandlerContext, action: BlockAction) -> str:
    """Have others ask an owner first: about what a training has made, or all that is theirs."""
    replicas, job_id = ctx.store.replicas, action.value
    job = await ctx.store.jobs.fetch(job_id) if job_id else None
    changed = [
        await replicas.edit(
            each.id,
            action.user,
            ctx.clock.now(),
            is_admin=False,
            name=each.name if each.name != each.service_name else None,
            asks_owner=True,
            owner=None,
        )
        for each in replicas.list_owned(action.user)
        if not job_id or (job is not None and each.id == job.remote_id)
    ]
    if any(changed):
        return "Others now need your approval."
    return "There's no replica of yours yet. Try again in a minute."


async def edit(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Change a replica as its form says."""
    view, fields, user = submission.view, submission.view.fields(), submission.user
    replica_id, owner = view.metadata(_Metadata).replica, fields.get(_OWNER)
    name, known = fields.get("replica_name", "").strip(), ctx.store.replicas.get(replica_id)
    refusal = await ctx.access.owner_refusal(owner, ctx.service_deadline()) if owner else None
    if refusal is not None:
        raise Refusal(refusal, _OWNER)
    if not await ctx.store.replicas.edit(
        replica_id,
        user,
        ctx.clock.now(),
        # Whose form lacks the field has not chosen that nobody owns it.
        is_admin=_OWNER in view.values and await ctx.access.is_admin(user),
        name=name if known is None or name != known.service_name else None,
        asks_owner=fields.get(_WHO_ASKS) == "ask",
        owner=owner,
    ):
        raise Refusal(_NOT_YOURS)
    return {}


async def remove(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Stop offering a replica."""
    replica_id, user = submission.view.metadata(_Metadata).replica, submission.user
    removed = await ctx.store.replicas.remove(
        replica_id, user, ctx.clock.now(), is_admin=await ctx.access.is_admin(user)
    )
    return {} if removed else general_error((), _NOT_YOURS, title="Not removed")


async def stop_training(ctx: HandlerContext, action: BlockAction) -> str:
    """Stop a training of the person who presses the button, and remove what it has made."""
    stopped = await ctx.store.jobs.stop_training(action.value, action.user, ctx.clock.now())
    if not stopped:
        return "It's being sent just now. Try again in a minute."
    return "Stopped. An admin may have to delete it at the video service."


async def _find(ctx: HandlerContext, command: SlashCommand, wanted: str) -> str:
    """Return the id of the replica with this name or id: of one with the beginning of its name too.

    What may be the id of a replica that is not known here is returned as it is.

    Raises:
        Refusal: several have the name, or none has it.
    """
    if is_replica_id(wanted) and ctx.store.replicas.get(wanted) is not None:
        return wanted
    known = ctx.store.replicas.find(wanted, command.channel, _MAX_LISTED) if wanted else []
    folded = wanted.casefold()
    found = [each for each in known if " ".join(each.name.split()).casefold() == folded]
    found = found or [each for each in known if each.name.casefold().startswith(folded)]
    if len(found) > 1:
        lines = [f"• {unformatted(one_line(each.name))} · {each.id}" for each in found]
        raise Refusal(joined([f"Several replicas match “{escape(wanted)}”. Use the ID:", *lines]))
    if found:
        return found[0].id
    if is_replica_id(wanted):
        return wanted
    typed = ctx.command(_KIND)
    raise Refusal(f"I can't find a replica “{escaped(wanted, 300)}”. `{typed} list` shows all.")


async def _learn(ctx: HandlerContext, replica_id: str, user: str | None = None) -> str:
    """Offer a replica in the picker from now on, and return its label.

    With a ``user``, they own it if nobody does, and may add again what was theirs and removed.

    Raises:
        Refusal: it cannot be used, or could not be looked up.
        DatabaseError: it could not be saved.
    """
    if not is_replica_id(replica_id):
        raise Refusal("That doesn't look like a replica ID.")
    try:
        until = deadline(ctx.timings.call_timeout)
        snapshot = await read_replica(ctx, ctx.kinds[_KIND], replica_id, until)
    except Refused as error:
        verb = "find" if error.code in UNKNOWN_ID else "check"
        said = escaped(only_hosts(error.reason), 300)
        raise Refusal(f"I can't {verb} the replica “{escape(replica_id)}”: “{said}”") from error
    except OutsideError as error:
        why = escape(only_hosts(error.reason))
        raise Refusal(f"I couldn't check it: {why} Please try again in a moment.") from error
    if snapshot.verdict is Verdict.FAILED:
        raise Refusal(escape(why_unusable(snapshot)))
    replicas, now = ctx.store.replicas, ctx.clock.now()
    if user is None:
        await replicas.learn(snapshot, now)
    elif not await replicas.add(snapshot, user, now, is_admin=await ctx.access.is_admin(user)):
        raise Refusal(f"This replica was removed. {_NOT_YOURS}")
    known = replicas.get(replica_id)
    if known is not None and known.removed:
        raise Refusal(REPLICA_REMOVED)
    return unformatted(replica_label(known) if known is not None else replica_id)
