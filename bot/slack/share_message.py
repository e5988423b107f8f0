"""What a share says: in the channel that a person chose, or to them if it is refused there."""

from typing import Final

from bot.model import Delivery, Job
from bot.slack.blocks import (
    MAX_SECTION,
    Message,
    actions,
    anchor,
    button,
    escape,
    joined,
    section,
    title,
)
from bot.slack.buttons import OPEN_LINK, SHARE_LABEL
from bot.slack.presenters import Presenter

_GONE: Final = "Its link is no longer stored."


def share(delivery: Delivery, job: Job, presenter: Presenter) -> Message:
    """Return what a share says: who shared what, and its links; or that it was refused."""
    noun, name = presenter.noun, escape(title(presenter.name(job)))
    if delivery.direct:
        return _refused(delivery, f"“{name}”" if name else f"the {noun}")
    links = presenter.links(job)
    head = f"<@{delivery.shared_by}> shared a {noun}{f': *{name}*' if name else '.'}"
    plain_head = f"<@{delivery.shared_by}> shared a {noun}{f': “{name}”' if name else '.'}"
    anchors = [anchor(url, label) for label, url in links.items()] or [_GONE]
    blocks = [section(joined([head, "" if links else _GONE], MAX_SECTION))]
    if links:
        buttons = [
            button(label, f"{OPEN_LINK}_{at}", url=url)
            for at, (label, url) in enumerate(links.items())
        ]
        blocks.append(actions(buttons))
    return Message(joined([plain_head, *anchors]), blocks)


def _refused(delivery: Delivery, named: str) -> Message:
    """Return what the person is told whose share a channel refused."""
    text = (
        f"I couldn't share {named} in <#{delivery.shared_to}>: Slack doesn't let me post there. If "
        f"it's a private channel, type `/invite @replica-videos` there. Then press *{SHARE_LABEL}* "
        "again, or choose another channel."
    )
    return Message(text, [section(text)])
