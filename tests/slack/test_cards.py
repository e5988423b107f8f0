"""Cards, closing replies and questions: pure functions of a job, whatever is in it."""

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.app import FEATURES
from bot.model import (
    Approval,
    Delivery,
    DeliveryState,
    Failure,
    Job,
    Role,
    Settlement,
    Snapshot,
    State,
    Verdict,
)
from bot.slack.features.jobs import details, status_message
from bot.slack.views.blocks import Message, escaped, in_order, link, one_line, short_name
from bot.slack.views.buttons import MORE, STOP
from bot.slack.views.card import card, redirected, reply
from bot.slack.views.question import MAX_LISTED, questions
from sandbox import mrkdwn
from sandbox.block_kit import objects, validate_message, validate_view
from tests.world import World, buttons_of

ANA, BEN = "U0ANA", "U0BEN"
NAMES = {ANA: "Ana Lima", BEN: "Ben Okafor"}
NINE = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
WATCH = "https://watch.example/v1"
FILE = "https://files.example/v1.mp4"

JOB = Job(
    id="7",
    kind="video",
    params={"replica_id": "r-anna-42", "script": "Hello, world.", "video_name": "Greeting"},
    user=ANA,
    channel="C0STUDIO",
    thread_ts=None,
    created_at=NINE,
)
READY = Snapshot(
    "v1",
    "ready",
    Verdict.SUCCEEDED,
    facts={"hosted_url": WATCH, "download_url": FILE, "script": "Hello, world."},
)
PRESENTERS = {feature.kind.name: feature.presenter for feature in FEATURES}
PRESENTER, REPLICA_PRESENTER = PRESENTERS["video"], PRESENTERS["replica"]


def buttons(message: Message) -> dict[str, dict[str, Any]]:
    """Return the buttons of a message, and what its menu offers, by their labels."""
    return {each["text"]["text"]: dict(each) for each in buttons_of(message.blocks)}


TRAINING = replace(
    JOB,
    kind="replica",
    params={
        "train_video_url": "https://storage.example.com/kim.mp4?key=secret",
        "consent_video_url": "https://storage.example.com/yes.mp4",
        "replica_name": "Kim",
    },
)
TRAINED = Snapshot(
    "r1",
    "completed",
    Verdict.SUCCEEDED,
    facts={"replica_name": "Kim", "thumbnail_video_url": FILE, "training_progress": "3/3"},
)


def in_training(progress: str) -> Job:
    snapshot = Snapshot("r1", "started", Verdict.GOING, facts={"training_progress": progress})
    return replace(TRAINING, state=State.RUNNING, started_at=NINE, snapshot=snapshot)


def test_a_sentence_with_another_meaning_is_not_explained(subtests: pytest.Subtests) -> None:
    for reason in [
        "Please try again in a few minutes",
        "The video is longer than 10 minutes",
        "The consent video is too short",
        "Your plan does not give access to this",
        "You have reached your replica limit",
        "replica_name is too short",
        "https://storage.example.com/presenter/a.mp4 has no audio track",
    ]:
        with subtests.test(reason=reason):
            job = replace(
                TRAINING, state=State.FAILED, failure=Failure.SERVICE_FAILED, reason=reason
            )
            assert "Most likely" not in reply(job, REPLICA_PRESENTER).text


