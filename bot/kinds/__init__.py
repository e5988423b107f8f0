"""The sorts of work that the service does: one module each, all of the shape of ``Kind``."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from bot.model import Snapshot


class Unreadable(ValueError):
    """An answer of the service does not say what the interface document promises."""


class Invalid(ValueError):
    """A form has mistakes: a sentence for each field that says what would be right."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("the form has mistakes")
        self.errors = errors


class Kind(Protocol):
    """What the engine needs to know of a sort of work."""

    @property
    def name(self) -> str:
        """What it is called in the database and in words: "video"."""

    @property
    def path(self) -> str:
        """Where it is created, and below which it is read: "/v2/videos"."""

    @property
    def id_field(self) -> str:
        """The field that holds its id, in answers and in callbacks: "video_id"."""

    @property
    def takes(self) -> Literal["minutes", "hours"]:
        """How long it usually takes."""

    @property
    def going(self) -> frozenset[str]:
        """Words of the service for work that goes on: any other unknown word is logged once."""

    @property
    def kept(self) -> frozenset[str]:
        """The parameters that are not erased after the retention time: no words, no links."""

    def body(self, params: Mapping[str, str]) -> dict[str, str]:
        """Return the body of the create call, without the callback address."""

    def created(self, answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return what the answer to a create call says.

        Raises:
            Unreadable: it does not name an id.
        """

    def read(self, answer: Any, remote_id: str) -> Snapshot:  # noqa: ANN401 - any JSON
        """Return what the answer to a read of ``remote_id`` says.

        Raises:
            Unreadable: it says nothing that can be used.
        """

    def matches(self, params: Mapping[str, str], snapshot: Snapshot) -> bool:
        """Return whether ``snapshot`` can be what a create call with ``params`` made."""

    def tells(self, snapshot: Snapshot) -> bool:
        """Return whether ``snapshot`` says anything by which ``matches`` could tell."""

    def replica(self, params: Mapping[str, str]) -> str | None:
        """Return the id of the replica that a create call with ``params`` uses, if any."""
