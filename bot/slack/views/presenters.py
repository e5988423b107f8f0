"""How jobs look in Slack by their kind: presenters, and the words for states."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from bot.kinds import progress
from bot.kinds.video import BACKGROUNDS, is_replica_id
from bot.links import show_link
from bot.model import Failure, Job, Snapshot, State
from bot.slack.views.blocks import Json, button, link, one_line, spoken

CHECK_NOW: Final = "job_check_again"
ANOTHER: Final = "video_another"
MAKE_VIDEO: Final = "replica_make_video"
"""Its value is the replica's id."""
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


# ── Videos and replicas ───────────────────────────────────────────────────────────────────────────


REPLICA_ID: Final = "Replica ID"
# What the service's sentences usually mean: the first pattern that matches counts.
_ADVICE: Final = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (
            r"consent.* (not|missing|without)|(no|missing|without) .*consent",
            "the consent statement is missing.",
        ),
        (
            r"(not|unable to|fail\w* to) (be )?(reach|access|download|fetch)|not (public|access)",
            "the link needs a sign-in or has expired.",
        ),
        (
            r"(video|footage|file) .*(too (large|big)|larger than|exceeds)",
            "the file is larger than 750 MB.",
        ),
        (r"codec|h\.?264", "the file isn't an H.264 MP4."),
        (
            r"\bfps\b|frame ?rate|frames (per|a) second",
            "the footage has fewer than 25 frames a second.",
        ),
        (
            r"training (video|footage) .*(too short|shorter than)",
            "the footage is shorter than a minute.",
        ),
        (
            r"(two|several|multiple|more than one) (people|persons?|faces)",
            "more than one person is in the picture.",
        ),
        (
            r"face .*(hidden|covered|not visible|obscured|out of)",
            "the face was hidden or turned away.",
        ),
        (r"too dark|unevenly lit|(bad|poor|low) light", "the light was too low or uneven."),
        (r"nois[ey]", "there's background noise."),
    )
)


def _links(job: Job, labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the links of what was made, by the labels of these fields of the service."""
    if job.state is not State.SUCCEEDED or job.snapshot is None:
        return {}  # a hosted_url is there from the start, and even after a failure
    facts = job.snapshot.facts
    found = {label: link(facts.get(field, "")) for label, field in labels.items()}
    return {label: url for label, url in found.items() if url is not None}


class VideoPresenter(Presenter):
    """How video jobs look in Slack."""

    noun: Final = "video"
    slow: Final = False
    running_word: Final = "Rendering"

    def name(self, job: Job) -> str:
        """Return its name, or the first line of its script."""
        return job.params.get("video_name") or one_line(job.params.get("script", ""))

    def replica_id(self, job: Job) -> str | None:
        """Return the replica that speaks."""
        return job.params.get("replica_id")

    def details(self, job: Job) -> Mapping[str, str]:
        """Return its replica's id, how long it speaks, and where its background is."""
        found = {REPLICA_ID: job.params.get("replica_id", "")}
        if script := job.params.get("script"):
            found["Length"] = f"about {spoken(script)}"
        return found | {label: show_link(url) for label, url in self.given_links(job).items()}

    def given_links(self, job: Job) -> Mapping[str, str]:
        """Return the link to its background."""
        given = [job.params[name] for name in BACKGROUNDS if name in job.params]
        return {"Background": given[0]} if given else {}

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where it can be watched and downloaded."""
        return _links(job, {"Watch": "hosted_url", "Download": "download_url"})

    def clip(self, job: Job) -> Clip | None:
        """Return the video itself."""
        url = self.links(job).get("Download")
        return None if url is None else Clip(url, "Here's the video.")

    def transcript(self, job: Job) -> str:
        """Return the script that was asked for."""
        return script_of(job, job.snapshot)

    def progress(self, job: Job) -> tuple[int, int] | None:
        """Return how far it is, where the service says so."""
        return progress(job.snapshot.facts.get("generation_progress", "")) if job.snapshot else None

    def ready(self, job: Job) -> str:
        """Return what to do if the service gave no link."""
        return "" if self.links(job) else ", but without a link"

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return a button that asks for its links, if there are none."""
        return (
            ()
            if self.links(job)
            else (button("Check now", CHECK_NOW, value=job.id, style="primary"),)
        )

    def more_steps(self, job: Job) -> Sequence[Json]:
        """Return a button that opens the form with the same input."""
        return () if job.erased else (button("Another like this", ANOTHER, value=job.id),)


class ReplicaPresenter(Presenter):
    """How replica jobs look in Slack."""

    noun: Final = "replica"
    slow: Final = True
    running_word: Final = "Training"

    def name(self, job: Job) -> str:
        """Return its name."""
        return job.params.get("replica_name", "")

    def details(self, job: Job) -> Mapping[str, str]:
        """Return where its footage is."""
        return {label: show_link(url) for label, url in self.given_links(job).items()}

    def given_links(self, job: Job) -> Mapping[str, str]:
        """Return the links to its footage."""
        labels = {"train_video_url": "Footage", "consent_video_url": "Consent video"}
        return {label: job.params[field] for field, label in labels.items() if field in job.params}

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where its thumbnail can be watched."""
        return _links(job, {"Preview replica": "thumbnail_video_url"})

    def clip(self, job: Job) -> Clip | None:
        """Return its thumbnail, which is a short video."""
        url = self.links(job).get("Preview replica")
        return None if url is None else Clip(url, "Here's a preview of the replica.")

    def progress(self, job: Job) -> tuple[int, int] | None:
        """Return how far it is, where the service says so."""
        return progress(job.snapshot.facts.get("training_progress", "")) if job.snapshot else None

    def ready(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        """Return what it is ready for."""
        return " to use"

    def advice(self, job: Job) -> str:
        """Return what the service's sentence about a failed training usually means."""
        if job.failure is not Failure.SERVICE_FAILED:
            return ""  # the reason is not about the footage
        said = job.reason.casefold()
        meaning = next((meaning for pattern, meaning in _ADVICE if pattern.search(said)), "")
        return f"Most likely, {meaning}" if meaning else ""

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return the button that opens the form for a video with it."""
        if job.remote_id is None or not is_replica_id(job.remote_id):
            return ()
        label = "Use in a video"
        return [button(label, MAKE_VIDEO, value=job.remote_id, style="primary")]
