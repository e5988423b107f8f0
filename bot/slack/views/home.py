"""What the Home tab shows: requests, replicas, and for admins how it all goes.

A view has at most 100 blocks: https://docs.slack.dev/reference/views/home-tab-views.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bot.model import Job, State
from bot.slack.views.blocks import (
    MAX_SECTION,
    Json,
    actions,
    ago,
    brief,
    button,
    context,
    cut,
    date,
    element,
    joined,
    modal,
    mrkdwn,
    option,
    paragraph,
    plain,
    rich,
    section,
    words,
)
from bot.slack.views.buttons import (
    CHANGE_LIMITS,
    CHOOSE_MONTH,
    OPEN_CREATE,
    OPEN_SPENDING,
    OPEN_TRAIN,
    TURN_PAGE,
    approval_buttons,
    card_buttons,
    question_buttons,
)
from bot.slack.views.presenters import Presenter, Presenters, state_word
from bot.slack.views.question import title_of
from bot.slack.views.usage import NO_PRICE, Price, change_words, label, value_words
from bot.store import (
    LIMITS,
    LimitChange,
    LimitsInForce,
    MonthSpending,
    PersonSpending,
    month_start,
)

PAGE: Final = 10
"""Jobs on a page: each has up to three blocks, and a line between it and the next."""
MAX_REPLICAS: Final = 12
MAX_MADE: Final = 10
MAX_QUESTIONS: Final = 5
"""Of each sort: three blocks each. With everything else, a view has room for these."""
MAX_COUNTED: Final = 100
"""Requests that wait for approval: how many more there are is said up to here."""
MAX_PAST: Final = 5
"""Changes of limits that are shown."""
MONTH: Final = "month"
"""The id of the block with the menu of months."""
_MONTHS: Final = 12
_TOP: Final = 5
_MAX_PEOPLE: Final = 1_000
_PER_SECTION: Final = 20


def home_view(
    jobs: Sequence[Job],
    presenters: Presenters,
    command: Callable[[str], str],
    *,
    page: int,
    more: bool,
    replicas: Sequence[Json],
    retried: Collection[str] = (),
    questions: Sequence[Job] = (),
    to_approve: Sequence[Job] = (),
    made: Sequence[Json] = (),
    admin: Sequence[Json] = (),
) -> Json:
    """Return the view.

    Args:
        jobs: those of the page.
        presenters: of the kinds.
        command: gives the name of a kind's command.
        page: which part of the person's jobs it shows, counted from 0.
        more: whether there are jobs after these.
        replicas: a row for each of those that everyone can use.
        retried: the ids of those jobs that were retried.
        questions: jobs of others that wait for an answer, for admins.
        to_approve: jobs of others that this person may approve.
        made: what others made with this person's replicas.
        admin: what admins see besides.
    """
    create, train = (presenter.noun for presenter in list(presenters.values())[:2])
    top = [
        button(f"Create a {create}", OPEN_CREATE, style="primary"),
        button(f"Train a {train}", OPEN_TRAIN),
    ]
    known = [job for job in jobs if job.kind in presenters]
    own = [job for job in known if _is_asked(job)]
    others = [job for job in known if not _is_asked(job)]
    blocks = [actions(top), *_waiting(own, questions, to_approve, presenters)]
    if others or not own:
        blocks.append(_heading("Your requests"))
    for number, job in enumerate(others):
        blocks += [{"type": "divider"}] if number else []
        is_retried = job.id in retried
        buttons = card_buttons(job, presenters[job.kind], is_retried=is_retried, most=1)
        blocks += _job(job, presenters[job.kind], buttons)
    if not known:
        blocks.append(
            section(
                f"Nothing here yet. Type `{command(create)}` in a channel, or press a button above."
            )
        )
    turns = []
    if page > 0:
        turns.append(button("Back", f"{TURN_PAGE}_back", value=str(page - 1)))
    if more:
        turns.append(button("Next", f"{TURN_PAGE}_on", value=str(page + 1)))
    if turns:
        blocks += [{"type": "divider"}, actions(turns)]
    blocks.append(_heading(f"{train.capitalize()}s everyone here can use"))
    blocks += replicas
    if not replicas:
        blocks.append(section(f"None yet. Train one, or add one with `{command(train)} add <id>`."))
    blocks += made
    if admin:
        blocks += [_heading("For admins"), *admin]
    return {"type": "home", "blocks": blocks}


def _is_asked(job: Job) -> bool:
    """Return whether only a person can say what became of a job."""
    return job.state is State.UNCONFIRMED and job.asked > 0


def _waiting(
    own: Sequence[Job], questions: Sequence[Job], to_approve: Sequence[Job], presenters: Presenters
) -> list[Json]:
    """Return what waits for the reader, with the questions about their ``own`` jobs."""
    known = [job for job in to_approve if job.kind in presenters]
    blocks = [_heading("Waiting for your approval")] if known else []
    for job in known[:MAX_QUESTIONS]:
        blocks += _to_approve(job, presenters[job.kind])
    if (others := len(known) - MAX_QUESTIONS) > 0:
        number = "many" if len(known) == MAX_COUNTED else others
        blocks.append(context(mrkdwn(f"and {number} more")))
    asked = [job for job in questions if job.kind in presenters]
    blocks += [_heading("Waiting for your answer")] if own or asked else []
    for job in own:
        blocks += _job(job, presenters[job.kind], question_buttons(job, presenters[job.kind]))
    for job in asked:
        blocks += _question(job, presenters[job.kind])
    return blocks


def _heading(text: str) -> Json:
    return {"type": "header", "text": plain(text, 150)}


def _job(job: Job, presenter: Presenter, buttons: list[Json]) -> list[Json]:
    name = title_of(job, presenter)
    # In rich text a name is shown letter for letter.
    line = paragraph(words(name, bold=True), words(f" · {state_word(job, presenter)}"))
    asked = f"{presenter.noun.capitalize()} · requested {date(job.created_at)}"
    if job.channel.startswith(("C", "G")):
        asked += f" in <#{job.channel}>"
    if _is_asked(job):
        asked = f"Did this {presenter.noun} get made? {asked}"
    return [rich(line), context(mrkdwn(asked)), actions(buttons)]


def _question(job: Job, presenter: Presenter) -> list[Json]:
    """Return the question about somebody else's job: a script is shown to its author alone."""
    unread = replace(job, params={at: job.params[at] for at in job.params if at != "script"})
    asked = f"Did this {presenter.noun} get made? Requested by <@{job.user}> {date(job.created_at)}"
    return [
        rich(paragraph(words(title_of(unread, presenter), bold=True))),
        context(mrkdwn(asked)),
        actions(question_buttons(job, presenter)),
    ]


