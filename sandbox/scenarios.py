"""How the video service's jobs go: their end, their pace and their callbacks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal

Ending = Literal["success", "error", "deleted", "never"]

#: As a member's value in ``Scenario.overrides``: the member is left out.
MISSING: Final = object()
#: As ``CallbackPlan.body``: what such services have been seen to send.
AS_SEEN: Final = object()


class Echo(StrEnum):
    """How a read of a video shows the script that was sent."""

    EXACT = "exact"
    NO_DATA = "no data"
    """``data`` is null."""
    NORMALISED = "normalised"
    """With curly quotes, in lower case, and with single spaces."""
    ESCAPED = "escaped"
    """As HTML writes it."""
    CUT = "cut"
    """Its beginning and an ellipsis."""


class TrainingFailure(StrEnum):
    """Why a training fails: sentences for ``Scenario.reason``."""

    NOT_REACHABLE = "The training video could not be downloaded: check that its link is public"
    TOO_LARGE = "The training video is larger than 750 MB"
    WRONG_CODEC = "The training video has to be an mp4 file with the H.264 codec"
    TOO_SHORT = "The training video is shorter than 1 minute"
    LOW_FRAME_RATE = "The training video has fewer than 25 frames per second"
    NO_CONSENT = "The consent statement was not found"
    FACE_HIDDEN = "The face is hidden in part of the training video"
    TWO_PEOPLE = "There is more than one person in the training video"
    BAD_LIGHT = "The training video is too dark or unevenly lit"
    NOISE = "There is too much noise in the sound of the training video"


@dataclass(frozen=True)
class Pace:
    """How long jobs take, and in how many steps a training reports its progress."""

    queued: timedelta = timedelta(seconds=10)
    generating: timedelta = timedelta(minutes=2)
    training: timedelta = timedelta(hours=3, minutes=30)
    training_steps: int = 100


@dataclass(frozen=True)
class CallbackPlan:
    """How many times, when and how a job's callback is sent.

    Attributes:
        times: how many times; 0 for never.
        after: the delay from the end of the job.
        early: send it before the create request is answered, as if the job had ended.
        method: the HTTP method.
        body: text is sent unchanged, any other value in the form of ``shape``.
        shape: one of ``callback_shapes.SHAPES``.
    """

    times: int = 1
    after: timedelta = timedelta(0)
    early: bool = False
    method: Literal["GET", "POST", "PUT"] = "POST"
    body: object = AS_SEEN
    shape: str = "json"


@dataclass(frozen=True)
class Scenario:
    """How a job will go.

    Attributes:
        end: how it ends; ``never`` for a job that is stuck.
        reason: why it fails: a video's ``status_details``, a replica's ``error_message``.
        final_status: the status after the end, instead of the usual one.
        statuses: the statuses on the way, in order, instead of the usual ones; a job that is stuck
            keeps the last one.
        overrides: members of answers about the job that replace the usual ones, or are left out
            where ``MISSING``.
        echo: how reads show the script.
        id_case: whether reads and callbacks write the id in capitals; then it is known in any case.
        pace: overrides the service's.
        callback_plan: likewise.
    """

    end: Ending = "success"
    reason: str | None = None
    final_status: str | None = None
    statuses: Sequence[str] = ()
    overrides: Mapping[str, object] = field(default_factory=dict)
    echo: Echo = Echo.EXACT
    id_case: Literal["same", "upper"] = "same"
    pace: Pace | None = None
    callback_plan: CallbackPlan | None = None
