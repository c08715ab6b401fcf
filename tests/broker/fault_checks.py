"""Whether all that a `Load` was answered came true."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import httpx
from fault_load import FEEDS, SCHEMA, STATE, Batch, Life, Load

import boxmatch as bm


def check(load: Load, url: str) -> None:
    """`url` is that of the broker now."""
    for inbox in load.inboxes.values():
        assert inbox.wrong == []
    with httpx.Client(base_url=url, timeout=30) as http:
        logs = {feed: _log(http, feed) for feed in (*FEEDS, STATE)}
        _check_logs(load, logs)
        for feed in FEEDS:
            _check_delivery(load, feed)
        _check_sources(load, logs)
        _check_places(load, http)
        _check_subscriptions(load, http)


def _log(http: httpx.Client, feed: str) -> dict[int, Any]:
    found: dict[int, Any] = {}
    after = 0
    while True:
        answer = http.get(f"/feeds/{feed}/events", params={"after": after, "limit": 10_000})
        assert answer.status_code == 200, answer.text
        events = answer.json()["events"]
        numbers = [event["sequence"] for event in events]
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[0] > after
        found.update((event["sequence"], event["event"]) for event in events)
        if not events:
            return found
        after = numbers[-1]


def _check_logs(load: Load, logs: dict[str, dict[int, Any]]) -> None:
    """Each event is there under its numbers, none twice, and no number is missing."""
    for feed in FEEDS:
        batches = [batch for batch in load.batches if batch.feed == feed]
        published = {b.first + place: row for b in batches for place, row in enumerate(b.rows)}
        assert sum(len(batch.rows) for batch in batches) == len(published)
        assert logs[feed] == published
    numbers = sorted(number for log in logs.values() for number in log)
    assert numbers == list(range(1, len(numbers) + 1))


def _check_delivery(load: Load, feed: str) -> None:
    """Whose filter an event satisfies is found out by looking at every one of them."""
    lives = [life for life in load.lives if life.feed == feed]
    matcher = bm.Matcher(bm.Schema(SCHEMA), index="scan")
    for number, life in enumerate(lives):
        matcher.subscribe(number, life.wanted)
    owed = 0
    for batch in load.batches:
        if batch.feed != feed:
            continue
        result = matcher.match_batch(batch.rows)
        wanted: defaultdict[int, list[Life]] = defaultdict(list)
        for place, number in zip(result.event.tolist(), result.subscription.tolist(), strict=True):
            wanted[place].append(lives[number])
        for place, row in enumerate(batch.rows):
            for subscriber, inbox in load.inboxes.items():
                mine = [life for life in wanted[place] if life.subscriber == subscriber]
                must = {life.id for life in mine if _must(batch, life)}
                owed += len(must)
                may = {life.id for life in mine if _may(batch, life)}
                notification = inbox.notifications.get(batch.first + place)
                told = [] if notification is None else notification["subscriptions"]
                assert len(told) == len(set(told))
                assert must <= set(told) <= may, (batch, place, subscriber)
                if notification is not None:
                    assert told
                    assert (notification["feed"], notification["event"]) == (feed, row)
    assert owed > len(load.batches)  # else this has shown nothing


def _must(batch: Batch, life: Life) -> bool:
    return life.there <= batch.asked and batch.done <= life.going


def _may(batch: Batch, life: Life) -> bool:
    return life.asked <= batch.done and batch.asked <= life.gone


def _check_sources(load: Load, logs: dict[str, dict[int, Any]]) -> None:
    """What was told is in the log."""
    for inbox in load.inboxes.values():
        for number, notification in inbox.notifications.items():
            assert (
                logs[notification["feed"]][number]
                == notification["change" if notification["feed"] == STATE else "event"]
            )


def _check_places(load: Load, http: httpx.Client) -> None:
    """What a subscription was told of publications adds up to those that it matches now."""
    for publication, span in load.places.items():
        answer = http.get(f"/feeds/{STATE}/publications/{publication}")
        if span is None:
            assert answer.status_code == 404
        else:
            low, high = span
            assert answer.json()["regions"] == {
                "region": {"x": low if low == high else [low, high]}
            }
    now = {life.id + "@" + life.subscriber: life for life in load.lives if life.feed == STATE}
    for life in now.values():
        inside: set[str] = set()
        for _, notification in sorted(load.inboxes[life.subscriber].notifications.items()):
            if notification["feed"] == STATE and life.id in notification["subscriptions"]:
                change = notification["change"]
                if change["kind"] == "enter":
                    assert change["publication"] not in inside, notification
                    inside.add(change["publication"])
                else:
                    assert change["publication"] in inside, notification
                    inside.discard(change["publication"])
        if life.going == float("inf"):
            low, high = life.wanted
            matching = {
                name for name, span in load.places.items()
                if span is not None and span[0] <= high and low <= span[1]
            }  # fmt: skip
            assert inside == matching, life


def _check_subscriptions(load: Load, http: httpx.Client) -> None:
    for subscriber in load.inboxes:
        answer = http.get(f"/subscribers/{subscriber}/subscriptions", params={"limit": 1000})
        found = {one["id"] for one in answer.json()["subscriptions"]}
        mine = [life for life in load.lives if life.subscriber == subscriber]
        assert found == {life.id for life in mine if life.gone == float("inf")}
        cursor = http.get(f"/subscribers/{subscriber}").json()["cursor"]
        assert cursor <= max(load.inboxes[subscriber].notifications)
