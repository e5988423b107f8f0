"""Cards and closing replies in every state; docs/messages.md has their texts word for word."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from bot.model import Failure, Job, Snapshot, State, Verdict
from bot.slack.views.blocks import Message
from bot.slack.views.card import card, reply
from sandbox.block_kit import objects
from tests.slack.test_cards import (
    JOB,
    NINE,
    PRESENTER,
    READY,
    TRAINED,
    TRAINING,
    buttons,
    in_training,
)

RETRY: Final = "https://sandbox.slack.com/archives/C0STUDIO/p1772442000000100"


def job(state: State, **changes: Any) -> Job:  # noqa: ANN401 - a job's own fields
    return replace(JOB, state=state, **changes)


def rendering(progress: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    facts = {"generation_progress": progress} if progress else {}
    snapshot = Snapshot("v1", "generating", Verdict.GOING, facts=facts)
    usual = timedelta(minutes=2, seconds=10)
    return replace(
        job(State.RUNNING, snapshot=snapshot, started_at=NINE, typical_duration=usual), **changes
    )


def failed(failure: Failure, reason: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    return job(State.FAILED, failure=failure, reason=reason, ended_at=NINE, **changes)


def deleted(reason: str) -> Job:
    gone = Snapshot("v1", "deleted", Verdict.FAILED, reason)
    return failed(Failure.SERVICE_FAILED, reason, snapshot=gone, remote_id="v1")


WELL: Final = job(State.SUCCEEDED, remote_id="v1", snapshot=READY, ended_at=NINE)
TRAINED_JOB: Final = replace(
    TRAINING, state=State.SUCCEEDED, remote_id="r1", snapshot=TRAINED, ended_at=NINE
)
BAD_FOOTAGE: Final = replace(
    TRAINING,
    state=State.FAILED,
    failure=Failure.SERVICE_FAILED,
    reason="The file could not be downloaded.",
)

CARDS: Final[dict[str, Job]] = {
    "new": job(State.QUEUED),
    "out of reach": job(State.QUEUED, failures=3),
    "no credit": job(State.QUEUED, held_by=Failure.OUT_OF_CREDIT, held_until=NINE),
    "unclear": job(State.UNCONFIRMED),
    "running": rendering(),
    "the first of its kind": rendering(typical_duration=None),
    "with progress": rendering("40/100"),
    "not readable now": rendering(failures=3),
    "waiting for its replica": rendering(waits_for="r1", late=True),
    "late": rendering(late=True),
    "slower than 9 of 10": rendering(slow=True, slow_after=timedelta(minutes=4)),
    "overdue": rendering(state=State.OVERDUE),
    "ready": WELL,
    "ready without a link": replace(WELL, snapshot=Snapshot("v1", "ready", Verdict.SUCCEEDED)),
    "ready twice": replace(WELL, orphaned_ids=("v0",)),
    "failed": failed(Failure.SERVICE_FAILED, "The replica is <shy>."),
    "failed without a reason": failed(Failure.SERVICE_FAILED, " \n"),
    "refused": failed(Failure.REFUSED, "Script too long"),
    "refused without a reason": failed(
        Failure.REFUSED, "The video service answered 400 without saying why."
    ),
    "key rejected": failed(Failure.KEY_REJECTED),
    "never sent": failed(Failure.UNREACHABLE, "The video service can't be reached."),
    "gone": failed(Failure.NOT_FOUND, "Invalid video_id"),
    "never finished": failed(Failure.TIMED_OUT, remote_id="v1"),
    "cancelled": failed(Failure.CANCELLED),
    "not answered": failed(Failure.UNANSWERED),
    "stopped": failed(Failure.STOPPED, remote_id="v1"),
    "stopped by an admin": failed(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
    "deleted": deleted("The video was deleted"),
    "deleted for a reason": deleted("Deleted by an editor because of its music"),
    "erased": failed(Failure.SERVICE_FAILED, erased=True, params={"replica_id": "r1"}),
}
TRAININGS: Final[dict[str, Job]] = {
    "the first training": replace(TRAINING, state=State.RUNNING, started_at=NINE),
    "with progress": replace(in_training("1/4"), typical_duration=timedelta(hours=3)),
    "ready": TRAINED_JOB,
    "failed": BAD_FOOTAGE,
}
REPLIES: Final[dict[str, Job]] = {
    "ready": WELL,
    "ready without a link": CARDS["ready without a link"],
    "failed": failed(Failure.SERVICE_FAILED, "Too dark."),
    "no credit": failed(Failure.OUT_OF_CREDIT, "No credit"),
    "refused at the second try": failed(Failure.REFUSED, "No", attempts=2, asked_at=NINE),
    "never finished": failed(Failure.TIMED_OUT, remote_id="v1"),
    "cancelled": failed(Failure.CANCELLED),
    "deleted": deleted("The video was deleted"),
    "stopped": failed(Failure.STOPPED, remote_id="v1"),
    "stopped by an admin": failed(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
    "trained": TRAINED_JOB,
}


def labels(message: Message) -> list[str]:
    return list(buttons(message))


def test_an_erased_job_cannot_be_retried(subtests: pytest.Subtests) -> None:
    for failure in Failure:
        with subtests.test(failure=failure):
            of = failed(failure, erased=True, params={})
            for message in (card(of, PRESENTER), reply(of, PRESENTER)):
                assert "Edit and retry" not in labels(message)


def test_words_of_the_service_are_shown_letter_for_letter() -> None:
    of = failed(Failure.SERVICE_FAILED, "*No* `way` <!channel>")
    texts = [each["text"] for each in objects(card(of, PRESENTER).blocks) if "text" in each]
    assert "“*No* `way` <!channel>”" in texts
