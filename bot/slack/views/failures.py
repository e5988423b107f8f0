"""Why a job failed: the service's own words, and what they mean for the person who asked."""

from typing import Final

from bot.links import only_hosts
from bot.model import Failure, Job, State
from bot.service.errors import WITHHELD
from bot.slack.views.blocks import (
    cut,
    joined,
)
from bot.slack.views.presenters import (
    CONTACT_OPERATOR,
    Presenter,
)

KEY_REFUSED: Final = "The video service doesn't accept this bot's key"
OUT_OF_CREDIT: Final = "The video service's account is out of credit"
CONTACT_ACCOUNT: Final = "Please tell the person who manages that account."
_ONCE_PAID: Final = "Once it's topped up, a new request is sent at once."
_MAX_REASON: Final = 500
_OURS: Final = ("The video service ", "The connection to the video service ")
"""How the sentences begin that we use as a reason where the service gave none."""
_FEW_WORDS: Final = 5


def _service_reason(job: Job) -> str:
    """Return what the service said about a failure, in its own words; "" if it said nothing new."""
    if job.state is not State.FAILED:
        return ""
    if job.failure is Failure.DECLINED:  # it is the approver's reason
        return cut(job.reason, _MAX_REASON)
    if job.reason.startswith(_OURS) and job.reason != WITHHELD:
        return ""
    said = cut(" ".join(only_hosts(job.reason).split()), _MAX_REASON)
    # "The video was deleted" is no more than the message itself says.
    is_known = job.deleted and "deleted" in said.casefold() and len(said.split()) <= _FEW_WORDS
    return "" if is_known else said


def explanation(job: Job, presenter: Presenter, *, this: str) -> str:
    """Return why a job failed: the service's own words, and what they mean; "" if it did not.

    ``this`` is what the reader calls the job's card: "this message" on the card itself.
    """
    if job.state is not State.FAILED:
        return ""
    said = _service_reason(job)
    # What stands for a reason that is withheld is no quotation.
    quoted = f"“{said}”" if said not in {"", WITHHELD} else said
    return joined([quoted, _meaning(job, presenter, this)], by=" ")


def _meaning(job: Job, presenter: Presenter, this: str) -> str:
    """Return what a failure means beside the service's own words, and what to do; "" if nothing."""
    noun, created = presenter.noun, _created_nothing(job)
    match job.failure:
        case Failure.SERVICE_FAILED | None if job.deleted or _service_reason(job):
            return presenter.advice(job)
        case Failure.SERVICE_FAILED | None:
            return "The video service didn't say why."
        case Failure.REFUSED:
            why = "" if _service_reason(job) else " and didn't say why"
            return f"The video service refused the request{why}; {created}."
        case Failure.KEY_REJECTED:
            return f"{KEY_REFUSED}; {created}. {CONTACT_OPERATOR}"
        case Failure.OUT_OF_CREDIT:
            return f"{OUT_OF_CREDIT}; {created}. {CONTACT_ACCOUNT} {_ONCE_PAID}"
        case Failure.UNREACHABLE | Failure.SERVICE_DOWN | Failure.SERVICE_TROUBLE:
            return (
                "I couldn't send this to the video service in time, so I stopped trying; "
                f"{created}."
            )
        case Failure.NOT_FOUND:
            return f"The video service can't find this {noun} any more. It may have been deleted."
        case Failure.TIMED_OUT:
            return (
                "It took far too long, so I stopped checking. It may still be created and charged."
            )
        case (
            Failure.DECLINED | Failure.WITHDRAWN | Failure.NOT_APPROVED | Failure.STOPPED_BY_OWNER
        ) if not job.attempts:
            return _unapproved(job, noun)
        case Failure.STOPPED | Failure.STOPPED_BY_ADMIN | Failure.STOPPED_BY_OWNER:
            return "It may still be created and charged."
        case _:  # a person cancelled it, or nobody approved or said anything
            unknown = f"We don't know whether this {noun} was created"
            if job.failure is Failure.UNANSWERED:
                unknown = f"Nobody could say whether this {noun} was created, so I stopped waiting"
            return f"{unknown}. If it turns up, {this} will say so."


def _unapproved(job: Job, noun: str) -> str:
    """Return that a request was not approved and made nothing, as far as is known."""
    if job.copied:
        return (
            f"The request comes from a backup: the {noun} may have been approved and created "
            "since then."
        )
    return "Nothing was created."


def _created_nothing(job: Job) -> str:
    """Return that a job's last create call made nothing, and what is known of the others.

    Only *Create again* follows a call of which it is unknown what it made. Those that are known to
    have made something are named on the card.
    """
    if job.asked_at is None:
        return "nothing was created"
    if job.orphaned_ids:
        return "this attempt created nothing"
    return "this attempt created nothing, but an earlier one may have"
