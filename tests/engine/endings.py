"""What people read at the end of a job."""

import json
from collections.abc import Mapping
from typing import Any, Final

_FAILED: Final = ("Failed", "couldn't be created")  # on the card and in the reply
_ENDINGS: Final = {
    "succeeded": ("Ready", "is ready"),
    **dict.fromkeys(("cancelled", "withdrawn"), ("Cancelled", "was cancelled")),
    "unanswered": ("Closed", "was closed"),
    "stopped": ("Stopped", "stopped"),
    "stopped_by_admin": ("Stopped", "ended your"),
    "declined": ("Declined", "was declined"),
    "not_approved": ("Not approved in time", "wasn't approved in time"),
    **dict.fromkeys(("timed_out", "not_found"), ("Failed", "didn't finish")),
}
_DELETED: Final = ("Deleted", "was deleted")


def ending_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the card and the reply of an ended job say."""
    snapshot = json.loads(row["snapshot"] or "{}")
    if row["failure"] == "service_failed" and snapshot.get("status") == "deleted":
        return _DELETED
    return _ENDINGS.get(row["failure"] or row["state"], _FAILED)
