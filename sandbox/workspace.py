"""The state of a Slack workspace: people, channels, messages, open modals, and who follows it."""

import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from bot.clock import Clock
from sandbox import form, mrkdwn
from sandbox.block_kit import Json

Kind: TypeAlias = Literal[
    "posted",
    "edited",
    "deleted",
    "ephemeral",
    "modal_opened",
    "modal_updated",
    "modal_errors",
    "modal_closed",
    "home_published",
    "channel_changed",
]

TEAM: Final = "T0SANDBOX"
APP: Final = "A0SANDBOX"
BOT: Final = "B0SANDBOX"
TRIGGER_LIFE: Final = timedelta(seconds=3)
VIEWS_DEEP: Final = 3


class SlackError(Exception):
    """Slack turns a call down: ``code`` is its own word for why, ``details`` go beside it."""

    def __init__(self, code: str, **details: object) -> None:
        super().__init__(code)
        self.code = code
        self.details = details


@dataclass(frozen=True)
class SlashCommand:
    """A command as the app's manifest has it: ``/name``, what it does, what may follow it."""

    command: str
    description: str = ""
    usage_hint: str = ""


@dataclass(frozen=True)
class App:
    """What Slack knows of the app from its manifest; ``takes_messages`` in its own conversation."""

    name: str = "Replica Videos"
    commands: tuple[SlashCommand, ...] = ()
    takes_messages: bool = True


@dataclass(frozen=True)
class User:
    """A member of the workspace; ``tz`` is an IANA zone name."""

    id: str
    name: str
    real_name: str
    tz: str

    @property
    def zone(self) -> ZoneInfo:
        """Return the person's time zone."""
        return ZoneInfo(self.tz)


@dataclass
class Channel:
    """A conversation; ``members`` are user ids, the bot's among them where it was invited."""

    id: str
    name: str
    kind: Literal["public", "private", "im"]
    members: set[str]
    is_archived: bool = False


@dataclass(frozen=True)
class Message:
    """A message as it stood at one moment; an edit makes a new one with the same ``ts``.

    ``thread_ts`` is set on replies alone. ``visible_to`` is the one user who sees an ephemeral
    message, and ``edited`` the moment of the last edit.
    """

    channel: str
    ts: str
    user: str
    text: str
    blocks: list[Json] = field(default_factory=list)
    is_from_bot: bool = False
    thread_ts: str | None = None
    metadata: Json | None = None
    edited: datetime | None = None
    visible_to: str | None = None
    unfurl_links: bool | None = None
    unfurl_media: bool | None = None

    @property
    def sent_at(self) -> datetime:
        """Return when it was posted, aware, in UTC."""
        return datetime.fromtimestamp(float(self.ts), UTC)

    @property
    def pings(self) -> frozenset[str]:
        """Return whom it notifies: user ids, group ids, ``!channel``, ``!here``, ``!everyone``."""
        return mrkdwn.pings(self.text, self.blocks)

    def payload(self, *, with_metadata: bool = False) -> Json:
        """Return it as Slack's JSON has it."""
        shown: Json = {"type": "message", "user": self.user, "text": self.text, "ts": self.ts}
        shown["team"] = TEAM
        if self.blocks:
            shown["blocks"] = self.blocks
        if self.is_from_bot:
            shown |= {"bot_id": BOT, "app_id": APP}
        if self.thread_ts:
            shown["thread_ts"] = self.thread_ts
        if self.edited:
            shown["edited"] = {"user": self.user, "ts": f"{self.edited.timestamp():.6f}"}
        if with_metadata and self.metadata:
            shown["metadata"] = self.metadata
        return shown