NASTY = [
    "<!channel>",
    "<!here|@here>",
    f"<@{BEN}> & <#C1>",
    "<!subteam^S123|@all>",
    "<https://evil.example|Watch>",
    "<!date^0^{date}|x>",
    "`code` *bold* _it_ ~no~ ```x```",
    "{called} {} %s {0}",
    "👩‍👩‍👧‍👦 é 🙂" * 40,
    "\u202eright to left\u202c \u200b",
    "\n \n\t\n",
    "\x00\x07",
    "&" * 3000,
    "<" * 3000,
    "word " * 600,
    "line\n" * 600,
    "&amp;lt;" * 300,
    # Few characters, and more UTF-16 units and bytes.
    "😀" * 3000,
    "你好世界" * 500,
    "é\u0301" * 1500,
    "🙂 & " * 800,
]
PEOPLE = st.text() | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY)).map("".join)
LINKS = PEOPLE | st.sampled_from(
    [
        WATCH,
        "http://<!channel>/",
        "https://a.example/?a=1&b=<x>|y&lt;",
        "https://a.example/" + "&" * 1990,
        "https://a.example/" + "x" * 1970,
        "https://a.example/" + "x" * 5000,
        "https://xn--/",
        "https://é.example/ü",
        "https://user:pw@a.example/",
        "https://a b/",
        "https:///x",
        "https://[::1]/",
        "javascript:alert(1)",
        "//a.example",
    ]
)
WHEN = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
SNAPSHOTS = st.builds(
    Snapshot,
    remote_id=PEOPLE.filter(one_line),
    status=PEOPLE,
    verdict=st.sampled_from(Verdict),
    reason=PEOPLE,
    facts=st.fixed_dictionaries(
        {},
        optional={
            "hosted_url": LINKS,
            "download_url": LINKS,
            "stream_url": LINKS,
            "thumbnail_video_url": LINKS,
            "status_details": PEOPLE,
            "script": PEOPLE,
            "created_at": PEOPLE | WHEN.map(str),
            "replica_name": PEOPLE,
            "training_progress": PEOPLE | st.sampled_from(["1/3", "0/1", "999999/999999", "7/3"]),
        },
    ),
)
JOBS = st.builds(
    Job,
    id=st.sampled_from(["7", "1234567890"]),
    kind=st.sampled_from(sorted(PRESENTERS)),
    params=st.dictionaries(
        st.sampled_from(
            [
                *("replica_id", "script", "video_name", "background_url"),
                *("replica_name", "train_video_url", "consent_video_url"),
            ]
        ),
        PEOPLE,
    ),
    user=st.just(ANA),
    channel=st.sampled_from(["C0STUDIO", "D0BEN", "G0OLD"]),
    thread_ts=st.none(),
    created_at=WHEN,
    state=st.sampled_from(State),
    failures=st.integers(0, 5),
    remote_id=st.none() | PEOPLE,
    snapshot=st.none() | SNAPSHOTS,
    failure=st.none() | st.sampled_from(Failure),
    reason=PEOPLE,
    late=st.booleans(),
    typical_duration=st.none() | st.timedeltas(timedelta(0), timedelta(days=400)),
    asked=st.integers(0, 3),
    orphaned_ids=st.lists(PEOPLE, max_size=60).map(tuple),
    waits_for=st.none() | PEOPLE,
    started_at=st.none() | WHEN,
    ended_at=st.none() | WHEN,
    erased=st.booleans(),
    approval=st.none()
    | st.builds(
        Approval,
        asked=st.sampled_from([(), ("C0BOSS",), (BEN,), (BEN, ANA, "U0X", "U0Y")]),
        until=WHEN,
        decided_by=st.none() | st.just(BEN),
    ),
)
many = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

_LINK = r"https?://[^<>|\s]+\|[\w ]+"
_OURS = re.compile(rf"<(@{ANA}|#[CG]\w+|!date\^-?\d+\^[^<>|]*\|[^<>|]*|{_LINK})>")


def bare(text: str) -> str:
    """Return mrkdwn without the control sequences and entities that may be in it."""
    return re.sub("&(amp|lt|gt);", "", _OURS.sub("", text))


def check(message: Message) -> None:
    blocks = list(message.blocks)
    assert validate_message(message.text, blocks) == []
    assert message.text.strip()
    assert mrkdwn.pings(message.text, blocks) <= {ANA}
    assert mrkdwn.pings(message.text, []) <= {ANA}
    ours = [each["text"] for each in objects(blocks) if each.get("type") == "mrkdwn"]
    for text in (message.text, *ours):
        assert not re.search("[<>&]", bare(text))
    shown = [each["text"] for each in objects(blocks) if isinstance(each.get("text"), str)]
    assert all(shown)


