"""Links: a corpus of good and hostile ones, and what holds for any text."""

import tomllib
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.links import BadLink, check_link, expiry_of, plain_link, show_link, without_keys

_CORPUS: dict[str, list[dict[str, str]]] = tomllib.loads(
    Path(__file__).with_name("links.toml").read_text(encoding="utf-8")
)
_MARK = "S3CRET"


def _each(kind: str) -> pytest.MarkDecorator:
    cases = _CORPUS[kind]
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def _near_links() -> st.SearchStrategy[str]:
    """Texts that look like links: what people paste, put together in any order."""
    scheme = st.sampled_from(["https://", "http://", "HTTP://", "https:", "ftp://", ""])
    corpus_hosts = [
        case["text"].partition("://")[2] for kind in ("good", "bad") for case in _CORPUS[kind]
    ]
    host = st.one_of(
        st.sampled_from(corpus_hosts),
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
        st.text(max_size=20),
        st.text(max_size=8).map(lambda label: f"{label}.example.com"),
    )
    port = st.sampled_from(["", ":", ":443", ":8080", ":99999"])
    rest = st.one_of(st.just(""), st.text(max_size=20).map("/".__add__))
    return st.builds("{}{}{}{}".format, scheme, host, port, rest)


@_each("good")
def test_a_good_link_is_normalized(case: dict[str, str]) -> None:
    assert check_link(case["text"]) == case.get("link", case["text"])


@_each("bad")
def test_a_bad_link_is_refused_with_a_sentence(case: dict[str, str]) -> None:
    with pytest.raises(BadLink, match=case["says"]) as refusal:
        check_link(case["text"])
    assert str(refusal.value).endswith(".")


def test_the_corpus_has_no_duplicates() -> None:
    texts = [case["text"] for kind in ("good", "bad") for case in _CORPUS[kind]]
    assert sorted(texts) == sorted(set(texts))


def test_two_thousand_characters_are_allowed_and_one_more_is_not() -> None:
    longest = "https://example.com/".ljust(2000, "a")
    assert check_link(longest) == longest
    with pytest.raises(BadLink, match="2,000 characters"):
        check_link(longest + "a")


def test_the_length_is_that_of_the_link_as_it_is_sent() -> None:
    with pytest.raises(BadLink, match="2,000 characters"):
        check_link("https://example.com/" + "é" * 400)


def test_a_long_host_is_refused_and_never_truncated() -> None:
    with pytest.raises(BadLink, match="valid name"):
        check_link("https://" + "a." * 200 + "example.com/")


@given(st.one_of(st.text(), _near_links()))
@example("https://\ud800.com/")
@example("https://xn--.com/")
@example("https://example.com/\U0010ffff")
def test_any_text_is_either_a_public_ascii_link_or_refused(text: str) -> None:
    try:
        link = check_link(text)
    except BadLink:
        return
    assert link.isascii()
    assert len(link) <= 2000
    assert check_link(link) == link
    url = httpx.URL(link)
    host = url.raw_host.decode()
    assert url.scheme in {"http", "https"}
    assert url.port in {None, 80, 443, 8080, 8443}
    assert not url.userinfo
    try:
        address = ip_address(host)
    except ValueError:
        assert "." in host
        assert not host.endswith((".localhost", ".local", ".internal", "."))
    else:
        assert address.is_global
        assert not address.is_multicast


@given(st.one_of(st.text(), _near_links()))
@example("https://a.example/\ud800")
@example("https://256.1.1.1/")
@example("https://[::1]/")
@example("https://a.example/\x7f")
def test_any_text_by_the_service_is_a_plain_link_or_none(text: str) -> None:
    link = plain_link(text)
    if link is None:
        return
    assert link.isascii()
    assert link.isprintable()
    assert not set(' "<>\\^`{|}') & set(link)
    assert plain_link(link) == link
    url = httpx.URL(link)
    assert url.scheme in {"http", "https"}
    assert not url.userinfo
    assert link.startswith(f"{url.scheme}://{url.raw_host.decode()}")


@given(_near_links())
def test_every_accepted_link_can_be_shown(text: str) -> None:
    try:
        link = check_link(text)
    except BadLink:
        return
    assert plain_link(link) == (None if "//[" in link else link)


