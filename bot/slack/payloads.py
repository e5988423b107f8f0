"""Slack's payloads, as far as the bot reads them: a model for each type of request.

Shapes: https://docs.slack.dev/interactivity and https://docs.slack.dev/reference/interaction-payloads.
"""

import difflib
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

# How much of a word a subcommand has to share with it, from 0 to 1: "statsu" has 0.83, "hello" has
# 0.67 of "help". No longer word has that much.
_SIMILAR: Final = 0.75
_LONG: Final = 20
_MAX_SEARCH: Final = 200
_P = TypeVar("_P", bound=BaseModel)


def without_surrogates(text: str) -> str:
    """Return ``text`` with "?" for lone surrogates, which can neither be stored nor sent."""
    return text.encode(errors="replace").decode()


Text = Annotated[str, AfterValidator(without_surrogates)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# Nothing depends on it: what is no text is left out.
Lenient = Annotated[Text, BeforeValidator(lambda value: value if isinstance(value, str) else "")]
"""A text that can be stored and sent."""
Id = Annotated[Text, Field(min_length=1)]
"""An id: never empty."""


class InvalidPayload(ValueError):
    """A payload of another shape than Slack documents, or of another version of the bot.

    ``str()`` names the fields that are wrong, never their values.
    """

    def __init__(self, error: ValidationError) -> None:
        places = {".".join(map(str, each["loc"])) for each in error.errors(include_input=False)}
        super().__init__(" ".join(sorted(places)))


def read(model: type[_P], body: dict[str, Any]) -> _P:
    """Return the body of a request as a ``model``.

    Raises:
        InvalidPayload: it has another shape.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise InvalidPayload(error) from None


class Payload(BaseModel):
    """What Slack sends or answers, as far as the bot reads it.

    What people wrote must not appear in a validation error. A model is built when it is first used:
    all of them would be a tenth of the time that the bot takes to start.
    """

    model_config = ConfigDict(
        extra="ignore", frozen=True, hide_input_in_errors=True, defer_build=True
    )


class PrivateMetadata(BaseModel):
    """The ``private_metadata`` of a form, which Slack returns as the bot has set it."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True, defer_build=True)


class Sender(Payload):
    """Who sent a request of any type, and from where.

    An interaction has the person's team in ``user``: the ``team`` beside it may be the app's. A
    command has the team in which it was typed. https://docs.slack.dev/apis/slack-connect
    """

    user: Id = Field(validation_alias=AliasChoices(AliasPath("user", "id"), "user_id"))
    team: Id = Field(validation_alias=AliasChoices(AliasPath("user", "team_id"), "team_id"))
    place: Text | None = Field(
        default=None, validation_alias=AliasChoices(AliasPath("team", "id"), "team_id")
    )
    place_enterprise: Text | None = Field(
        default=None, validation_alias=AliasChoices(AliasPath("enterprise", "id"), "enterprise_id")
    )
    """The organisation of ``place`` on Enterprise Grid."""
    app: Text = Field(default="", validation_alias="api_app_id")

    @property
    def enterprise(self) -> str | None:
        """The organisation of the person's team, if the request says it."""
        return self.place_enterprise if self.team == self.place else None


class EventSender(Sender):
    """Who caused an event, if anybody did: what happens to the app itself names nobody.

    A person of another organisation is named with their team: https://docs.slack.dev/apis/slack-connect
    """

    kind: Text = Field(validation_alias=AliasPath("event", "type"))
    user: Text = Field(default="", validation_alias=AliasPath("event", "user"))
    team: Id = Field(
        validation_alias=AliasChoices(
            AliasPath("event", "user_team"), AliasPath("event", "team"), "team_id"
        )
    )


class HomeOpened(Payload):
    """A tab of the app that a person opened.

    https://docs.slack.dev/reference/events/app_home_opened
    """

    user: Id = Field(validation_alias=AliasPath("event", "user"))
    tab: Text = Field(default="home", validation_alias=AliasPath("event", "tab"))


class MessageEvent(Payload):
    """A message in the app's direct message, or one that mentions the app.

    https://docs.slack.dev/reference/events/message
    """

    channel: Id = Field(validation_alias=AliasPath("event", "channel"))
    ts: Id = Field(validation_alias=AliasPath("event", "ts"))
    thread_ts: Text | None = Field(default=None, validation_alias=AliasPath("event", "thread_ts"))
    user: Text = Field(default="", validation_alias=AliasPath("event", "user"))
    bot_id: Text | None = Field(default=None, validation_alias=AliasPath("event", "bot_id"))
    subtype: Text = Field(default="", validation_alias=AliasPath("event", "subtype"))

    @property
    def is_written(self) -> bool:
        """Whether a person wrote it: no app, and Slack did not add it for an edit or a join."""
        written = {"", "file_share", "me_message", "thread_broadcast"}
        return bool(self.user) and self.bot_id is None and self.subtype in written


def is_plain_text(mimetype: object) -> bool:
    """Return whether a file of this type may hold a script."""
    return str(mimetype).startswith("text/") and mimetype != "text/html"


class Shares(Payload):
    """Where a file is, by channel: https://docs.slack.dev/reference/objects/file-object."""

    public: dict[str, list[Any]] = Field(default_factory=dict)
    private: dict[str, list[Any]] = Field(default_factory=dict)

    def messages(self, channel: str) -> set[str]:
        """Return the ``ts`` of the messages of a channel that have the file."""
        shares = [*self.public.get(channel, ()), *self.private.get(channel, ())]
        found = (each.get("ts") for each in shares if isinstance(each, dict))
        return {ts for ts in found if isinstance(ts, str)}


class Origin(Payload):
    """Where the answer to a request can go, whatever else is wrong with it."""

    kind: Lenient = Field(default="", validation_alias="type")
    trigger_id: Lenient = ""
    response_url: Text | None = None
    view_kind: Lenient = Field(default="", validation_alias=AliasPath("view", "type"))
    ts: Lenient = Field(
        default="",
        validation_alias=AliasChoices(
            AliasPath("container", "message_ts"), AliasPath("message", "ts")
        ),
    )
    parent_ts: Lenient = Field(
        default="",
        validation_alias=AliasChoices(
            AliasPath("container", "thread_ts"), AliasPath("message", "thread_ts")
        ),
    )

    @property
    def reply_thread_ts(self) -> str | None:
        """The thread whose reply the message is: a private answer is seen there, if it says so.

        https://docs.slack.dev/interactivity/handling-user-interaction#message_responses
        """
        return self.parent_ts or None if self.parent_ts != self.ts else None

    @property
    def is_outside_conversations(self) -> bool:
        """Whether it comes from no conversation: the Home tab, or a global shortcut."""
        return self.kind == "shortcut" or self.view_kind == "home"


class SlashCommand(Origin, Sender):
    """A slash command."""

    command: Text
    text: Text = ""
    channel: Id = Field(validation_alias="channel_id")
    trigger_id: Id
    response_url: Text

    @property
    def words(self) -> str:
        """The text after the command, as the user typed it.

        The manifest turns Slack's escaping off, so nothing is unescaped here: "&lt;" was typed.
        https://docs.slack.dev/interactivity/implementing-slash-commands
        """
        return self.text.strip()

    def subcommand(self, *with_id: str, with_words: Collection[str] = ()) -> tuple[str, str] | None:
        """Return the subcommand and its id, or None if the text is something else.

        "help" and "list" stand alone. The others, ``with_id``, are followed by one word, or by
        nothing: then the id is "". Those ``with_words`` are followed by any, if the text is short
        enough to be no script. Case does not matter.
        """
        match self.words.split():
            case [word, *rest] if word.casefold() in with_words and len(self.words) <= _MAX_SEARCH:
                return word.casefold(), " ".join(rest)
            case [word] if word.casefold() in {"help", "list", *with_id}:
                return word.casefold(), ""
            case [word, wanted] if word.casefold() in with_id:
                return word.casefold(), wanted
        return None

    def mistyped(self, *subcommands: str) -> str | None:
        """Return the subcommand that a single word is probably meant to be, if any."""
        match self.words.casefold().split():
            case [word] if len(word) < _LONG and word not in subcommands:
                close = difflib.get_close_matches(word, subcommands, 1, _SIMILAR)
                return close[0] if close else None
        return None


class ShortcutPayload(Origin, Sender):
    """A shortcut: that of a message has the message and where it is, a global one neither.

    https://docs.slack.dev/reference/interaction-payloads/shortcuts-payload
    """

    team: Text = Field(default="", validation_alias=AliasPath("user", "team_id"))
    """In a message's menu, Slack need not say it:
    https://docs.slack.dev/tools/bolt-js/reference/interfaces/MessageShortcut"""
    callback_id: Text
    trigger_id: Id
    channel: Text = Field(default="", validation_alias=AliasPath("channel", "id"))
    text: Text = Field(default="", validation_alias=AliasPath("message", "text"))
    files: Annotated[list[Any], BeforeValidator(_list)] = Field(
        default_factory=list, validation_alias=AliasPath("message", "files")
    )

    @property
    def text_file(self) -> str | None:
        """The id of the plain text file of the message, if it has one and no other.

        https://docs.slack.dev/reference/objects/file-object
        """
        found = [
            each["id"]
            for each in self.files
            if isinstance(each, dict)
            and isinstance(each.get("id"), str)
            and is_plain_text(each.get("mimetype"))
        ]
        return found[0] if len(found) == 1 else None

    @property
    def thread_ts(self) -> str | None:
        """The thread that the message is in, or begins."""
        return self.parent_ts or self.ts


class BlockAction(Origin, Sender):
    """A button that was clicked, what was chosen in a menu, or a changed element of a modal."""

    action_id: Id = Field(validation_alias=AliasPath("actions", 0, "action_id"))
    value: Text = Field(
        default="",
        validation_alias=AliasChoices(
            AliasPath("actions", 0, "value"), AliasPath("actions", 0, "selected_option", "value")
        ),
    )
    channel: Text = Field(default="", validation_alias=AliasPath("channel", "id"))
    trigger_id: Id
    is_ephemeral: Any = Field(
        default=False, validation_alias=AliasPath("container", "is_ephemeral")
    )
    view: "View | None" = None

    @property
    def posted_ts(self) -> str | None:
        """The ``ts`` of the message that it is in, unless only the person who clicked sees it."""
        return self.ts or None if self.is_ephemeral is not True else None


class View(Payload):
    """A modal, or the Home tab, as the user sees it."""

    kind: Literal["modal", "home"] = Field(validation_alias="type")
    id: Id
    hash: Text = ""
    callback_id: Text = ""
    private_metadata: Text = ""
    root_view_id: Text = ""
    blocks: list[dict[str, Any]] = Field(default_factory=list)
    values: dict[str, dict[str, dict[str, Any]]] = Field(
        default_factory=dict, validation_alias=AliasPath("state", "values")
    )

    def metadata(self, model: type[_P]) -> _P:
        """Return the view's ``private_metadata``, which the bot gave it.

        Raises:
            InvalidPayload: another app, or another version of the bot, opened it.
        """
        try:
            return model.model_validate_json(self.private_metadata)
        except ValidationError as error:
            raise InvalidPayload(error) from None

    def fields(self) -> dict[str, str]:
        """Return the values of the fields that are filled in, by block id."""
        found = {}
        for block_id, elements in self.values.items():
            for element in elements.values():
                if value := without_surrogates(_value(element)):
                    found[block_id] = value
        return found


class ViewSubmission(Sender):
    """A modal that was submitted."""

    view: View


class OptionsRequest(Sender):
    """A request for the options of a type-ahead field."""

    action_id: Id
    value: Text = ""
    view: View | None = None


def _value(element: dict[str, Any]) -> str:
    """Return what was entered or chosen in an element: it has one of these."""
    texts = [element.get(name) for name in ("value", "selected_conversation", "selected_user")]
    texts += _list(element.get("selected_users")) + _list(element.get("selected_conversations"))
    chosen = [element.get("selected_option"), *_list(element.get("selected_options"))]
    chosen += _list(element.get("files"))
    texts += [each.get("value", each.get("id")) for each in chosen if isinstance(each, dict)]
    return " ".join(text for text in texts if isinstance(text, str))
