"""The filter language of CloudEvents: CloudEvents SQL v1, `type = 'x' AND subject LIKE 'a%'`.

An event is a mapping of the names of context attributes to strings, bools and integers; null, a
list or a mapping is as no attribute. An event passes if the expression is the Boolean true for it
without any error: a missing attribute or a cast that fails is an error wherever it is evaluated,
also below NOT and OR.

Refused are also, with parse errors: functions that there are not, the name `data`, NOT of an
integer literal, and AND, OR and XOR side by side.
"""

from __future__ import annotations

from collections.abc import Callable

from boxmatch.errors import FilterError, UnsupportedFilterError, did_you_mean
from boxmatch.model.dialects.cesql_comparisons import comparison
from boxmatch.model.dialects.cesql_evaluation import (
    attributes,
    evaluate,
    evaluator,
    type_of_node,
)
from boxmatch.model.dialects.cesql_outcomes import (
    FAILURE,
    NONE,
    Outcome,
    Part,
    conjunction,
    constant,
    disjunction,
    every,
    exclusive,
    exists,
    field,
    negation,
    unknown,
)
from boxmatch.model.dialects.cesql_syntax import parse
from boxmatch.model.dialects.cesql_tree import (
    Attribute,
    Call,
    Constant,
    Exists,
    In,
    Logic,
    Node,
    Not,
    children,
    nodes,
)
from boxmatch.model.dialects.cesql_values import FUNCTIONS, find_function, to_boolean
from boxmatch.model.dialects.patterns import Equal, Translation


def translate(filter: object) -> Translation:
    """What an expression comes to. Raises `FilterError` for what is refused, with the place."""
    if not isinstance(filter, str):
        raise FilterError(f"a filter in CloudEvents SQL is a string, not {type(filter).__name__}")
    root = parse(filter)
    for node in nodes(root):
        _check(node, filter)
    part = _true(root)
    if part.exact:
        return Translation(part.pattern)
    names = attributes(root)
    return Translation(part.pattern, _wants(root, names), tuple((name,) for name in names))


def _wants(root: Node, names: tuple[str, ...]) -> Callable[..., bool]:
    evaluated = evaluator(root, names)

    def wants(*values: object) -> bool:
        value, errors = evaluated(values)
        return value is True and not errors

    return wants


def _check(node: Node, text: str) -> None:
    """Refuse what could be evaluated, but has hardly been meant, or is understood differently."""
    match node:
        case Attribute("data", position) | Exists("data", position):
            reason = "CloudEvents SQL has no access to the data of an event, only to attributes"
            raise UnsupportedFilterError(reason, text, position)
        case Not(Constant(value), position) if type(value) is int:
            reason = "whether an integer literal can be negated by NOT is understood differently"
            raise UnsupportedFilterError(reason, text, position)
        case Call(name, arguments, position) if find_function(name, len(arguments)) is None:
            if name in FUNCTIONS:
                reason = f"{name} takes another number of arguments than {len(arguments)}"
            else:
                reason = f"there is no function {name}{did_you_mean(name, FUNCTIONS)}"
            raise UnsupportedFilterError(reason, text, position)


def _true(root: Node) -> Part:
    """The events that pass. Here, other than below AND or NOT, nothing is cast to a Boolean."""
    if isinstance(root, Attribute):
        return Part(field(root.name, Equal(True)))
    return _true_operand(root) if type_of_node(root) == "Boolean" else NONE


def _true_operand(node: Node) -> Part:
    """The events of which an expression is true, as a Boolean."""
    if isinstance(node, Logic) and node.operator == "AND":
        return every(map(_true_operand, node.operands))
    return _outcome(node).true


def _outcome(node: Node) -> Outcome:
    if not attributes(node):
        return _outcome_of_constant(node)
    match node:
        case Exists(name):
            return exists(name)
        case Not(operand):
            return negation(_outcome(operand))
        case Logic(operator, operands):
            return _LOGIC[operator]([_outcome(operand) for operand in operands])
        case _:
            return comparison(node) or unknown(_evaluated(node))


_LOGIC = {"AND": conjunction, "OR": disjunction, "XOR": exclusive}


def _outcome_of_constant(node: Node) -> Outcome:
    value, errors = evaluate(node, {})
    if not errors:
        value, errors = to_boolean(value)
    return FAILURE if errors else constant(bool(value))


def _evaluated(node: Node) -> dict[str, None]:
    """The names of the attributes that are evaluated for every event."""
    match node:
        case Attribute(name):
            return {name: None}
        case In(operand, items):
            certain: tuple[Node, ...] = (operand, items[0])
        case Logic("AND" | "OR", operands):
            certain = operands[:1]
        case _:
            certain = children(node)
    return {name: None for one in certain for name in _evaluated(one)}
