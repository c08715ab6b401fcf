"""SQL text to conditions. sqlglot parses; what has no meaning here is refused with its place.

Names are matched exactly, or, unless quoted, without regard to case if that leaves one attribute.
"""

from __future__ import annotations

import re
from datetime import tzinfo
from typing import Final

from sqlglot import exp

from boxmatch.errors import FilterError, FilterSyntaxError, FilterTooLargeError
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import (
    BOOL,
    JSON,
    NULL,
    STRING,
    TIMESTAMP,
    Lambda,
    Literal,
    Node,
    walk,
)
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Constant,
    IsNull,
    IsTruth,
    Not,
    Operator,
    Or,
    Value,
)
from boxmatch.model.filters.document_axes import null_test, same_as, text_axis
from boxmatch.model.filters.list_conditions import MIRRORED, OPERATORS, of_elements, value_of
from boxmatch.model.filters.parsing import TOO_DEEP, is_reserved, parse
from boxmatch.model.filters.scope import Scope
from boxmatch.model.filters.source import article, chain_of, unwrap
from boxmatch.model.filters.text_conditions import TextTranslator
from boxmatch.model.schema import Schema

MOST_CHARACTERS: Final = 1_000_000
_LONGEST_ADVICE: Final = 200  # characters

_PREDICATES: Final = frozenset(
    (
        *("between", "in", "is", "like", "ilike", "escape", "regexplike", "regexpilike"),
        *("nullsafeeq", "nullsafeneq", "startswith", "endswith", "contains"),
        *("exists", "arraycontains", "arrayoverlaps", "arraycontainsall", "arraycontainedby"),
    )
)


def parse_text(scope: Scope, text: str, zone: tzinfo | None = None) -> Condition:
    """Parse the text of a WHERE clause. Timestamps that name no zone are in `zone`, or in UTC.

    The axes of its expressions are added to the scope.
    """
    _check_text(text)
    try:
        node, tokens = parse(text, clause=True)
    except FilterSyntaxError as error:
        raise _add_hint(scope.schema, error) from None
    try:
        return _Translator(scope, text, tokens, zone).condition(node)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, 0) from None
    except FilterTooLargeError as error:
        raise FilterTooLargeError(error.reason, text, error.position or 0) from None


def parse_expression(scope: Scope, text: str, zone: tzinfo | None = None) -> int:
    """The axis of an expression, which is added to the scope."""
    _check_text(text)
    node, tokens = parse(text)
    try:
        found = _Translator(scope, text, tokens, zone).scalar(node)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, 0) from None
    if found.type == JSON:
        return text_axis(scope, found)
    if isinstance(found, Literal) or found.type.name in ("list", "struct", "null"):
        raise FilterError("this expression has no value that could be compared", text, 0)
    return scope.position(found)


