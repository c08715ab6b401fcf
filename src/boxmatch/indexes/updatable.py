"""What indexes with updates of their own share: who is where, who is gone, how it is stored."""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, BoolArray, Int32Array, Int64Array
from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import NO_MARKS, Capabilities, Index, Query
from boxmatch.kernels.bit_lines import LINE_BITS, filled_lines
from boxmatch.model.boxes import Boxes, GrowingBoxes, longer

_FITTED_AT_LEAST = 1_000


class UpdatableIndex(Index):
    """An index whose structure takes and gives up boxes one by one.

    Positions are given in the order in which boxes come. An algorithm supplies its structure, a
    NamedTuple of arrays (or of such tuples), and four verbs: `_empty` (or `_make`), `_insert`,
    `_delete` and `_search`.
    """

    capabilities = Capabilities(updates=True)
    _structure: ClassVar[type[tuple[Any, ...]]]
    """The NamedTuple that `_make` returns."""

    _state: Any
    _boxes: GrowingBoxes
    _living: BitLines
    _fitted: int

    def _empty(self, boxes: Boxes) -> Any:
        """A structure without boxes that is fit for `boxes`, and for others like them."""
        raise NotImplementedError

    def _make(self, boxes: Boxes, positions: Int32Array) -> Any:
        """The structure that holds `boxes` (living ones) at `positions`."""
        self._state = self._empty(boxes)
        return self._insert(boxes, positions) if boxes.count else self._state

    @abstractmethod
    def _insert(self, boxes: Boxes, positions: Int32Array) -> Any:
        """The structure with more boxes, at least one."""

    @abstractmethod
    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        """Take boxes out of the structure, at least one."""

    def _check(self, boxes: Boxes, *, first: bool) -> None:
        """Raise an error for boxes that are too many beside those that are held, if any are."""

    def build(self, boxes: Boxes) -> None:
        self._check(boxes, first=True)
        self._boxes = GrowingBoxes(boxes)
        self._living = filled_lines(boxes.count)
        self._fit(boxes, np.arange(boxes.count, dtype=np.int32))

    def _fit(self, boxes: Boxes, positions: Int32Array) -> None:
        self._state = self._make(boxes, positions)
        self._fitted = boxes.count

    def add(self, boxes: Boxes) -> Int64Array:
        if boxes.count == 0:
            return np.zeros(0, np.int64)
        self._check(boxes, first=False)
        first = self._boxes.boxes.count
        self._boxes.append(boxes)
        rows = first + boxes.count
        positions = np.arange(first, rows, dtype=np.int32)
        if rows > len(self._living) * LINE_BITS:
            lines = longer(self._living, 2 * (rows // LINE_BITS + 1))
            lines[len(self._living) :] = 0
            self._living = lines
        _set_bits(self._living, positions, True)
        if rows > 2 * self._fitted + _FITTED_AT_LEAST:
            # What the structure took from the values that it was made with no longer fits.
            living = np.flatnonzero(self._is_alive(np.arange(rows))).astype(np.int32)
            self._fit(self._boxes.boxes.take(living), living)
            self._fitted = rows
        else:
            self._state = self._insert(boxes, positions)
        return positions.astype(np.int64)

    def remove(self, positions: Int64Array) -> None:
        boxes = self._boxes.boxes
        places = np.asarray(positions, np.int64)
        outside = (places < 0) | (places >= boxes.count)
        gone = places[outside] if outside.any() else places[~self._is_alive(places)]
        if len(gone):
            raise IndexConfigError(f"index {self.name!r} holds no box at position {gone[0]}")
        if len(np.unique(places)) != len(places):
            raise IndexConfigError("a position to remove is named twice")
        if len(places):
            self._delete(boxes.take(places), places.astype(np.int32))
            _set_bits(self._living, places, False)

    def _is_alive(self, positions: Int64Array) -> BoolArray:
        words = self._living.reshape(-1)[positions >> 6]
        bits: BoolArray = (words >> (positions & 63).astype(np.uint64)) & np.uint64(1) != 0
        return bits

    def _query(
        self,
        points: Int64Array,
        alive: BitLines | None,
        skipped: BoolArray | None,
        *,
        listing: bool,
    ) -> Query:
        """The query with `alive` for every position and no more."""
        lines = -(-self._boxes.boxes.count // LINE_BITS)
        living = self._living[:lines] if alive is None else self._living[:lines] & alive[:lines]
        return super()._query(points, living, self._marks(skipped), listing=listing)

    def _marks(self, skipped: BoolArray | None) -> BoolArray:
        if skipped is None:
            return NO_MARKS
        if not self.capabilities.approximate:
            raise IndexConfigError(f"index {self.name!r} cannot skip predicates")
        return skipped

    @property
    def boxes(self) -> Boxes:
        return self._boxes.boxes

    @property
    def nbytes(self) -> dict[str, int]:
        held = {"boxes": self.boxes.nbytes, "living": self._living.nbytes}
        for name, part in self._state._asdict().items():
            held[name] = sum(array.nbytes for array in _flat(name, part).values())
        return held

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = {f"box_{name}": array for name, array in self.boxes.arrays.items()}
        return arrays | {"living": self._living} | _flat("state", self._state)

    @classmethod
    def from_arrays(
        cls, dimensions: int, parameters: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
    ) -> Self:
        index = cls(dimensions, **parameters)
        columns = ("start", "attribute", "low", "high")
        index._boxes = GrowingBoxes(Boxes(dimensions, *(arrays[f"box_{c}"] for c in columns)))
        index._living = arrays["living"]
        index._state = _unflat("state", cls._structure, arrays)
        index._fitted = index._boxes.boxes.count
        return index


def _set_bits(lines: BitLines, positions: npt.NDArray[np.integer], value: bool) -> None:
    words = lines.reshape(-1)
    bit = np.uint64(1) << (positions & 63).astype(np.uint64)
    if value:
        np.bitwise_or.at(words, positions >> 6, bit)
    else:
        np.bitwise_and.at(words, positions >> 6, ~bit)


def _flat(name: str, part: Any) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a NamedTuple and of those within it, by their path."""
    if isinstance(part, np.ndarray):
        return {name: part}
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field, value in part._asdict().items():
        arrays |= _flat(f"{name}_{field}", value)
    return arrays


@cache
def _fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _unflat(name: str, kind: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if not (isinstance(kind, type) and issubclass(kind, tuple)):
        return arrays[name]
    parts = _fields(kind)
    return kind(**{field: _unflat(f"{name}_{field}", parts[field], arrays) for field in parts})
