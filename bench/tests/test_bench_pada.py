"""The test bed of the adjuster: what it is made of, and all of it at a tiny scale."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmatch.broker.store.rows import Notification
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.broker.clients import Publisher, Received, Subscriber
from boxmatch_bench.broker.deliveries import Deliveries, Truth, count
from boxmatch_bench.broker.wire import HttpConnection
from boxmatch_bench.pada.arrivals import moments, shape
from boxmatch_bench.pada.measure import RATED, by_second, measure_rates, memory, recovery
from boxmatch_bench.pada.report import report, tables, verdicts
from boxmatch_bench.pada.runner import FLUCTUATION, OVERLOAD, RATES, tasks
from boxmatch_bench.settings import ADJUSTMENTS, INDEXES, OFF, PAPER, Bed, Schedule
from command_line import Command


class TestArrivals:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_rates_are_one_on_average_and_fluctuate_as_wanted(self, seed: int) -> None:
        rates = shape(30, 7.6757, seed)
        assert len(rates) == 30
        assert rates.mean() == pytest.approx(1.0)
        assert rates.max() / rates.min() == pytest.approx(7.6757)
        assert np.array_equal(rates, shape(30, 7.6757, seed))
        assert not np.array_equal(rates, shape(30, 7.6757, seed + 1))

    def test_one_second_and_no_fluctuation(self) -> None:
        assert shape(1, 7.0, 1).tolist() == [1.0]
        assert shape(4, 1.0, 1).tolist() == [1.0] * 4
        with pytest.raises(ValueError, match="there must be a second"):
            shape(0, 7.0, 1)

    def test_moments_are_so_many_in_each_second_and_in_order(self) -> None:
        due = moments(np.array([3.0, 0.0, 7.4]), 1)
        assert np.bincount(due.astype(int), minlength=3).tolist() == [3, 0, 7]
        assert (np.diff(due) >= 0).all()
        assert np.array_equal(due, moments(np.array([3.0, 0.0, 7.4]), 1))


# Event 0 matches 1 and 4, event 1 nothing, event 2 matches 0.
TRUTH = Truth(np.array([0, 2, 2, 3]), np.array([1, 4, 0]), np.array([10, 11, 12]))
EVENT = np.array([2, 0, 1])
SEQUENCE = np.array([5, 6, 7])


def came(*notifications: tuple[int, float, int, list[int]]) -> Deliveries:
    """Notifications of a sequence number, a rate, a value and subscriptions."""
    return Deliveries(
        np.arange(len(notifications), dtype=float),
        np.array([notification[0] for notification in notifications], np.int64),
        np.array([notification[1] for notification in notifications]),
        np.array([notification[2] for notification in notifications], np.int64),
        np.array([len(notification[3]) for notification in notifications], np.int64),
        np.array([one for notification in notifications for one in notification[3]], np.int64),
    )


class TestCounting:
    def test_false_matches_are_counted_by_event(self) -> None:
        notifications = came(
            (5, 0.0, 12, [0]), (6, 0.5, 10, [4]), (6, 0.5, 10, [9, 1]), (7, 0.2, 11, [3])
        )
        counted = count(TRUTH, EVENT, SEQUENCE, notifications)
        assert counted.true.tolist() == [1, 2, 0]
        assert counted.false.tolist() == [0, 1, 1]
        assert counted.rate.tolist() == [0.0, 0.5, 0.2]
        assert counted.place.tolist() == [0, 1, 1, 2]
        assert counted.measured == pytest.approx(2 / 3)
        assert counted.promised == pytest.approx((0.5 * 2) / 3)

    @pytest.mark.parametrize(
        ("notifications", "complaint"),
        [
            ([(6, 0.0, 10, [1, 4])], "1 are missing"),
            ([(5, 0.1, 12, [0]), (6, 0.1, 10, [1, 3])], "1 are missing"),
            ([(5, 0.1, 12, [0]), (6, 0.1, 10, [1, 4]), (6, 0.1, 10, [4])], "1 came twice"),
            ([(5, 0.0, 12, [0, 3]), (6, 0.0, 10, [1, 4])], "said to be exact"),
            ([(5, 0.0, 10, [0]), (6, 0.0, 10, [1, 4])], "wrong events"),
            ([(5, 0.0, 12, [0]), (6, 0.0, 10, [1, 4]), (8, 0.0, 12, [0])], "nobody published"),
            ([(5, 0.0, 12, [0]), (6, 0.1, 10, [1]), (6, 0.0, 10, [4])], "different rates"),
        ],
    )
    def test_what_must_not_be(self, notifications: list[Any], complaint: str) -> None:
        with pytest.raises(MismatchError, match=complaint):
            count(TRUTH, EVENT, SEQUENCE, came(*notifications))

    def test_nothing_published(self) -> None:
        nothing = np.empty(0, np.int64)
        counted = count(TRUTH, nothing, nothing, came())
        assert (counted.measured, counted.promised) == (0.0, 0.0)

    def test_means_by_second(self) -> None:
        due, values = np.array([0.5, 0.9, 2.1, 3.0]), np.array([1.0, 3.0, 5.0, 7.0])
        assert by_second(due, values, 3) == [2.0, None, 6.0]


class TestSubscribers:
    def test_reads_the_heads_of_notifications_as_the_broker_writes_them(self) -> None:
        async def main() -> Received:
            received = Received()
            subscriber = Subscriber(0, 0, received, 100, lambda error: None)
            notifications = [
                Notification(3, "bench", 1.5, ["7", "12"], b'{"a0":44,"a1":1}', rate=0.001),
                Notification(5, "bench", 1e9, ["8"], b'{"a0":45,"a1":1}'),
            ]
            body = b",".join(notification.to_json() for notification in notifications)
            subscriber._take(b'{"type":"notifications","notifications":[' + body + b"]}")
            return received

        received = asyncio.run(main())
        arrays = received.arrays()
        assert (received.notifications, received.matches, received.disordered) == (2, 3, 0)
        assert arrays["sequence"].tolist() == [3, 5]
        assert arrays["rate"].tolist() == [0.001, 0.0]
        assert arrays["value"].tolist() == [44, 45]
        assert arrays["matches"].tolist() == [2, 1]
        assert arrays["subscription"].tolist() == [7, 12, 8]


class Answering(HttpConnection):
    """Refuses each request the first time, and then accepts it."""

    sent: list[bytes] = []  # noqa: RUF012 - by all connections of a test

    @classmethod
    async def connect(cls) -> HttpConnection:
        return cls()

    def close(self) -> None:
        pass

    def send(self, request: bytes) -> None:
        seen = request in self.sent
        self.sent.append(request)
        number = int(request) + 1
        answer = b'{"first":%d,"count":1,"durable":true}' % number if seen else b"{}"
        loop = asyncio.get_running_loop()
        loop.call_soon(self.answered, self, 200 if seen else 503, answer)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr("boxmatch_bench.broker.clients._AGAIN", 0.01)
    monkeypatch.setattr(Answering, "sent", [])
    return [b"0", b"1", b"2"]


class TestPublisher:
    def test_what_is_refused_is_sent_again(self, requests: list[bytes]) -> None:
        async def main() -> Publisher:
            schedule = Schedule(moments=np.array([0.0, 0.0, 0.02]), seconds=60.0)
            publishing = Publisher(requests, schedule, Answering.connect)
            await publishing.run()
            return publishing

        publishing = asyncio.run(main())
        assert all(publishing.first)
        assert publishing.first.tolist() == [1, 2, 3]
        assert publishing.refused.tolist() == [1, 1, 1]
        assert (publishing.arrays()["answered"] >= publishing.arrays()["due"]).all()

    def test_until_time_is_up(self, requests: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("boxmatch_bench.broker.clients._AGAIN", 60.0)

        async def main() -> Publisher:
            schedule = Schedule(moments=np.zeros(3), seconds=0.05, connections=2)
            publishing = Publisher(requests, schedule, Answering.connect)
            await publishing.run()
            return publishing

        publishing = asyncio.run(main())
        assert not any(publishing.first)
        assert max(publishing.refused) == 1


class TestOverload:
    def test_recovery_and_memory(self) -> None:
        states = [(1, 5, 0.1, 100), (2, 9, 0.1, 110), (3, 9, 0.1, 111), (4, 9, 0.1, 112)]
        states += [(5, 0, 0.1, 112), (7, 0, 0.0, 90)]
        samples = [
            {"at": float(at), "queue": queue, "rate": rate, "private": private}
            for at, queue, rate, private in states
        ]
        found = recovery(samples, 4.5)
        assert found["empty_after_seconds"] == 0.5
        assert found["exact_after_seconds"] == 2.5
        assert found["most_waiting"] == 9
        held = memory(samples, 4.5)
        assert (held["before"], held["most"], held["after"]) == (100, 112, 90)
        assert recovery(samples[:4], 4.5)["exact_after_seconds"] is None


class TestPlan:
    def test_rows_of_both_experiments(self) -> None:
        bed = Bed(loads=(0.7, 0.9), repetitions=3)
        made = tasks([FLUCTUATION, OVERLOAD], bed)
        assert len(made) == len(INDEXES) * len(ADJUSTMENTS) * 2 * 3 + 2
        assert [task.index for task in made] == sorted(
            (task.index for task in made), key=INDEXES.index
        )
        assert {task.experiment for task in tasks([OVERLOAD], bed)} == {OVERLOAD}
        # What is compared takes turns: all of a repetition before any of the next.
        mine = [t for t in made if t.index == "rein" and t.experiment == FLUCTUATION]
        assert [t.repetition for t in mine] == sorted(t.repetition for t in mine)
        assert [t.adjustment for t in mine[:6]] == 2 * list(ADJUSTMENTS)

    def test_the_bed_gets_smaller(self) -> None:
        bed = Bed().at(0.01, 7, 0.5)
        assert (bed.workload.subscriptions, bed.workload.seed, bed.loads) == (1_000, 7, (0.5,))
        assert Bed().at(1.0, 1, repetitions=2).repetitions == 2
        assert min(Bed().loads) == 0.7
        assert Bed().repetitions >= 10
        assert bed.seconds < Bed().seconds
        assert bed.pool % bed.overload_batch == 0
        assert Bed().at(1.0, 1) == Bed()
        assert OFF.request is None
        assert PAPER.request == {"threshold": 0.005, "step": 0.0001, "maximum": 0.001}
        with pytest.raises(ValueError, match="load must be"):
            Bed().at(1.0, 1, 0.0)
        with pytest.raises(ValueError, match="repetitions must be"):
            Bed().at(1.0, 1, None, 0)


class TestRepetitions:
    def rows(self, *ratios: float) -> list[dict[str, Any]]:
        """Repetitions without an adjuster and with one, whose latencies are so many times less."""
        rows = []
        for repetition, ratio in enumerate(ratios):
            for x, mean in ((OFF.name, 100.0), (PAPER.name, 100.0 / ratio)):
                off = x == OFF.name
                rows.append(
                    {
                        **{"experiment": FLUCTUATION, "index": "rein", "x": x, "load": 0.9},
                        **{"repetition": repetition, "scale": 1, "capacity": 500.0},
                        "latency_ms": {"mean": mean, "std": 1.0, "p99": 2.0, "max": 3.0},
                        **{"cores": {"server": 1.0}, "events": 10, "inexact_events": 0},
                        **{"true": 1_000, "false": 0 if off else 1, "highest_rate": 0.001},
                        **{"promised_rate": 0.0 if off else 0.001, "samples": []},
                    }
                )
        return rows

    def test_are_one_line_with_an_interval(self) -> None:
        latency, errors = tables(self.rows(2.0, 2.2, 2.4, 2.2))
        off, on, *paper = latency.rows
        assert off[:4] == ("rein", "0.9", "off", "4")
        assert off[8:12] == ("", "", "", "")
        assert on[2:4] == ("up to 0.1 %", "4")
        assert on[8] == "2.20×"
        assert on[11] == "shorter"
        assert len(paper) == 2
        assert errors.rows[1][3:8] == ("40", "0", "4,000", "4", "0.1")

    @pytest.mark.parametrize(
        ("ratios", "wanted"),
        [
            ((2.3, 2.2, 2.4, 2.3), "is shorter, 2.30 times lower (2.17 to 2.43"),
            ((0.5, 0.6, 0.5, 0.5), "is longer"),
            ((3.0, 0.5, 2.0, 0.8), "is not told apart"),
            ((30.0,), "is not told apart"),  # one repetition says nothing
        ],
    )
    def test_tell_only_what_is_apart(self, ratios: tuple[float, ...], wanted: str) -> None:
        [verdict] = verdicts(self.rows(*ratios))
        assert wanted in verdict
        assert ("target met" in verdict) is (ratios[0] == 2.3)


def test_rates_in_the_engine_alone() -> None:
    """That nothing is missing at any rate is checked while it is measured."""
    bed = Bed().at(0.002, 3)
    row = {"experiment": RATES, "index": "rein", **measure_rates(bed, "rein")}
    assert row["matches"] > 0
    exact = [case["false"] for case in row["rates"] if case["rate"] == 0]
    assert exact == [0, 0, 0]
    assert all(case["us"] > 0 for case in row["rates"])
    [table] = tables([row])
    assert [line[1] for line in table.rows] == ["0", "0.01", "0.1", "1", "5"]


def test_a_report_of_nothing() -> None:
    assert tables([]) == []
    assert verdicts([]) == []
    assert "Summary" in report([], {"scale": 1.0, "seed": 1})


@pytest.mark.slow
def test_all_of_it_at_a_tiny_scale(run_boxmatch: Command, tmp_path: Path) -> None:
    options = ("--scale", "0.002", "--load", "0.5", "--repeats", "2", "--out", str(tmp_path))
    done = run_boxmatch("bench", "reproduce", "pada", *options)
    assert done.code == 0, done.err
    every = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["index"] for row in every if row["experiment"] == RATES] == list(RATED)
    rows = [row for row in every if row["experiment"] != RATES]
    assert [(row["experiment"], row["index"]) for row in rows if row["x"] == "off"] == [
        (FLUCTUATION, index) for index in INDEXES for _ in range(2)
    ]
    assert len(rows) == 2 * len(INDEXES) * len(ADJUSTMENTS) + 2
    for row in rows:
        assert {"workload", "seed", "commit", "machine", "capacity", "samples"} <= row.keys()
        assert row["lost"] == 0 if row["experiment"] == OVERLOAD else row["events"] > 0
        assert row["false"] == 0 if row["x"] == "off" else row["highest_rate"] <= 0.05
    for text in ("off / on", "the paper's Rein", "accepted"):
        assert text in done.out
    page = (tmp_path / "pada.html").read_text()
    assert "mean off / on" in page
    assert "Twice the exact capacity" in page
    assert page.count("data-chart=") == 4 * len(INDEXES) + 3 * 2
    assert not list(tmp_path.glob("pada-*"))
    again = run_boxmatch("bench", "reproduce", "pada", *options)
    assert again.code == 0, again.err
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == len(every)
