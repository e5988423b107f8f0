"""How people answer the question whether a create call made something: each, or several."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp

from bot.errors import OutsideError, Refused
from bot.kinds import MAX_ID, Comparison, Unreadable, compare_with_job
from bot.links import only_hosts
from bot.model import Failure, Job, State, token_hash
from bot.service.errors import UNKNOWN_ID
from bot.slack.context import (
    UNKNOWN_KIND,
    HandlerContext,
    Refusal,
    answer_form,
    field_errors,
    register_clicks,
    updated,
)
from bot.slack.features.jobs import SETTLED, fetch_job, find_job, not_theirs
from bot.slack.payloads import BlockAction, PrivateMetadata, ViewSubmission
from bot.slack.views.blocks import (
    Json,
    bullets,
    cut,
    element,
    field,
    modal,
    option,
    paragraph,
    rich,
    section,
    words,
)
from bot.slack.views.buttons import (
    ANSWER_EACH,
    CANCEL_ALL,
    CREATE_AGAIN,
    GIVE_UP,
    HAVE_ID,
    attempt_of,
    job_of,
    pressed,
)
from bot.slack.views.question import MAX_LISTED, NOBODY_TO_APPROVE, title_of
from bot.slack.views.usage import bound_error, limit_sentence, resets_in_form
from bot.store import AddedCandidate, LimitReached, NobodyToApprove, NotAllowed

_FORM: Final = "answers_form"
_SETTLED_VIEW: Final = "answers_settled"
# The blocks of a request are named after these and what its own buttons would say.
_CHOICE: Final = "choice "
_ID: Final = "id "
_LATER: Final = "later"
_FOUND: Final = "found"
_AGAIN: Final = "again"
_CANCEL: Final = "cancel"
_CHOICES: Final = {
    _LATER: "Decide later",
    _FOUND: "I found it",
    _AGAIN: "Create again (you may be charged twice)",
    _CANCEL: "Cancel the request",
}
_HOW_TO: Final = (
    "Check your account at the video service. If it's there, choose *I found it* and enter its ID."
)
_NOT_FOUND: Final = "Choose “I found it” to use the ID below, or remove the ID."
_MARK_LENGTH: Final = 16
_NOT_AN_ID: Final = "Paste only the ID."
_ID_FORM: Final = "job_id_form"
_REMOTE_ID: Final = "remote_id"


class _Metadata(PrivateMetadata):
    """The ``private_metadata`` of both forms."""

    warned: list[str]
    """The marks of ids of which the user was told that they cannot be verified."""
    asked: str = ""
    """The request and its attempt, as its button says, where the form is about one."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons and the form."""
    app.view(_ID_FORM)(partial(answer_form, ctx, submit_id))
    app.view(_FORM)(partial(answer_form, ctx, on_submit))
    register_clicks(
        app,
        ctx,
        {
            CREATE_AGAIN: create_again,
            GIVE_UP: give_up,
            HAVE_ID: open_id_form,
            ANSWER_EACH: open_form,
            CANCEL_ALL: cancel_all,
        },
    )


# ── About one request ───────────────────────────────────────────────────────────────────────────


