"""What every index is: a few verbs over boxes and points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, BoolArray, Int32Array, Int64Array
from boxmatch.errors import IndexConfigError
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import FloatTable, ListKeys

NO_LINES = np.zeros((0, 8), np.uint64)
NO_MARKS = np.zeros(0, bool)
NO_IDS = np.zeros(0, np.int64)
NO_OWNERS = np.zeros(0, np.int32)


class Query(NamedTuple):
    """What an index is asked: which boxes hold each point.

    `alive` and `skipped` are as `Index` says, or empty where they are not given.
    """

    points: Int64Array
    alive: BitLines
    skipped: BoolArray
    listing: bool
    """Whether the positions are wanted, not only their `counts`."""
    counts: Int64Array
    """Where to write how many boxes hold each point."""


class Matches(NamedTuple):
    """Which boxes hold which points: `counts[i]` positions belong to point `i`, in order."""

    counts: Int64Array
    positions: Int32Array


class Search(Protocol):
    """A kernel with all of its arguments but the points: calling it is most of what it costs.

    Sets the first items of `room` to the matches of each point. If there is more room, and if the
    matches fit, they are written there, point by point, as ids if it has those. If not, their
    positions are returned.
    """

    def __call__(
        self, points: Int64Array, listing: bool, room: Int64Array, /
    ) -> Int32Array | None: ...


def returned(positions: Int32Array | None) -> Int32Array:
    """What a search returns that has room for counts only."""
    if positions is None:
        raise TypeError("there was room for positions")
    return positions


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an index supports."""

    ranges: bool = True
    """Exact on boxes of any intervals."""
    booleans: bool = True
    """Exact on boxes whose predicates ask for the key 0 or the key 1."""
    updates: bool = False
    """Has `add` and `remove` of its own."""
    approximate: bool = False
    """Can leave out the predicates of `skipped` attributes."""
    skipping_pays: bool = True
    """Leaving them out makes it faster."""
    lists: bool = False
    """Takes points with sets of keys."""
    devices: bool = False
    """Can search batches on a graphics card."""