def _to_approve(job: Job, presenter: Presenter) -> list[Json]:
    """Return somebody else's job that waits for approval: all of it is in its details."""
    asked = f"{presenter.noun.capitalize()} · requested by <@{job.user}> {date(job.created_at)}"
    return [
        rich(paragraph(words(title_of(job, presenter), bold=True))),
        context(mrkdwn(asked)),
        actions(approval_buttons(job)),
    ]


# ── For admins ────────────────────────────────────────────────────────────────────────────────────


def admin_sections(
    in_force: LimitsInForce,
    spending: MonthSpending,
    health: str,
    *,
    past: Sequence[LimitChange] = (),
    media_hosts: str = "",
    price: Price = NO_PRICE,
) -> list[Json]:
    """Return the sections for admins: a few blocks, however much there is to say.

    Args:
        in_force: the limits.
        spending: of this month.
        health: how the whole bot is, from ``health_text``.
        past: the last changes of limits, newest first.
        media_hosts: what ``MEDIA_HOSTS`` would be with the hosts of finished videos; "" if it has
            them all.
        price: of a minute.
    """
    change, usage = button("Change limits", CHANGE_LIMITS), button("View usage", OPEN_SPENDING)
    blocks = [
        section(health),
        {**section(spending_text(spending, price)), "accessory": usage},
        {**section(_limits(in_force)), "accessory": change},
    ]
    if media_hosts:
        line = f"set `MEDIA_HOSTS={media_hosts}` if you trust these hosts"
        blocks.append(context(mrkdwn(cut(f"To play videos in Slack, {line}.", MAX_SECTION))))
    if past:
        said = joined(["Recent changes:", *map(_change, past)], MAX_SECTION)
        blocks.append(context(mrkdwn(said)))
    return blocks


def _limits(in_force: LimitsInForce) -> str:
    values, lines = in_force.limits.texts(), ["*Limits*"]
    for name, limit in LIMITS.items():
        value = value_words(limit, values[name])
        line = f"{label(limit)}: {f'*{value}*' if limit.most else value}"
        if (change := in_force.changes.get(name)) is not None:
            line += f", changed by <@{change.changed_by}> {ago(change.changed_at)}"
        lines.append(line)
    return joined(lines, MAX_SECTION)


