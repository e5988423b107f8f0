"""The buttons of a job's messages: their action ids and values, and which ones a state has."""

import re
from collections.abc import Iterable
from typing import Final

from bot.model import Failure, Job, State
from bot.slack.views.blocks import Json, button, confirm, element, menu, option, section
from bot.slack.views.presenters import CHECK_NOW, MAY_BE_CHARGED, STOPPED, Presenter
from bot.store import KnownReplica

_MAX_MENU_ID: Final = 60
_ATTEMPTS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAY_GO_ON: Final = frozenset({*STOPPED, Failure.TIMED_OUT})

STOP: Final = "job_stop"
DETAILS: Final = "job_details"
MORE: Final = "job_more"
"""A menu: the value of *Details* is the job's id, that of a link begins with ``OPEN_LINK``."""
HAVE_ID: Final = "job_have_id"
CREATE_AGAIN: Final = "job_create_again"
GIVE_UP: Final = "job_give_up"
ANSWER_EACH: Final = "questions_answer"
CANCEL_ALL: Final = "questions_cancel"
"""The values of these two are those of buttons about an attempt, for each job, after the id of the
job whose question the message asks itself."""
APPROVE: Final = "approval_approve"
DECLINE: Final = "approval_decline"
"""The values of these two say the attempt too: *Create again* has a job wait once more."""
WITHDRAW: Final = "approval_withdraw"
"""Its value is the job's id."""
RETRY: Final = "retry"
"""Each kind has its own form: ``<kind>_retry`` opens it."""
OPEN_CREATE: Final = "home_create"
OPEN_TRAIN: Final = "home_train"
TURN_PAGE: Final = "home_page"
"""Its value is the page, counted from 0."""
CHANGE_LIMITS: Final = "admin_limits"
OPEN_SPENDING: Final = "admin_spending"
CHOOSE_MONTH: Final = "admin_month"
OPEN_LINK: Final = "open_link"
REPLICA_MENU: Final = "replica_menu"
"""Its values are what to do with a replica, and its id."""
MUTE: Final = "owner_mute"
"""Its value is "yes", or "no" to be told again."""
ASK_FIRST: Final = "owner_ask_first"
"""Its value is the id of the training of a replica; without one it is about all of a person's."""
STOP_TRAINING: Final = "training_stop"
"""Its value is the job's id. The person in the footage has it."""


def card_buttons(
    job: Job, presenter: Presenter, *, is_retried: bool = False, most: int = 2
) -> list[Json]:
    """Return the ``most`` important buttons of a job, and a menu: nothing in it costs money."""
    links = [*presenter.links(job).items()][1:]
    behind = [option(label, f"{OPEN_LINK}_{at}", url) for at, (label, url) in enumerate(links)]
    return [
        *_state_buttons(job, presenter, is_retried=is_retried)[:most],
        menu(MORE, [*behind, option("Details", job.id)]),
    ]


def reply_buttons(job: Job, presenter: Presenter, *, is_retried: bool = False) -> list[Json]:
    """Return the buttons of a closing reply: what to do next."""
    if job.state is State.SUCCEEDED:
        return [*presenter.next_steps(job)]  # its links are in the reply's text
    if job.failure in STOPPED:
        return []
    return _state_buttons(job, presenter, is_retried=is_retried)


def _state_buttons(job: Job, presenter: Presenter, *, is_retried: bool) -> list[Json]:
    check_now = button("Check now", CHECK_NOW, value=job.id, style="primary")
    match job.state:
        case State.WAITING_FOR_APPROVAL:
            return [_withdraw(job, presenter.noun)]
        case State.RUNNING:
            return [_stop(job, presenter.noun)]
        case State.OVERDUE:
            return [check_now, _stop(job, presenter.noun)]
        case State.SUCCEEDED:
            steps = presenter.next_steps(job)
            style = None if steps else "primary"
            best = [
                button(label, f"{OPEN_LINK}_0", url=url, style=style)
                for label, url in [*presenter.links(job).items()][:1]
            ]
            return [*steps, *best, *presenter.more_steps(job)]
        case State.FAILED:
            # It may have gone on at the service: then a retry may be a second one to pay.
            may_check = job.failure in _MAY_GO_ON and job.remote_id is not None
            style = None if may_check else "primary"
            retry = button("Edit and retry", f"{job.kind}_{RETRY}", value=job.id, style=style)
            may_retry = not job.erased and not is_retried
            return [*([check_now] if may_check else []), *([retry] if may_retry else [])]
        case _:
            return []


