"""The parts of the documentation that say what was measured, made from the rows that are kept.

A page has a place for each part, between two comments that name it:

    <!-- generated: hem -->
    <!-- end: hem -->

`python -m boxmatch_bench.reproduce.pages` writes the parts anew; with the results of a run, it
keeps those first. Tests compare the pages with the rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from boxmatch_bench.provenance import shown_commit
from boxmatch_bench.reproduce import ada_rein
from boxmatch_bench.reproduce import quantities as q
from boxmatch_bench.reproduce.catalogue import PAPERS
from boxmatch_bench.reproduce.claims import counted
from boxmatch_bench.reproduce.contest import contest_by_experiment, hem_default, tile_not_fastest
from boxmatch_bench.reproduce.kept import keep, kept
from boxmatch_bench.reproduce.tables import (
    Grid,
    duration,
    grids_of,
    shown_x,
    verdicts_of,
    verdicts_table,
    was_shared,
)
from boxmatch_bench.results import Results
from boxmatch_bench.tables import Row, Table, number

DOCS: Final = Path(__file__).parents[4] / "docs"
RESULTS: Final = DOCS / "results.jsonl"
PAGES: Final = ("reproduction.md", "indexes.md", "adaptive.md")
_PART: Final = re.compile(
    r"(<!-- generated: (?P<name>[\w -]+) -->\n).*?(<!-- end: (?P=name) -->)", re.DOTALL
)

Grids = Mapping[str, Grid]


def parts(rows: Sequence[Row]) -> dict[str, str]:
    """The text of each part by name."""
    grids = grids_of(PAPERS, rows)
    made = {
        "run": _run(rows),
        "summary": _summary(grids),
        "tile": _tile(grids),
        "default setting": _markdown(hem_default(grids.values())),
        "by experiment": _markdown(contest_by_experiment(grids.values())),
        "skipping": _markdown(_skipping(grids)),
    }
    made |= {
        name: _markdown(verdicts_table(paper, grids))
        for name, paper in PAPERS.items()
        if name != "subject-spaces-spark"
    }
    return made


def with_parts(page: str, made: Mapping[str, str]) -> str:
    """The page with its parts made anew. Raises `KeyError` for a part that there is not."""
    return _PART.sub(lambda found: f"{found[1]}\n{made[found['name']]}\n{found[3]}", page)


def _run(rows: Sequence[Row]) -> str:
    first, begun = rows[0], sorted({row["date"][:16].replace("T", " ") for row in rows})
    packages = ", ".join(f"{name} {v}" for name, v in first["packages"].items() if v)
    machine = first["machine"]
    commits = " and ".join(dict.fromkeys(map(shown_commit, rows)))
    shared = ", which other programs used at the same time" if was_shared(rows) else ""
    return (
        f"Measured at scale {first['scale']:g} with seed {first['seed']} at commit {commits}, "
        f"begun at {', '.join(begun)} UTC: {len(rows):,} rows, {duration(rows)}. One thread for "
        f"each, on {machine['cpu']} with {machine['cores']} cores{shared}; "
        f"{machine['system']}, Python {first['python']}, {packages}.\n"
    )


def _summary(grids: Grids) -> str:
    lines = []
    for name, paper in PAPERS.items():
        verdicts = verdicts_of(paper, grids)
        if name != "subject-spaces-spark":
            lines.append(f"- {paper.title}: {counted(verdicts)}.")
    return "\n".join(lines) + "\n"


def _tile(grids: Grids) -> str:
    slower, won = tile_not_fastest(
        grid for grid in grids.values() if len(grid) and grid.experiment.method == "matching"
    )
    total = won + len(slower.rows)
    return (
        f"`tile` is the fastest exact index in {won} of {total} comparisons (each setting three "
        f"times: matching in batches, counting in batches, event by event). The exceptions:\n\n"
        + _markdown(slower)
    )


def _skipping(grids: Grids) -> Table:
    """What skipping saves at each rate, in the settings of Table II."""
    grid = grids[ada_rein.RATES.name]
    labels = [s.label for s in grid.experiment.series if not s.exact]
    rows = []
    for x in grid.xs:
        cells: list[str] = [shown_x(grid, x)]
        for label in labels:
            cells += [
                "" if value is None else f"{number(value)} %"
                for value in (grid.value(one, label, x) for one in (q.IMPROVEMENT, q.MEASURED_RATE))
            ]
        rows.append(tuple(cells))
    heads = [head for label in labels for head in (f"{label}: time saved", "false matches")]
    return Table("", ("rate", *heads), tuple(rows))


def _markdown(table: Table | None) -> str:
    """A table of Markdown."""
    if table is None:
        return ""
    title = f"{table.title}\n\n" if table.title else ""
    if not table.rows:
        return title
    marks = ["---" if place < table.labels else "---:" for place in range(len(table.columns))]
    lines = [table.columns, marks, *table.rows]
    return title + "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")


def write(docs: Path = DOCS, results: Path = RESULTS) -> list[str]:
    """Write the parts of all pages anew; return the pages that changed."""
    made, changed = parts(kept(results)), []
    for name in PAGES:
        page = (docs / name).read_text(encoding="utf-8")
        fresh = with_parts(page, made)
        if fresh != page:
            (docs / name).write_text(fresh, encoding="utf-8")
            changed.append(name)
    return changed


def main(arguments: Sequence[str]) -> None:
    """Keep the results that are named, if any are, and write the pages."""
    for path in arguments[:1]:
        # Of what was measured more than once, as at another commit, the last.
        rows = Results(Path(path)).of_run({})
        keep({(r["experiment"], r["x"], r["series"]): r for r in rows}.values(), RESULTS)
    for name in write():
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
