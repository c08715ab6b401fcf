"""Names, subjects and dead letters: without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.errors import RouteError
from boxmatch.nats.messages import FeedSubjects, Source, dead_letter, read_notification
from boxmatch.nats.names import MOST_NAME, Names, decode_token, encode_token
from boxmatch.nats.settings import FeedSettings
from boxmatch.nats.subscriptions import shard_of

NAMES = Names.of("r")


@given(st.text(min_size=1, max_size=16))
def test_any_name_is_one_token_and_comes_back(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        with pytest.raises(RouteError, match="UTF-8"):
            encode_token(name)
        return
    token = encode_token(name)
    assert decode_token(token) == name
    assert len(token) <= MOST_NAME
    assert token.isascii()
    assert not set(token) & set(" .*>\t\r\n$")


@given(st.text(alphabet="ab=0123456789ABCDEFé.*", max_size=8))
def test_no_two_tokens_are_one_name(token: str) -> None:
    try:
        name = decode_token(token)
    except RouteError:
        return
    assert encode_token(name) == token


def test_shards_are_the_same_for_ever() -> None:
    """Another cut would leave subscribers to workers that do not have them."""
    assert [shard_of(f"s{number}", 4) for number in range(12)] == SHARDS


SHARDS = [2, 1, 2, 0, 3, 0, 1, 0, 2, 0, 0, 3]


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c"]),
        ("a.*", ["a.b", "a.c"], ["a", "a.b.c", "b.a"]),
        ("*.b.*", ["a.b.c"], ["a.b", "a.c.b"]),
        ("a.>", ["a.b", "a.b.c"], ["a", "b.a"]),
        (">", ["a", "a.b"], []),
    ],
)
def test_subjects_of_feeds(pattern: str, fits: list[str], others: list[str]) -> None:
    subjects = FeedSubjects(NAMES, {"x": FeedSettings(subject=pattern), "y": FeedSettings()})
    assert [one for one in fits if subjects.feed_of(one) != "x"] == []
    assert [one for one in others if subjects.feed_of(one) is not None] == []
    assert subjects.feed_of("r.in.y") == "y"


def test_reasons_fit_into_a_header() -> None:
    source = Source("s", "1", 7, 0.0, 1)
    reason = "two\r\nlines, a tab\t, é and \x00" + "x" * 1000
    said = dead_letter(NAMES, "ticks", source, b"", reason).headers["Boxmatch-Reason"]
    assert said.startswith("two lines, a tab , \\xe9 and ?xxx")
    assert len(said) == 500


def test_a_message_that_is_no_notification() -> None:
    for data in (b"", b"{}", b"\xff", b'{"feed": 1}'):
        with pytest.raises(RouteError, match="this is no notification"):
            read_notification(data)
