"""Who is in a user group, as Slack says."""

import asyncio
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict
from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.slack.errors import translated
from bot.slack.limits import GroupProblem, Membership
from bot.slack.lookups import Background, Lookups
from bot.slack.rate_limits import MethodLimits
from bot.timings import FormTimings

_METHOD: Final = "usergroups.users.list"
# Also for a group that was disabled: without include_disabled, it is as if there were none.
_GONE: Final = "no_such_subteam"


class _Members(BaseModel):
    """The answer of usergroups.users.list, which comes whole: there are no pages.

    https://docs.slack.dev/reference/methods/usergroups.users.list
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    users: frozenset[str]


class UserGroups:
    """The user groups that Slack was asked about."""

    def __init__(
        self, client: AsyncWebClient, background: Background, clock: Clock, timings: FormTimings
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
