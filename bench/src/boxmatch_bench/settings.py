"""What is measured: presets, each a list of settings, with published figures to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from boxmatch.workloads import EqualityWorkload, RangeWorkload

Workload = RangeWorkload | EqualityWorkload


@dataclass(frozen=True)
class Reference:
    """A published figure, measured in another run: compare only on a similar machine."""

    label: str
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One workload to measure. `updates` is how many subscriptions are added, then removed."""

    preset: str
    workload: Workload
    reference: Reference | None = None
    updates: int = 10_000


def _cpp(milliseconds: float, algorithm: str = "HEM, wide OR") -> Reference:
    # The papers' own authors' C++ at -O3, which counts matches and does not list ids.
    return Reference(f"{algorithm} (C++)", milliseconds * 1000)


def _ranges(preset: str, reference: Reference | None, **parameters: Any) -> Setting:
    return Setting(
        preset=preset,
        workload=RangeWorkload(**parameters),
        reference=reference,
    )


def _sweeps() -> Iterable[Setting]:
    hem = {"attributes": 20, "predicates": 10, "event_size": 20, "width": 0.3}
    default = _ranges("hem-default", _cpp(0.855), **hem)
    yield replace(default, updates=100_000)
    for width, best in ((0.1, 0.849), (0.5, 0.539), (0.7, 0.360), (0.9, 0.172)):
        yield _ranges("width", _cpp(best), predicates=5, width=width)
    for predicates, best in ((5, 0.473), (10, 0.564), (20, 0.736), (30, 0.892)):
        yield _ranges(
            "subscription-size",
            _cpp(best),
            attributes=30,
            predicates=predicates,
            event_size=30,
            width=0.7,
        )
    for event_size, best in ((30, 1.51), (50, 2.40), (80, 2.45)):
        yield _ranges("event-size", _cpp(best), attributes=80, event_size=event_size)
    for attributes, reference in (
        (30, _cpp(0.668)),
        (100, _cpp(0.995)),
        (300, _cpp(2.20)),
        (900, _cpp(2.11, "OpIndex")),
    ):
        yield _ranges("attributes", reference, attributes=attributes, width=0.5)
    for subscriptions in (300_000, 1_000_000, 3_000_000):
        best_known = _cpp(0.855) if subscriptions == 1_000_000 else None
        yield _ranges("subscriptions", best_known, **hem, subscriptions=subscriptions)
    yield Setting(
        preset="equality",
        workload=EqualityWorkload(),
        reference=Reference("be-tree (C)", 2.7),
    )
    yield _ranges(
        "ranges-10k",
        Reference("be-tree (C)", 1_012),
        **hem | {"predicates": 5},
        subscriptions=10_000,
    )
    yield _ranges("ranges-100k", Reference("be-tree (C)", 20_765), **hem, subscriptions=100_000)


def _by_preset(settings: Iterable[Setting]) -> dict[str, tuple[Setting, ...]]:
    presets: dict[str, tuple[Setting, ...]] = {}
    for setting in settings:
        presets[setting.preset] = (*presets.get(setting.preset, ()), setting)
    return presets


PRESETS: Final[Mapping[str, tuple[Setting, ...]]] = _by_preset(_sweeps())
"""Settings by name, the default first. The sweeps are those of the HEM paper."""


def choose(
    presets: Iterable[str], overrides: Mapping[str, Any], updates: int | None = None
) -> list[Setting]:
    """The settings of `presets` (`all` is all of them) with workload parameters replaced.

    A setting whose parameters were changed loses its reference, which no longer applies. An
    override that a workload does not have is an error, never ignored.
    """
    chosen = []
    for name in presets:
        if name != "all" and name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)} and all")
        for setting in _flat(PRESETS.values()) if name == "all" else PRESETS[name]:
            known = {field.name for field in fields(setting.workload)}
            for parameter in overrides:
                if parameter not in known:
                    raise ValueError(f"the {setting.preset} workload has no {parameter!r} to set")
            workload = replace(setting.workload, **overrides)
            if replace(workload, seed=setting.workload.seed) != setting.workload:
                setting = replace(setting, reference=None)
            chosen.append(
                replace(
                    setting,
                    workload=workload,
                    updates=setting.updates if updates is None else updates,
                )
            )
    return chosen


def _flat(groups: Iterable[tuple[Setting, ...]]) -> Iterable[Setting]:
    return (setting for group in groups for setting in group)
