"""A Slack workspace: who and what is in it, and what changes there."""

import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from bot.timings import Clock
from sandbox import form
from sandbox.block_kit import TEXT_LIMIT, Json
from sandbox.files import File, Upload
from sandbox.scheduler import Scheduler
from sandbox.slack_objects import (
    TEAM,
    App,
    Channel,
    Event,
    EventKind,
    Message,
    SlackError,
    User,
    UserGroup,
    View,
    shows,
)

_TRIGGER_LIFETIME: Final = timedelta(seconds=3)
_MAX_VIEWS: Final = 3


@dataclass
class _Trigger:
    user: str
    channel: str | None
    expires: datetime
    used: bool = False


class Workspace:
    """A workspace with an app installed in it.

    ``enterprise`` is the id of its organisation on Enterprise Grid, if it is in one. ``text_limit``
    is the highest number of bytes of a message's text. ``threads_error`` is the code with which
    ``conversations.replies`` is refused in channels. Slack documents that a bot may not call it
    there (https://docs.slack.dev/reference/methods/conversations.replies), and not with which code;
    in practice it can (https://github.com/vikasprogrammer/agentric/pull/789): None. ``share_delay``
    is how long after the call that shares an uploaded file the message with it appears.

    It begins with the people ana, ben and cleo, and the channels studio (with the bot), lobby
    (public, without the bot), vault (private, without the bot) and attic (archived). Users and
    channels can be given by id or by name.
    """

    def __init__(self, clock: Clock, scopes: set[str]) -> None:
        self.clock = clock
        self.scopes = scopes
        self.app = App()
        self.enterprise: str | None = None
        self.text_limit = TEXT_LIMIT
        self.threads_error: str | None = None
        self.users: dict[str, User] = {}
        self.user_groups: dict[str, UserGroup] | None = {}  # None in a plan without them
        self.channels: dict[str, Channel] = {}
        self.modals: defaultdict[str, list[View]] = defaultdict(list)
        self.homes: dict[str, View] = {}
        self.files: dict[str, File] = {}
        self.uploads: dict[str, Upload] = {}
        self.share_delay = timedelta(0)
        self.site = ""
        self._messages: dict[str, dict[str, Message]] = {}
        self._ephemerals: dict[str, Message] = {}
        self._triggers: dict[str, _Trigger] = {}
        self._subscribers: list[Callable[[Event], None]] = []
        self._scheduler = Scheduler(clock)
        self._last_ts = 0
        self._number = 0
        self.bot = self.add_user("replica-videos", tz="UTC")
        for name, tz in (("ana", "Europe/Lisbon"), ("ben", "America/New_York"), ("cleo", "UTC")):
            self.add_user(name, tz=tz)
        self.add_channel("studio")
        self.add_channel("lobby", with_bot=False)
        self.add_channel("vault", kind="private", with_bot=False)
        self.add_channel("attic").is_archived = True

    # Users and channels

    def add_user(
        self,
        name: str,
        *,
        tz: str = "UTC",
        team: str = TEAM,
        enterprise: str | None = None,
        guest: Literal["multi-channel", "single-channel"] | None = None,
        channels: Sequence[str] = (),
        title: str = "",
    ) -> User:
        """Add a user, as a member of these channels; of another organisation with its ``team``."""
        user = User(
            self.new_id("U"),
            name,
            name.capitalize(),
            tz,
            team,
            enterprise,
            is_restricted=guest is not None,
            is_ultra_restricted=guest == "single-channel",
            title=title,
        )
        self.users[user.id] = user
        for channel in channels:
            self.channel(channel).members.add(user.id)
        return user

    def add_channel(
        self,
        name: str,
        *,
        kind: Literal["public", "private"] = "public",
        with_bot: bool = True,
    ) -> Channel:
        """Add a channel with everyone in it, and the bot too if ``with_bot``."""
        members = set(self.users) - (set() if with_bot else {self.bot.id})
        channel = Channel(self.new_id("C"), name, kind, members)
        self.channels[channel.id] = channel
        return channel

    def user(self, name: str) -> User:
        """Return a user by id or name; raises ``KeyError`` if there is none."""
        for user in self.users.values():
            if name.removeprefix("@") in {user.id, user.name}:
                return user
        raise KeyError(name)

    def channel(self, name: str) -> Channel:
        """Return a channel by id or name; raises ``KeyError`` if there is none."""
        for channel in self.channels.values():
            if name.removeprefix("#") in {channel.id, channel.name}:
                return channel
        raise KeyError(name)

    def direct_message(self, *names: str) -> Channel:
        """Return the conversation of exactly these users, and open it if there is none."""
        members = {self.user(name).id for name in names}
        for channel in self.channels.values():
            if channel.kind == "im" and channel.members == members:
                return channel
        channel = Channel(self.new_id("D"), "directmessage", "im", members)
        self.channels[channel.id] = channel
        self._publish("channel_changed", channel=channel)
        return channel

    def dm(self, user: str) -> Channel:
        """Return the app's direct message with a user."""
        return self.direct_message(user, self.bot.id)

    def change_channel(
        self, name: str, *, with_bot: bool | None = None, **changes: bool
    ) -> Channel:
        """Invite or remove the bot, or set flags of the channel, such as ``is_archived``."""
        channel = self.channel(name)
        if with_bot is not None:
            (channel.members.add if with_bot else channel.members.discard)(self.bot.id)
        for flag, value in changes.items():
            setattr(channel, flag, value)
        self._publish("channel_changed", channel=channel)
        return channel

    def is_locked(self, place: Channel) -> bool:
        """Return whether a conversation is with the app, which takes no messages.

        Nothing can be typed there, no command either:
        https://docs.slack.dev/surfaces/app-home#messages-tab
        """
        with_app = place.kind == "im" and self.bot.id in place.members
        return with_app and not self.app.takes_messages

    # Messages

    def messages(self, channel: str) -> list[Message]:
        """Return the messages of a channel without replies, oldest first."""
        return [each for each in self._in(channel).values() if each.thread_ts is None]

    def in_channel(self, channel: str) -> list[Message]:
        """Return what is shown in a channel, oldest first: replies too that were broadcast."""
        there = self._in(channel).values()
        return [each for each in there if each.thread_ts is None or each.is_broadcast]

    def everything(self, channel: str) -> list[Message]:
        """Return the messages of a channel with replies, oldest first."""
        return list(self._in(channel).values())

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Return the replies to the message ``ts``, oldest first."""
        return [each for each in self._in(channel).values() if each.thread_ts == ts]

    def ephemerals(self, user: str, channel: str) -> list[Message]:
        """Return the ephemeral messages of a user in a channel, oldest first."""
        reader, place = self.user(user).id, self.channel(channel).id
        return [
            each
            for each in self._ephemerals.values()
            if each.visible_to == reader and each.channel == place
        ]

    def find(self, channel: str, ts: str) -> Message | None:
        """Return the current form of a message, ephemeral or not; None if there is none."""
        return self._in(channel).get(ts) or self._ephemerals.get(ts)

    def post(self, message: Message) -> Message:
        """Post a message; return it with its ``ts``, and with ids for its blocks."""
        ts = self._new_ts()
        blocks = form.with_ids(message.blocks, f"{ts[-6:]}-")
        message = replace(message, ts=ts, blocks=blocks)
        if message.visible_to:
            # In a thread that has not begun nobody sees it, and Slack answers "ok" nevertheless:
            # https://docs.slack.dev/reference/methods/chat.postEphemeral.
            if message.thread_ts is None or self.thread(message.channel, message.thread_ts):
                self._ephemerals[ts] = message
                self._publish("ephemeral", message=message)
        else:
            self._in(message.channel)[ts] = message
            self._publish("posted", message=message)
        return message

    def edit(
        self, message: Message, *, text: str, blocks: list[Json], metadata: Json | None
    ) -> Message:
        """Replace the content of a message; return the new one, with the same ``ts``."""
        edited = replace(
            message,
            text=text,
            blocks=form.with_ids(blocks, f"{message.ts[-6:]}-"),
            metadata=metadata,
            edited=self.clock.now(),
        )
        self._store_of(message)[message.ts] = edited
        self._publish("edited", message=edited)
        return edited

    def delete(self, message: Message) -> None:
        """Delete a message."""
        if self._store_of(message).pop(message.ts, None):
            self._publish("deleted", message=message)

    # Modals and Home

    def new_trigger(self, user: str, channel: str | None) -> str:
        """Return a ``trigger_id``, with which the app can open one modal within three seconds."""
        name = f"{self._new_number()}.{self._new_number()}.{secrets.token_hex(8)}"
        self._triggers[name] = _Trigger(user, channel, self.clock.now() + _TRIGGER_LIFETIME)
        return name

    def open_view(self, trigger_id: str, body: Json) -> View:
        """Show a modal to the user of the trigger, in place of any that are open.

        Raises:
            SlackError: ``invalid_trigger_id``, ``expired_trigger_id``, ``exchanged_trigger_id``.
        """
        trigger = self._use_trigger(trigger_id)
        view = self._new_view(trigger.user, trigger.channel, body, None)
        self.modals[trigger.user] = [view]
        self._publish("modal_opened", view=view)
        return view

    def push_over(self, under: View, body: Json) -> View:
        """Show a view on top of ``under``; raises ``SlackError`` if three are open already."""
        stack = self.modals[under.user]
        if len(stack) >= _MAX_VIEWS:
            raise SlackError("push_limit_reached")
        view = self._new_view(under.user, under.channel, body, under)
        stack.append(view)
        self._publish("modal_opened", view=view)
        return view

    def update_view(self, view: View, body: Json) -> None:
        """Replace the content of an open view; fields with the same ids keep their values."""
        view.body = {**body, "blocks": form.with_ids(body["blocks"], f"{view.id}-")}
        channel = self._preselected(view.body, view.channel)
        view.values = form.state_of(view.body["blocks"], channel, view.values)
        view.errors, view.notice = {}, ""
        view.hash = self._new_hash()
        self._publish("modal_updated", view=view)

    def show_errors(self, view: View, errors: dict[str, str], notice: str = "") -> None:
        """Show errors under the fields of a view, or a notice at its top."""
        view.errors, view.notice = errors, notice
        self._publish("modal_errors", view=view)

    def close_view(self, view: View, *, whole_stack: bool = False) -> None:
        """Close a view, or all that are open; do nothing if it is closed already."""
        stack = self.modals[view.user]
        if view in stack:
            closed = list(stack) if whole_stack else stack[stack.index(view) :]
            del stack[-len(closed) :]
            self._publish("modal_closed", view=view)

    def open_views(self) -> list[View]:
        """Return all open views of all users."""
        return [view for stack in self.modals.values() for view in stack]

    def publish_home(self, user: str, body: Json) -> View:
        """Show the Home tab of the app to a user."""
        view = self._new_view(user, None, body, None)
        self.homes[user] = view
        self._publish("home_published", view=view)
        return view

    # Events

    def schedule(self, delay: timedelta, work: Callable[[], Awaitable[object]]) -> None:
        """Run ``work`` once ``delay`` has passed."""
        self._scheduler.after(delay, work)

    def later(self, delay: timedelta, work: Callable[[], None]) -> None:
        """Run ``work`` once ``delay`` has passed, or now if there is none."""

        async def run() -> None:
            work()

        if delay:
            self.schedule(delay, run)
        else:
            work()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with each event; return a function that undoes it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def _publish(
        self,
        kind: EventKind,
        *,
        message: Message | None = None,
        view: View | None = None,
        channel: Channel | None = None,
    ) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(Event(kind, self.clock.now(), message, view, channel))

    def _in(self, channel: str) -> dict[str, Message]:
        return self._messages.setdefault(self.channel(channel).id, {})

    def _store_of(self, message: Message) -> dict[str, Message]:
        return self._ephemerals if message.visible_to else self._in(message.channel)

    def _use_trigger(self, trigger_id: str) -> _Trigger:
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
        name = self.new_id("V")
        body = {**body, "blocks": form.with_ids(body["blocks"], f"{name}-")}
        root, previous = (under.root_id, under.id) if under else (name, None)
        view = View(name, user, channel, body, self._new_hash(), root, previous)
        view.values = form.state_of(body["blocks"], self._preselected(body, channel), {})
        self._clear_unseen(view)
        return view

    def _clear_unseen(self, view: View) -> None:
        """Leave a menu of conversations empty whose chosen one it does not list for this user."""
        for each in form.fields(view.body["blocks"]):
            state = view.values[each.block_id][each.action_id]
            if chosen := state.get("selected_conversation"):
                place = self.channels.get(chosen)
                user = self.users[view.user]
                if place is None or not shows(each.element.get("filter", {}), place, user):
                    state["selected_conversation"] = None

    def _preselected(self, body: Json, channel: str | None) -> str | None:
        """Return the current conversation for a menu of conversations, unless its filter hides it.

        https://docs.slack.dev/reference/block-kit/block-elements/multi-select-menu-element
        """
        filters = [each.element.get("filter", {}) for each in form.fields(body["blocks"])]
        place = self.channels[channel] if channel else None
        return channel if place and all(shows(each, place) for each in filters) else None

    def _new_ts(self) -> str:
        # Microseconds; unique even if the clock stands still or is set back.
        micros = round(self.clock.now().timestamp() * 1_000_000)
        self._last_ts = max(self._last_ts + 1, micros)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def _new_hash(self) -> str:
        return f"{int(self.clock.now().timestamp())}.{secrets.token_hex(4)}"

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def new_id(self, letter: str) -> str:
        """Return an id that nothing else has, which begins with ``letter``."""
        return f"{letter}0{self._new_number():08d}"