@many
@given(JOBS, PEOPLE, st.none() | st.just("") | st.just(WATCH), PEOPLE)
def test_slack_accepts_any_card_and_it_pings_no_one(
    job: Job, replica: str, retry: str | None, name: str
) -> None:
    names = {user: safe for user in (ANA, BEN) if (safe := short_name(name))}
    message = card(job, PRESENTERS[job.kind], replica=replica, retry=retry, names=names)
    check(message)
    assert not mrkdwn.pings(message.text, message.blocks) | mrkdwn.pings(message.text, [])
    check(redirected(message, job, "bot"))


@many
@given(JOBS, st.none() | st.just("") | st.just(WATCH))
def test_slack_accepts_any_reply_and_it_pings_the_requester_once(
    job: Job, retry: str | None
) -> None:
    message = reply(job, PRESENTERS[job.kind], retry=retry)
    check(message)
    check(redirected(message, job, "bot"))
    pinged = {ANA} if job.failure is not Failure.STOPPED else set()
    assert message.text.count(f"<@{ANA}>") == len(pinged)
    assert mrkdwn.pings(message.text, message.blocks) == pinged


@many
@given(JOBS, PEOPLE)
def test_slack_accepts_the_details_of_any_job(job: Job, replica: str) -> None:
    for reader in (ANA, BEN):
        view = details(job, PRESENTERS[job.kind], reader=reader, replica=replica)
        assert validate_view(view) == []


@many
@given(JOBS, st.none() | SNAPSHOTS, PEOPLE)
def test_slack_accepts_any_status(job: Job, snapshot: Snapshot | None, unread: str) -> None:
    check(status_message(PRESENTERS[job.kind], job, snapshot, ANA, unread))


@many
@given(JOBS)
def test_a_card_can_be_checked_again_only_when_it_is_overdue(job: Job) -> None:
    offered = {each["action_id"] for each in buttons(card(job, PRESENTERS[job.kind])).values()}
    assert (STOP in offered) == (job.state in {State.RUNNING, State.OVERDUE})
    assert MORE in offered


def test_a_link_is_shown_only_when_the_video_is_ready(subtests: pytest.Subtests) -> None:
    for state in State:
        with subtests.test(state=state):
            going = replace(READY, verdict=Verdict.GOING)
            of = job(state, snapshot=going, failure=Failure.SERVICE_FAILED)
            for message in (card(of, PRESENTER), reply(of, PRESENTER)):
                shown = message.text + json.dumps(message.blocks)
                assert (WATCH in shown) == (state is State.SUCCEEDED)
                assert (FILE in shown) == (state is State.SUCCEEDED)


async def test_any_text_passes_through_the_form_the_card_the_reply_and_the_list(
    world: World, subtests: pytest.Subtests
) -> None:
    made = 0
    for words in [each for each in NASTY if any(map(str.isalnum, each))]:
        with subtests.test(words=words):
            values = {"script": words[:3000], "video_name": words[:100]}
            card = await world.after(world.request_video(world.ana, values), minutes=5)
            assert world.reply(card).pings == {world.ana.user.id}
            assert not world.now(card).pings
            await world.open_form(world.ana, words[:2900])
            listed = await world.ana.command("/video", "list")
            assert listed.message is not None
            assert listed.message.pings == frozenset()
            await world.after(world.ana.command("/video", "status 1"))
            made += 1
            assert world.created_count() == made


@given(st.text("&<>ab ") | st.text(), st.integers(0, 30))
def test_an_escaped_text_fits_and_keeps_its_entities_whole(text: str, limit: int) -> None:
    safe = escaped(text, limit)
    assert len(safe.encode()) <= limit
    assert not re.search("[<>&]", bare(safe))
    shown, whole = html.unescape(safe), in_order(text)
    assert shown == whole or whole.startswith(shown.removesuffix("…"))