class Index(ABC):
    """An index over boxes, exact unless asked to skip predicates.

    `build` may store the boxes in an order of its own and says so; all other verbs speak of
    positions in that order. Any number of threads may search an index at the same time, but not
    while one of them changes it by `add` or `remove`. Points are an n × d array of keys. `alive`,
    where given, has one bit per position, in lines of 512: boxes whose bit is clear are passed
    over. `skipped`, where given, marks the attributes whose predicates need not be checked: the
    answer then has every match, and may have more. `lists`, where given, has the keys of the points
    on axes where they have sets of them; what `points` has there is ignored.
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    interim: ClassVar[bool] = False
    """Stands for the index that a matcher is to have."""
    slow_to_compile: ClassVar[bool] = False
    """Its kernels are compiled in the background; `scan` answers meanwhile."""
    parameters: ClassVar[dict[str, Any]] = {}
    """Parameters that the index takes, with their defaults."""
    _limits: ClassVar[dict[str, tuple[int, int]]] = {}
    """Of those that are whole numbers, the least and the greatest value."""

    def __init__(self, dimensions: int, **parameters: Any) -> None:
        unknown = sorted(parameters.keys() - self.parameters.keys())
        if unknown:
            known = ", ".join(sorted(self.parameters)) or "none"
            raise IndexConfigError(
                f"index {self.name!r} takes no parameter {unknown[0]!r} (it takes: {known})"
            )
        self.dimensions = dimensions
        self.attributes = dimensions
        """The axes that events may lack, which come first; the others are of expressions, which
        nearly always have a value. May be set before `build`."""
        self.threads: int | None = None
        """How many threads `build` may use, if it uses several; None: one for each core."""
        self.device = "cpu"
        """Where batches are searched, if it can: `cpu`, `cuda` or `auto`, of card N with `:N`.
        May be set at any time."""
        self.chosen = {**self.parameters, **parameters}
        for parameter, (least, most) in self._limits.items():
            value = self.chosen[parameter]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise IndexConfigError(
                    f"index {self.name!r}: {parameter} must be from {least:,} to {most:,}, "
                    f"not {value!r}"
                )

    @property
    def own_rate(self) -> float:
        """False matches for each true one that the index allows where `skipped` is not given."""
        return 0.0

    @abstractmethod
    def build(self, boxes: Boxes) -> Int64Array | None:
        """Take the boxes; return the row of `boxes` at each position (None: the same order)."""

    def add(self, boxes: Boxes) -> Int64Array:
        """Take more boxes; return their positions, which follow those in use."""
        raise self._no_updates()

    def remove(self, positions: Int64Array) -> None:
        """Drop the boxes at these positions. No position is used a second time."""
        raise self._no_updates()

    def _no_updates(self) -> IndexConfigError:
        return IndexConfigError(
            f"index {self.name!r} is built once: a Matcher adds and removes subscriptions around it"
        )

    @abstractmethod
    def _search(self, query: Query) -> Int32Array:
        """Set the counts; return the positions, point by point, if they are wanted."""

    def _search_lists(self, query: Query, lists: ListKeys) -> Int32Array:
        """The same for points with sets of keys."""
        raise IndexConfigError(
            f"index {self.name!r} does not take repeated values; tile and scan do"
        )

    def _answer(self, query: Query, lists: ListKeys | None) -> Int32Array:
        return self._search(query) if lists is None else self._search_lists(query, lists)

    def _query(
        self,
        points: Int64Array,
        alive: BitLines | None,
        skipped: BoolArray | None,
        *,
        listing: bool,
    ) -> Query:
        lines = NO_LINES if alive is None else alive
        marks = NO_MARKS if skipped is None else skipped
        return Query(points, lines, marks, listing, np.empty(len(points), np.int64))

    def match(
        self,
        points: Int64Array,
        alive: BitLines | None = None,
        skipped: BoolArray | None = None,
        *,
        lists: ListKeys | None = None,
    ) -> Matches:
        """The boxes that hold each point."""
        query = self._query(points, alive, skipped, listing=True)
        return Matches(query.counts, self._answer(query, lists))

    def match_floats(
        self, table: FloatTable, alive: BitLines | None = None, *, listing: bool
    ) -> Matches | None:
        """`match`, or what it counts, of events that are floats; None if keys are needed."""
        return None

    def match_one(
        self,
        point: Int64Array,
        alive: BitLines | None = None,
        skipped: BoolArray | None = None,
        *,
        lists: ListKeys | None = None,
    ) -> Int32Array:
        """The boxes that hold the single point in an array of shape (1, d)."""
        return self.match(point, alive, skipped, lists=lists).positions

    def prefers_whole(self, events: int) -> bool:
        """Whether so many events are best searched all at once, not by several threads."""
        return False

    def prepare(
        self,
        alive: BitLines = NO_LINES,
        skipped: BoolArray = NO_MARKS,
        ids: Int64Array = NO_IDS,
        owners: Int32Array = NO_OWNERS,
    ) -> Search | None:
        """The search with the least to do for each call; None if there is none, or not yet.

        `ids`, where given, has one by position, and so has `owners`: of the positions that have
        the same owner, one is found.
        """
        return None

    def count(
        self,
        points: Int64Array,
        alive: BitLines | None = None,
        skipped: BoolArray | None = None,
        *,
        lists: ListKeys | None = None,
    ) -> Int64Array:
        """How many boxes hold each point."""
        query = self._query(points, alive, skipped, listing=False)
        self._answer(query, lists)
        return query.counts

    @property
    @abstractmethod
    def boxes(self) -> Boxes:
        """The boxes by position. Shares memory with the index."""

    @property
    @abstractmethod
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part."""

    @abstractmethod
    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that `from_arrays` needs, by name."""

    @classmethod
    @abstractmethod
    def from_arrays(
        cls, dimensions: int, parameters: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
    ) -> Self:
        """The index that `to_arrays` was asked of."""
