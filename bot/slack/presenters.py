"""What cards and lists need to know about a kind of job: the shape of its presenter."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from bot.model import Failure, Job, State
from bot.slack.blocks import Json

CANCELLED: Final = frozenset({Failure.CANCELLED, Failure.UNANSWERED})
"""The failures that say that the request was ended, not that the service failed."""


class Presenter(Protocol):
    """How jobs of one kind look in Slack."""

    @property
    def noun(self) -> str:
        """What it makes: "video"."""

    def name(self, job: Job) -> str:
        """Return its name in the words of the user; "" if they gave none."""

    def facts(self, job: Job) -> Sequence[str]:
        """Return short facts for the small print, with people's words not yet escaped."""

    def links(self, job: Job) -> Mapping[str, str]:
        """Return the links of what was made, by the label of their button, the best first."""

    def transcript(self, job: Job) -> str:
        """Return what is spoken, if that is known."""

    @property
    def slow(self) -> bool:
        """Whether it takes hours: then its card says how long it has been going on."""

    @property
    def running_word(self) -> str:
        """The state of a running job in a word: "Rendering"."""

    def running(self, job: Job) -> str:
        """Return how far a running job is, as a sentence; "" if that is not known."""

    def ready(self, job: Job) -> str:
        """Return what to say of a job that succeeded, beside its links; "" if they say it all."""

    def advice(self, job: Job) -> str:
        """Return what the service's reason for a failure usually means; "" if nothing is known."""

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return the buttons for what can be done with what was made."""


Presenters = Mapping[str, Presenter]
"""By the name of the kind."""


def state_word(job: Job, presenter: Presenter) -> str:
    """Return the state of a job in a few words, for its card, the list and the status alike."""
    match job.state:
        case State.QUEUED | State.CREATING:
            return "Waiting" if job.unreachable or job.held_by else "Starting"
        case State.UNCONFIRMED:
            return "Your answer is needed" if job.asked else "Checking"
        case State.RUNNING if job.waits_for is not None:
            return "Waiting for its replica"
        case State.RUNNING:
            return presenter.running_word
        case State.OVERDUE:
            return "Overdue"
        case State.SUCCEEDED:
            return "Ready"
        case State.FAILED:
            if job.failure in CANCELLED:
                return "Cancelled"
            return "Deleted" if job.deleted else "Failed"
