"""Where strings live on the axis: labels that keep order while strings come and go.

The endpoints that filters mention get int64 labels in code point order (which is UTF-8's byte
order too). Any other string takes the place right after the largest endpoint below it. So the
axis knows only what filters name, however many distinct strings the events bring. Long decimals
are strings here too (`decimals.label_text`).
"""

from __future__ import annotations

import gc
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import BoxmatchError
from boxmatch.kernels.pieces import PIECE, from_texts, listed, pieces, take, to_texts, update
from boxmatch.model.axis import ABSENT, FIRST, LAST

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.schema import Attribute


# With labels at least 3 apart, "just after s" and "just before its successor" stay different
# keys, so that `remap_bounds` can tell which of the two a bound is tied to.
_MIN_GAP: Final = 4
_LOWEST: Final = FIRST + _MIN_GAP
_HIGHEST: Final = LAST - _MIN_GAP
# Bulk labels take the middle half of the axis; the outer quarters are for later arrivals.
_SPREAD: Final = 2**62
_STRIDE: Final = 2**38
_RUN: Final = 8
_CHUNK: Final = 256

_COLLECTED: Final = 32
"""New chunks whose strings the garbage collector looks at together, once: left to itself it does so
for hundreds of chunks, and holds the GIL for ten milliseconds.
"""

_StringArray: TypeAlias = npt.NDArray[np.object_]
Labels: TypeAlias = list[int] | Int64Array
"""In ascending order; an array if there are very many."""


class AxisFullError(BoxmatchError, OverflowError):
    """No label is left between two neighbours; `respread` makes room again."""


class _Chunk(NamedTuple):
    """Some neighbours of the sorted order. Never changed, only replaced.

    In tuples, which the garbage collector passes by once it has seen that they hold no others.
    `recent` holds the first and the last label of the latest addition, and `run` says how many
    additions in a row were each right above the one before (negative: right below), which hints
    at where the next will be.
    """

    strings: tuple[str, ...]
    labels: tuple[int, ...]
    recent: tuple[int, int] = (ABSENT, ABSENT)
    run: int = 0


