"""Replicas in Slack: the command, the training form, and how a training shows itself."""

import re
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from bot.database import StoreError
from bot.errors import OutsideError, Refused
from bot.kinds import Invalid
from bot.kinds.replica import MAX_NAME, Replica, parse, progress
from bot.kinds.video import is_replica_id
from bot.links import runs_out, show_link
from bot.model import Failure, Job, State, Verdict
from bot.replicas import KnownReplica
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import (
    Json,
    bullets,
    button,
    date,
    element,
    escape,
    escaped,
    field,
    joined,
    link,
    option,
    paragraph,
    rich,
    section,
    words,
)
from bot.slack.cards import MAKE_VIDEO, RETRY
from bot.slack.desk import Desk, Feature
from bot.slack.forms import (
    Place,
    form,
    link_field,
    place_of,
    send_off,
    text_field,
    where_field,
    wrong,
)
from bot.slack.jobs import listing, pressed, status, tell
from bot.slack.payloads import Click, Command, Submission
from bot.slack.picker import called, look_up, unexplained
from bot.slack.routes import Answer, Routes

COMMAND: Final = "/replica"
_FORM: Final = "replica_form"
_KIND: Final = "replica"
_AGREED: Final = "agreed"
_BAR: Final = 12
_LISTED: Final = 30
# The service fetches the footage when it gets to it: a link must stay good that long.
_FETCHED: Final = timedelta(hours=24)

_HELP: Final = f"""\
I have replicas trained from footage of a person, and tell you here when they can speak.
• `{COMMAND}` opens the form
• `{COMMAND} list` shows your trainings, and the replicas that everybody here can use
• `{COMMAND} status` and a number or a replica's id tells how that one stands now
• `{COMMAND} add` and a replica's id puts it into everybody's picker
• `{COMMAND} default` and a replica's id has it chosen beforehand in this channel
• `{COMMAND} help` shows this
Training takes hours. Nothing is sent to the video service before you press *Train*."""

_NEEDS: Final = (
    "*What the footage needs*: an mp4 (H.264) of at most 750 MB, at least one minute long, with "
    "25 frames a second or more; one person, the face in view all the time; good light, no noise."
)
_CONSENT: Final = (
    "Without it, the consent statement must be at the beginning of the training video."
)
_CONFIRMED: Final = "The person shown has agreed to be trained as a replica."

# What the service's sentences usually mean; the first that fits, and nothing in doubt.
_ADVICE: Final = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
        (
            r"consent.* (not|missing|without)|(no|missing|without) .*consent",
            "the consent statement was not heard, neither first of all nor in a video of its own.",
        ),
        (
            r"(not|unable to|fail\w* to) (be )?(reach|access|download|fetch)|not (public|access)",
            "the link has to open for anybody, without signing in, for 24 hours or so.",
        ),
        (
            r"(video|footage|file) .*(too (large|big)|larger than|exceeds)",
            "the file has more than 750 MB.",
        ),
        (r"codec|h\.?264", "the file is no mp4 with H.264 in it."),
        (
            r"\bfps\b|frame ?rate|frames (per|a) second",
            "the footage has fewer than 25 frames a second.",
        ),
        (
            r"training (video|footage) .*(too short|shorter than)",
            "the footage is shorter than a minute.",
        ),
        (
            r"(two|several|multiple|more than one) (people|persons?|faces)",
            "somebody else is in the picture too.",
        ),
        (
            r"face .*(hidden|covered|not visible|obscured|out of)",
            "the face was turned away, covered or out of the picture for a while.",
        ),
        (r"too dark|unevenly lit|(bad|poor|low) light", "the light was too low or uneven."),
        (r"nois[ey]", "there was something else to be heard than the voice."),
    )
)


def register(routes: Routes, desk: Desk) -> None:
    """Answer the command and the form."""
    routes.command(COMMAND, partial(_on_command, desk))
    routes.submission(_FORM, partial(_on_form, desk))
    routes.click(f"{_KIND}_{RETRY}", partial(_on_retry, desk))


