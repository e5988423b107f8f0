"""Videos in Slack: the command, the form, and how a video job shows itself."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from bot.errors import OutsideError
from bot.kinds import Invalid
from bot.kinds.video import BACKGROUNDS, MAX_NAME, MAX_SCRIPT, Video, is_replica_id, parse
from bot.links import show_link
from bot.model import Job, State, Verdict
from bot.replicas import KnownReplica
from bot.slack.blocks import Json, element, field, link, one_line, option, spoken
from bot.slack.cards import MAKE_VIDEO, RETRY
from bot.slack.desk import Desk, Feature
from bot.slack.errors import translated
from bot.slack.forms import (
    Place,
    form,
    link_field,
    note_of,
    place_of,
    send_off,
    text_field,
    where_field,
    wrong,
)
from bot.slack.jobs import UNKNOWN, listing, pressed, status, tell
from bot.slack.payloads import Click, Command, Lookup, Submission
from bot.slack.picker import called, why_not
from bot.slack.routes import Answer, Routes

_LOG: Final = logging.getLogger(__name__)
COMMAND: Final = "/video"
_FORM: Final = "video_form"
_REPLICA: Final = "video_replica"
_BACKGROUND: Final = "video_background"
_KIND: Final = "video"
_OPTIONS: Final = 100
# So many options are kept as JSON: some 300 bytes each.
_OFFERS: Final = 10_000
# Two of them fit into a form's private metadata.
_KEPT_LINK: Final = 1000

_CHOICES: Final = {
    "none": "No background",
    "background_url": "A web page",
    "background_source_url": "A video file",
}
_LINK_FIELDS: Final = {
    "background_url": ("Link of the web page", "Anyone must be able to open it."),
    "background_source_url": (
        "Direct link of the video file",
        "Anyone must be able to download it, for the next 24 hours at least.",
    ),
}

_HELP: Final = f"""\
I have videos made in which a replica speaks your script, and tell you here when they are ready.
• `{COMMAND}` opens the form
• `{COMMAND} Welcome to the team!` opens it with that script
• `{COMMAND} list` shows your videos and how they stand
• `{COMMAND} status` and a number or a video's id tells how that one stands now
• `{COMMAND} help` shows this
A form makes one video. Nothing is sent to the video service before you press *Create*."""


def register(routes: Routes, desk: Desk) -> None:
    """Answer the command and the form."""
    routes.command(COMMAND, partial(_on_command, desk))
    routes.submission(_FORM, partial(_on_form, desk))
    routes.lookup(_REPLICA, partial(_on_replica_query, desk))
    routes.click(_BACKGROUND, partial(_on_background, desk))
    routes.click(f"{_KIND}_{RETRY}", partial(_on_retry, desk))
    routes.click(MAKE_VIDEO, partial(_on_make_video, desk))


class VideoFace:
    """How a video job shows itself."""

    noun: Final = "video"
    slow: Final = False
    doing: Final = "In the making"

    def name(self, job: Job) -> str:
        """Return its name, or the first line of its script."""
        return job.params.get("video_name") or one_line(job.params.get("script", ""))

    def facts(self, job: Job) -> Sequence[str]:
        """Return its replica, how long it speaks, and its background."""
        facts = [f"replica {job.params.get('replica_id', '?')}"]
        if script := job.params.get("script"):
            facts.append(f"about {spoken(script)} spoken")
        facts += [
            f"background {show_link(job.params[name])}"
            for name in BACKGROUNDS
            if name in job.params
        ]
        return facts

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where it can be watched and downloaded."""
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}  # a hosted_url is there from the start, and even after a failure
        facts = job.snapshot.facts
        labels = {"Watch": "hosted_url", "Download": "download_url"}
        found = {label: link(facts.get(field, "")) for label, field in labels.items()}
        return {label: url for label, url in found.items() if url is not None}

    def transcript(self, job: Job) -> str:
        """Return the script that the service used, or the one that it was given."""
        facts = job.snapshot.facts if job.snapshot is not None else {}
        return facts.get("script") or job.params.get("script", "")

    def making(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        """Return the sentence for a video that is being made."""
        return "The video service is making it. The answer comes into this thread."

    def ready(self, job: Job) -> str:
        """Return what to do where the service gave no link."""
        if self.links(job):
            return ""
        again = f"`{COMMAND} status {job.id}` asks it again."
        return f"The video service gave no link that I can show: {again}"

    def advice(self, job: Job) -> str:  # noqa: ARG002 - the service's words say it
        """Return nothing: no sentence of the service about videos needs an explanation."""
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - the same for all
        """Return nothing: a video is to be watched."""
        return ()


# ── Commands and buttons ──────────────────────────────────────────────────────────────────────


async def _on_command(desk: Desk, command: Command) -> Answer:
    match command.words.split():
        case [word] if word.casefold() == "help":
            return {"text": _HELP}
        case [word] if word.casefold() == "list":
            return await listing(desk, command, _KIND)
        case ["status", wanted]:
            return await status(desk, command, _KIND, wanted)
        case _:
            return await _open(desk, command)


async def _open(desk: Desk, command: Command) -> Answer:
    script = command.words
    if len(script) > MAX_SCRIPT:
        return {
            "text": f"That script has {len(script):,} characters, and {MAX_SCRIPT:,} fit into the "
            "form. Please shorten it, or make two videos of it."
        }
    fields = {"script": script} if script else {}
    view = await _form(desk, fields, {"channel": command.channel})
    told = await desk.open_form(command.trigger_id, view)
    return {"text": told} if told else None


async def _on_retry(desk: Desk, click: Click) -> Answer:
    job = await pressed(desk, click)
    if job is None:
        return None
    fields = dict(job.params)
    if click.user != job.user:
        # What somebody typed is shown to them alone.
        fields = {name: fields[name] for name in ("replica_id", "video_name") if name in fields}
    place: Place = {"channel": job.channel, "thread_ts": job.thread_ts}
    note = "What was typed here has been erased: it was too old to be kept." if job.erased else ""
    view = await _form(desk, {**fields, "where": job.channel}, place, note=note)
    if told := await desk.open_form(click.trigger_id, view):
        tell(desk, click, told)
    return None


async def _on_background(desk: Desk, click: Click) -> Answer:
    """Show the link field that goes with the chosen background."""
    view = click.view
    if view is None:
        return None
    fields, place = view.typed(), place_of(view)
    # Slack forgets what stands in a field that goes: it is back when the field is.
    links = {**place.get("links", {}), **{at: fields[at] for at in BACKGROUNDS if at in fields}}
    place["links"] = {at: url for at, url in links.items() if len(json.dumps(url)) <= _KEPT_LINK}
    changed = await _form(desk, {**place["links"], **fields}, place, note=note_of(view))
    try:
        async with translated(desk.timings.view_timeout):
            await desk.client.views_update(view_id=view.id, hash=view.hash, view=changed)
    except OutsideError as error:
        # Changed again meanwhile, or closed; a field that is missing is shown on submission.
        _LOG.info("a form could not be changed", extra={"reason": error.reason})
    return None


async def _on_replica_query(desk: Desk, lookup: Lookup) -> str:
    query = lookup.value.strip()
    channel = place_of(lookup.view)["channel"] if lookup.view is not None else ""
    found = await desk.store.replicas.find(query, channel, _OPTIONS - 1)
    options = [_offer(replica) for replica in found]
    if is_replica_id(query) and all(replica.id != query for replica in found):
        # Last: Enter takes the first, which is to be the one that was typed by its name.
        options.append(json.dumps(option(f"Use id “{query}”", query)))
    return f'{{"options": [{", ".join(filter(None, options))}]}}'


async def _on_make_video(desk: Desk, click: Click) -> Answer:
    """Open the form with the replica chosen whose button was pressed. Anybody may."""
    if not is_replica_id(click.value):
        tell(desk, click, UNKNOWN)
        return None
    place = {"channel": click.channel, "thread_ts": None}
    view = await _form(desk, {"replica_id": click.value}, place)
    if told := await desk.open_form(click.trigger_id, view):
        tell(desk, click, told)
    return None


# ── The form ──────────────────────────────────────────────────────────────────────────────────


async def _on_form(desk: Desk, submission: Submission) -> Answer:
    view, fields = submission.view, submission.view.typed()
    place = place_of(view)
    background = fields.get("background")
    if background in _LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        redrawn = await _form(desk, fields, place, note=note_of(view))
        return {"response_action": "update", "view": redrawn}
    fields = {
        name: text for name, text in fields.items() if name not in BACKGROUNDS or name == background
    }
    try:
        params = parse(fields)
    except Invalid as error:
        return wrong(error.errors)
    if told := await why_not(desk, params["replica_id"]):
        return wrong({"replica_id": told})
    return await send_off(
        desk, submission, _KIND, params, lambda note: _form(desk, fields, place, note=note)
    )


async def _form(desk: Desk, fields: Mapping[str, str], place: Place, *, note: str = "") -> Json:
    """Return the create form with ``fields`` filled in."""
    background = fields.get("background", "")
    if background not in _CHOICES:
        background = next((name for name in BACKGROUNDS if name in fields), "none")
    blocks: list[Json] = [
        await _replica_field(desk, fields.get("replica_id"), place["channel"]),
        _script_field(fields.get("script")),
        text_field(
            "video_name",
            "Name",
            "",
            fields.get("video_name"),
            MAX_NAME,
            placeholder="What you will know it by",
        ),
        _background_field(background),
    ]
    if background in _LINK_FIELDS:
        label, hint = _LINK_FIELDS[background]
        blocks.append(link_field(background, label, hint, fields.get(background)))
    blocks.append(where_field(fields.get("where")))
    return form(_FORM, "Create a video", submit="Create", place=place, blocks=blocks, note=note)


async def _replica_field(desk: Desk, chosen: str | None, channel: str) -> Json:
    """Return the picker; without another choice the channel's default is chosen."""
    known = await desk.store.replicas.find("", channel, 1)
    hint = "Choose one that is known here, or paste another's id."
    if not known:
        hint = (
            "None is known here yet. Paste the id of one from your account at the video service, "
            "or train one with /replica."
        )
    picked = None
    if chosen:
        picked = _option(await desk.store.replicas.get(chosen) or KnownReplica(chosen))
    elif known and known[0].default and known[0].verdict is not Verdict.FAILED:
        picked = _option(known[0])
    picker = element(
        "external_select",
        _REPLICA,
        initial_option=picked,
        min_query_length=0,
        placeholder="Choose, or paste an id",
    )
    return field("replica_id", "Replica", picker, hint=hint)


def _script_field(script: str | None) -> Json:
    hint = f"150 words are about a minute. At most {MAX_SCRIPT:,} characters."
    if script:
        hint = f"This is about {spoken(script)} spoken. {hint}"
    box = element(
        "plain_text_input",
        "script",
        multiline=True,
        initial_value=script,
        max_length=MAX_SCRIPT,
        placeholder="What the replica says",
    )
    return field("script", "Script", box, hint=hint)


def _background_field(chosen: str) -> Json:
    options = {value: option(label, value) for value, label in _CHOICES.items()}
    buttons = element(
        "radio_buttons",
        _BACKGROUND,
        options=list(options.values()),
        initial_option=options[chosen],
    )
    return field("background", "Background", buttons, reports=True)


@lru_cache(maxsize=_OFFERS)
def _offer(replica: KnownReplica) -> str:
    """Return the option as JSON: people who type get the same ones again and again.

    The service may name an id that no option can hold: then it is empty.
    """
    return json.dumps(_option(replica)) if is_replica_id(replica.id) else ""


def _option(replica: KnownReplica) -> Json:
    return option(called(replica), replica.id)


FEATURE: Final = Feature(Video(), VideoFace(), register)
