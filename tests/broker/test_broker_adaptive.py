"""Under load a feed may give up precision: never a match too few, declared, and within bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_broker_core import (  # in this folder
    all_notifications,
    events,
    run,
    running,
    ticks,
    wanted,
)

import boxmatch as bm
from boxmatch.broker.feeds.event_feed import SAMPLE, Adaptation, EventFeed, in_effect
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.wire.requests import Adaptive, Wanted
from boxmatch.workloads import RangeWorkload

# Attributes that few ask for can be left unchecked at a small rate of false matches.
WORKLOAD = RangeWorkload(
    subscriptions=600, attributes=60, predicates=4, event_size=60, width=0.7,
    attribute_choice="zipf", attribute_alpha=2.0,
)  # fmt: skip
ADAPTIVE = Adaptive(threshold=0.01, step=0.02, maximum=0.1)


@pytest.mark.parametrize("index", ["tile", "rein"])
def test_at_a_rate_nothing_is_missed_and_who_wants_it_is_exact(tmp_path: Path, index: str) -> None:
    filters = WORKLOAD.filters(0, WORKLOAD.subscriptions)
    names = WORKLOAD.schema.names
    rows = [
        dict(zip(names, map(int, row), strict=True))
        for row in np.asarray(WORKLOAD.events(0, 80)).tolist()
    ]
    truth = bm.Matcher(WORKLOAD.schema, index="scan")
    for number, text in enumerate(filters):
        truth.subscribe(number, text)
    right = [set(truth.match(row)) for row in rows]

    async def main() -> None:
        async with running(tmp_path) as broker:
            spec = FeedSpec(name="f", spaces={"f": WORKLOAD.schema}, index=index, adaptive=ADAPTIVE)
            await broker.feeds.create(spec)
            for subscriber, exact in (("loose", False), ("strict", True)):
                many = {
                    str(number): Wanted(feed="f", filter=text, exact=exact)
                    for number, text in enumerate(filters)
                }
                await broker.subscriptions.put_many(subscriber, many)
            feed = broker.directory.feed("f").feed
            await asyncio.to_thread(feed.tidy)  # new ones are always checked
            adapting = feed.adapting
            adapting.decide = lambda waited, events: 0.1  # type: ignore[method-assign]
            await broker.pipeline.publish("f", events(*rows))
            found = {
                notification.sequence: notification
                for notification in await all_notifications(broker, "loose")
            }
            false = 0
            for place, expected in enumerate(right):
                notification = found.get(place + 1)
                got = set() if notification is None else set(map(int, notification.subscriptions))
                assert expected <= got
                false += len(got - expected)
                assert notification is None or notification.rate == 0.1
            assert 0 < false <= 0.1 * sum(map(len, right))
            strict = await all_notifications(broker, "strict")
            assert [(one.sequence, one.rate) for one in strict] == [
                (place + 1, 0.0) for place, expected in enumerate(right) if expected
            ]
            for notification in strict:
                assert set(map(int, notification.subscriptions)) == right[notification.sequence - 1]
            info = broker.feeds.get("f")
            assert info.sampled_matches > 0
            assert 0 <= info.sampled_false <= info.sampled_matches

    run(main)


def test_on_and_off_while_it_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            assert broker.feeds.get("ticks").spec.adaptive is None
            info = await broker.feeds.adapt("ticks", ADAPTIVE)
            assert (info.spec.adaptive, info.rate) == (ADAPTIVE, 0.0)
            with pytest.raises(bm.BrokerError, match="threshold must be above 0"):
                await broker.feeds.adapt("ticks", Adaptive(threshold=0.0))
            await broker.subscriptions.put("ann", "s", wanted("price > 1"))
            exact = Wanted(feed="ticks", filter="price > 1", exact=True)
            await broker.subscriptions.put("ann", "s", exact)
            await broker.pipeline.publish("ticks", events({"price": 2.0}))
            await broker.subscriptions.put("ann", "s", wanted("price > 3"))
            await broker.pipeline.publish("ticks", events({"price": 2.0}, {"price": 4.0}))
            assert [one.sequence for one in await all_notifications(broker, "ann")] == [1, 3]

    async def again() -> None:
        async with running(tmp_path) as broker:
            assert broker.feeds.get("ticks").spec.adaptive == ADAPTIVE
            await broker.feeds.adapt("ticks", None)
            assert broker.feeds.get("ticks").spec.adaptive is None

    run(main)
    run(again)


def test_congestion_raises_the_rate_and_quiet_takes_it_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(replace(ticks(), index="rein"))
            await broker.feeds.adapt("ticks", Adaptive(threshold=0.01, step=0.01, maximum=0.05))
            # A feed that has been idle is exact; on a slow machine that may be while we look.
            feed = broker.directory.feed("ticks").feed
            feed.adapting._clock = lambda: 0.0
            hold = asyncio.Event()
            loop = asyncio.get_running_loop()

            def block() -> None:
                asyncio.run_coroutine_threadsafe(hold.wait(), loop).result()

            blocked = asyncio.create_task(broker.pipeline.call(feed, block))
            waiting = asyncio.create_task(broker.pipeline.publish("ticks", events({"price": 1.0})))
            await asyncio.sleep(0.05)
            hold.set()
            await asyncio.gather(blocked, waiting)
            assert broker.feeds.get("ticks").rate == 0.01
            for _ in range(20):
                await broker.pipeline.publish("ticks", events({"price": 1.0}))
            assert broker.feeds.get("ticks").rate == 0.0

    run(main)


@pytest.mark.parametrize(("index", "pays"), [("tile", False), ("count", False), ("hem", True)])
def test_precision_is_given_up_only_where_that_is_faster(index: str, pays: bool) -> None:
    spec = replace(ticks(), index=index, adaptive=ADAPTIVE)
    assert in_effect(spec) == (ADAPTIVE if pays else None)
    assert EventFeed(spec, 1).adapting.decide(60.0, 100) == (0.1 if pays else 0.0)


class TestAdapting:
    def test_a_feed_that_has_been_idle_is_exact(self) -> None:
        now = 100.0
        adapting = Adaptation(ADAPTIVE, clock=lambda: now)
        assert adapting.decide(1.0, 5) == adapting.rate == 0.1
        now += 60.0  # it takes long to match them, but it is not idle
        assert adapting.rate == 0.1
        adapting.end_batch()
        now += 0.4
        assert adapting.rate == 0.1
        now += 0.2
        assert adapting.rate == 0.0
        now += 60.0  # these came right after the others, and had to wait for something else
        assert adapting.decide(60.5, 1) == 0.1
        adapting.end_batch()
        now += 0.6
        assert adapting.decide(0.001, 1) == 0.0

    def test_of_inexact_events_few_are_matched_again(self) -> None:
        adapting = Adaptation(ADAPTIVE)
        for size in (1, 7, 16, 500):
            chosen = [adapting.is_to_sample(size) for _ in range(1000)]
            assert sum(chosen) * min(size, SAMPLE) <= 1000 * size / 64 + SAMPLE
            assert any(chosen)
        assert Adaptation(ADAPTIVE).is_to_sample(1)

    def test_without_an_adjuster_everything_is_exact(self) -> None:
        adapting = Adaptation(None)
        assert adapting.decide(60.0, 100) == adapting.rate == 0.0
