"""The kinds of jobs: one module each, with a ``Kind``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from bot.model import Snapshot


class Unreadable(ValueError):
    """An answer of the service lacks what the interface document promises."""


class Invalid(ValueError):
    """A form has mistakes.

    Attributes:
        errors: a sentence for each field that is wrong, which says what to do.
        links: those that can be used instead of given ones, by their fields.
    """

    def __init__(self, errors: Mapping[str, str], links: Mapping[str, str]) -> None:
        super().__init__("the form has mistakes")
        self.errors = errors
        self.links = links


class Comparison(Enum):
    """How what the service has compares with what a job asked for."""

    SAME = "same"
    """It is what was asked for."""
    DIFFERENT = "different"
    """It is certainly something else."""
    UNKNOWN = "unknown"
    """Nothing there says."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the rest of the bot needs to know about a kind of job.

    A new one is a module here, and a feature and a presenter in ``bot/slack``.
    """

    name: str
    """Its name in the database and in sentences: "video"."""
    path: str
    """The path that it is created at and read below: "/v2/videos"."""
    id_field: str
    """The field with its id in answers and callbacks: "video_id"."""
    id_aliases: tuple[str, ...] = ()
    """Other fields under which a service has been seen to send its id."""
    promised_created: frozenset[str]
    """The fields that the interface promises in the answer to a create call."""
    promised_read: frozenset[str]
    """The fields that the interface promises in the answer to a read."""
    seen_fields: frozenset[str]
    """Other fields that services have been seen to send."""
    schedule: Literal["minutes", "hours"]
    """The poll schedule: by how long such work usually takes."""
    in_progress: frozenset[str]
    """The service's known words for unfinished work, in lower case.

    A word that is neither here nor final also means unfinished, and is logged once.
    """
    kept_params: frozenset[str]
    """The parameters that outlive the retention time: no text by people, no links."""
    kept_of_made: frozenset[str] = frozenset()
    """The parameters and facts that outlive it of what succeeded, to find it again."""
    catalogued: bool = False
    """Whether other jobs can use what it makes: then a picker offers it."""

    body: Callable[[Mapping[str, str]], dict[str, str]] = dict
    """Returns the body of the create call for some parameters, without the callback address: by
    default, parameters have the service's own names."""
    created: Callable[[Any], Snapshot]
    """Returns the snapshot in the answer to a create call, any JSON.

    Raises:
        Unreadable: it has no id.
    """
    read: Callable[[Any, str], Snapshot]
    """Returns the snapshot in the answer, any JSON, to a read of a remote id.

    The id stays as it was given first, whatever case the answer has it in.

    Raises:
        Unreadable: it has no status, or is about something else.
    """
    compare: Callable[[Mapping[str, str], Snapshot], Comparison]
    """Returns whether a create call with some parameters made what a snapshot shows.

    A name proves nothing false: services make up names of their own.
    """
    uses: Callable[[Mapping[str, str]], tuple[str, str] | None] = lambda _: None
    """Returns what a job with some parameters needs, as (name of its kind, remote id), if anything.

    The service begins such a job only once that is finished.
    """
    is_waiting: Callable[[Snapshot], bool] = lambda _: False
    """Returns whether the service has not begun, so that it may wait for what the job uses."""
