"""Values behind names with dots: in mappings inside mappings, and in columns of structs.

`order.customer.tier` is the value of the key of this very name. If there is none, it is `tier` in
the mapping at `order.customer`, else `customer.tier` in the one at `order`, which is found in the
same way: the longest key that is there decides. What is behind a missing or null parent is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from boxmatch.errors import EventError
from boxmatch.model.columns import Refused
from boxmatch.model.keys import is_absent
from boxmatch.model.typed_arrays import nulls_of, python_value

if TYPE_CHECKING:
    import pyarrow as pa

    Column = Sequence[object] | tuple[pa.Array[Any], ...]

T = TypeVar("T")

Path = tuple[tuple[str, Any, str], ...]
"""Keys to look for, the longest first, each with the path from there on (None: it is the value) and
the whole name up to there."""

DEEPEST: Final = 32
"""A name with more dots than this is that of a key."""


class NotNestedError(Exception):  # never leaves the package
    """The value of a parent is no mapping."""

    def __init__(self, value: object, parent: str) -> None:
        super().__init__(value, parent)
        self.value = value
        self.reason = f"is not a mapping, as {parent!r} must be"


def path_to(name: str, taken: Collection[str] = ()) -> Path:
    """The path to a name. Names that are `taken` by other attributes are no parents."""
    parts = name.split(".")
    if len(parts) > DEEPEST:
        return ((name, None, name),)
    paths: list[Path] = [()] * len(parts)
    for first in reversed(range(len(parts))):
        steps = []
        for end in range(len(parts), first, -1):
            whole = ".".join(parts[:end])
            if end == len(parts) or whole not in taken:
                rest = paths[end] if end < len(parts) else None
                steps.append((".".join(parts[first:end]), rest, whole))
        paths[first] = tuple(steps)
    return paths[0]


def find_value(mapping: Mapping[str, object], path: Path) -> Any:
    """The value at the end of a path, None if there is none. Raises `NotNestedError`."""
    for key, rest, whole in path:
        if key in mapping:
            value = mapping[key]
            if rest is None:
                return value
            if type(value) is dict or isinstance(value, Mapping):
                return find_value(value, rest)
            if is_absent(value):
                return None
            raise NotNestedError(value, whole)
    return None


def find_column(
    names: Mapping[object, int], column: Callable[[int], Column], path: Path
) -> Column | None:
    """The column at the end of a path, None if there is none. Raises `Refused`."""
    for key, rest, whole in path:
        if key in names:
            found = column(names[key])
            return found if rest is None else _fields(found, rest, whole)
    return None


def _fields(column: Column, path: Path, parent: str) -> Column:
    if not isinstance(column, tuple):
        return field_values(column, path, parent)
    return by_chunk(column, lambda chunk: field_array(chunk, path, parent))


def by_chunk(
    chunks: tuple[pa.Array[Any], ...], work: Callable[[pa.Array[Any]], T]
) -> tuple[T, ...]:
    """What a function makes of each chunk; `Refused` counts rows from the first one."""
    results = []
    row = 0
    for chunk in chunks:
        try:
            results.append(work(chunk))
        except Refused as refused:
            raise Refused(row + refused.row, refused.value, refused.reason) from None
        row += len(chunk)
    return tuple(results)


def field_values(mappings: Sequence[Any], path: Path, parent: str) -> list[object]:
    """A field of mappings; None where there is no mapping."""
    values = []
    for row, mapping in enumerate(mappings):
        try:
            if isinstance(mapping, Mapping):
                values.append(find_value(mapping, path))
            elif is_absent(mapping):
                values.append(None)
            else:
                raise NotNestedError(mapping, parent)
        except NotNestedError as error:
            raise Refused(row, error.value, error.reason) from None
    return values


def field_array(array: pa.Array[Any], path: Path, parent: str) -> pa.Array[Any]:
    """A field of structs; null where the struct is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind: Any = array.type
    if not pa.types.is_struct(kind):
        if array.null_count == len(array):
            return pa.nulls(len(array))
        nulls = nulls_of(array)
        row = 0 if nulls is None else int(np.argmin(nulls))
        reason = NotNestedError(None, parent).reason
        raise Refused(row, python_value(array, row), f"(Arrow type {kind}) {reason}")
    for key, rest, whole in path:
        places = kind.get_all_field_indices(key)
        if len(places) > 1:
            raise EventError(f"column {parent!r} has two fields named {key!r}")
        if places:
            # Unlike `array.field`, this knows which structs are null.
            found = pc.struct_field(array, places)
            return found if rest is None else field_array(found, rest, whole)
    return pa.nulls(len(array))
