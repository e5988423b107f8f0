"""The words of the question, without a Slack."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bot.model import Delivery, DeliveryState, Job, Role, Settlement, State
from bot.slack.outbox.messages import compose
from bot.slack.views.blocks import Message
from bot.slack.views.question import MAX_LISTED, question, question_list
from sandbox import mrkdwn
from sandbox.block_kit import objects, validate_message
from tests.slack.test_cards import ANA, BEN, JOB, JOBS, PRESENTER, PRESENTERS, many

HOW_QUESTIONS_END = set(Settlement) - {Settlement.APPROVED, Settlement.DECLINED}
OWED = Delivery(1, "7", Role.QUESTION, DeliveryState.PENDING, "C1", None, None, 1, 0, None, 0)
ASKED = replace(JOB, state=State.UNCONFIRMED, asked=1, attempts=2)


def pings(message: Message) -> set[str]:
    return set(mrkdwn.pings(message.text, list(message.blocks)))


def test_without_callbacks_the_first_question_is_for_the_admins_who_can_see_it() -> None:
    def asked(owed: Delivery, job: Job, *admins: str) -> Message:
        return question(owed, job, PRESENTER, admins, admins_first=True)

    first = asked(OWED, ASKED, BEN, "U1")
    assert first.text.startswith(f"<@{BEN}> and <@U1> *Did this video")
    assert pings(first) == {"U1", BEN}
    assert "The person who asked can answer too." in first.text
    again = asked(OWED, replace(ASKED, asked=2), BEN)
    assert pings(again) == {ANA, BEN}
    for other in (
        asked(OWED, ASKED),
        asked(OWED, ASKED, ANA, BEN),
        asked(replace(OWED, channel="D1"), ASKED, BEN),
        asked(replace(OWED, channel=ANA, direct=True), ASKED, BEN),
    ):
        assert other.text.startswith(f"<@{ANA}> *Did this video")


@many
@given(job=JOBS, settled_as=st.none() | st.sampled_from(Settlement), direct=st.booleans())
def test_slack_accepts_any_question(
    job: Job, settled_as: Settlement | None, *, direct: bool
) -> None:
    admins = [f"U{number:010}" for number in range(80)]
    asked = replace(OWED, settled_as=settled_as, direct=direct)
    message = question(asked, job, PRESENTERS[job.kind], admins)
    assert validate_message(message.text, list(message.blocks)) == []
    assert pings(message) <= {*admins, job.user}
    if settled_as is None:
        assert pings(message) == {*admins, job.user}
    assert all(each["text"] for each in objects(message.blocks) if "text" in each)


@many
@given(
    jobs=st.lists(JOBS, min_size=2, max_size=MAX_LISTED + 9),
    settled_as=st.none() | st.sampled_from(sorted(HOW_QUESTIONS_END)),
    direct=st.booleans(),
)
def test_slack_accepts_any_list(
    jobs: list[Job], settled_as: Settlement | None, *, direct: bool
) -> None:
    admins = [f"U{number:010}" for number in range(80)]
    owed = replace(OWED, direct=direct)
    asked = [(replace(owed, settled_as=settled_as), each) for each in jobs]
    asked[0] = (owed, jobs[0])
    message = question_list(owed, jobs[0], asked, PRESENTERS, admins)
    assert validate_message(message.text, list(message.blocks)) == []
    assert pings(message) == {*admins, jobs[0].user}
    assert all(each["text"] for each in objects(message.blocks) if "text" in each)


def test_a_list_is_a_question_again_where_the_other_kinds_are_no_longer_supported() -> None:
    other = replace(ASKED, id="8", kind="gone")
    message = compose(OWED, ASKED, PRESENTERS, listed=[(OWED, other)])
    assert message == compose(OWED, ASKED, PRESENTERS)


def test_a_request_that_was_asked_about_before_is_listed_once() -> None:
    other = replace(ASKED, id="8")
    settled = replace(OWED, settled_as=Settlement.CREATED_AGAIN)
    message = compose(settled, ASKED, PRESENTERS, listed=[(OWED, other), (OWED, ASKED)])
    assert "*Did these 2 videos get made?*" in message.text
    assert "again." not in message.text.split("Please")[0]
