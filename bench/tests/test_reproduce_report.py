from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from boxmatch_bench.reproduce import contest, report, tables
from boxmatch_bench.reproduce.catalogue import choose
from boxmatch_bench.reproduce.comparisons import change, percent_less, percent_more, times
from boxmatch_bench.reproduce.experiment import Experiment
from boxmatch_bench.reproduce.quantities import BATCH, MATCHES, SINGLE
from boxmatch_bench.reproduce.tables import NOT_COMPARABLE, Grid
from boxmatch_bench.timing import Effort
from command_line import Command

RUN = {"scale": 1.0, "seed": 1, "event_file": None, "commit": "abc"}
ORIGIN: dict[str, Any] = {
    **RUN,
    "version": "0",
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cpu": "abacus", "cores": 2, "system": "Linux"},
    "python": "3.13",
    "packages": {"numpy": "2"},
}


def row(experiment: Experiment, x: float | str, series: str, time: float, **more: Any) -> Any:
    """A row in which everything takes `time` microseconds."""
    (point,) = (p for p in experiment.points if p.x == x)
    chosen = next(s for s in experiment.measured if s.label == series)
    figures: dict[str, Any] = {
        "single": {"mean": time, "max": time, "min": time, "std": 0.0, "events": 500},
        "batch": {"match": time / 2, "count": time / 4},
        "matches": {"per_event": 3.0, "events": 500},
        "memory": {"parts": {"all": 10**6}, "total": 10**6},
        "build_seconds": 1.0,
        "insertion": {"one": time, "many": time, "all": time},
        "deletion": {"one": time, "many": time},
        "marks": {"time": time, "per_event": 5.0, "avoided": 0.5},
        "profile": [{"matches": 8.0, "events": 4, "microseconds": time}],
        "checked_events": 10,
        **{
            kind: {"mean": time, "transitions": 3.0}
            for kind in ("adding", "random", "incremental", "subscribing", "removing")
        },
        "parts": {"mark": 0.5, "compare": 0.25, "rest": 0.25},
        "latency": {"mean": time, "times_less": {"low": 0.9, "mean": 1.0, "high": 1.1}},
        "counts": {
            kind: {"candidates": time, "traversed": time}
            for kind in ("adding", "random", "incremental")
        },
        "durable": {"mean": time, "per_second": 1e6 / time, "transitions": 10.0},
    }
    return {
        "paper": experiment.paper,
        "experiment": experiment.name,
        "x": x,
        "series": series,
        "index": chosen.index,
        "workload": {"subscriptions": point.workload.subscriptions},
        **figures,
        **ORIGIN,
        **more,
    }


def rows_of(experiment: Experiment) -> list[Any]:
    """`tile` first, each series as fast as its place; NumPy last."""
    labels = sorted((s.label for s in experiment.measured), key=lambda s: (s != "tile", s))
    return [
        row(experiment, point.x, label, 100.0 * place)
        for point in experiment.points
        for place, label in enumerate(labels, 1)
    ]


def experiment(name: str) -> Experiment:
    (chosen,) = choose([name])
    return chosen


@pytest.fixture(scope="module")
def page() -> str:
    return report.report([r for e in choose(["all"]) for r in rows_of(e)], RUN)


