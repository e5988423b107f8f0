"""What the calls to Slack show: how they end, and whether Slack accepts our token."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from bot.errors import OutsideError, Refused
from bot.metrics import Metrics
from bot.outages import Outages
from bot.slack.errors import outside_error

_LOG: Final = logging.getLogger(__name__)
TOKEN_REFUSED: Final = frozenset(
    {
        *("account_inactive", "invalid_auth", "not_allowed_token_type", "not_authed"),
        *("token_expired", "token_revoked"),
    }
)
"""Slack's codes for a token that it does not accept, whatever the call:
https://docs.slack.dev/reference/methods/auth.test#errors."""
# It is called with the app-level token.
_OTHER_TOKEN: Final = frozenset({"apps.connections.open"})


class SlackCalls:
    """Observes each call to Slack.

    Args:
        outages: learns when Slack answered.
        metrics: counts the calls.
    """

    def __init__(self, outages: Outages, metrics: Metrics) -> None:
        self.outages = outages
        self._metrics = metrics
        self.in_doubt = asyncio.Event()
        """Set while it is not known that Slack accepts our token."""
        self.in_doubt.set()
        self.refusal = ""
        """The code with which Slack refuses our token; "" if it accepts it, or was not asked."""

    @contextlib.contextmanager
    def observed(self, method: str) -> Iterator[None]:
        """Observe a call of ``method``, and raise what it raises."""
        with self._metrics.call("slack", method) as call:
            try:
                yield
            except Exception as error:
                failure = outside_error(error)
                call.failed(failure or error)
                self._note(method, failure)
                raise
            self._note(method, None)

    def _note(self, method: str, failure: OutsideError | None) -> None:
        if failure is not None and not isinstance(failure, Refused):
            return
        self.outages.note_answer()
        if method in _OTHER_TOKEN:
            return
        refusal = failure.code if failure is not None and failure.code in TOKEN_REFUSED else ""
        before, self.refusal = self.refusal, refusal
        if refusal and not before:
            _LOG.error(
                "Slack refuses SLACK_BOT_TOKEN: install the app again, copy its Bot User OAuth "
                "Token, and restart the bot with it",
                extra={"code": refusal},
            )
            self.in_doubt.set()
        elif before and not refusal:
            _LOG.info("Slack accepts SLACK_BOT_TOKEN again")
