"""The trees that expressions of CloudEvents SQL are read as."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SMALLEST: Final = -(2**31)
LARGEST: Final = 2**31 - 1
"""The ends of what is an Integer."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: str | bool | int


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of a context attribute."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether an event has an attribute."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Not:
    """NOT, also that of NOT LIKE and NOT IN."""

    operand: Node
    position: int


@dataclass(frozen=True, slots=True)
class Negate:
    """The sign `-` of something other than digits."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """A comparison, with `!=` for `<>`, or arithmetic."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """Two operands or more of one operator, which is associative."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE; its pattern is a literal."""

    operand: Node
    pattern: str


@dataclass(frozen=True, slots=True)
class In:
    """IN; there is one item at least."""

    operand: Node
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function, known or not, by its name in upper case."""

    name: str
    arguments: tuple[Node, ...]
    position: int


Node = Constant | Attribute | Exists | Not | Negate | Binary | Logic | Like | In | Call


def children(node: Node) -> tuple[Node, ...]:
    """What the value of a node is made of, in the order of evaluation."""
    match node:
        case Not(operand=operand) | Negate(operand) | Like(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Logic(operands=operands):
            return operands
        case In(operand, items):
            return (operand, *items)
        case Call(arguments=arguments):
            return arguments
        case _:
            return ()


def nodes(root: Node) -> Iterator[Node]:
    """A tree's nodes, each before its children, from left to right."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))


def like_segments(pattern: str) -> tuple[tuple[str, ...], ...]:
    r"""The text between the wildcards of a LIKE pattern: outside between `%`, inside between `_`.

    `a%b_c` is `(("a",), ("b", "c"))`. A backslash makes a wildcard plain; before anything else
    it is a backslash.
    """
    segments: list[tuple[str, ...]] = []
    pieces = [""]
    for piece in re.findall(r"\\[%_]|[%_]|[^%_\\]+|\\", pattern):
        if piece == "%":
            segments.append(tuple(pieces))
            pieces = [""]
        elif piece == "_":
            pieces.append("")
        else:
            pieces[-1] += piece[1:] if len(piece) == 2 and piece[1] in "%_" else piece
    return (*segments, tuple(pieces))