class ReplicaFace:
    """How a training shows itself."""

    noun: Final = "replica"
    slow: Final = True
    doing: Final = "In training"

    def name(self, job: Job) -> str:
        """Return its name."""
        return job.params.get("replica_name", "")

    def facts(self, job: Job) -> Sequence[str]:
        """Return where its footage is."""
        labels = {"train_video_url": "footage", "consent_video_url": "consent"}
        return [
            f"{label} {show_link(job.params[field])}"
            for field, label in labels.items()
            if field in job.params
        ]

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where its thumbnail can be watched."""
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}
        url = link(job.snapshot.facts.get("thumbnail_video_url", ""))
        return {} if url is None else {"See it": url}

    def transcript(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        """Return nothing: it has not spoken yet."""
        return ""

    def making(self, job: Job) -> str:
        """Return a bar and figures, where the service gives any that make sense."""
        said = job.snapshot.facts.get("training_progress", "") if job.snapshot is not None else ""
        if (figures := progress(said)) is None:
            return "The video service is training it. That takes hours; there is nothing to do."
        done, total = figures
        full = round(_BAR * done / total)
        return f"`{'█' * full}{'░' * (_BAR - full)}` {done} of {total} steps are done."

    def ready(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        """Return what can be done with it."""
        return "It can speak now, and is in everybody's picker."

    def advice(self, job: Job) -> str:
        """Return what the service's sentence about a failed training usually means."""
        if job.failure is not Failure.SERVICE_FAILED:
            return ""  # the reason is not about the footage
        said = job.reason.casefold()
        told = next((told for pattern, told in _ADVICE if pattern.search(said)), "")
        return f"Usually that means: {told}" if told else ""

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return the button that opens the form for a video with it."""
        if job.remote_id is None or not is_replica_id(job.remote_id):
            return ()
        label = "Make a video with it"
        return [button(label, MAKE_VIDEO, value=job.remote_id, style="primary")]


# ── Commands and buttons ──────────────────────────────────────────────────────────────────────


async def _on_command(desk: Desk, command: Command) -> Answer:
    match command.words.split():
        case [word] if word.casefold() == "help":
            return {"text": _HELP}
        case [word] if word.casefold() == "list":
            return await _list(desk, command)
        case ["status", wanted]:
            return await status(desk, command, _KIND, wanted)
        case ["add", replica_id]:
            return _later(desk, command, _add(desk, replica_id.strip("`")))
        case ["default", replica_id]:
            return _later(desk, command, _default(desk, replica_id.strip("`"), command.channel))
        case []:
            view = _form({}, {"channel": command.channel, "name": _name_for(desk.clock.now())})
            told = await desk.open_form(command.trigger_id, view)
            return {"text": told} if told else None
        case ["status" | "add" | "default" as word]:
            there = f"`{COMMAND} list` shows those there are."
            return {"text": f"`{COMMAND} {word}` needs the id of a replica: {there}"}
        case _:
            return {"text": f"I do not know that one. {_HELP}"}


async def _list(desk: Desk, command: Command) -> Answer:
    """Show a person's trainings, and below them what everybody can use."""
    answer = await listing(desk, command, _KIND) or {}
    known = await desk.store.replicas.find("", command.channel, _LISTED)
    if not known:
        return answer
    heading = "Replicas that everybody here can pick, the last used first:"
    lines = [called(each) + (" · chosen in this channel" if each.default else "") for each in known]
    items = [paragraph(words(line)) for line in lines]
    blocks = answer.get("blocks") or [section(answer["text"])]
    blocks += [
        section(heading),
        rich(bullets(items)),
    ]
    text = joined([answer["text"], heading, *(f"• {escape(line)}" for line in lines)])
    return {"text": text, "blocks": blocks}


def _later(desk: Desk, command: Command, work: Coroutine[Any, Any, str]) -> Answer:
    """Answer in the background: the service is asked, and Slack does not wait for that."""

    async def answer() -> None:
        try:
            told = await work
        except StoreError:
            told = "That could not be saved. Please try again in a moment."
        desk.whisper(command.response_url, told)

    desk.background.spawn(answer())
    return None


async def _add(desk: Desk, replica_id: str) -> str:
    found = await _find(desk, replica_id)
    if isinstance(found, str):
        return found
    return f"{_shown(found)} is in everybody's picker now: `/video` offers it."


async def _default(desk: Desk, replica_id: str, channel: str) -> str:
    found = await _find(desk, replica_id)
    if isinstance(found, str):
        return found
    await desk.store.replicas.set_default(channel, found.id)
    return f"{_shown(found)} is chosen beforehand from now on when `/video` is typed here."


