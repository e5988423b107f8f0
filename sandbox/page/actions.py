"""The actions of people on the page, done through their Slack client."""

import logging
import re
import time
from collections.abc import Awaitable
from typing import Any, Final, Literal

from pydantic import ConfigDict, ValidationError, validate_call

from sandbox.block_kit import Json
from sandbox.driver import CONNECTION_ERROR, ClientRefusal, InvalidResponse, Modal, Person, Response
from sandbox.form import Gone
from sandbox.page import snapshot
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message

_log: Final = logging.getLogger(__name__)
_COMMAND: Final = re.compile(r"(/\S*)\s*(.*)", re.DOTALL)
# What a client accepts in one message.
_MAX_LENGTH: Final = 12_000
# Slack's own command, which the app tells people to use:
# https://slack.com/help/articles/201259356-Slash-commands-in-Slack
_INVITE: Final = "/invite"

Values = dict[str, dict[str, Any]]


#: What the page sends becomes the arguments: strictly, and nothing else.
checked: Final = validate_call(config=ConfigDict(strict=True))


class PersonActions:
    """The actions of one person; wrong arguments raise ``ValidationError``."""

    def __init__(self, slack: SandboxSlack, name: str) -> None:
        self._slack = slack
        self._person = Person(slack, name)

    @checked
    async def type(self, channel: str, text: str, thread_ts: str | None = None) -> Json:
        """Post a message, or run a slash command."""
        place = self._slack.channels.get(channel)
        if place is None or self._person.user.id not in place.members:
            raise Gone("That conversation does not exist.")
        if (reason := snapshot.read_only(self._slack, place)) is not None:
            return failed("read_only", reason)
        if thread_ts is not None:
            parent = self._message(place.id, thread_ts)
            if parent.visible_to is not None:
                raise ClientRefusal("Nobody can reply to a message that only one person sees.")
            thread_ts = parent.thread_ts or parent.ts
        if not text.strip():
            raise ClientRefusal("There is nothing to send.")
        if len(text) > _MAX_LENGTH:
            raise ClientRefusal(f"A message has at most {_MAX_LENGTH:,} characters.")
        if text.startswith("/"):
            return await self._command(text, channel, thread_ts)
        message = self._person.say(text, place.id, thread_ts)
        return {"ok": True, "message": snapshot.message_json(message)}

    @checked
    async def ask(self, channel: str, script: str, replica: str) -> Json:
        """Ask for a video with the form, even if the same was asked for before."""
        command, *_ = self._slack.app.commands
        await self._person.command(command.command, script, channel)
        form = self._person.modal
        if form is None:
            raise ClientRefusal(f"No form opened for {self._person.user.name}.")
        await form.submit({"replica_id": replica})
        if form.is_open and not form.errors:  # it offers what there is
            await form.submit()
        if form.is_open:
            await form.close()
            raise ClientRefusal(" ".join(form.errors.values()))
        return {"ok": True}

    @checked
    async def press(
        self, channel: str, ts: str, block_id: str, action_id: str, value: object = None
    ) -> Json:
        """Press a button of a message, or choose from one of its overflow menus."""
        message = self._message(channel, ts)
        return _outcome(await self._person.press(message, block_id, action_id, value))

    @checked
    async def shortcut(self, name: str, channel: str | None = None, ts: str | None = None) -> Json:
        """Choose a shortcut by its name: a global one, or one from the menu of a message."""
        if channel is None or ts is None:
            return self._with_views(_outcome(await self._person.shortcut(name)))
        answer = await self._person.message_shortcut(self._message(channel, ts), name)
        return self._with_views(_outcome(answer))

    @checked
    async def open_home(self, tab: Literal["home", "messages"] = "home") -> Json:
        """Open a tab of the app."""
        return _outcome(await self._person.open_home(tab))

    @checked
    async def press_in_form(
        self,
        view_id: str,
        block_id: str,
        action_id: str,
        value: object = None,
        values: Values | None = None,
    ) -> Json:
        """Press a button of a form, or choose a value in it."""
        modal = self._modal(view_id)
        modal.type(values or {})
        return self._with_views(_outcome(await modal.press(block_id, action_id, value)))

    @checked
    async def look_up_in_form(
        self,
        view_id: str,
        block_id: str,
        action_id: str,
        query: str = "",
        values: Values | None = None,
    ) -> Json:
        """Return the options of an external menu of a form."""
        modal = self._modal(view_id)
        modal.type(values or {})
        return _offered(await modal.look_up(block_id, action_id, query))

    @checked
    async def submit(self, view_id: str, values: Values | None = None) -> Json:
        """Submit a form."""
        modal = self._modal(view_id)
        modal.type(values or {}, finished=True)
        try:
            answer = await modal.submit()
        except InvalidResponse:
            if modal.is_open:
                self._slack.show_errors(modal.view, {}, CONNECTION_ERROR)
            raise
        if answer.ok:
            return self._with_views({"ok": True})
        return self._with_views(failed(_code(answer), CONNECTION_ERROR, shown=True))

    @checked
    async def close(self, view_id: str, *, whole_stack: bool = False) -> Json:
        """Close a form, or all open forms."""
        await self._modal(view_id).close(whole_stack=whole_stack)
        return self._with_views({"ok": True})

    async def outcome_of(self, action: Awaitable[Json]) -> Json:
        """Await an action and return its outcome, a failure too."""
        began = time.monotonic()
        try:
            outcome = await action
        except Gone as error:
            outcome = failed("gone", str(error))
        except ClientRefusal as error:
            outcome = failed("refused", str(error))
        except InvalidResponse as error:
            outcome = failed(
                "invalid_response", f"Slack does not accept the app's response: {error}"
            )
        except ValidationError:
            raise
        except Exception:  # noqa: BLE001 - the page goes on, the developer finds the traceback
            _log.exception("an action on the page failed")
            outcome = failed("sandbox_error", "The sandbox failed. See its log.")
        if not outcome["ok"] and "views" not in outcome:
            outcome = self._with_views(outcome)
        return {**outcome, "elapsed_ms": round((time.monotonic() - began) * 1000, 1)}

    async def _command(self, line: str, channel: str, thread_ts: str | None) -> Json:
        match = _COMMAND.match(line)
        command, text = match.groups() if match else ("/", "")
        if thread_ts is not None:
            raise ClientRefusal(f"{command} cannot be used in a thread.")
        if command == _INVITE:
            return self._invite(text.strip(), channel)
        known = {each.command for each in self._slack.app.commands}
        if known and command not in known:
            return failed(
                "unknown_command",
                f"{command} is not a command of any app here. To send it as a message, put a space "
                "in front of it.",
            )
        answer = await self._person.command(command, text.rstrip(), channel)
        if answer.ok:
            return {"ok": True}
        text = answer.message.text if answer.message is not None else ""
        return failed(_code(answer), text, shown=answer.message is not None)

    def _invite(self, text: str, channel: str) -> Json:
        """Add the app to a channel; everyone else is in all the channels that they may be in."""
        place, app = self._slack.channels[channel], f"@{self._slack.bot.name}"
        if place.kind == "im":
            raise ClientRefusal("Nobody can be invited to a direct message.")
        if text != app:
            raise ClientRefusal(f"Only the app can be invited here: {_INVITE} {app}")
        self._slack.change_channel(place.name, with_bot=True)
        return {"ok": True}

    def _message(self, channel: str, ts: str) -> Message:
        """Return a message that this person can see."""
        reader = self._person.user.id
        place = self._slack.channels.get(channel)
        message = self._slack.find(channel, ts) if place and reader in place.members else None
        if message is None or message.visible_to not in {None, reader}:
            raise Gone("That message does not exist any more.")
        return message

    def _modal(self, view_id: str) -> Modal:
        home = self._slack.homes.get(self._person.user.id)
        for view in (*self._slack.modals[self._person.user.id], *([home] if home else [])):
            if view.id == view_id:
                return Modal(self._slack, view)
        raise Gone("That form is closed.")

    def _with_views(self, outcome: Json) -> Json:
        return {**outcome, "views": snapshot.views_json(self._slack, self._person.user.id)}


def failed(code: str, text: str, *, shown: bool = False) -> Json:
    """Return a failed outcome; ``shown``: whether the person sees the text already."""
    return {"ok": False, "error": {"code": code, "text": text, "shown": shown}}


def _code(answer: Response) -> str:
    return "operation_timeout" if answer.status is None else "dispatch_failed"


def _outcome(answer: Response) -> Json:
    if answer.ok:
        return {"ok": True}
    if answer.status is None:
        return failed(_code(answer), "The app did not respond in time.")
    return failed(_code(answer), f"The app responded with an error (HTTP {answer.status}).")


def _offered(answer: Response | None) -> Json:
    if answer is None:
        return {"ok": True, "options": []}
    if not answer.ok:
        return {**_outcome(answer), "options": []}
    said = answer.json or {}
    return {"ok": True} | {key: said[key] for key in ("options", "option_groups") if key in said}
