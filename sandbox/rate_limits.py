"""How often Slack lets an app call a method: https://docs.slack.dev/apis/web-api/rate-limits.

Posts are counted for each channel, all else for each method in the workspace. The tier of a method
is on its page, https://docs.slack.dev/reference/methods.
"""

import math
from datetime import datetime, timedelta
from typing import Final

from bot.timings import Clock

#: Calls a minute.
_TIERS: Final = {2: 20, 3: 50, 4: 100}
_TIER_OF: Final = {
    "bots.info": 3,
    "chat.delete": 3,
    "chat.update": 3,
    "conversations.history": 3,
    "conversations.info": 3,
    "conversations.join": 3,
    "conversations.open": 3,
    "conversations.replies": 3,
    "files.completeUploadExternal": 4,
    "files.getUploadURLExternal": 4,
    "files.info": 4,
    "usergroups.list": 2,
    "usergroups.users.list": 2,
    "users.info": 4,
    "views.open": 4,
    "views.publish": 4,
    "views.update": 4,
}
_POST: Final = "chat.postMessage"
# "1 per second per channel": short bursts are allowed, and their length is not documented.
_POSTS_AT_ONCE: Final = 5


class RateLimits:
    """Counts the calls of an app, each limit as a bucket that drains at the documented pace."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: dict[tuple[str, str], datetime] = {}

    def refusal(self, method: str, channel: str) -> int | None:
        """Count a call; return after how many seconds it may be made if that is not now."""
        if method == _POST:
            at_once, interval, key = _POSTS_AT_ONCE, timedelta(seconds=1), (method, channel)
        elif method in _TIER_OF:
            at_once = _TIERS[_TIER_OF[method]]
            interval, key = timedelta(minutes=1) / at_once, (method, "")
        else:  # a special tier: hundreds a minute
            return None
        now = self._clock.now()
        free_at = max(self._free_at.get(key, now), now)
        wait = free_at - now - interval * (at_once - 1)
        if wait > timedelta(0):
            return math.ceil(wait.total_seconds())
        self._free_at[key] = free_at + interval
        return None
