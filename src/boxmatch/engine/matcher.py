"""`Matcher`: finds which subscriptions want an event, exactly, while they change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from boxmatch.adaptive.excess import Excess
from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.engine.box_stores import StoreView
from boxmatch.engine.explain import Among, Explainer, Nearest, find_nearest
from boxmatch.engine.ids import IdArray, check_id
from boxmatch.engine.kept_columns import KeptColumns
from boxmatch.engine.memory import available_memory
from boxmatch.engine.results import (
    MatchResult,
    Searched,
    by_chunks,
    checked,
    fold_events,
    join_chunks,
    join_parts,
    join_positions,
)
from boxmatch.engine.snapshot import Snapshot
from boxmatch.engine.subscriptions import Subscriptions
from boxmatch.errors import (
    AttributeValueError,
    EventError,
    IndexConfigError,
    ResultTooLargeError,
)
from boxmatch.indexes.base import Matches
from boxmatch.model.explanation import Explanation
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.json_texts import Event, read_event
from boxmatch.model.point_encoder import PointBatch


class Matcher(Subscriptions):
    """Finds, for an event, every subscription that it satisfies.

    All methods may be called from any thread. Matching works on a snapshot and never waits: a
    subscription is matched from the moment `subscribe` returns, and not after `unsubscribe` has.
    Writers take turns.
    """

    def __repr__(self) -> str:
        return f"<Matcher of {len(self):,} subscriptions, index {self.index!r}>"

    # Matching

    def match(
        self, event: Event, *, max_false_positive_rate: float | None = None
    ) -> list[SubscriptionId]:
        """The ids of all subscriptions that want the event, in no particular order.

        With a rate above 0, and below 1, the answer may have that many more ids for each right
        one, in expectation, but never lacks any: predicates on rare attributes are not checked. How
        often predicates hold is estimated from the subscriptions, on the assumption that events
        have what these ask for. An index that cannot leave out predicates answers exactly. The rate
        is 0 unless the index was made with another (`ada-rein` has one).
        """
        snapshot = self._stores.snapshot
        skipped = self._skipped(snapshot, max_false_positive_rate)
        event = read_event(event)
        self._names.one(event)
        return snapshot.single.match(event, skipped)

    def count(self, event: Event, *, max_false_positive_rate: float | None = None) -> int:
        """How many subscriptions want the event; cheaper than listing them. See `match`."""
        snapshot = self._stores.snapshot
        skipped = self._skipped(snapshot, max_false_positive_rate)
        event = read_event(event)
        self._names.one(event)
        return snapshot.single.count(event, skipped)

    def match_batch(
        self,
        events: Any,
        *,
        threads: int | None = None,
        max_false_positive_rate: float | None = None,
        skipped_attributes: Collection[str] | None = None,
        keep: Collection[str] | None = None,
    ) -> MatchResult:
        """The matches of many events: dicts, an Arrow, pandas or polars table, or n × d numbers.

        `keep` names columns of the events that the result has, too, when it is read as a table.
        Uses all cores unless `threads` says otherwise. For the rate see `match`; the result's
        `skipped_attributes` say what was not checked. Several matchers that share subscriptions
        out can be told what to leave unchecked by names, chosen for all of them, in the place of
        a rate.

        Raises `ResultTooLargeError` if the matches are not expected to fit into memory;
        `match_batches` has them in parts.
        """
        snapshot = self._stores.snapshot_for(events)
        skipped = self._skipped(snapshot, max_false_positive_rate, skipped_attributes)
        kept = None
        if keep is not None:
            kept = KeptColumns(self.schema, events, keep)
            events = kept.events
        events = self._names.batch(events, keep or ())

        checked(threads)
        if skipped is None and kept is None:
            ids = _find_alone(snapshot, events)
            if ids is not None:
                return MatchResult(np.array([len(ids)]), ids)
        batch = snapshot.batch(events, lazy=snapshot.takes_floats(events, skipped))
        _check_size(snapshot, batch, skipped)
        return self._list(snapshot, batch, skipped, threads, kept)

    def match_batches(
        self,
        events: Any,
        *,
        size: int = 8_192,
        threads: int | None = None,
        max_false_positive_rate: float | None = None,
    ) -> Iterator[MatchResult]:
        """The matches of a batch in parts of `size` events, one after the other.

        For results that are too large for memory as a whole. Rows of events are counted from 0 in
        each part. All parts see the subscriptions as they were when the first was asked for.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        snapshot = self._stores.snapshot_for(events)
        skipped = self._skipped(snapshot, max_false_positive_rate)
        batch = snapshot.batch(self._names.batch(events))
        for first in range(0, batch.events, size):
            part = batch.of_events(first, min(first + size, batch.events))
            yield self._list(snapshot, part, skipped, threads)

    def _list(
        self,
        snapshot: Snapshot,
        batch: PointBatch,
        skipped: BoolArray | None,
        threads: int | None,
        kept: KeptColumns | None = None,
    ) -> MatchResult:
        """The matches of events, by a snapshot."""

        def find(part: Searched) -> list[Matches]:
            return [
                view.match(part.batch, skipped, part.found(number))
                for number, view in enumerate(snapshot.views)
            ]

        def work(part: Searched, threads: int | None = 1) -> MatchResult:
            return join_parts(list(zip(find(part), ids, strict=True)), len(part), np.int64, threads)

        searched = {
            number: view.match_points(batch.points)
            for number, view in enumerate(snapshot.views)
            if view.prefers_whole(batch, skipped)
        }
        parts = Searched(batch, searched)

        ids = [view.store.ids for view in snapshot.views]
        if self._stores.id_dtype is object:
            chunks = [join_positions(by_chunks(find, parts, threads), ids, len(batch))]
        elif 0 < len(searched) == len(ids) and all(view.is_plain for view in snapshot.views):
            chunks = [work(parts, checked(threads))]  # nothing but ids is left to be found
        else:
            chunks = by_chunks(work, parts, threads)
        joined = join_chunks(chunks, snapshot.names(skipped), kept)
        if batch.owners is None:
            return joined
        return fold_events(joined, batch.owners - batch.owners[0], batch.events)

    def count_batch(
        self,
        events: Any,
        *,
        threads: int | None = None,
        max_false_positive_rate: float | None = None,
        skipped_attributes: Collection[str] | None = None,
    ) -> Int64Array:
        """How many subscriptions want each event; cheaper than listing them.

        For the rate and what is skipped see `match` and `match_batch`.
        """
        snapshot = self._stores.snapshot_for(events)
        skipped = self._skipped(snapshot, max_false_positive_rate, skipped_attributes)
        events = self._names.batch(events)
        batch = snapshot.batch(events, lazy=snapshot.takes_floats(events, skipped))
        if batch.owners is not None:
            return self._list(snapshot, batch, skipped, threads).counts
        at_once = [view for view in snapshot.views if view.prefers_whole(batch, skipped)]
        others = [view for view in snapshot.views if view not in at_once]
        counts = by_chunks(lambda part: _count(others, part, skipped), batch, threads)
        return np.concatenate(counts) + _count(at_once, batch, skipped)

    def estimate_selectivity(self) -> Float64Array:
        """The share of events that satisfy a predicate, by attribute, guessed from subscriptions.

        There is a row for each case that is plausible.
        """
        return self._stores.snapshot.estimate_selectivity()

    def count_excess(
        self, selectivity: Float64Array, kept: BoolArray | None = None
    ) -> tuple[Int64Array, Excess]:
        """How many boxes constrain each attribute, and what skipping an attribute adds.

        `SkipPlan.of_excess` chooses by these. Both are sums, so those of several matchers can be
        added. `selectivity` is as `estimate_selectivity` has it. `kept` marks the subscriptions to
        count, by ids, which are row numbers then.
        """
        return self._stores.snapshot.count_excess(selectivity, kept)

    def _skipped(
        self, snapshot: Snapshot, rate: float | None, names: Collection[str] | None = None
    ) -> BoolArray | None:
        if names is not None:
            if rate is not None:
                raise IndexConfigError(
                    "give max_false_positive_rate or skipped_attributes, not both"
                )
            marks = snapshot.named(names)
        elif rate is None and self._own_rate == 0:
            return None
        else:
            marks = snapshot.skipped(self._own_rate if rate is None else rate)
        if marks is None and self._own_rate > 0:
            # Without marks the index would follow its own rate.
            return np.zeros(snapshot.axes.width, bool)
        return marks

    def explain(self, event: Event, subscription_id: SubscriptionId) -> Explanation:
        """Predicate by predicate: what the subscription wants, what the event has."""
        return self.explainer(subscription_id).explain(read_event(event))

    def explainer(self, subscription_id: SubscriptionId) -> Explainer:
        """For many events: explains the subscription as it is now."""
        checked, _ = check_id(subscription_id)
        return Explainer(checked, *self._stores.boxes_of(checked), self._stores.text_of(checked))

    def nearest(self, event: Event, *, limit: int = 20, among: Among | None = None) -> Nearest:
        """Who wants the event, and which `limit` others come nearest: why not these?

        Looks at every subscription, exactly, or at those that `among` marks of an array of ids.
        """
        return find_nearest(self._stores.snapshot, read_event(event), limit, among)

    def warmup(self) -> None:
        """Compile, or load from the cache, all kernels that subscribing and matching need.

        Those for lists and for tests of text, such as `LIKE '%a%'`, come with a schema that has a
        list or a string. Waits for all of them, also for those that are compiled in the background.
        """
        # Imported here since it makes matchers of its own.
        from boxmatch.engine.warmup import warm_up

        warm_up(self)


