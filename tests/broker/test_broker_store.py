from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import (
    Appended,
    LoggedEvent,
    MemberRow,
    Store,
    StoreTransaction,
    SubscriberRow,
    SubscriptionRow,
)
from boxmatch.broker.store.recipients import Recipients
from boxmatch.broker.store.rows import DeadLetter, Notification, SubscriptionText
from boxmatch.errors import BrokerError, FeedExistsError, StorageError, UnknownFeedError
from boxmatch.model.schema import Schema

T = TypeVar("T")
DAY = 24 * 3600.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", pace=0.0) as opened:
        yield opened


def do(store: Store, change: Callable[[StoreTransaction], T]) -> T:
    return store.write(change).result(timeout=30)


def spec(name: str, **more: Any) -> FeedSpec:
    return FeedSpec(name=name, spaces={name: Schema({"price": "float"})}, **more)


def feed_and_subscriber(store: Store) -> tuple[int, int]:
    return do(store, lambda t: (t.put_feed(spec("f")), t.put_subscriber("ann")))


def bodies(*values: int) -> list[bytes]:
    return [b'{"price":%d}' % value for value in values]


def test_what_is_appended_is_read(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    bob = do(store, lambda t: t.put_subscriber("bob"))
    inboxes = {ann: [(0, ["low"]), (2, ["low", "high"])], bob: [(1, ["all"])]}
    appended = do(
        store, lambda t: t.append(feed, 5.0, bodies(7, 8, 9), Recipients.of(inboxes), rate=0.25)
    )
    assert appended == Appended(1, 3, repeated=False)
    assert store.next_sequence == 4
    seven, eight, nine = bodies(7, 8, 9)
    assert store.reader.inbox(ann, 0, 10) == [
        Notification(1, "f", 5.0, ["low"], seven, "events", 0.25),
        Notification(3, "f", 5.0, ["low", "high"], nine, "events", 0.25),
    ]
    assert [notification.sequence for notification in store.reader.inbox(ann, 1, 10)] == [3]
    assert [notification.sequence for notification in store.reader.inbox(ann, 0, 1)] == [1]
    assert store.reader.inbox(ann, 3, 10) == []
    assert store.reader.inbox(ann, 0, 0) == []
    assert [notification.body for notification in store.reader.inbox(bob, 0, 10)] == [eight]
    assert store.reader.events(feed, 0, 10) == [
        LoggedEvent(1, 5.0, seven),
        LoggedEvent(2, 5.0, eight),
        LoggedEvent(3, 5.0, nine),
    ]
    assert store.reader.event(2) == (feed, LoggedEvent(2, 5.0, eight))
    assert store.reader.event(4) is None
    assert store.reader.event(0) is None
    assert store.reader.backlogs() == {ann: 2, bob: 1}
    assert store.reader.backlogs([bob]) == {bob: 1}


def test_events_are_read_by_pages_and_feeds(store: Store) -> None:
    one, two = do(store, lambda t: (t.put_feed(spec("one")), t.put_feed(spec("two"))))
    for number in range(100):
        do(store, lambda t, n=number: t.append((one, two)[n % 2], 0.0, bodies(n, n + 1, n + 2)))
    numbers = [event.sequence for event in store.reader.events(one, 0, 1000)]
    assert numbers == [6 * turn + more for turn in range(50) for more in (1, 2, 3)]
    for after in (0, 1, 2, 3, 4, 6, 7, 8, 100, 290, 297, 300):
        for limit in (1, 2, 5, 1000):
            wanted = [number for number in numbers if number > after][:limit]
            assert [event.sequence for event in store.reader.events(one, after, limit)] == wanted
    assert [event.sequence for event in store.reader.events(one, 1, 99, through=8)] == [2, 3, 7, 8]
    assert store.reader.events(one, 8, 99, through=8) == []
    for count in (0, 1, 2, 3, 4, 150, 151):
        last = store.reader.last_events(one, count)
        assert [event.sequence for event in last] == numbers[len(numbers) - min(count, 150) :]
    assert store.first_sequence() == store.first_sequence(one) == 1
    assert store.first_sequence(two) == 4
    assert store.first_sequence(99) == store.next_sequence


def test_many_or_large_events_go_into_several_rows(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    bob = do(store, lambda t: t.put_subscriber("bob"))
    large = [b'"%s"' % (b"%d" % place * 30_000) for place in range(100)]
    large[50] = b'"%s"' % (b"x" * 1_000_000)
    mine = [(place, [f"s{place}"]) for place in range(0, 100, 7)]
    appended = do(
        store, lambda t: t.append(feed, 0.0, large, Recipients.of({ann: mine, bob: [(99, ["b"])]}))
    )
    assert appended == Appended(1, 100)
    assert store.reader.sizes().batches > 10
    assert [event.body for event in store.reader.events(feed, 0, 1000)] == large
    notifications = store.reader.inbox(ann, 0, 100)
    assert [
        (notification.sequence - 1, notification.subscriptions) for notification in notifications
    ] == mine
    assert [notification.body for notification in notifications] == [
        large[place] for place, _ in mine
    ]
    assert [notification.sequence for notification in store.reader.inbox(bob, 0, 100)] == [100]
    assert store.reader.backlogs() == {ann: len(mine), bob: 1}


def test_reading_ends_at_so_many_bytes_but_not_before_the_first(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    for _ in range(4):
        same = [b'"%s"' % (b"x" * 98)] * 3
        inbox = {ann: [(0, ["s"]), (2, ["s"])]}
        do(store, lambda t, same=same, inbox=inbox: t.append(feed, 0.0, same, Recipients.of(inbox)))
    for most, count in ((0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (700, 7), (5_000, 11)):
        events = store.reader.events(feed, 1, 99, most_bytes=most)
        assert [one.sequence for one in events] == list(range(2, 2 + count))
        events = store.reader.events(feed, 1, 2, most_bytes=most)
        assert len(events) == min(count, 2)
        events = store.reader.events(feed, 1, 99, 4, most_bytes=most)
        assert len(events) == min(count, 3)
        last = store.reader.last_events(feed, 11, most_bytes=most)
        assert [one.sequence for one in last] == list(range(13 - count, 13))
        notifications = store.reader.inbox(ann, 1, 99, most_bytes=most)
        assert [one.sequence for one in notifications] == [3, 4, 6, 7, 9, 10, 12][:count]
        assert store.reader.inbox(ann, 1, 3, most_bytes=most) == notifications[:3]


def test_an_inbox_of_many_rows(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    for number in range(600):
        store.write(
            lambda t, n=number: t.append(feed, 0.0, bodies(n), Recipients.of({ann: [(0, ["s"])]}))
        )
    do(store, lambda t: None)
    assert [notification.sequence for notification in store.reader.inbox(ann, 0, 1000)] == list(
        range(1, 601)
    )
    assert [notification.sequence for notification in store.reader.inbox(ann, 100, 300)] == list(
        range(101, 401)
    )


def test_no_events_need_no_number(store: Store) -> None:
    feed, _ = feed_and_subscriber(store)
    assert do(store, lambda t: t.append(feed, 0.0, [])) == Appended(1, 0)
    assert store.next_sequence == 1


def test_keys_make_repeats_harmless(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    other = do(store, lambda t: t.put_feed(spec("other")))

    def append(feed: int, at: float, key: str) -> Appended:
        return do(
            store,
            lambda t: t.append(feed, at, bodies(1, 2), Recipients.of({ann: [(0, ["s"])]}), key=key),
        )

    assert append(feed, 0.0, "k") == Appended(1, 2)
    assert append(feed, 1.0, "k") == Appended(1, 2, repeated=True)
    assert append(other, 1.0, "k") == Appended(3, 4)
    assert append(feed, 1.0, "l") == Appended(5, 6)
    assert append(feed, DAY, "k") == Appended(7, 8)
    assert append(feed, DAY + 1, "k") == Appended(7, 8, repeated=True)
    assert len(store.reader.inbox(ann, 0, 100)) == 4


def test_keys_that_come_together(store: Store) -> None:
    feed, _ = feed_and_subscriber(store)

    def twice(t: StoreTransaction) -> list[Appended]:
        return [t.append(feed, 0.0, bodies(1), key="k") for _ in range(2)]

    first, second = (store.write(twice) for _ in range(2))
    assert first.result() == [Appended(1, 1), Appended(1, 1, repeated=True)]
    assert second.result() == [Appended(1, 1, repeated=True)] * 2

    def fails(t: StoreTransaction) -> None:
        t.append(feed, 0.0, bodies(1), key="m")
        raise ZeroDivisionError

    assert isinstance(store.write(fails).exception(), ZeroDivisionError)
    assert do(store, lambda t: t.append(feed, 0.0, bodies(1), key="m")) == Appended(2, 2)


@pytest.mark.parametrize("with_statement", [False, True])
def test_a_change_that_fails_has_done_nothing(store: Store, with_statement: bool) -> None:
    feed, ann = feed_and_subscriber(store)
    gate = threading.Event()
    heard: list[object] = []

    def fails(t: StoreTransaction) -> None:
        t.append(feed, 0.0, bodies(1, 2), Recipients.of({ann: [(0, ["no"])]}), key="no")
        t.move_cursor(ann, 2)
        if with_statement:
            t.put_subscriber("nobody")
            t.put_feed(spec("nothing"))
            t.append(feed, 0.0, bodies(3), Recipients.of({ann: [(0, ["no"])]}))
        raise ValueError("no")

    # All in one group: before and after it, and both ways of being written.
    store.write(lambda t: gate.wait())
    before = store.write(
        lambda t: t.append(feed, 0.0, bodies(4), Recipients.of({ann: [(0, ["yes"])]}))
    )
    failing = store.write(fails)
    store.enqueue(fails, heard.append)
    after = store.write(
        lambda t: t.append(feed, 0.0, bodies(5), Recipients.of({ann: [(0, ["yes"])]}))
    )
    store.enqueue(lambda t: t.next_sequence, heard.append)
    gate.set()
    assert before.result() == Appended(1, 1)
    assert isinstance(failing.exception(), ValueError)
    assert after.result() == Appended(2, 2)
    do(store, lambda t: None)
    assert list(map(str, heard)) == ["no", "3"]
    assert [event.body for event in store.reader.events(feed, 0, 10)] == bodies(4, 5)
    assert [notification.subscriptions for notification in store.reader.inbox(ann, 0, 10)] == [
        ["yes"]
    ] * 2
    assert store.reader.subscribers() == [SubscriberRow(ann, "ann", 0, 0, 0)]
    assert [number for number, _ in store.reader.feeds()] == [feed]
    with pytest.raises(StorageError, match="no subscriber 2"):
        do(store, lambda t: t.append(feed, 0.0, bodies(1), Recipients.of({2: [(0, ["s"])]})))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda t: t.append(9, 0.0, [b"1"]), "no feed '9'"),
        (lambda t: t.append(1, 0.0, [b"1"], Recipients.of({9: [(0, ["s"])]})), "no subscriber 9"),
        (
            lambda t: t.append(1, 0.0, [b"1"], Recipients.of({1: [(1, ["s"])]})),
            "others than the 1 events",
        ),
        (
            lambda t: t.append(1, 0.0, [], Recipients.of({1: [(0, ["s"])]})),
            "others than the 0 events",
        ),
        (lambda t: t.append(1, float("nan"), [b"1"]), "cannot be stored at nan"),
        (lambda t: t.append(1, 0.0, [b"1"], rate=float("inf")), "rate of inf"),
        (lambda t: t.append(1, 0.0, ["text"]), "bytes"),
        (lambda t: t.append(1, 0.0, [b"1"], Recipients.of({1: [(0, ["\ud800"])]})), "."),
        (lambda t: t.append(1, 0.0, [b"1"], key="\ud800"), "surrogates"),
        (lambda t: t.move_cursor(9, 0), "no subscriber 9"),
        (lambda t: t.put_member(1, "m", b"", float("nan")), "expire at nan"),
        (lambda t: t.put_member(9, "m", b"", None), "no feed '9'"),
        (lambda t: t.put_subscription(1, "s", 9, b"", 0.0), "no feed '9'"),
        (lambda t: t.put_webhook(1, {}), "."),
        (lambda t: t.drop_feed(9), "no feed '9'"),
        (lambda t: t.replace_feed(9, spec("f")), "no feed '9'"),
        (lambda t: t.replace_feed(1, spec("g")), "name or kind"),
    ],
)
def test_wrong_changes_concern_nobody_else(
    store: Store, wrong: Callable[[StoreTransaction], Any], reason: str
) -> None:
    feed, ann = feed_and_subscriber(store)
    gate = threading.Event()
    store.write(lambda t: gate.wait())
    before = store.write(
        lambda t: t.append(feed, 0.0, bodies(1), Recipients.of({ann: [(0, ["s"])]}))
    )
    failing = store.write(wrong)
    after = store.write(lambda t: t.append(feed, 0.0, bodies(2)))
    gate.set()
    assert before.result() == Appended(1, 1)
    with pytest.raises(Exception, match=reason):
        failing.result()
    assert after.result() == Appended(2, 2)


def test_cursors_go_forward_only(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    notifications = [(place, ["s"]) for place in range(4)]
    do(
        store,
        lambda t: t.append(feed, 0.0, bodies(1, 2, 3, 4), Recipients.of({ann: notifications})),
    )

    def moved(*places: int) -> tuple[int, int]:
        do(store, lambda t: [t.move_cursor(ann, place) for place in places])
        [subscriber] = store.reader.subscribers()
        return subscriber.cursor, store.reader.backlogs()[ann]

    assert moved(2) == (2, 2)
    assert moved(1) == (2, 2)
    assert moved(-5) == (2, 2)
    assert moved(3, 1) == (3, 1)
    assert moved(99) == (4, 0)
    do(store, lambda t: t.append(feed, 0.0, bodies(5), Recipients.of({ann: [(0, ["s"])]})))
    assert store.reader.backlogs() == {ann: 1}
    # A cursor hinders nobody from reading again what is still there.
    assert len(store.reader.inbox(ann, 0, 10)) == 5


def test_feeds(store: Store, tmp_path: Path) -> None:
    spaces = {"z": Schema({"b": "int", "a": ["x", "y"]}), "a": Schema({"t": "timestamp"})}
    state = FeedSpec(name="state", kind="state", spaces=spaces, leave=False)
    carrying = spec("carrying", unknown="carry")
    one, two = do(store, lambda t: (t.put_feed(state), t.put_feed(carrying)))
    assert store.reader.feeds() == [(one, state), (two, carrying)]
    assert list(store.reader.feeds()[0][1].spaces) == ["z", "a"]
    with pytest.raises(FeedExistsError, match="'state'"):
        do(store, lambda t: t.put_feed(spec("state")))
    wider = FeedSpec(name="carrying", spaces={"carrying": Schema({"price": "float", "n": "int"})})
    do(store, lambda t: t.replace_feed(two, wider))
    assert store.reader.feeds() == [(one, state), (two, wider)]
    with pytest.raises(BrokerError, match="name or kind"):
        do(store, lambda t: t.replace_feed(two, state))
    with pytest.raises(UnknownFeedError):
        do(store, lambda t: t.replace_feed(7, state))


def test_a_dropped_feed_takes_all_with_it(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    other = do(store, lambda t: t.put_feed(spec("other")))
    for one in (feed, other):
        do(
            store,
            lambda t, one=one: t.append(
                one, 0.0, bodies(1), Recipients.of({ann: [(0, ["s"])]}), key="k"
            ),
        )
        do(store, lambda t, one=one: t.put_subscription(ann, f"s{one}", one, b"{}", 0.0))
        do(store, lambda t, one=one: t.put_member(one, "m", b"{}", None))
    do(store, lambda t: t.append(feed, 0.0, bodies(2)))
    store.drop_feed(feed)
    assert [number for number, _ in store.reader.feeds()] == [other]
    assert [notification.feed for notification in store.reader.inbox(ann, 0, 10)] == ["other"]
    assert store.reader.events(feed, 0, 10) == []
    assert list(store.reader.subscriptions(feed)) == []
    assert list(store.reader.members(feed)) == []
    assert store.reader.event(1) is None
    assert store.reader.backlogs() == {ann: 1}
    assert (
        len(list(store.reader.subscriptions(other))) == len(list(store.reader.members(other))) == 1
    )
    with pytest.raises(UnknownFeedError):
        do(store, lambda t: t.append(feed, 0.0, bodies(1)))
    again = do(store, lambda t: t.put_feed(spec("f")))
    assert again not in (feed, other)
    assert do(store, lambda t: t.append(again, 0.0, bodies(1), key="k")) == Appended(4, 4)


def test_subscriptions(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    other = do(store, lambda t: t.put_feed(spec("other")))
    a = do(store, lambda t: t.put_subscription(ann, "a", feed, b"1", 1.0))
    b = do(store, lambda t: t.put_subscription(ann, "b", feed, b"2", 2.0))
    assert list(store.reader.subscriptions(feed)) == [
        SubscriptionRow(a, ann, "a", feed, b"1", 1.0, 1.0),
        SubscriptionRow(b, ann, "b", feed, b"2", 2.0, 2.0),
    ]
    assert do(store, lambda t: t.put_subscription(ann, "a", other, b"3", 3.0)) == a
    assert list(store.reader.subscriptions(other)) == [
        SubscriptionRow(a, ann, "a", other, b"3", 1.0, 3.0)
    ]
    assert do(store, lambda t: t.delete_subscription(ann, "b"))
    assert not do(store, lambda t: t.delete_subscription(ann, "b"))
    assert list(store.reader.subscriptions(feed)) == []
    assert do(store, lambda t: t.put_subscription(ann, "b", feed, b"4", 4.0)) not in (a, b)


def test_subscriptions_that_are_put_together(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    wanted, quoted = b'{"filter": "a = \'\\u0000\\n\'"}', '{"filter": "ä\u2028"}'.encode()
    first, second = 1763562344.1234567, 1763562345.7654321
    new = [SubscriptionText.of(ann, feed, name, wanted, None, first) for name in ("a", "b", "c")]
    do(store, lambda t: t.put_subscriptions(ann, feed, new, first))
    before = list(store.reader.subscriptions(feed))
    assert [row[2:] for row in before] == [(n, feed, wanted, first, first) for n in "abc"]
    again = [
        SubscriptionText.of(ann, feed, "b", quoted, first, second),
        SubscriptionText.of(ann, feed, "d", quoted, None, second),
    ]
    do(store, lambda t: t.put_subscriptions(ann, feed, again, second))
    after = {row.id: row for row in store.reader.subscriptions(feed)}
    assert list(after) == list("abcd")
    assert after["b"] == before[1]._replace(wanted=quoted, updated=second)
    assert after["d"][4:] == (quoted, second, second)
    assert store.reader.damage == []


def test_many_subscriptions_are_read_by_pages(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    names = [f"s{number}" for number in range(2500)]
    do(store, lambda t: [t.put_subscription(ann, name, feed, b"", 0.0) for name in names])
    assert [row.id for row in store.reader.subscriptions(feed)] == names


def test_members(store: Store) -> None:
    feed, _ = feed_and_subscriber(store)
    do(store, lambda t: [t.put_member(feed, name, b"1", None) for name in ("z", "a", "m")])
    do(store, lambda t: (t.put_member(feed, "z", b"2", 8.0), t.delete_member(feed, "a")))
    assert list(store.reader.members(feed)) == [
        MemberRow("z", b"2", 8.0),
        MemberRow("m", b"1", None),
    ]


def test_webhooks_and_dead_letters(store: Store) -> None:
    _, ann = feed_and_subscriber(store)
    bob = do(store, lambda t: t.put_subscriber("bob"))
    do(store, lambda t: (t.put_webhook(ann, b"1"), t.put_webhook(bob, b"2")))
    do(store, lambda t: (t.put_webhook(ann, b"3"), t.put_webhook(bob, None)))
    assert store.reader.webhooks() == [(ann, b"3")]
    letters = [
        do(store, lambda t, n=n: t.put_dead_letter(ann, n, n + 1, 8, "gone", 5.0, b"[]"))
        for n in range(4)
    ]
    assert store.reader.dead_letters(ann, limit=1) == [
        DeadLetter(letters[0], "ann", 0, 1, 8, "gone", 5.0, b"[]")
    ]
    assert [letter.number for letter in store.reader.dead_letters(ann, letters[1])] == letters[2:]
    assert store.reader.dead_letters(bob) == []
    assert (
        store.reader.dead_letter_counts() == store.reader.dead_letter_counts([bob, ann]) == {ann: 4}
    )
    assert store.reader.dead_letter_counts([bob]) == store.reader.dead_letter_counts([]) == {}
    assert do(store, lambda t: t.delete_dead_letters(bob, letters)) == 0
    assert do(store, lambda t: t.delete_dead_letters(ann, [letters[1], 999])) == 1
    assert do(store, lambda t: t.delete_dead_letters(ann, None)) == 3
    assert store.reader.dead_letters(ann) == []


def test_all_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    with Store.open(tmp_path, sync="normal") as store:
        feed, ann = feed_and_subscriber(store)
        futures = [
            store.write(
                lambda t, n=n: t.append(feed, 0.0, bodies(n), Recipients.of({ann: [(0, ["s"])]}))
            )
            for n in range(50)
        ]
        store.write(lambda t: t.move_cursor(ann, 10))
    assert futures[-1].result() == Appended(50, 50)
    store.close()
    with Store.open(tmp_path) as store:
        assert store.next_sequence == 51
        assert store.reader.subscribers() == [SubscriberRow(ann, "ann", 10, 0, 0)]
        assert store.reader.backlogs() == {ann: 40}
        assert [event.body for event in store.reader.events(feed, 0, 100)] == bodies(*range(50))
        # Numbers do not come again when all events have gone.
        assert store.tidy(1e9, Retention()).batches == 50
    with Store.open(tmp_path) as store:
        assert store.next_sequence == store.first_sequence() == 51
        assert store.reader.subscribers() == [SubscriberRow(ann, "ann", 10, 40, 50)]


def test_closed(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.close()
    for use in (store.reader.feeds, lambda: store.write(lambda t: None), store.reader.sizes):
        with pytest.raises(StorageError, match="is closed"):
            use()


def test_tidy_by_age_and_size(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    notifications = [(0, ["s"]), (1, ["s"])]
    for at in range(10):
        do(
            store,
            lambda t, at=at: t.append(
                feed, float(at), bodies(at, at), Recipients.of({ann: notifications})
            ),
        )
    do(store, lambda t: t.move_cursor(ann, 5))
    done = store.tidy(9.0, Retention(seconds=5.0))
    # Numbers 1 to 8 are too old, of which 1 to 5 are acknowledged, though not the row of 5 and 6.
    assert (done.batches, done.dropped) == (4, {ann: 3})
    assert store.reader.subscribers() == [SubscriberRow(ann, "ann", 5, 3, 8)]
    assert [notification.sequence for notification in store.reader.inbox(ann, 0, 99)] == list(
        range(9, 21)
    )
    assert store.first_sequence() == 9
    half = store.reader.sizes().log_bytes // 2
    done = store.tidy(9.0, Retention(nbytes=half))
    assert (done.batches, done.dropped) == (3, {ann: 6})
    assert store.reader.sizes().log_bytes <= half
    assert store.reader.subscribers() == [SubscriberRow(ann, "ann", 5, 9, 14)]


def test_tidy_shortens_backlogs_to_the_notification(store: Store) -> None:
    feed, ann = feed_and_subscriber(store)
    bob = do(store, lambda t: t.put_subscriber("bob"))
    for _ in range(10):
        inboxes = {ann: [(place, ["s"]) for place in range(3)], bob: [(0, ["s"])]}
        do(store, lambda t, i=inboxes: t.append(feed, 0.0, bodies(1, 2, 3), Recipients.of(i)))
    do(store, lambda t: t.move_cursor(ann, 4))
    assert store.tidy(0.0, Retention(backlog=10)).dropped == {ann: 16}
    assert [notification.sequence for notification in store.reader.inbox(ann, 0, 99)] == list(
        range(21, 31)
    )
    assert store.reader.backlogs() == {ann: 10, bob: 10}
    assert store.reader.subscribers()[0] == SubscriberRow(ann, "ann", 4, 16, 20)
    assert store.tidy(0.0, Retention(backlog=10)).dropped == {}
    assert store.tidy(0.0, Retention(backlog=0)).dropped == {ann: 10, bob: 10}


def test_tidy_in_many_turns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from boxmatch.broker.store import recipient_rows, retention, waiting

    for module, name, value in (
        (recipient_rows, "MOST_BYTES", 4000),
        (waiting, "MOST_BYTES", 4000),
        (waiting, "_BYTES_AT_ONCE", 8000),
        (waiting, "_ROWS_AT_ONCE", 3),
        (retention, "_ROWS_AT_ONCE", 20),
        (retention, "_BATCHES_AT_ONCE", 7),
        (retention, "_BYTES_AT_ONCE", 30),
    ):
        monkeypatch.setattr(module, name, value)
    feed, ann = feed_and_subscriber(store)
    subscribers = [ann, *do(store, lambda t: [t.put_subscriber(f"o{n}") for n in range(70)])]
    everybody = Recipients.of({subscriber: [(0, ["s"])] for subscriber in subscribers})
    for number in range(100):
        do(store, lambda t, n=number: t.append(feed, 0.0, bodies(1), everybody, key=f"{n}"))
    assert store.reader.sizes().inbox_rows == 100
    assert store.tidy(0.0, Retention(backlog=10)).dropped == dict.fromkeys(subscribers, 90)
    assert store.reader.sizes().inbox_rows < 10
    do(store, lambda t: [t.move_cursor(subscriber, 95) for subscriber in subscribers])
    store.tidy(0.0, Retention())
    assert store.reader.sizes().inbox_rows == 1
    assert store.reader.backlogs() == dict.fromkeys(subscribers, 5)
    assert [one.sequence for one in store.reader.inbox(ann, 0, 99)] == [96, 97, 98, 99, 100]
    store.tidy(DAY, Retention())
    with sqlite3.connect(store.path / "broker.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM repeat").fetchall() == [(0,)]
    connection.close()


def test_backup_while_it_is_written(store: Store, tmp_path: Path) -> None:
    feed, ann = feed_and_subscriber(store)
    large = [b"x" * 100_000] * 100
    do(store, lambda t: t.append(feed, 0.0, large, Recipients.of({ann: [(0, ["s"])]})))
    shares: list[float] = []

    def progress(share: float) -> None:
        shares.append(share)
        do(store, lambda t: t.append(feed, 0.0, bodies(1)))

    (tmp_path / "copy").mkdir()
    target = tmp_path / "copy" / "broker.sqlite"
    store.backup(target, progress)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 2
    assert store.next_sequence == 101 + len(shares)
    with pytest.raises(StorageError, match="there already"):
        store.backup(target)
    with pytest.raises(StorageError, match="cannot copy"):
        store.backup(tmp_path / "nowhere" / "copy")
    assert [entry.name for entry in target.parent.iterdir()] == ["broker.sqlite"]
    with Store.open(target.parent) as copy:
        assert copy.next_sequence == 101
        assert len(copy.reader.events(feed, 0, 1000, most_bytes=1 << 30)) == 100
        assert len(copy.reader.inbox(ann, 0, 10)) == 1


def test_few_commits_for_many_changes(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        feed, _ = feed_and_subscriber(store)
        commits = 0
        transaction = store._writer._transaction
        commit = transaction.commit

        def counted() -> None:
            nonlocal commits
            commits += 1
            commit()

        transaction.commit = counted  # type: ignore[method-assign]
        queued = threading.Event()
        store.write(lambda t: queued.wait())
        futures = [
            store.write(lambda t, n=number: t.append(feed, 0.0, bodies(n))) for number in range(200)
        ]
        queued.set()
        assert [future.result().first for future in futures] == list(range(1, 201))
        assert commits < 20


def test_who_is_alone_waits_for_nobody(tmp_path: Path) -> None:
    """Groups are an hour apart: who had to wait for the next one would not come back."""
    with Store.open(tmp_path, pace=3600.0) as store:
        for _ in range(3):
            assert store.write(lambda transaction: transaction.next_sequence).result(30) == 1


def test_a_change_that_nobody_wants_any_more(store: Store) -> None:
    feed, _ = feed_and_subscriber(store)
    gate = threading.Event()
    heard: list[object] = []
    store.write(lambda t: gate.wait())
    unwanted = store.write(lambda t: t.append(feed, 0.0, bodies(1)))
    unwanted.add_done_callback(heard.append)
    wanted = store.write(lambda t: t.append(feed, 0.0, bodies(2)))
    assert unwanted.cancel()
    gate.set()
    assert wanted.result() == Appended(1, 1)
    assert heard == [unwanted]
    assert unwanted.cancelled()


def test_what_follows_a_write_may_fail_and_write(store: Store) -> None:
    feed, _ = feed_and_subscriber(store)
    chained: list[Any] = []

    def done(result: object) -> None:
        chained.append(store.write(lambda t: t.append(feed, 0.0, bodies(2))))
        raise ValueError("logged only")

    store.enqueue(lambda t: t.append(feed, 0.0, bodies(1)), done)
    do(store, lambda t: None)
    assert chained[0].result() == Appended(2, 2)
