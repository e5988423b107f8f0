"""What the forms of all kinds share: where to post, sending off, and links to fill in."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from bot.errors import Refused
from bot.model import Failure, Request
from bot.service_errors import FAILURES
from bot.slack.blocks import Json, element, field, modal, section
from bot.slack.desk import Desk
from bot.slack.payloads import Submission, View
from bot.slack.routes import Answer

Place = Mapping[str, Any]
"""Where a form was opened: ``channel``, ``thread_ts``, and what a form wants to remember."""

_NOTE: Final = "note"
# A person's id would have it posted to somebody else, as a direct message.
_CONVERSATION: Final = re.compile(r"[CDG][A-Z0-9]{1,40}", re.ASCII)
_TURNED_AWAY: Final = {
    Failure.KEY_REJECTED: (
        "The video service does not accept this bot's key at the moment, so nothing can be made. "
        "Please tell whoever runs the bot. What you typed stays here."
    ),
    Failure.OUT_OF_CREDIT: (
        "The video service's account is out of credit, so nothing can be made. Please tell "
        "whoever looks after it. What you typed stays here."
    ),
}


class _Place(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    channel: str = Field(pattern=f"^{_CONVERSATION.pattern}$")
    thread_ts: str | None = Field(default=None, pattern=r"^[0-9]+\.[0-9]+$")
    name: str = ""
    links: dict[str, str] = Field(default_factory=dict)
    warned: list[str] = Field(default_factory=list)


def place_of(view: View) -> dict[str, Any]:
    """Return where a form was opened.

    Raises:
        Garbled: that is not to be read from it.
    """
    return view.remembers(_Place).model_dump(exclude_unset=True)


def note_of(view: View) -> str:
    """Return the note that stands on top of a form."""
    for block in view.blocks:
        text = block.get("text")
        if block.get("block_id") == _NOTE and isinstance(text, dict):
            return str(text.get("text", ""))
    return ""


def form(
    callback_id: str, title: str, *, submit: str, place: Place, blocks: list[Json], note: str = ""
) -> Json:
    """Return a form with its fields, and a note on top if there is one."""
    if note:
        blocks = [section(note, block_id=_NOTE), *blocks]
    memory = json.dumps(dict(place))
    return modal(callback_id, title, submit=submit, close="Cancel", memory=memory, blocks=blocks)


def text_field(
    name: str, label: str, hint: str, value: str | None, longest: int, *, placeholder: str
) -> Json:
    """Return a field for a line of text that may be left empty."""
    line = element(
        "plain_text_input", name, initial_value=value, max_length=longest, placeholder=placeholder
    )
    return field(name, label, line, hint=hint, optional=True)


def link_field(
    name: str, label: str, hint: str, value: str | None, *, optional: bool = False
) -> Json:
    """Return a field for a link."""
    link = element("url_text_input", name, initial_value=value, placeholder="https://")
    return field(name, label, link, hint=hint, optional=optional)


def where_field(chosen: str | None) -> Json:
    """Return the field for where to post: in this conversation, unless another is chosen."""
    conversation = element(
        "conversations_select",
        "where",
        initial_conversation=chosen,
        default_to_current_conversation=chosen is None,
        filter={"exclude_bot_users": True},
    )
    hint = "The card goes there, and the answer into its thread."
    return field("where", "Where to post", conversation, hint=hint)


def wrong(errors: Mapping[str, str]) -> Answer:
    """Return the answer that keeps a form open, with a sentence under each field that is wrong."""
    return {"response_action": "errors", "errors": dict(errors)}


async def send_off(
    desk: Desk,
    submission: Submission,
    kind: str,
    params: Mapping[str, str],
    redraw: Callable[[str], Awaitable[Json]],
) -> Answer:
    """Store what a form asks for and close it; ``redraw`` returns it anew under a note.

    A form that was sent off before, and was changed since, is not dropped: it opens once more.
    """
    view, place = submission.view, place_of(submission.view)
    refusal = await _refusal(desk)
    if refusal is not None and await desk.store.jobs.fetch_by_request(view.id) is None:
        fields = [block["block_id"] for block in view.blocks if block.get("type") == "input"]
        return wrong({fields[0]: _TURNED_AWAY[FAILURES[refusal.code]]})
    channel = view.typed().get("where") or place["channel"]
    if not _CONVERSATION.fullmatch(channel):
        return wrong({"where": "That is no conversation to post to. Please choose another one."})
    request = Request(
        key=view.id,
        kind=kind,
        params=params,
        user=submission.user,
        channel=channel,
        thread_ts=place.get("thread_ts") if channel == place["channel"] else None,
    )
    job = (await desk.store.jobs.submit(request, desk.clock.now())).job
    if (job.params, job.channel) != (params, channel):
        noun = desk.faces[kind].noun
        note = (
            f"An earlier version of this form was sent off already: its card is No. {job.id}. "
            f"This one differs from it, and sending it off makes a second {noun}."
        )
        return {"response_action": "push", "view": await redraw(note)}
    return {"response_action": "clear"} if view.root_view_id not in {"", view.id} else None


async def _refusal(desk: Desk) -> Refused | None:
    """Return why the service would refuse a create call; after a while, what is known of it."""
    try:
        async with asyncio.timeout(desk.timings.check_timeout.total_seconds()):
            return await desk.service.refusal()
    except TimeoutError:
        return desk.service.known_refusal
