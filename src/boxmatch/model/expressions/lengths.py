"""How long texts can get: CONCAT and REPLACE, in each other, could take all memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from boxmatch.model.expressions.nodes import Call, ExpressionError, Literal, Node

_MOST_TIMES: Final = 500
_MOST_MORE: Final = 100_000
_OTHERS: Final = 64
"""Characters of a number or a time."""


class _Length(NamedTuple):
    """So many times the longest text of an event, and so many characters more."""

    times: int
    more: int


def check_length(function: str, arguments: Sequence[Node]) -> None:
    """`ExpressionError` if a call of CONCAT or REPLACE may make a text too long.

    Before it is made, since constants are folded then.
    """
    if function == "concat":
        length = _joined(arguments)
    elif function == "replace" and len(arguments) == 3:
        if not isinstance(arguments[2], Literal):
            raise ExpressionError("REPLACE by a text that is not constant is not supported")
        length = _replaced(*arguments)
    else:
        return
    if length.times > _MOST_TIMES or length.more > _MOST_MORE:
        raise ExpressionError(
            f"the text could get too long; at most {_MOST_TIMES} times as long as a text of the "
            f"event, and {_MOST_MORE:,} characters longer, is possible"
        )


def _length(node: Node) -> _Length:
    match node:
        case Literal(value):
            return _Length(0, len(value) if isinstance(value, str) else _OTHERS)
        case Call("concat", parts):
            return _joined(parts)
        case Call("replace", (text, old, new)):
            return _replaced(text, old, new)
        case Call(_, parts):
            return _Length(*map(max, zip((0, _OTHERS), *map(_length, parts), strict=True)))
        case _:
            return _Length(1, 0)


def _joined(parts: Sequence[Node]) -> _Length:
    return _Length(*map(sum, zip((0, 0), *map(_length, parts), strict=True)))


def _replaced(text: Node, old: Node, new: Node) -> _Length:
    times, more = _length(text)
    growth = max(-(-_constant_length(new) // max(_constant_length(old), 1)), 1)
    return _Length(times * growth, more * growth)


def _constant_length(node: Node) -> int:
    return len(node.value) if isinstance(node, Literal) and isinstance(node.value, str) else 0
