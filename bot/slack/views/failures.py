"""Why a job failed: the service's own words, and what they mean for the person who asked."""

from typing import Final

from bot.links import only_hosts
from bot.model import Failure, Job, State
from bot.service.errors import WITHHELD
from bot.slack.views.blocks import cut, joined
from bot.slack.views.presenters import MAY_BE_CHARGED, Presenter

LOST_ACCESS: Final = "I've lost access to the video service."
OUT_OF_CREDIT: Final = "Out of video credits."
FOR_ADMINS: Final = frozenset({Failure.KEY_REJECTED, Failure.OUT_OF_CREDIT})
"""What only those who run the bot can do something about."""
_IN_OUR_WORDS: Final = FOR_ADMINS | {Failure.NOT_FOUND}
"""Whose reason says no more than we do. It is among the details."""
AN_ADMIN: Final = "an admin"
_NO_REASON: Final = "No reason given."
_MAX_REASON: Final = 500
_OURS: Final = ("The video service ", "The connection to the video service ")
"""How the sentences begin that we use as a reason where the service gave none."""
_FEW_WORDS: Final = 5


def _service_reason(job: Job) -> str:
    """Return what the service said about a failure, in its own words; "" if it said nothing new."""
    if job.failure is Failure.DECLINED:  # it is the approver's reason
        return cut(job.reason, _MAX_REASON)
    if job.failure in _IN_OUR_WORDS or (job.reason.startswith(_OURS) and job.reason != WITHHELD):
        return ""
    said = cut(" ".join(only_hosts(job.reason).split()), _MAX_REASON)
    # "The video was deleted" is no more than the message itself says.
    is_known = job.deleted and "deleted" in said.casefold() and len(said.split()) <= _FEW_WORDS
    return "" if is_known else said


def remedy(failure: Failure | None, who: str) -> str:
    """Return what ``who`` can do about one of ``FOR_ADMINS``."""
    out_of_credit = failure is Failure.OUT_OF_CREDIT
    return f"Ask {who} to top up the account." if out_of_credit else f"Let {who} know."


def explanation(job: Job, presenter: Presenter, *, where: str, who: str = AN_ADMIN) -> str:
    """Return why a job failed: the service's own words, and what they mean; "" if it did not.

    ``where`` is the job's card for its reader: "here" on the card itself. ``who`` are the admins,
    in plain text.
    """
    if job.state is not State.FAILED:
        return ""
    said = _service_reason(job)
    # What stands for a reason that is withheld is no quotation.
    quoted = f"“{said}”" if said not in {"", WITHHELD} else said
    if quoted != said and job.failure is Failure.REFUSED:
        stop = "" if said.endswith((".", "!", "?", "…")) else "."
        quoted = f"The video service said “{said}{stop}”"
    return joined([quoted, _meaning(job, presenter, where, who)], by=" ")


def _meaning(job: Job, presenter: Presenter, where: str, who: str) -> str:
    """Return what a failure means beside the service's own words, and what to do; "" if nothing."""
    noun, created = presenter.noun, _created_nothing(job)
    match job.failure:
        case Failure.SERVICE_FAILED | None if job.deleted or _service_reason(job):
            return presenter.advice(job)
        case Failure.SERVICE_FAILED | None:
            return _NO_REASON
        case Failure.REFUSED:
            why = "" if _service_reason(job) else _NO_REASON
            return joined([why, created], by=" ")
        case Failure.KEY_REJECTED:
            return f"{LOST_ACCESS} {created} {remedy(job.failure, who)}"
        case Failure.OUT_OF_CREDIT:
            return f"{OUT_OF_CREDIT} {created} {remedy(job.failure, who)}"
        case Failure.UNREACHABLE | Failure.SERVICE_DOWN | Failure.SERVICE_TROUBLE:
            return f"I couldn't send this in time. {created}"
        case Failure.NOT_FOUND:
            return f"I can't find this {noun} anymore. It may have been deleted."
        case Failure.TIMED_OUT:
            return f"It took too long, so I stopped checking. {MAY_BE_CHARGED}"
        case (
            Failure.DECLINED | Failure.WITHDRAWN | Failure.NOT_APPROVED | Failure.STOPPED_BY_OWNER
        ) if not job.attempts:
            return _unapproved(job, noun)
        case Failure.STOPPED_BY_OWNER if "script" in job.params:  # it was never sent
            return created
        case Failure.STOPPED | Failure.STOPPED_BY_ADMIN | Failure.STOPPED_BY_OWNER:
            return MAY_BE_CHARGED
        case _:  # a person cancelled it, or nobody approved or said anything
            silence = "No answer in a week. " if job.failure is Failure.UNANSWERED else ""
            return f"{silence}{MAY_BE_CHARGED} If it turns up, I'll say so {where}."


def _unapproved(job: Job, noun: str) -> str:
    """Return that a request was not approved and made nothing, as far as is known."""
    if job.copied:
        return f"This comes from a backup: the {noun} may have been made since."
    return "You weren't charged."


def _created_nothing(job: Job) -> str:
    """Return that a job's last create call cost nothing, and what is known of the others.

    Only *Create again* follows a call of which it is unknown what it made. Those that are known to
    have made something are named on the card.
    """
    if job.asked_at is None:
        return "You weren't charged."
    return "You may be charged for an earlier try."
