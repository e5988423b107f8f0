"""What people do on the page: each action goes through their client, and tells what came of it."""

import logging
import re
import time
from collections.abc import Awaitable
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from sandbox.block_kit import Json
from sandbox.driver import CONNECTION_ERROR, ClientRefusal, InvalidResponse, Modal, Person, Response
from sandbox.form import Gone
from sandbox.page import snapshot
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message

_LOG: Final = logging.getLogger(__name__)
_COMMAND: Final = re.compile(r"(/\S*)\s*(.*)", re.DOTALL)
# What a client takes into one message.
_LONGEST: Final = 12_000

Values = dict[str, dict[str, Any]]


class Asked(BaseModel):
    """What the page sends with a action."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Typed(Asked):
    """A line from the composer."""

    channel: str
    text: str
    thread_ts: str | None = None


class Pressed(Asked):
    """A button of a message, or a choice in one of its menus."""

    channel: str
    ts: str
    block_id: str
    action_id: str
    value: Any = None


class Sought(Asked):
    """What is typed into an external menu of a message."""

    channel: str
    ts: str
    block_id: str
    action_id: str
    query: str = ""


class PressedInForm(Asked):
    """A button of a form, or a choice in a field that tells the bot at once."""

    block_id: str
    action_id: str
    value: Any = None
    values: Values = {}


class SoughtInForm(Asked):
    """What is typed into an external menu of a form."""

    block_id: str
    action_id: str
    query: str = ""
    values: Values = {}


class Submitted(Asked):
    """A form that is sent off."""

    values: Values = {}


class Closed(Asked):
    """A form that is closed, or all of them."""

    all: bool = False


class PersonActions:
    """What one person can do."""

    def __init__(self, slack: SandboxSlack, name: str) -> None:
        self._slack = slack
        self._person = Person(slack, name)

    async def type(self, asked: Typed) -> Json:
        """Write a message, or give a command."""
        place = self._slack.channels.get(asked.channel)
        if place is None or self._person.user.id not in place.members:
            raise Gone("That conversation is not there.")
        if (why := snapshot.read_only(self._slack, place)) is not None:
            return failed("read_only", why)
        thread_ts = asked.thread_ts
        if thread_ts is not None:
            parent = self._message(place.id, thread_ts)
            if parent.visible_to is not None:
                raise ClientRefusal("Nobody can reply to what one person alone sees.")
            thread_ts = parent.thread_ts or parent.ts
        if not asked.text.strip():
            raise ClientRefusal("There is nothing to send.")
        if len(asked.text) > _LONGEST:
            raise ClientRefusal(f"A message has at most {_LONGEST:,} characters.")
        if asked.text.startswith("/"):
            return await self._command(asked)
        message = self._person.say(asked.text, place.id, thread_ts)
        return {"ok": True, "message": snapshot.message_json(message)}

    async def press(self, asked: Pressed) -> Json:
        """Press a button of a message, or choose something in it."""
        message = self._message(asked.channel, asked.ts)
        answer = await self._person.press(message, asked.block_id, asked.action_id, asked.value)
        return _came_of(answer)

    async def look_up(self, asked: Sought) -> Json:
        """Return what an external menu of a message offers."""
        message = self._message(asked.channel, asked.ts)
        return _offered(
            await self._person.look_up(message, asked.block_id, asked.action_id, asked.query)
        )

    async def press_in_form(self, view_id: str, asked: PressedInForm) -> Json:
        """Press a button of a form, or choose something that the bot hears of at once."""
        modal = self._modal(view_id)
        modal.type(asked.values)
        return self._with_views(
            _came_of(await modal.press(asked.block_id, asked.action_id, asked.value))
        )

    async def look_up_in_form(self, view_id: str, asked: SoughtInForm) -> Json:
        """Return what an external menu of a form offers."""
        modal = self._modal(view_id)
        modal.type(asked.values)
        return _offered(await modal.look_up(asked.block_id, asked.action_id, asked.query))

    async def submit(self, view_id: str, asked: Submitted) -> Json:
        """Send off a form."""
        modal = self._modal(view_id)
        modal.type(asked.values, finished=True)
        try:
            answer = await modal.submit()
        except InvalidResponse:
            if modal.is_open:
                self._slack.show_errors(modal.view, {}, CONNECTION_ERROR)
            raise
        if answer.ok:
            return self._with_views({"ok": True})
        return self._with_views(failed(_code(answer), CONNECTION_ERROR, shown=True))

    async def close(self, view_id: str, asked: Closed) -> Json:
        """Close a form, or all that are open."""
        await self._modal(view_id).close(whole_stack=asked.all)
        return self._with_views({"ok": True})

    async def come_of(self, action: Awaitable[Json]) -> Json:
        """Return what comes of a action, whatever that is."""
        began = time.monotonic()
        try:
            outcome = await action
        except Gone as error:
            outcome = failed("gone", str(error))
        except ClientRefusal as error:
            outcome = failed("refused", str(error))
        except InvalidResponse as error:
            outcome = failed("app_mistake", f"Slack does not take what the app answered: {error}")
        except Exception:  # noqa: BLE001 - the page goes on, the developer finds the traceback
            _LOG.exception("a action failed")
            outcome = failed("sandbox_mistake", "The sandbox made a mistake: see its log.")
        if not outcome["ok"] and "views" not in outcome:
            outcome = self._with_views(outcome)
        return {**outcome, "elapsed_ms": round((time.monotonic() - began) * 1000, 1)}

    async def _command(self, asked: Typed) -> Json:
        match = _COMMAND.match(asked.text)
        command, text = match.groups() if match else ("/", "")
        if asked.thread_ts is not None:
            raise ClientRefusal(f"{command} cannot be used in a thread.")
        known = {each.command for each in self._slack.app.commands}
        if known and command not in known:
            told = (
                f"{command} is no command that an app here knows. To send it as a message, put a "
                "space in front of it."
            )
            return failed("unknown_command", told)
        answer = await self._person.command(command, text.rstrip(), asked.channel)
        if answer.ok:
            return {"ok": True}
        text = answer.message.text if answer.message is not None else ""
        return failed(_code(answer), text, shown=answer.message is not None)

    def _message(self, channel: str, ts: str) -> Message:
        """Return a message that this person sees."""
        reader = self._person.user.id
        place = self._slack.channels.get(channel)
        message = self._slack.find(channel, ts) if place and reader in place.members else None
        if message is None or message.visible_to not in {None, reader}:
            raise Gone("That message is not there any more.")
        return message

    def _modal(self, view_id: str) -> Modal:
        for view in self._slack.modals[self._person.user.id]:
            if view.id == view_id:
                return Modal(self._slack, view)
        raise Gone("That form is closed.")

    def _with_views(self, outcome: Json) -> Json:
        return {**outcome, "views": snapshot.views_json(self._slack, self._person.user.id)}


def failed(code: str, text: str, *, shown: bool = False) -> Json:
    """Return a failed outcome; ``shown`` says that the person sees it already."""
    return {"ok": False, "error": {"code": code, "text": text, "shown": shown}}


def _code(answer: Response) -> str:
    return "operation_timeout" if answer.status is None else "dispatch_failed"


def _came_of(answer: Response) -> Json:
    if answer.ok:
        return {"ok": True}
    if answer.status is None:
        return failed(_code(answer), "The app did not answer in time.")
    return failed(_code(answer), f"The app answered with an error (HTTP {answer.status}).")


def _offered(answer: Response | None) -> Json:
    if answer is None:
        return {"ok": True, "options": []}
    if not answer.ok:
        return {**_came_of(answer), "options": []}
    said = answer.json or {}
    return {"ok": True} | {key: said[key] for key in ("options", "option_groups") if key in said}
