"""The paths that filters look at in documents, as a tree; and choices among elements of lists.

Where a path leads through a list of mappings, all conditions of a filter must be satisfied by the
same element. So an event with such a list is looked at once for each element, with the list made
shorter: one mapping is left, and all that is no mapping. That is not needed if there is a single
condition on what is inside of the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final, Generic, TypeVar

from boxmatch.errors import EventError
from boxmatch.model.documents import Chosen, Path, flat
from boxmatch.model.expressions.documents import DocumentPart

MOST_CHOICES: Final = 10_000
"""Ways to choose one element of each list of mappings of an event."""

Leaf = TypeVar("Leaf")


class PathNode(Generic[Leaf]):
    """What is wanted at a path: further names, and leaves for the value itself."""

    __slots__ = ("below", "leaves", "uses")

    def __init__(self) -> None:
        self.below: dict[str, PathNode[Leaf]] = {}
        self.leaves: list[Leaf] = []
        self.uses = 0
        """How many conditions on what is inside depend on the element of a list that is chosen."""

    def along(self, path: Path) -> list[PathNode[Leaf]]:
        """The nodes from here to the end of a path, which are made if need be."""
        found = [self]
        for name in path:
            found.append(found[-1].below.setdefault(name, PathNode()))
        return found

    def count(self, part: DocumentPart) -> None:
        """Note that a filter looks at the members of a path from here."""
        for place, node in enumerate(self.along(part.path)[:-1]):
            if part.kind in ("texts", "joined"):
                node.uses += 1
            elif part.kind == "is_missing" and place <= part.within:
                node.uses += 2  # that one element has none differs from that none has


def choices(node: PathNode[Any], value: Any, where: Path = ()) -> list[Any]:
    """What is left of a value for each choice of elements; the value itself if there is none.

    Raises `EventError` if there are too many.
    """
    if isinstance(value, Mapping):
        return _of_mapping(node, value, where)
    if isinstance(value, (list, tuple)) and node.uses > 1:
        return _of_list(node, value, where)
    return [value]


def _of_mapping(node: PathNode[Any], value: Mapping[str, Any], where: Path) -> list[Any]:
    changed: dict[str, list[Any]] = {}
    for name, one in value.items():
        child = _child(node, name)
        if child is not None:
            found = choices(child, one, (*where, name))
            if len(found) > 1 or found[0] is not one:
                changed[name] = found
    if not changed:
        return [value]
    _check_number(prod(map(len, changed.values())), (*where, max(changed, key=_length_in(changed))))
    every = product(*changed.values())
    return [{**value, **dict(zip(changed, chosen, strict=True))} for chosen in every]


def _length_in(changed: Mapping[str, Sequence[Any]]) -> Any:
    return lambda name: len(changed[name])


def _child(node: PathNode[Any], name: Any) -> PathNode[Any] | None:
    """What is wanted behind a name, in which dots stand for further names."""
    found = node.below.get(name)
    if found is not None or not isinstance(name, str) or "." not in name:
        return found
    for part in name.split("."):
        child = node.below.get(part)
        if child is None:
            return None
        node = child
    return node


def _of_list(node: PathNode[Any], value: Sequence[Any], where: Path) -> list[Any]:
    elements = list(flat(value))
    mappings = [one for one in elements if isinstance(one, Mapping)]
    if not mappings:
        return [value]
    rest = [one for one in elements if not isinstance(one, Mapping)]
    found: list[Any] = []
    for one in mappings:
        found += _of_mapping(node, one, where)
        _check_number(len(found), where)
    if len(found) == 1 and found[0] is mappings[0]:
        return [value]
    return [Chosen([*rest, one], value) for one in found]


def _check_number(count: int, where: Path) -> None:
    if count > MOST_CHOICES:
        raise EventError(
            f"filters can be satisfied by each element of the list {'.'.join(where)!r}, "
            f"and with other lists that makes more than {MOST_CHOICES:,} combinations"
        )


def mappings_in(values: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """The mappings among the elements of a list."""
    return (one for one in flat(values) if isinstance(one, Mapping))
