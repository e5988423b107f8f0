"""The objects of a Slack workspace: its app, users, channels, messages and views."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from sandbox import form, mrkdwn
from sandbox.block_kit import Json

EventKind: TypeAlias = Literal[
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


class SlackError(Exception):
    """Slack refuses a call: ``code`` is its error code, ``details`` go beside it.

    ``retry_after``: after how many seconds the call may be made.
    """

    def __init__(self, code: str, *, retry_after: int | None = None, **details: object) -> None:
        super().__init__(code)
        self.code = code
        self.retry_after = retry_after
        self.details = details


@dataclass(frozen=True)
class SlashCommand:
    """A slash command as in the app's manifest; ``command`` begins with the slash."""

    command: str
    description: str = ""
    usage_hint: str = ""


@dataclass(frozen=True)
class Shortcut:
    """A shortcut as in the app's manifest; ``type`` is "message" or "global"."""

    name: str
    type: Literal["message", "global"]
    callback_id: str
    description: str = ""


#: The events that an app can be subscribed to here.
EVENTS: Final = frozenset({"app_home_opened", "app_mention", "message.im"})


@dataclass(frozen=True)
class App:
    """The app as in its manifest.

    ``takes_messages``: whether people can write to it directly. ``has_home``: whether it has a Home
    tab. ``events``: what it is subscribed to.
    """

    name: str = "Replica Videos"
    commands: tuple[SlashCommand, ...] = ()
    takes_messages: bool = True
    shortcuts: tuple[Shortcut, ...] = ()
    events: frozenset[str] = EVENTS
    has_home: bool = True


@dataclass(frozen=True)
class User:
    """A person in the workspace; ``tz`` is an IANA zone name, ``title`` what their profile says.

    ``team`` and ``enterprise`` are other ones for people of other organisations, who are here
    through Slack Connect. A guest is ``is_restricted``, and in a single channel
    ``is_ultra_restricted`` too. An owner of the workspace is an admin too: https://docs.slack.dev/reference/objects/user-object.
    """

    id: str
    name: str
    real_name: str
    tz: str
    team: str = TEAM
    enterprise: str | None = None
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    title: str = ""
    is_deactivated: bool = False
    role: Literal["member", "admin", "owner"] = "member"

    @property
    def zone(self) -> ZoneInfo:
        """Return the person's time zone."""
        return ZoneInfo(self.tz)


@dataclass
class UserGroup:
    """A user group; ``members`` are user ids. A disabled one keeps them."""

    members: set[str]
    is_disabled: bool = False
    name: str = "Marketing"
    handle: str = "marketing"


@dataclass(slots=True)
class Channel:
    """A conversation; ``members`` are user ids, the bot's too if it was invited.

    ``is_ext_shared``: another organisation shares it, through Slack Connect;
    ``is_pending_ext_shared``: one may soon, somebody has yet to accept or approve that;
    ``is_org_shared``: other workspaces of the same organisation do.
    https://docs.slack.dev/reference/objects/conversation-object
    """

    id: str
    name: str
    kind: Literal["public", "private", "im"]
    members: set[str]
    is_archived: bool = False
    is_ext_shared: bool = False
    is_pending_ext_shared: bool = False
    is_org_shared: bool = False


def shows(conversation_filter: Json, place: Channel, user: User | None = None) -> bool:
    """Return whether a menu of conversations with this filter lists a conversation for a user.

    It has the "public and private channels, DMs, and MPIMs visible to the current user": full
    members see public channels that they are not in.
    https://docs.slack.dev/reference/block-kit/block-elements/select-menu-element
    https://docs.slack.dev/reference/block-kit/composition-objects/conversation-filter-object
    """
    if user is not None and user.id not in place.members:
        is_guest = user.is_restricted or user.team != TEAM
        if place.kind != "public" or is_guest:
            return False
    included = conversation_filter.get("include", ["public", "private", "im"])
    hidden = conversation_filter.get("exclude_external_shared_channels") and place.is_ext_shared
    return place.kind in included and not hidden


@dataclass(frozen=True)
class Message:
    """A message as it was at one moment; an edit makes a new one with the same ``ts``.

    ``thread_ts`` is set on replies only. ``visible_to`` is the one user who sees an ephemeral
    message, and ``edited`` is when it was last edited. ``files`` are as ``files.info`` shows them.
    A reply that ``is_broadcast`` is shown in the channel too.
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
    files: tuple[Json, ...] = ()
    is_broadcast: bool = False

    @property
    def sent_at(self) -> datetime:
        """Return when it was posted, in UTC."""
        return datetime.fromtimestamp(float(self.ts), UTC)

    @property
    def pings(self) -> frozenset[str]:
        """Return whom it notifies: user ids, group ids, ``!channel``, ``!here``, ``!everyone``."""
        return mrkdwn.pings(self.text, self.blocks)

    def payload(self, *, with_metadata: bool = False) -> Json:
        """Return Slack's JSON object for it."""
        shown: Json = {"type": "message", "user": self.user, "text": self.text, "ts": self.ts}
        shown["team"] = TEAM
        if self.blocks:
            shown["blocks"] = self.blocks
        if self.files:  # https://docs.slack.dev/reference/events/message/file_share
            shown["files"] = list(self.files)
        if self.is_from_bot:
            shown |= {"bot_id": BOT, "app_id": APP}
        if self.thread_ts:
            shown["thread_ts"] = self.thread_ts
        if self.is_broadcast:  # https://docs.slack.dev/reference/events/message/thread_broadcast
            shown["subtype"] = "thread_broadcast"
        if self.edited:
            shown["edited"] = {"user": self.user, "ts": f"{self.edited.timestamp():.6f}"}
        if with_metadata and self.metadata:
            shown["metadata"] = self.metadata
        return shown


@dataclass(eq=False)
class View:
    """A modal that a person has open, or their Home tab.

    ``body`` is what the app sent, with missing ids filled in. ``values`` is the state of its fields
    by block id and action id. ``errors`` (by block id) and ``notice`` are shown by the client.
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
        """Return its title."""
        return str(self.body.get("title", {}).get("text", ""))

    def fields(self) -> list[form.Field]:
        """Return its fields, in order."""
        return list(form.fields(self.body["blocks"]))

    def payload(self) -> Json:
        """Return Slack's JSON object for it."""
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
    """A change in the workspace that a person could see."""

    kind: EventKind
    at: datetime
    message: Message | None = None
    view: View | None = None
    channel: Channel | None = None
