"""A small reader of the SQL that expressions are rendered as."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp

from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import (
    BOOL,
    FLOAT,
    INT,
    INTERVAL,
    MONTHS,
    NULL,
    STRING,
    TIMESTAMP,
    Column,
    Lambda,
    Literal,
    Node,
    Type,
    Variable,
)
from boxmatch.model.expressions.rendering import natural

OPERATORS = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "and",
    exp.Or: "or",
    exp.Not: "not",
    exp.Neg: "neg",
    exp.Like: "like",
    exp.RegexpLike: "rlike",
}
TYPES = {"BIGINT": INT, "DOUBLE": FLOAT, "TEXT": STRING, "BOOLEAN": BOOL, "TIMESTAMP": TIMESTAMP}
UNITS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
UNITS |= {"MILLISECOND": 1_000, "MICROSECOND": 1}
# Those that sqlglot turns into something of its own.
KEPT = {"CASE", "CAST", "ARRAY", "EXISTS", "DATE_TRUNC"}


class Reader(sqlglot.Dialect):
    class Parser(sqlglot.Parser):
        FUNCTIONS = {  # noqa: RUF012
            name: build for name, build in sqlglot.Parser.FUNCTIONS.items() if name in KEPT
        }
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse for name, parse in sqlglot.Parser.FUNCTION_PARSERS.items() if name in KEPT
        }
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            "CASE": sqlglot.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }


def read(text: str, columns: Mapping[str, Type]) -> Node:
    return _node(sqlglot.parse_one(text, dialect=Reader), columns, {})


def _node(one: exp.Expression, columns: Mapping[str, Type], scope: dict[str, Type]) -> Node:
    def read(inner: Any) -> Node:
        return _node(inner, columns, scope)

    match one:
        case exp.Paren():
            return read(one.this)
        case exp.Column() if one.args.get("table"):
            return call("field", read(one.args["table"]), Literal(one.name, STRING))
        case exp.Column() | exp.Identifier():
            name = one.name
            return Variable(name, scope[name]) if name in scope else Column(name, columns[name])
        case exp.Dot():
            return call("field", read(one.this), Literal(one.expression.name, STRING))
        case exp.Null():
            return Literal(None, NULL)
        case exp.Boolean():
            return Literal(one.this, BOOL)
        case exp.Literal():
            return _literal(one)
        case exp.Interval():
            unit, size = one.text("unit"), int(one.this.name)
            if unit in UNITS:
                return Literal(size * UNITS[unit], INTERVAL)
            return Literal(size * (12 if unit == "YEAR" else 1), MONTHS)
        case exp.Cast():
            return call("cast", read(one.this), type=_type(one.to))
        case exp.Escape():
            return call(
                "like", read(one.this.this), read(one.this.expression), read(one.expression)
            )
        case exp.Is():
            is_null = isinstance(one.expression, exp.Null)
            suffix = "null" if is_null else str(one.expression.this).lower()
            return call(f"is_{suffix}", read(one.this))
        case exp.In():
            return call("in", read(one.this), *map(read, one.expressions))
        case exp.Case():
            arms = [read(part) for arm in one.args["ifs"] for part in (arm.this, arm.args["true"])]
            default = one.args.get("default")
            return call("case", *arms, Literal(None, NULL) if default is None else read(default))
        case exp.DateTrunc():
            unit = Literal(one.text("unit"), STRING)
            zone = [read(one.args["zone"])] if one.args.get("zone") else []
            return call("date_trunc", unit, read(one.this), *zone)
        case exp.Array():
            return call("array", *map(read, one.expressions))
        case exp.Exists():
            return _over_list("exists", [one.this, one.expression], columns, scope)
        case exp.Anonymous(this="FORALL"):
            return _over_list("forall", one.expressions, columns, scope)
        case exp.Anonymous():
            return call(one.name.lower(), *map(read, one.expressions))
    if one.args.get("negate"):
        return call("not", call("like", read(one.this), read(one.expression)))
    arguments = [one.this] if isinstance(one, exp.Unary) else [one.this, one.expression]
    return call(OPERATORS[type(one)], *map(read, arguments))


def _over_list(
    function: str, arguments: list[Any], columns: Mapping[str, Type], scope: dict[str, Type]
) -> Node:
    elements = _node(arguments[0], columns, scope)
    assert elements.type.element is not None
    variable = Variable(arguments[1].expressions[0].name, elements.type.element)
    body = _node(arguments[1].this, columns, scope | {variable.name: variable.type})
    return call(function, elements, Lambda(variable, body))


def _literal(one: exp.Literal) -> Literal:
    if one.is_string:
        return Literal(one.this, STRING)
    if "e" in one.this:
        return Literal(float(one.this), FLOAT)
    if "." in one.this:
        return Literal(Decimal(one.this), natural(Decimal(one.this)))
    whole = int(one.this)
    # As in Spark, a number that is too large for an int is a decimal.
    return (
        Literal(whole, INT) if whole < 2**63 else Literal(Decimal(whole), natural(Decimal(whole)))
    )


def _type(one: exp.DataType) -> Type:
    if one.this == exp.DataType.Type.DECIMAL:
        return Type("decimal", *(int(part.name) for part in one.expressions))
    if one.this == exp.DataType.Type.ARRAY:
        return Type("list", element=_type(one.expressions[0]))
    return TYPES[one.this.value]
