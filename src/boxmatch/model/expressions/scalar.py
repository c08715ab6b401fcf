"""Expressions of one event: a tree becomes a tree of closures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from boxmatch.model.expressions.documents import (
    DOCUMENT_FUNCTIONS,
    cast_value,
    document_function,
    wanted_function,
)
from boxmatch.model.expressions.nodes import (
    JSON,
    Call,
    Column,
    Lambda,
    Literal,
    Node,
    Variable,
    columns_of,
    walk,
)
from boxmatch.model.expressions.values import value_function

Evaluator = Callable[[Mapping[Any, Any]], Any]


def compile_scalar(node: Node) -> Evaluator:
    """The function from an event, as a mapping of names to values, to the expression's value.

    Values have the forms that `nodes` lists. A name that the mapping lacks is NULL. The function
    may be called from several threads.
    """
    match node:
        case Column(name, _):
            return lambda event: event.get(name)
        case Literal(value, _):
            return lambda _: value
        case Variable():
            # No column has such a name, so that a variable may have that of a column.
            key = (node.name,)
            return lambda event: event[key]
        case Lambda():
            raise TypeError("a lambda has a value only as the argument of a function of lists")
        case Call(function, arguments, _):
            maker = _MAKERS.get(function)
            if maker is not None:
                return maker(node)
            return _strict(value_function(node), [compile_scalar(one) for one in arguments])


def _strict(function: Callable[..., Any], arguments: list[Evaluator]) -> Evaluator:
    if len(arguments) == 1:
        (only,) = arguments

        def unary(event: Mapping[Any, Any]) -> Any:
            value = only(event)
            return None if value is None else function(value)

        return unary
    if len(arguments) == 2:
        left, right = arguments

        def binary(event: Mapping[Any, Any]) -> Any:
            one = left(event)
            if one is None:
                return None
            other = right(event)
            return None if other is None else function(one, other)

        return binary

    def run(event: Mapping[Any, Any]) -> Any:
        values = [argument(event) for argument in arguments]
        return None if None in values else function(*values)

    return run


def _evaluators(call: Call) -> list[Evaluator]:
    return [compile_scalar(argument) for argument in call.arguments]


def _connective(call: Call, decides: bool) -> Evaluator:
    """AND, which one FALSE decides, or OR, which one TRUE does."""
    arguments = _evaluators(call)

    def run(event: Mapping[Any, Any]) -> bool | None:
        unknown = False
        for argument in arguments:
            value: bool | None = argument(event)
            if value is decides:
                return decides
            if value is None:
                unknown = True
        return None if unknown else not decides

    return run


def _same(call: Call) -> Evaluator:
    left, right = _evaluators(call)

    def run(event: Mapping[Any, Any]) -> bool:
        return bool(left(event) == right(event))  # None is equal to itself only

    return run


def _is_null(call: Call) -> Evaluator:
    (argument,) = _evaluators(call)
    return lambda event: argument(event) is None


def _is_true(call: Call) -> Evaluator:
    (argument,) = _evaluators(call)
    return lambda event: argument(event) is True


def _in(call: Call) -> Evaluator:
    """One of literals, of which the last may be NULL."""
    argument = compile_scalar(call.arguments[0])
    values = frozenset(one.value for one in call.arguments[1:] if isinstance(one, Literal))
    otherwise = None if None in values else False

    def run(event: Mapping[Any, Any]) -> bool | None:
        value = argument(event)
        if value is None:
            return None
        return True if value in values else otherwise

    return run


def _case(call: Call) -> Evaluator:
    *arms, otherwise = _evaluators(call)
    pairs = list(zip(arms[::2], arms[1::2], strict=True))

    def run(event: Mapping[Any, Any]) -> Any:
        for condition, value in pairs:
            if condition(event):
                return value(event)
        return otherwise(event)

    return run


def _coalesce(call: Call) -> Evaluator:
    arguments = _evaluators(call)

    def run(event: Mapping[Any, Any]) -> Any:
        for argument in arguments:
            value = argument(event)
            if value is not None:
                return value
        return None

    return run


def _extreme(call: Call, pick: Callable[..., Any]) -> Evaluator:
    arguments = _evaluators(call)

    def run(event: Mapping[Any, Any]) -> Any:
        values = (argument(event) for argument in arguments)
        return pick((value for value in values if value is not None), default=None)

    return run


def _array(call: Call) -> Evaluator:
    arguments = _evaluators(call)
    return lambda event: [argument(event) for argument in arguments]


def _any_element(call: Call, decides: bool) -> Evaluator:
    """EXISTS, which one TRUE decides, or FORALL, which one FALSE does."""
    elements, function = call.arguments
    assert isinstance(function, Lambda)  # `functions.call` has checked it
    values, body = compile_scalar(elements), compile_scalar(function.body)
    key = (function.variable.name,)
    # Values of an event are made when they are read, so no others are.
    read: list[Any] = [*columns_of(function.body)]
    read += {(one.name,) for one in walk(function.body) if isinstance(one, Variable)} - {key}

    def run(event: Mapping[Any, Any]) -> bool | None:
        found = values(event)
        if found is None:
            return None
        scope = {name: event.get(name) for name in read}
        unknown = False
        for scope[key] in found:  # each element is what the variable stands for
            value: bool | None = body(scope)
            if value is decides:
                return decides
            if value is None:
                unknown = True
        return None if unknown else not decides

    return run


def _of_document(call: Call) -> Evaluator:
    argument = compile_scalar(call.arguments[0])
    function = document_function(call)
    missing = True if call.function == "is_missing" else None

    def run(event: Mapping[Any, Any]) -> Any:
        document = argument(event)
        return missing if document is None else function(document)

    return run


def _wanted(call: Call) -> Evaluator:
    columns = [compile_scalar(one) for one in call.arguments[3:]]
    function = wanted_function(call)
    return lambda event: function([column(event) for column in columns])


def _cast(call: Call) -> Evaluator:
    (argument,) = call.arguments
    function = cast_value(call.type) if argument.type == JSON else value_function(call)
    return _strict(function, [compile_scalar(argument)])


_MAKERS: Final[dict[str, Callable[[Call], Evaluator]]] = {
    "and": lambda call: _connective(call, False),
    "or": lambda call: _connective(call, True),
    "<=>": _same,
    "is_null": _is_null,
    "is_true": _is_true,
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
    "greatest": lambda call: _extreme(call, max),
    "least": lambda call: _extreme(call, min),
    "array": _array,
    "cast": _cast,
    "wanted": _wanted,
    **dict.fromkeys(DOCUMENT_FUNCTIONS, _of_document),
    "exists": lambda call: _any_element(call, True),
    "forall": lambda call: _any_element(call, False),
}
