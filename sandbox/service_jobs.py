"""The video service's jobs: videos and replicas, whose state follows from the time alone."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sandbox.scenarios import CallbackPlan, Ending, Pace, Scenario

Source = Literal["callback", "poll"]

_TITLE_LENGTH: Final = 80
_REPLICA_FAILED: Final = "The replica of this video could not be trained"
#: The end of a replica that has one of these statuses from the start; with any other it is stuck.
ENDS: Final[Mapping[str, Ending]] = {
    "completed": "success",
    "ready": "success",
    "error": "error",
    "deleted": "deleted",
}


@dataclass(kw_only=True)
class Job(ABC):
    """A video or a replica.

    Attributes:
        name: its name.
        created_at: when it was created.
        pace: how long it takes.
        scenario: how it goes.
        callback_plan: how its callback is sent.
        callback_url: where the callback goes; None if none was asked for.
        ended_by_hand_at: when a tester ended it; None if none did.
        deleted: whether it was deleted.
        call_back_at: when the callback is due; None if none is.
        learned_by: how the bot learned of its end; None while it has not, and where it had ended
            before the bot knew it.
    """

    name: str
    created_at: datetime
    pace: Pace
    scenario: Scenario
    callback_plan: CallbackPlan
    callback_url: str | None = None
    ended_by_hand_at: datetime | None = None
    deleted: bool = False
    call_back_at: datetime | None = None
    learned_by: Source | None = None

    @property
    def title(self) -> str:
        """Return what people call it."""
        return self.name

    @property
    def end(self) -> Ending:
        """Return how it ends."""
        return self.scenario.end

    @property
    def reason(self) -> str | None:
        """Return why it fails."""
        return self.scenario.reason

    @property
    @abstractmethod
    def ends_at(self) -> datetime | None:
        """Return when it ends or ended; None for never."""

    @abstractmethod
    def status(self, now: datetime) -> str:
        """Return the status that a read gives at ``now``."""

    def ended(self, now: datetime) -> Ending | None:
        """Return how it has ended by ``now``; None while it goes on."""
        if self.deleted:
            return "deleted"
        return self.end if self.ends_at is not None and self.ends_at <= now else None

    def next_change(self, now: datetime) -> datetime | None:
        """Return when its status changes next; None if it does not."""
        coming = [at for at in self._changes() if at is not None and at > now]
        return min(coming, default=None) if self.ended(now) is None else None

    def share(self, now: datetime) -> float:
        """Return how much of its duration has passed, from 0 to 1."""
        if self.ended(now) is not None:
            return 1.0
        return _share(now - self.created_at, self.ends_at - self.created_at) if self.ends_at else 0

    def _changes(self) -> Sequence[datetime | None]:
        return (self.ends_at,)


@dataclass(kw_only=True)
class Replica(Job):
    """A replica, in training or trained."""

    replica_id: str

    @property
    def ends_at(self) -> datetime | None:
        """Return when its training ends or ended; None for never."""
        if self.ended_by_hand_at is not None:
            return self.ended_by_hand_at
        return None if self.end == "never" else self.created_at + self.pace.training

    def status(self, now: datetime) -> str:
        """Return the status that a read gives at ``now``."""
        if self.deleted:
            return "deleted"
        ended = self.ended(now)
        if ended is None:
            return _at(self.scenario.statuses or ("started", "training"), self._trained(now))
        return self.scenario.final_status or ("completed" if ended == "success" else ended)

    def progress(self, now: datetime) -> str:
        """Return its progress as ``<done>/<total>`` steps; all are done only after success."""
        total = self.pace.training_steps
        done = total
        if self.ended(now) != "success":
            done = min(int(self._trained(now) * total), total - 1)
        return f"{done}/{total}"

    def _trained(self, now: datetime) -> float:
        moment = now if self.ends_at is None else min(now, self.ends_at)
        return _share(moment - self.created_at, self.pace.training)


@dataclass(kw_only=True)
class Video(Job):
    """A video. It stays in the queue until its replica is trained, and fails with it.

    ``named``: whether it was given its name, or has one with its id.
    """

    video_id: str
    script: str
    replica_id: str
    replica: Replica
    named: bool = True

    @property
    def title(self) -> str:
        """Return its name if it was given one, else the beginning of its script."""
        if self.named:
            return self.name
        return _beginning(self.script) or self.name

    @property
    def begins_at(self) -> datetime | None:
        """Return when it leaves the queue; None for never, since its replica is stuck."""
        replica_at = self.replica.ends_at
        return None if replica_at is None else max(self.created_at, replica_at) + self.pace.queued

    @property
    def end(self) -> Ending:
        """Return how it ends."""
        return "error" if self._fails_with_replica else self.scenario.end

    @property
    def reason(self) -> str | None:
        """Return why it fails."""
        return _REPLICA_FAILED if self._fails_with_replica else self.scenario.reason

    @property
    def ends_at(self) -> datetime | None:
        """Return when its generation ends or ended; None for never."""
        if self.ended_by_hand_at is not None:
            return self.ended_by_hand_at
        begins_at = self.begins_at
        if self.end == "never" or begins_at is None:
            return None
        return begins_at if self._fails_with_replica else begins_at + self.pace.generating

    def status(self, now: datetime) -> str:
        """Return the status that a read gives at ``now``."""
        if self.deleted:
            return "deleted"
        ended, begins_at = self.ended(now), self.begins_at
        if ended is not None:
            return self.scenario.final_status or ("ready" if ended == "success" else ended)
        if begins_at is None or now < begins_at:
            return "queued"
        generated = _share(now - begins_at, self.pace.generating)
        return _at(self.scenario.statuses or ("generating",), generated)

    def updated_at(self, now: datetime) -> datetime:
        """Return when it last changed, as of ``now``."""
        for change in (self.ends_at, self.begins_at):
            if change is not None and change <= now:
                return change
        return self.created_at

    def _changes(self) -> Sequence[datetime | None]:
        return (self.begins_at, self.ends_at)

    @property
    def _fails_with_replica(self) -> bool:
        return self.ended_by_hand_at is None and self.replica.end in {"error", "deleted"}


def _beginning(text: str) -> str:
    """Return the beginning of a text, cut between words where there are any."""
    text = " ".join(text.split())
    if len(text) <= _TITLE_LENGTH:
        return text
    whole_words, _, _ = text[:_TITLE_LENGTH].rpartition(" ")
    return f"{whole_words or text[: _TITLE_LENGTH - 1]}…"


def _share(passed: timedelta, whole: timedelta) -> float:
    # Negative after the clock was set back.
    return min(max(0.0, passed / whole), 1.0) if whole else 1.0


def _at(statuses: Sequence[str], share: float) -> str:
    """Return the status at this share of the duration, from 0 to 1."""
    return statuses[min(int(share * len(statuses)), len(statuses) - 1)]
