"""A feed of events: each one concerns whose filter it satisfies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import structlog

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.arrays import Int64Array
from boxmatch.broker.feeds.index_files import Capture, LoadedIndex
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.subscribers.subscribers import Slots, Subscription
from boxmatch.engine.matcher import Matcher
from boxmatch.errors import BrokerError, FilterError, FilterTooLargeError
from boxmatch.indexes.registry import index_class
from boxmatch.model.dialects.registry import DialectFilter, in_dialect
from boxmatch.model.event_names import KnownNames
from boxmatch.model.filters import CompiledFilter, DerivedAxis, compile_filter
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Adaptive, Wanted

GivenFilter = str | Mapping[str, Any] | DialectFilter

log = structlog.get_logger(__name__)

_MANY_CHANGES = 256
"""So few subscriptions are quickly looked through one by one."""


_SHARE = 100
"""One in so many subscriptions may have changed before the files of the index are written again."""

_AT_ONCE = 20_000
"""Stored subscriptions that are compiled together."""

SAMPLE = 16
"""Events of a batch that are matched again, exactly."""
_EVERY = 64
"""Events of which at most one is matched again: what is looked at must not eat up what is won."""
_IDLE = 0.5
"""Seconds without an event after which a feed is exact, whatever the rate was before."""


class FeedMatches(NamedTuple):
    """Matches, ordered by event: how many each event has, and the event and slot of each."""

    counts: Int64Array
    event: Int64Array
    slots: Int64Array
    rate: float
    """Of false matches that were tolerated."""


class Reservation(NamedTuple):
    """The expressions of subscriptions that are on their way, by matcher."""

    axes: frozenset[DerivedAxis]
    exact: frozenset[DerivedAxis]


class Adaptation:
    """The adjuster of a feed, if it has one, and what was measured of its effect.

    In the thread of the feed, but for reading.
    """

    def __init__(
        self, adaptive: Adaptive | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._adjuster: Adjuster | None = None
        if adaptive is not None:
            try:
                self._adjuster = Adjuster(adaptive.threshold, adaptive.step, adaptive.maximum)
            except ValueError as error:
                raise BrokerError(str(error)) from None
        self._matching = False
        self._ended = clock()
        """When the last batch was matched."""
        self._unseen = SAMPLE * _EVERY
        """Inexact events since some were looked at; at first, as if there had been many."""
        self.matches = 0
        """Found at a rate above 0, and looked at again."""
        self.false = 0

    @property
    def rate(self) -> float:
        """The rate that was last decided on, unless that was long ago."""
        if self._adjuster is None or self._is_idle(self._clock()):
            return 0.0
        return self._adjuster.rate

    def decide(self, waited: float, events: int) -> float:
        """The rate for so many events, of which the first has waited so many seconds."""
        if self._adjuster is None:
            return 0.0
        if self._is_idle(self._clock() - waited):
            self._adjuster.relax()
        self._matching = True
        return self._adjuster.decide(waited, events)

    def end_batch(self) -> None:
        """What was decided on has been done."""
        self._matching = False
        self._ended = self._clock()

    def _is_idle(self, at: float) -> bool:
        """Whether nothing was to be matched for a while before that moment."""
        return not self._matching and at - self._ended > _IDLE

    def is_to_sample(self, events: int) -> bool:
        """Whether some of these events, matched at a rate above 0, are to be looked at again."""
        self._unseen += events
        if self._unseen < _EVERY * min(events, SAMPLE):
            return False
        self._unseen = 0
        return True

    def add_sample(self, found: Int64Array, exact: Int64Array) -> None:
        """Matches of some events, and how many there really are."""
        self.matches += int(found.sum())
        self.false += int((found - exact).sum())


def in_effect(spec: FeedSpec) -> Adaptive | None:
    """What a feed gives up under load: nothing, if its index would not be faster for it."""
    capabilities = index_class(spec.index).capabilities
    pays = capabilities.approximate and capabilities.skipping_pays
    return spec.adaptive if pays else None


class EventFeed:
    """Subscriptions and the index over them.

    All but `spec`, `waiting` and reading the `pace` is for the thread of the feed alone.
    """

    def __init__(self, spec: FeedSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self.waiting = 0
        """Events that are received, and not yet durable. In the event loop."""
        self.pace = 0.0
        """Seconds that it lately took to match an event."""
        self.slots = Slots(spec.name)
        self.matcher, self.exact = _matchers_of(spec)
        """The second is that of subscriptions that want to be exact whatever the load."""
        self.adapting = Adaptation(in_effect(spec))
        self.changes = 0
        """Of subscriptions, since the index was last made tidy."""
        self.changed = 0.0
        self.unsaved = 0
        """Changes of subscriptions that the files of the index do not have."""
        self._names = KnownNames(spec.schema)
        self._reserved: list[Reservation] = []

    def load(
        self,
        subscriptions: Sequence[Subscription],
        checksums: Int64Array,
        slots: Int64Array,
        index: LoadedIndex | None,
        advance: Callable[[int], None],
    ) -> None:
        """Take over subscriptions that were checked when they came, with the checksums of their
        rows, and the slots (or -1) that they have in the index, so that they need not be compiled.
        `advance` hears how many are done.
        """
        known = np.empty(0, np.int64) if index is None else index.checksums
        gone = np.ones(len(known), bool)
        gone[slots[slots >= 0]] = False
        if index is not None:
            self.matcher, self.exact = index.matcher, index.exact
            stale = np.flatnonzero(gone & (known != 0))
            for matcher in (self.matcher, self.exact) if len(stale) else ():
                matcher.unsubscribe_many(stale, missing_ok=True)
        new = np.flatnonzero(slots < 0)
        unused = np.concatenate([np.flatnonzero(gone), len(known) + np.arange(len(new))])
        slots[new] = unused[: len(new)]
        size = max(len(known), int(slots.max(initial=-1)) + 1)
        self.slots.restore(subscriptions, slots, checksums, size)
        self.unsaved = len(new) + int(np.count_nonzero(known[gone]))
        advance(len(subscriptions) - len(new))
        rest = [subscriptions[row] for row in new.tolist()]
        for first in range(0, len(rest), _AT_ONCE):
            self._subscribe_stored(rest[first : first + _AT_ONCE])
            advance(len(subscriptions) - max(len(rest) - first - _AT_ONCE, 0))

    def capture(self) -> Capture:
        """The index of this moment, for its files."""
        self.unsaved = 0
        return Capture(self.matcher.describe(), self.exact.describe(), self.slots.checksums)

    def _subscribe_stored(self, subscriptions: Sequence[Subscription]) -> None:
        """Subscribe to what was checked before; so nothing is refused, unless it was long ago."""
        for matcher, exact in ((self.matcher, False), (self.exact, True)):
            chosen = [one for one in subscriptions if one.wanted.exact == exact]
            if not chosen:
                continue
            try:
                done = matcher.subscribe_many(map(_record, chosen), on_error="skip")
            except FilterTooLargeError:  # all together; one by one, some go
                for one in chosen:
                    self._subscribe_one(matcher, one)
                continue
            for bad in done.rejected:
                log.error("a stored filter is not understood any more", reason=bad.reason)

    def _subscribe_one(self, matcher: Matcher, one: Subscription) -> None:
        try:
            matcher.subscribe_compiled([one.slot], [compile_wanted(self.spec, one.wanted)])
        except FilterTooLargeError as error:
            log.error("a stored filter is too much", reason=str(error))
        except FilterError as error:
            log.error("a stored filter is not understood any more", reason=str(error))

    def _subscribe(
        self, subscriptions: Sequence[Subscription], compiled: Sequence[CompiledFilter]
    ) -> None:
        for matcher, exact in ((self.matcher, False), (self.exact, True)):
            chosen = [
                (one.slot, filter)
                for one, filter in zip(subscriptions, compiled, strict=True)
                if one.wanted.exact == exact
            ]
            if chosen:
                slots, filters = zip(*chosen, strict=True)
                matcher.subscribe_compiled(slots, filters)

    def check(self, rows: list[dict[str, Any]]) -> None:
        """Refuse events that have attributes which the schema lacks, if the feed does."""
        if self.spec.unknown == "refuse" and not self.spec.is_open:
            self._names.check_events(rows)

    def match(self, rows: list[dict[str, Any]], waited: float = 0.0) -> FeedMatches:
        """Who wants these events, by slot, if they have waited so many seconds."""
        rate = self.adapting.decide(waited, len(rows))
        try:
            result = self.matcher.match_batch(rows, threads=1, max_false_positive_rate=rate)
        finally:
            self.adapting.end_batch()
        if not result.skipped_attributes:
            rate = 0.0
        elif self.adapting.is_to_sample(len(rows)):
            some = slice(0, SAMPLE)
            exact = self.matcher.count_batch(rows[some], threads=1, max_false_positive_rate=0.0)
            self.adapting.add_sample(result.counts[some], exact)
        slots = result.subscription.astype(np.int64, copy=False)
        if not len(self.exact):
            return FeedMatches(result.counts, result.event, slots, rate)
        more = self.exact.match_batch(rows, threads=1)
        events = np.concatenate([result.event, more.event])
        slots = np.concatenate([slots, more.subscription.astype(np.int64, copy=False)])
        order = np.argsort(events, kind="stable")
        return FeedMatches(result.counts + more.counts, events[order], slots[order], rate)

    def reserve(self, wanted: Iterable[Wanted], compiled: Iterable[CompiledFilter]) -> Reservation:
        """Room for the expressions of subscriptions that are going to be `put`, until `release`.

        Raises `FilterTooLargeError` if there is none: before they are on disk.
        """
        axes: dict[bool, set[DerivedAxis]] = {False: set(), True: set()}
        for one, filter in zip(wanted, compiled, strict=True):
            axes[one.exact].update(filter.axes)
        new = Reservation(frozenset(axes[False]), frozenset(axes[True]))
        others = self._reserved
        if new.axes:
            self.matcher.check_room(new.axes.union(*(one.axes for one in others)))
        if new.exact:
            self.exact.check_room(new.exact.union(*(one.exact for one in others)))
        others.append(new)
        return new

    def release(self, reservation: Reservation) -> None:
        """The subscriptions are there, or do not come."""
        self._reserved.remove(reservation)

    def put(
        self,
        subscriptions: Sequence[Subscription],
        befores: Sequence[Subscription | None],
        compiled: Sequence[CompiledFilter],
        schema: Schema,
    ) -> None:
        """Add subscriptions, or change them: each with the one that it takes the place of, and its
        filter, compiled for `schema`.
        """
        for subscription, before in zip(subscriptions, befores, strict=True):
            if before is None:
                self.slots.add(subscription)
            else:
                if before.wanted.exact != subscription.wanted.exact:
                    self._matcher_of(before).unsubscribe(before.slot)
                self.slots.replace(before.slot, subscription)
        if schema is self.spec.schema:
            self._subscribe(subscriptions, compiled)
        else:  # it was extended meanwhile
            self._subscribe_stored(subscriptions)
        self.changes += len(subscriptions)
        self.unsaved += len(subscriptions)
        self.changed = time.monotonic()

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._matcher_of(subscription).unsubscribe(subscription.slot)
        self.slots.remove(subscription.slot)
        self.changes += 1
        self.unsaved += 1
        self.changed = time.monotonic()

    def extend(self, spec: FeedSpec) -> None:
        """Have more attributes from now on."""
        slots = np.arange(len(self.slots.subscriptions))
        matcher, exact = _matchers_of(spec)
        try:
            matcher.subscribe_from([(self.matcher, slots)])
            exact.subscribe_from([(self.exact, slots)])
            self.spec, self.matcher, self.exact = spec, matcher, exact
        except FilterTooLargeError:  # more attributes leave room for fewer expressions
            self.spec, (self.matcher, self.exact) = spec, _matchers_of(spec)
            self._subscribe_stored(self.slots.in_use())
        self._names = KnownNames(spec.schema)
        self.unsaved = len(self.slots)
        self.changed = time.monotonic()

    def is_untidy(self, quiet: float) -> bool:
        """Whether many subscriptions have changed, and none for so many seconds."""
        return self.changes >= _MANY_CHANGES and time.monotonic() - self.changed > quiet

    def is_to_save(self, quiet: float) -> bool:
        """Whether the files of the index lack so much that a start would take longer, and whether
        nothing has changed for so many seconds.
        """
        most = max(_MANY_CHANGES, len(self.slots) // _SHARE)
        return self.unsaved >= most and time.monotonic() - self.changed > quiet

    def tidy(self) -> None:
        """Give new subscriptions their place in the index. In any thread; takes a while."""
        self.changes = 0
        self.matcher.compact()
        self.exact.compact()

    def adapt(self, spec: FeedSpec) -> None:
        """Give up precision under load from now on, more or less of it, or none."""
        self.spec = spec
        self.adapting = Adaptation(in_effect(spec))

    def _matcher_of(self, subscription: Subscription) -> Matcher:
        return self.exact if subscription.wanted.exact else self.matcher


def _matchers_of(spec: FeedSpec) -> tuple[Matcher, Matcher]:
    return (
        Matcher(spec.schema, index=spec.index, keep_texts=False),
        Matcher(spec.schema, keep_texts=False),
    )


def _record(one: Subscription) -> dict[str, Any]:
    """A subscription as `subscribe_many` takes it."""
    record = {"id": one.slot, "filter": one.wanted.filter}
    return record if one.wanted.dialect is None else record | {"dialect": one.wanted.dialect}


def compile_wanted(spec: FeedSpec, wanted: Wanted) -> CompiledFilter:
    """The compiled filter. Raises `FilterError` if it does not make sense for this feed."""
    if wanted.regions is not None or wanted.region_filter is not None or wanted.ttl is not None:
        raise BrokerError(f"feed {spec.name!r} is one of events: give a filter, not regions")
    # Who wants to be exact has a matcher of its own.
    lists = wanted.exact or index_class(spec.index).capabilities.lists
    return compile_filter(spec.schema, filter_of(wanted), lists=lists)


def filter_of(wanted: Wanted) -> GivenFilter:
    """The filter, which a subscription to events must have."""
    if wanted.filter is None:
        raise FilterError("a subscription needs a filter")
    given: GivenFilter = in_dialect(wanted.filter, wanted.dialect)
    return given