@pytest.mark.parametrize(
    "link",
    [
        "https://a.example/a%2Fb%7e%41/?X-Amz-Signature=a%2Bb+c%20d&e=%e9&f=~!*'();:@,$-._#t=1,2",
        "http://127.0.0.1:8080/v1",
        "https://a.example//b/../c/./?",
    ],
)
def test_a_signed_link_by_the_service_is_unchanged(link: str) -> None:
    assert plain_link(link) == link


@given(_near_links())
def test_nothing_of_a_query_or_fragment_is_shown(text: str) -> None:
    try:
        link = check_link(text)
    except BadLink:
        return
    for link_with_secret in (f"{link}?key={_MARK}", f"{link}#{_MARK}"):
        shown = show_link(link_with_secret)
        assert _MARK not in shown
        assert len(shown) <= 60


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("https://example.com/", "example.com"),
        ("https://example.com/a/video.mp4?sig=1#t=2", "example.com/a/video.mp4"),
        ("https://example.com?sig=1", "example.com"),
        ("https://user:word@example.com/a@b", "example.com/a@b"),
        ("https://example.com/to/http://example.org/", "example.com/to/http://example.org"),
        (
            "https://bucket.s3.eu-west-1.amazonaws.com/uploads/2026/03/02/training-take-7.mp4",
            "bucket.s3.eu-west-1.amazonaws…2026/03/02/training-take-7.mp4",
        ),
        ("", ""),
    ],
)
def test_a_link_is_shown_as_host_and_path(link: str, shown: str) -> None:
    assert show_link(link) == shown


def test_a_shortened_link_keeps_both_ends() -> None:
    shown = show_link("https://example.com/" + "a" * 100 + "/take.mp4")
    assert len(shown) == 60
    assert shown.startswith("example.com/aaa")
    assert shown.endswith("aaa/take.mp4")


_NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "moment"),
    [
        ("X-Amz-Date=20260302T110000Z&X-Amz-Expires=3600&X-Amz-Signature=ab", _NOON),
        ("X-Goog-Date=20260302T110000Z&X-Goog-Expires=3600&X-Goog-Signature=ab", _NOON),
        ("AWSAccessKeyId=A&Expires=1772452800&Signature=ab", _NOON),
        ("Expires=1772452800&Signature=ab&Key-Pair-Id=K", _NOON),
        ("sv=2022&se=2026-03-02T12%3A00%3A00Z&sig=ab", _NOON),
        ("se=2026-03-02&sig=ab", datetime(2026, 3, 2, tzinfo=UTC)),
        ("X-Amz-Expires=3600&X-Amz-Signature=ab", None),
        ("X-Amz-Date=today&X-Amz-Expires=3600", None),
        ("Expires=99999999999999999999&Signature=ab", None),
        ("expires=soon&signature=ab", None),
        ("expires=1772452800", None),
        ("expires=3600&signature=ab", None),
        ("se=2026-03-02T17%3A00%3A00%2B05%3A00&sig=ab", _NOON),
        ("", None),
    ],
)
def test_the_expiry_of_a_signed_link_is_read(query: str, moment: datetime | None) -> None:
    assert expiry_of(f"https://storage.example.com/a.mp4?{query}") == moment


def test_a_quoted_link_loses_its_query() -> None:
    quoted = "Could not fetch https://s.example.com/a.mp4?X-Amz-Signature=SECRET: 403 (HTTP://B.example#x)"
    shown = without_keys(quoted)
    assert shown == "Could not fetch https://s.example.com/a.mp4 403 (HTTP://B.example"


def test_an_apostrophe_in_a_quoted_link_does_not_hide_its_query() -> None:
    disposition = "response-content-disposition=filename*%3DUTF-8''kim.mp4"
    quoted = f"No https://s.example.com/a.mp4?{disposition}&X-Amz-Signature=SECRET here"
    assert without_keys(quoted) == "No https://s.example.com/a.mp4 here"
    assert without_keys("https://h.example.com/o'b.mp4?SECRET") == "https://h.example.com/o'b.mp4"
