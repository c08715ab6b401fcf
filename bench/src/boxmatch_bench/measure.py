"""How a matcher is measured: built, asked, updated, compared with competitors, all checked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import perf_counter_ns
from typing import Any

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch_bench import competitors
from boxmatch_bench.answers import by_event, compare
from boxmatch_bench.card import measure_card
from boxmatch_bench.cases import Case, UnavailableError, make_case
from boxmatch_bench.competitors import Answer
from boxmatch_bench.options import MatcherOptions
from boxmatch_bench.provenance import peak_bytes, resident_bytes
from boxmatch_bench.settings import MatcherSetting
from boxmatch_bench.timing import LISTED, Figures, Stage, best_time, time_each, took

_SINGLE_SECONDS = 5.0
_UPDATES_PER_MATCH = 50

STAGES = 7
"""How often `measure` reports a stage, apart from the competitors."""


def measure_matcher(
    setting: MatcherSetting, options: MatcherOptions, stage: Stage = lambda _: None
) -> Figures:
    """Measure one setting. Raises `MismatchError` when an answer is wrong."""
    case = make_case(setting.workload)
    subscriptions = setting.workload.subscriptions
    stage("compiling")
    _compile_matcher(case, options)
    stage("building")
    matcher, build, memory = _build(case, subscriptions, options)
    stage("card")
    card = None if options.device == "cpu" else measure_card(matcher, case, options)
    stage("batches")
    batch = _batches(matcher, case, options)
    stage("single events")
    single = _single(matcher, case.event_dicts(0, options.single))
    stage("checking")
    sample = min(options.check, options.events)
    oracle = competitors.scan(case, subscriptions, options.events)
    truth = oracle(0, sample) if sample else []
    compare(f"{options.index} differs from scan", _answers(matcher, case, sample), truth)
    stage("updates")
    updates = _updates_matcher(matcher, case, subscriptions, setting.updates, truth)
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
        **({} if card is None else {"card": card}),
        "batch": batch,
        "single": single,
        "updates": updates,
        "memory": memory,
        "checked_events": sample,
        "competitors": rivals,
        "reference": asdict(setting.reference) if setting.reference else None,
    }


def _compile_matcher(case: Case, options: MatcherOptions) -> None:
    """Run every path once on a small matcher, so that no figure contains compilation."""
    matcher = Matcher(
        case.schema, index=options.index, device=options.device, **options.index_options
    )
    matcher.warmup()
    case.load(0, 2_000)(matcher)
    matcher.compact()
    events = case.events(0, 16)
    matcher.match_batch(events, threads=options.threads)
    matcher.count_batch(events, threads=options.threads)
    for event in case.event_dicts(0, 16):
        matcher.match(event)
    for row, filter_ in enumerate(case.filters(2_000, 2_016), 2_000):
        matcher.subscribe(row, filter_, dialect=case.dialect)
        matcher.unsubscribe(row)


def _build(
    case: Case, subscriptions: int, options: MatcherOptions
) -> tuple[Matcher, Figures, Figures]:
    gc.collect()
    before = resident_bytes()
    load = case.load(0, subscriptions)
    matcher = Matcher(
        case.schema, index=options.index, device=options.device, **options.index_options
    )
    loaded = resident_bytes()
    with peak_bytes() as peak:
        seconds = took(load, matcher) + took(matcher.compact)
    del load  # the input arrays are the caller's, not the matcher's
    gc.collect()
    after = resident_bytes()
    parts = matcher.memory_usage()
    memory = {
        "parts": parts,
        "resident_before": before,
        "resident_after": after,
        "resident": None if before is None or after is None else after - before,
        "building": peak[0] - loaded if peak and loaded is not None else None,
    }
    return matcher, {"seconds": seconds, "per_second": subscriptions / seconds}, memory


def _batches(matcher: Matcher, case: Case, options: MatcherOptions) -> Figures:
    step, threads = options.batch, options.threads
    events = case.events(0, options.events)
    batches = [events[i : i + step] for i in range(0, options.events, step)]

    def count_all() -> list[Int64Array]:
        return [matcher.count_batch(batch, threads=threads) for batch in batches]

    counts = np.concatenate(count_all())
    count = min(took(count_all) for _ in range(options.repeats))
    # A setting in which most subscriptions match would list billions of ids: list fewer events.
    listed = max(1, int(np.searchsorted(np.cumsum(counts), LISTED)))
    if listed < options.events:
        batches = [events[i : min(i + step, listed)] for i in range(0, listed, step)]

    def list_all() -> None:
        for batch in batches:
            matcher.match_batch(batch, threads=threads)

    match = min(took(list_all) for _ in range(options.repeats))
    return {
        "count_microseconds": 1e6 * count / options.events,
        "match_microseconds": 1e6 * match / min(listed, options.events),
        "match_events": min(listed, options.events),
        "matches_per_event": float(counts.mean()),
    }


def _single(matcher: Matcher, events: Sequence[Any]) -> Figures | None:
    if not events:
        return None
    taken, _ = time_each(matcher.match, events, _SINGLE_SECONDS, warm=20)
    p50, p99 = np.percentile(taken, [50, 99]) / 1000
    counting, _ = time_each(lambda event: range(matcher.count(event)), events, _SINGLE_SECONDS)
    arrays, found = time_each(
        lambda event: matcher.match_batch([event], threads=1).subscription, events, _SINGLE_SECONDS
    )
    return {
        "count_p50_microseconds": float(np.median(counting)) / 1000,
        "array_p50_microseconds": float(np.median(arrays)) / 1000,
        "array_nanoseconds_per_id": float(arrays.sum() / found.sum()) if found.any() else None,
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
        compare("match differs from match_batch", [single], [answers[number]])
    return answers


def _updates_matcher(
    matcher: Matcher, case: Case, subscriptions: int, updates: int, truth: list[Int64Array]
) -> Figures | None:
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
    dialect = case.dialect
    subscribe = run(lambda i: matcher.subscribe(subscriptions + i, filters[i], dialect=dialect))
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
    compare("after updates, the index differs", _answers(matcher, case, len(truth)), wanted)


def _rival(
    name: str,
    case: Case,
    subscriptions: int,
    options: MatcherOptions,
    oracle: Answer,
    truth: list[Int64Array],
) -> Figures:
    try:
        prepare = competitors.COMPETITORS[name]
        answer = oracle if name == "scan" else prepare(case, subscriptions, options.events)
    except UnavailableError as reason:
        return {"skipped": str(reason)}
    timing = best_time(lambda n: answer(0, n), options.events, options.competitor_seconds)
    some = min(3, len(truth))
    compare(f"{name} differs from scan", answer(0, some) if some else [], truth[:some])
    return {"microseconds": timing.microseconds, "events": timing.events}
