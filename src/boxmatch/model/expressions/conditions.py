"""Types of comparisons, of logic, and of functions that choose among their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.expressions.calls import (
    cast,
    check_count,
    common,
    fitted,
    make,
    order,
    ordered,
    type_of,
)
from boxmatch.model.expressions.casts import EXACT, cast_function
from boxmatch.model.expressions.coercion import ORDERED, article, common_type, operand_decimal
from boxmatch.model.expressions.nodes import (
    BOOL,
    NULL,
    Call,
    ExpressionError,
    Literal,
    Node,
    Type,
)

TRUE: Final = Literal(True, BOOL)
FALSE: Final = Literal(False, BOOL)


def comparison(function: str, arguments: Sequence[Node]) -> Node:
    """A comparison of two values by =, < or <=, or the opposite of one."""
    check_count(function, arguments, 2, 2)
    if function in (">", ">="):
        return comparison("<" if function == ">" else "<=", arguments[::-1])
    if function == "<>":
        return negation("not", (comparison("=", arguments),))
    left, right = _comparable(function, arguments)
    return ordered(function, [left, right], BOOL)


def negation(function: str, arguments: Sequence[Node]) -> Node:
    """NOT, which a comparison takes in."""
    check_count(function, arguments, 1, 1)
    condition = fitted(function, "bool", arguments[0])
    match condition:
        case Call("not", (inner,), _):
            return inner
        case Call("<", (left, right), _):
            return comparison("<=", (right, left))
        case Call("<=", (left, right), _):
            return comparison("<", (right, left))
    return make(function, (condition,), BOOL)


def connective(function: str, arguments: Sequence[Node]) -> Node:
    """AND or OR, flat and without repetitions, of which a constant may decide."""
    check_count(function, arguments, 1, None)
    neutral, decisive = (TRUE, FALSE) if function == "and" else (FALSE, TRUE)
    flat: dict[Node, None] = {}
    for one in arguments:
        term = fitted(function, "bool", one)
        inner = term.arguments if isinstance(term, Call) and term.function == function else ()
        flat.update(dict.fromkeys(inner or (term,)))
    flat.pop(neutral, None)
    if decisive in flat or not flat:
        return decisive if flat else neutral
    return next(iter(flat)) if len(flat) == 1 else make(function, sorted(flat, key=order), BOOL)


def is_null(function: str, arguments: Sequence[Node]) -> Node:
    """IS NULL."""
    check_count(function, arguments, 1, 1)
    type_of(function, arguments[0])
    return make(function, arguments, BOOL)


def is_false(_function: str, arguments: Sequence[Node]) -> Node:
    """IS FALSE: IS TRUE of the opposite."""
    return make("is_true", (negation("not", arguments),), BOOL)


def membership(function: str, arguments: Sequence[Node]) -> Node:
    """A set of literals without order or repetition; other values are compared one by one."""
    check_count(function, arguments, 2, None)
    one, *values = _comparable(function, arguments)
    constants = sorted({v for v in values if isinstance(v, Literal)}, key=_null_last)
    others = [comparison("=", (one, v)) for v in values if not isinstance(v, Literal)]
    if len(constants) == 1:
        others.append(comparison("=", (one, constants[0])))
    elif constants:
        others.append(make(function, (one, *constants), BOOL))
    return connective("or", others)


def _null_last(node: Literal) -> tuple[bool, Any]:
    return node.value is None, order(node)


def case(function: str, arguments: Sequence[Node]) -> Node:
    """CASE, without the arms that are never chosen."""
    check_count(function, arguments, 3, None)
    if len(arguments) % 2 == 0:
        raise ExpressionError("CASE takes pairs of a condition and a value, and a value at the end")
    conditions = [fitted("case", "bool", one) for one in arguments[:-1:2]]
    *values, otherwise = common("case", [*arguments[1::2], arguments[-1]])
    arms: list[Node] = []
    for condition, value in zip(conditions, values, strict=True):
        if condition == TRUE:
            otherwise = value
            break
        if not isinstance(condition, Literal):
            arms += [condition, value]
    return make("case", (*arms, otherwise), otherwise.type) if arms else otherwise


def if_else(function: str, arguments: Sequence[Node]) -> Node:
    """IF, which is a CASE."""
    check_count(function, arguments, 3, 3)
    return case(function, arguments)


def nullif(function: str, arguments: Sequence[Node]) -> Node:
    """NULLIF, which is a CASE."""
    check_count(function, arguments, 2, 2)
    one = arguments[0]
    return case("case", (comparison("=", arguments), Literal(None, NULL), one))


def coalesce(function: str, arguments: Sequence[Node]) -> Node:
    """Up to the first constant, without NULLs and repetitions."""
    check_count(function, arguments, 1, None)
    kept: dict[Node, None] = {}
    values = common(function, arguments)
    for one in values:
        if one in kept or (isinstance(one, Literal) and one.value is None):
            continue
        kept[one] = None
        if isinstance(one, Literal):
            break
    if len(kept) < 2:
        return next(iter(kept), values[0])
    return make(function, list(kept), values[0].type)


def extreme(function: str, arguments: Sequence[Node]) -> Node:
    """GREATEST or LEAST, which skip NULLs."""
    check_count(function, arguments, 2, None)
    values = common(function, arguments)
    type = values[0].type
    if type.name not in ORDERED | {"null"}:
        raise ExpressionError(f"{function.upper()} cannot compare {article(type)}")
    different = sorted(set(values), key=order)
    return different[0] if len(different) == 1 else make(function, different, type)


def _comparable(function: str, arguments: Sequence[Node]) -> list[Node]:
    """Operands of one type, or decimals of several, which are compared exactly."""
    target = common_type(type_of(function, one) for one in arguments)
    if target == NULL:
        target = BOOL
    if target.name not in ORDERED:
        raise ExpressionError(f"{function.upper()} cannot compare {article(target)}")
    if target.name != "decimal":
        return [cast(one, target) for one in arguments]
    decimals = [
        cast(one, target if one.type == NULL else operand_decimal(one)) for one in arguments
    ]
    return _like_column(decimals)


def _like_column(decimals: list[Node]) -> list[Node]:
    """With literals of the type of what they are compared with, where that can hold them."""
    column = next((one for one in decimals if not isinstance(one, Literal)), None)
    if column is None:
        return decimals
    return [_retyped(one, column.type) if isinstance(one, Literal) else one for one in decimals]


def _retyped(one: Literal, type: Type) -> Literal:
    if one.value is None:
        return Literal(None, type)
    value = cast_function(one.type, type)(one.value)
    if value is not None and value == one.value:
        return Literal(value, type)
    digits = EXACT.normalize(one.value)
    scale = max(0, -int(digits.as_tuple().exponent))
    type = Type("decimal", max(one.value.adjusted() + 1, 1) + scale, scale)
    if type.precision > MAX_PRECISION:
        return one
    return Literal(cast_function(one.type, type)(one.value), type)