def _change(past: LimitChange) -> str:
    said = change_words(LIMITS[past.name], past.before, past.value)
    return f"<@{past.changed_by}> {said}, {ago(past.changed_at)}"


def health_text(
    *,
    used: int,
    limit: int,
    unsent: int = 0,
    key_refused: bool = False,
    next_try: datetime | None = None,
    slowed_down: bool = False,
    down_since: datetime | None = None,
    waiting: int = 0,
    to_approve: int = 0,
) -> str:
    """Return how the whole bot is.

    Args:
        used: requests that count for this day, in UTC.
        limit: how many a day may have.
        unsent: messages that wait to be posted.
        key_refused: whether the service refuses the key.
        next_try: when the next call finds out whether there is credit again; None if there is.
        slowed_down: whether the service has asked to wait before it creates more.
        down_since: since when the service is down; None if it is not.
        waiting: requests that wait for it to come back.
        to_approve: requests that wait for approval.
    """
    service = (
        ":x: I've lost access to the video service. Set a new key."
        if key_refused
        else ":white_check_mark: Connected to the video service."
    )
    if next_try is not None:
        service += "\n:x: Out of video credits: top up the account."
        service += f" Next try: {date(next_try)}."
    if down_since is not None:
        service = f":x: The video service went down {date(down_since)}."
        if waiting:
            service += f" Requests waiting: {waiting:,}. I'll keep trying."
    if slowed_down:
        service += "\n:hourglass: The video service is busy. I'll keep trying."
    posted = ":white_check_mark: All messages delivered."
    if unsent:
        posted = f":hourglass: Messages waiting: {unsent:,}."
    if to_approve:
        posted += f"\n:hourglass: Waiting for approval: {to_approve:,}."
    return f"Requests today (UTC): {used:,} of {limit:,}.\n{service}\n{posted}"


def spending_text(spending: MonthSpending, price: Price = NO_PRICE) -> str:
    """Return what was used this month: all of it, and by those who used most."""
    people = [_person(each, price) for each in spending.people[:_TOP]]
    if (others := len(spending.people) - _TOP) > 0:
        people.append(f"and {others:,} more {'person' if others == 1 else 'people'}")
    return joined(["*Usage this month*", f"{_total(spending, price)}.", *people], MAX_SECTION)


def spending_modal(spending: MonthSpending, now: datetime, price: Price = NO_PRICE) -> Json:
    """Return the modal for a month, with a menu of those before ``now``."""
    months = {_value(each): _option(each) for each in _months(now)}
    chosen = months.setdefault(_value(spending.since), _option(spending.since))
    menu = element("static_select", CHOOSE_MONTH, options=[*months.values()], initial_option=chosen)
    people = [_person(each, price) for each in spending.people[:_MAX_PEOPLE]]
    blocks = [{**actions([menu]), "block_id": MONTH}, section(f"*{_total(spending, price)}*")]
    blocks += [
        section(joined(people[at : at + _PER_SECTION], MAX_SECTION))
        for at in range(0, len(people), _PER_SECTION)
    ]
    return modal("", "Usage", close="Close", blocks=blocks)


def month_named(value: str, now: datetime) -> datetime:
    """Return the month that was chosen in the menu; this one if there is none of that name."""
    return next((each for each in _months(now) if _value(each) == value), now)


def spent(person: PersonSpending, price: Price) -> str:
    """Return what somebody asked for, in words: "3 videos, about 4 min spoken, 1 training"."""
    parts = []
    if person.videos:
        parts.append("1 video" if person.videos == 1 else f"{person.videos:,} videos")
    if person.videos and person.spoken:
        parts.append(f"about {brief(person.spoken)} spoken")
        parts.append(price.of(person.spoken))
    if person.trainings:
        parts.append("1 training" if person.trainings == 1 else f"{person.trainings:,} trainings")
    return ", ".join(filter(None, parts))


def _total(spending: MonthSpending, price: Price) -> str:
    return spent(spending.total, price) or "Nothing yet"


def _person(person: PersonSpending, price: Price) -> str:
    return f"<@{person.user}>: {spent(person, price)}"


def _months(now: datetime) -> list[datetime]:
    """Return the first moments of the last months, newest first."""
    months = [month_start(now)]
    while len(months) < _MONTHS:
        months.append(month_start(months[-1] - timedelta(days=1)))
    return months


def _value(month: datetime) -> str:
    return month.strftime("%Y-%m")


def _option(month: datetime) -> Json:
    return option(month.strftime("%B %Y"), _value(month))
