"""Results for people (tables) and for programs (JSON lines)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

Result = Mapping[str, Any]

_SHORT = {
    "subscriptions": "subscriptions",
    "attributes": "d",
    "predicates": "k",
    "event_size": "event size",
    "width": "w",
    "values": "values",
    "event_file": "events",
}


def append_json(path: Path, result: Result) -> None:
    """Add one result as one line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")


def tables(results: Sequence[Result]) -> Iterator[Table]:
    """For each preset a table of its settings, and one of its competitors if it has any."""
    for preset, group in groupby(results, key=lambda result: str(result["preset"])):
        same = list(group)
        title, varying = _title(preset, same)
        yield _figures(title, varying, same)
        if any(result["competitors"] for result in same):
            yield _rivals(f"{preset}: competitors in the same run", varying, same)


def _title(preset: str, results: Sequence[Result]) -> tuple[str, list[str]]:
    """The preset with the parameters that its settings share, and those that they do not."""
    first = results[0]["parameters"]
    recorded = first.get("event_file") is not None
    unused = "values" if recorded else "event_file"  # an event file has values of its own
    shown = [name for name in _SHORT if name in first and name != unused]
    varying = [n for n in shown if any(r["parameters"][n] != first[n] for r in results)]
    shared = ", ".join(f"{_SHORT[n]} = {shown_value(first[n])}" for n in shown if n not in varying)
    return f"{preset} ({shared})", varying


def table_of(title: str, *headings: str, labels: int = 0) -> Table:
    """A table without rows yet; the first `labels` columns are texts, the others figures."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < labels else "right")
    return table


def _table(title: str, varying: list[str]) -> Table:
    return table_of(title, *(_SHORT[name] for name in varying))


def _setting(result: Result, varying: list[str]) -> list[str]:
    return [shown_value(result["parameters"][name]) for name in varying]


def _figures(title: str, varying: list[str], results: Sequence[Result]) -> Table:
    table = _table(title, varying)
    published = any(result["reference"] for result in results)
    headings = (
        "count\nµs/event", "match\nµs/event", "matches\n/event", "single\np50 µs", "\np99 µs",
        *(("best known\nµs/event", "count\nfaster") if published else ()),
        "build\nper s", "subscribe\nµs", "unsubscribe\nµs", "memory\nMB",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right")
    for result in results:
        batch, single, updates = result["batch"], result["single"], result["updates"]
        known = _known(result) if published else ()
        table.add_row(
            *_setting(result, varying),
            number(batch["count_microseconds"]),
            number(batch["match_microseconds"]),
            number(batch["matches_per_event"]),
            number(single["p50_microseconds"]) if single else "",
            number(single["p99_microseconds"]) if single else "",
            *known,
            number(result["build"]["per_second"]),
            number(updates["subscribe_microseconds"]) if updates else "",
            number(updates["unsubscribe_microseconds"]) if updates else "",
            number(memory_bytes(result) / 1e6),
        )
    return table


def _known(result: Result) -> tuple[str, str]:
    """The published figure, and how many times faster counting was."""
    known = result["reference"]
    if not known:
        return "", ""
    took = known["microseconds"]
    times = number(took / result["batch"]["count_microseconds"])
    return f"{number(took)}\n{known['label']}", f"{times}×"


def _rivals(title: str, varying: list[str], results: Sequence[Result]) -> Table:
    table = _table(title, varying)
    table.add_column("competitor")
    for heading in ("µs/event", "events", "slower than\nmatch_batch", "slower than\nmatch (p50)"):
        table.add_column(heading, justify="right")
    for result in results:
        batch, single = result["batch"], result["single"]
        for name, figures in result["competitors"].items():
            cells = [*_setting(result, varying), name]
            if "skipped" in figures:
                table.add_row(*cells, figures["skipped"])
                continue
            took = figures["microseconds"]
            table.add_row(
                *cells,
                number(took),
                f"{figures['events']:,}",
                f"{number(took / batch['match_microseconds'])}×",
                f"{number(took / single['p50_microseconds'])}×" if single else "",
            )
    return table


def shown_value(value: object) -> str:
    """A parameter: counts with separators for thousands, the rest as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def number(value: float) -> str:
    """About three significant digits, with separators for thousands."""
    if value >= 100:
        return f"{value:,.0f}"
    if 0 < value < 0.1:
        return f"{value:.2g}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def memory_bytes(result: Result) -> int:
    """What the process grew by, or what the matcher says where that is more.

    It is more where the process had room already, and where the system does not tell.
    """
    memory = result["memory"]
    resident: int | None = memory["resident"]
    said: int = memory["parts"]["total"]
    return max(said, resident or 0)
