"""Publications and subscriptions of several spaces, regions and filters, followed by `Spaces`.

The general way, update by update. `follower` is the fast one, for one space and one region.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from boxmatch.errors import BoxmatchError, SparkError
from boxmatch.model.interval import Interval
from boxmatch.model.keys import check_string, is_absent, key_of, value_of
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spaces.dimensions import ONLY_REGION, Dimensions, Stored
from boxmatch.spaces.spaces import Spaces
from boxmatch.spark.columns import End
from boxmatch.spark.publications.pages import BODY, KEY, ORDER, other_form
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IdType

_IDS = 100_000
"""About how many transitions a worker collects before it hands them over."""

Regions = dict[str, dict[str, list[Any]]]
"""By name of the region: low and high of each dimension that is not free, as JSON has them."""
Changes = Iterator[tuple[Any, Sequence[Any], str, int]]


class Body(NamedTuple):
    """A publication or a subscription; without regions it is none."""

    regions: Regions
    filter: str | None = None

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Body:
        return cls(*json.loads(text))


_NOBODY = Body({})


class Space:
    """The dimensions of all spaces, and how regions are kept as JSON."""

    def __init__(self, spaces: Mapping[str, Schema]) -> None:
        self.schemas = dict(spaces)
        self.dimensions = Schema(Dimensions(spaces).attributes)

    def to_json(self) -> dict[str, str]:
        return {name: schema.to_json() for name, schema in self.schemas.items()}

    @classmethod
    def from_json(cls, given: Mapping[str, str]) -> Space:
        return cls({name: Schema.from_json(text) for name, text in given.items()})

    def move(
        self,
        region: Mapping[str, list[Any]],
        ends: Iterable[tuple[str, End]],
        values: Sequence[Any],
    ) -> dict[str, list[Any]]:
        """The region with other ends where there is a value."""
        result = dict(region)
        for (name, end), value in zip(ends, values, strict=True):
            plain = _plain(self.dimensions[name], value)
            if plain is not None:
                low, high = result.get(name, (None, None))
                result[name] = [low if end == "high" else plain, high if end == "low" else plain]
        return result

    def stored(self, one: Any, body: Body) -> Stored | None:
        """As `Spaces` take it."""
        regions = {
            name: {d: self._interval(d, *span) for d, span in region.items()}
            for name, region in body.regions.items()
            if region
        }
        return Stored(one, regions, body.filter) if regions else None

    def _interval(self, name: str, low: Any, high: Any) -> Interval:
        attribute = self.dimensions[name]
        return Interval(_value(attribute, low), _value(attribute, high))


def _plain(attribute: Attribute, value: Any) -> Any:
    """A value as JSON keeps it: timestamps are microseconds since 1970, decimals are texts."""
    if is_absent(value):
        return None
    if attribute.type == "string":
        return check_string(attribute, value)
    if attribute.type == "decimal":
        return str(value)
    key = key_of(attribute, value)
    return key if attribute.type == "timestamp" else value_of(attribute, key)


def _value(attribute: Attribute, plain: Any) -> Any:
    if plain is None:
        return None
    if attribute.type == "decimal":
        return Decimal(plain)
    return value_of(attribute, plain) if attribute.type == "timestamp" else plain


def load(space: Space, subscriptions: pa.Table) -> Spaces:
    """Spaces with the subscriptions of a file: columns `id` and `body`."""
    spaces = Spaces(space.schemas)
    ids: list[Any] = subscriptions["id"].to_pylist()
    bodies: list[Any] = subscriptions[BODY].to_pylist()
    found = {}
    for one, text in zip(ids, bodies, strict=True):
        stored = space.stored(one, Body.from_json(text))
        if stored is None:
            raise SparkError(f"subscription {one!r}: it constrains no dimension")
        found[one] = stored
    try:
        spaces.load(subscriptions=found)
    except BoxmatchError as error:
        raise SparkError(str(error)) from None
    return spaces


@lru_cache(maxsize=4)
def _open(folder: str, name: str, spaces: tuple[tuple[str, str], ...]) -> tuple[Space, Spaces]:
    """The subscriptions, once for each worker process."""
    content = Folder.at(folder).read(name)
    if content is None:
        raise SparkError(
            f"{folder} has no {name}: is it a folder that driver and workers see (path=)?"
        )
    space = Space.from_json(dict(spaces))
    return space, load(space, pa.ipc.open_file(pa.BufferReader(content)).read_all())


class SpaceFollower:
    """Follows publications through the subscriptions of several spaces."""

    def __init__(
        self,
        *,
        path: str,
        name: str,
        spaces: Mapping[str, str],
        ends: Sequence[Any],
        leave: bool,
        id_type: IdType,
    ) -> None:
        self.path = path
        self._space, self._spaces = _open(path, name, tuple(spaces.items()))
        self._ends: list[tuple[str, End]] = [(dimension, end) for dimension, end in ends]
        self._leave = leave
        self._ids: Any = pa.int64() if id_type == "long" else pa.string()

    def follow(
        self, updates: pa.Table, stored: pa.Table | None
    ) -> tuple[list[pa.RecordBatch], pa.Table | None]:
        """The transitions of sorted updates, and what is stored of those that they changed."""
        known: dict[Any, tuple[int, Body]] = {}
        if stored is not None:
            if BODY not in stored.column_names:
                raise other_form("a schema", "spaces")
            for row in stored.select([KEY, ORDER, BODY]).to_pylist():
                known[row[KEY]] = row[ORDER], Body.from_json(row[BODY])
        changed: dict[Any, tuple[int, Body]] = {}
        kind = updates.schema.field(KEY).type
        rows = zip(*(column.to_pylist() for column in updates.columns), strict=True)
        told = list(self._batches(self._changes(rows, known, changed), kind))
        if not changed:
            return told, None
        columns = [
            pa.array(list(changed), kind),
            pa.array([order for order, _ in changed.values()], pa.int64()),
            pa.array([body.to_json() for _, body in changed.values()], pa.string()),
        ]
        return told, pa.table(columns, [KEY, ORDER, BODY])

    def follow_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same in batch, where nothing is known."""
        kind: Any = None

        def rows() -> Iterator[tuple[Any, ...]]:
            nonlocal kind
            for batch in batches:
                kind = batch.schema.field(0).type
                yield from zip(*(each.to_pylist() for each in batch.columns), strict=True)

        changes = self._changes(rows(), {}, None)
        first = next(changes, None)
        if first is not None:
            yield from self._batches(_chain(first, changes), kind)

    def delete(self, stored: pa.Table) -> pa.RecordBatch:
        """The transitions of publications that are no more."""
        found = []
        for row in stored.select([KEY, ORDER, BODY]).to_pylist():
            _, gone = self._difference(row[KEY], Body.from_json(row[BODY]), _NOBODY)
            if len(gone):
                found.append((row[KEY], gone, "deleted", row[ORDER]))
        return self._batch(found, stored.schema.field(KEY).type)

    def _changes(
        self,
        rows: Iterable[Sequence[Any]],
        known: Mapping[Any, tuple[int, Body]],
        changed: dict[Any, tuple[int, Body]] | None,
    ) -> Changes:
        """Apply updates in order, by publication. Rows of one order are one update."""
        for key, own in groupby(rows, key=itemgetter(0)):
            last, body = known.get(key, (None, _NOBODY))
            for order, same in groupby(own, key=itemgetter(1)):
                if last is not None and order <= last:
                    continue
                try:
                    after, ended = self._move(body, same)
                    entered, gone = self._difference(key, body, after)
                except BoxmatchError as error:
                    raise SparkError(f"publication {key!r}, update {order}: {error}") from None
                if len(entered):
                    yield key, entered, "enter", order
                if len(gone) and (ended or self._leave):
                    yield key, gone, "deleted" if ended else "leave", order
                last, body = order, after
                if changed is not None:
                    changed[key] = order, body

    def _move(self, body: Body, rows: Iterable[Sequence[Any]]) -> tuple[Body, bool]:
        """The publication after an update, and whether that has ended it."""
        regions, text = dict(body.regions), body.filter
        seen = set()
        for _, _, removed, name, filter, *values in rows:
            if removed and name is None:
                return _NOBODY, True
            region = ONLY_REGION if name is None else name
            if region in seen:
                continue
            seen.add(region)
            if filter is not None:
                text = filter or None
            if removed:
                regions.pop(region, None)
            else:
                regions[region] = self._space.move(regions.get(region, {}), self._ends, values)
        if not regions:
            return _NOBODY, True
        return Body(regions, text), False

    def _difference(self, key: Any, old: Body, new: Body) -> tuple[Any, Any]:
        return self._spaces.changes_between(
            self._space.stored(key, old), self._space.stored(key, new)
        )

    def _batches(self, changes: Changes, key_type: Any) -> Iterator[pa.RecordBatch]:
        found: list[Any] = []
        size = 0
        for change in changes:
            found.append(change)
            size += len(change[1])
            if size >= _IDS:
                yield self._batch(found, key_type)
                found, size = [], 0
        if found:
            yield self._batch(found, key_type)

    def _batch(self, changes: Sequence[Any], key_type: Any) -> pa.RecordBatch:
        keys, ids, kinds, orders = zip(*changes, strict=True) if changes else ((), (), (), ())
        columns = [
            pa.array(keys, key_type),
            pa.array(ids, pa.list_(self._ids)),
            pa.array(kinds, pa.string()),
            pa.array(orders, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, ["key", "ids", "kind", "order"])


def _chain(first: Any, others: Changes) -> Changes:
    yield first
    yield from others


def follow_all(batches: Iterator[pa.RecordBatch], **arguments: Any) -> Iterator[pa.RecordBatch]:
    """The transitions of updates that are in order, by publication."""
    yield from SpaceFollower(**arguments).follow_all(batches)
