"""What a comparison of one attribute with a constant says of the attribute's value.

An attribute is a String, an Integer or a Boolean, as the event has it, and comparisons cast. So
`a = '5'` holds of the integer, too. What `true` and `false` come to is found by evaluation. The
Strings that are cast to a given Integer, `5`, `+5`, `05` and so on, are only narrowed down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

from boxmatch.model.dialects.cesql_evaluation import attributes, evaluate, evaluator
from boxmatch.model.dialects.cesql_outcomes import (
    FAILURE,
    NONE,
    NULL,
    Outcome,
    Part,
    field,
    negation,
    present,
)
from boxmatch.model.dialects.cesql_tree import (
    LARGEST,
    SMALLEST,
    Attribute,
    Binary,
    Call,
    Constant,
    In,
    Like,
    Node,
    like_segments,
)
from boxmatch.model.dialects.cesql_values import Value, to_number, to_string
from boxmatch.model.dialects.patterns import (
    AllTests,
    AnyTest,
    Equal,
    EqualFold,
    OfKind,
    Other,
    Prefix,
    Range,
    Suffix,
    Test,
    Wildcard,
)

STRING: Final = OfKind("string")
NUMBER: Final = OfKind("number")

_MAYBE_INTEGER: Final = Range("+", ":", high_open=True)
"""The strings that begin with a sign or a digit, and a few others."""

_BOOLEANS: Final = (Equal(True), Equal(False))
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!="}


def comparison(node: Node) -> Outcome | None:
    """The outcome of an expression that compares one attribute; None if it is anything else."""
    match node:
        case Attribute(name) | Call("BOOL", (Attribute(name),)):
            return _by_boolean(node, name, True)
        case Like(Attribute(name), pattern):
            return _by_like(node, name, pattern)
        case In(Attribute(name), items):
            constants = [constant_value(item) for item in items]
            known = [value for value in constants if value is not None]
            return _by_member(node, name, known) if len(known) == len(items) else None
        case Binary("!=", left, right):
            opposite = comparison(Binary("=", left, right))
            return opposite and negation(opposite)
        case Binary(operator, left, right) if operator == "=" or operator in _MIRRORED:
            return _of_operands(node, left, right)
        case _:
            return None


def constant_value(node: Node) -> Value | None:
    """The value of an expression without attributes; None if it has some, or errors."""
    if isinstance(node, Constant):
        return node.value
    if attributes(node):
        return None
    result = evaluate(node, {})
    return None if result.errors else result.value


def _of_operands(node: Binary, left: Node, right: Node) -> Outcome | None:
    on_left, on_right = constant_value(left), constant_value(right)
    match left, right:
        case Attribute(name), _ if on_right is not None and node.operator == "=":
            return _by_equality(node, name, on_right)
        case _, Attribute(name) if on_left is not None and node.operator == "=":
            return _by_member(node, name, [on_left])
        case ((Attribute(name) | Call("INT", (Attribute(name),))), _) if on_right is not None:
            if node.operator != "=" or type(on_right) is int:
                return _by_number(node, name, node.operator, on_right)
        case _, (Attribute(name) | Call("INT", (Attribute(name),))) if on_left is not None:
            if node.operator != "=":
                return _by_number(node, name, _MIRRORED[node.operator], on_left)
    return None


def _by_equality(node: Node, name: str, wanted: Value) -> Outcome:
    """`a = constant`, which casts the attribute to the constant's type."""
    if isinstance(wanted, str):
        return _by_text(node, name, *_texts_equal(wanted))
    if isinstance(wanted, bool):
        return _by_boolean(node, name, wanted)
    return _by_number(node, name, "=", wanted)


# --- as Strings -------------------------------------------------------------------------------

_NUMERIC: Final = re.compile(r"[0-9.eE+-]*")
_NOT_FINITE: Final = "-Infinity -inf"


def _by_text(node: Node, name: str, sure: Sequence[Test], maybe: Sequence[Test]) -> Outcome:
    """A test of the attribute's text, which is never an error."""
    sure = [*sure, *_booleans(node, name)[0]]
    true = [*sure, *maybe]
    exact = not maybe
    return Outcome(
        _part(name, true, exact),
        _part(name, [Other(_any([*sure, NULL]))], exact),
        present(name),
    )


def _texts_equal(text: str) -> tuple[list[Test], list[Test]]:
    number, errors = to_number(text)
    if not errors and to_string(number) == text:
        return [Equal(text), Equal(number)], []
    return [Equal(text)], [NUMBER] if _is_odd_number(text) else []


def _is_odd_number(text: str) -> bool:
    """Whether this could be the text of a number that is not an integer of 32 bits."""
    if not _may_be_in_number(text):
        return False
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    return not (SMALLEST <= number <= LARGEST and number == int(number))


