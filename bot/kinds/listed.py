"""What the service lists, read tolerantly: no interface document says what a list looks like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bot.kinds import Kind, Unreadable
from bot.kinds.wire import id_of, moment, text_of
from bot.model import Snapshot

# Seen: {"data": […], "total_count": 123}
# (https://docs.tavus.io/api-reference/video-request/get-videos).
_LISTS: Final = ("data", "items", "results")
_TOTALS: Final = ("total_count", "total", "count")


@dataclass(frozen=True, slots=True)
class Listed:
    """One item of a list."""

    snapshot: Snapshot
    created_at: datetime | None
    """None if the list does not say, or in a form that cannot be read."""
    callback_url: str
    """Where its callbacks go, if the list shows that, with a hash in place of our token."""
    fields: Mapping[str, Any]
    """All of it, as the service wrote it."""

    @property
    def id(self) -> str:
        """The service's id."""
        return self.snapshot.remote_id


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list."""

    items: Sequence[Listed]
    unreadable: int
    """How many further items could not be read."""
    total: int | None
    """How many items all pages have, if the service says that."""


def page_of(kind: Kind, answer: Any) -> Page:  # noqa: ANN401 - any JSON
    """Return the page in an answer.

    Raises:
        Unreadable: there is no list in it.
    """
    total = None
    if isinstance(answer, Mapping):
        totals = (answer.get(name) for name in _TOTALS)
        total = next((each for each in totals if type(each) is int), None)
    found = [_item(kind, each) for each in _list_in(kind, answer)]
    items = [each for each in found if each is not None]
    return Page(items, len(found) - len(items), total)


def _list_in(kind: Kind, answer: Any) -> Sequence[Any]:  # noqa: ANN401 - any JSON
    if isinstance(answer, list):
        return answer
    if isinstance(answer, Mapping):
        inner = answer.get("data")
        for each in (answer, inner) if isinstance(inner, Mapping) else (answer,):
            for name in (*_LISTS, kind.path.rpartition("/")[2]):
                if isinstance(value := each.get(name), list):
                    return value
    raise Unreadable("the answer has no list")


def _item(kind: Kind, item: Any) -> Listed | None:  # noqa: ANN401 - any JSON
    """Return an item; None if it cannot be read."""
    if not isinstance(item, Mapping):
        return None
    ids = (id_of(item.get(name)) for name in (kind.id_field, *kind.id_aliases))
    remote_id = next(filter(None, ids), "")
    if not remote_id:
        return None
    try:
        snapshot = kind.read(item, remote_id)
    except Unreadable:
        return None
    created_at = moment(text_of(item.get("created_at")))
    return Listed(snapshot, created_at, text_of(item.get("callback_url")), item)
