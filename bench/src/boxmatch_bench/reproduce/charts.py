"""Charts: a Vega-Lite specification for each quantity that an experiment draws."""

from __future__ import annotations

from typing import Any, Final

from boxmatch_bench.reproduce.experiment import NUMPY
from boxmatch_bench.reproduce.quantities import Quantity
from boxmatch_bench.reproduce.tables import REFUSED, Grid, place_of, refusal

Record = dict[str, Any]
Specification = dict[str, Any]

# Told apart by people who see colours differently, and readable on light and on dark.
_COLOURS: Final = {
    "tile": "#d62728",
    "tile, skipping": "#ff9896",
    "HEM": "#1f77b4",
    "REIN": "#2ca02c",
    "Ada-REIN": "#98c379",
    "TAMA": "#9467bd",
    "OpIndex": "#8c564b",
    "SIENA": "#e69f00",
    "H-TREE": "#17becf",
    "CountMatch": "#e69f00",
    "TreeMatch": "#2ca02c",
    "RAPIDMatch": "#1f77b4",
    "100,000 publications": "#d62728",
    "10,000 publications": "#e69f00",
    "1,000 publications": "#2ca02c",
    "100 publications": "#1f77b4",
    "full": "#d62728",
    "normal": "#1f77b4",
    "in memory": "#2ca02c",
    NUMPY.label: "#999999",
}
_DASHES: Final = [[1, 0], [4, 4], [2, 3], [6, 2]]
_SHAPES: Final = ["circle", "diamond", "square", "triangle-up"]
_HEIGHT: Final = 300


def charts(grid: Grid) -> list[Specification]:
    """A specification for each quantity that is drawn and was measured."""
    made = []
    for quantity in grid.experiment.y:
        records = curve_records(grid, quantity) if quantity.curve else records_of(grid, quantity)
        if records:
            made.append(_chart(grid, quantity, records))
    return made


def records_of(grid: Grid, quantity: Quantity) -> list[Record]:
    """Our figures, and published ones if they are of the same setting, in the order of the axis."""
    records = []
    for series in grid.experiment.measured:
        for x in grid.xs:
            value = grid.value(quantity, series.label, x)
            if value is not None:
                records.append(_record(place_of(grid, x), value, series.label, "measured"))
    for figure in grid.experiment.published if grid.comparable else ():
        if figure.quantity == quantity and figure.x in grid.xs:
            place = place_of(grid, figure.x)
            records.append(_record(place, figure.value, figure.series, figure.source))
    return [r for r in records if r["y"] > 0 or not quantity.log]


def curve_records(grid: Grid, quantity: Quantity) -> list[Record]:
    """Figures by number of matches, of all rows of a series together."""
    records = [
        _record(round(matches, 1), value, row["series"], "measured")
        for row in grid.rows
        for matches, value in quantity.curve_of(row)
    ]
    return sorted(records, key=lambda record: (record["series"], record["x"]))


def _record(x: Any, y: float, series: str, source: str) -> Record:
    return {"x": x, "y": float(f"{y:.5g}"), "series": series, "source": source}


def _chart(grid: Grid, quantity: Quantity, records: list[Record]) -> Specification:
    axis = grid.experiment.x
    present = {record["series"] for record in records}
    labels = [s.label for s in grid.experiment.measured if s.label in present]
    sources = sorted({r["source"] for r in records}, key=lambda s: (s != "measured", s))
    numeric = all(isinstance(record["x"], (int, float)) for record in records)
    x = _numeric_axis(str(axis), axis.log) if numeric else _named_axis(str(axis))
    encoding = {
        "x": x,
        "y": {
            "field": "y",
            "type": "quantitative",
            "title": str(quantity),
            "scale": {"type": "log"} if quantity.log else {},
        },
        "color": _colours(labels),
        "tooltip": [
            {"field": "series", "title": grid.experiment.compared},
            {"field": "source", "title": "source"},
            {"field": "x", "title": str(axis)},
            {"field": "y", "title": str(quantity), "format": ",.4~g"},
        ],
    }
    shown = [{"filter": {"param": "shown"}}]
    lines = {
        "params": [
            {
                "name": "shown",
                "select": {"type": "point", "fields": ["series"], "toggle": "true"},
                "bind": "legend",
                "value": [{"series": label} for label in labels],
            },
            {
                "name": "zoom",
                "select": {"type": "interval", "encodings": ["x", "y"] if numeric else ["y"]},
                "bind": "scales",
            },
        ],
        "transform": shown,
        "mark": {"type": "line", "clip": True},
        "encoding": {"strokeDash": _source(_DASHES, sources)},
    }
    points = {
        "transform": shown,
        "mark": {"type": "point", "filled": True, "size": 48, "clip": True, "opacity": 1},
        "encoding": {"shape": _source(_SHAPES, sources)},
    }
    layers = [{"data": {"values": records}, "encoding": encoding, "layer": [lines, points]}]
    refusals = _refusals(grid, quantity)
    if refusals:
        layers.append(_refused(refusals, x))
    return {"width": "container", "height": _HEIGHT, "layer": layers}


def _source(choices: list[Any], sources: list[str]) -> Specification:
    """How measured figures and published ones are told apart."""
    return {
        "field": "source",
        "title": None,
        "scale": {"domain": sources, "range": choices[: len(sources)]},
        "legend": {} if len(sources) > 1 else None,
    }


def _numeric_axis(title: str, log: bool) -> Specification:
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"nice": False, "padding": 12, **({"type": "log"} if log else {"zero": False})},
        "axis": {"grid": False, **({"format": "~s"} if log else {})},
    }


def _named_axis(title: str) -> Specification:
    axis = {"labelAngle": -30}
    return {"field": "x", "type": "ordinal", "title": title, "sort": None, "axis": axis}


def _colours(labels: list[str]) -> Specification:
    return {
        "field": "series",
        "title": None,
        "scale": {"domain": labels, "range": [_COLOURS.get(label, "#7f7f7f") for label in labels]},
        "legend": {"symbolType": "stroke", "symbolStrokeWidth": 3},
    }


def _refusals(grid: Grid, quantity: Quantity) -> list[Record]:
    found: dict[Any, list[str]] = {}
    for row in grid.rows:
        if refusal(row, quantity) and row["index"] != NUMPY.index:
            found.setdefault(place_of(grid, row["x"]), []).append(row["series"])
    return [{"x": x, "text": f"{', '.join(who)}: {REFUSED}"} for x, who in found.items()]


def _refused(refusals: list[Record], x: Specification) -> Specification:
    """Who ran out of memory where, written upwards from the axis."""
    return {
        "data": {"values": refusals},
        "mark": {"type": "text", "angle": 270, "align": "left", "dx": 6, "dy": -6, "opacity": 0.7},
        "encoding": {"x": x, "y": {"value": _HEIGHT}, "text": {"field": "text"}},
    }
