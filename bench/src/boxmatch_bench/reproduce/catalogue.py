"""All experiments, by paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from boxmatch_bench.reproduce import ada_rein, hem, rapidmatch, rein, subject_spaces
from boxmatch_bench.reproduce.experiment import Experiment, Paper

PAPERS: Final[Mapping[str, Paper]] = {
    "rapidmatch": rapidmatch.PAPER,
    "rein": rein.PAPER,
    "ada-rein": ada_rein.PAPER,
    "hem": hem.PAPER,
    "subject-spaces": subject_spaces.PAPER,
    "subject-spaces-spark": subject_spaces.SPARK,
}
"""Papers by the name that the command takes; the last is not part of `all`."""


def choose(names: Iterable[str]) -> list[Experiment]:
    """The experiments of papers, of single experiments by name, or of all; each one once."""
    everything = [experiment for paper in PAPERS.values() for experiment in paper.experiments]
    known = {"all": [experiment for experiment in everything if experiment.method != "spark"]}
    known |= {name: list(paper.experiments) for name, paper in PAPERS.items()}
    known |= {experiment.name: [experiment] for experiment in everything}
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name not in known:
            raise ValueError(
                f"no paper or experiment is called {name!r}; there are {', '.join(PAPERS)} and "
                "all, and the experiments that --list shows"
            )
        chosen |= {experiment.name: experiment for experiment in known[name]}
    return list(chosen.values())
