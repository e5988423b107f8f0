"""Checks of a secret by the one who accepts it: Slack or the video service."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final, Self

from bot import video_service
from bot.causes import describe
from bot.clock import SystemClock
from bot.doctor.finding import printable
from bot.errors import OutsideError, Refused
from bot.masking import Mask
from bot.settings import ConnectionSettings
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.timings import Timings
from bot.video_service import VideoService

_CALL_TIMEOUT: Final = timedelta(seconds=10)  # a person waits for it
_GONE: Final = "install the app again, and copy the new token"
# https://docs.slack.dev/reference/methods/auth.test#errors and
# https://docs.slack.dev/reference/methods/apps.connections.open#errors
_REFUSALS: Final = {
    "account_inactive": f"the app was removed from the workspace: {_GONE}",
    "invalid_auth": "it is not a token of Slack's: copy it again, from its beginning to its end",
    "missing_scope": "it lacks the scope connections:write: generate a token that has it",
    "not_allowed_token_type": "it is a token of another kind: copy the one named above",
    "token_expired": f"it has expired: {_GONE}",
    "token_revoked": f"it was revoked: {_GONE}",
}


class Outcome(Enum):
    """What became of a check."""

    ACCEPTED = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """It could not be made: the other side was not reached, or does not work."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check, with a sentence about it."""

    outcome: Outcome
    message: str

    @classmethod
    def refused_by_slack(cls, error: Refused) -> Self:
        """Return the result for an error code of Slack's."""
        reason = _REFUSALS.get(error.code, "copy it again, or look the code up at docs.slack.dev")
        return cls(Outcome.REFUSED, f"Slack refuses it ({error.code}): {reason}.")

    @classmethod
    def unknown(cls, whom: str, url: str, error: OutsideError) -> Self:
        """Return the result for a call that got no answer."""
        cause = describe(error.cause, _CALL_TIMEOUT) or error.reason.rstrip(".")
        return cls(Outcome.UNKNOWN, f"{whom} can't be asked at {url}: {cause}.")


async def check_bot_token(token: str, connection: ConnectionSettings) -> Checked:
    """Ask Slack whose token it is."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            async with translated(_CALL_TIMEOUT):
                answer = await client.auth_test()
        except Refused as error:
            return Checked.refused_by_slack(error)
        except OutsideError as error:
            return Checked.unknown("Slack", connection.slack_api_url, error)
    bot, workspace = printable(str(answer.get("user"))), printable(str(answer.get("team")))
    return Checked(Outcome.ACCEPTED, f"It belongs to @{bot} in the workspace {workspace}.")


async def check_app_token(token: str, connection: ConnectionSettings) -> Checked:
    """Ask Slack for the address of a socket, which nobody opens."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            async with translated(_CALL_TIMEOUT):
                await client.apps_connections_open(app_token=token)
        except Refused as error:
            return Checked.refused_by_slack(error)
        except OutsideError as error:
            return Checked.unknown("Slack", connection.slack_api_url, error)
    return Checked(Outcome.ACCEPTED, "Slack accepts it for Socket Mode.")


async def check_service(url: str, key: str, connection: ConnectionSettings) -> Checked:
    """Read something that does not exist from the video service, with this key."""
    async with video_service.connect(connection.proxy_for(url)) as clients:
        service = VideoService(
            url,
            key,
            mask=Mask([key]),
            clients=clients,
            clock=SystemClock(),
            timings=Timings(call_timeout=_CALL_TIMEOUT),
        )
        try:
            await service.check()
        except Refused:
            return Checked(Outcome.REFUSED, "The video service refuses this key: copy it again.")
        except OutsideError as error:
            return Checked.unknown("The video service", url, error)
    return Checked(Outcome.ACCEPTED, "The video service answers and accepts the key.")