async def create_again(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Create an unconfirmed job again, unless the button belongs to an earlier attempt."""
    job = await find_job(ctx, action)
    refusal = await _queue_again(
        ctx,
        replace(job, attempts=attempt_of(action.value)),
        action.user,
        ctx.service_deadline(),
        person="You" if action.user == job.user else f"<@{job.user}>",
        who=ctx.access.admin_mentions,
    )
    if refusal in {None, SETTLED}:
        await _refresh_home(ctx, action)
    return refusal


async def give_up(ctx: HandlerContext, action: BlockAction) -> str | None:
    """End an unconfirmed job, unless the button belongs to an earlier attempt."""
    job, attempts = await find_job(ctx, action), attempt_of(action.value)
    cancelled = await ctx.store.jobs.close(
        job.id, attempts, Failure.CANCELLED, action.user, ctx.clock.now()
    )
    await _refresh_home(ctx, action)
    return None if cancelled else SETTLED


async def _refresh_home(ctx: HandlerContext, action: BlockAction) -> None:
    """Have the Home tab published in which an admin answered a question to somebody else."""
    if action.is_outside_conversations:
        await ctx.open_home(action.user, 0)


async def _queue_again(
    ctx: HandlerContext,
    job: Job,
    user: str,
    deadline: float,
    *,
    person: str,
    who: str,
    in_form: bool = False,
) -> str | None:
    """Queue an unconfirmed job again unless another attempt was begun; return why not, if so.

    If that needs approval, and ``user`` cannot give it, it waits for that.
    ``person`` begins a sentence about its owner; ``who`` can raise a limit; ``in_form`` says
    whether that is shown in a form. By the deadline, it has to be known whether ``user`` may do
    that.
    """
    now = ctx.clock.now()
    if refusal := await ctx.access.asking_refusal(job.kind, user, deadline):
        return refusal
    membership = await ctx.access.membership(job.kind, user, deadline)
    try:
        queued = await ctx.store.jobs.create_again(
            job.id, job.attempts, user, now, membership.groups
        )
    except NotAllowed as outside:
        return bound_error(outside, "", membership, who)
    except NobodyToApprove:
        return NOBODY_TO_APPROVE
    except LimitReached as reached:
        zone = ctx.access.zone(user)
        resets = resets_in_form(reached.left, zone, ctx.clock.now()) if in_form else ""
        said = limit_sentence(reached.left, resets, person=person, who=who)
        return f"I didn't create it again. {said}"
    return None if queued else SETTLED


async def open_id_form(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form."""
    job = await find_job(ctx, action)
    if not _is_open(job, action.value):
        return SETTLED
    return await ctx.open_view(action.trigger_id, _id_form(ctx, job))


async def submit_id(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Have the named id checked; warn first of one that cannot be verified."""
    view, deadline = submission.view, ctx.service_deadline()
    metadata, typed = view.metadata(_Metadata), view.fields().get(_REMOTE_ID, "").strip()
    job = await fetch_job(ctx, metadata.asked)
    answer = _Answer(metadata.asked, _FOUND, typed, job)
    errors, is_unsure = await _check(ctx, submission.user, answer, deadline)
    if is_unsure and _mark(metadata.asked, typed) not in metadata.warned:
        return updated(_id_form(ctx, job, unverified=typed))
    wrong = "".join(errors.values())
    if refusal := wrong or await _carry_out(ctx, submission.user, answer, deadline):
        raise Refusal(refusal)
    return {}


def _id_form(ctx: HandlerContext, job: Job, unverified: str = "") -> Json:
    """Return the form; with a warning, if ``unverified`` was typed and cannot be verified."""
    noun = ctx.presenters[job.kind].noun
    warning = f"I can't tell if this {noun} is the right one. Use it anyway?"
    hint = "You'll find it in your account there."
    remote_id = field(
        _REMOTE_ID,
        f"{noun.capitalize()} ID at the video service",
        element(
            "plain_text_input", _REMOTE_ID, initial_value=unverified or None, max_length=MAX_ID
        ),
        hint="" if unverified else hint,
    )
    asked = pressed(job)
    warned = [_mark(asked, unverified)] if unverified else []
    return modal(
        _ID_FORM,
        f"{noun.capitalize()} ID",
        submit="Use it anyway" if unverified else f"Use this {noun}",
        close="Cancel",
        private_metadata=_Metadata(asked=asked, warned=warned).model_dump_json(),
        blocks=[section(warning), remote_id] if unverified else [remote_id],
    )


# ── About several ───────────────────────────────────────────────────────────────────────────────


async def open_form(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form about those of the requests that are still open."""
    jobs = await _still_open(ctx, action)
    return await ctx.open_view(action.trigger_id, _form(ctx, jobs))


async def cancel_all(ctx: HandlerContext, action: BlockAction) -> str | None:
    """End those of the requests that are still open, unless another attempt was begun."""
    jobs, now = await _still_open(ctx, action), ctx.clock.now()
    cancelled = [
        await ctx.store.jobs.close(job.id, job.attempts, Failure.CANCELLED, action.user, now)
        for job in jobs
    ]
    settled = len(_keys(action)) - sum(cancelled)
    return f"{settled} of them were already settled." if settled else None


def _keys(action: BlockAction) -> list[str]:
    """Return what names the requests of a button and their attempts, after the leading one."""
    return action.value.split()[1 : MAX_LISTED + 1]


async def _still_open(ctx: HandlerContext, action: BlockAction) -> list[Job]:
    """Return the jobs of a button that are open for this user.

    Raises:
        Refusal: there are none.
    """
    await find_job(ctx, action)
    found = await _fetch(ctx, _keys(action))
    jobs = [
        job
        for key, job in found.items()
        if job is not None
        and await ctx.may_press(action.user, job)
        and job.kind in ctx.kinds
        and _is_open(job, key)
    ]
    if not jobs:
        raise Refusal(SETTLED)
    return jobs


async def _fetch(ctx: HandlerContext, keys: Iterable[str]) -> dict[str, Job | None]:
    keys = list(keys)
    jobs = await asyncio.gather(*(ctx.store.jobs.fetch(job_of(key)) for key in keys))
    return dict(zip(keys, jobs, strict=True))


def _is_open(job: Job, key: str) -> bool:
    return job.state is State.UNCONFIRMED and pressed(job) == key


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was chosen for a request."""

    key: str
    """What its own buttons would say: its job and attempt."""
    choice: str
    remote_id: str
    job: Job | None


def _mark(key: str, remote_id: str) -> str:
    """Return what stands for an id of which the user was warned: 20 ids would be too long."""
    return token_hash(f"{key} {remote_id}")[:_MARK_LENGTH]


async def on_submit(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Do what was chosen for each request, once nothing is wrong with any answer.

    What was settled meanwhile stays as it is. Of an id that cannot be verified, warn first.
    """
    user, typed = submission.user, submission.view.fields()
    warned = submission.view.metadata(_Metadata).warned
    deadline = ctx.service_deadline()
    found = await _fetch(
        ctx, [name.removeprefix(_CHOICE) for name in typed if name.startswith(_CHOICE)]
    )
    answers = [
        _Answer(key, typed[_CHOICE + key], typed.get(_ID + key, "").strip(), job)
        for key, job in found.items()
    ]
    checked = await asyncio.gather(*(_check(ctx, user, each, deadline) for each in answers))
    errors = {name: error for wrong, _ in checked for name, error in wrong.items()}
    marks = [
        _mark(each.key, each.remote_id)
        for each, (_, unsure) in zip(answers, checked, strict=True)
        if unsure
    ]
    settled: list[Job] = []
    if not errors and set(marks) <= set(warned):
        for each in answers:
            refusal = await _carry_out(ctx, user, each, deadline)
            if refusal == SETTLED and each.job is not None:
                settled.append(each.job)
            elif refusal:
                errors[_CHOICE + each.key] = refusal
    elif not errors:
        jobs = [each.job for each in answers if each.job and _is_open(each.job, each.key)]
        return updated(_form(ctx, jobs, typed, marks))
    if errors:
        return field_errors(submission.view, errors)
    return updated(_settled_view(ctx, settled)) if settled else {}


async def _check(
    ctx: HandlerContext, user: str, answer: _Answer, deadline: float
) -> tuple[dict[str, str], bool]:
    """Return what is wrong with an answer, by block, and whether its id cannot be verified."""
    at_choice, at_id, job = _CHOICE + answer.key, _ID + answer.key, answer.job
    if job is None or not await ctx.may_press(user, job):
        return {at_choice: not_theirs("the person who asked")}, False
    if job.kind not in ctx.kinds:
        return {at_choice: UNKNOWN_KIND}, False
    if not _is_open(job, answer.key):
        return {}, False
    if answer.choice != _FOUND:
        return ({at_choice: _NOT_FOUND} if answer.remote_id else {}), False
    remote_id = answer.remote_id
    if not remote_id or len(remote_id) > MAX_ID or not remote_id.isprintable() or " " in remote_id:
        return {at_id: _NOT_AN_ID}, False
    kind, noun = ctx.kinds[job.kind], ctx.presenters[job.kind].noun
    owner = await ctx.store.jobs.fetch_by_remote_id(kind.name, remote_id)
    if owner is not None:
        return {at_id: f"That {noun} belongs to request {owner.id}."}, False
    try:
        async with asyncio.timeout_at(deadline):
            snapshot = kind.read(await ctx.service.read(kind.path, remote_id), remote_id)
    except (OutsideError, Unreadable, TimeoutError) as error:
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            said = cut(only_hosts(error.reason), 200)
            return {at_id: f"I can't find it: “{said}”"}, False
        return {}, True  # it is read again before it is adopted
    comparison = compare_with_job(kind, job, snapshot)
    if comparison is Comparison.DIFFERENT:
        return {at_id: f"That {noun} isn't the right one."}, False
    return {}, comparison is Comparison.UNKNOWN


async def _carry_out(
    ctx: HandlerContext, user: str, answer: _Answer, deadline: float
) -> str | None:
    """Do what was chosen for a request; return why not, if so."""
    job, choice, now = answer.job, answer.choice, ctx.clock.now()
    if job is None or choice not in _CHOICES or choice == _LATER:
        return None
    if not _is_open(job, answer.key):
        return SETTLED
    if choice == _FOUND:
        match await ctx.store.jobs.add_candidate(job.id, job.attempts, answer.remote_id, user, now):
            case AddedCandidate.STORED:
                return None
            case AddedCandidate.OTHER_UNCHECKED:
                return "Another ID is being checked. Try again in a few minutes."
            case AddedCandidate.SETTLED:
                return SETTLED
    if choice == _AGAIN:
        person = "You" if user == job.user else "The person who asked"
        who = await ctx.access.admin_names(deadline)
        return await _queue_again(ctx, job, user, deadline, person=person, who=who, in_form=True)
    cancelled = await ctx.store.jobs.close(job.id, job.attempts, Failure.CANCELLED, user, now)
    return None if cancelled else SETTLED


def _form(
    ctx: HandlerContext,
    jobs: Iterable[Job],
    typed: Mapping[str, str] | None = None,
    unverified: Sequence[str] = (),
) -> Json:
    """Return the form with what was ``typed``; with warnings of the ids that have these marks."""
    typed = typed or {}
    options = {value: option(text, value) for value, text in _CHOICES.items()}
    blocks = [section(_HOW_TO)]
    for job in jobs:
        key, presenter = pressed(job), ctx.presenters[job.kind]
        choice, remote_id = _CHOICE + key, _ID + key
        menu = element(
            "static_select",
            choice,
            options=list(options.values()),
            initial_option=options.get(typed.get(choice, _LATER)),
        )
        blocks.append(field(choice, title_of(job, presenter), menu))
        if _mark(key, typed.get(remote_id, "").strip()) in unverified:
            blocks.append(
                section(
                    f"I can't tell if this {presenter.noun} is the right one. To use it anyway, "
                    "send your answers again."
                )
            )
        given = element(
            "plain_text_input",
            remote_id,
            initial_value=typed.get(remote_id),
            max_length=MAX_ID,
        )
        label = f"{presenter.noun.capitalize()} ID, if you found it"
        blocks.append(field(remote_id, label, given, optional=True))
    return modal(
        _FORM,
        "Answer each",
        submit="Send answers",
        close="Cancel",
        private_metadata=_Metadata(warned=[*unverified]).model_dump_json(),
        blocks=blocks,
    )


def _settled_view(ctx: HandlerContext, jobs: Iterable[Job]) -> Json:
    """Return that some requests were settled before; their message says how."""
    names = [paragraph(words(title_of(job, ctx.presenters[job.kind]))) for job in jobs]
    blocks = [section("These were already settled."), rich(bullets(names))]
    return modal(_SETTLED_VIEW, "Already settled", close="Close", blocks=blocks)
