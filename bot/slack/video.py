"""Videos in Slack: the command, the form, and how a video job shows itself."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from slack_sdk.models.blocks import (
    Block,
    ConversationFilter,
    ConversationSelectElement,
    ExternalDataSelectElement,
    InputBlock,
    Option,
    PlainTextInputElement,
    RadioButtonsElement,
    SectionBlock,
    UrlInputElement,
)
from slack_sdk.models.views import View as ViewModel

from bot.errors import OutsideError
from bot.kinds.video import BACKGROUNDS, MAX_NAME, MAX_SCRIPT, Invalid, is_replica_id, parse
from bot.links import show_link
from bot.model import Failure, Job, Request, State
from bot.slack.blocks import link, mrkdwn, one_line, plain, spoken
from bot.slack.cards import RETRY
from bot.slack.desk import Desk
from bot.slack.errors import translated
from bot.slack.jobs import listing, pressed, status, tell
from bot.slack.payloads import Click, Command, Lookup, Submission
from bot.slack.routes import Answer, Routes

_LOG: Final = logging.getLogger(__name__)
COMMAND: Final = "/video"
_FORM: Final = "video_form"
_REPLICA: Final = "video_replica"
_BACKGROUND: Final = "video_background"
_KIND: Final = "video"
_OPTION_TEXT: Final = 75
_OPTIONS: Final = 100

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

_TURNED_AWAY: Final = {
    Failure.KEY: (
        "The video service does not accept this bot's key at the moment, so nothing can be made. "
        "Please tell whoever runs the bot. What you typed stays here."
    ),
    Failure.CREDIT: (
        "The video service's account is out of credit, so nothing can be made. Please tell "
        "whoever looks after it. What you typed stays here."
    ),
}


def register(routes: Routes, desk: Desk) -> None:
    """Answer the command and the form."""
    routes.command(COMMAND, partial(_on_command, desk))
    routes.submission(_FORM, partial(_on_form, desk))
    routes.lookup(_REPLICA, partial(_on_replica_query, desk))
    routes.click(_BACKGROUND, partial(_on_background, desk))
    routes.click(f"{_KIND}_{RETRY}", partial(_on_retry, desk))


class VideoFace:
    """How a video job shows itself."""

    noun: Final = "video"

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


# ── Commands and buttons ──────────────────────────────────────────────────────────────────────


async def _on_command(desk: Desk, command: Command) -> Answer:
    match command.words.split():
        case ["help"]:
            return {"text": _HELP}
        case ["list"]:
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
    form = await _form(desk, fields, {"channel": command.channel})
    told = await desk.open_form(command.trigger_id, form)
    return {"text": told} if told else None


async def _on_retry(desk: Desk, click: Click) -> Answer:
    job = await pressed(desk, click)
    if job is None:
        return None
    fields = dict(job.params)
    if click.user != job.user:
        # What somebody typed is shown to them alone.
        fields = {name: fields[name] for name in ("replica_id", "video_name") if name in fields}
    place = {"channel": job.channel, "thread_ts": job.thread_ts}
    note = "What was typed here has been erased: it was too old to be kept." if job.erased else ""
    form = await _form(desk, {**fields, "where": job.channel}, place, note=note)
    if told := await desk.open_form(click.trigger_id, form):
        tell(desk, click, told)
    return None


async def _on_background(desk: Desk, click: Click) -> Answer:
    """Show the link field that goes with the chosen background."""
    view = click.view
    if view is None:
        return None
    place = json.loads(view.private_metadata)
    form = await _form(desk, view.typed(), place, note=_note_of(view.blocks))
    try:
        async with translated(desk.timings.open_view):
            await desk.client.views_update(view_id=view.id, hash=view.hash, view=form)
    except OutsideError as error:
        # Changed again meanwhile, or closed; a field that is missing is shown on submission.
        _LOG.info("a form could not be changed", extra={"reason": error.reason})
    return None


async def _on_replica_query(desk: Desk, lookup: Lookup) -> Answer:
    query = lookup.value.strip()
    known = await desk.store.replicas(query, _OPTIONS - 1)
    options = [_option(replica_id) for replica_id in known]
    if query not in known and is_replica_id(query):
        options.insert(0, Option(text=plain(f"Use id “{query}”", _OPTION_TEXT), value=query))
    return {"options": [option.to_dict() for option in options]}


# ── The form ──────────────────────────────────────────────────────────────────────────────────


async def _on_form(desk: Desk, submission: Submission) -> Answer:
    view, fields = submission.view, submission.view.typed()
    place = json.loads(view.private_metadata)
    background = fields.get("background")
    if background in _LINK_FIELDS and not any(
        block.get("block_id") == background for block in view.blocks
    ):
        form = await _form(desk, fields, place, note=_note_of(view.blocks))
        return {"response_action": "update", "view": form.to_dict()}
    fields = {
        name: text for name, text in fields.items() if name not in BACKGROUNDS or name == background
    }
    try:
        params = parse(fields)
    except Invalid as error:
        return {"response_action": "errors", "errors": dict(error.errors)}
    if (failure := await desk.service.turned_away()) is not None:
        return {"response_action": "errors", "errors": {"script": _TURNED_AWAY[failure]}}
    channel = fields.get("where") or place["channel"]
    request = Request(
        key=view.id,
        kind=_KIND,
        params=params,
        user=submission.user,
        channel=channel,
        thread_ts=place.get("thread_ts") if channel == place["channel"] else None,
    )
    submitted = await desk.store.submit(request, desk.clock.now())
    if (submitted.job.params, submitted.job.channel) != (params, channel):
        note = (
            "An earlier version of this form was sent off already, and its video is being made. "
            "This one differs from it: *Create* makes it as a second video."
        )
        form = await _form(desk, fields, place, note=note)
        return {"response_action": "push", "view": form.to_dict()}
    return {"response_action": "clear"} if view.root_view_id not in {"", view.id} else None


async def _form(
    desk: Desk, fields: Mapping[str, str], place: Mapping[str, Any], *, note: str = ""
) -> ViewModel:
    """Return the create form with ``fields`` filled in; ``place`` is where it was opened."""
    background = fields.get("background") or next(
        (name for name in BACKGROUNDS if name in fields), "none"
    )
    blocks: list[Block] = []
    if note:
        blocks.append(SectionBlock(block_id="note", text=mrkdwn(note)))
    blocks += [
        _replica_field(fields.get("replica_id"), any_known=bool(await desk.store.replicas("", 1))),
        _script_field(fields.get("script")),
        InputBlock(
            block_id="video_name",
            label=plain("Name", 100),
            optional=True,
            element=PlainTextInputElement(
                action_id="video_name",
                initial_value=fields.get("video_name"),
                max_length=MAX_NAME,
                placeholder=plain("What you will know it by", 150),
            ),
        ),
        _background_field(background),
    ]
    if background in _LINK_FIELDS:
        label, hint = _LINK_FIELDS[background]
        blocks.append(
            InputBlock(
                block_id=background,
                label=plain(label, 100),
                hint=plain(hint, 200),
                element=UrlInputElement(
                    action_id=background,
                    initial_value=fields.get(background),
                    placeholder=plain("https://", 150),
                ),
            )
        )
    blocks.append(_where_field(fields.get("where")))
    return ViewModel(
        type="modal",
        callback_id=_FORM,
        title=plain("Create a video", 24),
        submit=plain("Create", 24),
        close=plain("Cancel", 24),
        private_metadata=json.dumps(dict(place)),
        blocks=blocks,
    )


def _replica_field(chosen: str | None, *, any_known: bool) -> InputBlock:
    hint = "Choose one that worked here before, or paste another's id."
    if not any_known:
        hint = (
            "None was used here yet. Paste the id of a replica from your account at the video "
            "service; once it has worked, it is offered here."
        )
    return InputBlock(
        block_id="replica_id",
        label=plain("Replica", 100),
        hint=plain(hint, 200),
        element=ExternalDataSelectElement(
            action_id=_REPLICA,
            initial_option=_option(chosen) if chosen else None,
            min_query_length=0,
            placeholder=plain("Choose, or paste an id", 150),
        ),
    )


def _script_field(script: str | None) -> InputBlock:
    hint = f"150 words are about a minute. At most {MAX_SCRIPT:,} characters."
    if script:
        hint = f"This is about {spoken(script)} spoken. {hint}"
    return InputBlock(
        block_id="script",
        label=plain("Script", 100),
        hint=plain(hint, 200),
        element=PlainTextInputElement(
            action_id="script",
            multiline=True,
            initial_value=script,
            max_length=MAX_SCRIPT,
            placeholder=plain("What the replica says", 150),
        ),
    )


def _background_field(chosen: str) -> InputBlock:
    options = {
        value: Option(text=plain(label, _OPTION_TEXT), value=value)
        for value, label in _CHOICES.items()
    }
    return InputBlock(
        block_id="background",
        label=plain("Background", 100),
        dispatch_action=True,
        element=RadioButtonsElement(
            action_id=_BACKGROUND,
            options=list(options.values()),
            initial_option=options[chosen],
        ),
    )


def _where_field(chosen: str | None) -> InputBlock:
    return InputBlock(
        block_id="where",
        label=plain("Where to post", 100),
        hint=plain("The card goes there, and the answer into its thread.", 200),
        element=ConversationSelectElement(
            action_id="where",
            initial_conversation=chosen,
            default_to_current_conversation=None if chosen else True,
            filter=ConversationFilter(exclude_bot_users=True),
        ),
    )


def _option(replica_id: str) -> Option:
    return Option(text=plain(replica_id, _OPTION_TEXT), value=replica_id)


def _note_of(blocks: Sequence[Mapping[str, Any]]) -> str:
    for block in blocks:
        if block.get("block_id") == "note":
            return str(block.get("text", {}).get("text", ""))
    return ""
