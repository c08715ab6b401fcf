"""All experiments, by paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from boxmatch_bench.reproduce import ada_rein, hem, rapidmatch, rein, subject_spaces
from boxmatch_bench.reproduce.experiment import Experiment


class Paper(NamedTuple):
    """A paper, and what we redo of it."""

    title: str
    experiments: tuple[Experiment, ...]
    left_out: str


PAPERS: Final[Mapping[str, Paper]] = {
    "rapidmatch": Paper(
        "RAPIDMatch: event matching for events with few relevant properties",
        rapidmatch.EXPERIMENTS,
        "Nothing.",
    ),
    "rein": Paper(
        "REIN: rectangle intersection",
        rein.EXPERIMENTS,
        "More than 2,000,000 subscriptions (the paper's parameters go to 10,000,000, its figures "
        "do not).",
    ),
    "ada-rein": Paper(
        "Ada-REIN: predicate skipping",
        ada_rein.EXPERIMENTS,
        "Figure 5, the latency of a broker under a changing load (Ada-REIN shortens it 2.09 times, "
        "from 57.11 to 27.32 ms, and its deviation 1.65 times, from 33.19 to 20.07): it is about "
        "the controller, and has a command and a report of its own, pada.",
    ),
    "hem": Paper(
        "HEM: hardware-aware event matching",
        hem.EXPERIMENTS,
        "5,000,000 to 9,000,000 subscriptions. Over all its experiments the paper finds HEM's "
        "matching time 86.8, 86.3, 82.1 and 45.3 % below those of REIN, Ada-REIN, OpIndex and "
        "TAMA.",
    ),
    "subject-spaces": Paper(
        "Subject spaces: publications that stay",
        subject_spaces.EXPERIMENTS,
        "Inserting subscriptions and deleting publications, which the paper expects to take the "
        "same time as inserting publications and does not draw.",
    ),
}
"""Papers by the name that the command takes."""


def choose(names: Iterable[str]) -> list[Experiment]:
    """The experiments of papers, of single experiments by name, or of all; each one once."""
    everything = {e.name: e for paper in PAPERS.values() for e in paper.experiments}
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name == "all":
            chosen |= everything
        elif name in PAPERS:
            chosen |= {e.name: e for e in PAPERS[name].experiments}
        elif name in everything:
            chosen[name] = everything[name]
        else:
            raise ValueError(
                f"no paper or experiment is called {name!r}; there are {', '.join(PAPERS)} and "
                "all, and the experiments that --list shows"
            )
    return list(chosen.values())
