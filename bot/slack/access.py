"""Who may ask for something, and where it may be posted."""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import Final, TypeGuard

from bot.clock import Clock, deadline
from bot.model import Job
from bot.slack.directory import (
    HIDDEN,
    NO_SCOPE,
    NOT_OURS,
    Channel,
    Directory,
    Person,
)
from bot.slack.installation import InstallationSource
from bot.slack.payloads import Sender
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
OTHER_WORKSPACE: Final = "I'm connected to another workspace now. Let a workspace admin know."
OTHER_APP: Final = "This came from another Slack app. Let a workspace admin know."
STRANGER: Final = "Sorry, only people in my workspace can use me."
GUEST: Final = "Guests can't do that. Please ask a full member."
SHARED_CHANNEL: Final = (
    "I don't post in channels shared with another organization. Please choose another one."
)
# As in manifest.yml, until Slack said the real one.
_DEFAULT_BOT_NAME: Final = "replica-videos"
_MAX_NAMED: Final = 3


class Access:
    """Decides who may ask for something, and where it may be posted.

    Args:
        installation: the workspace and the app that requests have to come from.
        clock, timings: how long an answer of Slack's counts.
        directory: asks Slack about people, channels and user groups.
        admins: the ids of those who can change a limit.
        allow_shared_channels: whether to post where other organisations read.
    """

    def __init__(
        self,
        installation: InstallationSource,
        clock: Clock,
        timings: Timings,
        *,
        directory: Directory,
        admins: frozenset[str],
        allow_shared_channels: bool,
    ) -> None:
        self.directory = directory
        self._installation = installation
        self._clock = clock
        self._timings = timings
        self._admins = sorted(admins)[:_MAX_NAMED]
        self._allow_shared_channels = allow_shared_channels

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
        waiting = deadline(self._timings.installation_timeout)
        person = await self.directory.people.get(sender.user, waiting)
        if person is None:
            return "I couldn't check who you are. Please try again in a moment."
        if person.error == NO_SCOPE:
            # Without a team, it opens a form, whose submission says the team.
            return None if not sender.team and sender.place in ours else STRANGER
        return None if self._member_refusal(person) != STRANGER else STRANGER

    # ── People ────────────────────────────────────────────────────────────────────────────────

    def prepare(self, user: str, channel: str) -> None:
        """Have Slack asked what is not known yet about who asks, and where."""
        if _is_channel(channel):
            self.directory.channels.prepare(channel)
        self.directory.people.prepare(user)

    async def early_refusal(
        self, limits: Limits, kind: str, user: str, channel: str, deadline: float
    ) -> str | None:
        """Return why a user may not ask for a kind at all, or not in this channel.

        A form waits until the deadline, by the event loop's clock, and only for what Slack says of
        a user whom nobody asked about before. What is not known by then is refused when the form is
        submitted.
        """
        if not _is_named(limits, kind, user):
            person = self.directory.people.known(user) or await self.directory.people.get(
                user, deadline
            )
            if person is not None and (refusal := self._member_refusal(person)):
                return refusal
        if not limits.allows_channel(channel):
            allowed = [f"<#{each}>" for each in sorted(limits.allowed_channels)[:_MAX_NAMED]]
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
        person = await self.directory.people.get(user, deadline)
        return NOT_CHECKED if person is None else self._member_refusal(person)

    async def is_workspace_admin(self, user: str, deadline: float) -> bool:
        """Return whether Slack says, by the deadline, that a user is an owner or admin here.

        It has to be a full member of the bot's own workspace, and of no other.
        """
        max_age = self._timings.person_max_age
        person = await self.directory.people.fresh(user, deadline, max_age)
        return self._is_member_here(person) and (person.is_admin or person.is_owner)

    async def owner_refusal(self, user: str, deadline: float) -> str | None:
        """Return why a person cannot own a replica; None too for one of whom nothing is known."""
        person = await self.directory.people.get(user, deadline)
        if person is None or not (
            person.is_bot or person.is_deleted or self._member_refusal(person) == STRANGER
        ):
            return None
        return "Pick a person who is in this workspace."

    def zone(self, user: str) -> tzinfo | None:
        """Return the time zone of a person, as it is now; None if it is not known."""
        person = self.directory.people.known(user)
        return person.zone if person is not None else None

    async def reads_public_channels(self, user: str, deadline: float) -> bool:
        """Return whether Slack says by the deadline that a user is a full member, no guest.

        Colleagues from another workspace of the organisation do not read those of this one.
        """
        return self._is_member_here(await self.directory.people.get(user, deadline))

    def _is_member_here(self, person: Person | None) -> TypeGuard[Person]:
        """Return whether a person is a full member of the bot's own workspace."""
        here = self._installation.current
        return (
            person is not None
            and here is not None
            and self._member_refusal(person) is None
            and person.team_id == here.team_id
        )

    def _member_refusal(self, person: Person) -> str | None:
        """Return GUEST or STRANGER for a person who is known not to be a full member.

        Without the scope, Slack does not let us ask: then it is None.
        """
        installation = self._installation.current
        if person.error == NO_SCOPE:
            return None
        if person.error in NOT_OURS or person.is_stranger or installation is None:
            return STRANGER
        is_colleague = person.enterprise_id and person.enterprise_id == installation.enterprise_id
        if person.team_id != installation.team_id and not is_colleague:
            return STRANGER
        if person.is_restricted or person.is_ultra_restricted or person.is_bot:
            return GUEST
        return None

    # ── What limits say ───────────────────────────────────────────────────────────────────────

    async def membership(self, limits: Limits, kind: str, user: str, deadline: float) -> Membership:
        """Return the user groups of a person, of those that say who may ask for a kind."""
        groups = groups_asked(limits, kind, user)
        return await self.directory.membership(user, groups, deadline) if groups else Membership()

    async def channel_refusal(self, limits: Limits, channel: str, deadline: float) -> str | None:
        """Return why limits let nobody post in a channel, in plain text."""
        if limits.allows_channel(channel):
            return None
        allowed = sorted(limits.allowed_channels)[:_MAX_NAMED]
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
        return listed([*names.values()], "or") if names else OPERATOR

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
        channels = self.directory.channels
        if self._is_closed(channels.known(channel)):
            channels.forget(channel)  # the bot may have been invited meanwhile
        found = await channels.get(channel, deadline)
        if self._is_closed(found):
            return (
                f"I'm not in this channel. Type “/invite @{self.bot_name}” there and try again, "
                "or choose another place."
            )
        if self._allow_shared_channels:
            return None
        if found is None:
            return "I couldn't check who reads this channel. Please try again."
        return SHARED_CHANNEL if found.is_read_outside else None

    async def is_read_outside(
        self, channel: str, asked_at: datetime | None, deadline: float
    ) -> bool | None:
        """Return whether others than our organisation read a conversation, where they should not.

        What Slack said before a request from there, at ``asked_at``, counts for as long again after
        it. None if Slack does not say by the deadline. Without the scope nobody can tell.
        """
        if self._allow_shared_channels or not _is_channel(channel):
            return False
        found = await self._fresh_channel(channel, asked_at, deadline)
        return None if found is None else found.is_read_outside

    async def is_public(
        self, channel: str, deadline: float, asked_at: datetime | None = None
    ) -> bool:
        """Return whether Slack says by the deadline that every full member can read a channel.

        One that people of other organisations read, or may soon, counts where that is allowed. See
        ``is_read_outside`` for ``asked_at``.
        """
        if not _is_channel(channel):
            return False
        found = await self._fresh_channel(channel, asked_at, deadline)
        if found is None or found.is_private:
            return False
        return self._allow_shared_channels or not found.is_read_outside

    async def _fresh_channel(
        self, channel: str, asked_at: datetime | None, deadline: float
    ) -> Channel | None:
        max_age = self._timings.person_max_age
        is_new = asked_at is not None and self._clock.now() - asked_at <= max_age
        oldest = 2 * max_age if is_new else max_age
        return await self.directory.channels.fresh(channel, deadline, oldest)

    async def public(self, jobs: Iterable[Job], deadline: float) -> set[str]:
        """Return the ids of those jobs that are posted where everybody here can read them."""
        return {job.id for job in jobs if await self.is_public(job.channel, deadline)}

    def has_scope(self, scope: str) -> bool:
        """Return whether the token is known to have a scope."""
        installation = self._installation.current
        return installation is not None and scope in (installation.scopes or ())

    def _is_closed(self, channel: Channel | None) -> bool:
        """Return whether a channel is known to be a private one that the bot is not in.

        With the scope, Slack hides no others from it.
        """
        return channel is not None and channel.error == HIDDEN and self.has_scope("groups:read")

    @property
    def bot_name(self) -> str:
        """What the bot is called in the workspace, for mentions that people type."""
        installation = self._installation.current
        return (installation.bot_name if installation else "") or _DEFAULT_BOT_NAME


def _is_named(limits: Limits, kind: str, user: str) -> bool:
    """Return whether limits name a user, and not only a group, among those who may ask."""
    return user in limits.admins | limits.users(kind)


def _is_channel(channel: str) -> bool:
    """Return whether a conversation is a channel: others share some, and bots are not in all."""
    return channel.startswith(("C", "G"))
