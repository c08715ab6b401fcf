"""The making of calls: arguments of the right number and type, constants folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from itertools import zip_longest

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.coercion import NUMBERS, article, can_cast, common_type
from boxmatch.model.expressions.nodes import (
    FLOAT,
    NULL,
    STRING,
    Call,
    Column,
    ExpressionError,
    Lambda,
    Literal,
    Node,
    Type,
    Variable,
    walk,
)


def cast(node: Node, target: Type) -> Node:
    """The expression with another type."""
    if node.type == target:
        return node
    if node.type == NULL and isinstance(node, Literal):
        return Literal(None, target)
    if target == NULL or not can_cast(node.type, target):
        raise ExpressionError(f"{article(node.type)} cannot be cast to {article(target)}")
    return make("cast", (node,), target)


def make(function: str, arguments: Sequence[Node], type: Type) -> Node:
    """A call whose arguments have their final types, or the constant that it is."""
    made = Call(function, tuple(arguments), type)
    # Imported where they are needed: most filters have no expressions.
    from boxmatch.model.expressions.scalar import compile_scalar
    from boxmatch.model.expressions.values import STRICT

    if not all(isinstance(one, Literal) for one in arguments):
        nothing = any(isinstance(one, Literal) and one.value is None for one in arguments)
        return Literal(None, type) if nothing and function in STRICT else made
    return Literal(compile_scalar(made)({}), type)


def ordered(function: str, arguments: list[Node], type: Type) -> Node:
    commutative = function in ("+", "*", "=", "<=>")
    return make(function, sorted(arguments, key=order) if commutative else arguments, type)


def _compare(one: Node, other: Node) -> int:
    for left, right in zip_longest(_tokens(one), _tokens(other), fillvalue=""):
        if left != right:
            return -1 if left < right else 1
    return 0


order = cmp_to_key(_compare)
"""The key that sorts operands: columns, then calls, then constants."""


def _tokens(node: Node) -> Iterator[str]:
    """Texts that are the same for equal trees only."""
    for one in walk(node):
        match one:
            case Column(name, _) | Variable(name, _):
                yield f"0 {name}"
            case Call(function, arguments, type):
                yield f"1 {function} {len(arguments)} {type}"
            case Lambda(variable, _):
                yield f"2 {variable.name}"
            case Literal(value, type):
                yield f"3 {type} {value!r}"


def check_count(function: str, arguments: Sequence[Node], least: int, most: int | None) -> None:
    given = len(arguments)
    if given < least or (most is not None and given > most):
        bound = (
            f"{least}" if least == most else f"{least} to {most}" if most else f"{least} or more"
        )
        noun = "argument" if bound == "1" else "arguments"
        raise ExpressionError(f"{function.upper()} takes {bound} {noun}, not {given}")


def wrong(function: str, wanted: str, node: Node) -> ExpressionError:
    given = "a lambda" if isinstance(node, Lambda) else article(node.type)
    return ExpressionError(f"{function.upper()} takes {wanted}, not {given}")


def type_of(function: str, node: Node) -> Type:
    if isinstance(node, Lambda):
        raise ExpressionError(f"{function.upper()} does not take a lambda")
    return node.type


def common(function: str, arguments: Sequence[Node]) -> list[Node]:
    target = common_type(type_of(function, one) for one in arguments)
    return [cast(one, target) for one in arguments]


def fitted(function: str, kind: str, argument: Node) -> Node:
    """The argument as one of this kind."""
    if isinstance(argument, Lambda):
        raise wrong(function, article(kind), argument)
    name = argument.type.name
    match kind:
        case "constant" | "zone" | "unit":
            return _constant(function, kind, argument)
        case "float":
            if name in NUMBERS or name == "null":
                return cast(argument, FLOAT)
            raise wrong(function, "a number", argument)
        case "list":
            if name == "list":
                return argument
            raise wrong(function, "a list", argument)
    target = Type(kind)  # type: ignore[arg-type]  # of the signatures above
    if name not in (kind, "null"):
        raise wrong(function, article(kind), argument)
    return cast(argument, target)


def _constant(function: str, kind: str, argument: Node) -> Node:
    if not isinstance(argument, Literal) or not isinstance(argument.value, str):
        what = {"zone": "the name of a time zone", "unit": "the name of a unit"}.get(
            kind, "a string"
        )
        raise ExpressionError(f"{function.upper()} takes {what} that is a constant")
    if kind == "zone":
        temporal.zone(argument.value)
    elif kind == "unit":
        unit = argument.value.upper()
        if unit not in temporal.UNITS:
            raise ExpressionError(
                f"{argument.value!r} is no unit of time: {', '.join(temporal.UNITS)}"
            )
        return Literal(unit, STRING)
    return argument
