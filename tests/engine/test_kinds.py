"""The kinds: parameters from forms, and snapshots from any answer of the service."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.kinds import Comparison, Invalid, Kind, Unreadable, moment, progress
from bot.kinds import replica as replicas
from bot.kinds.replica import REPLICA
from bot.kinds.video import FIELDS, VIDEO, parse
from bot.model import Snapshot, Verdict
from bot.setting_values import MAX_BOX

FORM = {"replica_id": "r-anna-42", "script": "Hello."}
PAGE = "https://example.com/page"
FILM = "https://example.com/film.mp4"

KINDS: list[Kind] = [VIDEO, REPLICA]


def mistakes(fields: dict[str, str]) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        parse(fields, MAX_BOX)
    return dict(caught.value.errors)


def test_a_mistake_is_shown_under_its_field(subtests: pytest.Subtests) -> None:
    for field, value, said in [
        ("replica_id", "", "Pick a replica"),
        ("replica_id", "   ", "Pick a replica"),
        ("replica_id", "two words", "look like a replica ID"),
        ("replica_id", "../x", "look like a replica ID"),
        ("replica_id", "r" * 151, "look like a replica ID"),
        ("script", "", "Write what the replica should say"),
        ("script", "\n\n", "Write what the replica should say"),
        ("script", "x" * 3001, "3,001 characters. The limit is 3,000: shorten it."),
        ("video_name", "x" * 101, "at most 100"),
        ("background_url", "ftp://example.com", "https://"),
        ("background_url", "http://localhost/", "isn't reachable from the internet"),
        ("background_source_url", "https://user:pw@example.com/", "user name or password"),
        ("background", "background_url", "Paste the link"),
        ("background", "background_source_url", "Paste the link"),
    ]:
        with subtests.test(field=field, value=value, said=said):
            place = value if field == "background" else field
            found = mistakes({**FORM, field: value})
            assert list(found) == [place]
            assert said in found[place]


def test_a_video_has_one_background() -> None:
    found = mistakes({**FORM, "background_url": PAGE, "background_source_url": FILM})
    assert found == {"background_source_url": "Choose one background: a web page or a video file."}


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*FIELDS, "background", "where"]), st.text()))
def test_any_form_is_accepted_or_has_named_mistakes(fields: dict[str, str]) -> None:
    try:
        found = parse(fields, MAX_BOX)
    except Invalid as error:
        found = dict(error.errors)
    assert found
    assert found.keys() <= {*FIELDS, "background"}
    assert all(found.values())


FOOTAGE = {"train_video_url": FILM, "agreed": "yes"}


def test_a_training_form_becomes_the_fields_of_the_create_request() -> None:
    fields = {**FOOTAGE, "consent_video_url": PAGE, "replica_name": " Kim "}
    assert replicas.parse({**fields, "where": "C1"}) == {
        "train_video_url": FILM,
        "consent_video_url": PAGE,
        "replica_name": "Kim",
    }
    assert replicas.parse(FOOTAGE) == {"train_video_url": FILM}


def test_a_mistake_in_a_training_form_is_shown_under_its_field(subtests: pytest.Subtests) -> None:
    for field, value, said in [
        ("train_video_url", "", "direct link to the footage"),
        ("train_video_url", "s3://bucket/x", "https://"),
        ("consent_video_url", "http://localhost/", "isn't reachable from the internet"),
        ("replica_name", "x" * 101, "at most 100"),
        ("agreed", "", "Please confirm"),
    ]:
        with subtests.test(field=field, value=value, said=said):
            with pytest.raises(Invalid) as caught:
                replicas.parse({**FOOTAGE, field: value})
            assert list(caught.value.errors) == [field]
            assert said in caught.value.errors[field]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*replicas.FIELDS, "agreed", "where"]), st.text()))
def test_any_training_form_is_accepted_or_has_named_mistakes(fields: dict[str, str]) -> None:
    try:
        found = replicas.parse(fields)
    except Invalid as error:
        found = dict(error.errors)
    assert found
    assert found.keys() <= {*replicas.FIELDS, "agreed"}
    assert all(found.values())


def test_a_progress_is_a_valid_pair_of_numbers_or_none(subtests: pytest.Subtests) -> None:
    for text, found in [
        ("3/7", (3, 7)),
        ("0/1", (0, 1)),
        ("7 / 7", (7, 7)),
        ("999999/999999", (999_999, 999_999)),
        *[(nonsense, None) for nonsense in ("", "abc", "5/0", "0/0", "7/3", "-1/2", "1/2/3", "1/")],
        *[(nonsense, None) for nonsense in ("٣/٤", "1.5/2", "50%", "1000000/1000000", "x3/7")],
    ]:
        with subtests.test(text=text, found=found):
            assert progress(text) == found


def test_a_created_job_is_in_progress_whatever_its_status(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind.name):
            for word in ("ready", "error", "completed", "training", "", None):
                snapshot = kind.created({kind.id_field: "x1", "status": word})
                assert (snapshot.remote_id, snapshot.verdict) == ("x1", Verdict.GOING)
                assert snapshot.status == (word or "")


def test_a_created_job_needs_an_id_which_may_be_a_number(subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        assert kind.created({kind.id_field: 50172}).remote_id == "50172"
        answers: list[Any] = [{"id": "x1"}, {}, [], None]
        answers += [{kind.id_field: each} for each in (None, "", " ", True, ["x1"], {"x": 1})]
        for answer in answers:
            with subtests.test(answer=answer, kind=kind.name), pytest.raises(Unreadable):
                kind.created(answer)


def test_an_answer_without_a_status_in_words_or_about_another_id_is_unreadable(
    subtests: pytest.Subtests,
) -> None:
    statuses: list[Any] = [None, "", "  ", 1, True, ["ready"], {"is": "ready"}]
    others: list[Any] = [None, [], [{"status": "ready"}], "ready", 7, True, {}]
    for kind in KINDS:
        with_status = [{kind.id_field: "x1", "status": status} for status in statuses]
        for answer in (*others, *with_status, {kind.id_field: "x2", "status": "ready"}):
            with subtests.test(answer=answer, kind=kind.name), pytest.raises(Unreadable):
                kind.read(answer, "x1")


STATUSES = {
    Verdict.SUCCEEDED: ["ready", "completed", "Ready", " READY "],
    Verdict.FAILED: ["error", "deleted", "failed", "ERROR"],
    Verdict.GOING: ["queued", "started", "archiving", "not ready", "ready?", "готово"],
}


def test_known_statuses_end_a_job_and_any_other_means_in_progress(
    subtests: pytest.Subtests,
) -> None:
    for verdict, words in STATUSES.items():
        for word, kind in itertools.product(words, KINDS):
            with subtests.test(word=word, kind=kind.name):
                snapshot = kind.read({"status": word}, "x1")
                assert (snapshot.verdict, snapshot.status) == (verdict, word.strip())


def test_the_reason_of_a_failure_is_the_services_sentence(subtests: pytest.Subtests) -> None:
    for kind, field in zip(KINDS, ("status_details", "error_message"), strict=True):
        with subtests.test(kind.name):
            said = "The consent statement was not found"
            assert kind.read({"status": "error", field: said}, "x1").reason == said
            assert kind.read({"status": "ready", field: said}, "x1").reason == ""
            for no_text in (None, "", 7, [7], {"code": 7}):
                assert kind.read({"status": "error", field: no_text}, "x1").reason == ""


def test_the_reason_of_a_failure_is_found_under_other_names(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"error_message": "Too dark", "error_details": "Frame 7"}, "Too dark"),
        ({"error_message": None, "error_details": "Frame 7 is dark"}, "Frame 7 is dark"),
        ({"error_details": {"code": 7, "message": "Too dark"}}, "Too dark"),
        ({"error": {"message": "Too dark"}}, "Too dark"),
        ({"errors": [{"msg": "Too dark"}, "Too loud"]}, "Too dark; Too loud"),
        ({"failure_reason": "Too dark"}, "Too dark"),
        ({"status_details": "", "error_message": "Too dark"}, "Too dark"),
        ({"error_details": "See https://a.example/b?sig=SECRET"}, "See https://a.example/b"),
        ({"tags": ["one two"], "title": "A name"}, ""),
    ]
    for fields, reason in cases:
        for kind in KINDS:
            with subtests.test(fields=fields, reason=reason, kind=kind.name):
                assert kind.read({"status": "error", **fields}, "x1").reason == reason
                assert kind.read({"status": "ready", **fields}, "x1").reason == ""


def test_a_recorded_video_answer_is_read_in_full() -> None:
    snapshot = VIDEO.read(
        {
            "video_id": "v1",
            "status": "ready",
            "data": {"script": "Hello.", "voice": 3},
            "download_url": "https://files.example/v1.mp4",
            "stream_url": None,
            "hosted_url": "https://watch.example/v1",
            "status_details": "",
            "created_at": "Mon, 14 Jul 2025 09:14:24 GMT",
            "generation_progress": "100/100",
            "error_details": None,
        },
        "v1",
    )
    facts = {
        "script": "Hello.",
        "download_url": "https://files.example/v1.mp4",
        "hosted_url": "https://watch.example/v1",
        "created_at": "Mon, 14 Jul 2025 09:14:24 GMT",
        "generation_progress": "100/100",
    }
    assert snapshot == Snapshot("v1", "ready", Verdict.SUCCEEDED, facts=facts)


def test_a_recorded_replica_answer_is_read_in_full() -> None:
    said = {
        "replica_name": "Kim",
        "thumbnail_video_url": "https://files.example/r1.mp4",
        "training_progress": "100/100",
        "created_at": "2024-01-24T07:14:03.327Z",
        "updated_at": "2024-01-24T11:14:03.327Z",
    }
    answer = {**said, "replica_id": "r1", "status": "completed", "error_message": None, "new": 1}
    snapshot = REPLICA.read(answer, "r1")
    assert snapshot == Snapshot("r1", "completed", Verdict.SUCCEEDED, facts=said)


def test_a_video_answer_without_a_script_has_none(subtests: pytest.Subtests) -> None:
    nothing: list[Any] = [None, {}, [], "Hello.", {"script": None}, {"script": ["Hello."]}]
    for data in nothing:
        with subtests.test(data=data):
            assert "script" not in VIDEO.read({"status": "ready", "data": data}, "v1").facts


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
NAMES = ["video_id", "replica_id", "status", "data", "status_details", "hosted_url"]
ANSWERS = JSON | st.dictionaries(
    st.sampled_from(NAMES), JSON | st.sampled_from(["x1", "ready", "error"])
)


@settings(deadline=None)
@given(kind=st.sampled_from(KINDS), answer=ANSWERS)
def test_any_json_is_read_or_unreadable_and_nothing_else(kind: Kind, answer: object) -> None:
    for read in (kind.created, lambda it: kind.read(it, "x1")):
        try:
            snapshot = read(answer)
        except Unreadable:
            continue
        texts = [snapshot.remote_id, snapshot.status, snapshot.reason, *snapshot.facts.values()]
        assert all(isinstance(text, str) for text in texts)
        assert all(snapshot.facts.values())


def test_a_huge_answer_is_read() -> None:
    answer = {"status": "ready", "data": {"script": "x" * 1_000_000}, "more": ["y"] * 10_000}
    assert VIDEO.read(answer, "v1").facts["script"] == "x" * 10_000, "cut to what is of use"


SAME, DIFFERENT, UNKNOWN = Comparison.SAME, Comparison.DIFFERENT, Comparison.UNKNOWN
ASKED = 'Welcome to "Studio 7", dear friends.\n\nToday: the weather, Ana\'s café & \uff21\uff29.'


def test_scripts_are_compared_without_case_spaces_and_punctuation_and_by_beginning(
    subtests: pytest.Subtests,
) -> None:
    for found, expected in [
        (ASKED, SAME),
        ("welcome  to “studio 7” dear friends today the weather ana\u2019s cafe\u0301 ai", SAME),
        ("Welcome to &quot;Studio 7&quot;, dear friends. Today: the weather", SAME),
        ("Welcome to “Studio 7”, dear…", SAME),
        ("Welcome to", UNKNOWN),
        (ASKED + " Made with the free plan.", UNKNOWN),
        ("… ?!", UNKNOWN),
        ("", UNKNOWN),
        ("Welcome to Studio 8, dear friends. Today: the weather", DIFFERENT),
        ("Bye.", DIFFERENT),
    ]:
        with subtests.test(found=found, expected=expected):
            answer = {"status": "x", "data": {"script": found}}
            assert VIDEO.compare({"script": ASKED}, VIDEO.read(answer, "v1")) is expected


def test_a_script_decides_whatever_the_names_are() -> None:
    answer = {"status": "x", "data": {"script": "Bye."}, "video_name": "Greeting"}
    asked = {"script": "Hello, world.", "video_name": "Greeting"}
    assert VIDEO.compare(asked, VIDEO.read(answer, "v1")) is DIFFERENT
    renamed = VIDEO.read(answer | {"video_name": "Untitled 7"}, "v1")
    assert VIDEO.compare({"script": "bye", "video_name": "Greeting"}, renamed) is SAME


def test_without_a_script_an_equal_name_is_enough_and_another_says_nothing() -> None:
    named = VIDEO.read({"status": "x", "video_name": "Greeting"}, "v1")
    assert VIDEO.compare({"script": "Hello.", "video_name": "greeting"}, named) is SAME
    assert VIDEO.compare({"script": "Hello.", "video_name": "Other"}, named) is UNKNOWN
    assert VIDEO.compare({"script": "Hello."}, named) is UNKNOWN


def test_an_equal_name_says_that_a_replica_is_the_same_and_another_says_nothing() -> None:
    named = REPLICA.read({"status": "x", "replica_name": "Anna"}, "r1")
    assert REPLICA.compare({"replica_name": "Anna"}, named) is SAME
    assert REPLICA.compare({"replica_name": "Ben"}, named) is UNKNOWN
    assert REPLICA.compare({}, named) is UNKNOWN


def test_a_snapshot_with_nothing_to_compare_is_neither_the_same_nor_another(
    subtests: pytest.Subtests,
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind.name):
            snapshot = kind.read({"status": "x"}, "x1")
            assert kind.compare({}, snapshot) is UNKNOWN
            assert kind.compare({"script": "", "video_name": ""}, snapshot) is UNKNOWN


def test_times_of_the_service_are_parsed_in_each_observed_format(subtests: pytest.Subtests) -> None:
    for text, found in [
        ("Mon, 14 Jul 2025 09:14:24 GMT", datetime(2025, 7, 14, 9, 14, 24, tzinfo=UTC)),
        ("2024-08-28 15:27:40.824457", datetime(2024, 8, 28, 15, 27, 40, 824457, UTC)),
        ("2024-01-24T07:14:03.327Z", datetime(2024, 1, 24, 7, 14, 3, 327000, UTC)),
        ("2024-01-24T07:14:03+02:00", datetime(2024, 1, 24, 5, 14, 3, tzinfo=UTC)),
        ("Mon, 14 Jul 2025 09:14:24 +0200", datetime(2025, 7, 14, 7, 14, 24, tzinfo=UTC)),
        ("9999-12-31T23:59:59-12:00", None),
        ("Mon, 14 Jul 2025 09:14:24 +99999999999999999999", None),
        ("yesterday", None),
        ("1721000000", None),
        ("", None),
    ]:
        with subtests.test(text=text, found=found):
            assert moment(text) == found
