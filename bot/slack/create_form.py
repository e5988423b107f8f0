"""The create form as it is drawn: its fields, with what is filled in."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from bot.kinds.video import BACKGROUNDS, MAX_NAME, Video, fingerprint
from bot.model import Job, Verdict
from bot.slack.blocks import Json, brief, element, field, option, spoken
from bot.slack.context import HandlerContext, kept_left
from bot.slack.forms import (
    Metadata,
    drawn_fields,
    fits_in_metadata,
    form,
    link_field,
    metadata_of,
    note_of,
    text_field,
    where_field,
)
from bot.slack.payloads import View
from bot.slack.replica_picker import replica_label
from bot.slack.same_again import MAKE_ANOTHER, offer
from bot.slack.script_file import MAX_BOX, takes_files
from bot.store import KnownReplica, Limits

CALLBACK_ID: Final = "create_video"
REPLICA: Final = "video_replica"
BACKGROUND: Final = "video_background"
_MAX_CACHED_OPTIONS: Final = 10_000
_CHOICES: Final = {
    "none": "No background",
    "background_url": "A web page",
    "background_source_url": "A video file",
}
LINK_FIELDS: Final = {
    "background_url": ("Web page link", "Anyone must be able to open it."),
    "background_source_url": (
        "Direct link to the video file",
        "Anyone must be able to download it for at least 24 hours.",
    ),
}


async def redrawn(
    ctx: HandlerContext, view: View, changes: Metadata | None = None, note: str | None = None
) -> Json:
    """Return a form as it is filled in, with the link field of the chosen background.

    Slack drops the value of a field that is removed: the metadata keep it until the field returns.
    A link that does not fit there keeps its field.

    Args:
        ctx: the bot's parts.
        view: the form.
        changes: what is different in its metadata.
        note: what is on top of it, if that changes.
    """
    fields, metadata = drawn_fields(view), {**metadata_of(view), **(changes or {})}
    typed = {at: fields[at] for at in BACKGROUNDS if at in fields}
    links = {**metadata.get("links", {}), **typed}
    metadata["links"] = {}
    for at in sorted(links.keys() - {fields.get("background")}, key=lambda at: len(links[at])):
        more = {**metadata, "links": {**metadata["links"], at: links[at]}}
        if fits_in_metadata(more):
            metadata = more
    note = note_of(view) if note is None else note
    drawn = await draw_form(ctx, {**links, **fields}, metadata, note=note)
    return kept_left(drawn, view.blocks)


async def second_form(
    ctx: HandlerContext, view: View, params: Mapping[str, str], note: str
) -> Json:
    """Return a form as it is filled in for a request of its own, to be opened over ``view``.

    ``params`` are what it asks for, unless it is changed.
    """
    return await redrawn(ctx, view, {"retry_of": None, **_for_another(view, params)}, note)


async def offering_form(
    ctx: HandlerContext, view: View, params: Mapping[str, str], job: Job, viewer: str
) -> Json:
    """Return a form as it is filled in, with the job on top that has asked for the same.

    ``params`` are what it asks for, unless it is changed.
    """
    note = offer(job, ctx.presenters[job.kind], viewer)
    return await redrawn(ctx, view, _for_another(view, params), note)


def _for_another(view: View, params: Mapping[str, str]) -> Metadata:
    """Return what the metadata keep of a form that asks for ``params`` once more.

    A field for a file cannot be filled in, so they keep the chosen file:
    https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
    """
    file = view.fields().get("script_file")
    kept = {} if file is None else {"script_file": file}
    return {**kept, "anew": fingerprint(params)}


async def draw_form(
    ctx: HandlerContext,
    fields: Mapping[str, str],
    metadata: Metadata,
    *,
    note: str = "",
    limits: Limits | None = None,
) -> Json:
    """Return the create form with ``fields`` filled in; ``limits`` if they have been read."""
    limits = limits or (await ctx.store.limits.fetch()).limits
    background = fields.get("background", "")
    if background not in _CHOICES:
        background = next((name for name in BACKGROUNDS if name in fields), "none")
    replica, scripts = await asyncio.gather(
        _replica_field(ctx, fields.get("replica_id"), metadata["channel"]),
        _script_fields(ctx, fields.get("script"), metadata, limits.max_script),
    )
    blocks: list[Json] = [
        replica,
        *scripts,
        text_field(
            "video_name",
            "Name",
            "",
            fields.get("video_name"),
            MAX_NAME,
            placeholder="For example: Welcome video",
        ),
        _background_field(background),
    ]
    for at, (label, hint) in LINK_FIELDS.items():
        link = fields.get(at)
        if at == background:
            blocks.append(link_field(at, label, hint, link))
        elif link and at not in metadata.get("links", {}):
            unused = f"Not used unless you choose “{_CHOICES[at]}”."
            blocks.append(link_field(at, label, unused, link, optional=True))
    blocks.append(where_field(ctx, fields.get("where")))
    return form(
        CALLBACK_ID,
        "Create a video",
        submit=MAKE_ANOTHER if metadata.get("anew") else "Create",
        metadata=metadata,
        blocks=blocks,
        note=note,
    )


async def _replica_field(ctx: HandlerContext, chosen: str | None, channel: str) -> Json:
    """Return the picker; without another choice the channel's default is chosen."""
    known = await ctx.store.replicas.find("", channel, 1)
    hint = "Pick a replica or paste a replica ID."
    if not known:
        hint = (
            "There are no replicas here yet. Paste a replica ID from your account at the video "
            f"service, or train one with {ctx.command('replica')}."
        )
    picked = None
    if chosen:
        picked = as_option(await ctx.store.replicas.get(chosen) or KnownReplica(chosen))
    elif known and known[0].default and known[0].verdict is not Verdict.FAILED:
        picked = as_option(known[0])
    picker = element(
        "external_select",
        REPLICA,
        initial_option=picked,
        min_query_length=0,
        placeholder="Search by name or ID",
    )
    return field("replica_id", "Replica", picker, hint=hint)


