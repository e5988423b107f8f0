"""What Slack says about people, channels and user groups: asked in the background, and kept."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.slack.errors import translated
from bot.slack.payloads import Payload
from bot.slack.rate_limits import MethodLimits
from bot.slack.views.limits import GroupProblem, Membership
from bot.timings import Timings

_T = TypeVar("_T")
_MAX_KEPT: Final = 10_000
_USERS: Final = "users.info"
_METHOD: Final = "usergroups.users.list"
# Also for a group that was disabled: without include_disabled, it is as if there were none.
_GONE: Final = "no_such_subteam"
_DAY_S: Final = 24 * 60 * 60
NO_SCOPE: Final = "missing_scope"
# https://docs.slack.dev/reference/methods/users.info#errors
NOT_OURS: Final = frozenset({"user_not_found", "user_not_visible", "user_not_in_team"})
"""The codes with which Slack says that a person is not of the workspace."""


class Background(Protocol):
    """Runs work that no request waits for."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work``; a process that stops waits for it."""

    def spawn_at(
        self, clock: Clock, at: datetime, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run ``work`` at a time by ``clock``; a process that stops before that drops it."""


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
        background: Background,
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
            try:
                async with asyncio.timeout_at(deadline):
                    await asking.wait()
            except TimeoutError:
                pass
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


class Person(Payload):
    """What users.info says of a person: https://docs.slack.dev/reference/objects/user-object.

    Where Slack says nothing, ``error`` is the code why.
    """

    error: str = ""
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


class _Channel(Payload):
    """The answer of conversations.info, as far as it is a name."""

    name: str = Field(default="", validation_alias=AliasPath("channel", "name"))


class Directory:
    """The people that Slack was asked about, and the names of channels.

    All deadlines are by the event loop's clock.
    """

    def __init__(
        self, client: AsyncWebClient, background: Background, clock: Clock, timings: Timings
    ) -> None:
        self._client = client
        self._timings = timings
        max_age = timings.person_max_age
        self._limits = MethodLimits(clock, max_age)
        self._people = Lookups(self._look_up_person, background, clock, max_age)
        self._channels = Lookups(self._look_up_channel, background, clock, max_age)

    def prepare(self, user: str) -> None:
        """Have Slack asked about a person of whom nothing fresh is known."""
        self._people.prepare(user)

    def known(self, user: str) -> Person | None:
        """Return what Slack said last about a person, without asking."""
        return self._people.known(user)

    async def person(self, user: str, deadline: float) -> Person | None:
        """Return what Slack says about a person, or at the deadline the last it said, if any."""
        return await self._people.get(user, deadline)

    async def names(self, ids: Iterable[str], deadline: float) -> dict[str, str]:
        """Return the names of those people and channels whose names are known by the deadline."""
        asked = sorted(ids)
        found = await asyncio.gather(*(self._name(each, deadline) for each in asked))
        return {id_: name for id_, name in zip(asked, found, strict=True) if name}

    async def _name(self, mentioned: str, deadline: float) -> str | None:
        if mentioned.startswith(("C", "G")):
            return await self._channels.get(mentioned, deadline)
        person = await self._people.get(mentioned, deadline, self._timings.name_max_age)
        return None if person is None else person.name

    async def _look_up_person(self, user: str) -> Person | None:
        if self._limits.until(_USERS) is not None:
            return None
        try:
            async with translated(self._timings.call_timeout):
                return Person.model_validate((await self._client.users_info(user=user)).data)
        except Refused as error:
            is_answer = error.code in NOT_OURS or error.code == NO_SCOPE
            return Person(error=error.code) if is_answer else None
        except OutsideError as error:
            self._limits.note(_USERS, error)
            return None

    async def _look_up_channel(self, channel: str) -> str | None:
        try:
            async with translated(self._timings.call_timeout):
                answer = await self._client.conversations_info(channel=channel)
                return _Channel.model_validate(answer.data).name or None
        except OutsideError:
            return None


class _Members(Payload):
    """The answer of usergroups.users.list, which comes whole: there are no pages.

    https://docs.slack.dev/reference/methods/usergroups.users.list
    """

    users: frozenset[str]


class UserGroups:
    """The user groups that Slack was asked about."""

    def __init__(
        self, client: AsyncWebClient, background: Background, clock: Clock, timings: Timings
    ) -> None:
        self._client = client
        self._timings = timings
        max_age = timings.person_max_age
        self._limits = MethodLimits(clock, max_age)
        self._members = Lookups(self._look_up, background, clock, max_age)

    async def of(self, user: str, groups: Iterable[str], deadline: float) -> Membership:
        """Return which of these groups a person is in, as far as that is known by the deadline.

        ``deadline`` is by the event loop's clock.
        """
        ids = sorted(groups)
        found = await asyncio.gather(*(self._members.get(each, deadline) for each in ids))
        problems = [GroupProblem.NO_ANSWER] if None in found else []
        problems += [GroupProblem.HIDDEN] if GroupProblem.HIDDEN in found else []
        inside = frozenset(
            each
            for each, members in zip(ids, found, strict=True)
            if isinstance(members, frozenset) and user in members
        )
        return Membership(inside, problems[0] if problems else None)

    async def _look_up(self, group: str) -> frozenset[str] | GroupProblem | None:
        if self._limits.until(_METHOD) is not None:
            return None
        try:
            async with translated(self._timings.call_timeout):
                answer = await self._client.usergroups_users_list(usergroup=group)
                return _Members.model_validate(answer.data).users
        except Refused as error:
            return frozenset() if error.code == _GONE else GroupProblem.HIDDEN
        except OutsideError as error:
            self._limits.note(_METHOD, error)
            return None
