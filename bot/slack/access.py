"""Who may ask for something, and where it may be posted.

What Slack says about people, channels and user groups is asked in the background, and kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final, Generic, TypeGuard, TypeVar, cast

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import OutsideError, Refused
from bot.model import Job
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.installation import InstallationSource
from bot.slack.payloads import Payload, Sender
from bot.slack.views.blocks import Json, listed
from bot.slack.views.usage import (
    GROUP_HIDDEN,
    NOT_CHECKED,
    OPERATOR,
    Membership,
    channel_sentence,
    groups_asked,
    person_sentence,
)
from bot.store import Limits, LimitsTable
from bot.tasks import BackgroundTasks
from bot.timings import Clock, Timings, deadline

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
_T = TypeVar("_T")
_A = TypeVar("_A", bound="Answer")
_USERS: Final = "users.info"
CONVERSATIONS: Final = "conversations.info"
_GROUPS: Final = "usergroups.users.list"
# Also for a group that was disabled: without include_disabled, it is as if there were none.
_GONE: Final = "no_such_subteam"
_DAY_S: Final = 24 * 60 * 60
# Slack does not let a bot see a private channel that it is not in. It cannot post there either.
_HIDDEN: Final = "channel_not_found"
_NO_SCOPE: Final = "missing_scope"
# https://docs.slack.dev/reference/methods/users.info#errors
_NOT_OURS: Final = frozenset({"user_not_found", "user_not_visible", "user_not_in_team"})
"""The codes with which Slack says that a person is not of the workspace."""


# ── What Slack says ───────────────────────────────────────────────────────────────────────────────


class Lookups(Generic[_T]):
    """Answers about ids.

    Args:
        ask: asks Slack about an id; None if there was no answer.
        background: runs the question.
        clock: dates the answers.
        max_age: after this time an answer is asked for again. Until there is a new one, it counts.
            Who needs less than all of an answer may take an older one.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[_T | None]],
        background: BackgroundTasks,
        clock: Clock,
        max_age: timedelta,
    ) -> None:
        self._ask = ask
        self._background = background
        self._clock = clock
        self._max_age = max_age
        self._answers: dict[str, tuple[datetime, _T]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def prepare(self, key: str, max_age: timedelta | None = None) -> None:
        """Ask about an id in the background, unless a fresh answer is known."""
        if not self._is_fresh(key, max_age or self._max_age) and key not in self._asking:
            self._asking[key] = self._background.spawn(self._look_up(key))

    def known(self, key: str) -> _T | None:
        """Return the last answer about an id, without asking."""
        answer = self._answers.get(key)
        return None if answer is None else answer[1]

    def forget(self, key: str) -> None:
        """Ask again the next time about an id, whose answer may have changed."""
        self._answers.pop(key, None)

    async def get(self, key: str, deadline: float, max_age: timedelta | None = None) -> _T | None:
        """Return a fresh answer about an id, or at the deadline the last one, if any.

        ``deadline`` is by the event loop's clock.
        """
        self.prepare(key, max_age)
        if (asking := self._asking.get(key)) is not None:
            timeout = deadline - asyncio.get_running_loop().time()
            await asyncio.wait([asking], timeout=max(0, timeout))
        return self.known(key)

    async def fresh(self, key: str, deadline: float, max_age: timedelta) -> _T | None:
        """Return an answer about an id, of at most this age; None if there is none in time."""
        if not self._is_fresh(key, max_age):
            await self.get(key, deadline)
        return self.known(key) if self._is_fresh(key, max_age) else None

    async def _look_up(self, key: str) -> None:
        try:
            answer = await self._ask(key)
            if answer is not None:
                self._answers[key] = (self._clock.now(), answer)
        finally:
            del self._asking[key]

    def _is_fresh(self, key: str, max_age: timedelta) -> bool:
        answer = self._answers.get(key)
        return answer is not None and abs(self._clock.now() - answer[0]) <= max_age


class Answer(Payload):
    """What Slack says; where it refuses that, ``error`` alone, its code."""

    error: str = ""


class Person(Answer):
    """What users.info says of a person: https://docs.slack.dev/reference/objects/user-object."""

    team_id: str = Field(default="", validation_alias=AliasPath("user", "team_id"))
    enterprise_id: str = Field(
        default="", validation_alias=AliasPath("user", "enterprise_user", "enterprise_id")
    )
    is_restricted: bool = Field(default=False, validation_alias=AliasPath("user", "is_restricted"))
    is_ultra_restricted: bool = Field(
        default=False, validation_alias=AliasPath("user", "is_ultra_restricted")
    )
    is_stranger: bool = Field(default=False, validation_alias=AliasPath("user", "is_stranger"))
    is_deleted: bool = Field(default=False, validation_alias=AliasPath("user", "deleted"))
    is_bot: bool = Field(default=False, validation_alias=AliasPath("user", "is_bot"))
    is_admin: bool = Field(default=False, validation_alias=AliasPath("user", "is_admin"))
    is_owner: bool = Field(default=False, validation_alias=AliasPath("user", "is_owner"))
    real_name: str = Field(default="", validation_alias=AliasPath("user", "real_name"))
    display_name: str = Field(
        default="", validation_alias=AliasPath("user", "profile", "display_name")
    )

    tz_offset: object = Field(default=None, validation_alias=AliasPath("user", "tz_offset"))
    """Seconds east of UTC, at this time of the year."""

    @property
    def zone(self) -> tzinfo | None:
        """Their time zone, as it is now; None if Slack does not tell it."""
        offset = self.tz_offset
        if not isinstance(offset, int) or abs(offset) >= _DAY_S:
            return None
        return timezone(timedelta(seconds=offset))

    @property
    def name(self) -> str:
        """Their name as Slack shows it; "" if Slack does not tell it."""
        return self.display_name or self.real_name


class Channel(Answer):
    """What conversations.info says: https://docs.slack.dev/reference/objects/conversation-object."""

    name: str = Field(default="", validation_alias=AliasPath("channel", "name"))
    is_ext_shared: bool = Field(
        default=False, validation_alias=AliasPath("channel", "is_ext_shared")
    )
    is_pending_ext_shared: bool = Field(
        default=False, validation_alias=AliasPath("channel", "is_pending_ext_shared")
    )
    """Those who join later read what was posted before."""
    is_private: bool = Field(default=True, validation_alias=AliasPath("channel", "is_private"))

    @property
    def is_read_outside(self) -> bool:
        """Whether people of other organisations read it, or may soon."""
        return self.is_ext_shared or self.is_pending_ext_shared


class _Members(Answer):
    """The answer of usergroups.users.list, which comes whole: there are no pages.

    https://docs.slack.dev/reference/methods/usergroups.users.list
    """

    users: frozenset[str]


# ── Who may do what ───────────────────────────────────────────────────────────────────────────────


class Access:
    """Decides who may ask for something, and where it may be posted.

    All deadlines are by the event loop's clock.

    Args:
        installation: the workspace and the app that requests have to come from.
        background: runs the questions to Slack.
        clock, timings: how long an answer of Slack's counts.
        limits: who may ask for what, and where, and who ``ADMIN_USERS`` names.
        allow_shared_channels: whether to post where other organisations read.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        installation: InstallationSource,
        background: BackgroundTasks,
        clock: Clock,
        timings: Timings,
        *,
        limits: LimitsTable,
        allow_shared_channels: bool,
    ) -> None:
        self._client = client
        self._installation = installation
        self._clock = clock
        self._timings = timings
        self._allow_shared_channels = allow_shared_channels
        self._limits = limits
        self._rate_limits = installation.calls.limits
        max_age = timings.person_max_age
        self._people = Lookups(self._look_up_person, background, clock, max_age)
        self._channels = Lookups(self._look_up_channel, background, clock, max_age)
        self._members = Lookups(self._look_up_group, background, clock, max_age)

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
        person = await self._people.get(sender.user, waiting)
        if person is None:
            return "I couldn't check who you are. Please try again in a moment."
        if person.error == _NO_SCOPE:
            # Without a team, it opens a form, whose submission says the team.
            return None if not sender.team and sender.place in ours else STRANGER
        return None if self._member_refusal(person) != STRANGER else STRANGER

    # ── People ────────────────────────────────────────────────────────────────────────────────

    def prepare(self, user: str, channel: str) -> None:
        """Have Slack asked what is not known yet about who asks, and where."""
        if _is_channel(channel):
            self._channels.prepare(channel)
        self._people.prepare(user)

    async def early_refusal(
        self, kind: str, user: str, channel: str, deadline: float
    ) -> str | None:
        """Return why a user may not ask for a kind at all, or not in this channel.

        A form waits until the deadline, by the event loop's clock, and only for what Slack says of
        a user whom nobody asked about before. What is not known by then is refused when the form is
        submitted.
        """
        limits = self._limits.current
        if not _is_named(limits, kind, user):
            person = self._people.known(user) or await self._people.get(user, deadline)
            if person is not None and (refusal := self._member_refusal(person)):
                return refusal
        if not limits.allows_channel(channel):
            allowed = [f"<#{each}>" for each in sorted(limits.allowed_channels)[:_MAX_NAMED]]
            return channel_sentence(allowed, self.admin_mentions)
        membership = await self.membership(kind, user, deadline)
        refusal = person_sentence(membership, self.admin_mentions)
        is_allowed = limits.allows_person(kind, user, membership.groups)
        return None if is_allowed or refusal == NOT_CHECKED else refusal

    async def asking_refusal(self, kind: str, user: str, deadline: float) -> str | None:
        """Return why a user may not ask for what costs money or changes what others see.

        A guest may if the limits name them for the kind. Without an answer by the deadline, by the
        event loop's clock, nobody may who was not asked about before: a member tries again, whereas
        what a guest spends is gone.
        """
        if _is_named(self._limits.current, kind, user):
            return None
        person = await self._people.get(user, deadline)
        return NOT_CHECKED if person is None else self._member_refusal(person)

    async def is_admin(self, user: str, until: float | None = None) -> bool:
        """Return whether a user is an admin: one of ``ADMIN_USERS``.

        Where that names nobody, the owners and admins of the bot's own workspace are, if they are
        full members and Slack says so ``until`` then: by default for ``person_timeout``.
        """
        if admins := self._limits.current.admins:
            return user in admins
        until = until or deadline(self._timings.person_timeout)
        person = await self._people.fresh(user, until, self._timings.person_max_age)
        return self._is_member_here(person) and (person.is_admin or person.is_owner)

    async def owner_refusal(self, user: str, deadline: float) -> str | None:
        """Return why a person cannot own a replica; None too for one of whom nothing is known."""
        person = await self._people.get(user, deadline)
        if person is None or not (
            person.is_bot or person.is_deleted or self._member_refusal(person) == STRANGER
        ):
            return None
        return "Pick a person who is in this workspace."

    def zone(self, user: str) -> tzinfo | None:
        """Return the time zone of a person, as it is now; None if it is not known."""
        person = self._people.known(user)
        return person.zone if person is not None else None

    async def reads_public_channels(self, user: str, deadline: float) -> bool:
        """Return whether Slack says by the deadline that a user is a full member, no guest.

        Colleagues from another workspace of the organisation do not read those of this one.
        """
        return self._is_member_here(await self._people.get(user, deadline))

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
        if person.error == _NO_SCOPE:
            return None
        if person.error in _NOT_OURS or person.is_stranger or installation is None:
            return STRANGER
        is_colleague = person.enterprise_id and person.enterprise_id == installation.enterprise_id
        if person.team_id != installation.team_id and not is_colleague:
            return STRANGER
        if person.is_restricted or person.is_ultra_restricted or person.is_bot:
            return GUEST
        return None

    # ── What limits say ───────────────────────────────────────────────────────────────────────

    async def membership(self, kind: str, user: str, deadline: float) -> Membership:
        """Return the user groups of a person, of those that say who may ask for a kind.

        As far as that is known by the deadline.
        """
        ids = sorted(groups_asked(self._limits.current, kind, user))
        found = await asyncio.gather(*(self._members.get(each, deadline) for each in ids))
        problem = ""
        if None in found:
            problem = NOT_CHECKED
        elif any(each and each.error not in {"", _GONE} for each in found):
            problem = GROUP_HIDDEN
        inside = frozenset(
            id_
            for id_, group in zip(ids, found, strict=True)
            if group and not group.error and user in group.users
        )
        return Membership(inside, problem)

    async def channel_refusal(self, channel: str, deadline: float) -> str | None:
        """Return why limits let nobody post in a channel, in plain text."""
        limits = self._limits.current
        if limits.allows_channel(channel):
            return None
        allowed = sorted(limits.allowed_channels)[:_MAX_NAMED]
        names = await self.names(allowed, deadline)
        channels = [f"#{name}" for name in names.values()]
        return channel_sentence(channels, await self.admin_names(deadline))

    @property
    def _named_admins(self) -> list[str]:
        return sorted(self._limits.current.admins)[:_MAX_NAMED]

    @property
    def admin_mentions(self) -> str:
        """Who can change a limit, for a message."""
        mentions = [f"<@{each}>" for each in self._named_admins]
        return listed(mentions, "or") if mentions else OPERATOR

    async def admin_names(self, deadline: float) -> str:
        """Return who can change a limit, in plain text: names that Slack tells by the deadline."""
        names = await self.names(self._named_admins, deadline)
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
        if self._is_closed(self._channels.known(channel)):
            self._channels.forget(channel)  # the bot may have been invited meanwhile
        found = await self._channels.get(channel, deadline)
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
        return await self._channels.fresh(channel, deadline, oldest)

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
        return channel is not None and channel.error == _HIDDEN and self.has_scope("groups:read")

    @property
    def bot_name(self) -> str:
        """What the bot is called in the workspace, for mentions that people type."""
        installation = self._installation.current
        return (installation.bot_name if installation else "") or _DEFAULT_BOT_NAME

    # ── Asking Slack ──────────────────────────────────────────────────────────────────────────

    async def names(self, ids: Iterable[str], deadline: float) -> dict[str, str]:
        """Return the names of those people and channels whose names are known by the deadline."""
        asked = sorted(ids)
        found = await asyncio.gather(*(self._named(each, deadline) for each in asked))
        return {id_: it.name for id_, it in zip(asked, found, strict=True) if it and it.name}

    async def _named(self, id_: str, deadline: float) -> Channel | Person | None:
        if _is_channel(id_):
            return await self._channels.get(id_, deadline)
        return await self._people.get(id_, deadline, self._timings.name_max_age)

    async def _look_up_person(self, user: str) -> Person | None:
        found = await self._ask(Person, _USERS, lambda: self._client.users_info(user=user))
        return found if found and found.error in {"", _NO_SCOPE, *_NOT_OURS} else None

    async def _look_up_channel(self, channel: str) -> Channel | None:
        found = await self._ask(
            Channel, CONVERSATIONS, lambda: self._client.conversations_info(channel=channel)
        )
        return found if found and found.error in {"", _NO_SCOPE, _HIDDEN} else None

    async def _look_up_group(self, group: str) -> _Members | None:
        return await self._ask(
            _Members, _GROUPS, lambda: self._client.usergroups_users_list(usergroup=group)
        )

    async def _ask(
        self, model: type[_A], method: str, call: Callable[[], Awaitable[AsyncSlackResponse]]
    ) -> _A | None:
        """Return what Slack says; None if it does not answer, or asks to wait."""
        if self._rate_limits.until(method) is not None:
            return None
        try:
            async with translated(self._timings.call_timeout):
                return model.model_validate((await call()).data)
        except Refused as error:
            if ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE and error.code != _NO_SCOPE:
                # The workspace refuses the app: the same question again gets no other answer.
                self._rate_limits.limit(method, self._timings.pause)
            return cast("_A", model.model_construct(error=error.code))
        except OutsideError:
            return None


def _is_named(limits: Limits, kind: str, user: str) -> bool:
    """Return whether limits name a user, and not only a group, among those who may ask."""
    return user in limits.admins | limits.users(kind)


def _is_channel(channel: str) -> bool:
    """Return whether a conversation is a channel: others share some, and bots are not in all."""
    return channel.startswith(("C", "G"))
