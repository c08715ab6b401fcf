"""Attributes that are decimals: their digits, domains, bounds and files."""

from __future__ import annotations

import random
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import arrow_keys
from boxmatch.model.decimals import label_text, unscaled_numbers, unscaled_of_label
from boxmatch.model.keys import axis_text
from boxmatch.model.strings import StringAxis

EXACT = Context(prec=60)
BOTH = ["decimal(6, 2)", "decimal(20, 2)"]
"""Keys of their own, and labels."""


def test_what_a_type_may_be() -> None:
    for written, precision, scale in [
        ("decimal(10, 2)", 10, 2),
        ("decimal( 38 ,38 )", 38, 38),
        ("decimal(1)", 1, 0),
    ]:
        attribute = bm.Schema({"a": written})["a"]
        assert (attribute.type, attribute.precision, attribute.scale) == (
            "decimal",
            precision,
            scale,
        )
        assert attribute == bm.Attribute("a", "decimal", precision=precision, scale=scale)
        assert bm.Schema({"a": attribute.type_name})["a"] == attribute
    for written in ("decimal(39, 0)", "decimal(3, 4)", "decimal(3, -1)"):
        with pytest.raises(bm.SchemaError, match="a decimal has 1 to 38 digits"):
            bm.Schema({"a": written})
    with pytest.raises(bm.SchemaError, match="write a decimal with its digits"):
        bm.Schema({"a": "decimal"})
    with pytest.raises(bm.SchemaError, match="only a decimal has digits"):
        bm.Attribute("a", "int", precision=3)
    for written in ("decimal(3,)", "decimal()", "decimal(3, 1", "DECIMAL(3)"):
        with pytest.raises(bm.SchemaError, match="unknown type"):
            bm.Schema({"a": written})


@pytest.mark.parametrize("kind", BOTH)
def test_domains(kind: str, tmp_path: Path) -> None:
    schema = bm.Schema({"a": {"type": kind, "domain": ["-0.10", 5]}})
    assert schema["a"].domain == (Decimal("-0.1"), Decimal(5))
    assert bm.Schema.from_json(schema.to_json()) == schema
    assert bm.Schema.from_arrow(schema.to_arrow()) == schema
    matcher = bm.Matcher(schema)
    matcher.subscribe("a", "a > -1e20")
    for value in ("-0.1", 0, 5.0):
        assert matcher.match({"a": value}) == ["a"]
    for wrong in (-0.11, Decimal("5.01")):
        for events in (
            [{"a": wrong}],
            [{"a": wrong}] * 100,
            pa.table({"a": [Decimal(str(wrong))]}),
            np.array([[float(wrong)]]),
        ):
            with pytest.raises(bm.AttributeValueError, match=r"is outside the domain -0\.1 to 5"):
                matcher.match_batch(events)
    with pytest.raises(bm.SchemaError, match=r"domain: 0\.001 has more than the 2 decimal places"):
        bm.Schema({"a": {"type": kind, "domain": [0.001, 1]}})
    matcher.save(tmp_path / "saved")
    again = bm.Matcher.load(tmp_path / "saved")
    assert again.schema == schema
    assert again.match({"a": 1}) == ["a"]


@pytest.mark.parametrize("kind", BOTH)
def test_random_values_compare_as_python_compares_them(kind: str) -> None:
    """By text, by dict, by columns and in bulk; as single events and as columns of all kinds."""
    rng = random.Random(7)
    values = [Decimal(rng.randint(-999, 999)).scaleb(-2) for _ in range(200)]
    constants = [Decimal(rng.randint(-9999, 9999)).scaleb(-3) for _ in range(40)]
    bounds = rng.sample(values, 20)
    matcher = bm.Matcher({"a": kind}, max_boxes=64)
    wanted: dict[str, Any] = {}
    for c in constants:
        wanted |= {f"a >= {c}": lambda v, c=c: v >= c, f"a < {c}": lambda v, c=c: v < c}
        wanted |= {f"a = {c}": lambda v, c=c: v == c, f"a <> {c}": lambda v, c=c: v != c}
        wanted[f"NOT (a > {c} AND a < {c + 1})"] = lambda v, c=c: not c < v < c + 1
    matcher.subscribe_many([{"id": text, "filter": text} for text in wanted])
    matcher.subscribe("dict", {"a": {"low": constants[0], "low_open": True}})
    wanted["dict"] = lambda v: v > constants[0]
    matcher.subscribe("list", {"a": [*map(str, bounds), None]})
    wanted["list"] = lambda v: v in bounds
    names = [f"row {n}" for n in range(len(bounds))]
    highs = [low + 1 for low in bounds]
    matcher.subscribe_many(pa.table({"id": names, "a_low": bounds, "a_high": highs}))
    for name, low in zip(names, bounds, strict=True):
        wanted[name] = lambda v, low=low: low <= v <= low + 1
    expected = {(n, name) for n, v in enumerate(values) for name, ok in wanted.items() if ok(v)}
    column = pa.array(values, pa.decimal128(9, 3))
    for events in (
        [{"a": value} for value in values],
        [{"a": str(value)} for value in values],
        [{"a": float(value)} for value in values],
        [{"a": value if n % 2 else float(value)} for n, value in enumerate(values)],
        pa.table({"a": column}),
        pa.table({"a": column.cast(pa.string())}),
        pa.table({"a": list(map(float, values))}),
        np.array([[float(value)] for value in values]),
    ):
        result = matcher.match_batch(events)
        found = set(zip(result.event.tolist(), result.subscription.tolist(), strict=True))
        assert found == expected
    assert matcher.match({}) == ["list"]
    assert sorted(matcher.match({"a": values[0]})) == sorted(
        name for event, name in expected if event == 0
    )


