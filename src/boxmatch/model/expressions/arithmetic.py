"""Types of arithmetic: of numbers, and of timestamps and intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from boxmatch.model.expressions.calls import cast, check_count, make, ordered, wrong
from boxmatch.model.expressions.coercion import (
    NUMBERS,
    article,
    common_type,
    decimal_result,
    operand_decimal,
    rounded_decimal,
)
from boxmatch.model.expressions.nodes import (
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Call,
    ExpressionError,
    Literal,
    Node,
    Type,
)

_LIKE_INT: Final = frozenset(("int", "interval", "months"))


def arithmetic(function: str, arguments: Sequence[Node]) -> Node:
    """An operation on two numbers, or on times and intervals."""
    check_count(function, arguments, 2, 2)
    left, right = _from_strings(function, *arguments)
    names = left.type.name, right.type.name
    if not NUMBERS.issuperset(names):
        return _of_times(function, left, right)
    if function == "div" and "float" in names:
        raise wrong(function, "ints and decimals", left if names[0] == "float" else right)
    if "float" in names or (names == ("int", "int") and function == "/"):
        return ordered(function, [cast(left, FLOAT), cast(right, FLOAT)], FLOAT)
    if names == ("int", "int"):
        return ordered(function, [left, right], INT)
    types = operand_decimal(left), operand_decimal(right)
    result = INT if function == "div" else decimal_result(function, *types)
    return ordered(function, [cast(left, types[0]), cast(right, types[1])], result)


def unary(function: str, arguments: Sequence[Node]) -> Node:
    """Negation, absolute values and signs, also of intervals."""
    check_count(function, arguments, 1, 1)
    (one,) = (
        cast(node, FLOAT) if node.type.name in ("null", "string") else node for node in arguments
    )
    if one.type.name not in NUMBERS | _LIKE_INT:
        raise wrong(function, "a number", one)
    match function, one:
        case "neg", Call("neg", (inner,), _):
            return inner
    return make(function, (one,), FLOAT if function == "sign" else one.type)


def rounding(function: str, arguments: Sequence[Node]) -> Node:
    """ROUND, FLOOR or CEIL, which leave whole numbers as they are."""
    check_count(function, arguments, 1, 2 if function == "round" else 1)
    one = arguments[0]
    if one.type == NULL:
        one = cast(one, FLOAT)
    if one.type.name not in NUMBERS:
        raise wrong(function, "a number", one)
    digits = arguments[1] if len(arguments) == 2 else Literal(0, INT)
    if not isinstance(digits, Literal) or digits.type != INT or digits.value is None:
        raise ExpressionError("ROUND takes a number of digits that is a constant int")
    whole = one.type == INT or (one.type.name == "decimal" and one.type.scale == 0)
    if whole and (function != "round" or (one.type == INT and digits.value >= 0)):
        return one
    result = FLOAT if one.type == FLOAT and function == "round" else INT
    if one.type.name == "decimal":
        result = rounded_decimal(one.type, digits.value)
    return make(function, (one, digits) if function == "round" else (one,), result)


def _from_strings(function: str, left: Node, right: Node) -> tuple[Node, Node]:
    """Two operands of which a string or NULL has taken on the type that the other asks for."""
    types = {left.type.name, right.type.name}
    if types == {"null"}:
        return cast(left, INT), cast(right, INT)
    if types == {"string", "null"}:
        return cast(left, FLOAT), cast(right, FLOAT)
    for one, other in ((left, right), (right, left)):
        number = other.type.name in NUMBERS
        if one.type == NULL or (one.type == STRING and number):
            target = common_type((one.type, other.type)) if number else _null_type(function, other)
            return (cast(left, target), right) if one is left else (left, cast(right, target))
    return left, right


def _null_type(function: str, other: Node) -> Type:
    """The type of a NULL beside a time or an interval."""
    if other.type.name == "timestamp" and function == "+":
        return Type("interval")
    return INT if function == "*" else other.type


def _of_times(function: str, left: Node, right: Node) -> Node:
    """Sums of timestamps, intervals and months."""
    pair = [left, right]
    names = left.type.name, right.type.name
    if function in ("+", "-") and names[0] == names[1] and names[0] in ("interval", "months"):
        return ordered(function, pair, left.type)
    if function in ("+", "-") and names[0] == "timestamp" and names[1] in ("interval", "months"):
        return make(function, pair, TIMESTAMP)
    if function == "+" and names[1] == "timestamp" and names[0] in ("interval", "months"):
        return make(function, (right, left), TIMESTAMP)
    if function == "-" and names == ("timestamp", "timestamp"):
        return make(function, pair, Type("interval"))
    if function == "*" and "int" in names and not {"interval", "months"}.isdisjoint(names):
        whole, interval = pair if names[0] == "int" else (right, left)
        return make(function, (interval, whole), interval.type)
    raise ExpressionError(
        f"{function.upper()} does not go with {article(left.type)} and {article(right.type)}"
    )
