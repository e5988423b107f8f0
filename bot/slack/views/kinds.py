"""How videos and replicas look in Slack."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bot.kinds.answers import progress
from bot.kinds.video import BACKGROUNDS, is_replica_id
from bot.links import show_link
from bot.model import Failure, Job, State
from bot.slack.views.blocks import Json, button, link, one_line, spoken
from bot.slack.views.buttons import ANOTHER, CHECK_NOW, MAKE_VIDEO
from bot.slack.views.presenters import Clip, Presenter, script_of

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
