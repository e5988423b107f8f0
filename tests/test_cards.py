"""Cards, replies and status messages: clear, and safe for any text of people and the service."""

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.app import FEATURES
from bot.model import Delivery, DeliveryState, Failure, Job, Role, Snapshot, State, Verdict
from bot.slack.blocks import (
    MAX_TEXT,
    Message,
    anchor,
    cut,
    escaped,
    joined,
    link,
    one_line,
    span,
    spoken,
)
from bot.slack.buttons import CHECK_AGAIN
from bot.slack.cards import card
from bot.slack.job_status import status_message
from bot.slack.messages import compose, redirected
from bot.slack.presenters import state_word
from bot.slack.replies import reply
from sandbox import mrkdwn
from sandbox.block_kit import objects, validate_message
from sandbox.faults import CannedResponse
from tests.world import REPLICA, World

ANA, BEN = "U0ANA", "U0BEN"
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
DATE = "<!date^1772442000^{date_short_pretty} at {time}|2026-03-02 09:00 UTC>"
SMALL_PRINT = f"replica r-anna-42 · about 1 second spoken · No. 7. requested {DATE}"


def going(state: State, **changes: Any) -> Job:  # noqa: ANN401 - a job's own fields
    return replace(JOB, state=state, **changes)


def succeeded(**changes: Any) -> Job:  # noqa: ANN401 - a job's own fields
    job = going(State.SUCCEEDED, remote_id="v1", snapshot=READY, ended_at=NINE)
    return replace(job, **changes)


def failed(failure: Failure, reason: str = "", **changes: Any) -> Job:  # noqa: ANN401 - likewise
    return going(State.FAILED, failure=failure, reason=reason, ended_at=NINE, **changes)


def buttons(message: Message) -> dict[str, dict[str, Any]]:
    """Return the buttons of a message by their labels."""
    found = [each for each in objects(message.blocks) if each.get("type") == "button"]
    return {each["text"]["text"]: each for each in found}


# The words


def test_a_new_card_says_who_asked_for_what_and_when() -> None:
    assert card(JOB, PRESENTER).text == (
        f"Video for <@{ANA}>: :hourglass: Starting. Sending your request…\n"
        f"Video: “Greeting”\n{SMALL_PRINT}"
    )


def test_a_card_mentions_the_requester_only_after_it_is_posted_and_pings_no_one() -> None:
    message = card(JOB, PRESENTER, posted=False)
    assert message.text.startswith("Video: :hourglass: Starting.")
    assert mrkdwn.pings(message.text, message.blocks) == set()


def test_a_running_card_says_how_long_such_videos_take() -> None:
    snapshot = Snapshot("v1", "generating", Verdict.GOING)
    job = going(State.RUNNING, snapshot=snapshot, typical_duration=timedelta(minutes=3, seconds=10))
    assert card(job, PRESENTER).text == (
        f"Video for <@{ANA}>: :hourglass_flowing_sand: Rendering. Usually about 3 minutes. "
        "I'll reply here.\nVideo: “Greeting”\n"
        "replica r-anna-42 · about 1 second spoken · service status: generating · No. 7. "
        f"requested {DATE}"
    )


def test_a_card_that_waits_for_an_answer_points_to_the_question() -> None:
    message = card(going(State.UNCONFIRMED, asked=1), PRESENTER)
    assert "Your answer is needed. " in message.text
    assert "answer my question in the thread." in message.text
    assert not buttons(message)


def test_a_ready_card_can_be_watched() -> None:
    message = card(succeeded(), PRESENTER)
    assert message.text == (
        f"Video for <@{ANA}>: :white_check_mark: Ready. See my reply in the thread.\n"
        f"Video: “Greeting”\n{SMALL_PRINT}, ended {DATE}\n<{WATCH}|Watch>\n<{FILE}|Download>"
    )
    assert {label: each["url"] for label, each in buttons(message).items()} == {
        "Watch": WATCH,
        "Download": FILE,
    }


def test_a_failed_card_says_why_and_offers_to_try_again() -> None:
    message = card(failed(Failure.SERVICE_FAILED, "Too <loud> & long"), PRESENTER)
    assert message.text == (
        f"Video for <@{ANA}>: :x: Failed. The video service couldn't create this video. "
        "*Edit and retry* opens the form with everything that was entered. "
        "The video service says:\n"
        f"“Too &lt;loud&gt; &amp; long”\nVideo: “Greeting”\n{SMALL_PRINT}, ended {DATE}"
    )
    assert list(buttons(message)) == ["Edit and retry"]


