"""Checks of the secrets, each by a call to Slack or the video service."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, Self

from bot.clock import SystemClock
from bot.doctor.finding import CheckState, shown
from bot.doctor.network import explain
from bot.doctor.service import read_unknown
from bot.errors import OutsideError, Refused
from bot.masking import Mask
from bot.settings import ConnectionSettings
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.timings import Timings

_TIMINGS: Final = Timings(call_timeout=timedelta(seconds=8))  # a person waits for it
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
    DOUBTFUL = auto()
    """It is accepted, and there is something to know."""
    REFUSED = auto()
    UNKNOWN = auto()
    """It could not be made: the other side was not reached, or does not work."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check, with a sentence about it."""

    outcome: Outcome
    message: str

    @classmethod
    def failed(cls, error: OutsideError, url: str) -> Self:
        """Return the result for a call of Slack that failed."""
        if isinstance(error, Refused):
            reason = _REFUSALS.get(
                error.code, "copy it again, or look the code up at docs.slack.dev"
            )
            return cls(Outcome.REFUSED, f"Slack refuses it ({error.code}): {reason}.")
        cause = explain(error, url, _TIMINGS.call_timeout, "SLACK_API_URL")
        return cls(Outcome.UNKNOWN, f"Slack {cause.message}. {cause.remedy}")


async def check_bot_token(token: str, connection: ConnectionSettings) -> Checked:
    """Ask Slack whose token it is."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            async with translated(_TIMINGS.call_timeout):
                answer = await client.auth_test()
        except OutsideError as error:
            return Checked.failed(error, connection.slack_api_url)
    mask = Mask([token])
    bot, workspace = (shown(str(answer.get(name)), mask) for name in ("user", "team"))
    return Checked(Outcome.ACCEPTED, f"It belongs to @{bot} in the workspace {workspace}.")


async def check_app_token(token: str, connection: ConnectionSettings) -> Checked:
    """Ask Slack for the address of a socket, without opening it."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            async with translated(_TIMINGS.call_timeout):
                await client.apps_connections_open(app_token=token)
        except OutsideError as error:
            return Checked.failed(error, connection.slack_api_url)
    return Checked(Outcome.ACCEPTED, "Slack accepts it for Socket Mode.")


async def check_service(url: str, key: str, connection: ConnectionSettings) -> Checked:
    """Read something that does not exist from the video service, with this key."""
    mask = Mask([key])
    found, status = await read_unknown(
        url, key, connection.proxy_for(url), _TIMINGS, SystemClock(), mask=mask
    )
    message = shown(f"The video service {found.message}. {found.remedy}", mask)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return Checked(Outcome.REFUSED, message)
    if found.state is CheckState.WARNING or status == HTTPStatus.PAYMENT_REQUIRED:
        return Checked(Outcome.DOUBTFUL, message)
    return Checked(Outcome.ACCEPTED if found.ok else Outcome.UNKNOWN, message)
