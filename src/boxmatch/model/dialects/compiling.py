"""What dialects translate to, compiled to boxes on the axes of the texts of members."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from boxmatch.errors import FilterError, FilterTooLargeError, UnknownAttributeError, did_you_mean
from boxmatch.model.dialects.patterns import (
    AnyTest,
    Every,
    Field,
    Missing,
    Path,
    Pattern,
    Some,
    Test,
)
from boxmatch.model.dialects.registry import check_dialect, text_of_filter, translate
from boxmatch.model.dialects.text_sets import Sets, TextTest, any_of, is_one_set, plain, text_test
from boxmatch.model.documents import ROOT
from boxmatch.model.expressions.documents import (
    DocumentPart,
    joined_at,
    missing_at,
    path_of,
    text_at,
    texts_at,
    wanted,
)
from boxmatch.model.expressions.nodes import JSON, Call, Column, Node
from boxmatch.model.filters.compiled import CompiledFilter
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.conditions import (
    And,
    Compare,
    Condition,
    Constant,
    HasPart,
    Holds,
    InTexts,
    Not,
    Or,
    Value,
)
from boxmatch.model.filters.document_axes import document_at
from boxmatch.model.filters.scope import Scope, type_of
from boxmatch.model.schema import Schema
from boxmatch.model.text_ranges import ANY_TEXT, TextRanges

_TYPES = ("int", "float", "string", "bool", "enum", "decimal")
"""Types of attributes whose values have texts."""

_MOST_RANGES: Final = (None, 16, 4, 1, 0)
"""Of a test of a value; the next number is tried if there are too many boxes."""


def compile_dialect(
    schema: Schema, dialect: str, filter: object, *, max_boxes: int = 1024, lists: bool = True
) -> CompiledFilter:
    """Compile a filter of a dialect; see `compile_filter`. Raises `FilterError`.

    What would be more than `max_boxes` becomes fewer and larger boxes, and a residual.
    """
    check_dialect(dialect)
    text = text_of_filter(filter)
    translation = translate(dialect, text)
    for most_ranges in _MOST_RANGES:
        compiler = _Compiler(Scope(schema), lists, most_ranges)
        condition = compiler.condition(translation.pattern)
        for path in translation.paths:
            compiler.note_value(path)
        if not compiler.exact or translation.wants is not None:
            condition = And((condition, compiler.literally(dialect, text)))
        try:
            return compile_condition(compiler.scope, condition, max_boxes, lists=lists)
        except FilterTooLargeError:
            continue
    condition = compiler.literally(dialect, text)
    return compile_condition(compiler.scope, condition, max_boxes, lists=lists)


class _Compiler:
    """Turns a pattern into a condition, which is true of other events, too, if not `exact`.

    A test of a value becomes `most_ranges` ranges at most; None is no limit.
    """

    def __init__(self, scope: Scope, lists: bool, most_ranges: int | None) -> None:
        self.scope = scope
        self.exact = True
        self.most_ranges = most_ranges
        self.columns: dict[Column, None] = {}
        self.parts: list[DocumentPart] = []
        """What is looked at of members of documents."""
        self._lists = lists

    def condition(self, pattern: Pattern) -> Condition:
        match pattern:
            case Every(()):
                return Constant(True)
            case Some(()):
                return Constant(False)
            case Every((one,)) | Some((one,)):
                return self.condition(one)
            case Every(patterns):
                return And(tuple(map(self.condition, patterns)))
            case Some(patterns):
                return Or(tuple(map(self.condition, patterns)))
            case Missing(path, within, scalar):
                return self._missing(path, within, scalar)
            case Field(path, test, scalar):
                return self._field(path, plain(test), scalar)

    def literally(self, dialect: str, text: str) -> Condition:
        """Whether the filter wants an event, by what was noted of it."""
        return Holds(wanted(dialect, text, self.parts, self.columns))

    def _missing(self, path: Path, within: int, scalar: bool) -> Condition:
        column, rest = self.subject(path)
        if scalar:
            node = text_at(column, rest)
            return Not(InTexts(self.scope.position(node), ANY_TEXT, None))
        self._note(DocumentPart("is_missing", column.name, rest, within=within), column)
        node = missing_at(column, rest, within)
        return Compare(self.scope.position(node), "=", Value("truth", True))

    def _field(self, path: Path, test: Test, scalar: bool) -> Condition:
        column, rest = self.subject(path)
        if not scalar:
            self._note(DocumentPart("texts", column.name, rest), column)
        if self.most_ranges == 0:
            self.exact = False
            return self._in_sets(column, rest, {"": ANY_TEXT}, scalar)
        return _or(list(self._alternatives(column, rest, test, scalar)))

    def _alternatives(
        self, column: Column, path: Path, test: Test, scalar: bool
    ) -> Iterator[Condition]:
        """Conditions one of which is true if a member passes a test."""
        tests = test.tests if isinstance(test, AnyTest) else (test,)
        said = [(one, text_test(one)) for one in tests]
        simple = [text for _, text in said if is_one_set(text)]
        if simple:
            yield self._in_sets(column, path, any_of(simple).sets[0], scalar)
        for one, text in said:
            if isinstance(one, AnyTest) and not is_one_set(text):
                yield from self._alternatives(column, path, one, scalar)
            elif not is_one_set(text):
                yield self._best(column, path, text, scalar)

    def _best(self, column: Column, path: Path, test: TextTest, scalar: bool) -> Condition:
        """What is true if a member passes a test, and perhaps of others."""
        conditions = [self._in_sets(column, path, one, scalar) for one in test.sets]
        is_needle = test.needle and self._lists and column.type == JSON
        if is_needle:
            needles = self.scope.position(joined_at(column, path), "needles")
            conditions.append(HasPart(needles, "needle", test.needle))
        if not (test.exact and is_needle):
            self.exact = False
        return And(tuple(conditions))

    def _in_sets(self, column: Column, path: Path, sets: Sets, scalar: bool) -> Condition:
        single = scalar or (column.type != JSON and column.type.name != "list")
        found: list[Condition] = []
        for form, every in sets.items():
            ranges = self._limited(every)
            if single:
                position = self.scope.position(text_at(column, path, form))
            else:
                position = self.scope.position(texts_at(column, path, form), "elements")
            found.append(InTexts(position, ranges, ranges))
        return _or(found)

    def _limited(self, ranges: TextRanges) -> TextRanges:
        """The ranges, neighbours of which are joined if there are too many."""
        most = self.most_ranges
        if not most or len(ranges) <= most:
            return ranges
        self.exact = False
        firsts = [len(ranges) * number // most for number in range(most + 1)]
        return tuple((ranges[one][0], ranges[end - 1][1]) for one, end in pairwise(firsts))

    def _note(self, part: DocumentPart, column: Column) -> None:
        if column.type == JSON:
            self.parts.append(part)

    def note_value(self, path: Path) -> None:
        """Note that the value at a path is looked at."""
        schema = self.scope.schema
        if path:
            self.subject(path)
        elif ROOT in schema.index:
            self.columns[Column(ROOT, JSON)] = None
        else:
            columns = (Column(one.name, type_of(one)) for one in schema)
            self.columns.update(dict.fromkeys(columns))

    def subject(self, path: Path) -> tuple[Column, Path]:
        """The attribute that a path leads to, and the rest of the path inside of it."""
        schema, name = self.scope.schema, ".".join(path)
        position = schema.index.get(name)
        column: Node | None
        rest: Path = ()
        if position is not None and schema.attributes[position].type != "json":
            attribute = schema.attributes[position]
            if attribute.type not in _TYPES:
                raise FilterError(
                    f"attribute {name!r} is of type {attribute.type_name}, "
                    "which has no values in other dialects than SQL"
                )
            column = Column(name, type_of(attribute))
        else:
            column = document_at(schema, name)
            if isinstance(column, Call):
                rest = path_of(column.arguments[1])
                column = column.arguments[0]
        if not isinstance(column, Column):
            hint = did_you_mean(name, schema.names)
            raise UnknownAttributeError(f"there is no attribute {name!r}{hint}")
        # The whole event has all others, too.
        whole = ROOT in schema.index
        self.columns[Column(ROOT, JSON) if whole else column] = None
        return column, rest


def _or(conditions: list[Condition]) -> Condition:
    if not conditions:
        return Constant(False)
    return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))