class StringAxis:
    """Order-maintained labels of the strings that filters mention.

    One thread at a time may change the axis (`add`, `respread`); any number may read meanwhile.
    A reader sees an addition as done or not done; its keys are in right order among all labels
    that were known before the read began. `respread` moves labels and must not meet a
    reader: respread a `copy` and publish that.
    """

    __slots__ = ("_packed", "_state", "_text_bytes", "labels")

    labels: dict[str, int]
    """Known strings and their labels; read it, do not write it. The dict is never replaced."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self.labels = {}
        # The first string of each chunk, but "" for the first one, which starts at the start.
        self._state: tuple[list[str], list[_Chunk]] = ([""], [_Chunk((), ())])
        self._text_bytes = 0
        self._packed: tuple[object, npt.NDArray[np.bytes_], Int64Array] | None = None
        self.add(strings)

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, string: object) -> bool:
        return string in self.labels

    def __repr__(self) -> str:
        return f"<StringAxis of {len(self):,} strings>"

    @property
    def state(self) -> object:
        """What is another object after each change."""
        return self._state

    @property
    def nbytes(self) -> int:
        """Memory held, the strings themselves included."""
        _, chunks = self._state
        per_label = 2 * 8 + 32  # two pointers in a chunk, one int object
        return (
            sys.getsizeof(self.labels)
            + self._text_bytes
            + per_label * len(self)
            + 200 * len(chunks)
        )

    def add(self, strings: Iterable[str]) -> None:
        """Make strings known; those that are known already keep their labels. Very many are best
        in an array, and distinct.

        Raises `AxisFullError`, with nothing changed, when there is no room between neighbours,
        and `ValueError` for lone surrogates.
        """
        if isinstance(strings, str):
            strings = (strings,)
        known = self.labels
        unknown: list[str] | _StringArray
        if isinstance(strings, np.ndarray):
            unknown = take(strings, np.flatnonzero(~_are_in(known, strings)))
        else:
            distinct = {string for string in strings if string not in known}
            unknown = _array_of(distinct) if len(distinct) > PIECE else sorted(distinct)
        if not len(unknown):
            return
        for string in unknown:
            if not string.isascii():
                _check(string)
        new = _sorted(unknown) if isinstance(unknown, np.ndarray) else unknown
        heads, chunks = self._state
        state = heads.copy(), chunks.copy()
        labels = _insert(*state, new)
        # A published state never changes, so a reader that holds one can take its time.
        self._state = state
        update(known, new, labels)
        self._text_bytes += sum(sys.getsizeof(string) for string in new)

    def label(self, string: str) -> int:
        """The label of a known string; `KeyError` if it is not."""
        return self.labels[string]

    def key(self, string: str) -> int:
        """Where an event with this string stands: at its label, or right after its predecessor's.

        `FIRST` if it precedes all known strings. Raises `ValueError` for lone surrogates.
        """
        label = self.labels.get(string)
        return self.between((string,))[0] if label is None else label

    def between(self, strings: Iterable[str]) -> list[int]:
        """`key` of strings that are mostly not known, for which it takes a search."""
        heads, chunks = self._state
        keys = []
        for string in strings:
            if not string.isascii():
                _check(string)
            known, labels, _, _ = chunks[bisect_right(heads, string) - 1]
            place = bisect_right(known, string)
            if place == 0:
                keys.append(FIRST)  # only the first chunk can start after the string
            elif known[place - 1] == string:
                keys.append(labels[place - 1])
            else:
                keys.append(labels[place - 1] + 1)
        return keys

    def packed_keys(self, texts: npt.NDArray[np.bytes_]) -> Int64Array:
        """`key` of many texts, all of them hexadecimal digits of 16 bytes, which these are.

        What is known is kept in this form until it changes.
        """
        packed = self._packed
        state = self._state
        if packed is None or packed[0] is not state:
            strings, known_labels = _flat(state[1])
            raw = bytes.fromhex("".join(strings))
            packed = state, np.frombuffer(raw, "S16"), known_labels
            self._packed = packed
        _, known, labels = packed
        if not len(known):
            return np.full(len(texts), FIRST)
        places = np.searchsorted(known, texts, side="right") - 1
        keys = labels[places]
        keys += known[places] != texts
        keys[places < 0] = FIRST
        return keys

    def bound(self, key: int) -> tuple[str, int] | int:
        """The inverse for bounds of filters: `(s, offset)` with `label(s) + offset == key`.

        The offset is -1, 0 or 1. `ABSENT`, `FIRST` and `LAST` come back as they are. Any other
        key raises `KeyError`.
        """
        if key in (ABSENT, FIRST, LAST):
            return key
        _, chunks = self._state
        # The last label that is at most key + 1 is the only one within reach.
        chunk = bisect_right(chunks, key + 1, key=_first_label) - 1
        if chunk >= 0:
            strings, labels = chunks[chunk][:2]
            place = bisect_right(labels, key + 1) - 1
            if place >= 0 and key - labels[place] <= 1:
                return strings[place], key - labels[place]
        raise KeyError(f"no string has a label next to {key}")

    def used_by(self, bounds: Int64Array) -> tuple[list[str], Int64Array]:
        """The known strings that bounds of filters are tied to, in order, with their labels."""
        strings, labels = _flat(self._state[1])
        inner = bounds[(bounds != ABSENT) & (bounds != FIRST) & (bounds != LAST)]
        used = np.unique(np.searchsorted(labels, inner + 1, side="right") - 1)
        return listed(take(strings, used)), labels[used]

    def respread(self) -> tuple[Int64Array, Int64Array]:
        """Space all labels evenly again; gives the old labels, sorted, and their new ones."""
        strings, old = _flat(self._state[1])
        new = _spread(len(strings))
        self._state = _chunk(strings, new)
        update(self.labels, strings, new)
        return old, np.array(new, np.int64)

    def copy(self) -> StringAxis:
        """An independent axis with the same labels."""
        other = StringAxis()
        other.labels.update(self.labels)  # faster than in pieces, since nothing is hashed
        heads, chunks = self._state
        other._state = heads.copy(), chunks.copy()
        other._text_bytes = self._text_bytes
        return other

    def to_arrow(self) -> pa.Table:
        """Columns `string` and `label`, in order."""
        import pyarrow as pa

        strings, labels = _flat(self._state[1])
        return pa.table(
            {
                "string": to_texts(strings, pa.large_string()).combine_chunks(),
                "label": pa.array(labels, pa.int64()),
            }
        )

    @classmethod
    def from_arrow(cls, table: pa.Table) -> StringAxis:
        """The axis that `to_arrow` wrote. Raises `ValueError` if the labels are out of order."""
        strings = from_texts(table["string"])
        labels: Int64Array = table["label"].to_numpy()
        gaps_hold = bool(np.all(labels[1:] >= labels[:-1] + _MIN_GAP))
        if len(labels) and not (gaps_hold and labels[0] >= _LOWEST and labels[-1] <= _HIGHEST):
            raise ValueError("the labels of a string axis are out of order")
        if any(one >= following for one, following in pairwise(strings)):
            raise ValueError("the strings of a string axis are out of order")
        axis = cls()
        axis._state = _chunk(strings, labels)
        update(axis.labels, strings, labels)
        axis._text_bytes = sum(sys.getsizeof(string) for string in strings)
        return axis


def _are_in(known: Mapping[str, int], strings: _StringArray) -> BoolArray:
    marks = np.empty(len(strings), bool)
    for piece in pieces(len(strings)):
        marks[piece] = [string in known for string in strings[piece].tolist()]
    return marks


def _array_of(strings: set[str]) -> _StringArray:
    every = iter(strings)
    array = np.empty(len(strings), object)
    for piece in pieces(len(strings)):
        array[piece] = [*islice(every, piece.stop - piece.start)]
    return array


def _sorted(strings: _StringArray) -> _StringArray:
    """Sorted by code points: by Arrow, which holds no GIL, by their UTF-8 bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts: Any = to_texts(strings, pa.large_string()).combine_chunks()
    return take(strings, pc.array_sort_indices(texts).to_numpy())


