"""Conditions on texts: LIKE, RLIKE, and what begins with, ends with or contains a text."""

from __future__ import annotations

from sqlglot import exp

from boxmatch.errors import FilterError
from boxmatch.model.expressions.nodes import (
    STRING,
    Column,
    Literal,
    Node,
)
from boxmatch.model.filters.conditions import (
    And,
    Condition,
    Like,
    Matches,
    Not,
    Or,
)
from boxmatch.model.filters.list_conditions import ListTranslator, of_elements
from boxmatch.model.filters.parsing import construct_name
from boxmatch.model.filters.source import article, unwrap


class TextTranslator(ListTranslator):
    """Turns tests of texts into conditions."""

    def _when_like(self, node: exp.Expr, *, escape: str = "\\", fold: bool = False) -> Condition:
        pattern = unwrap(node.expression)
        if pattern.key in ("any", "all"):
            listed = unwrap(pattern.this)
            each = listed.expressions if listed.key == "tuple" else [listed]
            found = tuple(self._likeness(node, one, escape, fold) for one in each)
            return Or(found) if pattern.key == "any" else And(found)
        return self._likeness(node, pattern, escape, fold)

    def _when_ilike(self, node: exp.Expr, *, escape: str = "\\") -> Condition:
        return self._when_like(node, escape=escape, fold=True)

    def _when_escape(self, node: exp.Expr) -> Condition:
        inner, mark = node.this, self.constant(node.expression, node)
        if inner.key not in ("like", "ilike"):
            self.unsupported(node)
        if mark is None or mark.kind != "text" or len(str(mark.content)) != 1:
            self.wrong("ESCAPE needs one character", node)
        when = self._when_like if inner.key == "like" else self._when_ilike
        found = when(inner, escape=str(mark.content))
        return Not(found) if inner.args.get("negate") else found

    def _likeness(self, node: exp.Expr, pattern: exp.Expr, escape: str, fold: bool) -> Condition:
        value = self.constant(pattern, node)
        elements = of_elements(unwrap(node.this))
        if value is not None and value.kind not in ("text", "null"):
            raise FilterError("LIKE needs a quoted pattern", self.text, value.position)
        if elements is not None:
            if value is not None and elements[0] == "any":
                listed = self._text_list(elements[1], "ILIKE" if fold else "LIKE", node)
                return Like(listed, value, escape, fold)
            return self._holds_for(
                node,
                elements,
                lambda element: self._like_call(node, element, pattern, escape, fold),
            )
        if value is not None:
            subject = self._text_axis(node, "ILIKE" if fold else "LIKE", fold)
            if subject is not None:
                return Like(subject, value, escape, fold)
        found = self._like_call(node, self.scalar(node.this), pattern, escape, fold)
        return self._truth(found, node)

    def _like_call(
        self, node: exp.Expr, text: Node, pattern: exp.Expr, escape: str, fold: bool
    ) -> Node:
        wanted = self.scalar(pattern)
        if fold:
            text, wanted = (self.call(node, "lower", one) for one in (text, wanted))
        return self.call(node, "like", text, wanted, Literal(escape, STRING))

    def _text_list(self, listed: exp.Expr, what: str, node: exp.Expr) -> int:
        """The axis of a list of texts."""
        if self.document(listed) is not None:
            self.refuse(f"{what} of the elements of what a document has", node)
        attribute = self._list_attribute(listed, node)
        self._needs_text(attribute, what, node)
        return attribute

    def _text_axis(self, node: exp.Expr, what: str, fold: bool = False) -> int | None:
        """The axis of the text that a predicate is about; None if that is a constant."""
        inner = unwrap(node.this)
        document = self.document(inner)
        if inner.key == "column" and not fold and document is None:
            attribute = self.attribute(inner)
            self._refuse_list(attribute, inner)
            self._needs_text(attribute, what, node)
            return attribute
        found = self.scalar(inner)
        if document is not None:
            found = self.call(node, "cast", found, type=STRING)
        if isinstance(found, Literal):
            return None
        if found.type.name != "string":
            name = found.name if isinstance(found, Column) else "this"
            self.wrong(
                f"{what} needs a string or enum attribute; {name!r} is {article(str(found.type))}",
                node,
            )
        return self.scope.position(self.call(node, "lower", found) if fold else found)

    def _needs_text(self, attribute: int, what: str, node: exp.Expr) -> None:
        found = self.scope.attributes[attribute]
        if found.type not in ("string", "enum"):
            self.wrong(
                f"{what} needs a string or enum attribute; "
                f"{found.name!r} is {article(found.type_name)}",
                node,
            )

    def _when_regexplike(self, node: exp.Expr) -> Condition:
        value = self.constant(node.expression, node)
        if node.args.get("flag") is not None:
            self.refuse("REGEXP_LIKE with flags (write them into the pattern: (?i))", node)
        if value is None or value.kind not in ("text", "null"):
            self.wrong("RLIKE needs a quoted pattern", node)
        elements = of_elements(unwrap(node.this))
        if elements is not None:
            if elements[0] == "any":
                return Matches(self._text_list(elements[1], "RLIKE", node), value)
            wanted = self.scalar(node.expression)
            return self._holds_for(
                node, elements, lambda element: self.call(node, "rlike", element, wanted)
            )
        subject = self._text_axis(node, "RLIKE")
        if subject is None:
            return self._truth(self.scalar(node), node)
        return Matches(subject, value)

    def _when_regexpilike(self, node: exp.Expr) -> Condition:
        self.refuse("~* (write ~ and begin the pattern with (?i))", node)

    def _part(self, node: exp.Expr, before: str, after: str) -> Condition:
        self.check_arguments(node, ("this", "expression"))
        value = self.constant(node.expression, node)
        if value is None or value.kind not in ("text", "null"):
            return self._truth(self.scalar(node), node)
        subject = self._text_axis(node, construct_name(node))
        if subject is None:
            return self._truth(self.scalar(node), node)
        return Like(subject, value, around=(before, after))

    def _when_startswith(self, node: exp.Expr) -> Condition:
        return self._part(node, "", "%")

    def _when_endswith(self, node: exp.Expr) -> Condition:
        return self._part(node, "%", "")

    def _when_contains(self, node: exp.Expr) -> Condition:
        return self._part(node, "%", "%")
