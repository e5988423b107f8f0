"""The kinds of jobs: one module each, all of the shape of ``Kind``."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, Protocol

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


class Kind(Protocol):
    """What the rest of the bot needs to know about a kind of job.

    A new one is a module here, and a feature and a presenter in ``bot/slack``.
    """

    @property
    def name(self) -> str:
        """Its name in the database and in sentences: "video"."""

    @property
    def path(self) -> str:
        """The path that it is created at and read below: "/v2/videos"."""

    @property
    def id_field(self) -> str:
        """The field with its id in answers and callbacks: "video_id"."""

    @property
    def id_aliases(self) -> tuple[str, ...]:
        """Other fields under which a service has been seen to send its id."""

    @property
    def promised_created(self) -> frozenset[str]:
        """The fields that the interface promises in the answer to a create call."""

    @property
    def promised_read(self) -> frozenset[str]:
        """The fields that the interface promises in the answer to a read."""

    @property
    def seen_fields(self) -> frozenset[str]:
        """Other fields that services have been seen to send."""

    @property
    def schedule(self) -> Literal["minutes", "hours"]:
        """The poll schedule: by how long such work usually takes."""

    @property
    def in_progress(self) -> frozenset[str]:
        """The service's known words for unfinished work, in lower case.

        A word that is neither here nor final also means unfinished, and is logged once.
        """

    @property
    def kept_params(self) -> frozenset[str]:
        """The parameters that outlive the retention time: no text by people, no links."""

    @property
    def kept_of_made(self) -> frozenset[str]:
        """The parameters and facts that outlive it of what succeeded, to find it again."""

    @property
    def catalogued(self) -> bool:
        """Whether other jobs can use what it makes: then a picker offers it."""

    def body(self, params: Mapping[str, str]) -> dict[str, str]:
        """Return the body of the create call, without the callback address."""

    def created(self, answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return the snapshot in the answer to a create call.

        Raises:
            Unreadable: it has no id.
        """

    def read(self, answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return the snapshot in the answer to a read of ``remote_id``.

        The id stays as it was given first, whatever case the answer has it in.

        Raises:
            Unreadable: it has no status, or is about something else.
        """

    def compare(self, params: Mapping[str, str], snapshot: Snapshot) -> Comparison:
        """Return whether a create call with ``params`` made ``snapshot``.

        A name proves nothing false: services make up names of their own.
        """

    def uses(self, params: Mapping[str, str]) -> tuple[str, str] | None:
        """Return what a job with ``params`` needs, as (name of its kind, remote id), if anything.

        The service begins such a job only once that is finished.
        """

    def is_waiting(self, snapshot: Snapshot) -> bool:
        """Return whether the service has not begun, so that it may wait for what the job uses."""
