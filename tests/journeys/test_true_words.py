"""What is said of what was not done is known: an earlier attempt, or a lost commit, may differ."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bot.app import FEATURES
from bot.model import Failure, Job, State
from bot.slack.views.buttons import question_buttons
from bot.slack.views.card import card
from bot.slack.views.reply import reply
from bot.store import DatabaseUnavailable, DatabaseUncertain
from bot.store.jobs import Jobs
from sandbox.block_kit import objects
from tests.house.test_house_rules import JOB, PRESENTERS
from tests.world import REPLICA, World

CLAIMS = (
    "nothing was",
    "nothing is",
    "pays twice",
    "pay twice",
    "weren't charged",
    "won't be charged",
    "wasn't created",
    "was not created",
)
KINDS = [feature.kind.name for feature in FEATURES]


def claims_in(text: str) -> list[str]:
    """Return the sentences in a text that say that nothing was done."""
    return [each for each in CLAIMS if each in text.casefold()]


def after_create_again(kind: str) -> list[Job]:
    """Return a job in every state after *Create again*, when the first attempt may have worked."""
    base = replace(JOB, kind=kind, attempts=2, asked_at=JOB.created_at + timedelta(hours=1))
    going = [
        replace(base, state=state, asked=asked, failures=failures, remote_id=remote_id)
        for state in State
        if state is not State.FAILED
        for asked in (0, 1, 2)
        for failures in (0, 5)
        for remote_id in (None, "x1")
    ]
    failed = [
        replace(base, state=State.FAILED, failure=failure, reason=reason)
        for failure in Failure
        for reason in ("", "Not today.")
    ]
    return [*going, *failed]


def test_after_create_again_no_message_says_that_nothing_was_created(
    subtests: pytest.Subtests,
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            for job in after_create_again(kind):
                for message in (card(job, PRESENTERS[kind]), reply(job, PRESENTERS[kind])):
                    assert not claims_in(message.text), (job.state, job.failure, message.text)
                    assert not claims_in(str(message.blocks)), (job.state, job.failure)


def test_after_create_again_a_refusal_says_what_is_not_known_of_the_earlier_attempt(
    subtests: pytest.Subtests,
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            refused = replace(
                JOB,
                kind=kind,
                state=State.FAILED,
                failure=Failure.REFUSED,
                attempts=2,
                asked_at=JOB.created_at,
            )
            assert "charged for an earlier try" in reply(refused, PRESENTERS[kind]).text
            first = replace(refused, attempts=1, asked_at=None)
            assert "You weren't charged." in reply(first, PRESENTERS[kind]).text


def test_creating_a_third_time_warns_of_every_earlier_attempt() -> None:
    asked = replace(JOB, state=State.UNCONFIRMED, asked=1, attempts=2, asked_at=JOB.created_at)
    [dialog] = [
        each["confirm"]["text"]["text"]
        for each in objects(question_buttons(asked, PRESENTERS["video"]))
        if each.get("action_id") == "job_create_again"
    ]
    assert "earlier" in dialog
    assert "both" not in dialog


@pytest.mark.parametrize("failure", [DatabaseUncertain, DatabaseUnavailable, RuntimeError])
async def test_a_form_that_could_not_be_saved_does_not_say_that_nothing_was_started(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    # The first copy was saved and its answer lost, or its commit got no answer.
    form = await world.open_form(world.ana)
    submit = Jobs.submit

    async def save_without_an_answer(jobs: Jobs, *request: Any, **options: Any) -> None:  # noqa: ANN401
        await submit(jobs, *request, **options)
        raise failure("its disk does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(Jobs, "submit", save_without_an_answer)
        await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    said = " ".join(form.errors.values())
    assert re.search("try again|submit again", said.lower())
    assert not claims_in(said.replace("It's safe to try again", ""))
    await form.submit()
    await world.advance(minutes=10)
    assert world.created_count() == 1, "the second submission found the first"
