"""How a setting is measured: build, batches, single events, updates, memory, all checked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from boxmatch.engine.matcher import Matcher
from boxmatch_bench import competitors
from boxmatch_bench.cases import Case, case_of
from boxmatch_bench.competitors import Answer, Int64Array, by_event
from boxmatch_bench.provenance import resident_bytes
from boxmatch_bench.settings import Setting

_MATCH_ROWS = 20_000_000  # most matches to list in one batch: memory, not time, is the limit
_SINGLE_SECONDS = 5.0
_UPDATES_PER_MATCH = 50


class MismatchError(Exception):
    """The index and the oracle disagree."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is the same for all settings of a run."""

    index: str = "tile"
    index_options: dict[str, Any] = field(default_factory=dict)
    events: int = 2_000
    batch: int = 2_000
    single: int = 2_000
    repeats: int = 5
    threads: int = 1
    check: int = 20
    competitors: tuple[str, ...] = tuple(competitors.COMPETITORS)
    competitor_seconds: float = 3.0

    def __post_init__(self) -> None:
        for name in ("events", "batch", "repeats", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("single", "check"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in self.competitors:
            if name not in competitors.COMPETITORS:
                known = ", ".join(competitors.COMPETITORS)
                raise ValueError(f"no competitor {name!r}; there are {known}")


Stage = Callable[[str], None]

STAGES = 6
"""How often `measure` reports a stage, apart from the competitors."""


def measure(setting: Setting, options: Options, stage: Stage = lambda _: None) -> dict[str, Any]:
    """Measure one setting. Raises `MismatchError` when an answer is wrong."""
    case = case_of(setting.workload)
    subscriptions = setting.workload.subscriptions
    stage("compiling")
    _compile(case, options)
    stage("building")
    matcher, build, memory = _build(case, subscriptions, options)
    stage("batches")
    batch = _batches(matcher, case, options)
    stage("single events")
    single = _single(matcher, case.event_dicts(0, options.single))
    stage("checking")
    sample = min(options.check, options.events)
    oracle = competitors.scan(case, subscriptions, options.events)
    truth = oracle(0, sample) if sample else []
    _compare(f"{options.index} differs from scan", _answers(matcher, case, sample), truth)
    stage("updates")
    updates = _updates(matcher, case, subscriptions, setting.updates, truth)
    del matcher
    rivals = {}
    for name in options.competitors:
        stage(name)
        rivals[name] = _rival(name, case, subscriptions, options, oracle, truth)
    return {
        "preset": setting.preset,
        "workload": type(setting.workload).__name__,
        "parameters": asdict(setting.workload),
        "options": asdict(options),
        "build": build,
        "batch": batch,
        "single": single,
        "updates": updates,
        "memory": memory,
        "checked_events": sample,
        "competitors": rivals,
        "reference": asdict(setting.reference) if setting.reference else None,
    }


def _compile(case: Case, options: Options) -> None:
    """Run every path once on a small matcher, so that no figure contains compilation."""
    matcher = Matcher(case.schema, index=options.index, **options.index_options)
    matcher.warmup()
    case.load(0, 2_000)(matcher)
    matcher.compact()
    events = case.events(0, 16)
    matcher.match_batch(events, threads=options.threads)
    matcher.count_batch(events, threads=options.threads)
    for event in case.event_dicts(0, 16):
        matcher.match(event)
    for row, filter_ in enumerate(case.filters(2_000, 2_016), 2_000):
        matcher.subscribe(row, filter_)
        matcher.unsubscribe(row)


def _build(
    case: Case, subscriptions: int, options: Options
) -> tuple[Matcher, dict[str, Any], dict[str, Any]]:
    gc.collect()
    before = resident_bytes()
    load = case.load(0, subscriptions)
    matcher = Matcher(case.schema, index=options.index, **options.index_options)
    began = perf_counter()
    load(matcher)
    matcher.compact()
    took = perf_counter() - began
    del load  # the input arrays are the caller's, not the matcher's
    gc.collect()
    after = resident_bytes()
    parts = matcher.memory_usage()
    memory = {
        "parts": parts,
        "resident_before": before,
        "resident_after": after,
        "resident": None if before is None or after is None else after - before,
    }
    return matcher, {"seconds": took, "per_second": subscriptions / took}, memory


def _batches(matcher: Matcher, case: Case, options: Options) -> dict[str, Any]:
    step, threads = options.batch, options.threads
    events = case.events(0, options.events)
    batches = [events[i : i + step] for i in range(0, options.events, step)]
    counts = np.concatenate([matcher.count_batch(batch, threads=threads) for batch in batches])
    count = _best(
        lambda: [matcher.count_batch(batch, threads=threads) for batch in batches], options.repeats
    )
    # A setting in which most subscriptions match would list billions of ids: list fewer events.
    listed = max(1, int(np.searchsorted(np.cumsum(counts), _MATCH_ROWS)))
    if listed < options.events:
        batches = [events[i : min(i + step, listed)] for i in range(0, listed, step)]

    def list_all() -> None:
        for batch in batches:
            matcher.match_batch(batch, threads=threads)

    match = _best(list_all, options.repeats)
    return {
        "count_microseconds": 1e6 * count / options.events,
        "match_microseconds": 1e6 * match / min(listed, options.events),
        "match_events": min(listed, options.events),
        "matches_per_event": float(counts.mean()),
    }


def _best(run: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = perf_counter()
        run()
        best = min(best, perf_counter() - began)
    return best


def _single(matcher: Matcher, events: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not events:
        return None
    for event in events[:20]:
        matcher.match(event)
    taken = []
    deadline = perf_counter() + _SINGLE_SECONDS
    for event in events:
        began = perf_counter_ns()
        matcher.match(event)
        taken.append(perf_counter_ns() - began)
        if perf_counter() > deadline:
            break
    p50, p99 = np.percentile(taken, [50, 99]) / 1000
    return {
        "p50_microseconds": float(p50),
        "p99_microseconds": float(p99),
        "mean_microseconds": float(np.mean(taken)) / 1000,
        "events": len(taken),
    }


def _answers(matcher: Matcher, case: Case, events: int) -> list[Int64Array]:
    if not events:
        return []
    answers = by_event(matcher.match_batch(case.events(0, events)), events)
    for number, event in enumerate(case.event_dicts(0, events)):
        single = np.sort(np.array(matcher.match(event), np.int64))
        _compare("match differs from match_batch", [single], [answers[number]])
    return answers


def _compare(complaint: str, got: list[Int64Array], wanted: list[Int64Array]) -> None:
    for event, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        if not np.array_equal(ours, theirs):
            extra = np.setdiff1d(ours, theirs)
            missing = np.setdiff1d(theirs, ours)
            raise MismatchError(
                f"{complaint} at event {event}: {len(extra)} ids too many "
                f"(such as {extra[:3].tolist()}), {len(missing)} missing "
                f"(such as {missing[:3].tolist()})"
            )


def _updates(
    matcher: Matcher, case: Case, subscriptions: int, updates: int, truth: list[Int64Array]
) -> dict[str, Any] | None:
    """Add `updates` subscriptions one by one, then remove as many, half of them old ones.

    A match every few updates keeps the index honest about work that it puts off.
    """
    if not updates:
        return None
    events = case.event_dicts(0, 200)
    matching: list[int] = []

    def run(calls: Callable[[int], object]) -> float:
        spent = 0
        for position in range(updates):
            began = perf_counter_ns()
            calls(position)
            spent += perf_counter_ns() - began
            if position % _UPDATES_PER_MATCH == 0:
                began = perf_counter_ns()
                matcher.match(events[position % len(events)])
                matching.append(perf_counter_ns() - began)
        return spent / updates / 1000

    filters = case.filters(subscriptions, subscriptions + updates)
    subscribe = run(lambda i: matcher.subscribe(subscriptions + i, filters[i]))
    rng = np.random.default_rng(1)
    old = rng.choice(subscriptions, min(updates // 2, subscriptions), replace=False)
    new = subscriptions + rng.choice(updates, updates - len(old), replace=False)
    removed = rng.permutation(np.concatenate([old, new]))
    ids = removed.tolist()
    unsubscribe = run(lambda i: matcher.unsubscribe(ids[i]))
    if truth:
        _check_updates(matcher, case, subscriptions, updates, removed, truth)
    return {
        "subscribe_microseconds": subscribe,
        "unsubscribe_microseconds": unsubscribe,
        "match_p50_microseconds": float(np.median(matching)) / 1000,
        "match_max_microseconds": max(matching) / 1000,
        "count": updates,
    }


def _check_updates(
    matcher: Matcher,
    case: Case,
    subscriptions: int,
    updates: int,
    removed: Int64Array,
    truth: list[Int64Array],
) -> None:
    """The old answers, with what the additions alone match, without what was removed."""
    additions = Matcher(case.schema, index="scan")
    case.load(subscriptions, subscriptions + updates)(additions)
    added = _answers(additions, case, len(truth))
    wanted = [
        np.setdiff1d(np.concatenate(both), removed) for both in zip(truth, added, strict=True)
    ]
    _compare("after updates, the index differs", _answers(matcher, case, len(truth)), wanted)


def _rival(
    name: str,
    case: Case,
    subscriptions: int,
    options: Options,
    oracle: Answer,
    truth: list[Int64Array],
) -> dict[str, Any]:
    try:
        prepare = competitors.COMPETITORS[name]
        answer = oracle if name == "scan" else prepare(case, subscriptions, options.events)
    except competitors.UnavailableError as reason:
        return {"skipped": str(reason)}
    microseconds, events = competitors.time_per_event(
        answer, options.events, options.competitor_seconds
    )
    some = min(3, len(truth))
    _compare(f"{name} differs from scan", answer(0, some) if some else [], truth[:some])
    return {"microseconds": microseconds, "events": events}