@dataclass(eq=False)
class View:
    """A modal that a person has open, or their Home tab.

    ``body`` is what the app sent, with ids filled in. ``values`` is the state of its fields by
    block id and action id. ``errors`` (by block id) and ``notice`` are what the client shows.
    ``offered`` holds, by block id, the options that were loaded for external menus.
    """

    id: str
    user: str
    channel: str | None
    body: Json
    hash: str
    root_id: str
    previous_id: str | None = None
    values: form.Values = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    notice: str = ""
    offered: dict[str, list[Json]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the words at its top."""
        return str(self.body.get("title", {}).get("text", ""))

    def fields(self) -> list[form.Field]:
        """Return the fields that a person can fill, in order."""
        return list(form.fields(self.body["blocks"]))

    def payload(self) -> Json:
        """Return it as Slack's JSON has it."""
        return {
            "private_metadata": "",
            "callback_id": "",
            "external_id": "",
            "title": None,
            "submit": None,
            "close": None,
            "clear_on_close": False,
            "notify_on_close": False,
            **self.body,
            "id": self.id,
            "team_id": TEAM,
            "app_id": APP,
            "app_installed_team_id": TEAM,
            "bot_id": BOT,
            "state": {"values": self.values},
            "hash": self.hash,
            "root_view_id": self.root_id,
            "previous_view_id": self.previous_id,
        }


@dataclass(frozen=True)
class Event:
    """Something that a person could have seen happen."""

    kind: Kind
    at: datetime
    message: Message | None = None
    view: View | None = None
    channel: Channel | None = None


@dataclass
class _Trigger:
    user: str
    channel: str | None
    expires: datetime
    used: bool = False


class Workspace:
    """A workspace with an app installed in it.

    It begins with the people ana, ben and cleo, and the channels studio (the bot is in it), lobby
    (public, it is not), vault (private, it is not) and attic (archived). Wherever a user or channel
    is asked for, the id or the name will do.
    """

    def __init__(self, clock: Clock, scopes: set[str]) -> None:
        self.clock = clock
        self.scopes = scopes
        self.app = App()
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.modals: defaultdict[str, list[View]] = defaultdict(list)
        self.homes: dict[str, View] = {}
        self._messages: dict[str, dict[str, Message]] = {}
        self._ephemerals: dict[str, Message] = {}
        self._triggers: dict[str, _Trigger] = {}
        self._followers: list[Callable[[Event], None]] = []
        self._last_ts = 0
        self._number = 0
        self.bot = self.add_user("replica-videos", tz="UTC")
        for name, tz in (("ana", "Europe/Lisbon"), ("ben", "America/New_York"), ("cleo", "UTC")):
            self.add_user(name, tz=tz)
        self.add_channel("studio")
        self.add_channel("lobby", with_bot=False)
        self.add_channel("vault", kind="private", with_bot=False)
        self.add_channel("attic").is_archived = True

    # People and places

    def add_user(self, name: str, *, tz: str = "UTC") -> User:
        """Let somebody join."""
        user = User(self._new_id("U"), name, name.capitalize(), tz)
        self.users[user.id] = user
        return user

    def add_channel(
        self,
        name: str,
        *,
        kind: Literal["public", "private"] = "public",
        with_bot: bool = True,
    ) -> Channel:
        """Make a channel with everybody who is here in it, and the bot if so asked."""
        members = set(self.users) - (set() if with_bot else {self.bot.id})
        channel = Channel(self._new_id("C"), name, kind, members)
        self.channels[channel.id] = channel
        return channel

    def user(self, name: str) -> User:
        """Return a user by id or name; raises ``KeyError`` where there is none."""
        for user in self.users.values():
            if name.removeprefix("@") in {user.id, user.name}:
                return user
        raise KeyError(name)

    def channel(self, name: str) -> Channel:
        """Return a channel by id or name; raises ``KeyError`` where there is none."""
        for channel in self.channels.values():
            if name.removeprefix("#") in {channel.id, channel.name}:
                return channel
        raise KeyError(name)

    def direct_message(self, *names: str) -> Channel:
        """Return the conversation that just these people have, opening it if need be."""
        members = {self.user(name).id for name in names}
        for channel in self.channels.values():
            if channel.kind == "im" and channel.members == members:
                return channel
        channel = Channel(self._new_id("D"), "directmessage", "im", members)
        self.channels[channel.id] = channel
        self._tell("channel_changed", channel=channel)
        return channel

    def dm(self, user: str) -> Channel:
        """Return the app's own conversation with a user."""
        return self.direct_message(user, self.bot.id)

    def change_channel(
        self, name: str, *, with_bot: bool | None = None, is_archived: bool | None = None
    ) -> Channel:
        """Invite the app to a channel or remove it, and archive the channel or bring it back."""
        channel = self.channel(name)
        if with_bot is not None:
            (channel.members.add if with_bot else channel.members.discard)(self.bot.id)
        if is_archived is not None:
            channel.is_archived = is_archived
        self._tell("channel_changed", channel=channel)
        return channel

    # Messages

    def messages(self, channel: str) -> list[Message]:
        """Return the messages of a channel, oldest first, without what stands in threads."""
        return [each for each in self._in(channel).values() if each.thread_ts is None]

    def everything(self, channel: str) -> list[Message]:
        """Return the messages of a channel and of its threads, oldest first."""
        return list(self._in(channel).values())

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Return the replies to the message ``ts``, oldest first, without that message."""
        return [each for each in self._in(channel).values() if each.thread_ts == ts]

    def ephemerals(self, user: str, channel: str) -> list[Message]:
        """Return the messages in a channel that only this user sees, oldest first."""
        reader, place = self.user(user).id, self.channel(channel).id
        return [
            each
            for each in self._ephemerals.values()
            if each.visible_to == reader and each.channel == place
        ]

    def find(self, channel: str, ts: str) -> Message | None:
        """Return a message as it stands now, ephemeral ones too, or None if it is gone."""
        return self._in(channel).get(ts) or self._ephemerals.get(ts)

    def post(self, message: Message) -> Message:
        """Put a message into its channel, giving it its ``ts`` and its blocks their ids."""
        ts = self._new_ts()
        blocks = form.with_ids(message.blocks, f"{ts[-6:]}-")
        message = replace(message, ts=ts, blocks=blocks)
        if message.visible_to:
            self._ephemerals[ts] = message
            self._tell("ephemeral", message=message)
        else:
            self._in(message.channel)[ts] = message
            self._tell("posted", message=message)
        return message

    def edit(
        self, message: Message, *, text: str, blocks: list[Json], metadata: Json | None
    ) -> Message:
        """Replace a message by one with other content and the same ``ts``."""
        edited = replace(
            message,
            text=text,
            blocks=form.with_ids(blocks, f"{message.ts[-6:]}-"),
            metadata=metadata,
            edited=self.clock.now(),
        )
        self._shelf(message)[message.ts] = edited
        self._tell("edited", message=edited)
        return edited

    def delete(self, message: Message) -> None:
        """Take a message away."""
        if self._shelf(message).pop(message.ts, None):
            self._tell("deleted", message=message)

    # Modals and Home

    def new_trigger(self, user: str, channel: str | None) -> str:
        """Return a ``trigger_id``: for three seconds the app may open one modal for this user."""
        name = f"{self._new_number()}.{self._new_number()}.{secrets.token_hex(8)}"
        self._triggers[name] = _Trigger(user, channel, self.clock.now() + TRIGGER_LIFE)
        return name

    def open_view(self, trigger_id: str, body: Json) -> View:
        """Show a modal to whom the trigger belongs; it takes the place of one that is open.

        Raises:
            SlackError: ``invalid_trigger_id``, ``expired_trigger_id``, ``exchanged_trigger_id``.
        """
        trigger = self._exchange(trigger_id)
        view = self._new_view(trigger.user, trigger.channel, body, None)
        self.modals[trigger.user] = [view]
        self._tell("modal_opened", view=view)
        return view

    def push_view(self, trigger_id: str, body: Json) -> View:
        """Lay a view over the one that is open.

        Raises:
            SlackError: as in ``open_view``; ``not_found``, ``push_limit_reached``.
        """
        trigger = self._exchange(trigger_id)
        stack = self.modals[trigger.user]
        if not stack:
            raise SlackError("not_found")
        return self.push_over(stack[-1], body)

    def push_over(self, under: View, body: Json) -> View:
        """Lay a view over ``under``; raises ``SlackError`` where there are three already."""
        stack = self.modals[under.user]
        if len(stack) >= VIEWS_DEEP:
            raise SlackError("push_limit_reached")
        view = self._new_view(under.user, under.channel, body, under)
        stack.append(view)
        self._tell("modal_opened", view=view)
        return view

    def update_view(self, view: View, body: Json) -> None:
        """Show something else in an open view; fields of the same ids keep what they hold."""
        view.body = {**body, "blocks": form.with_ids(body["blocks"], f"{view.id}-")}
        view.values = form.state_of(view.body["blocks"], view.channel, view.values)
        view.errors, view.notice = {}, ""
        view.hash = self._new_hash()
        self._tell("modal_updated", view=view)

    def show_errors(self, view: View, errors: dict[str, str], notice: str = "") -> None:
        """Show errors under the fields of a view, or a notice at its top."""
        view.errors, view.notice = errors, notice
        self._tell("modal_errors", view=view)

    def close_view(self, view: View, *, whole_stack: bool = False) -> None:
        """Close a view, or with it all that are open; nothing happens if it is closed already."""
        stack = self.modals[view.user]
        if view in stack:
            closed = list(stack) if whole_stack else stack[stack.index(view) :]
            del stack[-len(closed) :]
            self._tell("modal_closed", view=view)

    def open_views(self) -> list[View]:
        """Return every view that anybody has open."""
        return [view for stack in self.modals.values() for view in stack]

    def publish_home(self, user: str, body: Json) -> View:
        """Show the Home tab of the app to a user."""
        view = self._new_view(user, None, body, None)
        self.homes[user] = view
        self._tell("home_published", view=view)
        return view

    # Following along

    def subscribe(self, follower: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``follower`` with each thing that happens, until what is returned is called."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def _tell(
        self,
        kind: Kind,
        *,
        message: Message | None = None,
        view: View | None = None,
        channel: Channel | None = None,
    ) -> None:
        for follower in tuple(self._followers):
            follower(Event(kind, self.clock.now(), message, view, channel))

    def _in(self, channel: str) -> dict[str, Message]:
        return self._messages.setdefault(self.channel(channel).id, {})

    def _shelf(self, message: Message) -> dict[str, Message]:
        return self._ephemerals if message.visible_to else self._in(message.channel)

    def _exchange(self, trigger_id: str) -> _Trigger:
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise SlackError("invalid_trigger_id")
        if trigger.used:
            raise SlackError("exchanged_trigger_id")
        if self.clock.now() >= trigger.expires:
            raise SlackError("expired_trigger_id")
        trigger.used = True
        return trigger

    def _new_view(self, user: str, channel: str | None, body: Json, under: View | None) -> View:
        name = self._new_id("V")
        body = {**body, "blocks": form.with_ids(body["blocks"], f"{name}-")}
        root, previous = (under.root_id, under.id) if under else (name, None)
        view = View(name, user, channel, body, self._new_hash(), root, previous)
        view.values = form.state_of(body["blocks"], channel, {})
        return view

    def _new_ts(self) -> str:
        # Microseconds, and never the same one twice even if the clock stands still or goes back.
        micros = round(self.clock.now().timestamp() * 1_000_000)
        self._last_ts = max(self._last_ts + 1, micros)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def _new_hash(self) -> str:
        return f"{int(self.clock.now().timestamp())}.{secrets.token_hex(4)}"

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _new_id(self, letter: str) -> str:
        return f"{letter}0{self._new_number():08d}"
