"""Words that a shell offers: names of presets, indexes and experiments."""

from __future__ import annotations

from boxmatch.cli.completion import fitting


def preset_names(incomplete: str) -> list[str]:
    """Presets of `boxmatch bench`."""
    from boxmatch_bench.settings import PRESETS

    return fitting([*PRESETS, "all"], incomplete)


def index_names(incomplete: str) -> list[str]:
    """Indexes by name."""
    from boxmatch.indexes.registry import index_names

    return fitting(list(index_names()), incomplete)


def experiment_names(incomplete: str) -> list[str]:
    """Papers, and their experiments."""
    from boxmatch_bench.cli.reproduce_pada import NAMES
    from boxmatch_bench.reproduce.catalogue import PAPERS

    single = [one.name for paper in PAPERS.values() for one in paper.experiments]
    return fitting([*PAPERS, "all", *single, *NAMES], incomplete)
