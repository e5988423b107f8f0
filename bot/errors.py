"""The only three ways in which a call to the outside can fail, and what ends a command.

OutsideError
├── Refused       it was understood and refused: the same request gets the same answer
├── Unavailable   nothing was done: the same request may be sent again later
└── Uncertain     it may have been done: it must not be sent again before that is known

Each library's own errors are turned into these where the library is called.
"""

from datetime import timedelta


class OutsideError(Exception):
    """A call to the video service or to Slack failed.

    ``reason`` is the other side's own words, cut to a length that fits a message, or a sentence of
    ours if it said nothing. It has not been escaped for Slack, and it never holds a secret.
    ``cause`` is a word of ``bot.service.errors`` for the log, empty where the other side refused.
    ``retry_after`` is how long the other side asked us to wait, if it did.
    """

    def __init__(
        self, reason: str, *, cause: str = "", retry_after: timedelta | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause
        self.retry_after = retry_after


class Refused(OutsideError):
    """Understood and refused.

    ``code`` is what the other side calls it: an HTTP status ("402") or Slack's error code.
    """

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.code = code


class Unavailable(OutsideError):
    """Nothing was done, so the same request may be sent again later."""


class Uncertain(OutsideError):
    """It may have been done: the answer was lost, unreadable or a server's error."""


class OperatorError(Exception):
    """Ends a command; ``str()`` says what is wrong, and what to do, to the operator."""
