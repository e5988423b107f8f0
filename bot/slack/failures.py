"""Why a job failed, in sentences: the service's own, what it means, and what to do next."""

from typing import Final

from bot.links import only_hosts
from bot.model import Failure, Job, State
from bot.slack.blocks import cut
from bot.slack.presenters import Presenter

MAX_REASON: Final = 500


def service_reason(job: Job) -> str:
    """Return what the service said about a failure, in its own words."""
    return cut(only_hosts(job.reason.strip()), MAX_REASON) if job.state is State.FAILED else ""


def explanation(job: Job, presenter: Presenter) -> str:
    """Return what a failure means and what to do next. The service's reason follows below."""
    parts = [_failure_sentence(job, presenter)]
    explained = service_reason(job) or job.deleted
    if job.failure in {Failure.SERVICE_FAILED, Failure.REFUSED} and not explained:
        parts.append("It didn't say why.")
    if not job.erased:
        fixed = (
            "After that, " if job.failure in {Failure.KEY_REJECTED, Failure.OUT_OF_CREDIT} else ""
        )
        parts.append(f"{fixed}*Edit and retry* opens the form with everything that was entered.")
    parts.append(presenter.advice(job))
    if service_reason(job):
        parts.append("The video service says:")
    return " ".join(filter(None, parts))


def _failure_sentence(job: Job, presenter: Presenter) -> str:
    noun, created = presenter.noun, _created_nothing(job)
    match job.failure:
        case Failure.SERVICE_FAILED if job.deleted:
            return f"This {noun} was deleted at the video service."
        case Failure.SERVICE_FAILED | None:
            return f"The video service couldn't create this {noun}."
        case Failure.REFUSED:
            return f"The video service refused the request; {created}."
        case Failure.KEY_REJECTED:
            return (
                f"The video service doesn't accept this bot's key; {created}. Please tell "
                "the person who runs this bot: it needs a working key."
            )
        case Failure.OUT_OF_CREDIT:
            return (
                f"The video service's account is out of credit; {created}. Please tell "
                "the person who manages that account."
            )
        case Failure.UNREACHABLE:
            return (
                "I couldn't send this to the video service for too long, so I stopped trying; "
                f"{created}."
            )
        case Failure.NOT_FOUND:
            return f"The video service can't find this {noun} any more: it may have been deleted."
        case Failure.TIMED_OUT:
            return (
                f"The video service never finished this {noun}, so I stopped checking. "
                f"`/{noun} status {job.id}` still checks it."
            )
        case Failure.CANCELLED:
            return (
                f"We don't know whether this {noun} was created. If it turns up, its "
                "card will say so."
            )
        case Failure.UNANSWERED:
            return (
                f"Nobody could say whether this {noun} was created, so I stopped "
                "waiting. If it turns up, its card will say so."
            )


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