async def _find(desk: Desk, replica_id: str) -> KnownReplica | str:
    """Return a replica that can be used, or will be, or a sentence about why not."""
    if not is_replica_id(replica_id):
        return "That is no id: it is one word of letters and digits, as the service shows it."
    try:
        found = await look_up(desk, replica_id, desk.timings.call_timeout)
    except Refused as error:
        if error.code not in UNKNOWN_ID:
            return (
                f"It could not be checked. The video service says: “{escaped(error.reason, 300)}”"
            )
        return (
            f"The video service does not know {escape(replica_id)}. "
            f"It says: “{escaped(error.reason, 300)}”"
        )
    except OutsideError as error:
        return f"It could not be checked: {escape(error.reason)} Please try again in a moment."
    if found.verdict is Verdict.FAILED:
        if not found.reason:
            return f"{_shown(found)}: {escape(unexplained(found))}."
        reason = escaped(found.reason, 300)
        return f"{_shown(found)}. The video service says: “{reason}”"
    return found


def _shown(replica: KnownReplica) -> str:
    return escape(called(replica))


async def _on_retry(desk: Desk, click: Click) -> Answer:
    job = await pressed(desk, click)
    if job is None:
        return None
    fields = dict(job.params)
    if click.user != job.user:
        # What somebody typed is shown to them alone.
        fields = {name: fields[name] for name in ("replica_name",) if name in fields}
    place = {
        "channel": job.channel,
        "thread_ts": job.thread_ts,
        "name": _name_for(desk.clock.now()),
    }
    note = "What was typed here has been erased: it was too old to be kept." if job.erased else ""
    view = _form({**fields, "where": job.channel}, place, note)
    if told := await desk.open_form(click.trigger_id, view):
        tell(desk, click, told)
    return None


# ── The form ──────────────────────────────────────────────────────────────────────────────────


async def _on_form(desk: Desk, submission: Submission) -> Answer:
    fields, now = submission.view.typed(), desk.clock.now()
    place = {"name": _name_for(now), **place_of(submission.view)}
    try:
        params = parse(fields)
    except Invalid as error:
        return wrong(error.errors)
    over, soon = _running_out(params, now)
    if over:
        return wrong(dict.fromkeys(over, "This link has run out already. Please make a new one."))
    if soon and sorted(soon.values()) != place.get("warned"):
        warned = {**place, "warned": sorted(soon.values())}
        redrawn = _form(fields, warned, _warning(soon))
        return {"response_action": "update", "view": redrawn}
    # With a name it can be known again if the answer to the create call is lost.
    params.setdefault("replica_name", place["name"])

    async def redraw(note: str) -> Json:
        return _form(fields, place, note)

    return await send_off(desk, submission, _KIND, params, redraw)


def _running_out(params: Mapping[str, str], now: datetime) -> tuple[list[str], dict[str, str]]:
    """Return which links are over, and until when those are good that may not last."""
    over, soon = [], {}
    for name in ("train_video_url", "consent_video_url"):
        until = runs_out(params.get(name, ""))
        if until is not None and until <= now:
            over.append(name)
        elif until is not None and until < now + _FETCHED:
            soon[name] = date(until)
    return over, soon


def _warning(soon: Mapping[str, str]) -> str:
    labels = {"train_video_url": "training video", "consent_video_url": "consent video"}
    ends = " and ".join(
        f"the link of the {labels[name]} runs out {until}" for name, until in soon.items()
    )
    return (
        f":warning: Please check: {ends}. The video service fetches the footage when it gets to "
        "it, so a link should be good for 24 hours. *Train* sends it all the same."
    )


def _name_for(now: datetime) -> str:
    return f"Replica {now:%Y-%m-%d %H:%M:%S}"


def _form(fields: Mapping[str, str], place: Place, note: str = "") -> Json:
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
        link_field(
            "train_video_url",
            "Link of the training video",
            "A direct link that anybody can download from, for the next 24 hours at least.",
            fields.get("train_video_url"),
        ),
        link_field(
            "consent_video_url",
            "Link of the consent video",
            _CONSENT,
            fields.get("consent_video_url"),
            optional=True,
        ),
        text_field(
            "replica_name",
            "Name",
            f"Everybody here sees it. Left empty, it is “{place['name']}”.",
            fields.get("replica_name"),
            MAX_NAME,
            placeholder="What everybody will know it by",
        ),
        field(_AGREED, "Consent", agreement),
        where_field(fields.get("where")),
    ]
    return form(_FORM, "Train a replica", submit="Train", place=place, blocks=blocks, note=note)


FEATURE: Final = Feature(Replica(), ReplicaFace(), register)
