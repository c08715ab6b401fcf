"""What the documentation says was measured is what the rows beside it give."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from boxmatch_bench.reproduce import pages
from boxmatch_bench.reproduce.catalogue import PAPERS, choose
from boxmatch_bench.reproduce.claims import UNMEASURED
from boxmatch_bench.reproduce.kept import MOST_BYTES, keep, kept, run_of
from boxmatch_bench.reproduce.report import report
from boxmatch_bench.reproduce.tables import grids_of, verdicts_of


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    return kept(pages.RESULTS)


@pytest.fixture(scope="module")
def made(rows: list[Any]) -> dict[str, str]:
    return pages.parts(rows)


class TestPages:
    @pytest.mark.parametrize("name", pages.PAGES)
    def test_are_what_the_rows_give(self, name: str, made: dict[str, str]) -> None:
        page = (pages.DOCS / name).read_text(encoding="utf-8")
        assert "<!-- generated: " in page
        assert pages.with_parts(page, made) == page, (
            "write the pages anew: python -m boxmatch_bench.reproduce.pages"
        )

    def test_have_every_part_once(self, made: dict[str, str]) -> None:
        text = "".join((pages.DOCS / name).read_text(encoding="utf-8") for name in pages.PAGES)
        begins = Counter(found["name"] for found in pages._PART.finditer(text))
        assert begins == dict.fromkeys(made, 1)
        assert text.count("<!-- generated: ") == len(made)

    def test_a_changed_figure_shows(self, rows: list[Any]) -> None:
        name = "rein-subscriptions"
        slower = [
            {**row, "single": {**row["single"], "mean": 3 * row["single"]["mean"]}}
            if row["experiment"] == name and row["series"] == "REIN" and "single" in row
            else row
            for row in rows
        ]
        page = (pages.DOCS / "reproduction.md").read_text(encoding="utf-8")
        assert pages.with_parts(page, pages.parts(slower)) != page

    def test_are_written(self, tmp_path: Path) -> None:
        for name in (*pages.PAGES, pages.RESULTS.name):
            shutil.copy(pages.DOCS / name, tmp_path / name)
        results = tmp_path / pages.RESULTS.name
        assert pages.write(tmp_path, results) == []
        page = tmp_path / "indexes.md"
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("| ---", "| x | ---", 1), encoding="utf-8")
        other = text.replace("generated: default setting", "generated: nothing")
        if other != text:
            with pytest.raises(KeyError):
                pages.with_parts(other.replace("end: default setting", "end: nothing"), {})


class TestResults:
    def test_are_few_bytes(self) -> None:
        assert pages.RESULTS.stat().st_size <= MOST_BYTES

    def test_are_of_everything(self, rows: list[Any]) -> None:
        wanted = {
            (e.name, point.x, series.label)
            for e in choose(["all"])
            for point in e.points
            if not point.full
            for series in e.measured
        }
        assert wanted <= {(row["experiment"], row["x"], row["series"]) for row in rows}

    def test_are_comparable(self, rows: list[Any]) -> None:
        places = [(row["experiment"], row["x"], row["series"]) for row in rows]
        assert len(places) == len(set(places))
        for name in ("seed", "machine", "scale"):
            assert len({json.dumps(row[name]) for row in rows}) == 1
        assert rows[0]["scale"] == 1
        # Of commits, not of what somebody had changed.
        assert not any(row["commit"].endswith("+") for row in rows)

    def test_every_claim_has_a_verdict(self, rows: list[Any]) -> None:
        grids = grids_of(PAPERS, rows)
        unjudged = [
            (name, verdict.claim.text)
            for name, paper in PAPERS.items()
            if name != "subject-spaces-spark"
            for verdict in verdicts_of(paper, grids)
            if verdict.word == UNMEASURED
        ]
        assert unjudged == []

    def test_are_the_report(self, rows: list[Any]) -> None:
        page = report(rows, run_of(rows))
        for experiment in choose(["all"]):
            assert f'id="{experiment.name}"' in page
        assert "Not measured in this run." not in page.replace("Spark", "")


class TestKept:
    def test_come_back_whole(self, tmp_path: Path) -> None:
        head = {"scale": 1.0, "seed": 1, "commit": "abc", "event_file": None, "paper": "hem"}
        some = [
            {**head, "experiment": "x", "single": {"mean": 1.23456789, "bins": [2.0, 3.25]}},
            {**head, "paper": "rein", "experiment": "y", "took_seconds": 123456.789},
            {**head, "experiment": "z", "single": {"mean": 1.23456789, "bins": [2.0, 3.25]}},
        ]
        keep(some, tmp_path / "r.jsonl")
        assert kept(tmp_path / "r.jsonl") == [
            {**head, "experiment": "x", "single": {"mean": 1.234568, "bins": [2, 3.25]}},
            {**head, "paper": "rein", "experiment": "y", "took_seconds": 123456.8},
            {**head, "experiment": "z", "single": {"mean": 1.234568, "bins": [2, 3.25]}},
        ]
        text = (tmp_path / "r.jsonl").read_text()
        assert text.count("abc") == text.count("took_seconds") == 1
        assert text.count("bins") == 1  # measured once for two experiments
        assert run_of(kept(tmp_path / "r.jsonl"))["commit"] == "abc"

    def test_are_not_too_large(self, tmp_path: Path) -> None:
        path = tmp_path / "r.jsonl"
        with pytest.raises(ValueError, match="bytes of results are more than"):
            keep([{"experiment": "x" * MOST_BYTES}], path)
        assert not path.exists()
