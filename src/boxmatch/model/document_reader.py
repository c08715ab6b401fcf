"""Documents to keys: one walk through each, for all axes that are about a value at a path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from operator import is_not
from typing import Any, Final, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import EventError
from boxmatch.model.axis import ABSENT
from boxmatch.model.axis_table import Axes
from boxmatch.model.document_paths import PathNode, choices, mappings_in
from boxmatch.model.documents import text_of
from boxmatch.model.expressions.documents import FORMS, DocumentPart, part_of, parts_of
from boxmatch.model.expressions.nodes import Call, Node
from boxmatch.model.expressions.scalar import compile_scalar
from boxmatch.model.filters.scope import DerivedAxis
from boxmatch.model.strings import StringAxis

_MOST_KNOWN: Final = 4_096
"""Values between labels whose keys an axis keeps at hand."""

_LONGEST: Final = 256
"""Characters of a string that is kept at hand."""

_KNOWN_TYPES: Final = (str, int, float)

_TEXT, _TEXTS, _FLAG, _JOINED = range(4)
"""What an axis is about: the text of a value, those of all members, whether there is one, or what
is found in the strings among them."""

More = dict[int, list[Any]]
"""By place among the keys of all rows: the keys of points that have several on an axis; on an axis
of needles, the strings to look through."""

Columns = Sequence[Sequence[Any]]
"""The documents of events, by column."""


class Reading(NamedTuple):
    """What was read of some events."""

    keys: Int64Array
    more: More
    joined: Collection[int] = ()
    """The axes of needles."""
    owners: Int64Array | None = None
    """The event of each row, if elements of lists had to be chosen; None: there is a row each."""
    columns: Columns = ()
    """What each row has then."""

    def lists(self) -> dict[int, tuple[Int64Array, Int64Array]]:
        """The sets of keys of the axes on which some row has several, as `ListKeys.of` has them."""
        by_axis: dict[int, dict[int, list[int]]] = {}
        for place, keys in self.more.items():
            row, position = divmod(place, self.keys.shape[1])
            if position not in self.joined:
                by_axis.setdefault(position, {})[row] = keys
        return {axis: _as_lists(self.keys[:, axis], rows) for axis, rows in by_axis.items()}

    def texts(self, position: int) -> list[str | None]:
        """By row: the strings to look through, as one text, of an axis of needles."""
        places = range(position, self.keys.size, self.keys.shape[1])
        return [join_strings(self.more.get(place, ())) for place in places]


def join_strings(strings: Sequence[str]) -> str | None:
    """Strings as one text, in which nothing is found but what is in one of them."""
    return "\0".join(strings) if strings else None


def part_of_axis(axis: DerivedAxis) -> DocumentPart | None:
    """What an axis is about, if that is one value at a path of a document, or its members."""
    match axis.kind, axis.node:
        case "value", Call("is_null", (inner,)):
            part = part_of(inner)
            if part is not None and part.kind == "json_path":
                return part
        case "value", Call("text" | "is_missing"):
            return part_of(axis.node)
        case "elements", _:
            return part_of(axis.node)
        case "needles", Call("joined"):
            return part_of(axis.node)
    return None


class _Leaf:
    """An axis of a value at a path."""

    __slots__ = ("_memory", "change", "labels", "of_members", "position", "strings", "use")

    def __init__(self, position: int, part: DocumentPart, strings: StringAxis | None) -> None:
        self.position = position
        self.of_members = part.of_members
        self.use = {"text": _TEXT, "texts": _TEXTS, "joined": _JOINED}.get(part.kind, _FLAG)
        self.change = FORMS[part.form]
        self.strings = StringAxis() if strings is None else strings
        self.labels: Mapping[str, int] = {} if self.change is not None else self.strings.labels
        self._memory: tuple[object, dict[Any, int]] = None, {}

    def key(self, value: Any) -> int:
        """The key of a value, which often was there before."""
        if type(value) not in _KNOWN_TYPES:  # true and 1 are equal in Python
            return self._key(value)
        # Both at once, since other threads may put others in their place.
        state, known = self._memory
        if state is not self.strings.state:
            known = {}
            self._memory = self.strings.state, known
        key = known.get(value)
        if key is None:
            key = self._key(value)
            if len(known) < _MOST_KNOWN and (type(value) is not str or len(value) <= _LONGEST):
                known[value] = key
        return key

    def _key(self, value: Any) -> int:
        text = text_of(value)
        if text is not None and self.change is not None:
            text = self.change(text)
        return ABSENT if text is None else self.strings.key(text)


class _Slow(NamedTuple):
    """An axis that is evaluated like any other."""

    position: int
    part: DocumentPart
    value: Callable[[Mapping[Any, Any]], Any]
    strings: StringAxis | None

    @property
    def is_flag(self) -> bool:
        """Whether its values are true and false."""
        return self.part.kind in ("is_missing", "json_path")

    def read(self, event: Mapping[Any, Any]) -> tuple[int, list[Any]]:
        """The key of an event, and all of them if it has several."""
        found = self.value(event)
        if self.is_flag:
            return int(found), []
        if self.part.kind == "joined":
            return ABSENT, [] if found is None else [found]
        texts = found if self.part.kind == "texts" else [found]
        axis = StringAxis() if self.strings is None else self.strings
        keys = [axis.key(text) for text in texts or () if text is not None]
        return (keys[0] if keys else ABSENT), keys if len(keys) > 1 else []


class _UnusualError(Exception):  # never leaves the module
    """A document has to be read like others that are no plain ones."""


class _ChoiceError(Exception):  # never leaves the module
    """One element of a list has to be chosen."""


class DocumentReader:
    """Reads the axes of one moment that are about a value at a path of a document, or members.

    Any number of threads may share it.
    """

    def __init__(self, axes: Axes, used: BoolArray | None, tests: Iterable[Node] = ()) -> None:
        """`tests` are expressions that are evaluated for the points besides the `used` axes."""
        self._roots: dict[str, PathNode[_Leaf]] = {}
        self._axes: list[_Slow] = []
        for position, axis in enumerate(axes.derived, len(axes.schema)):
            if axis is not None and (used is None or used[position]):
                part = part_of_axis(axis)
                if part is not None:
                    self._add(position, axis, part, axes.strings.get(position))
        for part in parts_of(tests):
            self._roots.setdefault(part.column, PathNode()).count(part)
        self._flags = [one.position for one in self._axes if one.is_flag]
        self._joined = {one.position for one in self._axes if one.part.kind == "joined"}
        self._missing = [one for one in self._axes if one.part.kind == "is_missing"]
        self._blank = np.full(axes.width, ABSENT)
        self._blank[self._flags] = 1

    def _add(
        self, position: int, axis: DerivedAxis, part: DocumentPart, strings: StringAxis | None
    ) -> None:
        root = self._roots.setdefault(part.column, PathNode())
        root.along(part.path)[-1].leaves.append(_Leaf(position, part, strings))
        root.count(part)
        self._axes.append(_Slow(position, part, compile_scalar(axis.node), strings))

    @property
    def columns(self) -> tuple[str, ...]:
        """The attributes whose values it reads."""
        return tuple(self._roots)

    @cached_property
    def blank(self) -> memoryview[int]:
        """The keys of an event that has nothing."""
        return self._blank.data.cast("B").cast("q")

    def read(self, columns: Columns, keys: Int64Array) -> Reading:
        """Write the keys of events to rows, n × d. Raises `EventError`."""
        keys[:, self._flags] = 1
        view = keys.reshape(-1).data.cast("B").cast("q")
        more: More = {}
        chosen: dict[int, list[tuple[Any, ...]]] = {}
        width = keys.shape[1]
        only = next(iter(self._roots.values())) if len(columns) == 1 else None
        for row, documents in enumerate(zip(*columns, strict=True)):
            if only is not None and type(documents[0]) is dict:
                try:
                    _read_mapping(only, documents[0], view, row * width, more, False)
                    continue
                except (_UnusualError, _ChoiceError, TypeError, ValueError, RecursionError):
                    pass  # once more, by all means: what is written twice is there once
            try:
                self._read(documents, view, row * width, row, more)
            except _ChoiceError:
                chosen[row] = self._choices(documents, row)
        if not chosen:
            return Reading(keys, more, self._joined)
        return self._with_choices(columns, keys, more, chosen)

    def read_one(self, documents: Sequence[Any], keys: memoryview[int]) -> More | None:
        """Write the keys of one event over `blank`; what is left, or None if elements of its lists
        have to be chosen.
        """
        more: More = {}
        try:
            self._read(documents, keys, 0, None, more)
        except _ChoiceError:
            return None
        return more

    def _read(
        self,
        documents: Sequence[Any],
        view: memoryview[int],
        start: int,
        row: int | None,
        more: More,
    ) -> None:
        try:
            for root, document in zip(self._roots.values(), documents, strict=True):
                if type(document) is dict:
                    _read_mapping(root, document, view, start, more, False)
                elif document is not None:
                    _read_value(root, document, view, start, more, False)
        except (_UnusualError, TypeError):  # of keys that are no strings
            self._read_slowly(documents, view, start, row, more)
        except RecursionError:
            raise _refused(ValueError("lists are nested too deeply"), row) from None
        except ValueError as error:
            raise _refused(error, row) from None

    def _read_slowly(
        self,
        documents: Sequence[Any],
        view: memoryview[int],
        start: int,
        row: int | None,
        more: More,
    ) -> None:
        found = self._choices(documents, row)
        if len(found) > 1 or any(map(is_not, found[0], documents)):
            raise _ChoiceError
        event = dict(zip(self._roots, documents, strict=True))
        try:
            for one in self._axes:
                place = start + one.position
                more.pop(place, None)
                view[place], several = one.read(event)
                if several:
                    more[place] = several
        except (ValueError, TypeError) as error:
            raise _refused(error, row) from None

    # Choices

    def _choices(self, documents: Sequence[Any], row: int | None) -> list[tuple[Any, ...]]:
        """The documents of an event for each choice of elements of its lists."""
        try:
            found = [
                choices(root, document)
                for root, document in zip(self._roots.values(), documents, strict=True)
            ]
        except EventError as error:
            raise _refused(error, row) from None
        return list(product(*found))

    def _with_choices(
        self,
        columns: Columns,
        keys: Int64Array,
        more: More,
        chosen: Mapping[int, list[tuple[Any, ...]]],
    ) -> Reading:
        """The rows of events with several in the place of one for those that have choices."""
        counts = np.ones(len(keys), np.int64)
        counts[list(chosen)] = [len(some) for some in chosen.values()]
        owners = np.repeat(np.arange(len(keys)), counts)
        first = np.cumsum(counts) - counts
        own = [one.position for one in self._axes]
        for row in chosen:
            keys[row, own] = self._blank[own]
        keys = keys[owners]
        width = keys.shape[1]
        moved: More = {}
        for place, several in more.items():
            row, position = divmod(place, width)
            if row not in chosen:
                moved[int(first[row]) * width + position] = several
        rows: list[Sequence[Any]] = []
        for row, documents in enumerate(zip(*columns, strict=True)):
            rows += chosen.get(row, [documents])
        view = keys.reshape(-1).data.cast("B").cast("q")
        for row in chosen:
            for place in range(int(first[row]), int(first[row]) + len(chosen[row])):
                self._read(rows[place], view, place * width, place, moved)
                event = dict(zip(self._roots, rows[place], strict=True))
                for one in self._missing:  # which may be about all elements
                    keys[place, one.position] = one.value(event)
        by_column = [list(column) for column in zip(*rows, strict=True)]
        return Reading(keys, moved, self._joined, owners, by_column)


def _read_mapping(
    node: PathNode[_Leaf],
    document: Mapping[str, Any],
    view: memoryview[int],
    start: int,
    more: More,
    in_list: bool,
) -> None:
    """Write the keys of what is in a mapping."""
    below = node.below
    for name, value in document.items():
        child = below.get(name)
        if child is None:
            if "." in name and name.partition(".")[0] in below:
                raise _UnusualError
            continue
        kind = type(value)
        if kind is str:
            if value >= "\1":  # it is its own text
                for leaf in child.leaves:
                    if leaf.use == _TEXTS:
                        key = leaf.labels.get(value)
                        if key is None:
                            key = leaf.key(value)
                        place = start + leaf.position
                        if view[place] == ABSENT:
                            view[place] = key
                        else:
                            _add_key(key, place, view, more)
                    else:
                        _read_leaf(leaf, value, view, start, more, in_list)
                continue
        elif kind is dict:
            if child.leaves:
                _note_presence(child, view, start, in_list)
            _read_mapping(child, value, view, start, more, in_list)
            continue
        _read_value(child, value, view, start, more, in_list)


def _read_value(
    node: PathNode[_Leaf],
    value: Any,
    view: memoryview[int],
    start: int,
    more: More,
    in_list: bool,
) -> None:
    """Write the keys of a value of any kind at the end of a path."""
    kind = type(value)
    if kind is int or kind is float or kind is bool or value is None or kind is str:
        for leaf in node.leaves:
            _read_leaf(leaf, value, view, start, more, in_list)
    elif isinstance(value, Mapping):
        _note_presence(node, view, start, in_list)
        _read_mapping(node, value, view, start, more, in_list)
    elif isinstance(value, (list, tuple)):
        _note_presence(node, view, start, in_list)
        if node.uses > 1 and len(list(islice(mappings_in(value), 2))) > 1:
            raise _ChoiceError
        for one in value:
            _read_value(node, one, view, start, more, True)
    else:
        for leaf in node.leaves:
            _read_leaf(leaf, value, view, start, more, in_list)


def _note_presence(node: PathNode[_Leaf], view: memoryview[int], start: int, in_list: bool) -> None:
    """Note that a list or a mapping is no NULL."""
    for leaf in node.leaves:
        if leaf.use == _FLAG and not leaf.of_members and not in_list:
            view[start + leaf.position] = 0


def _read_leaf(
    leaf: _Leaf, value: Any, view: memoryview[int], start: int, more: More, in_list: bool
) -> None:
    """Write the key of a string, number, bool or null on one axis."""
    if in_list and not leaf.of_members:
        return
    place = start + leaf.position
    if leaf.use == _FLAG:
        if value is not None or leaf.of_members:
            view[place] = 0
        return
    if leaf.use == _JOINED:
        if isinstance(value, str):
            more.setdefault(place, []).append(value)
        return
    key = leaf.key(value)
    if view[place] == ABSENT:
        view[place] = key
    else:
        _add_key(key, place, view, more)


def _add_key(key: int, place: int, view: memoryview[int], more: More) -> None:
    """Note one more key of a point on an axis."""
    known = view[place]
    if known != key != ABSENT:
        more.setdefault(place, [known]).append(key)


def _refused(error: Exception, row: int | None) -> EventError:
    return EventError(str(error) if row is None else f"row {row}: {error}", row=row)


def _as_lists(
    keys: Int64Array, several: Mapping[int, Sequence[int]]
) -> tuple[Int64Array, Int64Array]:
    """The sets of keys of an axis: where those of each point begin, and all keys."""
    sets: Iterator[Iterable[int]] = (
        dict.fromkeys(several[row]) if row in several else (key,) * (key != ABSENT)
        for row, key in enumerate(keys.tolist())
    )
    listed = [list(one) for one in sets]
    start = np.zeros(len(listed) + 1, np.int64)
    np.cumsum([len(one) for one in listed], out=start[1:])
    return start, np.array([key for one in listed for key in one], np.int64)