async def _script_fields(
    ctx: HandlerContext, script: str | None, metadata: Metadata, max_script: int
) -> list[Json]:
    """Return the fields for a script: a box, and a file where one may be longer."""
    with_file, attached = takes_files(ctx, max_script), metadata.get("script_file") is not None
    is_kept = attached or metadata.get("script_of") is not None
    box_holds = min(max_script, MAX_BOX)
    hint = f"150 words take about a minute. Up to {box_holds:,} characters."
    if is_kept and len(script or "") not in range(1, MAX_BOX + 1):
        script, hint = (
            None,
            "Leave this empty to use the same script again. It's too long to show here.",
        )
        if attached:
            hint = "Leave this empty to use the attached file."
    elif script:
        usual = (
            f" and usually {took} to create" if (took := await _time_to_create(ctx, script)) else ""
        )
        hint = f"This takes about {spoken(script)} to speak{usual}. {hint}"
    elif took := await _time_to_create(ctx, None):
        hint = f"{hint} Videos usually take {took} to create."
    box = element(
        "plain_text_input",
        "script",
        multiline=True,
        initial_value=script,
        # A script from before the limit was lowered stays as it was typed, to be shortened.
        max_length=max(box_holds, len(script or "")),
        placeholder="What the replica says",
    )
    fields = [field("script", "Script", box, hint=hint, optional=with_file or is_kept)]
    if with_file:
        # Its kinds are not limited: what counts is what is in it.
        file = element("file_input", "script_file", max_files=1)
        longer = f"For longer scripts: a plain text file (UTF-8), up to {max_script:,} characters."
        fields.append(field("script_file", "Script file", file, hint=longer, optional=True))
    return fields


async def _time_to_create(ctx: HandlerContext, script: str | None) -> str:
    """Return how long recent videos took with scripts as long; "" if there are none."""
    durations = await ctx.store.jobs.fetch_durations(Video.name, script)
    return "" if durations is None else f"about {brief(durations.typical)}"


def _background_field(chosen: str) -> Json:
    options = {value: option(label, value) for value, label in _CHOICES.items()}
    buttons = element(
        "radio_buttons",
        BACKGROUND,
        options=list(options.values()),
        initial_option=options[chosen],
    )
    return field("background", "Background", buttons, reports=True)


# Each keystroke offers up to 99 replicas, mostly those that the last one offered.
@lru_cache(maxsize=_MAX_CACHED_OPTIONS)
def as_option(replica: KnownReplica) -> Json:
    """Return a replica as one of the picker's options."""
    return option(replica_label(replica), replica.id)