class Links(HTMLParser):
    """Collects what a page would load or lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, content in attrs:
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                self.found.append(content or "")
            if name == "id":
                self.ids.add(content or "")


class TestReport:
    def test_has_every_experiment(self, page: str) -> None:
        ids = Links(page).ids
        for chosen in choose(["all"]):
            assert {chosen.paper, chosen.name} <= ids
            assert f'href="#{chosen.name}"' in page

    def test_shows_what_is_on_spark_if_that_was_measured(self, page: str) -> None:
        chosen = choose(["subject-spaces-spark"])
        assert Links(page).ids.isdisjoint(e.name for e in chosen)
        made = report.report([r for e in chosen for r in rows_of(e)], RUN)
        assert {"subject-spaces-spark", *(e.name for e in chosen)} <= Links(made).ids
        assert "the time on Spark in that of spaces alone" in made

    def test_loads_nothing(self, page: str) -> None:
        assert all(link.startswith("#") for link in Links(page).found)
        assert "default-src 'none'" in page
        assert "<link" not in page
        assert "@import" not in page
        # What is left once the compressed library is put aside names no address at all.
        outside = re.sub(r'id="library">.*?</script>', "", page, flags=re.DOTALL)
        assert not re.search(r"https?:|//[a-z]", outside.replace("<!doctype html>", ""))

    def test_library_is_whole(self, page: str) -> None:
        packed = re.search(r'id="library">(.*?)</script>', page, re.DOTALL)
        assert packed is not None
        library = gzip.decompress(base64.b64decode(packed[1])).decode()
        assert "window.vegaEmbed" in library

    def test_is_small(self, page: str) -> None:
        assert len(page.encode()) < 1_000_000

    def test_charts_compile(self, page: str) -> None:
        import vl_convert

        found = re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)
        assert found is not None
        drawn = json.loads(found[1])
        assert len(drawn) == page.count('class="chart"')
        assert len(drawn) == sum(len(e.y) for e in choose(["all"]))
        for chart in drawn[:: len(drawn) // 8]:
            svg = vl_convert.vegalite_to_svg({**chart, "width": 300})
            assert svg.startswith("<svg")

    def test_same_rows_same_page(self) -> None:
        rows = rows_of(experiment("hem-width"))
        assert report.report(rows, RUN) == report.report(rows, RUN)

    def test_text_is_escaped(self) -> None:
        rows = rows_of(experiment("hem-width"))
        rows[0]["machine"] = {"cpu": "</script><b>x", "cores": 1, "system": "&"}
        assert "</script><b>x" not in report.report(rows, RUN)

    def test_says_what_was_not_measured(self) -> None:
        page = report.report(rows_of(experiment("hem-width")), RUN)
        assert page.count("Not measured in this run.") == len(choose(["all"])) - 1

    def test_needs_its_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        report.require_plotting()
        monkeypatch.setitem(sys.modules, "vl_convert", None)
        with pytest.raises(report.PlottingError, match=r"boxmatch\[bench\]"):
            report.require_plotting()


class TestGrid:
    def test_figures(self) -> None:
        chosen = experiment("hem-subscriptions")
        rows = [
            row(chosen, n, label, time)
            for n, times in ((300_000, (800.0, 100.0)), (1_000_000, (3000.0, 600.0)))
            for label, time in zip(("REIN", "HEM"), times, strict=True)
        ]
        grid = Grid(chosen, rows)
        assert grid.value(SINGLE, "HEM", 300_000) == pytest.approx(0.1)
        for figure, wanted, unit in (
            (times(SINGLE, "REIN", "HEM"), 6.5, "×"),
            (times(SINGLE, "REIN", "HEM", at=1_000_000), 5, "×"),
            (percent_less(SINGLE, "HEM", "REIN", at=300_000), 87.5, "%"),
            (percent_more(SINGLE, "REIN", "HEM", at=300_000), 700, "%"),
            (replace(times(SINGLE, "HEM", "REIN", at=300_000), kind="percent"), 12.5, "%"),
            (change(BATCH, "HEM", 300_000, 1_000_000), 6, "×"),
        ):
            assert figure.measured(grid) == pytest.approx(wanted)
            assert figure.unit == unit
        assert times(SINGLE, "TAMA", "HEM").measured(grid) is None
        assert grid.value(SINGLE, "HEM", 3_000_000) is None
        assert grid.xs == [300_000, 1_000_000]

    @pytest.mark.parametrize(
        "other",
        [{"scale": 0.02}, {"workload": {"subscriptions": 10, "event_file": "ticks.txt"}}],
        ids=["scale", "events"],
    )
    def test_published_figures_are_only_set_against_their_own_setting(
        self, other: dict[str, Any]
    ) -> None:
        chosen = experiment("hem-subscriptions")
        rows = rows_of(chosen)
        grid, elsewhere = Grid(chosen, rows), Grid(chosen, [{**r, **other} for r in rows])
        for which, sources in ((grid, {"measured", "counting"}), (elsewhere, {"measured"})):
            drawn = {record["source"] for record in report.records_of(which, SINGLE)}
            assert drawn & {"measured", "counting"} == sources
            assert (NOT_COMPARABLE in report.report(which.rows, RUN)) is (which is elsewhere)
        found = contest.hem_default([elsewhere])
        assert found is not None
        assert all("C++" not in label for label, *_ in found.rows)


class TestTables:
    def test_ours_are_beside_the_published(self) -> None:
        chosen = experiment("hem-width")
        first, *_ = tables.tables(Grid(chosen, rows_of(chosen)))
        assert first.title == "Matching time, event by event (ms)"
        at = first.columns.index("Authors' C++, counting")
        assert first.rows[0][0] == "0.1"
        assert first.rows[0][at] == "0.244"
        assert first.rows[1][at] == ""  # nothing was published for 0.3

    def test_claims(self) -> None:
        chosen = experiment("rein-subscriptions")
        *_, claims = tables.tables(Grid(chosen, rows_of(chosen)))
        assert claims.rows[0][2:4] == ("14.0 ×", "1.25 ×")
        assert claims.rows[0][4].startswith("differs (within a factor of 1.5). Our SIENA")

    def test_refusals(self) -> None:
        chosen = experiment("rein-width")
        refused = row(chosen, 0.8, "H-TREE", 1.0, refused="would take 55 GB")
        for name in ("single", "batch", "memory", "matches"):
            del refused[name]
        rows = [r for r in rows_of(chosen) if (r["series"], r["x"]) != ("H-TREE", 0.8)]
        grid = Grid(chosen, [*rows, refused])
        first, *_ = tables.tables(grid)
        assert first.rows[-1][first.columns.index("H-TREE")] == tables.REFUSED
        (drawn, _) = report.charts(grid)
        assert drawn["layer"][1]["data"]["values"] == [
            {"x": 0.8, "text": "H-TREE: not enough memory"}
        ]
        assert "would take 55 GB" in report.report(grid.rows, RUN)

    def test_axis_shows_what_was_measured(self) -> None:
        chosen = experiment("hem-subscriptions")
        few = row(chosen, 1_000_000, "HEM", 1.0, workload={"subscriptions": 20_000})
        assert tables.shown_x(Grid(chosen, [few]), 1_000_000) == "20,000"

    def test_curves(self) -> None:
        chosen = experiment("rapidmatch-per-match-zipf")
        grid = Grid(chosen, rows_of(chosen))
        first, *_ = tables.tables(grid)
        assert first.rows[0][0] == "8"
        assert first.rows[0][first.columns.index("tile")] == "12.5"

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("rein-matches", "0.004"),  # 16 µs for 4 events
            ("rapidmatch-per-match-zipf", "0.471"),  # and for 34 matches
        ],
    )
    def test_curves_weigh_bins_by_what_they_hold(self, name: str, shown: str) -> None:
        chosen = experiment(name)
        bins = [
            {"matches": 8.0, "events": 3, "microseconds": 2.0},
            {"matches": 10.0, "events": 1, "microseconds": 10.0},
        ]
        rows = [row(chosen, chosen.points[-1].x, "tile", 1.0, profile=bins)]
        first, *_ = tables.tables(Grid(chosen, rows))
        assert first.rows[0][first.columns.index("tile")] == shown


class TestFindings:
    def test_where_tile_is_not_the_fastest(self) -> None:
        chosen = experiment("hem-width")
        rows = rows_of(chosen)
        table, won = contest.tile_not_fastest([Grid(chosen, rows)])
        assert table.rows == ()
        assert won == 3 * len(chosen.points)
        (hem,) = (r for r in rows if (r["series"], r["x"]) == ("HEM", 0.9))
        hem["batch"]["match"] = 40.0
        (ada,) = (r for r in rows if (r["series"], r["x"]) == ("Ada-REIN", 0.9))
        ada["batch"]["match"] = 1.0  # not exact, so no rival
        table, won = contest.tile_not_fastest([Grid(chosen, rows)])
        assert table.rows == (("hem-width", "0.9", BATCH.label, "0.05", "HEM", "0.04", "1.25×"),)
        assert won == 3 * len(chosen.points) - 1

    def test_hem_default_has_shares_of_numpy_and_the_cpp(self) -> None:
        chosen = experiment("hem-subscriptions")
        times = {"REIN": 11.0, "HEM": 1.9, "TAMA": 2.0, "OpIndex": 30.0, "NumPy": 20.0}
        rows = [row(chosen, 1_000_000, label, 1000 * ms) for label, ms in times.items()]
        table = contest.hem_default([Grid(chosen, rows)])
        assert table is not None
        cells = {label: figures for label, *figures in table.rows}
        assert cells["REIN"][3] == "0.55"
        assert cells["Authors' C++, counting"][2] == "0.216"
        assert contest.hem_default([]) is None


@pytest.fixture
def command(run_boxmatch: Command) -> Command:
    return partial(run_boxmatch, "bench")


class TestCommand:
    def test_runs_resumes_and_restarts(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Effort, "at_scale", classmethod(lambda cls, scale: cls(0.02)))
        arguments = ("reproduce", "rein-buckets", "--scale", "0.001", "--out", str(tmp_path))
        done = command(*arguments)
        assert done.code == 0
        assert "Figure 9" in done.out
        assert "tile is the fastest exact index" in done.out
        rows = (tmp_path / "results.jsonl").read_text().splitlines()
        assert len(rows) == 27
        assert "rein-buckets" in (tmp_path / "report.html").read_text()
        command(*arguments)
        assert (tmp_path / "results.jsonl").read_text().splitlines() == rows
        command(*arguments, "--restart")
        again = (tmp_path / "results.jsonl").read_text().splitlines()
        assert len(again) == 27
        assert again != rows

    def test_list(self, command: Command) -> None:
        done = command("reproduce", "--list")
        assert done.code == 0
        assert all(e.name in done.out for e in choose(["all"]))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "name a paper"),
            (("nope",), "no paper or experiment is called 'nope'"),
            (("rein", "--scale", "0"), "scale must be above 0"),
            (("hem", "--events", "nowhere.txt"), "nowhere.txt"),
        ],
    )
    def test_refuses_bad_parameters(
        self, command: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        done = command("reproduce", *arguments, "--out", str(tmp_path))
        assert done.code == 2
        assert message in " ".join(done.err.replace("│", " ").split())

    def test_wrong_answers_fail(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from boxmatch.indexes.tile.index import TileIndex

        right = TileIndex.count
        monkeypatch.setattr(TileIndex, "count", lambda self, *a, **k: right(self, *a, **k) + 1)
        done = command("reproduce", "rein-buckets", "--scale", "0.001", "--out", str(tmp_path))
        assert done.code == 1
        assert "wrong answer: rein-buckets at 50: tile: count differs from match" in done.err

    def test_help_shows_both_commands(self, command: Command) -> None:
        done = command("--help")
        assert done.code == 0
        assert "reproduce" in done.out
        assert "bench PRESET" in done.out

    def test_presets_need_no_command(self, command: Command) -> None:
        assert "no preset 'nope'" in " ".join(command("nope").err.replace("│", " ").split())
        assert "no preset 'nope'" in " ".join(command("run", "nope").err.replace("│", " ").split())
        assert "Usage: boxmatch bench run" in command("--width", "0.1", "--help").out


@pytest.mark.slow
def test_everything_at_a_small_scale(command: Command, tmp_path: Path) -> None:
    done = command("reproduce", "all", "--scale", "0.02", "--out", str(tmp_path))
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    wanted = {
        (e.name, p.x, s.label)
        for e in choose(["all"])
        for p in e.points
        if not p.full
        for s in e.measured
    }
    assert {(r["experiment"], r["x"], r["series"]) for r in rows} == wanted
    of_events = {e.name for e in choose(["all"]) if e.method == "matching"}
    for measured in rows:
        if measured["experiment"] not in of_events:
            counted = "counts" in measured  # of the workload, not of an index
            assert counted or measured.get("checked_operations") or measured["checked_events"]
            continue
        assert (
            ("refused" in measured)
            or MATCHES.of(measured) is not None
            or (measured["index"] == "numpy" and SINGLE.of(measured) is not None)
        )
        assert "refused" not in measured or measured["index"] in ("htree", "rapid", "numpy")
    assert (tmp_path / "report.html").stat().st_size < 1_500_000
