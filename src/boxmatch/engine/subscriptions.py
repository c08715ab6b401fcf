"""Subscriptions by id: what a matcher has, changes, lists and keeps on disk."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self, SupportsIndex

import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.engine.bulk import (
    Bulk,
    Rejected,
    place_filters,
    read_table,
    without_bad_rows,
)
from boxmatch.engine.copies import place_copies
from boxmatch.engine.durable import (
    Follower,
    Keeper,
    OpenedFolder,
    apply_changes,
    describe,
    load_folder,
)
from boxmatch.engine.ids import check_id, check_ids, distinct
from boxmatch.engine.listing import MatcherInfo, info_of, list_ids, list_items
from boxmatch.engine.memory import pausing_full_collections
from boxmatch.engine.saved_files import Saved, SavedFolder, Settings
from boxmatch.engine.snapshot import Snapshot
from boxmatch.engine.stores import Stores
from boxmatch.errors import (
    AttributeValueError,
    IndexConfigError,
    SchemaError,
    StorageError,
    SubscriptionIdError,
    did_you_mean,
)
from boxmatch.indexes.base import Index
from boxmatch.indexes.registry import index_class
from boxmatch.indexes.scan import InterimIndex
from boxmatch.indexes.tile.cuda.card import check_card, check_device, number_of
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.pieces import drop
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.bounds import boxes_from_bounds
from boxmatch.model.boxes import Boxes
from boxmatch.model.dialects.registry import in_dialect, without_dialect, written_text
from boxmatch.model.event_names import NameCheck, Unknown
from boxmatch.model.filters import CompiledFilter, DerivedAxis, compile_filter
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.model.tables import as_table
from boxmatch.storage.sqlite import Sync


class Subscribed(NamedTuple):
    """What `subscribe` and its kin did."""

    subscriptions: int
    replaced: int
    """How many of them took the place of an older one with the same id."""
    never: int
    """How many of them have a filter that no event can match."""
    rejected: tuple[Rejected, ...] = ()
    """With `on_error="skip"`: the rows that were left out, and why."""


class Subscriptions:
    """Subscriptions of one schema, and how events are to be read.

    All methods may be called from any thread. Writers take turns.
    """

    def __init__(
        self,
        schema: SchemaSpec | None = None,
        *,
        index: str = "tile",
        max_boxes: int = 1024,
        keep_texts: bool = True,
        unknown: Unknown = "ignore",
        device: str = "cpu",
        **parameters: Any,
    ) -> None:
        """A matcher without subscriptions; without a schema, one for events of any structure.

        `index` is the kind of index, with its `parameters`. A filter may have up to `max_boxes`
        boxes. Text filters are kept as they were written unless `keep_texts` is False.

        Names in events that the schema lacks are payload; with `unknown="warn"` or
        `"refuse"`, `match`, `count`, `match_batch` and `count_batch` take them for typing errors.
        A table of which no column is in the schema is an error in any case.

        With `device="cuda"`, batches that are large enough are matched on the graphics card
        (`"cuda:1"`: on the second), or it is a `DeviceError`; with `"auto"` on the card if there is
        one that works, else on the processor. Where a matcher is loaded, this is said again.
        """
        self.schema = schema = Schema(schema)
        self.index = index
        self.max_boxes = max_boxes
        self.keep_texts = keep_texts
        self._names = NameCheck(schema, unknown)
        self._parameters = parameters
        self.device = check_device(device)
        make_index = partial(_make_index, index, parameters, len(schema), self.device)
        for name in parameters.keys() - index_class(index).parameters.keys():
            close = did_you_mean(name, ("index", "max_boxes", "keep_texts", "unknown", "device"))
            if close:
                raise IndexConfigError(f"a matcher takes no parameter {name!r}{close}")
        # Made to complain about parameters now, not at the first subscription.
        trial = index_class(index)(len(schema), **parameters)
        self._own_rate = trial.own_rate
        self._lists = trial.capabilities.lists
        if device.startswith("cuda"):
            if not trial.capabilities.devices:
                raise IndexConfigError(
                    f"index {index!r} does not search on a graphics card: tile does"
                )
            check_card(number_of(device))
        self._stores = Stores(schema, make_index, self.device)
        self._disk: Keeper | Follower | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # Of `copy` and `pickle`: a copy would share what it is to be a copy of.
        raise StorageError(
            "a matcher cannot be copied or pickled: save it to a directory, and load that as often "
            "as needed (Matcher.save, Matcher.load)"
        )

    # Subscribing

    def subscribe(
        self,
        subscription_id: SubscriptionId,
        filter: str | Mapping[str, Any],
        *,
        dialect: str | None = None,
    ) -> Subscribed:
        """Add a subscription, or put it in the place of the one that has this id.

        The filter is SQL `WHERE` text, or a dict whose values are a value, a list of values, or a
        range: `{"low": …, "high": …}` (see `Interval`) or a `(low, high)` tuple. Filters of another
        `dialect` are written as it has them; those that are JSON may be mappings, too.
        """
        checked, kind = check_id(subscription_id)
        given = in_dialect(filter, dialect)
        compiled = compile_filter(self.schema, given, max_boxes=self.max_boxes, lists=self._lists)
        text = written_text(given) if self.keep_texts else None
        return self._add_one(checked, kind, compiled, text)

    @pausing_full_collections()
    def subscribe_many(
        self,
        table: Any,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        time_zone: tzinfo | None = None,
        dialect: str | None = None,
    ) -> Subscribed:
        """Add many subscriptions at once; all of them, or with an error none.

        A table (Arrow, pandas, polars) or records with columns `id` and `filter`; or a table with
        `id` and, per attribute, `NAME` (equal to), `NAME_low` and `NAME_high` (from, up to, both
        included), where null means no such condition. With `on_error="skip"` rows whose filter or
        values are wrong are left out, and the result says which; ids must be right in any case.
        Timestamps in the text of filters that name no zone are in `time_zone`, or in UTC. Filters
        are of one `dialect`, or of that in a column `dialect`, where null is SQL.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        skip = on_error == "skip"
        # Opened once, since a stream of Arrow batches cannot be read again.
        if hasattr(table, "read_all"):
            table = table.read_all()
        opened = as_table(table)
        if opened is not None:
            table = opened
        try:
            reading = read_table(
                self.schema,
                table,
                self.max_boxes,
                skip=skip,
                time_zone=time_zone,
                lists=self._lists,
                texts=self.keep_texts,
                dialect=dialect,
            )
            try:
                return self._add(reading.place)._replace(rejected=reading.rejected)
            finally:
                drop(reading.compiled)
        except AttributeValueError:
            if not skip or opened is None:
                raise
        good, rejected = without_bad_rows(self.schema, opened)
        reading = read_table(self.schema, good, self.max_boxes)
        return self._add(reading.place)._replace(rejected=rejected)

    def subscribe_compiled(
        self, ids: Sequence[SubscriptionId], filters: Sequence[CompiledFilter]
    ) -> Subscribed:
        """Add subscriptions whose filters were compiled for this schema with `compile_filter`.

        An index that does not take lists needs them compiled with `lists=False`.
        """
        if len(ids) != len(filters):
            raise ValueError(f"{len(ids):,} ids for {len(filters):,} filters")
        if len(ids) == 1:
            return self._add_one(*check_id(ids[0]), filters[0])
        checked, kind = check_ids(ids)
        return self._add(place_filters(checked, kind, filters))

    def check_room(self, axes: Collection[DerivedAxis]) -> None:
        """`FilterTooLargeError` if subscriptions that compare these expressions, too, would be
        refused: those of compiled filters are their `axes`.
        """
        self._stores.check_room(axes)

    def subscribe_boxes(self, ids: Any, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Subscribed:
        """Add many subscriptions of one box each, from n × d arrays of numbers in schema order.

        Bounds are included; NaN is unbounded, NaN on both sides is no predicate. Bools are 0 and
        1, timestamps microseconds since 1970 in UTC.
        """
        return self._subscribe_compressed(ids, boxes_from_bounds(self.schema, lows, highs))

    def _subscribe_compressed(self, ids: Any, boxes: Boxes) -> Subscribed:
        """Add many subscriptions of one box each, from compressed rows of keys."""
        if boxes.dimensions != len(self.schema):
            raise ValueError(
                f"boxes of {boxes.dimensions} dimensions for {len(self.schema)} attributes"
            )
        return self._add(lambda table: Bulk.one_box_each(ids, boxes))

    def subscribe_from(self, others: Sequence[tuple[Subscriptions, Int64Array]]) -> Subscribed:
        """Take over subscriptions of other matchers, whose ids are numbers. Their schemas are this
        one, or the beginning of it.

        With each matcher comes an array: the new id by the old one, or -1 to leave it out. No
        filter is compiled again.
        """
        attributes = self.schema.attributes
        for other, _ in others:
            if other.schema.attributes != attributes[: len(other.schema)]:
                raise SchemaError("only matchers whose schema this one begins with are taken over")
        parts = [(other._stores.snapshot, renamed) for other, renamed in others]
        return self._add(place_copies(parts))

    def _add_one(
        self, id: SubscriptionId, kind: IdKind, compiled: CompiledFilter, text: str | None = None
    ) -> Subscribed:
        self._check_writable()
        replaced = self._stores.add(id, kind, compiled, text)
        return Subscribed(1, int(replaced), int(compiled.never))

    def _add(self, place: Callable[[AxisTable], Bulk]) -> Subscribed:
        self._check_writable()
        load, replaced = self._stores.add_many(place)
        return Subscribed(len(load.ids), replaced, load.never)

    def unsubscribe(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription; `UnknownSubscriptionError` if there is none with this id."""
        checked, _ = check_id(subscription_id)
        self._check_writable()
        self._stores.remove(checked)

    def unsubscribe_many(self, ids: Any, *, missing_ok: bool = False) -> int:
        """Remove subscriptions by a list or column of ids, and return how many there were.

        `UnknownSubscriptionError`, with nothing removed, if there is none with one of the ids,
        unless `missing_ok`. An id that is there twice is removed once.
        """
        checked, _ = check_ids(ids, duplicates=True)
        self._check_writable()
        return self._stores.remove_many(distinct(checked), missing_ok=missing_ok)

    def _check_writable(self) -> None:
        if self._disk is not None:
            self._disk.check()

    def compact(self) -> None:
        """Merge everything into as few parts as can be, and wait for it.

        Never needed for right answers, and seldom for speed: it happens by itself, in the
        background. Matching goes on meanwhile. Does not wait for kernels that are being compiled.
        """
        self._stores.merge_once(everything=True)

    # Looking

    @property
    def snapshot(self) -> Snapshot:
        """What matching works on now, for searches of other kinds (`engine.overlaps`)."""
        return self._stores.snapshot

    def __len__(self) -> int:
        return self._stores.snapshot.size

    def __contains__(self, subscription_id: object) -> bool:
        try:
            checked, _ = check_id(subscription_id)
        except SubscriptionIdError:
            return False
        return checked in self._stores

    def __iter__(self) -> Iterator[SubscriptionId]:
        return iter(self.ids())

    def ids(self) -> list[SubscriptionId]:
        """The ids of all subscriptions, in no particular order."""
        return list_ids(self._stores.snapshot)

    def items(self) -> Iterator[tuple[SubscriptionId, str]]:
        """Every subscription of this moment: its id, and its filter as `filter_of` has it."""
        return list_items(self._stores.snapshot)

    def info(self) -> MatcherInfo:
        """What there is, in numbers."""
        return info_of(
            self._settings, self._stores, None if self._disk is None else self._disk.pending
        )

    def filter_of(self, subscription_id: SubscriptionId, *, as_written: bool = True) -> str:
        """The filter as text, as it was written if it was text and `keep_texts` is not False.

        Otherwise it is written anew from what it was compiled to: not always as it was given, but
        with the same meaning. With `as_written=False` it always is.
        """
        checked, _ = check_id(subscription_id)
        text = self._stores.text_of(checked) if as_written else None
        if text is not None:
            return without_dialect(text)[1]
        snapshot, rows, residual = self._stores.boxes_of(checked)
        return snapshot.render(*rows, residual=residual if rows else None)

    def dialect_of(self, subscription_id: SubscriptionId) -> str | None:
        """The dialect that a filter was written in: None for SQL, and if that was not kept."""
        checked, _ = check_id(subscription_id)
        text = self._stores.text_of(checked)
        return None if text is None else without_dialect(text)[0]

    @property
    def constrained_attributes(self) -> tuple[str, ...]:
        """The attributes that some subscription has a condition on, in schema order.

        Values of the others do not matter: events may lack them.
        """
        snapshot = self._stores.snapshot
        used = {*compress(self.schema.names, snapshot.used), *snapshot.read}
        return tuple(name for name in self.schema.names if name in used)

    def memory_usage(self) -> dict[str, int]:
        """Bytes held, by part, with their `total`."""
        held = self._stores.nbytes
        return held | {"total": sum(held.values())}

    # Storing

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to the directory `path`, or over the matcher that is saved there.

        A process that is killed in the middle leaves what was there before.
        """
        SavedFolder(Path(path)).save(self.describe())

    def describe(self) -> Saved:
        """The subscriptions of this moment, as `SavedFolder` writes them."""
        self._stores.settle()
        saved, _ = describe(self._stores, self._settings)
        return replace(saved, change=0)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, unknown: Unknown = "ignore", device: str = "cpu"
    ) -> Self:
        """The matcher saved at `path`; its arrays are mapped into memory, not read.

        Of a durable one, its state of this moment; what becomes of either is not seen by the other.
        What is done about `unknown` names, and on which `device`, is not saved: it is up to those
        who match.
        """
        saved, changes = load_folder(Path(path))
        matcher = cls.of_saved(saved, unknown=unknown, device=device)
        apply_changes(matcher._stores, changes)
        return matcher

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        schema: SchemaSpec | None = None,
        *,
        sync: Sync = "full",
        read_only: bool = False,
        unknown: Unknown = "ignore",
        device: str = "cpu",
        **options: Any,
    ) -> Self:
        """A durable matcher in the directory `path`; its schema and options are given once, but for
        what is done about `unknown` names and on which `device`.

        A change that has returned survives a crash, and one that has not is there whole or not at
        all. With `sync="full"` that goes for the loss of power too; with `"normal"`, which is
        faster, the last changes may then be lost. Callers in several threads share the wait for the
        disk. One process at a time can write. With `read_only` any number of others see its changes
        a moment later, or when they call `refresh`. If the disk fails, changes raise
        `StorageError` until the matcher is opened again.
        """
        make = None if schema is None else partial(cls._empty, schema, options)
        opened = OpenedFolder(Path(path), sync=None if read_only else sync, make=make)
        try:
            matcher = cls.of_saved(opened.saved, unknown=unknown, device=device)
            matcher._check_settings(path, schema, options)
            matcher._disk = opened.attach(matcher._stores)
        except BaseException:
            opened.close()
            raise
        weakref.finalize(matcher, matcher._disk.abandon)
        return matcher

    def refresh(self) -> None:
        """Of a matcher that was opened to read: see all that was written until now."""
        if self._disk is not None:
            self._disk.refresh()

    def close(self) -> None:
        """Of a durable matcher: let others open its directory. It can still be matched with."""
        if self._disk is not None:
            self._disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _settings(self) -> Settings:
        return Settings(self.schema, self.index, self._parameters, self.max_boxes, self.keep_texts)

    def _check_settings(
        self, path: str | PathLike[str], schema: SchemaSpec | None, options: Mapping[str, Any]
    ) -> None:
        """`StorageError` if a matcher that is there is not as it is asked for."""
        if schema is not None and Schema(schema) != self.schema:
            raise StorageError(f"{path} has a matcher with another schema: {self.schema}")
        made_with = {**vars(self._settings), **self._parameters}
        for name, value in options.items():
            if made_with.get(name) != value:
                raise StorageError(
                    f"{path} has a matcher with {name}={made_with.get(name)!r}, not {value!r}"
                )

    @classmethod
    def _empty(cls, schema: SchemaSpec, options: Mapping[str, Any]) -> Saved:
        made = cls(schema, **options)
        return describe(made._stores, made._settings)[0]

    @classmethod
    def of_saved(cls, saved: Saved, *, unknown: Unknown = "ignore", device: str = "cpu") -> Self:
        """The matcher of what `SavedFolder` has read."""
        settings = saved.settings
        matcher = cls(
            settings.schema,
            index=settings.index,
            max_boxes=settings.max_boxes,
            keep_texts=settings.keep_texts,
            unknown=unknown,
            device=device,
            **settings.parameters,
        )
        table = AxisTable(settings.schema, saved.axes.derived, saved.axes.strings)
        matcher._stores.hold(saved.views, table, saved.size, saved.kind)
        return matcher


# A function, not a method: stores that hold their matcher would outlive it.
def _make_index(
    name: str, parameters: dict[str, Any], attributes: int, device: str, dimensions: int
) -> Index:
    kind = index_class(name)
    if kind.slow_to_compile and not background.has(Stage.INDEX):
        return InterimIndex(dimensions)
    index = kind(dimensions, **parameters)
    index.attributes = attributes
    index.device = device
    return index
