"""Expressions of many events at once, over Arrow arrays.

All branches of a CASE are evaluated, since nothing raises. What Arrow and NumPy cannot do with the
same meaning goes through the functions of single values, on distinct values where one argument is
an array.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.model.documents import Documents
from boxmatch.model.expressions import array_functions
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
)
from boxmatch.model.expressions.vectors import Value, array, arrow_type, nulls_of

pc: Any = pyarrow.compute  # The stubs know few of its overloads.


def evaluate(node: Node, column: Callable[[str], pa.Array[Any]], length: int) -> pa.Array[Any]:
    """The values of one expression for `length` events; see `Batch`."""
    return Batch(column, length).evaluate(node)


class Batch:
    """Events as columns, and what has been evaluated of them.

    `column` gives the array of an attribute, of the Arrow type that `nodes` lists. It is asked once
    for each. Expressions that share a part share its result, so evaluate all that are wanted with
    one batch. Not safe for several threads.
    """

    def __init__(self, column: Callable[[str], pa.Array[Any]], length: int) -> None:
        self._column: Callable[[str], Value] = cache(column)
        self._length = length
        self._variables: dict[str, Value] = {}
        self._known: dict[Node, Value] = {}
        self._scopes: dict[tuple[Node, Variable], tuple[Batch, _Lists]] = {}

    def evaluate(self, node: Node) -> pa.Array[Any]:
        """The values of an expression."""
        values: pa.Array[Any] = self._array(node)
        return values

    def _value(self, node: Node) -> Value:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._evaluated(node)
        return known

    def _array(self, node: Node) -> Value:
        value = self._value(node)
        return _repeated(value, self._length) if isinstance(value, pa.Scalar) else value

    def _evaluated(self, node: Node) -> Value:
        match node:
            case Column(name, _):
                return self._column(name)
            case Variable(name, _):
                return self._variables[name]
            case Literal(value, type):
                return pa.scalar(value, arrow_type(type))
            case Call(function, arguments, _):
                special = _SPECIAL.get(function)
                if special is not None:
                    return special(self, node)
                return array_functions.strict(node, [self._value(one) for one in arguments])
        raise TypeError("a lambda has a value only as the argument of a function of lists")

    def _arguments(self, call: Call) -> list[Value]:
        return [self._value(one) for one in call.arguments]

    def _scope(self, elements: Node, variable: Variable) -> tuple[Batch, _Lists]:
        """A batch of the elements of lists, each with the event that it belongs to."""
        key = elements, variable
        if key not in self._scopes:
            lists = _Lists(self._array(elements))
            rows = array(lists.parents)
            inner = Batch(lambda name: self._column(name).take(rows), len(lists.values))
            inner._variables = {name: one.take(rows) for name, one in self._variables.items()}
            inner._variables[variable.name] = lists.values
            self._scopes[key] = inner, lists
        return self._scopes[key]


def _repeated(scalar: Value, length: int) -> Value:
    if not scalar.is_valid:
        return pa.nulls(length, scalar.type)
    if pa.types.is_nested(scalar.type):
        one: Value = pa.array([scalar.as_py()], scalar.type)
        return one.take(array(np.zeros(length, np.int64)))
    return pa.repeat(scalar, length)


class _Lists:
    """The elements of lists, one after the other, and the rows that they are of."""

    def __init__(self, lists: Value) -> None:
        self.rows = len(lists)
        self.values: Value = lists.flatten()
        self.nulls = nulls_of(lists)
        self.lengths: Int64Array = pc.fill_null(lists.value_lengths(), 0).to_numpy()
        self.starts: Int64Array = np.cumsum(self.lengths) - self.lengths
        self.parents: Int64Array = np.repeat(np.arange(self.rows), self.lengths)

    def having(self, chosen: BoolArray) -> BoolArray:
        """The rows of which some element is chosen."""
        result: BoolArray = np.bincount(self.parents[chosen], minlength=self.rows) > 0
        return result

    def decided(self, conditions: Value, decides: bool) -> Value:
        """What a condition on each element says about the rows.

        `decides` if it is that for one element; else NULL if it is NULL for one, else the opposite.
        """
        known = pc.fill_null(conditions, not decides).to_numpy(zero_copy_only=False)
        found = self.having(known == decides)
        nulls = nulls_of(conditions)
        unknown = None if nulls is None else self.having(nulls) & ~found
        return array(found == decides, unknown, self.nulls)


def _kleene(function: str) -> Callable[[Batch, Call], Value]:
    def run(batch: Batch, call: Call) -> Value:
        result, *rest = batch._arguments(call)
        for value in rest:
            result = pc.call_function(function, [result, value])
        return result

    return run


def _same(batch: Batch, call: Call) -> Value:
    left, right = batch._arguments(call)
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    if _is_null(left) or _is_null(right):
        return both
    equal = array_functions.strict(Call("=", call.arguments, call.type), [left, right])
    return pc.coalesce(equal, both)


def _is_null(value: Value) -> bool:
    return isinstance(value, pa.Scalar) and not value.is_valid


def _whether_null(batch: Batch, call: Call) -> Value:
    (value,) = batch._arguments(call)
    if isinstance(value, Documents):
        return pa.array([one is None for one in value.to_pylist()], pa.bool_())
    return pc.is_null(value)


def _is_true(batch: Batch, call: Call) -> Value:
    return pc.fill_null(batch._arguments(call)[0], False)


def _in(batch: Batch, call: Call) -> Value:
    value = batch._array(call.arguments[0])
    constants = [one.value for one in call.arguments[1:] if isinstance(one, Literal)]
    found = array_functions.is_in(
        value, call.arguments[0].type, [one for one in constants if one is not None]
    )
    if None in constants:
        found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), found)


def _case(batch: Batch, call: Call) -> Value:
    *arms, result = batch._arguments(call)
    for condition, value in zip(arms[-2::-2], arms[::-2], strict=True):
        result = pc.if_else(pc.fill_null(condition, False), value, result)
    return result


def _coalesce(batch: Batch, call: Call) -> Value:
    return pc.coalesce(*batch._arguments(call))


def _extreme(batch: Batch, call: Call, function: Callable[..., Value]) -> Value:
    values = batch._arguments(call)
    if call.type.name == "bool":
        numbers = function(*(pc.cast(value, pa.uint8()) for value in values))
        return pc.cast(numbers, pa.bool_())
    return function(*values)


def _make_array(batch: Batch, call: Call) -> Value:
    count, rows = len(call.arguments), batch._length
    parts = [batch._array(one) for one in call.arguments]
    order = np.arange(count) * rows + np.arange(rows)[:, None]
    values = pa.concat_arrays(parts).take(array(order.ravel()))
    return pa.LargeListArray.from_arrays(array(np.arange(rows + 1) * count), values)


def _of_documents(batch: Batch, call: Call) -> Value:
    subject = batch._value(call.arguments[0])
    function = document_function(call)
    missing = True if call.function == "is_missing" else None
    values = [missing if one is None else function(one) for one in subject.to_pylist()]
    return Documents(values) if call.type == JSON else pa.array(values, arrow_type(call.type))


def _wanted(batch: Batch, call: Call) -> Value:
    columns = [batch._value(one).to_pylist() for one in call.arguments[3:]]
    function = wanted_function(call)
    return pa.array([function(row) for row in zip(*columns, strict=True)], pa.bool_())


def _cast(batch: Batch, call: Call) -> Value:
    """Of lists, element by element."""
    source = call.arguments[0].type
    if source == JSON:
        cast = cast_value(call.type)
        documents = batch._value(call.arguments[0]).to_pylist()
        values = [None if one is None else cast(one) for one in documents]
        return pa.array(values, arrow_type(call.type))
    if source.name != "list":
        return array_functions.strict(call, batch._arguments(call))
    assert source.element is not None  # as `casts.cast_function` needs it
    assert call.type.element is not None
    lists = _Lists(batch._array(call.arguments[0]))
    element = Call("cast", (Variable("element", source.element),), call.type.element)
    offsets = array(np.append(lists.starts, len(lists.values)))
    values = array_functions.strict(element, [lists.values])
    mask = None if lists.nulls is None else pa.array(lists.nulls)
    return pa.LargeListArray.from_arrays(offsets, values, mask=mask)


def _cardinality(batch: Batch, call: Call) -> Value:
    return pc.cast(batch._array(call.arguments[0]).value_lengths(), pa.int64())


def _array_contains(batch: Batch, call: Call) -> Value:
    lists = _Lists(batch._array(call.arguments[0]))
    value = batch._value(call.arguments[1])
    element = call.arguments[1].type
    sides = (Variable("element", element), Variable("value", element))
    wanted = value if isinstance(value, pa.Scalar) else value.take(array(lists.parents))
    equal = array_functions.strict(Call("=", sides, call.type), [lists.values, wanted])
    found = lists.decided(equal, True)
    if isinstance(value, pa.Scalar):
        return found
    return pc.if_else(pc.is_null(value), pa.scalar(None, pa.bool_()), found)


def _overlap(batch: Batch, call: Call) -> Value:
    """Quick with a literal, of which the values are looked up."""
    sides = batch._arguments(call)
    constant = next((one for one in sides if isinstance(one, pa.Scalar)), None)
    element = call.arguments[0].type.element
    if constant is None or element is None:
        return array_functions.strict(call, sides)
    lists = _Lists(next(one for one in sides if one is not constant))
    wanted = constant.as_py()
    there = array_functions.is_in(lists.values, element, [one for one in wanted if one is not None])
    found = lists.having(there.to_numpy(zero_copy_only=False))
    unknown = lists.lengths > 0
    if None not in wanted:
        nulls = nulls_of(lists.values)
        unknown = np.zeros(lists.rows, bool) if nulls is None else lists.having(nulls)
    return array(found, unknown & ~found & bool(wanted), lists.nulls)


def _element_at(batch: Batch, call: Call) -> Value:
    lists = _Lists(batch._array(call.arguments[0]))
    position = batch._array(call.arguments[1])
    wanted = pc.fill_null(position, 0).to_numpy()
    there = (wanted != 0) & (np.abs(wanted) <= lists.lengths)
    index = lists.starts + np.where(wanted > 0, wanted - 1, lists.lengths + wanted)
    return lists.values.take(array(index, ~there))


def _of_elements(decides: bool) -> Callable[[Batch, Call], Value]:
    def run(batch: Batch, call: Call) -> Value:
        elements, condition = call.arguments
        assert isinstance(condition, Lambda)  # `functions.call` has checked it
        inner, lists = batch._scope(elements, condition.variable)
        return lists.decided(inner.evaluate(condition.body), decides)

    return run


def _field(batch: Batch, call: Call) -> Value:
    name = call.arguments[1]
    assert isinstance(name, Literal)  # `functions.call` has checked it
    struct = call.arguments[0]
    index = [field for field, _ in struct.type.fields].index(name.value)
    return pc.struct_field(batch._array(struct), [index])


_SPECIAL: Final[dict[str, Callable[[Batch, Call], Any]]] = {
    "and": _kleene("and_kleene"),
    "or": _kleene("or_kleene"),
    "<=>": _same,
    "is_null": _whether_null,
    "is_true": _is_true,
    "in": _in,
    "case": _case,
    "coalesce": _coalesce,
    "greatest": lambda batch, call: _extreme(batch, call, pc.max_element_wise),
    "least": lambda batch, call: _extreme(batch, call, pc.min_element_wise),
    "array": _make_array,
    "cast": _cast,
    "wanted": _wanted,
    "cardinality": _cardinality,
    "array_contains": _array_contains,
    "arrays_overlap": _overlap,
    "element_at": _element_at,
    "exists": _of_elements(True),
    "forall": _of_elements(False),
    "field": _field,
    **dict.fromkeys(DOCUMENT_FUNCTIONS, _of_documents),
}
