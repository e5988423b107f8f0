"""People at a Slack client: they type commands, press buttons and fill in forms.

Each action is sent to the bot as Slack would send it, and the response is handled as Slack would.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlencode

from sandbox import events, mrkdwn
from sandbox.block_kit import Json
from sandbox.delivery import (
    TOKEN,
    InvalidResponse,
    Response,
    action_ts,
    button_action,
    deliver,
    dialog_of,
    element_action,
    find_button,
    find_element,
    home_of,
    interact,
    interaction,
)
from sandbox.files import shared
from sandbox.form import ClientRefusal, state_of
from sandbox.modal import CONNECTION_ERROR, Modal
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Channel, Message, Shortcut, SlackError

__all__ = [
    "CONNECTION_ERROR",
    "ClientRefusal",
    "CommandResponse",
    "InvalidResponse",
    "Modal",
    "Person",
    "Response",
    "deliver",
]


@dataclass(frozen=True)
class CommandResponse(Response):
    """The response to a slash command; ``message`` is what it showed, if anything."""

    message: Message | None = None

    @property
    def shown(self) -> Message:
        """Return ``message`` where there has to be one."""
        if self.message is None:
            raise LookupError("the command showed nothing")
        return self.message


class Person:
    """A person at a Slack client; ``channel`` arguments take an id or a name."""

    def __init__(self, slack: SandboxSlack, name: str) -> None:
        self.slack = slack
        self.user = slack.user(name)

    @property
    def modal(self) -> Modal | None:
        """Return the topmost open modal of this person, or None."""
        stack = self.slack.modals[self.user.id]
        return Modal(self.slack, stack[-1]) if stack else None

    @property
    def form(self) -> Modal:
        """Return ``modal`` where one has to be open."""
        if self.modal is None:
            raise LookupError("no modal is open")
        return self.modal

    @property
    def home(self) -> Modal | None:
        """Return the app's Home tab as this person sees it; its buttons are those of a modal."""
        view = self.slack.homes.get(self.user.id)
        return None if view is None else Modal(self.slack, view)

    @property
    def tab(self) -> Modal:
        """Return ``home`` where it has to have been published."""
        if self.home is None:
            raise LookupError("no Home tab was published")
        return self.home

    async def command(
        self, command: str, text: str = "", channel: str = "studio"
    ) -> CommandResponse:
        """Type a slash command; clients do not have them in threads.

        Raises:
            ClientRefusal: nothing can be typed there.
        """
        place = self._place_to_type(channel)
        form = {
            "token": TOKEN,
            "team_id": self.user.team,
            "team_domain": "sandbox",
            "channel_id": place.id,
            "channel_name": {"private": "privategroup"}.get(place.kind, place.name),
            "user_id": self.user.id,
            "user_name": self.user.name,
            "command": command,
            "text": mrkdwn.as_sent(text, self._mention) if self.slack.should_escape else text,
            "api_app_id": self.slack.app_id,
            "is_enterprise_install": "false",
            "response_url": self.slack.new_response_url(self.user.id, place.id),
            "trigger_id": self.slack.new_trigger(self.user.id, place.id),
        }
        if enterprise := home_of(self.slack, self.user):
            form |= {"enterprise_id": enterprise, "enterprise_name": "Organisation"}
        delivered = await deliver(self.slack, urlencode(form).encode())
        answer = CommandResponse(**vars(delivered))
        if not answer.ok:
            why = "operation_timeout" if answer.status is None else "dispatch_failed"
            failed = f"{command} failed with the error “{why}”"
            return self._shown(answer, {"text": failed}, place)
        if not answer.body.strip():
            return answer
        said = answer.json
        if said is None:
            return self._shown(answer, {"text": answer.body}, place)
        return self._shown(answer, said, place) if said else answer

    def say(
        self,
        text: str,
        channel: str = "studio",
        thread_ts: str | None = None,
        files: Sequence[Json] = (),
    ) -> Message:
        """Post a message and return it; ``files`` are those of ``SandboxSlack.upload``.

        Raises:
            ClientRefusal: nothing can be typed there.
        """
        place = self._place_to_type(channel)
        sent = mrkdwn.as_sent(text, self._mention)
        said = self.slack.post(
            Message(place.id, "", self.user.id, sent, thread_ts=thread_ts, files=tuple(files))
        )
        for each in files:
            file = self.slack.files[each["id"]]
            self.slack.files[each["id"]] = shared(file, said, is_public=place.kind == "public")
        return said

    def write_direct(self, text: str) -> Message:
        """Write to the app in its direct message, as ``say`` does."""
        return self.say(text, self.slack.dm(self.user.id).id)

    def mention(
        self, text: str = "", channel: str = "studio", thread_ts: str | None = None
    ) -> Message:
        """Post a message that begins with a mention of the app, as ``say`` does."""
        return self.say(f"@{self.slack.bot.name} {text}".rstrip(), channel, thread_ts)

    def _place_to_type(self, channel: str) -> Channel:
        place = self.slack.channel(channel)
        if self.slack.is_locked(place):
            raise ClientRefusal("sending messages to this app has been turned off")
        return place

    async def click(self, message: Message, button: str, *, confirm: bool = True) -> Response:
        """Press a button of a message, which may have changed since this person saw it.

        Args:
            message: the message as seen.
            button: the label or ``action_id``.
            confirm: the answer to a confirmation dialog, if there is one.

        Raises:
            ClientRefusal: there is no such button.
        """
        block, element = find_button(message.blocks, button)
        dialog = dialog_of(element)
        if dialog and not confirm:
            return Response(None, dialog=dialog)
        action = button_action(self.slack, block, element)
        return replace(await self._act(message, action), dialog=dialog)

    async def press(
        self, message: Message, block_id: str, action_id: str, value: object = None
    ) -> Response:
        """Press a button of a message, or choose ``value`` in one of its overflow menus.

        No message of the bot has another menu or a field.

        Raises:
            ClientRefusal: there is no such element, or it does not offer the value.
        """
        block, element = find_element(message.blocks, block_id, action_id)
        return await self._act(message, element_action(self.slack, block, element, value))

    async def _act(self, message: Message, action: Json) -> Response:
        payload = self._of_message(message, "block_actions")
        place = self.slack.channel(message.channel)
        payload |= {
            "response_url": self.slack.new_response_url(self.user.id, place.id, message),
            "state": {"values": state_of(message.blocks, place.id, {})},
            "actions": [action],
        }
        return await interact(self.slack, payload)

    def _of_message(self, message: Message, kind: str) -> Json:
        """Return the members that the payloads of all interactions with a message have."""
        place = self.slack.channel(message.channel)
        container = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": place.id,
            "is_ephemeral": message.visible_to is not None,
        }
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        payload = {
            **interaction(self.slack, self.user, kind, place),
            "container": container,
            "channel": {"id": place.id, "name": place.name},
        }
        if message.visible_to is None:
            payload["message"] = message.payload(with_metadata=True)
        return payload

    async def shortcut(self, name: str | None = None) -> Response:
        """Choose a global shortcut by its name, or the only one that there is.

        https://docs.slack.dev/reference/interaction-payloads/shortcuts-payload

        Raises:
            ClientRefusal: the app has no such shortcut.
        """
        return await interact(
            self.slack,
            {
                **interaction(self.slack, self.user, "shortcut", None),
                "callback_id": self._shortcut("global", name).callback_id,
                "action_ts": action_ts(self.slack),
            },
        )

    async def message_shortcut(self, message: Message, name: str | None = None) -> Response:
        """Choose a shortcut from the menu of a message, in a thread too, as ``shortcut`` does."""
        place = self.slack.channel(message.channel)
        chosen = self._shortcut("message", name)
        shown = message.payload(with_metadata=True)
        if self.slack.thread(message.channel, message.ts):
            shown["thread_ts"] = message.ts
        said = interaction(self.slack, self.user, "message_action", place)
        # Neither is documented, and Slack does not always send them:
        # https://docs.slack.dev/tools/bolt-js/reference/interfaces/MessageShortcut
        del said["user"]["team_id"], said["user"]["username"]
        return await interact(
            self.slack,
            {
                **said,
                "callback_id": chosen.callback_id,
                "message_ts": message.ts,
                "channel": {"id": place.id, "name": place.name},
                "response_url": self.slack.new_response_url(self.user.id, place.id, message),
                "action_ts": action_ts(self.slack),
                "message": shown,
            },
        )

    def _shortcut(self, kind: Literal["message", "global"], name: str | None) -> Shortcut:
        there = [each for each in self.slack.app.shortcuts if each.type == kind]
        for each in there:
            if name in {None, each.name}:
                return each
        raise ClientRefusal(f"no shortcut {name!r}; there are: {[each.name for each in there]}")

    async def open_home(self, tab: Literal["home", "messages"] = "home") -> Response:
        """Open a tab of the app, of which the app is notified.

        Raises:
            ClientRefusal: it has no Home tab.
        """
        if tab == "home" and not self.slack.app.has_home:
            raise ClientRefusal("the app has no Home tab")
        return await events.open_home(self.slack, self.user.id, tab)

    def _mention(self, word: str) -> str | None:
        """Return the markup for ``@ana`` or ``#studio``: without the name, as documented."""
        if word in {"@channel", "@here", "@everyone"}:
            return f"<!{word[1:]}>"
        try:
            if word.startswith("@"):
                return f"<@{self.slack.user(word).id}>"
            return f"<#{self.slack.channel(word).id}>"
        except KeyError:
            return None

    def _shown(self, answer: CommandResponse, said: Json, place: Channel) -> CommandResponse:
        try:
            message = self.slack.respond(said, self.user.id, place.id)
        except SlackError as error:
            raise InvalidResponse(f"{error.code} {error.details}: {said}") from error
        return replace(answer, message=message)