def question_buttons(job: Job, presenter: Presenter) -> list[Json]:
    """Return the buttons that answer whether the last create call of a job made something."""
    noun, value = presenter.noun, pressed(job)
    again = confirm(
        f"Create the {noun} again?",
        "If an earlier try worked, you'll pay twice.",
        yes="Create again",
        no="Keep waiting",
    )
    give_up = confirm(
        "Cancel this request?",
        _ends_here(noun),
        yes="Cancel request",
        no="Keep waiting",
    )
    return [
        button("I found it", HAVE_ID, value=value, style="primary"),
        button("Create again", CREATE_AGAIN, value=value, confirm=again),
        button("Cancel request", GIVE_UP, value=value, style="danger", confirm=give_up),
    ]


def list_buttons(leading: Job, jobs: Iterable[Job]) -> list[Json]:
    """Return the buttons of a message that asks about several jobs: nothing here creates any."""
    value = " ".join([leading.id, *map(pressed, jobs)])
    cancel = confirm(
        "Cancel all these requests?",
        f"{MAY_BE_CHARGED} If one turns up later, I'll say so.",
        yes="Cancel all",
        no="Keep waiting",
    )
    return [
        button("Answer each", ANSWER_EACH, value=value, style="primary"),
        button("Cancel all", CANCEL_ALL, value=value, style="danger", confirm=cancel),
    ]


def approval_buttons(job: Job) -> list[Json]:
    """Return the buttons that approve a job or decline it."""
    return [
        button("Approve", APPROVE, value=pressed(job), style="primary"),
        button("Decline", DECLINE, value=pressed(job), style="danger"),
        button("Details", DETAILS, value=job.id),
    ]


def replica_row(replica: KnownReplica, line: str, *, may_change: bool) -> Json:
    """Return a replica with its menu; ``line`` is what is said of it, as mrkdwn."""
    verbs = {"preview": "Preview", "use": "Use in a video", "edit": "Edit", "remove": "Remove"}
    options = [option(text, f"{verb}:{replica.id}") for verb, text in verbs.items()]
    menu = element("overflow", REPLICA_MENU, options=options if may_change else options[:2])
    row = section(line)
    # Slack takes no longer values, and two options at least.
    return {**row, "accessory": menu} if len(replica.id) <= _MAX_MENU_ID else row


def _ends_here(noun: str) -> str:
    return f"{MAY_BE_CHARGED} If the {noun} turns up, I'll say so."


def _withdraw(job: Job, noun: str) -> Json:
    ask = confirm(
        "Cancel this request?",
        _ends_here(noun) if job.attempts else "You won't be charged.",
        yes="Cancel request",
        no="Keep waiting",
    )
    return button("Cancel request", WITHDRAW, value=job.id, confirm=ask)


def _stop(job: Job, noun: str) -> Json:
    ask = confirm(
        f"Stop waiting for this {noun}?",
        "It may still be created, and you may be charged.",
        yes="Stop waiting",
        no="Keep waiting",
    )
    return button("Stop waiting", STOP, value=pressed(job), confirm=ask)


def pressed(job: Job) -> str:
    """Return a value that names job and attempt: a late click is not about the next attempt."""
    return f"{job.id}:{job.attempts}"


def job_of(value: str) -> str:
    """Return the id of the job that a button is about: its value is, or begins with, that."""
    return re.split("[: ]", value, maxsplit=1)[0]


def attempt_of(value: str) -> int:
    """Return the attempt count in the value of a button that is about an attempt."""
    attempts = value.partition(":")[2]
    return int(attempts) if _ATTEMPTS.fullmatch(attempts) else 0
