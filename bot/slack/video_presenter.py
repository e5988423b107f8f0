"""How video jobs look in Slack."""

from collections.abc import Mapping, Sequence
from typing import Final

from bot.kinds.video import BACKGROUNDS
from bot.links import show_link
from bot.model import Job, State
from bot.slack.blocks import Json, link, one_line, spoken


class VideoPresenter:
    """How video jobs look in Slack."""

    noun: Final = "video"
    slow: Final = False
    running_word: Final = "Rendering"

    def name(self, job: Job) -> str:
        """Return its name, or the first line of its script."""
        return job.params.get("video_name") or one_line(job.params.get("script", ""))

    def facts(self, job: Job) -> Sequence[str]:
        """Return its replica, how long it speaks, and its background."""
        facts = [f"replica {job.params.get('replica_id', '?')}"]
        if script := job.params.get("script"):
            facts.append(f"about {spoken(script)} spoken")
        facts += [
            f"background {show_link(job.params[name])}"
            for name in BACKGROUNDS
            if name in job.params
        ]
        return facts

    def links(self, job: Job) -> Mapping[str, str]:
        """Return where it can be watched and downloaded."""
        if job.state is not State.SUCCEEDED or job.snapshot is None:
            return {}  # a hosted_url is there from the start, and even after a failure
        facts = job.snapshot.facts
        labels = {"Watch": "hosted_url", "Download": "download_url"}
        found = {label: link(facts.get(field, "")) for label, field in labels.items()}
        return {label: url for label, url in found.items() if url is not None}

    def transcript(self, job: Job) -> str:
        """Return the script that the service used, or the one that it was given."""
        facts = job.snapshot.facts if job.snapshot is not None else {}
        return facts.get("script") or job.params.get("script", "")

    def running(self, job: Job) -> str:  # noqa: ARG002 - the same for all
        """Return nothing: the service gives no progress of videos."""
        return ""

    def ready(self, job: Job) -> str:
        """Return what to do if the service gave no link."""
        if self.links(job):
            return ""
        return "The video service gave no link that I can show."

    def advice(self, job: Job) -> str:  # noqa: ARG002 - the service's words say it
        """Return nothing: no sentence of the service about videos needs an explanation."""
        return ""

    def next_steps(self, job: Job) -> Sequence[Json]:  # noqa: ARG002 - the same for all
        """Return nothing: the links say it all."""
        return ()