def test_the_closing_reply_of_a_video_has_its_links_and_its_script() -> None:
    message = reply(succeeded(), PRESENTER)
    assert message.text == (
        f"<@{ANA}> your video “Greeting” is ready.\n<{WATCH}|Watch>\n<{FILE}|Download>\n"
        "Transcript: Hello, world."
    )
    assert list(buttons(message)) == [], "its links stand in it already"


def test_the_closing_reply_of_a_failure_says_what_to_do() -> None:
    message = reply(failed(Failure.OUT_OF_CREDIT, "No credit"), PRESENTER)
    assert message.text == (
        f"<@{ANA}> your video “Greeting” couldn't be created.\n"
        "The video service's account is out of credit; nothing was created. Please tell the person "
        "who manages that account. After that, *Edit and retry* opens the form with everything "
        "that was entered. The video service says:\n“No credit”"
    )


def test_a_failure_without_a_reason_says_so() -> None:
    text = reply(failed(Failure.SERVICE_FAILED, " \n"), PRESENTER).text
    assert text.endswith(
        "The video service couldn't create this video. It didn't say why. *Edit and retry* opens "
        "the form with everything that was entered."
    )


def test_a_video_without_a_link_says_how_to_ask_for_it() -> None:
    job = succeeded(snapshot=Snapshot("v1", "ready", Verdict.SUCCEEDED))
    said = "The video service gave no link that I can show: `/video status 7` checks again."
    assert said in card(job, PRESENTER).text
    assert said in reply(job, PRESENTER).text
    assert buttons(reply(job, PRESENTER)) == {}


@pytest.mark.parametrize(
    ("orphaned", "said"),
    [
        (("v8",), "An earlier attempt was created after all: video v8. It may be charged too."),
        (
            ("v8", "v9"),
            "Earlier attempts were created after all: videos v8, v9. They may be charged",
        ),
    ],
)
def test_a_video_that_turns_up_late_is_shown_on_the_card(orphaned: tuple[str], said: str) -> None:
    message = card(succeeded(orphaned_ids=orphaned), PRESENTER)
    assert said in message.text
    assert said in json.dumps(message.blocks)


def test_a_message_that_its_channel_refused_says_why_it_is_a_direct_message() -> None:
    message = redirected(reply(succeeded(), PRESENTER), JOB)
    note = "I couldn't post this in <#C0STUDIO>, where you asked, so I'm sending it to you."
    assert message.text.startswith(f"{note}\n<@{ANA}> your video")
    assert message.blocks[0]["elements"][0]["text"] == note
    note = "I couldn't post this where you asked, so I'm sending it to you."
    direct = replace(JOB, channel="D0BEN")
    assert redirected(reply(succeeded(), PRESENTER), direct).text.startswith(f"{note}\n")


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_says_what_to_do_next_unless_its_job_was_erased(failure: Failure) -> None:
    retry = "*Edit and retry* opens the form"
    job = failed(failure, "Because.")
    assert retry in card(job, PRESENTER).text
    assert "“Because.”" in reply(job, PRESENTER).text
    job = replace(job, erased=True, params={})
    for message in (card(job, PRESENTER), reply(job, PRESENTER)):
        assert retry not in message.text
        assert buttons(message) == {}
        assert not re.search(r"  |After that| \.", message.text)


def test_each_failure_has_a_sentence_of_its_own() -> None:
    assert len({card(failed(failure), PRESENTER).text for failure in Failure}) == len(Failure)


@pytest.mark.parametrize("state", State)
def test_every_state_has_words(state: State) -> None:
    message = card(going(state), PRESENTER)
    heading = message.text.split(": ", 1)[1].split("\n")[0]
    assert re.match(r":\w+: [A-Z][a-z ]+\. [A-Z].+[.:…]$", heading)
    assert state_word(going(state), PRESENTER)


def test_a_delivery_is_composed_according_to_its_role() -> None:
    job = succeeded()
    owed = Delivery(
        1, job.id, Role.CARD, DeliveryState.PENDING, job.channel, None, None, 1, 0, None, 0
    )
    assert compose(owed, job, PRESENTERS) == card(job, PRESENTER, posted=False)
    assert compose(replace(owed, ts="1.0"), job, PRESENTERS) == card(job, PRESENTER)
    assert compose(replace(owed, role=Role.REPLY), job, PRESENTERS) == reply(job, PRESENTER)


# Replicas

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


def test_a_training_shows_a_bar_figures_and_its_start() -> None:
    text = card(in_training("1/4"), REPLICA_PRESENTER).text
    assert text.startswith(f"Replica for <@{ANA}>: :hourglass_flowing_sand: Training. ")
    assert "`███░░░░░░░░░` 1 of 4 steps done." in text
    assert "footage storage.example.com · consent storage.example.com" in text
    assert "started <!date^1772442000^{ago}|2026-03-02 09:00 UTC>" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("progress", "full"),
    [("0/7", 0), ("1/100", 0), ("50/100", 6), ("99/100", 12), ("3/3", 12), (" 1 / 2", None)],
)
def test_a_bar_is_as_full_as_the_training(progress: str, full: int | None) -> None:
    text = card(in_training(progress), REPLICA_PRESENTER).text
    assert (full is None) == ("█" not in text and "░" not in text)
    assert text.count("█") == (full or 0)
    assert text.count("█") + text.count("░") in {0, 12}


