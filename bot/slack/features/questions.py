"""The buttons of a message that asks about several requests, and the form that answers each."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp

from bot.kinds import Comparison
from bot.kinds.answers import MAX_ID
from bot.model import Job, State, token_hash
from bot.slack.context import (
    UNKNOWN_KIND,
    HandlerContext,
    Refusal,
    answer_form,
    field_errors,
    register_clicks,
    updated,
)
from bot.slack.features.actions import (
    NOT_AN_ID,
    SETTLED,
    add_candidate,
    compare,
    find_job,
    is_id,
    not_theirs,
    queue_again,
)
from bot.slack.payloads import BlockAction, PrivateMetadata, ViewSubmission
from bot.slack.views.blocks import (
    Json,
    bullets,
    element,
    field,
    modal,
    option,
    paragraph,
    rich,
    section,
    words,
)
from bot.slack.views.buttons import ANSWER_EACH, CANCEL_ALL, attempt_of, pressed
from bot.slack.views.question import MAX_LISTED, title_of

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


class _Metadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    warned: list[str]
    """The marks of ids of which the user was told that they cannot be verified."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons and the form."""
    app.view(_FORM)(partial(answer_form, ctx, on_submit))
    register_clicks(
        app,
        ctx,
        {
            ANSWER_EACH: open_form,
            CANCEL_ALL: cancel_all,
        },
    )


async def open_form(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form about those of the requests that are still open."""
    jobs = await _still_open(ctx, action)
    return await ctx.open_view(action.trigger_id, _form(ctx, jobs))


async def cancel_all(ctx: HandlerContext, action: BlockAction) -> str | None:
    """End those of the requests that are still open, unless another attempt was begun."""
    jobs, now = await _still_open(ctx, action), ctx.clock.now()
    cancelled = [
        await ctx.store.jobs.cancel(job.id, job.attempts, action.user, now) for job in jobs
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
    await find_job(ctx, action, action.value.partition(" ")[0])
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
    jobs = await asyncio.gather(*(ctx.store.jobs.fetch(attempt_of(key)[0]) for key in keys))
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
    if not is_id(answer.remote_id):
        return {at_id: NOT_AN_ID}, False
    comparison, error = await compare(ctx, job, answer.remote_id, deadline)
    return ({at_id: error} if error else {}), comparison is Comparison.UNKNOWN


async def _carry_out(
    ctx: HandlerContext, user: str, answer: _Answer, deadline: float
) -> str | None:
    """Do what was chosen for a request; return why not, if so."""
    job, choice = answer.job, answer.choice
    if job is None or choice not in _CHOICES or choice == _LATER:
        return None
    if not _is_open(job, answer.key):
        return SETTLED
    if choice == _FOUND:
        return await add_candidate(ctx, job, answer.remote_id, user)
    if choice == _AGAIN:
        person = "You" if user == job.user else "The person who asked"
        who = await ctx.access.admin_names(deadline)
        return await queue_again(ctx, job, user, deadline, person=person, who=who, in_form=True)
    cancelled = await ctx.store.jobs.cancel(job.id, job.attempts, user, ctx.clock.now())
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
        private_metadata=json.dumps({"warned": unverified}),
        blocks=blocks,
    )


def _settled_view(ctx: HandlerContext, jobs: Iterable[Job]) -> Json:
    """Return that some requests were settled before; their message says how."""
    names = [paragraph(words(title_of(job, ctx.presenters[job.kind]))) for job in jobs]
    blocks = [section("These were already settled."), rich(bullets(names))]
    return modal(_SETTLED_VIEW, "Already settled", close="Close", blocks=blocks)