def _check_text(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise FilterTooLargeError(
            f"a filter has at most {MOST_CHARACTERS:,} characters, not {len(text):,}"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            reason = "a lone surrogate is not a character"
            raise FilterSyntaxError(reason, text, error.start) from None


def _add_hint(schema: Schema, error: FilterSyntaxError) -> FilterSyntaxError:
    """The error, with a word on the name that most likely led to it."""
    for name in schema.names:
        bare = rf"(?<![\w\"'.]){re.escape(name)}(?![\w\"'(.])"
        if is_reserved(name) and re.search(bare, error.text or "", re.IGNORECASE):
            reason = f'{error.reason}; {name} is a word of SQL, as a name it is written "{name}"'
            return FilterSyntaxError(reason, error.text, error.position)
    return error


class _Translator(TextTranslator):
    """Turns one parsed filter into a condition."""

    def condition(self, node: exp.Expr) -> Condition:
        node = unwrap(node)
        kind = node.key
        if kind in ("and", "or"):
            operands = tuple(self.condition(operand) for operand in chain_of(node))
            return And(operands) if kind == "and" else Or(operands)
        if kind == "not":
            return Not(self.condition(node.this))
        if kind in OPERATORS:
            return self._comparison(node, OPERATORS[kind], node.this, node.expression)
        if kind in _PREDICATES:
            found: Condition = getattr(self, f"_when_{kind}")(node)
            return Not(found) if node.args.get("negate") else found
        if kind == "boolean":
            return Constant(bool(node.this))
        if kind == "null":
            return Constant(None)
        document = self.document(node)
        if document is not None:
            return Compare(text_axis(self.scope, document), "=", Value("truth", True))
        if kind == "column":
            attribute = self.attribute(node)
            self._needs_bool(attribute, node, "is not a condition; compare it with a value")
            return Compare(attribute, "=", Value("truth", True))
        if kind == "literal":
            self.unsupported(node)
        if kind == "anonymous" and str(node.name).lower() == "arrays_overlap":
            return self._overlaps(node, *node.expressions)
        return self._truth(self.scalar(node), node)

    # Comparisons

    def _comparison(
        self, node: exp.Expr, operator: Operator, left: exp.Expr, right: exp.Expr
    ) -> Condition:
        if left.key in OPERATORS and left.expression.key != "arrayoverlaps":  # `a > 1 && b > 2`
            self._refuse_chain(node, left, right)
        left, right = unwrap(left), unwrap(right)
        for one, other, sign in (
            (left, right, operator),
            (right, left, MIRRORED[operator]),
        ):
            elements = of_elements(one)
            if elements is not None:
                return self._elements(node, elements, sign, other)
        if "collate" in (left.key, right.key):
            return self._ignoring_case(node, operator, left, right)
        for one, other, sign in ((left, right, operator), (right, left, MIRRORED[operator])):
            value = self.constant(other, node)
            if value is not None and self.constant(one, node) is None:
                return self._with_constant(one, sign, value, node)
        if left.key == right.key == "column" and self.document(right) is None:
            self.attribute(right, is_value=True)  # rather a text without quotes than a name
        return self._between_nodes(node, operator, self.scalar(left), self.scalar(right))

    def _refuse_chain(self, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> None:
        """Explain `3 < price < 5`, which to SQL compares 5 with a truth value."""
        value = self.constant(right, node)
        if self.document(right) is not None:
            is_truth = False
        elif value is None and right.key == "column":
            is_truth = self.scope.attributes[self.attribute(right)].type == "bool"
        else:
            is_truth = value is None or value.kind in ("truth", "null")
        if not is_truth:
            middle = left.expression.sql()
            second = node.sql().removeprefix(left.sql())
            advice = f"{left.sql()} AND {middle}{second}"
            if len(advice) > _LONGEST_ADVICE:
                advice = "a < b AND b < c"
            self.wrong(f"comparisons cannot be chained; write {advice}", node)

    def _with_constant(
        self, subject: exp.Expr, operator: Operator, value: Value, node: exp.Expr
    ) -> Condition:
        document = self.document(subject)
        if document is not None:
            return Compare(self._document_axis(document, [value]), operator, value)
        if subject.key == "column":
            attribute = self.attribute(subject)
            self._refuse_list(attribute, subject)
            return Compare(attribute, operator, value)
        return self._on_axis(self.scalar(subject), operator, value, node)

    def _document_axis(self, document: Node, values: list[Value]) -> int:
        """The axis on which what a document has is compared with constants."""
        if any(value.kind in ("timestamp", "date") for value in values):
            return self.scope.position(call("cast", document, type=TIMESTAMP))
        return text_axis(self.scope, document)

    def _on_axis(
        self, subject: Node, operator: Operator, value: Value, node: exp.Expr
    ) -> Condition:
        if isinstance(subject, Literal) or subject.type.name in ("interval", "months"):
            return self._between_nodes(node, operator, subject, self._literal_of(value, node))
        if subject.type.name in ("list", "struct"):
            self.refuse(f"comparing {article(str(subject.type))} with a constant", node)
        return Compare(self.scope.position(subject), operator, value)

    def _literal_of(self, value: Value, node: exp.Expr) -> Node:
        """A constant as an expression."""
        if value.kind == "number":
            text = str(value.content)
            return self.number(exp.Literal.number(text.lstrip("-")), "-" * text.startswith("-"))
        if value.kind in ("timestamp", "date"):
            return Literal(self.moment(value), TIMESTAMP)
        types = {"text": STRING, "truth": BOOL, "null": NULL}
        return Literal(value.content, types[value.kind])

    def _between_nodes(
        self, node: exp.Expr, operator: Operator, left: Node, right: Node
    ) -> Condition:
        """A comparison of two expressions, one of which may have turned out to be constant."""
        if isinstance(left, Literal) and not isinstance(right, Literal):
            left, operator, right = right, MIRRORED[operator], left
        if isinstance(right, Literal) and not isinstance(left, Literal):
            value = value_of(right, self.position(node))
            if left.type.name in ("interval", "months"):
                if right.type == left.type:
                    return Compare(self.scope.position(left), operator, value)
            elif left.type.name not in ("list", "struct") and right.type.name != "interval":
                return self._on_axis(left, operator, value, node)
        return self._truth(self.call(node, operator, left, right), node)

    def _ignoring_case(
        self, node: exp.Expr, operator: Operator, left: exp.Expr, right: exp.Expr
    ) -> Condition:
        """A comparison one side of which names a collation that ignores case."""
        sides = [
            self.scalar(one) if one.key == "collate" else self.call(node, "lower", self.scalar(one))
            for one in (left, right)
        ]
        return self._between_nodes(node, operator, *sides)

    # Predicates

    def _when_between(self, node: exp.Expr) -> Condition:
        if node.args.get("symmetric"):
            self.refuse("BETWEEN SYMMETRIC", node)
        low, high = node.args["low"], node.args["high"]
        elements = of_elements(unwrap(node.this))
        if elements is not None:
            return self._elements_between(node, elements, low, high)
        return And(
            (
                self._comparison(node, ">=", node.this, low),
                self._comparison(node, "<=", node.this, high),
            )
        )

    def _when_in(self, node: exp.Expr) -> Condition:
        if node.args.get("query"):
            self.unsupported(node.args["query"])
        if not node.expressions:
            self.refuse("IN without a list", node)
        elements = of_elements(unwrap(node.this))
        if elements is not None and elements[0] == "all":
            return self._all_among(node, elements[1], node.expressions)
        constants: list[Value] = []
        others: list[Condition] = []
        for one in node.expressions:
            value = self.constant(one, node)
            if value is None:
                others.append(self._comparison(node, "=", node.this, one))
            else:
                constants.append(value)
        if constants:
            document = None if elements is not None else self.document(node.this)
            subject: int | Node | None = None
            if document is not None:
                subject = self._document_axis(document, constants)
            elif elements is None:
                subject = self._subject(node)
            if elements is not None:
                others.insert(0, Among(self._list_attribute(elements[1], node), tuple(constants)))
            elif isinstance(subject, int):
                others.insert(0, Among(subject, tuple(constants)))
            else:
                others = [self._comparison(node, "=", node.this, one) for one in node.expressions]
        return others[0] if len(others) == 1 else Or(tuple(others))

    def _when_is(self, node: exp.Expr) -> Condition:
        truth = unwrap(node.expression)
        inner = unwrap(node.this)
        if truth.key not in ("null", "boolean"):
            self.refuse("IS with anything but NULL, TRUE or FALSE", node)
        document = self.document(inner)
        if document is not None:
            if truth.key == "null":
                return null_test(self.scope, document)
            return IsTruth(text_axis(self.scope, document), bool(truth.this))
        subject = self._subject(node)
        if not isinstance(subject, int):
            return self._truth(self._is_of(node, subject, truth), node)
        if truth.key == "null":
            if self.scope.attributes[subject].repeated:
                size = self.call(node, "cardinality", self.scope.node(subject))
                return IsNull(self.scope.position(size))
            return IsNull(subject)
        if inner.key == "column":
            self._refuse_list(subject, inner)
        self._needs_bool(subject, node, "is neither TRUE nor FALSE")
        return IsTruth(subject, bool(truth.this))

    def _is_of(self, node: exp.Expr, subject: Node, truth: exp.Expr) -> Node:
        name = "is_null" if truth.key == "null" else "is_true" if truth.this else "is_false"
        return self.call(node, name, subject)

    def _when_nullsafeeq(self, node: exp.Expr) -> Condition:
        left, right = unwrap(node.this), unwrap(node.expression)
        for one, other in ((left, right), (right, left)):
            value = self.constant(other, node)
            if value is None or self.constant(one, node) is not None:
                continue
            document = self.document(one)
            if document is not None and value.kind not in ("timestamp", "date"):
                return same_as(self.scope, document, value, self.text)
            subject = self._subject_of(one, node)
            if isinstance(subject, int) and not self.scope.attributes[subject].repeated:
                if value.kind == "null":
                    return IsNull(subject)
                return And((Compare(subject, "=", value), Not(IsNull(subject))))
        return self._truth(self.call(node, "<=>", self.scalar(left), self.scalar(right)), node)

    def _when_nullsafeneq(self, node: exp.Expr) -> Condition:
        return Not(self._when_nullsafeeq(node))

    # Subjects

    def _subject(self, node: exp.Expr) -> int | Node:
        """The axis that a predicate such as IN is about; or a constant, of which there is none."""
        return self._subject_of(unwrap(node.this), node)

    def _subject_of(self, subject: exp.Expr, node: exp.Expr) -> int | Node:
        if subject.key == "column":
            return self.attribute(subject)
        found = self.scalar(subject)
        if isinstance(found, Literal) or found.type.name in ("list", "struct", "json"):
            return found
        if any(isinstance(one, Lambda) for one in walk(found)):
            return found
        return self.scope.position(found)

    def _needs_bool(self, attribute: int, node: exp.Expr, otherwise: str) -> None:
        found = self.scope.attributes[attribute]
        if found.type != "bool" or found.repeated:
            self.wrong(
                f"attribute {found.name!r} is {article(found.type_name)}: it {otherwise}",
                node,
            )