def _may_be_in_number(text: str) -> bool:
    return _NUMERIC.fullmatch(text) is not None or text in _NOT_FINITE


def _by_like(node: Node, name: str, pattern: str) -> Outcome:
    segments = like_segments(pattern)
    if len(segments) == 1 and len(segments[0]) == 1:
        return _by_text(node, name, *_texts_equal(segments[0][0]))
    parts = [piece for segment in segments for piece in segment]
    maybe_number = all(map(_may_be_in_number, parts))
    # The wildcard of one character is not in patterns: any text may be there, and is looked at.
    loose = any(len(segment) > 1 for segment in segments)
    if not any(parts) and not loose:
        return Outcome(present(name), NONE, present(name))
    test = _like_test(parts)
    sure, maybe = ([], [test]) if loose else ([test], [])
    return _by_text(node, name, sure, [*maybe, NUMBER] if maybe_number else maybe)


def _like_test(parts: list[str]) -> Test:
    first, *middle, last = parts
    middle = [part for part in middle if part]
    if middle or (first and last):
        return Wildcard((first, *middle, last))
    if first:
        return Prefix(first)
    return Suffix(last) if last else STRING


def _by_member(node: Node, name: str, values: Sequence[Value]) -> Outcome:
    """Constants that are cast to the attribute's type, one after the other, until one is equal."""
    texts: list[Test] = [Equal(to_string(value)) for value in values]
    numbers: list[Test] = []
    all_numbers = True
    for value in values:
        number, errors = to_number(value)
        if errors:
            all_numbers = False
            break
        numbers.append(Equal(number))
    true, false, defined = _booleans(node, name)
    others: list[Test] = [AllTests((STRING, Other(_any(texts))))]
    if all_numbers:
        others.append(AllTests((NUMBER, Other(_any(numbers)))))
    return Outcome(
        _part(name, [*texts, *numbers, *true]),
        _part(name, [*others, *false]),
        _part(name, [STRING, *([NUMBER] if all_numbers else numbers), *defined]),
    )


# --- as Booleans and Integers -----------------------------------------------------------------


def _by_boolean(node: Node, name: str, wanted: bool) -> Outcome:
    """A test of the attribute as a Boolean."""
    zero: Test = Equal(0)
    other: Test = AllTests((NUMBER, Other(zero)))
    yes, no = EqualFold("true"), EqualFold("false")
    true, false, defined = _booleans(node, name)
    tests: list[list[Test]] = [[yes, other], [no, zero]]
    when_true, when_false = tests if wanted else reversed(tests)
    return Outcome(
        _part(name, [*when_true, *true]),
        _part(name, [*when_false, *false]),
        _part(name, [yes, no, NUMBER, *defined]),
    )


def _by_number(node: Node, name: str, operator: str, wanted: Value) -> Outcome:
    """A test of the attribute as an Integer."""
    number, errors = to_number(wanted)
    if errors or not isinstance(number, int):
        return FAILURE
    text = _integer_texts(number) if operator == "=" else [_MAYBE_INTEGER]
    true, false, defined = _booleans(node, name)
    return Outcome(
        _part(name, [_number_test(operator, number), *text, *true], exact=False),
        _part(name, [_number_test(_OPPOSITE[operator], number), _MAYBE_INTEGER, *false], False),
        _part(name, [NUMBER, _MAYBE_INTEGER, *defined], exact=False),
    )


def _number_test(operator: str, number: int) -> Test:
    match operator:
        case "=":
            return Equal(number)
        case "!=":
            return AllTests((NUMBER, Other(Equal(number))))
        case "<" | "<=":
            return Range(None, number, high_open=operator == "<")
        case _:
            return Range(number, None, low_open=operator == ">")


def _integer_texts(number: int) -> list[Test]:
    """Tests that all Strings pass that are cast to a number, and a few others."""
    signs = ("-",) if number < 0 else ("", "+") if number > 0 else ("", "+", "-")
    digits = str(abs(number))
    exact = [Equal(sign + digits) for sign in signs]
    return [*exact, *(Wildcard((f"{sign}0", digits)) for sign in signs)]


# --- tests ------------------------------------------------------------------------------------


def _booleans(node: Node, name: str) -> tuple[list[Test], list[Test], list[Test]]:
    """Of true and false those for which an expression is true, or false, or one of both."""
    true: list[Test] = []
    false: list[Test] = []
    evaluated = evaluator(node, (name,))
    for test in _BOOLEANS:
        value, errors = evaluated((test.value,))
        if not errors:
            (true if value else false).append(test)
    return true, false, [*true, *false]


def _part(name: str, tests: Sequence[Test], exact: bool = True) -> Part:
    return Part(field(name, _any(tests)), exact) if tests else NONE


def _any(tests: Sequence[Test]) -> Test:
    return tests[0] if len(tests) == 1 else AnyTest(tuple(tests))
