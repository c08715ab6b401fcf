"""Calls of functions: their types by the rules of Spark SQL, in one spelling of many.

`call` brings operands to a common type, folds what is constant, and writes what is equal in one
way: operands of commutative functions in one order, `a > b` as `b < a`, `a <> b` as `NOT a = b`,
IF and NULLIF as CASE, LIKE 'x%' as STARTS_WITH. So evaluators know fewer functions than filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from boxmatch.model.expressions import arithmetic, conditions, temporal
from boxmatch.model.expressions.calls import (
    cast,
    check_count,
    common,
    fitted,
    make,
    order,
    type_of,
    wrong,
)
from boxmatch.model.expressions.coercion import ORDERED, article, common_type
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Call,
    ExpressionError,
    Lambda,
    Literal,
    Node,
    Type,
)
from boxmatch.model.expressions.patterns import compile_regex, like_to_regex, split_like

# The types of arguments, with "?" after those that may be left out, and of the result.
_SIGNATURES: Final[dict[str, tuple[str, Type]]] = {
    "is_true": ("bool", BOOL),
    "sqrt": ("float", FLOAT),
    "power": ("float float", FLOAT),
    "lower": ("string", STRING),
    "upper": ("string", STRING),
    "trim": ("string string?", STRING),
    "ltrim": ("string string?", STRING),
    "rtrim": ("string string?", STRING),
    "length": ("string", INT),
    "substring": ("string int int?", STRING),
    "right": ("string int", STRING),
    "reverse": ("string", STRING),
    "replace": ("string string string", STRING),
    "position": ("string string", INT),
    "starts_with": ("string string", BOOL),
    "ends_with": ("string string", BOOL),
    "contains": ("string string", BOOL),
    "like": ("string string constant?", BOOL),
    "rlike": ("string constant", BOOL),
    **dict.fromkeys(temporal.PARTS, ("timestamp zone?", INT)),
    "date_trunc": ("unit timestamp zone?", TIMESTAMP),
    "cardinality": ("list", INT),
}


def call(function: str, *arguments: Node, type: Type | None = None) -> Node:
    """The expression that a function makes of its arguments; `type` is the target of a cast.

    AND and OR take any number of arguments; give them all at once, since each call sorts them.
    Raises `ExpressionError` with the reason if there is no such function of such arguments.
    """
    if function == "cast":
        check_count(function, arguments, 1, 1)
        return cast(arguments[0], NULL if type is None else type)
    resolve = _RESOLVERS.get(function)
    if resolve is not None:
        return resolve(function, arguments)
    if function not in _SIGNATURES:
        raise ExpressionError(f"there is no function {function.upper()}")
    return _by_signature(function, arguments)


def _by_signature(function: str, arguments: Sequence[Node]) -> Node:
    kinds, result = _SIGNATURES[function]
    wanted = kinds.split()
    check_count(function, arguments, sum(not kind.endswith("?") for kind in wanted), len(wanted))
    typed = [
        fitted(function, kind.removesuffix("?"), argument)
        for kind, argument in zip(wanted, arguments, strict=False)
    ]
    rewrite = _REWRITES.get(function)
    rewritten = None if rewrite is None else rewrite(typed)
    return make(function, typed, result) if rewritten is None else rewritten


def _without_utc(arguments: list[Node]) -> None:
    """Drops the zone that is meant where there is none."""
    if isinstance(arguments[-1], Literal) and arguments[-1].value in ("UTC", "Z"):
        arguments.pop()


def _simple_like(arguments: list[Node]) -> Node | None:
    """A comparison, or a function of one literal, that does the same as a LIKE."""
    text, pattern = arguments[:2]
    escape = "\\"
    if len(arguments) == 3:
        assert isinstance(arguments[2], Literal)  # as its signature says
        escape = arguments[2].value
        if len(escape) != 1:
            raise ExpressionError(f"LIKE takes one escape character, not {escape!r}")
        if escape == "\\":
            arguments.pop()
    if not isinstance(pattern, Literal):
        return None
    if pattern.value is None:
        return Literal(None, BOOL)
    parts = split_like(pattern.value, escape)
    if parts.is_exact:
        return call("=", text, Literal(parts.prefix, STRING))
    if not parts.has_underscore:
        match parts.prefix, parts.middle, parts.suffix:
            case start, (), "":
                return call("starts_with", text, Literal(start, STRING))
            case "", (), end:
                return call("ends_with", text, Literal(end, STRING))
            case "", (part,), "":
                return call("contains", text, Literal(part, STRING))
    compile_regex(like_to_regex(pattern.value, escape))
    return None


def _check_rlike(arguments: list[Node]) -> None:
    assert isinstance(arguments[1], Literal)  # as its signature says
    compile_regex(arguments[1].value)


_REWRITES: Final[dict[str, Callable[[list[Node]], Node | None]]] = {
    **dict.fromkeys((*temporal.PARTS, "date_trunc"), _without_utc),
    "like": _simple_like,
    "rlike": _check_rlike,
}


def _concat(function: str, arguments: Sequence[Node]) -> Node:
    """Without empty texts or a concatenation inside; literals side by side are one."""
    check_count(function, arguments, 1, None)
    flat: list[Node] = []
    for one in arguments:
        if type_of(function, one).name in ("interval", "months", "list", "struct"):
            raise wrong(function, "strings", one)
        text = cast(one, STRING)
        nested = isinstance(text, Call) and text.function == function
        for part in text.arguments if nested and isinstance(text, Call) else (text,):
            last = flat[-1] if flat else None
            if isinstance(part, Literal) and part.value is None:
                return part
            if isinstance(part, Literal) and isinstance(last, Literal):
                flat[-1] = Literal(last.value + part.value, STRING)
            elif part != Literal("", STRING):
                flat.append(part)
    if len(flat) < 2:
        return flat[0] if flat else Literal("", STRING)
    return make(function, flat, STRING)


def _left(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    text, length = arguments
    return call("substring", fitted(function, "string", text), Literal(1, INT), length)


def _element_type(function: str, node: Node) -> Type:
    if node.type.name != "list" or node.type.element is None:
        raise wrong(function, "a list", node)
    return node.type.element


def _array(function: str, arguments: Sequence[Node]) -> Node:
    values = common(function, arguments)
    element = values[0].type if values else NULL
    return make(function, values, Type("list", element=element))


def _array_contains(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    values, one = arguments
    target = common_type((_element_type(function, values), type_of(function, one)))
    return make(function, (cast(values, Type("list", element=target)), cast(one, target)), BOOL)


def _overlap(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    for one in arguments:
        if _element_type(function, one).name not in ORDERED | {"null"}:
            raise ExpressionError(f"ARRAYS_OVERLAP cannot compare {article(one.type)}")
    return make(function, sorted(common(function, arguments), key=order), BOOL)


def _element_at(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    values, position = arguments
    element = _element_type(function, values)
    return make(function, (values, fitted(function, "int", position)), element)


def _of_elements(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    values, condition = arguments
    element = _element_type(function, values)
    if not isinstance(condition, Lambda):
        raise wrong(function, "a lambda", condition)
    if condition.variable.type != element:
        raise ExpressionError(
            f"{function.upper()} has elements of type {element}, not {condition.variable.type}"
        )
    if condition.type not in (BOOL, NULL):
        raise wrong(function, "a condition", condition.body)
    return make(function, (values, Lambda(condition.variable, cast(condition.body, BOOL))), BOOL)


def _field(function: str, arguments: Sequence[Node]) -> Node:
    check_count(function, arguments, 2, 2)
    struct, name = arguments
    if struct.type.name != "struct":
        raise ExpressionError(f"{article(struct.type)} has no fields")
    fields = dict(struct.type.fields)
    if not isinstance(name, Literal) or name.value not in fields:
        wanted = name.value if isinstance(name, Literal) else "…"
        raise ExpressionError(f"there is no field {wanted!r}; there are {', '.join(fields)}")
    return make(function, arguments, fields[name.value])


_RESOLVERS: Final[dict[str, Callable[[str, Sequence[Node]], Node]]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), arithmetic.arithmetic),
    **dict.fromkeys(("neg", "abs", "sign"), arithmetic.unary),
    **dict.fromkeys(("round", "floor", "ceil"), arithmetic.rounding),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), conditions.comparison),
    **dict.fromkeys(("and", "or"), conditions.connective),
    **dict.fromkeys(("greatest", "least"), conditions.extreme),
    **dict.fromkeys(("exists", "forall"), _of_elements),
    "not": conditions.negation,
    "is_null": conditions.is_null,
    "is_false": conditions.is_false,
    "in": conditions.membership,
    "case": conditions.case,
    "if": conditions.if_else,
    "coalesce": conditions.coalesce,
    "nullif": conditions.nullif,
    "left": _left,
    "concat": _concat,
    "array": _array,
    "array_contains": _array_contains,
    "arrays_overlap": _overlap,
    "element_at": _element_at,
    "field": _field,
}

FUNCTIONS: Final = frozenset(_RESOLVERS) | frozenset(_SIGNATURES) | {"cast"}
"""The names that `call` knows."""
