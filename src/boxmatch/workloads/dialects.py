"""Event patterns of EventBridge, and events as JSON texts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between, check_choice

Rules = Literal["values", "operators"]

_SIZES: Final = {
    "source": 50,
    "detail-type": 200,
    "account": 2_000,
    "region": 20,
    "state": 6,
    "user": 20_000,
}
"""Fields with names, and how many different ones they have."""

_NAMES: Final = tuple(_SIZES)
_INSIDE: Final = ("state", "user")
"""Those in `detail`."""

_ENDINGS: Final = ("png", "jpg", "csv", "log")
_FOLDERS: Final = 4_000
_FILES: Final = 100_000
_CENTS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class DialectWorkload:
    """Rules of three `values`, or of other `operators`, and events of ten fields in 300 bytes.

    Rules of values are about three fields of six, which are drawn for each. Of those of operators a
    third are ranges of prices, a third prefixes, suffixes and wildcards of paths, and a third
    `anything-but`; prices and `anything-but` are about one source each.
    """

    subscriptions: int = 100_000
    rules: Rules = "values"
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("rules", self.rules, Rules)
        check_between(self, 0, math.inf, "subscriptions")

    def patterns(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Subscriptions `start:stop` as event patterns."""
        drawn = streams.columns(self.seed, "subscriptions", start, stop, _draw_rules)
        rows = zip(*(column.tolist() for column in drawn.values()), strict=True)
        make = _values if self.rules == "values" else _operators
        return [
            make(number, dict(zip(drawn, row, strict=True)))
            for number, row in enumerate(rows, start)
        ]

    def filters(self, start: int, stop: int) -> list[str]:
        """The same as JSON texts."""
        return [json.dumps(one) for one in self.patterns(start, stop)]

    def event_dicts(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Events `start:stop`."""
        drawn = streams.columns(self.seed, "events", start, stop, _draw_events)
        rows = zip(*(column.tolist() for column in drawn.values()), strict=True)
        return [_event(dict(zip(drawn, row, strict=True))) for row in rows]

    def events(self, start: int, stop: int) -> list[bytes]:
        """The same as JSON texts."""
        return [json.dumps(one).encode() for one in self.event_dicts(start, stop)]


def _draw_rules(rng: np.random.Generator, rows: int) -> dict[str, Int64Array]:
    names = {name: rng.integers(0, size, rows) for name, size in _SIZES.items()}
    order = rng.random((rows, len(_SIZES))).argsort(axis=1)[:, :3]
    chosen = {f"field{place}": order[:, place] for place in range(3)}
    return {**names, **chosen, **_draw_details(rng, rows), "width": rng.integers(1, 10_000, rows)}


def _draw_events(rng: np.random.Generator, rows: int) -> dict[str, Int64Array]:
    names = {name: rng.integers(0, size, rows) for name, size in _SIZES.items()}
    return {
        **names,
        **_draw_details(rng, rows),
        "quantity": rng.integers(1, 1_000, rows),
        "id": rng.integers(0, 2**62, rows),
    }


def _draw_details(rng: np.random.Generator, rows: int) -> dict[str, Int64Array]:
    return {
        "folder": rng.integers(0, _FOLDERS, rows),
        "file": rng.integers(0, _FILES, rows),
        "ending": rng.integers(0, len(_ENDINGS), rows),
        "price": rng.integers(0, _CENTS, rows),
    }


def _name(field: str, number: int) -> str:
    if field == "account":
        return f"{100_000_000_000 + number}"
    return f"{field}-of-the-shop-{number}" if field == "detail-type" else f"{field}-{number}"


def _values(_: int, drawn: dict[str, int]) -> dict[str, Any]:
    pattern: dict[str, Any] = {}
    for place in range(3):
        name = _NAMES[drawn[f"field{place}"]]
        inside = pattern.setdefault("detail", {}) if name in _INSIDE else pattern
        inside[name] = [_name(name, drawn[name])]
    return pattern


def _operators(number: int, drawn: dict[str, int]) -> dict[str, Any]:
    source = [_name("source", drawn["source"])]
    if number % 3 == 0:
        low = drawn["price"]
        test: Any = {"numeric": [">=", low / 100, "<", (low + drawn["width"]) / 100]}
        return {"source": source, "detail": {"price": [test]}}
    if number % 3 == 1:
        return {"detail": {"path": [_path_test(number // 3 % 3, drawn)]}}
    return {
        "source": source,
        "region": [{"anything-but": [_name("region", drawn["region"])]}],
        "detail": {"state": [{"anything-but": _name("state", drawn["state"])}]},
    }


def _path_test(kind: int, drawn: dict[str, int]) -> dict[str, str]:
    folder, ending = f"/folders/{drawn['folder']}/", _ENDINGS[drawn["ending"]]
    if kind == 0:
        return {"prefix": folder}
    if kind == 1:
        return {"suffix": f"/{drawn['file']}.{ending}"}
    return {"wildcard": f"{folder}*.{ending}"}


def _event(drawn: dict[str, int]) -> dict[str, Any]:
    path = f"/folders/{drawn['folder']}/{drawn['file']}.{_ENDINGS[drawn['ending']]}"
    return {
        "id": f"{drawn['id']:032x}",
        **{name: _name(name, drawn[name]) for name in _NAMES if name not in _INSIDE},
        "detail": {
            **{name: _name(name, drawn[name]) for name in _INSIDE},
            "path": path,
            "price": drawn["price"] / 100,
            "quantity": drawn["quantity"],
        },
    }
