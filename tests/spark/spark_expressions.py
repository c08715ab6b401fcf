"""Expressions in Spark's SQL, with NULL where Spark would raise."""

from __future__ import annotations

from typing import Any

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.nodes import Call, Column, Lambda, Literal, Node, Type, Variable
from boxmatch.model.expressions.rendering import sql_type

_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
_NAMES = {
    "starts_with": "startswith",
    "ends_with": "endswith",
    "position": "locate",
    "week": "weekofyear",
    "element_at": "try_element_at",
}
_INFIX = {"=", "<", "<=", "<=>", "and", "or", "like", "rlike"}
_SIDES = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_PARTS = temporal.PARTS


def ddl(type: Type) -> str:
    """The type of a column."""
    if type.name == "list":
        assert type.element is not None
        return f"ARRAY<{ddl(type.element)}>"
    if type.name == "struct":
        return f"STRUCT<{', '.join(f'{name}: {ddl(one)}' for name, one in type.fields)}>"
    return sql_type(type)


def spark_sql(node: Node) -> str:
    match node:
        case Column(name, _) | Variable(name, _):
            return name
        case Lambda(variable, body):
            return f"{variable.name} -> {spark_sql(body)}"
        case Literal(value, type):
            return _literal(value, type)
        case Call():
            text = _call(node)
            if node.type.name == "int" and node.function in (
                "+",
                "-",
                "*",
                "cast",
                "floor",
                "ceil",
                "round",
            ):
                return f"nullif({text}, CAST('-9223372036854775808' AS BIGINT))"
            if node.type.name == "float":
                return f"nullif({text}, CAST('NaN' AS DOUBLE))"
            return text


def _literal(value: Any, type: Type) -> str:
    if value is None:
        return f"CAST(NULL AS {ddl(type)})"
    match type.name:
        case "int":
            return f"{value}L"
        case "string":
            return f"r'{value}'"
        case "bool":
            return str(value)
        case "timestamp":
            return f"timestamp_micros({value}L)"
        case "interval":
            sign = "-" if value < 0 else ""
            return f"INTERVAL '{sign}{abs(value) // 10**6}.{abs(value) % 10**6:06}' SECOND"
        case "months":
            return f"INTERVAL '{value}' MONTH"
        case "list":
            assert type.element is not None
            inner = ", ".join(_literal(one, type.element) for one in value)
            return f"CAST(array({inner}) AS {ddl(type)})"
    return f"CAST('{value}' AS {ddl(type)})"


def _call(node: Call) -> str:
    texts = [spark_sql(one) for one in node.arguments]
    match node.function:
        case name if name in _TRY:
            return f"{_TRY[name]}({', '.join(texts)})"
        case "div":
            # Spark does not see when a quotient of decimals is no BIGINT.
            size = f"abs(try_divide(CAST({texts[0]} AS DOUBLE), CAST({texts[1]} AS DOUBLE)))"
            return f"(CASE WHEN {size} < 9.22E18D THEN {texts[0]} div {texts[1]} END)"
        case "like" if len(texts) == 3:
            return f"({texts[0]} LIKE {texts[1]} ESCAPE {texts[2]})"
        case name if name in _INFIX:
            return f"({f' {name} '.join(texts)})"
        case "not":
            return f"(NOT {texts[0]})"
        case "neg":
            return f"(- {texts[0]})"
        case "is_null":
            return f"({texts[0]} IS NULL)"
        case "is_true":
            return f"({texts[0]} IS TRUE)"
        case "in":
            return f"({texts[0]} IN ({', '.join(texts[1:])}))"
        case "case":
            *arms, last = texts
            pairs = zip(arms[::2], arms[1::2], strict=True)
            whens = " ".join(f"WHEN {condition} THEN {one}" for condition, one in pairs)
            return f"(CASE {whens} ELSE {last} END)"
        case "floor" | "ceil" as name if node.arguments[0].type.name == "float":
            there = f"abs({texts[0]}) < CAST('9223372036854775808' AS DOUBLE)"
            return f"(CASE WHEN {there} THEN {name}({texts[0]}) END)"
        case "cast" if node.type.name == "string" and node.arguments[0].type.name == "float":
            # In Spark -0.0 has a text of its own, though it is equal to 0.0.
            return f"(CASE WHEN {texts[0]} = 0 THEN '0.0' ELSE CAST({texts[0]} AS STRING) END)"
        case "power":
            return f"power({texts[0]} + CAST(0 AS DOUBLE), {texts[1]})"
        case "cast" if node.type.name == "timestamp" and node.arguments[0].type.name == "int":
            # Spark has the last timestamp for whatever is later.
            there = f"{texts[0]} BETWEEN -9223372036854L AND 9223372036854L"
            return f"(CASE WHEN {there} THEN try_cast({texts[0]} AS TIMESTAMP) END)"
        case "cast" if node.type.name == "timestamp" and node.arguments[0].type.name == "string":
            # Spark reads a time without a date as one of today.
            there = f"{texts[0]} RLIKE r'^\\s*[+-]?[0-9]{{4}}'"
            return f"(CASE WHEN {there} THEN try_cast({texts[0]} AS TIMESTAMP) END)"
        case "cast":
            return f"try_cast({texts[0]} AS {ddl(node.type)})"
        case "field":
            return f"{texts[0]}.{node.arguments[1].value}"  # type: ignore[union-attr]
        case name if name in _PARTS and len(texts) == 2:
            return f"{_NAMES.get(name, name)}(from_utc_timestamp({', '.join(texts)}))"
        case "trim" | "ltrim" | "rtrim" as name if len(texts) == 2:
            return f"trim({_SIDES[name]} {texts[1]} FROM {texts[0]})"
        case "round":
            return f"round({texts[0]}, {node.arguments[1].value})"  # type: ignore[union-attr]
        case "substring" | "right" as name:
            numbers = (f"CAST({one} AS INT)" for one in texts[1:])
            return f"{name}({', '.join((texts[0], *numbers))})"
        case "element_at":
            return f"try_element_at({texts[0]}, CAST({texts[1]} AS INT))"
    return f"{_NAMES.get(node.function, node.function)}({', '.join(texts)})"
