"""Single events while subscriptions come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from threading import Event, Thread
from typing import Any, Final

import numpy as np

from boxmatch.arrays import Float64Array
from boxmatch.engine.matcher import Matcher
from boxmatch_bench.answers import compare
from boxmatch_bench.cases import RangeCase
from boxmatch_bench.options import ChangeOptions
from boxmatch_bench.reproduce.cpp import DEFAULT
from boxmatch_bench.tables import Row, Table, number
from boxmatch_bench.timing import Figures, Stage, spread_ms

STAGES: Final = 4
_EVENTS: Final = 2_000
_CHECKED: Final = 20


def measure_changes(options: ChangeOptions, stage: Stage = lambda _: None) -> Figures:
    """Match for so many seconds without changes, and as long beside them; check the outcome."""
    workload = replace(DEFAULT, subscriptions=options.subscriptions)
    case = RangeCase(workload)
    stage("building")
    matcher = Matcher(case.schema)
    matcher.warmup()
    case.load(0, options.subscriptions)(matcher)
    matcher.compact()
    events = case.event_dicts(0, _EVENTS)
    planned = int(options.rate * options.seconds)
    filters = case.filters(options.subscriptions, options.subscriptions + planned)
    stage("quiet")
    quiet = _match(matcher, events, options.seconds)
    stage("changes")
    changer = _Changer(matcher, filters, options)
    changer.start()
    beside = _match(matcher, events, options.seconds)
    changer.stop()
    stage("checking")
    _check(matcher, case, options.subscriptions, changer.made)
    return {
        "parameters": asdict(workload),
        "options": asdict(options),
        "quiet_ms": spread_ms(quiet),
        "beside_ms": spread_ms(beside),
        "subscribe_ms": spread_ms(np.array(changer.subscribing)),
        "unsubscribe_ms": spread_ms(np.array(changer.unsubscribing)),
        "pairs_planned": planned,
        "pairs_made": changer.made,
    }


def _match(matcher: Matcher, events: list[dict[str, Any]], seconds: float) -> Float64Array:
    taken = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        for event in events:
            began = time.perf_counter()
            matcher.match(event)
            now = time.perf_counter()
            taken.append(now - began)
            if now >= end:
                break
    return np.array(taken)


class _Changer(Thread):
    """Subscribes a new one and unsubscribes the oldest, so many times a second."""

    def __init__(self, matcher: Matcher, filters: Any, options: ChangeOptions) -> None:
        super().__init__(daemon=True)
        self._matcher, self._filters, self._options = matcher, filters, options
        self._over = Event()
        self.subscribing: list[float] = []
        self.unsubscribing: list[float] = []

    @property
    def made(self) -> int:
        """Pairs of changes."""
        return len(self.unsubscribing)

    def run(self) -> None:
        began = time.perf_counter()
        for made, filter_ in enumerate(self._filters):
            due = began + made / self._options.rate
            if self._over.wait(max(0.0, due - time.perf_counter())):
                return
            first = time.perf_counter()
            self._matcher.subscribe(self._options.subscriptions + made, filter_)
            then = time.perf_counter()
            self._matcher.unsubscribe(made)
            self.subscribing.append(then - first)
            self.unsubscribing.append(time.perf_counter() - then)

    def stop(self) -> None:
        self._over.set()
        self.join()


def _check(matcher: Matcher, case: RangeCase, subscriptions: int, changed: int) -> None:
    """What is there is what was never removed: the rows from `changed` on."""
    there = np.sort(np.array(list(matcher.ids()), np.int64))
    expected = np.arange(changed, subscriptions + changed)
    compare("after the changes, other subscriptions are there", [there], [expected])
    oracle = Matcher(case.schema, index="scan")
    case.load(changed, subscriptions + changed)(oracle)
    for event in case.event_dicts(0, _CHECKED):
        found, wanted = (np.sort(np.array(m.match(event), np.int64)) for m in (matcher, oracle))
        compare("after the changes, matches differ from scan", [found], [wanted])


_SHARES: Final = ("p50", "p90", "p99", "p99.9", "max")


def change_table(rows: Sequence[Row]) -> Table:
    """Milliseconds of matches without and with changes, and of the changes."""
    names = {
        "quiet_ms": "match, nothing else",
        "beside_ms": "match, beside changes",
        "subscribe_ms": "subscribe",
        "unsubscribe_ms": "unsubscribe",
    }
    shown = [
        (name, *("" if row[key] is None else number(row[key][share]) for share in _SHARES))
        for row in rows
        for key, name in names.items()
    ]
    return Table("single events, ms", ("", *_SHARES), tuple(shown))
