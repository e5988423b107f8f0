"""Who may ask for something, and where it may be posted."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, tzinfo
from enum import Enum
from typing import Final

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable
from bot.model import Job
from bot.slack.directory import (
    NO_SCOPE,
    NOT_OURS,
    Background,
    Directory,
    Lookups,
    Person,
    UserGroups,
)
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.installation import InstallationSource
from bot.slack.payloads import Payload, Sender
from bot.slack.rate_limits import MethodLimits
from bot.slack.views.blocks import Json, listed
from bot.slack.views.limits import (
    NOT_CHECKED,
    OPERATOR,
    Membership,
    channel_sentence,
    groups_asked,
    person_sentence,
)
from bot.store import Limits
from bot.timings import Timings

STARTING: Final = "I'm still starting. Please try again in a moment."
OTHER_WORKSPACE: Final = (
    "I've been connected to another workspace, so I can't help here. Please tell the person who "
    "runs this bot."
)
OTHER_APP: Final = "This came from another Slack app. Please tell the person who runs this bot."
STRANGER: Final = "Sorry, only people in the workspace where this app is installed can use it."
GUEST: Final = "Guests can't do that. Please ask a full member of this workspace."
SHARED_CHANNEL: Final = (
    "People from another organization are in this channel, or invited to it, so I don't post "
    "there. Please choose another one."
)
_CONVERSATIONS: Final = "conversations.info"
# As in manifest.yml, until Slack said the real one.
_DEFAULT_BOT_NAME: Final = "replica-videos"
_MAX_NAMED: Final = 3
_AN_ADMIN: Final = "an admin of this app"
# Slack does not let a bot see a private channel that it is not in. It cannot post there either.
_HIDDEN: Final = "channel_not_found"


class _Conversation(Payload):
    """The answer of conversations.info.

    https://docs.slack.dev/reference/objects/conversation-object
    """

    is_ext_shared: bool = Field(
        default=False, validation_alias=AliasPath("channel", "is_ext_shared")
    )
    is_pending_ext_shared: bool = Field(
        default=False, validation_alias=AliasPath("channel", "is_pending_ext_shared")
    )
    """Those who join later read what was posted before."""
    is_private: bool = Field(default=True, validation_alias=AliasPath("channel", "is_private"))


class _Standing(Enum):
    """What a person is in the workspace."""

    MEMBER = "member"
    GUEST = "guest"
    STRANGER = "stranger"
    UNKNOWN = "unknown"
    """Slack does not let us ask."""


class _Place(Enum):
    """What a channel is to the bot."""

    PUBLIC = "public"
    """It can post there, and all members of the workspace can read it."""
    OPEN = "open"
    """It can post there, or Slack does not let it find out."""
    SHARED = "shared"
    """People of other organisations read it, or may soon."""
    CLOSED = "closed"
    """A private channel that the bot is not in."""


class Access:
    """Decides who may ask for something, and where it may be posted.

    Args:
        client: asks Slack about channels and user groups.
        installation: the workspace and the app that requests have to come from.
        background: asks Slack while nobody waits.
        clock, timings: how long an answer of Slack's counts.
        directory: asks Slack about people.
        admins: the ids of those who can change a limit.
        allow_shared_channels: whether to post where other organisations read.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        installation: InstallationSource,
        background: Background,
        clock: Clock,
        timings: Timings,
        *,
        directory: Directory,
        admins: frozenset[str],
        allow_shared_channels: bool,
    ) -> None:
        self._client = client
        self.directory = directory
        self._installation = installation
        self._clock = clock
        self._timings = timings
        self._admins = sorted(admins)[:_MAX_NAMED]
        self._allow_shared_channels = allow_shared_channels
        max_age = timings.person_max_age
        self._limits = MethodLimits(clock, max_age)
        self._places = Lookups(self._look_up_channel, background, clock, max_age)
        self._groups = UserGroups(client, background, clock, timings)

    # ── Where a request comes from ────────────────────────────────────────────────────────────

    async def sender_refusal(self, sender: Sender) -> str | None:
        """Return why a request is not answered at all; None if it comes from here.

        It has to come from our app, and from a person of our workspace, or of another workspace of
        the same organisation on Enterprise Grid.
        """
        installation = await self._installation.get()
        if self._installation.is_of_other_team:
            return OTHER_WORKSPACE
        if installation is None:
            return STARTING
        if installation.app_id and sender.app != installation.app_id:
            return OTHER_APP
        ours = {installation.team_id, installation.enterprise_id}
        if sender.team in ours:
            return None
        if sender.team and installation.enterprise_id is None:
            return STRANGER
        if sender.enterprise is not None:
            return None if sender.enterprise == installation.enterprise_id else STRANGER
        # What Slack sends with a button tells the organisation of the app, not of the person.
        match self._standing(await self.directory.person(sender.user, self._deadline())):
            case _Standing.MEMBER | _Standing.GUEST:
                return None
            # It opens a form, whose submission says the team.
            case _Standing.UNKNOWN if not sender.team and sender.place in ours:
                return None
            case None:
                return "I couldn't check with Slack who you are. Please try again in a moment."
        return STRANGER

    # ── People ────────────────────────────────────────────────────────────────────────────────

    def prepare(self, user: str, channel: str) -> None:
        """Have Slack asked what is not known yet about who asks, and where."""
        if _is_channel(channel):
            self._places.prepare(channel)
        self.directory.prepare(user)

    async def early_refusal(
        self, limits: Limits, kind: str, user: str, channel: str, deadline: float
    ) -> str | None:
        """Return why a user may not ask for a kind at all, or not in this channel.

        A form waits until the deadline, by the event loop's clock, and only for what Slack says of
        a user whom nobody asked about before. What is not known by then is refused when the form is
        submitted.
        """
        if not _is_named(limits, kind, user):
            person = self.directory.known(user) or await self.directory.person(user, deadline)
            standing = self._standing(person)
            if refusal := self._refusal(standing or _Standing.UNKNOWN):
                return refusal
        if not limits.allows_channel(channel):
            allowed = [f"<#{each}>" for each in sorted(limits.channels)[:_MAX_NAMED]]
            return channel_sentence(allowed, self.admin_mentions)
        membership = await self.membership(limits, kind, user, deadline)
        refusal = person_sentence(membership, self.admin_mentions)
        is_allowed = limits.allows_person(kind, user, membership.groups)
        return None if is_allowed or refusal == NOT_CHECKED else refusal

    async def asking_refusal(
        self, limits: Limits, kind: str, user: str, deadline: float
    ) -> str | None:
        """Return why a user may not ask for what costs money or changes what others see.

        A guest may if the limits name them for the kind. Without an answer by the deadline, by the
        event loop's clock, nobody may who was not asked about before: a member tries again, whereas
        what a guest spends is gone.
        """
        if _is_named(limits, kind, user):
            return None
        standing = self._standing(await self.directory.person(user, deadline))
        if standing is None:
            return NOT_CHECKED
        return self._refusal(standing)

    async def owner_refusal(self, user: str, deadline: float) -> str | None:
        """Return why a person cannot own a replica; None too for one of whom nothing is known."""
        person = await self.directory.person(user, deadline)
        if person is None or not (
            person.is_bot or person.is_deleted or self._standing(person) is _Standing.STRANGER
        ):
            return None
        return "Pick a person who is in this workspace."

    def zone(self, user: str) -> tzinfo | None:
        """Return the time zone of a person, as it is now; None if it is not known."""
        person = self.directory.known(user)
        return person.zone if person is not None else None

    @staticmethod
    def _refusal(standing: _Standing) -> str | None:
        match standing:
            case _Standing.GUEST:
                return GUEST
            case _Standing.STRANGER:
                return STRANGER
        return None

    def _standing(self, person: Person | None) -> _Standing | None:
        """Return what a person is in the workspace; None if nothing is known of them."""
        installation = self._installation.current
        if person is None:
            return None
        if person.error == NO_SCOPE:
            return _Standing.UNKNOWN
        if person.error in NOT_OURS or person.is_stranger or installation is None:
            return _Standing.STRANGER
        is_colleague = person.enterprise_id and person.enterprise_id == installation.enterprise_id
        if person.team_id != installation.team_id and not is_colleague:
            return _Standing.STRANGER
        if person.is_restricted or person.is_ultra_restricted or person.is_bot:
            return _Standing.GUEST
        return _Standing.MEMBER

    # ── What limits say ───────────────────────────────────────────────────────────────────────

    async def membership(self, limits: Limits, kind: str, user: str, deadline: float) -> Membership:
        """Return the user groups of a person, of those that say who may ask for a kind."""
        groups = groups_asked(limits, kind, user)
        return await self._groups.of(user, groups, deadline) if groups else Membership()

    async def channel_refusal(self, limits: Limits, channel: str, deadline: float) -> str | None:
        """Return why limits let nobody post in a channel, in plain text."""
        if limits.allows_channel(channel):
            return None
        allowed = sorted(limits.channels)[:_MAX_NAMED]
        names = await self.directory.names(allowed, deadline)
        channels = [f"#{name}" for name in names.values()]
        return channel_sentence(channels, await self.admin_names(deadline))

    @property
    def admin_mentions(self) -> str:
        """Who can change a limit, for a message."""
        return listed([f"<@{each}>" for each in self._admins], "or") if self._admins else OPERATOR

    async def admin_names(self, deadline: float) -> str:
        """Return who can change a limit, in plain text: names that Slack tells by the deadline."""
        if not self._admins:
            return OPERATOR
        names = await self.directory.names(self._admins, deadline)
        return listed([*names.values()], "or") if names else _AN_ADMIN

    # ── Channels ──────────────────────────────────────────────────────────────────────────────

    @property
    def conversation_filter(self) -> Json:
        """The filter of menus of conversations: those that the bot may be able to post to.

        https://docs.slack.dev/reference/block-kit/composition-objects/conversation-filter-object
        """
        return {
            "include": ["public", "private"],
            "exclude_bot_users": True,
            "exclude_external_shared_channels": not self._allow_shared_channels,
        }

    async def posting_refusal(self, channel: str, deadline: float) -> str | None:
        """Return why nothing is posted to a channel; by the deadline, or it counts as unknown.

        Without the scope nobody can tell: then it is posted to.
        """
        if not _is_channel(channel):
            return None
        if self._places.known(channel) is _Place.CLOSED:
            self._places.forget(channel)  # the bot may have been invited meanwhile
        place = await self._places.get(channel, deadline)
        if place is _Place.CLOSED:
            return (
                f"I'm not in this channel. Type “/invite @{self._bot_name}” there and press the "
                "button again, or choose another place."
            )
        if self._allow_shared_channels:
            return None
        if place is None:
            return "I couldn't check with Slack who reads this channel. Please try again."
        return SHARED_CHANNEL if place is _Place.SHARED else None

    async def is_read_outside(
        self, channel: str, asked_at: datetime | None, deadline: float
    ) -> bool | None:
        """Return whether others than our organisation read a conversation, where they should not.

        What Slack said before a request from there, at ``asked_at``, counts for as long again after
        it. None if Slack does not say by the deadline. Without the scope nobody can tell.
        """
        if self._allow_shared_channels or not _is_channel(channel):
            return False
        max_age = self._timings.person_max_age
        is_new = asked_at is not None and self._clock.now() - asked_at <= max_age
        place = await self._places.fresh(channel, deadline, 2 * max_age if is_new else max_age)
        return None if place is None else place is _Place.SHARED

    async def public(self, jobs: Iterable[Job], deadline: float) -> set[str]:
        """Return the ids of those jobs that are posted where everybody here can read them."""
        return {
            job.id
            for job in jobs
            if _is_channel(job.channel)
            and await self._places.get(job.channel, deadline) is _Place.PUBLIC
        }

    @property
    def asks_again_at(self) -> datetime | None:
        """Until when Slack lets the bot ask about no channel; None if it may ask."""
        return self._limits.until(_CONVERSATIONS)

    async def _look_up_channel(self, channel: str) -> _Place | None:
        if self._limits.until(_CONVERSATIONS) is not None:
            return None
        try:
            async with translated(self._timings.call_timeout):
                answer = await self._client.conversations_info(channel=channel)
                found = _Conversation.model_validate(answer.data)
                if found.is_ext_shared or found.is_pending_ext_shared:
                    return _Place.SHARED
                return _Place.OPEN if found.is_private else _Place.PUBLIC
        except Refused as error:
            if ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE and error.code != NO_SCOPE:
                # The workspace refuses the app: that says nothing about the channel.
                paused = Unavailable(error.reason, retry_after=self._timings.pause)
                self._limits.note(_CONVERSATIONS, paused)
                return None
            if error.code == _HIDDEN:
                return _Place.CLOSED if self._sees_private_channels else _Place.OPEN
            return _Place.OPEN if error.code == NO_SCOPE else None
        except OutsideError as error:
            self._limits.note(_CONVERSATIONS, error)
            return None

    def has_scope(self, scope: str) -> bool:
        """Return whether the token is known to have a scope."""
        installation = self._installation.current
        return installation is not None and scope in (installation.scopes or ())

    @property
    def _sees_private_channels(self) -> bool:
        """Whether Slack hides from the bot only the private channels that it is not in."""
        return self.has_scope("groups:read")

    @property
    def _bot_name(self) -> str:
        installation = self._installation.current
        return (installation.bot_name if installation else "") or _DEFAULT_BOT_NAME

    def _deadline(self) -> float:
        loop = asyncio.get_running_loop()
        return loop.time() + self._timings.installation_timeout.total_seconds()


def _is_named(limits: Limits, kind: str, user: str) -> bool:
    """Return whether limits name a user, and not only a group, among those who may ask."""
    return user in limits.admins | limits.users(kind)


def _is_channel(channel: str) -> bool:
    """Return whether a conversation is a channel: others share some, and bots are not in all."""
    return channel.startswith(("C", "G"))
