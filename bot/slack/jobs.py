"""What can be done with a job of any kind: look it up, list it, and press its buttons."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict

from bot.errors import OutsideError, Refused
from bot.kinds import Kind, Unreadable
from bot.kinds.wire import moment
from bot.model import Job, Snapshot, State, Verdict
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import (
    SCRIPT,
    TEXT,
    Json,
    Message,
    anchor,
    bullets,
    context,
    cut,
    date,
    element,
    escape,
    escaped,
    field,
    joined,
    link,
    linked,
    modal,
    mrkdwn,
    one_line,
    paragraph,
    plain,
    quote,
    rich,
    section,
    title,
    words,
)
from bot.slack.cards import CHECK_AGAIN, CREATE_AGAIN, GIVE_UP, HAVE_ID, Face
from bot.slack.desk import Desk
from bot.slack.payloads import Click, Command, Submission
from bot.slack.routes import Answer, Routes

UNKNOWN: Final = "I no longer know this one."
_LISTED: Final = 15
_LONGEST_ID: Final = 150
_FACT: Final = 500
_ID_FORM: Final = "job_id_form"
_ID: Final = "remote_id"
# The links of a snapshot, and their labels.
_LINKS: Final = {
    "hosted_url": "Watch",
    "download_url": "Download",
    "stream_url": "Stream",
    "thumbnail_video_url": "Thumbnail",
}
_MORE: Final = {"replica_name": "Name at the service", "training_progress": "Progress"}
# While it runs, its face has the words.
_STATES: Final = {
    State.QUEUED: "starting",
    State.CREATING: "starting",
    State.UNCONFIRMED: "unclear whether it was made",
    State.OVERDUE: "overdue",
    State.SUCCEEDED: "ready",
    State.FAILED: "failed",
}


def register(routes: Routes, desk: Desk) -> None:
    """Answer the buttons that cards of every kind have."""
    routes.click(CHECK_AGAIN, partial(_check_again, desk))
    routes.click(CREATE_AGAIN, partial(_create_again, desk))
    routes.click(GIVE_UP, partial(_give_up, desk))
    routes.click(HAVE_ID, partial(_ask_for_id, desk))
    routes.submission(_ID_FORM, partial(_take_id, desk))


# ── Looking ───────────────────────────────────────────────────────────────────────────────────


async def listing(desk: Desk, command: Command, kind: str) -> Answer:
    """Return a person's jobs of a kind, newest first, for their eyes only."""
    face = desk.faces[kind]
    jobs = await desk.store.jobs.list_for_user(command.user, kind, _LISTED)
    if not jobs:
        return {"text": f"You have not asked for a {face.noun} yet: `{command.command}` begins."}
    heading = f"Your {face.noun}s, newest first:"
    items = [
        paragraph(
            words(_standing(face, job).capitalize(), bold=True),
            words(f" · {title(face.name(job)) or 'no name'} · No. {job.id}"),
            *[
                part
                for label, url in face.links(job).items()
                for part in (words(" · "), linked(url, label))
            ],
        )
        for job in jobs
    ]
    lines = [
        f"• {_standing(face, job).capitalize()} · {escape(title(face.name(job)) or 'no name')} · "
        + " · ".join([f"No. {job.id}", *_best_link(face, job)])
        for job in jobs
    ]
    blocks = [
        section(heading),
        rich(bullets(items)),
        context(plain(f"{command.command} status {jobs[0].id} tells more of the first.", 200)),
    ]
    return _private(Message(joined([heading, *lines]), blocks))


def _best_link(face: Face, job: Job) -> list[str]:
    return [anchor(url, label) for label, url in face.links(job).items()][:1]


async def status(desk: Desk, command: Command, kind_name: str, wanted: str) -> Answer:
    """Say how one job, or anything of the service's, stands now. The service is asked meanwhile."""
    kind, face = desk.kinds[kind_name], desk.faces[kind_name]
    wanted = wanted.strip("`#")
    if not wanted or len(wanted) > _LONGEST_ID or not wanted.isprintable():
        return {"text": f"That is no id: `{command.command} list` shows yours."}
    job = await desk.store.jobs.fetch(wanted) or await desk.store.jobs.fetch_by_remote_id(
        kind.name, wanted
    )
    if job is not None and job.kind != kind.name:
        other = desk.faces[job.kind].noun
        return {"text": f"That is a {other}: `/{other} status {job.id}` shows it."}
    if job is not None and job.remote_id is None:
        return _private(_status(face, job, None, command.user))

    async def ask() -> None:
        desk.whisper(command.response_url, await _asked(desk, command, kind, job, wanted))

    desk.background.spawn(ask())
    return None