def test_labels_sort_as_numbers_do() -> None:
    end = 10**38 - 1
    rng = random.Random(1)
    numbers = sorted({-end, -1, 0, 1, end, *(rng.randint(-end, end) for _ in range(100))})
    assert sorted(map(label_text, numbers)) == list(map(label_text, numbers))
    assert [unscaled_of_label(label_text(number)) for number in numbers] == numbers


def test_columns_of_long_decimals_have_the_keys_of_single_values() -> None:
    end = 10**38 - 1
    rng = random.Random(5)
    numbers = [-end, end, 0, 1, -1, 2**64, -(2**64), 256, -256]
    numbers += [rng.randint(-end, end) >> rng.randrange(127) for _ in range(300)]
    numbers += [number + 1 for number in numbers if number < end]
    values = [Decimal(number).scaleb(-7, EXACT) for number in numbers]
    schema = bm.Schema({"a": "decimal(38, 7)"})
    column = pa.array([*values, None], pa.decimal128(38, 7))
    for known in (values[::3], values[:1], []):
        axis = StringAxis(axis_text(schema["a"], value) for value in known)
        for start in (0, 5):
            keys = arrow_keys(schema["a"], axis, column.slice(start))
            single = [axis.key(axis_text(schema["a"], value)) for value in values[start:]]
            assert keys.tolist() == [*single, ABSENT]
        axis.add([axis_text(schema["a"], values[1])])  # what was packed is out of date
        assert arrow_keys(schema["a"], axis, column)[1] == axis.label(
            axis_text(schema["a"], values[1])
        )


def test_floats_are_the_decimals_that_they_are_written_as() -> None:
    rng = random.Random(3)
    numbers = [rng.randint(-(10**digits), 10**digits) for digits in range(1, 19) for _ in range(50)]
    for scale in (0, 3, 9, 18):
        floats = np.array([float(Decimal(number).scaleb(-scale)) for number in numbers])
        keys, refused = unscaled_numbers(floats, 18, scale)
        for place, number in enumerate(floats.tolist()):
            exact = Decimal(repr(number)).scaleb(scale)
            held = exact == exact.to_integral_value() and abs(exact) < 10**18
            if refused is not None and refused[place]:
                assert not held
                break  # only the first one is to be relied on
            assert held
            assert keys[place] == exact


def test_bounds_in_arrays() -> None:
    nan, inf = np.nan, np.inf
    matcher = bm.Matcher({"x": "float", "d": "decimal(6, 2)"})
    lows = [[0, 0.1], [nan, nan], [nan, -inf], [nan, inf], [0, 0.1], [nan, nan], [nan, 0.3]]
    highs = [[1, 0.3], [nan, 0.2], [nan, inf], [nan, nan], [1, -inf], [nan, nan], [nan, 0.1]]
    matcher.subscribe_boxes(range(7), np.array(lows), np.array(highs))
    assert [matcher.filter_of(row) for row in range(7)] == [
        "x BETWEEN 0 AND 1 AND d BETWEEN 0.1 AND 0.3",
        *("d <= 0.2", "d IS NOT NULL", "FALSE", "FALSE", "TRUE", "FALSE"),
    ]
    matcher.subscribe_boxes([7], np.array([[1, -(2**63)]]), np.array([[1, 9999]]))
    assert matcher.filter_of(7) == "x = 1 AND d <= 9999"
    for between in (0.125, 1e4):
        matcher.subscribe_boxes([9, 10], [[1, between], [1, nan]], [[1, between], [1, between]])
        assert matcher.filter_of(9) == "FALSE"
        assert matcher.filter_of(10).startswith("x = 1 AND d ")
    long = bm.Matcher({"d": "decimal(20, 2)"})
    with pytest.raises(bm.AttributeValueError, match=r"cannot be a bound of a decimal\(20, 2\) in"):
        long.subscribe_boxes([9], np.array([[1.0]]), np.array([[1.0]]))


@pytest.mark.parametrize("kind", BOTH)
def test_spaces_with_decimals(kind: str) -> None:
    spaces = bm.Spaces({"book": bm.Schema({"price": kind, "size": "int"})})
    spaces.subscribe("cheap", {"price": {"low": "0.10", "high": "0.30", "high_open": True}})
    spaces.subscribe("exact", {"price": Decimal("0.30")})
    for number, (price, wanted) in enumerate(
        [("0.1", ["cheap"]), (0.29, ["cheap"]), (Decimal("0.30"), ["exact"]), (5, [])]
    ):
        spaces.publish(number, {"price": price})
        assert spaces.matches_of_publication(number) == wanted
    with pytest.raises(
        bm.RegionError, match=r"'price': '0\.301' has more than the 2 decimal places"
    ):
        spaces.subscribe("bad", {"price": "0.301"})
    for points in (
        [{"price": Decimal("0.30"), "size": 1}],
        pa.table({"price": [Decimal("0.30")], "size": [1]}),
        np.array([[0.3, 1.0]]),
    ):
        spaces.update_publications([0], [{"price": 0.2, "size": 1}])
        assert spaces.matches_of_publication(0) == ["cheap"]
        spaces.update_publications([0], points)
        assert spaces.matches_of_publication(0) == ["exact"]
    region = spaces.get_subscription("cheap").regions["region"]
    assert region["price"] == bm.Interval(Decimal("0.1"), Decimal("0.3"), high_open=True)