def _count(views: Sequence[StoreView], batch: PointBatch, skipped: BoolArray | None) -> Int64Array:
    """How many subscriptions of these stores want each event."""
    total = np.zeros(len(batch), np.int64)
    for view in views:
        total += view.count(batch, skipped)
    return total


def _find_alone(snapshot: Snapshot, events: Any) -> IdArray | None:
    """The ids for a batch of one dict, which need not become columns first; else None."""
    if type(events) is not list or len(events) != 1 or type(events[0]) is not dict:
        return None
    if sum(view.rows for view in snapshot.views) * _MATCH_BYTES >= _NEVER_TOO_LARGE:
        return None
    try:
        return snapshot.single.find(events[0])
    except (AttributeValueError, EventError):
        return None  # again as a batch, whose errors say the row


_MATCH_BYTES = 24
"""What a match takes until it is in a result: a position, an id, and a copy of the id."""

_COUNTED_PARTS = 4
_COUNTED_SHARE = 512
_COUNTED_EVENTS = 64
"""To find out how many matches to expect, so many parts are counted, each one in so many of all
events, or so many where it is a close thing.
"""

_CLOSE = 8
"""How many times as many as expected must fit, else it is a close thing."""


def _check_size(snapshot: Snapshot, batch: PointBatch, skipped: BoolArray | None) -> None:
    """Refuse a batch whose matches are not expected to fit into memory."""
    if len(batch) * sum(view.rows for view in snapshot.views) * _MATCH_BYTES < _NEVER_TOO_LARGE:
        return
    available = available_memory()
    if available is None:
        return

    # Where a call takes longer than what it is asked for, one part has to do.
    at_once = any(view.prefers_whole(batch, skipped) for view in snapshot.views)
    parts = 1 if at_once else _COUNTED_PARTS

    def expect(events: int) -> int:
        matches = counted = 0
        for part in range(parts):
            first = part * len(batch) // parts
            sample = batch.part(first, min(first + events, len(batch)))
            matches += int(_count(snapshot.views, sample, skipped).sum())
            counted += len(sample)
        return matches * len(batch) // counted

    few = min(1 + len(batch) // _COUNTED_SHARE, _COUNTED_EVENTS)
    if expect(few) * _MATCH_BYTES * _CLOSE < available:
        return
    expected = expect(_COUNTED_EVENTS)
    if expected * _MATCH_BYTES > available:
        raise ResultTooLargeError(
            f"about {expected:,} matches of {len(batch):,} events would take "
            f"{expected * _MATCH_BYTES / 1e9:,.1f} GB, and {available / 1e9:,.1f} GB of memory are "
            "available: take them in parts with match_batches, or count them with count_batch"
        )


_NEVER_TOO_LARGE = 1 << 30
"""Bytes for which it is not worth counting."""
