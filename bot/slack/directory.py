"""What Slack says about people, channels and user groups: asked in the background, and kept."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final, Generic, TypeVar, cast

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.payloads import Payload
from bot.slack.rate_limits import CallLimits
from bot.slack.views.limits import GROUP_HIDDEN, NOT_CHECKED, Membership
from bot.tasks import BackgroundTasks
from bot.timings import Timings

_T = TypeVar("_T")
_A = TypeVar("_A", bound="Answer")
_MAX_KEPT: Final = 10_000
_USERS: Final = "users.info"
CONVERSATIONS: Final = "conversations.info"
_GROUPS: Final = "usergroups.users.list"
# Also for a group that was disabled: without include_disabled, it is as if there were none.
_GONE: Final = "no_such_subteam"
_DAY_S: Final = 24 * 60 * 60
# Slack does not let a bot see a private channel that it is not in. It cannot post there either.
HIDDEN: Final = "channel_not_found"
NO_SCOPE: Final = "missing_scope"
# https://docs.slack.dev/reference/methods/users.info#errors
NOT_OURS: Final = frozenset({"user_not_found", "user_not_visible", "user_not_in_team"})
"""The codes with which Slack says that a person is not of the workspace."""


class Lookups(Generic[_T]):
    """Answers about ids, the last 10,000 of them.

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
        self._answers: OrderedDict[str, tuple[datetime, _T]] = OrderedDict()
        self._asking: dict[str, asyncio.Event] = {}

    def prepare(self, key: str, max_age: timedelta | None = None) -> None:
        """Ask about an id in the background, unless a fresh answer is known."""
        if not self._is_fresh(key, max_age or self._max_age) and key not in self._asking:
            self._asking[key] = asyncio.Event()
            self._background.spawn(self._look_up(key))

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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await asking.wait()
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
                self._answers.move_to_end(key)
                if len(self._answers) > _MAX_KEPT:
                    self._answers.popitem(last=False)
        finally:
            self._asking.pop(key).set()

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


class Directory:
    """The people, channels and user groups that Slack was asked about.

    All deadlines are by the event loop's clock.
    """

    def __init__(
        self, client: AsyncWebClient, background: BackgroundTasks, clock: Clock, timings: Timings
    ) -> None:
        self._client = client
        self._timings = timings
        max_age = timings.person_max_age
        self.limits: CallLimits[str] = CallLimits(clock, max_age)
        self.people = Lookups(self._look_up_person, background, clock, max_age)
        self.channels = Lookups(self._look_up_channel, background, clock, max_age)
        self._members = Lookups(self._look_up_group, background, clock, max_age)

    async def names(self, ids: Iterable[str], deadline: float) -> dict[str, str]:
        """Return the names of those people and channels whose names are known by the deadline."""
        asked = sorted(ids)
        found = await asyncio.gather(*(self._name(each, deadline) for each in asked))
        return {id_: name for id_, name in zip(asked, found, strict=True) if name}

    async def _name(self, mentioned: str, deadline: float) -> str | None:
        found: Channel | Person | None
        if mentioned.startswith(("C", "G")):
            found = await self.channels.get(mentioned, deadline)
        else:
            found = await self.people.get(mentioned, deadline, self._timings.name_max_age)
        return None if found is None else found.name

    async def membership(self, user: str, groups: Iterable[str], deadline: float) -> Membership:
        """Return which of these groups a person is in, as far as that is known by the deadline."""
        ids = sorted(groups)
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

    async def _look_up_person(self, user: str) -> Person | None:
        found = await self._ask(Person, _USERS, lambda: self._client.users_info(user=user))
        return found if found and found.error in {"", NO_SCOPE, *NOT_OURS} else None

    async def _look_up_channel(self, channel: str) -> Channel | None:
        found = await self._ask(
            Channel, CONVERSATIONS, lambda: self._client.conversations_info(channel=channel)
        )
        return found if found and found.error in {"", NO_SCOPE, HIDDEN} else None

    async def _look_up_group(self, group: str) -> _Members | None:
        return await self._ask(
            _Members, _GROUPS, lambda: self._client.usergroups_users_list(usergroup=group)
        )

    async def _ask(
        self, model: type[_A], method: str, call: Callable[[], Awaitable[AsyncSlackResponse]]
    ) -> _A | None:
        """Return what Slack says; None if it does not answer, or asks to wait."""
        if self.limits.until(method) is not None:
            return None
        try:
            async with translated(self._timings.call_timeout):
                return model.model_validate((await call()).data)
        except Refused as error:
            if ERROR_ACTIONS.get(error.code) is ErrorAction.PAUSE and error.code != NO_SCOPE:
                # The workspace refuses the app: the same question again gets no other answer.
                self.limits.limit(method, self._timings.pause)
            return cast("_A", model.model_construct(error=error.code))
        except OutsideError as error:
            self.limits.note(method, error)
            return None
