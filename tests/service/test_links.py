"""Links: a corpus of good and hostile ones, and what holds for any text."""

import tomllib
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.links import (
    _QUERY,
    BadLink,
    check_link,
    expiry_of,
    only_hosts,
    plain_link,
    show_link,
    without_keys,
)

_CORPUS: dict[str, list[dict[str, str]]] = tomllib.loads(
    Path(__file__).with_name("links.toml").read_text(encoding="utf-8")
)
_MARK = "S3CRET"


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
    port = st.sampled_from(["", ":", ":443", ":8080", ":5432", ":10000", ":99999"])
    rest = st.one_of(st.just(""), st.text(max_size=20).map("/".__add__))
    link = st.builds("{}{}{}{}".format, scheme, host, port, rest)
    around = st.text(st.sampled_from("<>\"'`“”„«» \n\ufeff\u200b\u2060\u202e"), max_size=4)
    return st.one_of(link, st.builds("{}{}{}".format, around, link, around))


def test_a_good_link_is_normalized(subtests: pytest.Subtests) -> None:
    for case in _CORPUS["good"]:
        with subtests.test(case["name"]):
            assert check_link(case["text"]) == case.get("link", case["text"])


def test_a_bad_link_is_refused_with_a_sentence(subtests: pytest.Subtests) -> None:
    for case in _CORPUS["bad"]:
        with subtests.test(case["name"]):
            with pytest.raises(BadLink, match=case["says"]) as refusal:
                check_link(case["text"])
            assert str(refusal.value).endswith(".")


def test_three_thousand_characters_are_allowed_and_one_more_is_not() -> None:
    longest = "https://example.com/".ljust(3000, "a")
    assert check_link(longest) == longest
    with pytest.raises(BadLink, match="3,000 characters"):
        check_link(longest + "a")


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
    assert len(link) <= 3000
    assert check_link(link) == link
    url = httpx.URL(link)
    host = url.raw_host.decode()
    assert url.scheme in {"http", "https"}
    assert url.port is None or url.port in {80, 443} or 1024 <= url.port <= 65535
    assert not set("[]") & set(link.removeprefix(f"{url.scheme}://[").partition("/")[2])
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
    try:
        url = httpx.URL(link)
    except httpx.InvalidURL:  # a host that nothing can have, such as 256.1.1.1
        return
    assert url.scheme in {"http", "https"}
    assert not url.userinfo
    assert link.startswith(f"{url.scheme}://{url.raw_host.decode()}")


def test_a_signed_link_by_the_service_is_unchanged(subtests: pytest.Subtests) -> None:
    for link in [
        "https://a.example/a%2Fb%7e%41/?X-Amz-Signature=a%2Bb+c%20d&e=%e9&f=~!*'();:@,$-._#t=1,2",
        "http://127.0.0.1:8080/v1",
        "https://a.example//b/../c/./?",
    ]:
        with subtests.test(link=link):
            assert plain_link(link) == link


@given(_near_links())
def test_only_the_host_of_a_link_is_shown(text: str) -> None:
    try:
        link = check_link(text)
    except BadLink:
        return
    shown = show_link(link)
    host = httpx.URL(link).raw_host.decode()
    assert shown.startswith((host, f"[{host}]")) or shown == f"…{host[-59:]}" or ":" in shown
    assert "/" not in shown
    assert len(shown) <= 60
    for secret in (f"{_MARK}", f"?key={_MARK}", f"#{_MARK}"):
        assert _MARK not in show_link(link + secret)


def test_a_link_is_shown_as_its_host(subtests: pytest.Subtests) -> None:
    for link, shown in [
        ("https://example.com/", "example.com"),
        ("https://we.tl/t-S3CRET", "we.tl"),
        ("https://example.com:8443/a/video.mp4?sig=1#t=2", "example.com:8443"),
        ("https://example.com?sig=1", "example.com"),
        ("https://user:word@example.com/a@b", "example.com"),
        ("https://example.com/to/http://example.org/", "example.com"),
        ("https://[2606:4700:4700::1111]/a", "[2606:4700:4700::1111]"),
        (f"https://{'a' * 30}.{'b' * 30}.example.com/a", f"…{'a' * 16}.{'b' * 30}.example.com"),
        ("", ""),
    ]:
        with subtests.test(link=link, shown=shown):
            assert show_link(link) == shown


def test_links_that_the_service_quotes_are_cut_to_their_hosts(subtests: pytest.Subtests) -> None:
    for said, shown in [
        ("Could not fetch https://we.tl/t-S3CRET: 403.", "Could not fetch we.tl: 403."),
        ("No access (https://we.tl/t-S3CRET).", "No access (we.tl)."),
        ('"https:\\/\\/we.tl\\/t-S3CRET" is private', '"we.tl" is private'),
        ("GET /proxy?of=https%3A%2F%2Fwe.tl%2Ft-S3CRET failed", "GET /proxy?of=we.tl failed"),
        ("https://ana:S3CRET@h.example.com:8443/a b", "h.example.com:8443 b"),
        ("See https://h.example.com.", "See h.example.com."),
        ("Nothing here: http:// or https", "Nothing here: http:// or https"),
    ]:
        with subtests.test(said=said, shown=shown):
            assert only_hosts(said) == shown


_NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def test_the_expiry_of_a_signed_link_is_read(subtests: pytest.Subtests) -> None:
    for query, moment in [
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
    ]:
        with subtests.test(query=query, moment=moment):
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


def test_no_part_of_a_long_text_is_searched_for_queries_twice(subtests: pytest.Subtests) -> None:
    for part in ["https://", "https://a", "http:\\/\\/", "https://a/%2F"]:
        with subtests.test(part=part):
            text = part * 1000
            [found] = _QUERY.finditer(text)
            assert found.span() == (0, len(text))
            assert without_keys(text) == text