def test_a_training_that_is_late_still_shows_how_far_it_is() -> None:
    text = card(replace(in_training("1/4"), late=True), REPLICA_PRESENTER).text
    assert "This is taking longer than usual" in text
    assert "1 of 4 steps" in text


def test_a_video_that_waits_for_its_replica_says_so() -> None:
    text = card(going(State.RUNNING, waits_for="r1", late=True), PRESENTER).text
    assert "Waiting for its replica. The replica is still training" in text
    assert "longer than usual" not in text


def test_a_trained_replica_can_be_seen_and_used() -> None:
    job = replace(TRAINING, state=State.SUCCEEDED, remote_id="r1", snapshot=TRAINED, ended_at=NINE)
    for message in (card(job, REPLICA_PRESENTER), reply(job, REPLICA_PRESENTER)):
        assert f"<{FILE}|Preview replica>" in message.text
        assert buttons(message)["Use in a video"]["value"] == "r1"
        assert "Ready to use by everyone in this workspace" in message.text


@pytest.mark.parametrize("remote_id", [None, "", "two words", "r" * 151, "<!channel>"])
def test_a_replica_whose_id_no_form_can_hold_has_no_video_button(remote_id: str | None) -> None:
    job = replace(TRAINING, state=State.SUCCEEDED, remote_id=remote_id, snapshot=TRAINED)
    assert "Use in a video" not in buttons(reply(job, REPLICA_PRESENTER))


@pytest.mark.parametrize("failure", Failure)
def test_only_what_the_service_says_about_the_footage_is_explained(failure: Failure) -> None:
    job = replace(
        TRAINING, state=State.FAILED, failure=failure, reason="The file could not be reached"
    )
    explained = "Usually that means" in reply(job, REPLICA_PRESENTER).text
    assert explained == (failure is Failure.SERVICE_FAILED)


@pytest.mark.parametrize(
    "reason",
    [
        "Please try again in a few minutes",
        "The video is longer than 10 minutes",
        "The consent video is too short",
        "Your plan does not give access to this",
        "You have reached your replica limit",
        "replica_name is too short",
        "https://storage.example.com/presenter/a.mp4 has no audio track",
    ],
)
def test_a_sentence_with_another_meaning_is_not_explained(reason: str) -> None:
    job = replace(TRAINING, state=State.FAILED, failure=Failure.SERVICE_FAILED, reason=reason)
    assert "Usually that means" not in reply(job, REPLICA_PRESENTER).text


# Whatever people and the service wrote

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
@given(JOBS)
def test_slack_accepts_any_card_and_it_pings_no_one_else(job: Job) -> None:
    message = card(job, PRESENTERS[job.kind])
    check(message)
    check(redirected(message, job))


@many
@given(JOBS)
def test_slack_accepts_any_reply_and_it_pings_the_requester_once(job: Job) -> None:
    message = reply(job, PRESENTERS[job.kind])
    check(message)
    check(redirected(message, job))
    assert message.text.count(f"<@{ANA}>") == 1
    assert mrkdwn.pings(message.text, message.blocks) == {ANA}


@many
@given(JOBS, st.none() | SNAPSHOTS, PEOPLE)
def test_slack_accepts_any_status(job: Job, snapshot: Snapshot | None, unread: str) -> None:
    check(status_message(PRESENTERS[job.kind], job, snapshot, ANA, unread))


@many
@given(SNAPSHOTS)
def test_slack_accepts_the_status_of_a_video_without_a_job(snapshot: Snapshot) -> None:
    check(status_message(PRESENTER, None, snapshot, BEN))


@many
@given(JOBS)
def test_a_card_can_be_checked_again_only_when_it_is_overdue(job: Job) -> None:
    offered = {each["action_id"] for each in buttons(card(job, PRESENTERS[job.kind])).values()}
    assert (CHECK_AGAIN in offered) == (job.state is State.OVERDUE)


@pytest.mark.parametrize("state", State)
def test_a_link_is_shown_only_when_the_video_is_ready(state: State) -> None:
    job = going(
        state, snapshot=replace(READY, verdict=Verdict.GOING), failure=Failure.SERVICE_FAILED
    )
    said = [card(job, PRESENTER), reply(job, PRESENTER)]
    for message in said:
        shown = message.text + json.dumps(message.blocks)
        assert (WATCH in shown) == (state is State.SUCCEEDED)
        assert (FILE in shown) == (state is State.SUCCEEDED)


