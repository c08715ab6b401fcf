"""From measured rates to a cluster: what so many subscriptions and events a second would need.

Everything here is arithmetic on rows that `boxmatch bench spark --json` wrote; `docs/scaling.md`
says the formulas in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from boxmatch_bench.tables import Row, Table, number

_PAIR_BYTES: Final = 16
"""Two ids of eight bytes, before compression."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is asked of the cluster, and what its machines are."""

    subscriptions: int = 1_000_000_000
    events_per_second: int = 1_000_000
    machine_cores: int = 64
    machine_bytes: int = 512 * 10**9
    index_share: float = 0.75
    """How much of a machine's memory the index may take."""
    busy: float = 0.7
    """How much of the cores' time may be spent in the long run."""
    batch_seconds: float = 10.0


@dataclass(frozen=True)
class Rates:
    """What one row says, for one core or one subscription."""

    subscriptions: int
    event_microseconds: float
    """Core time of an event on Spark, reading and writing included."""
    row_microseconds: float
    """The part of it that is not matching: what another copy of the event costs."""
    build_microseconds: float
    """Core time of a subscription in `build_index`."""
    index_bytes: float
    """Of a subscription."""
    event_bytes: int
    """Eight bytes for the id and for each attribute."""
    match_share: float
    """How likely a subscription wants an event."""

    @property
    def matching_microseconds(self) -> float:
        """The part that grows with subscriptions."""
        return self.event_microseconds - self.row_microseconds

    @classmethod
    def of(cls, row: Row) -> Rates:
        count, events, cores = (
            row["parameters"]["subscriptions"],
            row["events"],
            row["options"]["cores"],
        )
        # The same shards as Spark's workers have, whichever index is the fastest alone.
        alone = row["engine"]["shards"]
        return cls(
            count,
            1e6 * cores * row["spark"]["seconds"] / events,
            1e6 * cores * max(0.0, row["spark"]["seconds"] - alone["match_seconds"]) / events,
            1e6 * cores * row["prepare"]["build_seconds"] / count,
            row["prepare"]["index_bytes"] / count,
            8 * (1 + row["parameters"]["attributes"]),
            row["spark"]["pairs"] / events / count,
        )


@dataclass(frozen=True)
class Need:
    """What a plan needs of a cluster."""

    plan: str
    cores: float
    """If the cost beyond what was measured grows as subscriptions do: the safe figure."""
    cores_if_growth_holds: float
    """If it grows as it did between the settings that were measured."""
    machines: int
    memory: float
    """Bytes of the index on one machine."""
    fits: bool
    """Does that go into the share of a machine's memory that the index may take?"""
    shards: int
    event_rows: float
    """Rows a second that reach tasks: events times shards."""
    events_network: float
    """Bytes a second."""


def growth(rows: Sequence[Row]) -> float | None:
    """The exponent g if the time to match goes as subscriptions ** g, by least squares.

    None if there are fewer than two numbers of subscriptions. Settings with another number of
    events than the largest are left out: what a job costs by itself would tilt the line.
    """
    largest = _largest(rows)
    rates = [Rates.of(row) for row in rows if row["events"] == largest["events"]]
    if len({rate.subscriptions for rate in rates}) < 2:
        return None
    logs = np.log([[rate.subscriptions, rate.matching_microseconds] for rate in rates])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _largest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: (row["parameters"]["subscriptions"], row["events"]))


def needs(rates: Rates, exponent: float | None, target: Target) -> tuple[Need, Need]:
    """The replicated and the sharded plan."""
    times = target.subscriptions / rates.subscriptions
    index = target.subscriptions * rates.index_bytes
    room = target.machine_bytes * target.index_share

    def need(plan: str, shards: int) -> Need:
        copies = (shards - 1) * rates.row_microseconds

        def cores(factor: float) -> float:
            spent = rates.matching_microseconds * factor + rates.row_microseconds + copies
            return target.events_per_second * spent / 1e6 / target.busy

        safe = cores(times)
        rows = float(target.events_per_second * shards)
        return Need(
            plan,
            safe,
            safe if exponent is None else cores(times**exponent),
            max(shards, math.ceil(safe / target.machine_cores)),
            index / shards,
            index / shards <= room,
            shards,
            rows,
            rows * rates.event_bytes,
        )

    return need("replicated", 1), need("sharded", max(2, math.ceil(index / room)))


def estimate_tables(rows: Sequence[Row]) -> list[Table]:
    """What the row with most subscriptions says, and what follows from it."""
    rates, exponent = Rates.of(_largest(rows)), growth(rows)
    return [_measured(rates, exponent), _needed(rates, exponent, Target())]


def _measured(rates: Rates, exponent: float | None) -> Table:
    rows = (
        ("core time of an event, µs", number(rates.event_microseconds)),
        ("of that not matching, µs", number(rates.row_microseconds)),
        ("core time to index a subscription, µs", number(rates.build_microseconds)),
        ("index, bytes a subscription", number(rates.index_bytes)),
        ("event, bytes", number(rates.event_bytes)),
        ("matches of an event, a million subscriptions", number(1e6 * rates.match_share)),
        (
            "matching goes as subscriptions to the power of",
            "?" if exponent is None else f"{exponent:.2f}",
        ),
    )
    return Table(f"Measured at {rates.subscriptions:,} subscriptions", ("", ""), rows)


def _needed(rates: Rates, exponent: float | None, target: Target) -> Table:
    both = needs(rates, exponent, target)
    title = (
        f"{target.subscriptions:,} subscriptions, {target.events_per_second:,} events a second "
        f"(machines of {target.machine_cores} cores and {target.machine_bytes / 1e9:,.0f} GB, "
        f"cores {target.busy:.0%} busy)"
    )
    pairs = target.events_per_second * target.subscriptions * rates.match_share
    build = target.subscriptions * rates.build_microseconds / 1e6 / 3600
    rows = (
        ("shards", [f"{need.shards:,}" for need in both]),
        ("cores, if cost grows as subscriptions do", [number(need.cores) for need in both]),
        (
            "cores, if it goes on growing as measured",
            ["?" if exponent is None else number(n.cores_if_growth_holds) for n in both],
        ),
        ("machines", [f"{need.machines:,}" for need in both]),
        (
            "index on a machine, GB",
            [number(n.memory / 1e9) + ("" if n.fits else " (does not fit)") for n in both],
        ),
        ("rows to tasks, millions a second", [number(need.event_rows / 1e6) for need in both]),
        ("events over the network, GB/s", [number(need.events_network / 1e9) for need in both]),
        ("pairs, millions a second", [number(pairs / 1e6)] * 2),
        ("pairs written, GB/s", [number(pairs * _PAIR_BYTES / 1e9)] * 2),
        (
            f"events in a batch of {target.batch_seconds:g} s, millions",
            [number(target.events_per_second * target.batch_seconds / 1e6)] * 2,
        ),
        ("building the index once, core hours", [number(build)] * 2),
        (
            "the index to all machines, TB",
            [number(n.memory * n.machines / 1e12) for n in both],
        ),
    )
    columns = ("", *(need.plan for need in both))
    return Table(title, columns, tuple((name, *cells) for name, cells in rows))
