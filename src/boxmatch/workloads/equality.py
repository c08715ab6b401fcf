"""Subscriptions of three string equalities, the workload of rule engines for JSON events."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between

if TYPE_CHECKING:
    import pyarrow as pa

Codes = dict[str, npt.NDArray[np.int32]]

PAYLOAD: Final = ("host", "user", "zone", "status", "trace")
"""Fields that events carry and no subscription asks for."""

_PAYLOAD_VALUES = 1_000


@dataclass(frozen=True, kw_only=True)
class EqualityWorkload:
    """Subscriptions `region = … AND account = … AND kind = …`, and events of eight fields.

    All values are strings, drawn uniformly; `regions`, `accounts` and `kinds` say how many
    different ones there are.
    """

    subscriptions: int = 100_000
    regions: int = 20
    accounts: int = 5_000
    kinds: int = 5
    seed: int = 1

    def __post_init__(self) -> None:
        check_between(self, 0, math.inf, "subscriptions")
        check_between(self, 1, math.inf, "regions", "accounts", "kinds")

    @property
    def sizes(self) -> dict[str, int]:
        """How many values each constrained attribute has."""
        return {"region": self.regions, "account": self.accounts, "kind": self.kinds}

    @property
    def schema(self) -> Schema:
        """Eight string attributes, the constrained ones first."""
        return Schema(dict.fromkeys((*self.sizes, *PAYLOAD), "string"))

    @property
    def expected_matches(self) -> float:
        """Expected matches of an event."""
        return self.subscriptions / (self.regions * self.accounts * self.kinds)

    def subscription_codes(self, start: int = 0, stop: int | None = None) -> Codes:
        """Subscriptions `start:stop` as the number of the wanted value, per attribute."""
        stop = self.subscriptions if stop is None else stop
        return self._codes("subscriptions", self.sizes, start, stop)

    def event_codes(self, start: int, stop: int) -> Codes:
        """Events `start:stop` as numbers of values, for all eight fields."""
        return self._codes(
            "events", self.sizes | dict.fromkeys(PAYLOAD, _PAYLOAD_VALUES), start, stop
        )

    def table(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """Subscriptions `start:stop` as a table of `id` (the row number) and the wanted values."""
        import pyarrow as pa

        codes = self.subscription_codes(start, stop)
        ids = np.arange(start, start + len(codes["region"]), dtype=np.int64)
        return pa.table({"id": ids, **{name: self._texts(name, codes[name]) for name in codes}})

    def filters(self, start: int, stop: int) -> list[dict[str, str]]:
        """Subscriptions `start:stop` as filters in dict form."""
        return _records(self.table(start, stop).drop_columns("id"))

    def events(self, start: int, stop: int) -> pa.Table:
        """Events `start:stop` as an Arrow table of plain strings."""
        import pyarrow as pa

        codes = self.event_codes(start, stop)
        return pa.table({name: self._texts(name, codes[name]) for name in codes})

    def event_dicts(self, start: int, stop: int) -> list[dict[str, str]]:
        """The same as dicts."""
        return _records(self.events(start, stop))

    def _codes(self, purpose: str, sizes: dict[str, int], start: int, stop: int) -> Codes:
        def make(rng: np.random.Generator, rows: int) -> Codes:
            return {name: rng.integers(0, size, rows, np.int32) for name, size in sizes.items()}

        return streams.columns(self.seed, purpose, start, stop, make)

    def _texts(self, name: str, codes: npt.NDArray[np.int32]) -> pa.Array[Any]:
        import pyarrow as pa

        size = self.sizes.get(name, _PAYLOAD_VALUES)
        return pa.array([f"{name}-{i:04}" for i in range(size)]).take(codes)


def _records(table: pa.Table) -> list[dict[str, str]]:
    # Column-wise, because Table.to_pylist is several times slower.
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