def test_others_see_nothing_of_a_script() -> None:
    message = status_message(
        PRESENTER, succeeded(params={**JOB.params, "script": "My secret"}), None, BEN
    )
    assert "Hello, world." not in message.text + json.dumps(message.blocks)
    assert "My secret" not in message.text + json.dumps(message.blocks)


@pytest.mark.parametrize("words", [each for each in NASTY if any(map(str.isalnum, each))])
async def test_any_text_passes_through_the_form_the_card_the_reply_and_the_list(
    world: World, words: str
) -> None:
    values = {"script": words[:3000], "video_name": words[:100]}
    card = await world.request_video(world.ana, values)
    await world.advance(minutes=5)
    [reply] = world.replies(card)
    assert world.now(card).pings == reply.pings == {world.ana.user.id}
    await world.open_form(world.ana, words[:2900])
    listed = await world.ana.command("/video", "list")
    assert listed.message is not None
    assert listed.message.pings == frozenset()
    await world.ana.command("/video", "status 1")
    await world.settle()
    assert world.created_count() == 1


async def test_a_failed_job_with_any_text_can_be_retried_in_the_form(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(422, {"error": "No."}))
    values = {"script": "&" * 2999 + "x", "video_name": "<!channel>"}
    card = await world.request_video(world.ana, values)
    answer = await world.ana.click(world.now(card), "Edit and retry")
    assert answer.ok
    assert world.ana.modal is not None
    typed = world.ana.modal.view.values
    assert typed["script"]["script"]["value"] == values["script"]
    assert typed["video_name"]["video_name"]["value"] == "<!channel>"
    assert typed["replica_id"]["video_replica"]["selected_option"]["value"] == REPLICA


# The bricks


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_fits_and_starts_like_the_whole_text(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode("utf-16-le")) <= 2 * limit
    assert short == text or text.startswith(short.removesuffix("…"))


@given(st.text("&<>ab ") | st.text(), st.integers(0, 30))
def test_an_escaped_text_fits_and_keeps_its_entities_whole(text: str, limit: int) -> None:
    safe = escaped(text, limit)
    assert len(safe.encode()) <= limit
    assert not re.search("[<>&]", bare(safe))
    shown = html.unescape(safe)
    assert shown == text or text.startswith(shown.removesuffix("…"))


def test_a_very_long_text_is_cut_quickly_even_if_none_of_it_fits() -> None:
    assert escaped("&" * 1_000_000, 100) == "&amp;" * 19 + "…"
    assert escaped("&", 4) == "…"
    assert escaped("&", 0) == escaped("&", -20) == ""


def test_joined_parts_are_complete_or_left_out() -> None:
    assert joined(["one", "", "three"]) == "one\nthree"
    assert joined(["a" * MAX_TEXT, "b"]) == "a" * MAX_TEXT
    assert joined(["12345", "too long", "67"], 8, by=" ") == "12345 67"


@many
@given(LINKS)
def test_a_link_of_the_service_is_a_plain_link_or_none(url: str) -> None:
    safe = link(url)
    assert safe is None or re.fullmatch(r"https?://[\w.-]+(:\d+)?[/?#][!-;=?-{}~]*", safe, re.ASCII)


def test_a_link_in_a_text_is_escaped_like_any_other_text() -> None:
    assert anchor("https://a.example/?a=1&lt;=2", "Watch") == (
        "<https://a.example/?a=1&amp;lt;=2|Watch>"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://watch.example/v1?a=1&b=2#t", "https://watch.example/v1?a=1&b=2#t"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("https://a.example/a b|c", "https://a.example/a%20b%7Cc"),
        ("https://é.example/", "https://xn--9ca.example/"),
        ("", None),
        ("watch.example/v1", None),
        ("ftp://a.example/", None),
        ("https://user@a.example/", None),
        ("https://<!channel>/", None),
    ],
)
def test_a_link_is_shown_as_it_is_where_it_can_be(url: str, shown: str | None) -> None:
    assert link(url) == shown


def test_the_first_line_is_the_first_one_with_text() -> None:
    assert one_line("\n \n  Hello,   world. \nBye.") == "Hello, world."
    assert one_line(" \n ") == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 second"),
        (40, "40 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (5399, "90 minutes"),
        (5400, "2 hours"),
        (36 * 3600, "2 days"),
        (400 * 86400, "400 days"),
    ],
)
def test_a_duration_is_written_in_words(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def test_150_words_take_a_minute_to_speak() -> None:
    assert spoken("word " * 150) == "60 seconds"
    assert spoken("word " * 750) == "5 minutes"
