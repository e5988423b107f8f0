"""A modal in front of a person: filled in, submitted, changed and closed."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sandbox.block_kit import Json, validate_options, validate_view
from sandbox.delivery import (
    InvalidResponse,
    Response,
    button_action,
    deliver,
    dialog_of,
    element_action,
    encoded,
    field_action,
    find_button,
    find_element,
    interact,
    interaction,
    options_of,
    timestamp_of,
)
from sandbox.files import MAX_BYTES
from sandbox.form import ClientRefusal, Field, field_of
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Channel, SlackError, View, shows

#: The notice of a modal if the app did not respond in time, or not with 200.
CONNECTION_ERROR: Final = "We had some trouble connecting. Try again?"
# Slack's own default for external menus.
_MIN_QUERY_LENGTH: Final = 3


class Modal:
    """A modal in front of a person; block ids and action ids both name its fields."""

    def __init__(self, slack: SandboxSlack, view: View) -> None:
        self.view = view
        self._slack = slack
        self._user = slack.users[view.user]
        self._submission = b""
        self._stamp = ""

    @property
    def title(self) -> str:
        """Return its title."""
        return self.view.title

    @property
    def errors(self) -> dict[str, str]:
        """Return the errors under its fields, by block id."""
        return self.view.errors

    @property
    def notice(self) -> str:
        """Return the client's own notice at its top: ``CONNECTION_ERROR`` or nothing."""
        return self.view.notice

    @property
    def is_open(self) -> bool:
        """Return whether it is open, on top or under another one."""
        return self.view in self._slack.modals[self.view.user]

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of its fields by block id: text, ids, or values of options."""
        return {
            each.block_id: _bare(self.view.values[each.block_id][each.action_id][each.key])
            for each in self.view.fields()
        }

    async def send(self, values: Mapping[str, Any] | None = None, *, clicks: int = 1) -> Response:
        """Submit the form as one that has to be accepted.

        Raises:
            ClientRefusal: it stays open, with its errors.
        """
        response = await self.submit(values, clicks=clicks)
        if self.is_open:
            raise ClientRefusal(f"the form stays open: {self.errors}")
        return response

    async def submit(self, values: Mapping[str, Any] | None = None, *, clicks: int = 1) -> Response:
        """Fill in fields and press the submit button; other fields keep their values.

        Args:
            values: what to enter, as in ``form.Field.entered``.
            clicks: the number of clicks before the first response arrives.

        Returns:
            The response to the first click.

        Raises:
            ClientRefusal: a client would not allow it: something is missing, too long, or not
                offered.
            InvalidResponse: Slack would not accept the response.
        """
        if self.view not in self._slack.modals[self.view.user][-1:]:
            raise ClientRefusal("the modal is closed, or another one is open on top of it")
        for name, value in (values or {}).items():
            await self._fill_in(self._field(name), value)
        if not self.view.body.get("submit"):
            raise ClientRefusal("it has no submit button")
        for each in self.view.fields():
            each.require(self.view.values[each.block_id][each.action_id])
        payload = {
            **interaction(self._slack, self._user, "view_submission", self._place()),
            "view": self.view.payload(),
            "response_urls": self._response_urls(),
        }
        self._submission = encoded(payload)
        self._stamp = timestamp_of(self._slack)
        return (await self.resubmit(clicks))[0]

    async def resubmit(self, times: int = 1) -> list[Response]:
        """Send the last submission again, the same bytes and signature, ``times`` at once.

        The responses are handled one after the other, in that order.
        """
        if not self._submission:
            raise ClientRefusal("nothing was submitted yet")
        answers = await asyncio.gather(
            *(deliver(self._slack, self._submission, timestamp=self._stamp) for _ in range(times))
        )
        for answer in answers:
            self._handle(answer)
        return list(answers)

    async def choose(self, name: str, value: Any) -> Response:  # noqa: ANN401 - depends on the field
        """Choose a value in a field that notifies the bot at once, as radio buttons can.

        Raises:
            ClientRefusal: the field does not notify the bot before the form is submitted.
        """
        found = self._field(name)
        await self._fill_in(found, value)
        return await self._dispatch(found)

    async def click(self, button: str, *, confirm: bool = True) -> Response:
        """Press a button inside the modal, as ``Person.click`` does in a message."""
        block, element = find_button(self.view.body["blocks"], button)
        dialog = dialog_of(element)
        if dialog and not confirm:
            return Response(None, dialog=dialog)
        answer = await self._act(button_action(self._slack, block, element))
        return replace(answer, dialog=dialog)

    async def suggest(self, name: str, query: str = "") -> list[Json]:
        """Type into an external menu and return the options that the bot offers.

        A client asks once ``min_query_length`` characters are typed, and shows nothing if no
        response comes in time.
        """
        found = self._field(name)
        return options_of(await self.look_up(found.block_id, found.action_id, query))

    async def look_up(self, block_id: str, action_id: str, query: str = "") -> Response | None:
        """Do as ``suggest``, but return the bot's response, or None if it was not asked.

        Raises:
            InvalidResponse: Slack would not accept the response.
        """
        _, element = find_element(self.view.body["blocks"], block_id, action_id)
        if len(query) < element.get("min_query_length", _MIN_QUERY_LENGTH):
            return None
        payload = {
            **interaction(self._slack, self._user, "block_suggestion", self._place()),
            "container": {"type": "view", "view_id": self.view.id},
            "view": self.view.payload(),
            "block_id": block_id,
            "action_id": action_id,
            "value": query,
        }
        del payload["trigger_id"]
        answer = await interact(self._slack, payload)
        if answer.ok and (errors := validate_options(answer.json or {})):
            raise InvalidResponse("; ".join(errors))
        self.view.offered.setdefault(block_id, []).extend(options_of(answer))
        return answer

    def type(self, values: Mapping[str, Mapping[str, Any]], *, finished: bool = False) -> None:
        """Enter values into fields, by block id and action id; unknown fields are ignored.

        Text may be invalid unless ``finished``.

        Raises:
            ClientRefusal: a client would not accept a value.
        """
        for field in self.view.fields():
            typed = values.get(field.block_id, {})
            if field.action_id in typed:
                take = field.entered if finished else field.typed
                state = take(self._meant(field, typed[field.action_id]), self._shown(field))
                self.view.values[field.block_id][field.action_id] = state

    async def press(self, block_id: str, action_id: str, value: object = None) -> Response:
        """Press a button, or choose ``value`` in a field that notifies the bot at once.

        Raises:
            ClientRefusal: there is no such element, or a client would not accept the value.
        """
        block, element = find_element(self.view.body["blocks"], block_id, action_id)
        field = field_of(block, element)
        if field is None:
            return await self._act(element_action(self._slack, block, element, value))
        self.type({block_id: {action_id: value}})
        return await self._dispatch(field)

    async def close(self, *, whole_stack: bool = False) -> Response:
        """Close it, or all open modals; the bot is notified if it asked to be."""
        whole = whole_stack or bool(self.view.body.get("clear_on_close"))
        payload = {
            **interaction(self._slack, self._user, "view_closed", self._place()),
            "view": self.view.payload(),
            "is_cleared": whole,
        }
        del payload["trigger_id"]
        self._slack.close_view(self.view, whole_stack=whole)
        if not self.view.body.get("notify_on_close"):
            return Response(None)
        return await interact(self._slack, payload)

    async def _dispatch(self, field: Field) -> Response:
        if not field.dispatches:
            raise ClientRefusal(
                f"{field.action_id} does not notify the app before the form is submitted"
            )
        state = self.view.values[field.block_id][field.action_id]
        return await self._act(field_action(self._slack, field, state))

    async def _act(self, action: Json) -> Response:
        payload = {
            **interaction(self._slack, self._user, "block_actions", self._place()),
            "container": {"type": "view", "view_id": self.view.id},
            "view": self.view.payload(),
            "actions": [action],
        }
        return await interact(self._slack, payload)

    def _field(self, name: str) -> Field:
        for each in self.view.fields():
            if name in {each.block_id, each.action_id}:
                return each
        there = ", ".join(each.block_id for each in self.view.fields())
        raise ClientRefusal(f"no field {name!r}; there are: {there}")

    async def _fill_in(self, found: Field, value: Any) -> None:  # noqa: ANN401 - depends on the field
        value = self._meant(found, value)
        offered = found.options()
        if found.kind in {"external_select", "multi_external_select"}:
            offered = await self._offered(found, value)
        self.view.values[found.block_id][found.action_id] = found.entered(value, offered)

    def _meant(self, found: Field, value: Any) -> Any:  # noqa: ANN401 - depends on the field
        """Return ``value`` with names of users and conversations replaced by their ids."""
        if found.kind == "file_input":
            return [self._file(found, each) for each in value or []]
        named = {"conversations_select", "users_select"}
        names = value if isinstance(value, list) else [value or ""]
        if found.kind.removeprefix("multi_") in named and not all(
            isinstance(each, str) for each in names
        ):
            raise ClientRefusal(f"{found.label}: {value!r} is not the name of a user")
        try:
            if found.kind in {"conversations_select", "multi_conversations_select"}:
                return self._conversations(found, value)
            if found.kind in {"users_select", "multi_users_select"}:
                return _each(value, lambda name: self._slack.user(name).id)
        except KeyError as error:
            raise ClientRefusal(f"{found.label}: {error} is not in the list") from None
        return value

    def _file(self, found: Field, wanted: object) -> object:
        """Return one of the person's files, given by its id or as Slack shows it.

        https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
        """
        identifier = wanted.get("id") if isinstance(wanted, dict) else wanted
        file = self._slack.files.get(str(identifier))
        if file is None or file.shown["user"] != self.view.user:
            raise ClientRefusal(f"{found.label}: {identifier} is not a file of this person")
        allowed = found.element.get("filetypes")
        if allowed and not {file.ending, file.shown["filetype"]} & set(allowed):
            raise ClientRefusal(f"{found.label}: only {', '.join(allowed)} can be uploaded")
        if len(file.content) > MAX_BYTES:
            raise ClientRefusal(f"{found.label}: the file is larger than 10 MB")
        return file.shown

    async def _offered(self, found: Field, value: Any) -> list[Json]:  # noqa: ANN401 - one or many
        """Return the options that were loaded, asking the bot for those that are wanted."""
        wanted = value if isinstance(value, list) else [value]
        for each in wanted:
            for query in ("", str(each)):
                shown = self._shown(found)
                if each is None or any(each in {o["value"], o["text"]["text"]} for o in shown):
                    break
                await self.suggest(found.action_id, query)
        return self._shown(found)

    def _shown(self, field: Field) -> list[Json]:
        """Return the options seen so far in a menu: its own, the chosen and the loaded ones."""
        held = self.view.values[field.block_id][field.action_id][field.key]
        seen = [field.initial(None)[field.key], held]
        chosen = [o for each in seen for o in (each if isinstance(each, list) else [each])]
        known = [each for each in chosen if isinstance(each, dict)]
        return [*field.options(), *known, *self.view.offered.get(field.block_id, [])]

    def _conversations(self, found: Field, value: Any) -> Any:  # noqa: ANN401 - one or many
        allowed = found.element.get("filter", {})

        def listed(name: str) -> str:
            place = self._slack.channel(name)
            if not shows(allowed, place, self._user):
                raise ClientRefusal(f"{found.label}: {name} is not in the list")
            return place.id

        return _each(value, listed)

    def _place(self) -> Channel | None:
        return self._slack.channels[self.view.channel] if self.view.channel else None

    def _response_urls(self) -> list[Json]:
        chosen = [
            (each, self.view.values[each.block_id][each.action_id][each.key])
            for each in self.view.fields()
            if each.element.get("response_url_enabled")
        ]
        return [
            {
                "block_id": each.block_id,
                "action_id": each.action_id,
                "channel_id": channel,
                "response_url": self._slack.new_response_url(self.view.user, channel),
            }
            for each, channel in chosen
            if channel
        ]

    def _handle(self, answer: Response) -> None:
        """Do what the response to a submission says, if the modal is still open."""
        if not self.is_open:
            return
        if not answer.ok:
            self._slack.show_errors(self.view, {}, CONNECTION_ERROR)
            return
        said = answer.json or {}
        action = said.get("response_action")
        if action == "errors":
            self._slack.show_errors(self.view, self._errors(said))
        elif action == "update":
            self._slack.update_view(self.view, _validated(said))
        elif action == "push":
            self._push(_validated(said))
        elif action == "clear" or not (said or answer.body.strip()):
            self._slack.close_view(self.view, whole_stack=action == "clear")
        else:
            raise InvalidResponse(f"this is not a response to a submission: {answer.body}")

    def _errors(self, said: Json) -> dict[str, str]:
        errors = said.get("errors")
        inputs = {each["block_id"] for each in self.view.body["blocks"] if each["type"] == "input"}
        if not isinstance(errors, dict) or not errors or not errors.keys() <= inputs:
            raise InvalidResponse(f"errors must go by the ids of input blocks, {inputs}: {errors}")
        return {name: str(sentence) for name, sentence in errors.items()}

    def _push(self, body: Json) -> None:
        try:
            self._slack.push_over(self.view, body)
        except SlackError as error:
            raise InvalidResponse(error.code) from error


def _validated(said: Json) -> Json:
    view = said.get("view")
    if not isinstance(view, dict):
        raise InvalidResponse(f"no view: {said}")
    if errors := validate_view(view):
        raise InvalidResponse("; ".join(errors))
    return view


def _bare(value: Any) -> Any:  # noqa: ANN401 - of any kind of field
    """Replace options by their values."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _each(value: Any, turn: Callable[[str], str]) -> Any:  # noqa: ANN401 - one, many or none
    if isinstance(value, list):
        return [turn(each) for each in value]
    return turn(value) if value else value