def test_a_very_long_text_is_cut_quickly_even_if_none_of_it_fits() -> None:
    assert escaped("&" * 1_000_000, 100) == "&amp;" * 19 + "…"
    assert escaped("&", 4) == "…"
    assert escaped("&", 0) == escaped("&", -20) == ""


@many
@given(LINKS)
def test_a_link_of_the_service_is_a_plain_link_or_none(url: str) -> None:
    safe = link(url)
    assert safe is None or re.fullmatch(r"https?://[\w.-]+(:\d+)?[/?#][!-;=?-{}~]*", safe, re.ASCII)


RETRY: Final = "https://sandbox.slack.com/archives/C0STUDIO/p1772442000000100"


def job(state: State, **changes: Any) -> Job:  # noqa: ANN401 - a job's own fields
    return replace(JOB, state=state, **changes)


def rendering(progress: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    facts = {"generation_progress": progress} if progress else {}
    snapshot = Snapshot("v1", "generating", Verdict.GOING, facts=facts)
    usual = timedelta(minutes=2, seconds=10)
    return replace(
        job(State.RUNNING, snapshot=snapshot, started_at=NINE, typical_duration=usual), **changes
    )


def failed_job(failure: Failure, reason: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    return job(State.FAILED, failure=failure, reason=reason, ended_at=NINE, **changes)


def deleted(reason: str) -> Job:
    gone = Snapshot("v1", "deleted", Verdict.FAILED, reason)
    return failed_job(Failure.SERVICE_FAILED, reason, snapshot=gone, remote_id="v1")


WELL: Final = job(State.SUCCEEDED, remote_id="v1", snapshot=READY, ended_at=NINE)
TRAINED_JOB: Final = replace(
    TRAINING, state=State.SUCCEEDED, remote_id="r1", snapshot=TRAINED, ended_at=NINE
)
BAD_FOOTAGE: Final = replace(
    TRAINING,
    state=State.FAILED,
    failure=Failure.SERVICE_FAILED,
    reason="The file could not be downloaded.",
)

CARDS: Final[dict[str, Job]] = {
    "new": job(State.QUEUED),
    "out of reach": job(State.QUEUED, failures=3),
    "no credit": job(State.QUEUED, held_by=Failure.OUT_OF_CREDIT, held_until=NINE),
    "unclear": job(State.UNCONFIRMED),
    "running": rendering(),
    "the first of its kind": rendering(typical_duration=None),
    "with progress": rendering("40/100"),
    "not readable now": rendering(failures=3),
    "waiting for its replica": rendering(waits_for="r1", late=True),
    "late": rendering(late=True),
    "slower than 9 of 10": rendering(slow=True, slow_after=timedelta(minutes=4)),
    "overdue": rendering(state=State.OVERDUE),
    "ready": WELL,
    "ready without a link": replace(WELL, snapshot=Snapshot("v1", "ready", Verdict.SUCCEEDED)),
    "ready twice": replace(WELL, orphaned_ids=("v0",)),
    "failed": failed_job(Failure.SERVICE_FAILED, "The replica is <shy>."),
    "failed without a reason": failed_job(Failure.SERVICE_FAILED, " \n"),
    "refused": failed_job(Failure.REFUSED, "Script too long"),
    "refused without a reason": failed_job(
        Failure.REFUSED, "The video service answered 400 without saying why."
    ),
    "key rejected": failed_job(Failure.KEY_REJECTED),
    "never sent": failed_job(Failure.UNREACHABLE, "The video service can't be reached."),
    "gone": failed_job(Failure.NOT_FOUND, "Invalid video_id"),
    "never finished": failed_job(Failure.TIMED_OUT, remote_id="v1"),
    "cancelled": failed_job(Failure.CANCELLED),
    "not answered": failed_job(Failure.UNANSWERED),
    "stopped": failed_job(Failure.STOPPED, remote_id="v1"),
    "stopped by an admin": failed_job(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
    "deleted": deleted("The video was deleted"),
    "deleted for a reason": deleted("Deleted by an editor because of its music"),
    "erased": failed_job(Failure.SERVICE_FAILED, erased=True, params={"replica_id": "r1"}),
}
TRAININGS: Final[dict[str, Job]] = {
    "the first training": replace(TRAINING, state=State.RUNNING, started_at=NINE),
    "with progress": replace(in_training("1/4"), typical_duration=timedelta(hours=3)),
    "ready": TRAINED_JOB,
    "failed": BAD_FOOTAGE,
}
REPLIES: Final[dict[str, Job]] = {
    "ready": WELL,
    "ready without a link": CARDS["ready without a link"],
    "failed": failed_job(Failure.SERVICE_FAILED, "Too dark."),
    "no credit": failed_job(Failure.OUT_OF_CREDIT, "No credit"),
    "refused at the second try": failed_job(Failure.REFUSED, "No", attempts=2, asked_at=NINE),
    "never finished": failed_job(Failure.TIMED_OUT, remote_id="v1"),
    "cancelled": failed_job(Failure.CANCELLED),
    "deleted": deleted("The video was deleted"),
    "stopped": failed_job(Failure.STOPPED, remote_id="v1"),
    "stopped by an admin": failed_job(Failure.STOPPED_BY_ADMIN, remote_id="v1"),
    "trained": TRAINED_JOB,
}


def labels(message: Message) -> list[str]:
    return list(buttons(message))


def test_an_erased_job_cannot_be_retried(subtests: pytest.Subtests) -> None:
    for failure in Failure:
        with subtests.test(failure=failure):
            of = failed_job(failure, erased=True, params={})
            for message in (card(of, PRESENTER), reply(of, PRESENTER)):
                assert "Edit and retry" not in labels(message)


def test_words_of_the_service_are_shown_letter_for_letter() -> None:
    of = failed_job(Failure.SERVICE_FAILED, "*No* `way` <!channel>")
    texts = [each["text"] for each in objects(card(of, PRESENTER).blocks) if "text" in each]
    assert "“*No* `way` <!channel>”" in texts


HOW_QUESTIONS_END = set(Settlement) - {Settlement.APPROVED, Settlement.DECLINED}
OWED = Delivery(1, "7", Role.QUESTION, DeliveryState.PENDING, "C1", None, None, 1, 0, None, 0)
ASKED = replace(JOB, state=State.UNCONFIRMED, asked=1, attempts=2)


def pings(message: Message) -> set[str]:
    return set(mrkdwn.pings(message.text, list(message.blocks)))


def test_without_callbacks_the_first_question_is_for_the_admins_who_can_see_it() -> None:
    def asked(owed: Delivery, job: Job, *admins: str) -> Message:
        return questions(owed, job, (), PRESENTERS, admins, admins_first=True)

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
    message = questions(asked, job, (), PRESENTERS, admins)
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
    settled = replace(owed, settled_as=settled_as)
    further = [(settled, replace(each, id=f"7{at}")) for at, each in enumerate(jobs[1:])]
    message = questions(owed, jobs[0], further, PRESENTERS, admins)
    assert validate_message(message.text, list(message.blocks)) == []
    assert pings(message) == {*admins, jobs[0].user}
    assert all(each["text"] for each in objects(message.blocks) if "text" in each)


def test_a_list_is_a_question_again_where_the_other_kinds_are_no_longer_supported() -> None:
    other = replace(ASKED, id="8", kind="gone")
    message = questions(OWED, ASKED, [(OWED, other)], PRESENTERS)
    assert message == questions(OWED, ASKED, (), PRESENTERS)


def test_a_request_that_was_asked_about_before_is_listed_once() -> None:
    other = replace(ASKED, id="8")
    settled = replace(OWED, settled_as=Settlement.CREATED_AGAIN)
    message = questions(settled, ASKED, [(OWED, other), (OWED, ASKED)], PRESENTERS)
    assert "*Did these 2 videos get made?*" in message.text
    assert "again." not in message.text.split("Please")[0]