def string_axes(attributes: Iterable[Attribute]) -> dict[int, StringAxis]:
    """An axis for each labelled attribute, by its place."""
    return {place: StringAxis() for place, attribute in enumerate(attributes) if attribute.labelled}


def remap_bounds(keys: Int64Array, old: Int64Array, new: Int64Array) -> Int64Array:
    """Bounds after a `respread` that moved labels `old` (sorted) to `new`.

    A bound keeps its offset to the label that it is tied to. `ABSENT`, `FIRST` and `LAST` stay.
    """
    result = keys.copy()
    inner = (keys != ABSENT) & (keys != FIRST) & (keys != LAST)
    bounds = keys[inner]
    nearest = np.searchsorted(old, bounds + 1, side="right") - 1
    result[inner] = bounds - old[nearest] + new[nearest]
    return result


def _insert(heads: list[str], chunks: list[_Chunk], new: Sequence[str] | _StringArray) -> Labels:
    """Insert sorted new strings, in place, and give their labels."""
    added: list[Labels] = []
    first = 0
    while first < len(new):
        string = new[first]
        at = bisect_right(heads, string) - 1
        strings, labels, recent, run = chunks[at]
        place = bisect_left(strings, string)
        below = labels[place - 1] if place else None
        above = None
        # All new strings that fall between the same two old ones are placed together.
        end = len(new)
        if place < len(strings):
            above = labels[place]
            end = bisect_left(new, strings[place], first)
        elif at + 1 < len(chunks):
            above = chunks[at + 1].labels[0]
            end = bisect_left(new, heads[at + 1], first)
            if above == chunks[at + 1].recent[0]:
                _, _, recent, run = chunks[at + 1]
        if below == recent[1]:
            run = max(run, 0) + 1
        elif above == recent[0]:
            run = min(run, 0) - 1
        else:
            run = 0
        fresh = _place(end - first, below, above, run)
        recent = int(fresh[0]), int(fresh[-1])
        if len(strings) + end - first <= _CHUNK:
            chunks[at] = _Chunk(
                (*strings[:place], *new[first:end], *strings[place:]),
                (*labels[:place], *fresh, *labels[place:]),
                recent,
                run,
            )
        else:
            _, parts = _chunk(
                _joined(strings[:place], new[first:end], strings[place:]),
                _joined(labels[:place], fresh, labels[place:]),
            )
            for number, part in enumerate(parts):
                if any(part.labels[0] <= label <= part.labels[-1] for label in recent):
                    parts[number] = part._replace(recent=recent, run=run)
            chunks[at : at + 1] = parts
            heads[at + 1 : at + 1] = [part.strings[0] for part in parts[1:]]
        added.append(fresh)
        first = end
    return added[0] if len(added) == 1 else [*chain.from_iterable(map(_listed, added))]