async def _asked(desk: Desk, command: Command, kind: Kind, job: Job | None, wanted: str) -> Message:
    face, remote_id = desk.faces[kind.name], (job and job.remote_id) or wanted
    try:
        answer = await desk.service.read(kind.path, remote_id)
        snapshot = kind.read(answer, remote_id)
    except Unreadable:
        return _unasked(face, job, command, wanted, "Its answer could not be read.")
    except Refused as error:
        if error.code not in UNKNOWN_ID:
            return _unasked(face, job, command, wanted, error.reason)
        if job is not None:
            return _status(face, job, None, command.user, error.reason)
        reason = escaped(error.reason, 500)
        return Message(
            f"Neither I nor the video service know {face.noun} {escape(wanted)}. "
            f"It says: “{reason}”. `{command.command} list` shows yours.",
            (),
        )
    except OutsideError as error:
        return _unasked(face, job, command, wanted, error.reason)
    if kind.name == "replica" and (job is not None or await desk.store.replicas.get(remote_id)):
        await desk.store.replicas.learn(snapshot, desk.clock.now())
    if job is not None:
        await desk.store.jobs.wake(job, desk.clock.now())
    return _status(face, job, snapshot, command.user)


def _unasked(face: Face, job: Job | None, command: Command, wanted: str, why: str) -> Message:
    """Return what can be said although the service could not be asked."""
    if job is not None:
        return _status(face, job, None, command.user, why)
    return Message(
        f"{escape(wanted)} is none of mine, and the video service could not be asked: "
        f"{escaped(why, 500)} Please try again in a moment.",
        (),
    )


def _status(
    face: Face, job: Job | None, snapshot: Snapshot | None, reader: str, unread: str = ""
) -> Message:
    """Return all that is known; ``unread`` is why the service could not be asked just now."""
    known = snapshot or (job.snapshot if job is not None else None)
    facts: list[tuple[str, str]] = []
    # A job's words, and what the service says about them, are for the person who asked.
    own = job is None or reader == job.user
    if job is not None:
        facts.append((f"No. {job.id}", _standing(face, job)))
        # Without a name of its own, it goes by the beginning of what was typed.
        name = face.name(job) if own else job.params.get(f"{face.noun}_name", "")
        if name := title(name):
            facts.append(("Name", name))
        if own and job.reason:
            facts.append(("Reason", job.reason))
    if known is not None:
        facts.append((f"Id of the {face.noun}", known.remote_id))
        facts.append(("Video service says", known.status))
        if own and (details := known.facts.get("status_details") or known.reason):
            facts.append(("Details", details))
        facts += [
            (label, known.facts[field]) for field, label in _MORE.items() if field in known.facts
        ]
    if unread:
        facts.append(("Could not be read just now", unread))
    links: dict[str, str] = {}
    if known is not None and known.verdict is Verdict.SUCCEEDED:
        links = {
            label: safe
            for field, label in _LINKS.items()
            if (safe := link(known.facts.get(field, ""))) is not None
        }
    times = [
        f"{label} {date(at)}"
        for label, field in (("created", "created_at"), ("updated", "updated_at"))
        if known is not None and (at := moment(known.facts.get(field, ""))) is not None
    ]
    script = ""
    # Of what is not known to be anybody's here, nobody knows who may read it.
    if own and job is not None:
        script = (known.facts.get("script", "") if known is not None else "") or job.params.get(
            "script", ""
        )
    return _drawn(facts, links, times, script)


def _drawn(
    facts: Sequence[tuple[str, str]], links: dict[str, str], times: Sequence[str], script: str
) -> Message:
    said = [(label, line) for label, value in facts if (line := one_line(value))]
    rows = [
        paragraph(words(f"{label}: ", bold=True), words(cut(line, _FACT))) for label, line in said
    ]
    rows += [paragraph(linked(url, label)) for label, url in links.items()]
    blocks: list[Json] = [rich(bullets(rows))]
    if times:
        blocks.append(context(mrkdwn(" · ".join(times))))
    if script:
        blocks.append(rich(quote(cut(script, SCRIPT))))
    text = [
        *(f"{label}: {escaped(line, _FACT)}" for label, line in said),
        *times,
        *(anchor(url, label) for label, url in links.items()),
    ]
    if script:
        text.append(f"Script: {escaped(script, TEXT - len(joined(text)) - 20)}")
    return Message(joined(text), blocks)


