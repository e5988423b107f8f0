"""How video jobs look in Slack."""

from collections.abc import Mapping, Sequence
from typing import Final

from bot.kinds.video import BACKGROUNDS
from bot.kinds.wire import progress
from bot.links import show_link
from bot.model import Job, State
from bot.slack.blocks import Json, button, link, one_line, spoken
from bot.slack.buttons import ANOTHER, CHECK_NOW, SHARE, SHARE_LABEL
from bot.slack.presenters import Clip, script_of


class VideoPresenter:
    """How video jobs look in Slack."""

    noun: Final = "video"
    counted: Final = "video"
    likeness: Final = "the same script"
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
        found = {"Replica ID": job.params.get("replica_id", "")}
        if script := job.params.get("script"):
            found["Spoken time"] = f"about {spoken(script)}"
        for name in BACKGROUNDS:
            if name in job.params:
                found["Background"] = show_link(job.params[name])
        return found

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where it can be watched and downloaded."""
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}  # a hosted_url is there from the start, and even after a failure
        facts = job.snapshot.facts
        labels = {"Watch": "hosted_url", "Download": "download_url"}
        found = {label: link(facts.get(field, "")) for label, field in labels.items()}
        return {label: url for label, url in found.items() if url is not None}

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
        return "" if self.links(job) else ", but the video service gave no link that I can show"

    def advice(self, job: Job) -> str:  # noqa: ARG002 - the service's words say it
        """Return nothing: no sentence of the service about videos needs an explanation."""
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:
        """Return a button that asks for its links, if there are none."""
        return () if self.links(job) else (button("Check now", CHECK_NOW, value=job.id),)

    def more_steps(self, job: Job) -> Sequence[Json]:
        """Return the buttons that share it, and that open the form with the same input."""
        if job.erased:
            return ()
        share = [button(SHARE_LABEL, SHARE, value=job.id)] if self.links(job) else []
        return (*share, button("Another like this", ANOTHER, value=job.id))
