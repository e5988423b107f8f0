"""The three ways in which a call to the outside can fail, and there is no fourth.

OutsideError
├── Refused       it was understood and turned down: the same again gets the same answer
├── Unavailable   nothing was done: the same may be sent again, later
└── Uncertain     it may have been done: nobody may send it again without looking

Each library's own errors are turned into these where the library is called.
"""

from datetime import timedelta


class OutsideError(Exception):
    """A call to the video service or to Slack did not end well.

    ``reason`` is the other side's own words, cut to a length that fits a message, or a sentence of
    ours where it said nothing. It has not been escaped for Slack, and it never holds a secret.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(OutsideError):
    """Understood and turned down.

    ``code`` is what the other side calls it: an HTTP status ("402") or Slack's error code.
    """

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.code = code


class Unavailable(OutsideError):
    """Nothing was done; ``retry_after`` is how long the other side asked us to wait, if it did."""

    def __init__(self, reason: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Uncertain(OutsideError):
    """It may have been done: the answer was lost, unreadable or a server's error."""
