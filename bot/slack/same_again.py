"""What a form says on top when the same was asked for a short while ago."""

from typing import Final

from bot.model import Job, State
from bot.slack.blocks import MAX_SECTION, ago, anchor, joined
from bot.slack.presenters import Presenter

MAKE_ANOTHER: Final = "Make a new one"
"""The button of such a form."""


def offer(job: Job, presenter: Presenter, viewer: str) -> str:
    """Return what there is already, who asked for it, and what the form's button does.

    The viewer may see the job: they are who asked, an admin, or where it was posted.
    """
    noun, who = presenter.noun, "You" if viewer == job.user else f"<@{job.user}>"
    match job.state:
        case State.SUCCEEDED:
            status, did = f"This {noun} already exists.", "made it"
        case State.UNCONFIRMED:
            status, did = f"This {noun} has already been requested.", "asked for it"
        case State.WAITING_FOR_APPROVAL:
            status, did = f"This {noun} is already waiting for approval.", "asked for it"
        case _:
            status, did = f"This {noun} is already being made.", "asked for it"
    where = f" in <#{job.channel}>" if job.channel.startswith(("C", "G")) else ""
    links = [anchor(url, label) for label, url in presenter.links(job).items()]
    text = (
        f"*{status}* {who} {did} {ago(job.created_at)}{where} with the same script, replica and "
        "background."
    )
    remedy = f"*{MAKE_ANOTHER}* creates it again, and it's charged again."
    # A signed link may be too long for a block: then the message where it was posted has it.
    shown = joined(links, MAX_SECTION - len(text) - len(remedy) - 2, by=" · ")
    return joined([text, shown, remedy], MAX_SECTION)
