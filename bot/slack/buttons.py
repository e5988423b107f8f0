"""The buttons of a job's messages: their action ids and values, and which ones a state has."""

import re
from typing import Final

from bot.model import Job, State
from bot.slack.blocks import Json, button, confirm
from bot.slack.presenters import Presenter

_ATTEMPTS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)

CHECK_AGAIN: Final = "job_check_again"
HAVE_ID: Final = "job_have_id"
CREATE_AGAIN: Final = "job_create_again"
GIVE_UP: Final = "job_give_up"
RETRY: Final = "retry"
"""Each kind has its own form: ``<kind>_retry`` opens it."""
OPEN_LINK: Final = "open_link"
MAKE_VIDEO: Final = "replica_make_video"
"""Its value is the replica's id."""


def buttons_of(job: Job, presenter: Presenter) -> list[Json]:
    """Return the buttons of a card."""
    match job.state:
        case State.OVERDUE:
            return [button("Check again", CHECK_AGAIN, value=job.id)]
        case State.SUCCEEDED:
            next_steps = list(presenter.next_steps(job))
            links = [
                button(label, f"{OPEN_LINK}_{at}", url=url)
                for at, (label, url) in enumerate(presenter.links(job).items())
            ]
            return [*next_steps, *links]
        case State.FAILED if not job.erased:
            return [button("Edit and retry", f"{job.kind}_{RETRY}", value=job.id, style="primary")]
        case _:
            return []


def question_buttons(job: Job, presenter: Presenter) -> list[Json]:
    """Return the buttons that answer whether the last create call of a job made something."""
    noun = presenter.noun
    # A late click is not taken for an answer about the next attempt.
    pressed = f"{job.id}:{job.attempts}"
    again = confirm(
        f"Create the {noun} again?",
        f"If an earlier {noun} was created after all, it is charged too.",
        yes="Create again",
        no="Keep waiting",
    )
    give_up = confirm(
        "Cancel this request?",
        f"It ends here. If the {noun} turns up later, its card will say so.",
        yes="Cancel request",
        no="Keep waiting",
    )
    return [
        button("I found it", HAVE_ID, value=pressed, style="primary"),
        button("Create again (may be charged twice)", CREATE_AGAIN, value=pressed, confirm=again),
        button("Cancel request", GIVE_UP, value=pressed, style="danger", confirm=give_up),
    ]


def attempt_of(value: str) -> tuple[str, int]:
    """Return the job id and the attempt count in the value of a button that answers the question.

    A button of an earlier version of the bot has only the job id, and means attempt 1.
    """
    job_id, colon, attempts = value.partition(":")
    if not colon:
        return job_id, 1
    return job_id, int(attempts) if _ATTEMPTS.fullmatch(attempts) else 0
