"""Expressions of CloudEvents SQL as functions of the values of an event's attributes.

Nothing is raised: an operator or function one of whose operands has errors has the same errors, and
the zero value of its type. Beside those of AND and OR, the items of IN after the first equal one
are not evaluated; the specification says nothing of these, and the SDKs do it so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from boxmatch.model.dialects.cesql_tree import (
    Attribute,
    Binary,
    Call,
    Constant,
    Exists,
    In,
    Like,
    Logic,
    Negate,
    Node,
    Not,
    nodes,
)
from boxmatch.model.dialects.cesql_values import (
    ARITHMETIC,
    BINARY,
    ZERO,
    Result,
    Type,
    Value,
    attribute_value,
    cast,
    failed,
    find_function,
    inverse,
    like_regex,
    negate,
    to_boolean,
    to_integer,
    to_string,
    type_of,
)

Evaluator = Callable[[Sequence[object]], Result]
"""Takes the values of attributes, None for one that is missing."""

_MISSING = failed(False, "missingAttribute")
_TRUE = Result(True)
_FALSE = Result(False)


def evaluate(node: Node, event: Mapping[str, object]) -> Result:
    """The value of an expression for one event, with the errors on the way."""
    names = attributes(node)
    return evaluator(node, names)([event.get(name) for name in names])


def attributes(node: Node) -> tuple[str, ...]:
    """The names of the attributes in an expression, in the order in which they occur."""
    found = (one.name for one in nodes(node) if isinstance(one, Attribute | Exists))
    return tuple(dict.fromkeys(found))


def evaluator(node: Node, names: Sequence[str]) -> Evaluator:
    """An expression as a function of the values of these attributes."""
    return _compile(node, {name: slot for slot, name in enumerate(names)})


def type_of_node(node: Node) -> Type | None:
    """The type of an expression without errors; None where it depends on the event."""
    match node:
        case Attribute():
            return None
        case Constant(value):
            return type_of(value)
        case Call(name, arguments):
            function = find_function(name, len(arguments))
            return function.returns if function else "Boolean"
        case Negate() | Binary(operator="+" | "-" | "*" | "/" | "%"):
            return "Integer"
        case _:
            return "Boolean"


def _compile(node: Node, slots: Mapping[str, int]) -> Evaluator:
    match node:
        case Constant(value):
            return _always(Result(value))
        case Attribute(name):
            return _attribute(slots[name])
        case Exists(name):
            return _exists(slots[name])
        case Not(operand=Constant(value)) if type(value) is int:
            # So it is in the conformance cases, although an Integer can be cast to a Boolean
            # everywhere else: `NOT INT('10')` is false.
            return _always(failed(True, "cast"))
        case Not(operand=operand):
            return _strict(inverse, "Boolean", _compile(operand, slots))
        case Negate(operand):
            return _strict(negate, "Integer", _compile(operand, slots))
        case Binary(operator, left, right):
            returns: Type = "Integer" if operator in ARITHMETIC else "Boolean"
            operands = _compile(left, slots), _compile(right, slots)
            return _strict(BINARY[operator], returns, *operands)
        case Like(operand, pattern):
            matches = like_regex(pattern).fullmatch
            like = _compile(operand, slots)
            return _strict(lambda x: Result(bool(matches(to_string(x)))), "Boolean", like)
        case In(operand, items):
            return _among(_compile(operand, slots), [_compile(item, slots) for item in items])
        case Logic(operator, parts):
            return _LOGIC[operator]([_boolean(_compile(part, slots)) for part in parts])
        case Call():
            return _call(node, [_compile(argument, slots) for argument in node.arguments])


def _always(result: Result) -> Evaluator:
    return lambda values: result


def _attribute(slot: int) -> Evaluator:
    def attribute(values: Sequence[object]) -> Result:
        value = attribute_value(values[slot])
        return _MISSING if value is None else Result(value)

    return attribute


def _exists(slot: int) -> Evaluator:
    return lambda values: _FALSE if attribute_value(values[slot]) is None else _TRUE


def _strict(function: Callable[..., Result], returns: Type, *operands: Evaluator) -> Evaluator:
    """A function of operands that are all evaluated, unless one of them has errors."""
    zero = ZERO[returns]

    def strict(values: Sequence[object]) -> Result:
        results = [operand(values) for operand in operands]
        errors = frozenset[str]().union(*(result.errors for result in results))
        if errors:
            return Result(zero, errors)  # type: ignore[arg-type]
        return function(*(result.value for result in results))

    return strict


def _boolean(operand: Evaluator) -> Evaluator:
    """An operand of AND, OR or XOR, which is false if it has errors."""

    def boolean(values: Sequence[object]) -> Result:
        value, errors = operand(values)
        return Result(False, errors) if errors else to_boolean(value)

    return boolean


def _conjunction(operands: Sequence[Evaluator]) -> Evaluator:
    def conjunction(values: Sequence[object]) -> Result:
        for operand in operands:
            result = operand(values)
            if not result.value:
                return result
        return _TRUE

    return conjunction


def _disjunction(operands: Sequence[Evaluator]) -> Evaluator:
    def disjunction(values: Sequence[object]) -> Result:
        result = _FALSE
        for operand in operands:
            value, errors = operand(values)
            result = Result(False, result.errors | errors)
            if value:
                return result if result.errors else _TRUE
        return result

    return disjunction


def _exclusive(operands: Sequence[Evaluator]) -> Evaluator:
    def odd(*operands: Value) -> Result:
        return Result(sum(map(bool, operands)) % 2 == 1)

    return _strict(odd, "Boolean", *operands)


_LOGIC = {"AND": _conjunction, "OR": _disjunction, "XOR": _exclusive}


def _among(operand: Evaluator, items: Sequence[Evaluator]) -> Evaluator:
    def among(values: Sequence[object]) -> Result:
        wanted, errors = operand(values)
        if errors:
            return Result(False, errors)
        target = type_of(wanted)
        for item in items:
            value, new = item(values)
            value, new = Result(value, new) if new else cast(value, target)
            errors |= new
            if not new and value == wanted:
                break
        else:
            return Result(False, errors)
        return Result(not errors, errors)

    return among


def _call(call: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    function = find_function(call.name, len(arguments))
    if function is None:
        return _always(failed(False, "missingFunction"))
    types = [*function.parameters, *["String"] * (len(arguments) - len(function.parameters))]
    return _strict(
        function.body,
        function.returns,
        *(_argument(*pair) for pair in zip(arguments, types, strict=True)),
    )


def _argument(argument: Evaluator, wanted: str | None) -> Evaluator:
    if wanted is None:
        return argument
    to_type = to_integer if wanted == "Integer" else lambda value: Result(to_string(value))

    def as_wanted(values: Sequence[object]) -> Result:
        result = argument(values)
        return result if result.errors else to_type(result.value)

    return as_wanted
