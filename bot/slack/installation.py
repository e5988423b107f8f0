"""The workspace and the app that the bot's token belongs to, and the scopes of the app."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import OutsideError, Refused
from bot.model import Installation
from bot.outages import Outages
from bot.setting_values import MAX_BOX
from bot.slack.client import SlackCalls
from bot.slack.errors import translated
from bot.slack.payloads import Payload
from bot.store import DatabaseError, Store
from bot.tasks import BackgroundTasks
from bot.timings import Clock, Timings

_LOG: Final = logging.getLogger(__name__)
REQUIRED_SCOPES: Final[Mapping[str, str]] = {
    "commands": "there are no commands, so no one can ask for anything",
    "chat:write": "no one gets an answer",
    "chat:write.public": "the bot answers only in channels that it was invited to",
}
"""What is lost without the scopes in ``manifest.yml`` that nobody may decline."""

_TWICE: Final = "when Slack's answer is lost, a message may be posted twice in"
_SHARED: Final = "that are shared with other organizations are posted to like all others"
_OWN_ALONE: Final = "a search finds one's own videos alone"
OPTIONAL_SCOPES: Final[Mapping[str, str]] = {
    "app_mentions:read": "a mention of the app is not answered",
    "channels:history": f"{_TWICE} a public channel",
    "groups:history": f"{_TWICE} a private channel",
    "im:history": f"{_TWICE} a direct message, and what people write to the app is not answered",
    "channels:join": "JOIN_PUBLIC_CHANNELS has no effect",
    "im:write": f"{_TWICE} a direct message",
    "users:read": (
        f"guests cannot be told from members, and can ask; cards do not say who asked; {_OWN_ALONE}"
    ),
    "channels:read": f"public channels {_SHARED}; {_OWN_ALONE}",
    "groups:read": f"private channels {_SHARED}",
    "usergroups:read": "user groups in VIDEO_USERS and TRAINING_USERS do not count",
    "files:read": f"scripts have at most {MAX_BOX:,} characters, whatever MAX_SCRIPT says",
    "files:write": (
        "no video or long transcript is posted as a file: the reply has the links, and Details "
        "has the whole text"
    ),
}
"""What is lost without the scopes under ``bot_optional`` in ``manifest.yml``."""

FILE_SCOPES: Final = frozenset({"files:write", "files:read"})
"""To share a file, and to find out whether one is shared."""


def granted_scopes(headers: Mapping[str, object]) -> frozenset[str] | None:
    """Return the scopes of the token that a call was made with, by the headers of its answer.

    None if they do not say. https://docs.slack.dev/authentication/installing-with-oauth
    """
    granted = headers.get("X-OAuth-Scopes")
    return frozenset(re.split(r",\s*", granted)) if isinstance(granted, str) else None


class _Identity(Payload):
    """The answer of auth.test: https://docs.slack.dev/reference/methods/auth.test."""

    team_id: str = Field(min_length=1)
    enterprise_id: str | None = None
    bot_id: str | None = None
    user: str = ""
    team: str = ""


class _BotInfo(Payload):
    """The answer of bots.info: https://docs.slack.dev/reference/methods/bots.info."""

    app_id: str | None = Field(default=None, validation_alias=AliasPath("bot", "app_id"))


async def fetch_installation(
    client: AsyncWebClient, timings: Timings, outages: Outages | None = None
) -> Installation:
    """Return what Slack says of the token: its workspace, and its app where a scope allows that.

    ``outages`` notes whether Slack answered.

    Raises:
        Refused, Unavailable, Uncertain: Slack does not say it.
    """
    async with translated(timings.call_timeout, outages):
        answer = await client.auth_test()
        identity = _Identity.model_validate(answer.data)
    app_id = None
    if identity.bot_id is not None:
        try:
            async with translated(timings.call_timeout):
                about = await client.bots_info(bot=identity.bot_id)
                app_id = _BotInfo.model_validate(about.data).app_id
        except Refused as error:
            _LOG.info("the app is not known", extra={"reason": error.reason})
    scopes = granted_scopes(answer.headers)
    return Installation(
        identity.team_id, identity.enterprise_id, app_id, scopes, identity.user, identity.team
    )


