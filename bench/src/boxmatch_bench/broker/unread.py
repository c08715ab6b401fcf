"""What notifications cost that nobody reads at the moment: they only wait on disk.

The same batches go to the feed with all subscriptions, while no subscriber is connected, and to a
feed without any, in turn. What waits is compared with the engine's matches.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import orjson

from boxmatch.arrays import Int64Array
from boxmatch_bench.answers import MismatchError
from boxmatch_bench.broker.deliveries import Truth
from boxmatch_bench.broker.processes import Session
from boxmatch_bench.broker.watch import usage
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import FEED, BrokerSetting, Schedule, subscriber_name
from boxmatch_bench.timing import Figures

_UNMATCHED: Final = "unmatched"
_ROUNDS: Final = 3
_WARM: Final = 1.0
_COMPARED: Final = 5
"""Subscribers whose notifications are read and compared one by one; of all they are counted."""
_PAGE: Final = 1_000


def measure_unread(session: Session, setting: BrokerSetting, options: BrokerOptions) -> Figures:
    """A row: events a second with subscriptions and without, and what waits on disk then.

    Raises `MismatchError` if something else waits than the engine says.
    """
    session.call("a feed without subscriptions", "create", _UNMATCHED)
    waiting_before = _waiting(session)
    firsts: list[Int64Array] = []
    taken = {_UNMATCHED: [0.0, 0.0, 0.0], FEED: [0.0, 0.0, 0.0]}
    for seconds in (_WARM, *[options.unread_seconds] * _ROUNDS):
        for feed, totals in taken.items():
            schedule = Schedule.steady(
                seconds=seconds, rate=None, batch=options.batch, connections=options.publishers
            )
            before = usage(session.server.pid)
            result = session.call(f"unread: {feed}", "publish_only", feed, schedule)
            after = usage(session.server.pid)
            first = result["published"]["first"]
            if feed == FEED:
                firsts.append(first)
            if seconds != _WARM:
                totals[0] += int((first > 0).sum()) * options.batch
                totals[1] += result["ended"] - result["began"]
                totals[2] += after.cpu - before.cpu if after and before else 0.0
    session.tell("unread: comparing")
    waiting = _compare(session, setting, options, firsts) - waiting_before
    rates = {feed: events / seconds for feed, (events, seconds, _) in taken.items()}
    cores = {feed: 1e6 * cpu / events for feed, (events, _, cpu) in taken.items()}
    return {
        "phase": "unread",
        "load": {"batch": options.batch, "connections": options.publishers},
        "events": int(taken[FEED][0]),
        "waiting": waiting,
        "events_per_second": rates[FEED],
        "events_per_second_unmatched": rates[_UNMATCHED],
        "times": rates[_UNMATCHED] / rates[FEED],
        "server_cpu_us": cores[FEED],
        "server_cpu_us_unmatched": cores[_UNMATCHED],
        "server_cpu_times": cores[FEED] / cores[_UNMATCHED] if cores[_UNMATCHED] else None,
    }


def _waiting(session: Session) -> int:
    """Notifications that wait, or waited until they were too many, of all subscribers."""
    total, after = 0, ""
    page: list[dict[str, Any]] = [{}]
    while page:
        text = session.server.ask(f"/subscribers?limit={_PAGE}&after={after}")
        page = orjson.loads(text)["subscribers"]
        total += sum(one["backlog"] + one["dropped"] for one in page)
        after = page[-1]["subscriber"] if page else after
    return total


def _compare(
    session: Session, setting: BrokerSetting, options: BrokerOptions, firsts: list[Int64Array]
) -> int:
    """Compare what waits with what was published. How much waits."""
    batch, pool = options.batch, len(session.truth.value)
    numbers: list[Int64Array] = []
    events: list[Int64Array] = []
    for first in firsts:
        accepted = np.flatnonzero(first)
        within = np.arange(batch)
        numbers.append((first[accepted][:, None] + within).reshape(-1))
        events.append((accepted[:, None] * batch + within).reshape(-1) % pool)
    sequence, event = np.concatenate(numbers), np.concatenate(events)
    subscribers = setting.subscribers
    expected = int(_recipients(session.truth, pool, subscribers)[event].sum())
    waiting = _waiting(session)
    if waiting != expected:
        raise MismatchError(f"{waiting:,} notifications wait, and not {expected:,}")
    counts, matched = session.truth.matches(event)
    for number in np.linspace(0, subscribers - 1, min(_COMPARED, subscribers)).astype(int).tolist():
        mine = matched % subscribers == number
        wanted: dict[int, set[str]] = {}
        of = np.repeat(sequence, counts)[mine].tolist()
        for one, subscription in zip(of, matched[mine].tolist(), strict=True):
            wanted.setdefault(one, set()).add(str(subscription))
        name = subscriber_name(number)
        dropped = orjson.loads(session.server.ask(f"/subscribers/{name}"))["dropped"]
        if _read(session, name) != {one: wanted[one] for one in sorted(wanted)[dropped:]}:
            raise MismatchError(f"{name} has other notifications waiting")
    return waiting


def _recipients(truth: Truth, pool: int, subscribers: int) -> Int64Array:
    """How many subscribers each event of the pool has."""
    counts, matched = truth.matches(np.arange(pool))
    pairs = np.unique(np.repeat(np.arange(pool), counts) * subscribers + matched % subscribers)
    return np.bincount(pairs // subscribers, minlength=pool)


def _read(session: Session, subscriber: str) -> dict[int, set[str]]:
    """All notifications of a subscriber, by number."""
    found: dict[int, set[str]] = {}
    page: list[Any] = [{"sequence": 0}]
    while page:
        path = f"/subscribers/{subscriber}/notifications?limit={_PAGE}&after={page[-1]['sequence']}"
        page = orjson.loads(session.server.ask(path))["notifications"]
        found |= {one["sequence"]: set(one["subscriptions"]) for one in page}
    return found
