"""How a matcher, and an index by itself, are measured: built, asked, updated, all checked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.memory import release_free_memory
from boxmatch.errors import IndexTooLargeError
from boxmatch_bench import competitors
from boxmatch_bench.answers import MismatchError, by_event, compare, split
from boxmatch_bench.cases import Case, make_case
from boxmatch_bench.competitors import Answer
from boxmatch_bench.provenance import resident_bytes
from boxmatch_bench.reproduce.experiment import NUMPY, Extra, Series
from boxmatch_bench.reproduce.setting import Setting
from boxmatch_bench.reproduce.skipping import skipped_attributes, skipping_figures
from boxmatch_bench.reproduce.subject import Subject
from boxmatch_bench.reproduce.updates import engine_updates, native_updates
from boxmatch_bench.settings import MatcherOptions, MatcherSetting
from boxmatch_bench.timing import Effort, best_time, by_matches, spread, time_each

Stage = Callable[[str], None]
Figures = dict[str, Any]

_LISTED = 20_000_000  # most matches to list in one call: memory, not time, is the limit
_SINGLE_SECONDS = 5.0
_UPDATES_PER_MATCH = 50
_WARM_BOXES = 500
_WARM_EVENTS = 300  # enough for every way that an index answers a batch

STAGES = 6
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
    case: Case, subscriptions: int, options: MatcherOptions
) -> tuple[Matcher, Figures, Figures]:
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


def _batches(matcher: Matcher, case: Case, options: MatcherOptions) -> Figures:
    step, threads = options.batch, options.threads
    events = case.events(0, options.events)
    batches = [events[i : i + step] for i in range(0, options.events, step)]
    counts = np.concatenate([matcher.count_batch(batch, threads=threads) for batch in batches])
    count = _best(
        lambda: [matcher.count_batch(batch, threads=threads) for batch in batches], options.repeats
    )
    # A setting in which most subscriptions match would list billions of ids: list fewer events.
    listed = max(1, int(np.searchsorted(np.cumsum(counts), _LISTED)))
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


def _single(matcher: Matcher, events: Sequence[dict[str, Any]]) -> Figures | None:
    if not events:
        return None
    taken, _ = time_each(matcher.match, events, _SINGLE_SECONDS, warm=20)
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
    except competitors.UnavailableError as reason:
        return {"skipped": str(reason)}
    timing = best_time(lambda n: answer(0, n), options.events, options.competitor_seconds)
    some = min(3, len(truth))
    compare(f"{name} differs from scan", answer(0, some) if some else [], truth[:some])
    return {"microseconds": timing.microseconds, "events": timing.events}


def measure_index(
    series: Series,
    setting: Setting,
    extras: frozenset[Extra],
    effort: Effort,
    stage: Stage = lambda _: None,
) -> Figures:
    """All figures of one index at one setting. Raises `MismatchError` when an answer is wrong.

    An index that refuses for memory gives the reason under `refused`.
    """
    skipped = skipped_attributes(series, setting)
    try:
        stage("compiling")
        _compile_index(series, setting, skipped, extras)
        stage("building")
        subject = Subject(series, setting.boxes.dimensions, skipped)
        began = perf_counter()
        subject.build(setting.boxes)
        figures: Figures = {"build_seconds": perf_counter() - began}
    except IndexTooLargeError as reason:
        return {"refused": str(reason)}
    figures["parameters"] = dict(subject.index.chosen)
    parts = subject.index.nbytes
    figures["memory"] = {"parts": parts, "total": sum(parts.values())}
    stage("checking")
    figures["checked_events"] = check(subject, setting)
    if series.index == NUMPY.index:
        stage("event by event")
        figures["single"] = single(subject, setting.points, effort.seconds / 8)[0]
    else:
        figures |= _searches(subject, setting, extras, effort, stage)
        if not series.exact:
            stage("false positives")
            figures["errors"] = skipping_figures(subject, setting, count="errors" in extras)
        if "marks" in extras and series.index == "hem":
            stage("marking")
            figures["marks"] = marks(subject, setting, effort.seconds / 4)
        if "updates" in extras:
            stage("updating")
            figures |= _updates_index(subject, setting, effort)
    del subject
    gc.collect()
    release_free_memory()
    return figures


def _searches(
    subject: Subject, setting: Setting, extras: frozenset[Extra], effort: Effort, stage: Stage
) -> Figures:
    points = setting.points
    stage("counting in batches")
    counting = best_time(lambda n: subject.count(points[:n]), len(points), 0.2 * effort.seconds)
    if subject.series.exact and (subject.series.index == "tile" or counting.events == len(points)):
        setting.learn(subject.count(points))
    per_event = float(setting.counts.mean())
    stage("matching in batches")
    most = max(1, min(len(points), int(_LISTED / max(per_event, 1.0))))
    matching = best_time(lambda n: subject.match(points[:n]), most, 0.35 * effort.seconds)
    stage("event by event")
    one_by_one, taken, found = single(subject, points, 0.35 * effort.seconds)
    figures: Figures = {
        "batch": {
            "match": matching.microseconds,
            "match_events": matching.events,
            "count": counting.microseconds,
            "count_events": counting.events,
        },
        "single": one_by_one,
        "matches": {"per_event": per_event, "events": len(points)},
    }
    if "profile" in extras:
        figures["profile"] = by_matches(taken, found)
    return figures


def _compile_index(
    series: Series, setting: Setting, skipped: BoolArray | None, extras: frozenset[Extra]
) -> None:
    """Run every path once on a few boxes, so that no figure contains compilation."""
    few = setting.boxes.take(np.arange(min(_WARM_BOXES, setting.boxes.count)))
    points = setting.points[:_WARM_EVENTS]
    subject = Subject(series, few.dimensions, skipped)
    subject.build(few)
    if series.index == NUMPY.index:
        return
    subject.match(points)
    subject.count(points)
    subject.match_one(points[:1])
    if "updates" in extras and subject.index.capabilities.updates:
        added = subject.index.add(few.take(np.arange(min(2, few.count))))
        subject.index.remove(added)


def check(subject: Subject, setting: Setting) -> int:
    """Compare whole answers with brute force; return on how many events."""
    name, points = subject.series.label, setting.points[: len(setting.truth)]
    found = subject.match(points)
    answers = split(*found, subject.order)
    compare(f"{name} differs from scan", answers, setting.truth, exact=subject.series.exact)
    alone = [subject.match_one(points[i : i + 1]) for i in range(len(points))]
    each = split(np.array([len(rows) for rows in alone]), np.concatenate(alone), subject.order)
    compare(f"{name}: single events differ from a batch", each, answers)
    if not np.array_equal(subject.count(points), found.counts):
        raise MismatchError(f"{name}: count differs from match")
    return len(points)


def single(
    subject: Subject, points: Int64Array, seconds: float
) -> tuple[Figures, Int64Array, Int64Array]:
    """Times of events matched one after the other: a summary, nanoseconds, matches."""
    alone = [points[i : i + 1] for i in range(len(points))]
    nanoseconds, found = time_each(subject.match_one, alone, seconds)
    return {**spread(nanoseconds), "events": len(nanoseconds)}, nanoseconds, found


def marks(subject: Subject, setting: Setting, seconds: float) -> Figures:
    """How long HEM marks boxes one by one, how many, and how many there are without its cache."""
    from boxmatch.indexes.papers.hem import mark_only

    points = setting.points
    timing = best_time(lambda n: mark_only(subject.index, points[:n]), len(points), seconds)
    # Of all events, as what they are compared with: a sample may be far from the mean.
    per_event = mark_only(subject.index, points) / len(points)
    return {
        "time": timing.microseconds,
        "events": timing.events,
        "per_event": per_event,
        "without": setting.unsatisfied,
        "avoided": 1 - per_event / setting.unsatisfied if setting.unsatisfied else None,
    }


def _updates_index(subject: Subject, setting: Setting, effort: Effort) -> Figures:
    try:
        if subject.index.capabilities.updates:
            updates = native_updates(subject, setting, effort.seconds / 4)
        else:
            updates = engine_updates(subject.series, setting, effort.seconds / 4)
    except IndexTooLargeError as reason:  # room to grow may be too much where building was not
        return {"updates_refused": str(reason)}
    return updates._asdict()