class InstallationSource:
    """The installation that requests are compared with.

    It is stored when it is first learned, so that a later start does not depend on Slack, and
    learned again after each start: again and again, until Slack says it.
    """

    def __init__(
        self,
        client: AsyncWebClient,
        calls: SlackCalls,
        store: Store,
        background: BackgroundTasks,
        *,
        command_prefix: str,
        is_reachable: Callable[[], bool],
        clock: Clock,
        timings: Timings,
    ) -> None:
        self._client = client
        self.calls = calls
        """They show whether Slack answers, and accepts the token."""
        self._store = store
        self._background = background
        self._command_prefix = command_prefix
        self._is_reachable = is_reachable
        self._unannounced: Installation | None = None
        self._clock = clock
        self._timings = timings
        self.current: Installation | None = None
        """What is known of it now."""
        self._learned = False
        self._learning: asyncio.Task[None] | None = None
        self._failed = False
        self.is_of_other_team = False
        """Whether the token belongs to another team than the database."""

    def announce(self) -> None:
        """Log where the bot is, once that is learned and Slack's requests can arrive."""
        if self._unannounced is not None and self._is_reachable():
            _LOG.info(
                "Connected to %s as @%s. Type /%svideo in Slack.",
                *(self._unannounced.team_name, self._unannounced.bot_name, self._command_prefix),
            )
            self._unannounced = None

    async def load(self) -> None:
        """Read what is stored.

        Raises:
            DatabaseError: it cannot be read.
        """
        self.current = await self._store.installation.fetch()

    async def run(self) -> None:
        """Ask Slack again now and then while it is not known that it accepts the token."""
        never = asyncio.Event()
        while True:
            await self._clock.wait(self.calls.in_doubt)
            await self._clock.wait(never, self._clock.now() + self._timings.recheck_side)
            if self.calls.in_doubt.is_set():
                self.learn()

    def refresh(self) -> None:
        """Ask Slack whether it answers, if nothing has shown that for a while."""
        last, interval = self.calls.outages.last_answer, self._timings.recheck_side
        is_recent = last is not None and abs(self._clock.now() - last) < interval
        # While it is in doubt, it is asked now and then anyway.
        if not (is_recent or self.calls.in_doubt.is_set() or self.is_of_other_team):
            self.learn()

    async def get(self) -> Installation | None:
        """Return the installation; wait for Slack for a moment if it is not known yet."""
        if not self._learned:
            self.learn()
        if self.current is None and self._learning is not None:
            timeout = self._timings.installation_timeout.total_seconds()
            await asyncio.wait([self._learning], timeout=timeout)
        return self.current

    def learn(self) -> None:
        """Ask Slack in the background, unless that is under way."""
        if self._learning is None:
            self._learning = self._background.spawn(self._learn())

    async def _learn(self) -> None:
        try:
            found = await fetch_installation(self._client, self._timings, self.calls.outages)
            self._compare(found, await self._store.installation.save(found))
            if not self.calls.refusal:
                self.calls.in_doubt.clear()
            self._failed = False
        except (OutsideError, DatabaseError) as error:
            self.calls.in_doubt.set()
            is_logged = isinstance(error, OutsideError) and bool(error.cause or self.calls.refusal)
            if not self._failed and not is_logged:  # each request asks again
                self._failed = True
                _LOG.warning("the workspace is not known", extra={"reason": str(error)})
        finally:
            self._learning = None

    def _compare(self, found: Installation, before: Installation | None) -> None:
        """Take over what Slack says, unless it contradicts what is stored."""
        is_news, self._learned = not self._learned, True
        if before is not None and before.team_id != found.team_id:
            _LOG.error(
                "SLACK_BOT_TOKEN belongs to another workspace than the database: the bot does not "
                "answer. Use that workspace's token, or another database"
            )
            self.is_of_other_team = True
            return
        if is_news:
            self._unannounced = found
            self.announce()
        self.current = found
