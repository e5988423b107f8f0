"""What cards and lists need to know about a kind of job: the shape of its presenter."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from bot.model import Failure, Job, Snapshot, State
from bot.slack.views.blocks import Json

MAY_BE_CHARGED: Final = "You may still be charged."
CANCELLED: Final = frozenset({Failure.CANCELLED, Failure.UNANSWERED})
"""The failures that say that the request was ended, not that the service failed."""
STOPPED: Final = {
    Failure.STOPPED: "waiting",
    Failure.STOPPED_BY_ADMIN: "by an admin",
    Failure.STOPPED_BY_OWNER: "because the replica was removed",
}
"""The failures that say that nobody follows it any more, and how "stopped" goes on."""
NOT_APPROVED: Final = {
    Failure.DECLINED: "Declined",
    Failure.NOT_APPROVED: "Not approved in time",
    Failure.WITHDRAWN: "Cancelled",
}
"""The failures of a request that was not approved, in a word: nothing was created."""
_ENDED_BY_PEOPLE: Final = {
    Failure.CANCELLED: "Cancelled",
    Failure.UNANSWERED: "Closed",
    **dict.fromkeys(STOPPED, "Stopped"),
    **NOT_APPROVED,
}


class Clip(NamedTuple):
    """An MP4 of what was made, at ``url``, and what is said with it."""

    url: str
    comment: str


class Presenter(Protocol):
    """How jobs of one kind look in Slack."""

    @property
    def noun(self) -> str:
        """What it makes: "video"."""

    def name(self, job: Job) -> str:
        """Return its name in the words of the user; "" if they gave none."""

    def replica_id(self, job: Job) -> str | None:  # noqa: ARG002 - most use none
        """Return the id of the replica that it uses, whose name is shown; None if it uses none."""
        return None

    def details(self, job: Job) -> Mapping[str, str]:
        """Return facts for its details by their labels, with people's words not yet escaped.

        Of the links among them, they have the hosts.
        """

    def given_links(self, job: Job) -> Mapping[str, str]:
        """Return the links that were given with the request, by their labels in its details."""

    def links(self, job: Job) -> Mapping[str, str]:
        """Return the links of what was made, by the label of their button, the best first."""

    def clip(self, job: Job) -> Clip | None:
        """Return what of it can be played in Slack; None if nothing can."""

    def transcript(self, job: Job) -> str:  # noqa: ARG002 - most speak nothing
        """Return what is spoken, if that is known."""
        return ""

    @property
    def slow(self) -> bool:
        """Whether it takes hours: then its card says how long it has been going on."""

    @property
    def running_word(self) -> str:
        """The state of a running job in a word: "Rendering"."""

    def progress(self, job: Job) -> tuple[int, int] | None:
        """Return how far a running job is, as (done, total); None if that is not known."""

    def ready(self, job: Job) -> str:
        """Return how "it is ready" goes on, with what to do beside opening its links; "" if not."""

    def advice(self, job: Job) -> str:  # noqa: ARG002 - most reasons explain themselves
        """Return what the service's reason for a failure usually means; "" if nothing is known."""
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return the buttons for what to do with what was made, on card and reply."""

    def more_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - most have none
        """Return further buttons of what was made, for its card alone."""
        return ()


Presenters = Mapping[str, Presenter]
"""By the name of the kind."""


def state_word(job: Job, presenter: Presenter) -> str:
    """Return the state of a job in a few words, for its card, the list and the status alike."""
    match job.state:
        case State.WAITING_FOR_APPROVAL:
            return "Waiting for approval"
        case State.QUEUED | State.CREATING:
            return "Waiting" if job.unreachable or job.held_by else "Starting"
        case State.UNCONFIRMED:
            return "Needs an answer" if job.asked else "Checking"
        case State.RUNNING if job.waits_for is not None:
            return "Waiting for its replica"
        case State.RUNNING:
            return presenter.running_word
        case State.OVERDUE:
            return "Overdue"
        case State.SUCCEEDED:
            return "Ready"
        case State.FAILED:
            if job.failure in _ENDED_BY_PEOPLE:
                return _ENDED_BY_PEOPLE[job.failure]
            return "Deleted" if job.deleted else "Failed"


def script_of(job: Job, known: Snapshot | None) -> str:
    """Return the script that was asked for; without one, what the service returned as its script.

    That is cut where it is read, may have other spaces, and could be any text of any length.
    """
    return job.params.get("script") or (known.facts.get("script", "") if known is not None else "")