def _place(count: int, below: int | None, above: int | None, run: int) -> Labels:
    """Labels for some strings between two labels, or beyond an end where there is no label."""
    if below is None and above is None:
        return _spread(count)
    low = _LOWEST if below is None else below
    high = _HIGHEST if above is None else above
    room = high - low
    step = room // (count + 1)
    # Each addition takes about this many bits off the gap: the more, the sooner to be careful.
    in_run = abs(run) * count.bit_length() >= _RUN
    if below is None or above is None:
        # The first few steps are big, to leave room for strings that come in random order;
        # those of a long run are smaller, to last for millions.
        step = min(step, _STRIDE if in_run else (room >> 3) // count)
    elif in_run:
        # Dividing a gap again and again exhausts it; in a run, step by the root of the gap.
        step = min(step, 1 << room.bit_length() // 2)
    step = max(step, _MIN_GAP)
    if step * (count + 1) > room:
        raise AxisFullError(f"no room for {count:,} more labels between two strings of an axis")
    if below is None or (above is not None and in_run and run < 0):
        return _steps(high - step * count, step, count)
    return _steps(low + step, step, count)


def _steps(first: int, step: int, count: int) -> Labels:
    if count <= _CHUNK:
        return [first + step * place for place in range(count)]
    # As unsigned numbers, whose products may go round, as long as the sums are right.
    steps = np.arange(count, dtype=np.uint64) * np.uint64(step)
    return steps.view(np.int64) + np.int64(first)


def _spread(count: int) -> Labels:
    """Labels for all strings of an axis, evenly spaced."""
    step = 2 * _SPREAD // (count + 1)
    return _steps(step - _SPREAD, step, count)


def _joined(before: Sequence[Any], new: Any, after: Sequence[Any]) -> Any:
    if not isinstance(new, np.ndarray):
        return [*before, *new, *after]
    joined = np.empty(len(before) + len(new) + len(after), new.dtype)
    joined[: len(before)] = before
    for piece in pieces(len(new)):
        joined[len(before) + piece.start : len(before) + piece.stop] = new[piece]
    joined[len(before) + len(new) :] = after
    return joined


def _chunk(strings: Any, labels: Any) -> tuple[list[str], list[_Chunk]]:
    chunks = []
    for piece in pieces(max(len(strings), 1), _CHUNK // 2):
        chunks.append(_Chunk(tuple(_listed(strings[piece])), tuple(_listed(labels[piece]))))
        if len(chunks) % _COLLECTED == 0 and gc.isenabled():
            gc.collect(0)
    return ["", *(chunk.strings[0] for chunk in chunks[1:])], chunks


def _listed(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _first_label(chunk: _Chunk) -> int:
    return chunk.labels[0] if chunk.labels else LAST


def _check(string: str) -> None:
    try:
        string.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{string[:40]!r} has a lone surrogate at offset {error.start}: it is not text"
        ) from None


def _flat(chunks: list[_Chunk]) -> tuple[_StringArray, Int64Array]:
    """All strings and all labels, in order."""
    count = sum(len(chunk.strings) for chunk in chunks)
    strings, labels = np.empty(count, object), np.empty(count, np.int64)
    end = 0
    for chunk in chunks:
        first, end = end, end + len(chunk.strings)
        strings[first:end] = chunk.strings
        labels[first:end] = chunk.labels
    return strings, labels
