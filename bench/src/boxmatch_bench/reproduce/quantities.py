"""What is read off a row: a label, a unit, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal


@dataclass(frozen=True)
class Quantity:
    """A number in a row, found by its path and shown in its unit.

    `shared` says that it is the same for all indexes at a place, so that it is shown once.
    `curve` says that it is not one number but many, one for each number of matches: `event` for
    the time of an event, `match` for the time of each of its matches.
    """

    label: str
    unit: str
    path: tuple[str, ...]
    factor: float = 1.0
    log: bool = False
    shared: bool = False
    curve: Literal["event", "match"] | None = None

    def of(self, row: Mapping[str, Any]) -> float | None:
        """The number, or None where the row has none."""
        if self.curve is not None:
            return None
        found: Any = row
        for key in self.path:
            if not isinstance(found, Mapping) or found.get(key) is None:
                return None
            found = found[key]
        return self.factor * float(found)

    def curve_of(self, row: Mapping[str, Any]) -> list[tuple[float, float]]:
        """Numbers of matches, and the quantity at each."""
        return [(part["matches"], self.over([part])) for part in bins_of(row)]

    def over(self, bins: Iterable[Mapping[str, Any]]) -> float:
        """A curve's quantity for several bins together: each weighs as much as it holds."""
        time = weight = 0.0
        for part in bins:
            time += part["events"] * part["microseconds"]
            weight += part["events"] * (part["matches"] if self.curve == "match" else 1.0)
        return self.factor * time / weight

    def __str__(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


def bins_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Events by their number of matches, without those that have none."""
    return [part for part in row.get("profile", ()) if part["matches"] > 0]


SINGLE: Final = Quantity("Matching time, event by event", "ms", ("single", "mean"), 1e-3, log=True)
BATCH: Final = Quantity("Matching time, in batches", "ms", ("batch", "match"), 1e-3, log=True)
COUNT: Final = Quantity("Counting time, in batches", "ms", ("batch", "count"), 1e-3, log=True)
SLOWEST: Final = replace(SINGLE, label="Maximum", path=("single", "max"))
FASTEST: Final = replace(SINGLE, label="Minimum", path=("single", "min"))
DEVIATION: Final = replace(SINGLE, label="Standard deviation", path=("single", "std"))
MATCHES: Final = Quantity("Matches", "per event", ("matches", "per_event"), shared=True)
MATCHES_OF_400: Final = replace(
    MATCHES, label="Matched subscriptions", unit="of 400 events", factor=400
)
ONES: Final = Quantity("Ones of an event", "", ("ones",), shared=True)
SLOWEST_MATCHES: Final = Quantity("Matches of the slowest event", "", ("single", "max_matches"))
FASTEST_MATCHES: Final = Quantity("Matches of the fastest event", "", ("single", "min_matches"))
BUILD: Final = Quantity("Time to build from all subscriptions", "s", ("build_seconds",), log=True)
MEMORY: Final = Quantity("Memory", "MB", ("memory", "total"), 1e-6, log=True)
INSERTION: Final = Quantity(
    "Insertion time, 1,000 at a time", "µs per subscription", ("insertion", "many"), log=True
)
INSERTION_ONE: Final = replace(
    INSERTION, label="Insertion time, one at a time", path=("insertion", "one")
)
INSERTION_ALL: Final = replace(
    INSERTION, label="Insertion time, making room included", path=("insertion", "all")
)
FIRST_INSERTION: Final = replace(
    INSERTION,
    label="First insertion, which makes room",
    unit="ms",
    path=("insertion", "first"),
    factor=1e-3,
)
DELETION: Final = Quantity(
    "Deletion time, 1,000 at a time", "µs per subscription", ("deletion", "many"), log=True
)
DELETION_ONE: Final = replace(
    DELETION, label="Deletion time, one at a time", path=("deletion", "one")
)
MARKING: Final = Quantity("Marking time", "ms", ("marks", "time"), 1e-3, log=True)
COMPARING_SHARE: Final = Quantity("Comparing", "% of matching", ("parts", "compare"), 100)
MARKING_SHARE: Final = replace(COMPARING_SHARE, label="Marking", path=("parts", "mark"))
REST_SHARE: Final = replace(COMPARING_SHARE, label="The rest", path=("parts", "rest"))
MARKS: Final = Quantity("Boxes marked one by one", "per event", ("marks", "per_event"), log=True)
EXPECTED_RATE: Final = Quantity(
    "F1, tolerated rate of false positives", "%", ("errors", "rate"), 100
)
MEASURED_RATE: Final = Quantity("F2, measured rate", "%", ("errors", "measured"), 100)
SKIPPED_PREDICATES: Final = Quantity("Y, predicates skipped", "", ("errors", "predicates"))
SKIPPED_ATTRIBUTES: Final = Quantity("X, attributes skipped", "", ("errors", "attributes"))
EXPECTED_IMPROVEMENT: Final = Quantity(
    "R1, expected improvement", "%", ("errors", "improvement"), 100
)
IMPROVEMENT: Final = Quantity("R2, measured improvement", "%", ("errors", "gain"), 100)
TIME_BY_MATCHES: Final = Quantity(
    "Matching time", "ms", ("profile",), 1e-3, log=True, curve="event"
)
TIME_PER_MATCH: Final = Quantity(
    "Running time per match", "µs", ("profile",), log=True, curve="match"
)
ADDING: Final = Quantity("Time to add a publication", "ms", ("adding", "mean"), 1e-3, log=True)
SUBSCRIBING: Final = replace(
    ADDING, label="Time to add a subscription", path=("subscribing", "mean")
)
REMOVING: Final = replace(ADDING, label="Time to remove a publication", path=("removing", "mean"))
RANDOM_UPDATE: Final = replace(ADDING, label="Time of a random update", path=("random", "mean"))
INCREMENTAL_UPDATE: Final = replace(
    ADDING, label="Time of an incremental update", path=("incremental", "mean")
)
RANDOM_TOGETHER: Final = replace(
    ADDING, label="The same, 100 of them in one operation", path=("random_together", "mean")
)
INCREMENTAL_TOGETHER: Final = replace(RANDOM_TOGETHER, path=("incremental_together", "mean"))
TOLD_BY_ADDING: Final = Quantity("Transitions", "per operation", ("adding", "transitions"))
TOLD_BY_RANDOM: Final = replace(TOLD_BY_ADDING, path=("random", "transitions"))
TOLD_BY_INCREMENTAL: Final = replace(TOLD_BY_ADDING, path=("incremental", "transitions"))
UPDATE_BY_MATCHES: Final = replace(TIME_BY_MATCHES, label="Time of an update")
FIXED_TIME: Final = Quantity("Time of an update that changes no match", "µs", ("line", "fixed"))
TIME_OF_EACH: Final = Quantity("Time added by each match that changes", "ns", ("line", "each"))
CORRELATION: Final = Quantity("Correlation of time and matches", "", ("line", "correlation"))
UPDATES_PER_SECOND: Final = Quantity("Updates", "per second", ("durable", "per_second"))
WAITED: Final = Quantity("Wait of a caller", "ms", ("durable", "mean"), 1e-3, log=True)
TRANSITIONS: Final = Quantity("Transitions", "per update", ("durable", "transitions"))
DISK_SYNCS: Final = Quantity(
    "Syncs of the disk, one after the other",
    "per second",
    ("disk", "syncs_per_second"),
    shared=True,
)
_COUNTED: Final = Quantity("", "per operation", (), log=True, shared=True)
TRAVERSED_BY_ADDING: Final = replace(
    _COUNTED, label="Ends that adding would traverse", path=("counts", "adding", "traversed")
)
TRAVERSED_BY_RANDOM: Final = replace(
    _COUNTED, label="Ends, random update", path=("counts", "random", "traversed")
)
TRAVERSED_BY_INCREMENTAL: Final = replace(
    _COUNTED, label="Ends, incremental update", path=("counts", "incremental", "traversed")
)
CANDIDATES_OF_ADDING: Final = replace(
    _COUNTED, label="Candidates of adding", path=("counts", "adding", "candidates")
)
CANDIDATES_OF_RANDOM: Final = replace(
    _COUNTED, label="Candidates, random update", path=("counts", "random", "candidates")
)
CANDIDATES_OF_INCREMENTAL: Final = replace(
    _COUNTED, label="Candidates, incremental update", path=("counts", "incremental", "candidates")
)
BY_FORMULA: Final = {
    name: replace(_COUNTED, label=f"Table 2, {name}", unit="steps", path=("counts", "table", name))
    for name in ("naïve", "counting", "Gough", "Gryphon, worst case")
}
LATENCY: Final = Quantity("Mean latency", "ms", ("latency", "mean"), log=True)
LATENCY_DEVIATION: Final = replace(
    LATENCY, label="Standard deviation of latency", path=("latency", "deviation")
)
LATENCY_RATIO: Final = Quantity(
    "REIN's mean latency", "times this", ("latency", "times_less", "mean")
)
LOWEST_RATIO: Final = replace(
    LATENCY_RATIO, label="of which 95 % are from", path=("latency", "times_less", "low")
)
HIGHEST_RATIO: Final = replace(LATENCY_RATIO, label="to", path=("latency", "times_less", "high"))
WAITED_RATE: Final = Quantity("Mean rate", "%", ("latency", "rate"), 100)
BOXES_HELD: Final = Quantity("Boxes held", "% of all", ("held",), 100)
AVOIDED: Final = Quantity("Marks avoided", "%", ("marks", "avoided"), 100)