def _standing(face: Face, job: Job) -> str:
    return _STATES.get(job.state) or face.doing.lower()


def _private(message: Message) -> Answer:
    return {"text": message.text, "blocks": message.blocks}


# ── Deciding ──────────────────────────────────────────────────────────────────────────────────


async def pressed(desk: Desk, click: Click) -> Job | None:
    """Return the job whose button a person pressed, if they may; tell them if not."""
    job = await desk.store.jobs.fetch(click.value)
    told = None
    if job is None:
        told = UNKNOWN
    elif not desk.may_press(click.user, job):
        told = f"This one is <@{job.user}>'s: only they and admins can decide about it."
    if told is None:
        return job
    tell(desk, click, told)
    return None


def tell(desk: Desk, click: Click, told: str) -> None:
    """Tell the person who pressed a button something that nobody else sees."""
    if click.response_url is not None:
        desk.whisper(click.response_url, told)


async def _check_again(desk: Desk, click: Click) -> Answer:
    if (job := await pressed(desk, click)) is not None:
        told = _SETTLED
        if not job.state.ended:
            await desk.store.jobs.wake(job, desk.clock.now())
            told = "I am looking: if anything has changed, the card will show it."
        tell(desk, click, told)
    return None


async def _create_again(desk: Desk, click: Click) -> Answer:
    job = await pressed(desk, click)
    if job is not None and not await desk.store.jobs.create_again(job.id, desk.clock.now()):
        tell(desk, click, _SETTLED)
    return None


async def _give_up(desk: Desk, click: Click) -> Answer:
    job = await pressed(desk, click)
    if job is not None and not await desk.store.jobs.cancel(job.id, desk.clock.now()):
        tell(desk, click, _SETTLED)
    return None


async def _ask_for_id(desk: Desk, click: Click) -> Answer:
    if (job := await pressed(desk, click)) is not None:
        if job.state is not State.UNCONFIRMED:
            tell(desk, click, _SETTLED)
        elif told := await desk.open_form(click.trigger_id, _id_form(desk, job)):
            tell(desk, click, told)
    return None


async def _take_id(desk: Desk, submission: Submission) -> Answer:
    job = await desk.store.jobs.fetch(submission.view.remembers(_Question).job)
    given = submission.view.typed().get(_ID, "").strip()
    if job is None or not desk.may_press(submission.user, job):
        return _wrong("This one is not yours to decide about.")
    if not given or len(given) > _LONGEST_ID or not given.isprintable() or " " in given:
        return _wrong("An id is one word, as the video service shows it.")
    if wrong := await _mismatch(desk, job, given):
        return _wrong(wrong)
    if not await desk.store.jobs.add_candidate(job.id, given, desk.clock.now()):
        return _wrong("It has been settled meanwhile: please look at its card.")
    return None


async def _mismatch(desk: Desk, job: Job, given: str) -> str | None:
    """Return why ``given`` cannot be what the job asked for; None where it may be."""
    kind, noun = desk.kinds[job.kind], desk.faces[job.kind].noun
    owner = await desk.store.jobs.fetch_by_remote_id(kind.name, given)
    if owner is not None:
        return f"That {noun} belongs to another request, No. {owner.id}."
    try:
        async with asyncio.timeout(desk.timings.check_timeout.total_seconds()):
            snapshot = kind.read(await desk.service.read(kind.path, given), given)
    except Refused as error:
        return f"The video service does not know it. It says: {cut(error.reason, 200)}"
    except (OutsideError, Unreadable, TimeoutError):
        return None  # it is looked at again before it is believed
    if kind.can_compare(snapshot) and not kind.matches(job.params, snapshot):
        return f"That {noun} says something else than what was asked for here."
    return None


class _Question(BaseModel):
    """What the form for an id is about."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    job: str


_SETTLED: Final = "That has been settled meanwhile: the card shows how it stands."


def _wrong(told: str) -> Answer:
    return {"response_action": "errors", "errors": {_ID: told}}


def _id_form(desk: Desk, job: Job) -> Json:
    noun = desk.faces[job.kind].noun
    return modal(
        _ID_FORM,
        f"Id of the {noun}",
        submit="Take it",
        close="Back",
        memory=json.dumps({"job": job.id}),
        blocks=[
            field(
                _ID,
                f"Id that the video service gave the {noun}",
                element("plain_text_input", _ID, max_length=_LONGEST_ID),
                hint="It is shown in your account there. I check that it is the one.",
            )
        ],
    )
