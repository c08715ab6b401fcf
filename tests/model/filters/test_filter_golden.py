"""Pairs of filter and boxes, as text: what the compiler makes of every construct."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.expressions.rendering import render as render_node
from boxmatch.model.filters import Bound, CompiledFilter, compile_filter, render
from boxmatch.model.filters.names import quote_name
from boxmatch.model.filters.scope import Scope
from boxmatch.model.keys import value_of
from boxmatch.model.schema import Schema

SCHEMA = Schema(
    {
        "symbol": "string",
        "price": "float",
        "volume": "int",
        "halted": "bool",
        "at": "timestamp",
        "side": ["buy", "sell", "hold"],
        "limit": "int",
        "tags": "list of string",
        "sizes": "list of int",
    }
)


def shown(compiled: CompiledFilter) -> list[str]:
    def end(position: int, bound: Bound) -> str:
        if isinstance(bound, tuple):
            return repr(bound[0]) + {-1: "-", 0: "", 1: "+"}[bound[1]]
        named = {ABSENT: "absent", FIRST: "first", LAST: "last"}.get(bound)
        value = None if named else value_of(scope.attributes[position], bound)
        return named or (
            str(value) if scope.attributes[position].type == "timestamp" else repr(value)
        )

    def name(position: int) -> str:
        kind = scope.kind(position)
        return scope.names[position] + ("" if kind == "value" else f" ({kind})")

    scope = Scope(SCHEMA, compiled.axes)
    return [
        " ".join(f"{name(i)}=[{end(i, low)}, {end(i, high)}]" for i, low, high in box) or "always"
        for box in compiled.boxes
    ] + [
        *([] if compiled.disjoint else ["(overlapping)"]),
        *(f"also {render_node(node, quote_name)}" for node in compiled.residual),
    ]


def golden() -> list[tuple[str, list[str]]]:
    pairs: list[tuple[str, list[str]]] = []
    text = Path(__file__).with_name("golden_filters.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("=> "):
            pairs[-1][1].append(line[3:])
        elif line and not line.startswith("#"):
            pairs.append((line, []))
    return pairs


@pytest.mark.parametrize(("text", "boxes"), golden(), ids=[text for text, _ in golden()])
def test_filter_compiles_to_these_boxes(text: str, boxes: list[str]) -> None:
    compiled = compile_filter(SCHEMA, text)
    assert shown(compiled) == boxes
    text = render(SCHEMA, compiled.boxes, compiled.axes, compiled.residual)
    assert compile_filter(SCHEMA, text) == compiled


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("symbol='IBM' and price>=20 and price<=30", "symbol = 'IBM' AND price BETWEEN 20 AND 30"),
        ("price < 30", "price < 30"),
        ("price > 0.1 AND price <= 30.5", "price > 0.1 AND price <= 30.5"),
        ("volume < 5", "volume <= 4"),
        ("volume <> 5", "volume <> 5"),
        ("volume NOT IN (5, 7)", "volume NOT IN (5, 7)"),
        ("volume NOT BETWEEN 5 AND 7", "volume NOT BETWEEN 5 AND 7"),
        ("volume IN (1, 3) OR volume > 9", "volume IN (1, 3) OR volume >= 10"),
        ("volume IN (1, 3) AND price > 1", "price > 1 AND volume IN (1, 3)"),
        ("volume IS NULL OR volume <> 3", "volume IS NULL OR volume <> 3"),
        ("symbol LIKE 'a\\_b%'", "symbol LIKE 'a\\_b%'"),
        ("symbol NOT LIKE 'ab%'", "symbol NOT LIKE 'ab%'"),
        ("symbol <> 'it''s'", "symbol <> 'it''s'"),
        ("NOT halted AND side <> 'buy'", "NOT halted AND side <> 'buy'"),
        ("halted IS NOT TRUE", "halted IS NULL OR NOT halted"),
        ("side IN ('sell', 'hold') AND volume = 1", "volume = 1 AND side <> 'buy'"),
        ("at < '2024-03-01T00:00:00Z'", "at < TIMESTAMP '2024-03-01 00:00:00'"),
        ("\"limit\" = 1", '"limit" = 1'),
        ("volume = 1 AND price = 1 OR volume = 2 AND price = 2",
         "(price = 1 AND volume = 1) OR (price = 2 AND volume = 2)"),
        ("volume > 5 AND volume < 3", "FALSE"),
        ("TRUE", "TRUE"),
        ("volume >= 1 OR volume < 1", "volume IS NOT NULL"),
    ],
)  # fmt: skip
def test_rendered_text_is_what_a_person_would_write(text: str, rendered: str) -> None:
    assert render(SCHEMA, compile_filter(SCHEMA, text).boxes) == rendered


def test_a_bound_of_the_wrong_side_is_refused() -> None:
    with pytest.raises(ValueError, match="no bound"):
        render(SCHEMA, [((0, ("a", -1), LAST),)])


def test_boxes_that_no_filter_compiles_to_still_render() -> None:
    # As from arrays of numbers: bools as keys up to LAST, timestamps beyond year 9999.
    assert render(SCHEMA, [((3, 0, LAST),)]) == "halted IS NOT NULL"
    assert render(SCHEMA, [((3, 1, LAST),)]) == "halted"
    far = render(SCHEMA, [((4, FIRST + 1, 2**62),)])
    assert compile_filter(SCHEMA, far).boxes == (((4, FIRST + 1, 2**62),),)


@pytest.mark.parametrize(
    "name",
    [
        *("date", "left", "year", "select", "Not", "case", "interval", "any", "if", "next", "end"),
        *("current_date", "timestamp", "rows", "true", "null", "e", "n", "x", "b", "values"),
        *("position", "user", "array", "map", "row", "index", "value", "is", "like", "escape"),
        *("div", "a.b", "a b", '"', "it's", "1st", "é"),
    ],
)
def test_every_name_can_be_rendered(name: str) -> None:
    for kind, texts in {
        "int": ["= 1", "IS NULL", "IN (1, 3)", "NOT BETWEEN 3 AND 5", "> 7"],
        "string": ["LIKE 'a%'", "= 'a'"],
        "bool": ["= TRUE", "= FALSE"],
    }.items():
        schema = Schema({"other": "int", name: kind})
        quoted = '"' + name.replace('"', '""') + '"'
        for text in texts:
            compiled = compile_filter(schema, f"other = 1 AND {quoted} {text}")
            rendered = render(schema, compiled.boxes)
            assert compile_filter(schema, rendered) == compiled, rendered
            alone = compile_filter(schema, f"{quoted} {text}")
            assert compile_filter(schema, render(schema, alone.boxes)) == alone
