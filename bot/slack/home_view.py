"""The Home tab: a person's requests with their buttons, replicas, and for admins how it all goes.

A view has at most 100 blocks: https://docs.slack.dev/reference/views/home-tab-views.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.model import Job, State
from bot.slack.admin_view import AdminContent, admin_sections
from bot.slack.blocks import (
    Json,
    actions,
    bullets,
    button,
    context,
    cut,
    date,
    mrkdwn,
    paragraph,
    plain,
    rich,
    section,
    title,
    words,
)
from bot.slack.buttons import (
    OPEN_CREATE,
    OPEN_TRAIN,
    TURN_PAGE,
    approval_buttons,
    card_buttons,
    question_buttons,
)
from bot.slack.presenters import Presenter, Presenters, state_word

PAGE: Final = 10
"""Jobs on a page: each has up to three blocks, and a line between it and the next."""
MAX_REPLICAS: Final = 20
MAX_QUESTIONS: Final = 7
"""Of each sort: three blocks each. With everything else, a view has room for these."""
_MAX_LINE: Final = 200


@dataclass(frozen=True, slots=True)
class HomeContent:
    """What a Home tab shows."""

    jobs: Sequence[Job]
    """Those of the page."""
    page: int
    more: bool
    """Whether there are jobs after these."""
    replicas: Sequence[str]
    """The labels of those that everyone can use."""
    retried: Collection[str] = ()
    """The ids of those jobs that were retried."""
    questions: Sequence[Job] = ()
    """Jobs of others that wait for an answer, for admins."""
    to_approve: Sequence[Job] = ()
    """Jobs of others that this person may approve."""
    admin: AdminContent | None = None
    """What admins see besides."""


def home_view(content: HomeContent, presenters: Presenters, command: Callable[[str], str]) -> Json:
    """Return the view; ``command`` gives the name of a kind's command."""
    create, train = (presenter.noun for presenter in list(presenters.values())[:2])
    top = [
        button(f"Create a {create}", OPEN_CREATE, style="primary"),
        button(f"Train a {train}", OPEN_TRAIN),
    ]
    blocks: list[Json] = [actions(top), _heading("Your requests")]
    known = [job for job in content.jobs if job.kind in presenters]
    for number, job in enumerate(known):
        blocks += [{"type": "divider"}] if number else []
        blocks += _job(job, presenters[job.kind], is_retried=job.id in content.retried)
    if not known:
        blocks.append(
            section(
                f"Nothing here yet. Type `{command(create)}` in a channel, or press a button above."
            )
        )
    turns = []
    if content.page > 0:
        turns.append(button("Newer", f"{TURN_PAGE}_back", value=str(content.page - 1)))
    if content.more:
        turns.append(button("More", f"{TURN_PAGE}_on", value=str(content.page + 1)))
    if turns:
        blocks += [{"type": "divider"}, actions(turns)]
    blocks.append(_heading(f"{train.capitalize()}s everyone here can use"))
    if content.replicas:
        items = [paragraph(words(cut(label, _MAX_LINE))) for label in content.replicas]
        blocks.append(rich(bullets(items)))
    else:
        blocks.append(section(f"None yet. Train one, or add one with `{command(train)} add <id>`."))
    asked = [job for job in content.questions if job.kind in presenters]
    if asked:
        blocks.append(_heading("Questions waiting for an answer"))
    for job in asked:
        blocks += _question(job, presenters[job.kind])
    waiting = [job for job in content.to_approve if job.kind in presenters]
    if waiting:
        blocks.append(_heading("Requests waiting for your approval"))
    for job in waiting:
        blocks += _to_approve(job, presenters[job.kind])
    if content.admin is not None:
        blocks += [_heading("For admins"), *admin_sections(content.admin, presenters)]
    return {"type": "home", "blocks": blocks}


def _heading(text: str) -> Json:
    return {"type": "header", "text": plain(text, 150)}


def _job(job: Job, presenter: Presenter, *, is_retried: bool) -> list[Json]:
    name = title(presenter.name(job)) or f"Untitled {presenter.noun}"
    # In rich text a name is shown letter for letter.
    line = paragraph(words(name, bold=True), words(f" · {state_word(job, presenter)}"))
    asked = f"{presenter.noun.capitalize()} · requested {date(job.created_at)}"
    if job.channel.startswith(("C", "G")):
        asked += f" in <#{job.channel}>"
    buttons = card_buttons(job, presenter, is_retried=is_retried)
    if job.state is State.UNCONFIRMED and job.asked:
        buttons = question_buttons(job, presenter)
        asked = f"We don't know whether this {presenter.noun} was created. {asked}"
    return [rich(line), context(mrkdwn(asked)), actions(buttons)]


def _question(job: Job, presenter: Presenter) -> list[Json]:
    """Return the question about somebody else's job: a script is shown to its author alone."""
    unread = replace(job, params={at: job.params[at] for at in job.params if at != "script"})
    name = title(presenter.name(unread)) or f"A {presenter.noun} without a name"
    asked = f"We don't know whether this {presenter.noun} was created. Requested by <@{job.user}>"
    return [
        rich(paragraph(words(name, bold=True))),
        context(mrkdwn(f"{asked} {date(job.created_at)}")),
        actions(question_buttons(job, presenter)),
    ]


def _to_approve(job: Job, presenter: Presenter) -> list[Json]:
    """Return somebody else's job that waits for approval: all of it is in its details."""
    name = title(presenter.name(job)) or f"A {presenter.noun} without a name"
    asked = f"{presenter.noun.capitalize()} · requested by <@{job.user}> {date(job.created_at)}"
    return [
        rich(paragraph(words(name, bold=True))),
        context(mrkdwn(asked)),
        actions(approval_buttons(job)),
    ]
