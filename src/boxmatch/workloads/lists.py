"""Range subscriptions, and events that have several values of some attributes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.model.boxes import Boxes
from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between
from boxmatch.workloads.ranges import RangeWorkload

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ListWorkload:
    """The subscriptions of `RangeWorkload`; of the first `listed` attributes events have lists.

    A list has `values` values, drawn uniformly, of which the first is that of `RangeWorkload`. A
    range holds it if one of them is inside. With 0 `values` these attributes are single numbers,
    and all is as there.
    """

    subscriptions: int = 1_000_000
    attributes: int = 20
    predicates: int = 10
    width: float = 0.3
    domain: int = 1_000_000
    listed: int = 2
    values: int = 5
    seed: int = 1

    def __post_init__(self) -> None:
        check_between(self, 0, self.attributes, "listed", limit="the number of attributes")
        check_between(self, 0, 1_000, "values")
        _ = self.ranges

    @cached_property
    def ranges(self) -> RangeWorkload:
        """The subscriptions, and the events without the other values."""
        return RangeWorkload(
            subscriptions=self.subscriptions,
            attributes=self.attributes,
            predicates=self.predicates,
            event_size=self.attributes,
            width=self.width,
            domain=self.domain,
            seed=self.seed,
        )

    @property
    def lists(self) -> int:
        """How many attributes are lists."""
        return self.listed if self.values else 0

    @property
    def schema(self) -> Schema:
        """Lists of numbers, and numbers."""
        names = self.ranges.names
        kinds = dict.fromkeys(names[: self.lists], "list of int")
        return Schema(kinds | dict.fromkeys(names[self.lists :], "int"))

    def boxes(self, start: int, stop: int) -> Boxes:
        """Subscriptions `start:stop` in compressed form."""
        return self.ranges.boxes(start, stop)

    def filters(self, start: int, stop: int) -> list[dict[str, tuple[int, int]]]:
        """Subscriptions `start:stop` as filters in dict form, where of a list one value will do."""
        return self.ranges.filters(start, stop)

    def points(self, start: int, stop: int) -> tuple[Int64Array, Int64Array]:
        """Events `start:stop` as single values, n × d, and as lists, n × listed × values."""
        single = self.ranges.event_keys(start, stop)
        shape = self.lists, max(1, self.values)

        def make(rng: np.random.Generator, rows: int) -> dict[str, Int64Array]:
            return {"values": rng.integers(1, self.domain + 1, (rows, *shape))}

        lists = streams.columns(self.seed, "lists", start, stop, make)["values"]
        if self.lists:
            lists[:, :, 0] = single[:, : self.lists]
        return single, lists

    def events(self, start: int, stop: int) -> pa.Table:
        """Events `start:stop` as an Arrow table."""
        import pyarrow as pa

        single, lists = self.points(start, stop)
        columns: dict[str, Any] = {}
        starts = np.arange(len(single) + 1, dtype=np.int32) * self.values
        for place, name in enumerate(self.ranges.names):
            if place < self.lists:
                flat = np.ascontiguousarray(lists[:, place]).reshape(-1)
                ends: Any = pa.array(starts)
                columns[name] = pa.ListArray.from_arrays(ends, pa.array(flat))
            else:
                columns[name] = np.ascontiguousarray(single[:, place])
        return pa.table(columns)

    def event_dicts(self, start: int, stop: int) -> list[dict[str, Any]]:
        """The same as dicts."""
        table = self.events(start, stop)
        names = table.column_names
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]
