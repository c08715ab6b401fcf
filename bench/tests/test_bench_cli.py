"""`boxmatch bench` as it is typed, and where its results go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boxmatch.workloads import write_sample_events
from boxmatch_bench.cli.rows import JsonLines, with_json_path
from command_line import Command


class TestBench:
    QUICK = (
        "--event-count",
        "60",
        "--batch",
        "25",
        "--single",
        "10",
        "--updates",
        "40",
        "--repeats",
        "1",
    )

    def test_table_and_json(self, run_boxmatch: Command, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl"
        done = run_boxmatch("bench", "subscriptions", "expressions", "--subscriptions", "300",
                   "--index", "scan", "--json", str(path), *self.QUICK)  # fmt: skip
        assert done.code == 0
        assert "matches" in done.out
        assert "duckdb" in done.out
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["preset"] for line in lines] == 3 * ["subscriptions"] + 2 * ["expressions"]
        for line in lines:
            assert line["parameters"]["seed"] == 1
            assert {"commit", "date", "machine", "packages", "python", "version"} <= set(line)

    def test_says_what_it_was_measured_with(self, run_boxmatch: Command) -> None:
        small = ("--subscriptions", "300", "--index", "rein", "--index-option", "cells=7")
        done = run_boxmatch("bench", *small, "--competitors", "none", *self.QUICK)
        assert done.code == 0
        assert "index rein cells=7, 1 thread(s)" in " ".join(done.out.split())

    def test_json_instead_of_tables(self, run_boxmatch: Command) -> None:
        small = ("--subscriptions", "300", "--index", "scan", "--competitors", "none")
        done = run_boxmatch("bench", "subscriptions", *small, *self.QUICK, "--json")
        assert done.code == 0
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert len(lines) == 3
        again = run_boxmatch("bench", "--json", *small, *self.QUICK)
        assert json.loads(again.out)["preset"] == "hem-default"

    def test_experiments_as_json(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("bench", "reproduce", "--list", "--json")
        listed = [json.loads(line) for line in done.out.splitlines()]
        assert {"rein", "hem", "pada"} <= {line["paper"] for line in listed}
        assert all(set(line) == {"paper", "experiment", "figure", "title"} for line in listed)

    def test_events_from_a_file(self, run_boxmatch: Command, tmp_path: Path) -> None:
        events, out = tmp_path / "events.csv", tmp_path / "out.jsonl"
        write_sample_events(events)
        sizes = ("--attributes", "12", "--event-size", "12", "--predicates", "2")
        done = run_boxmatch("bench", "--events", str(events), *sizes, "--subscriptions", "300",
                   "--index", "scan", "--json", str(out), *self.QUICK)  # fmt: skip
        assert done.code == 0
        assert "events.csv" in done.out.replace("\n", "")
        (line,) = map(json.loads, out.read_text().splitlines())
        assert line["parameters"]["event_file"] == str(events)
        assert line["options"]["events"] == 60
        assert line["batch"]["matches_per_event"] > 0
        assert line["reference"] is None

    def test_refuses_a_bad_event_file(self, run_boxmatch: Command, tmp_path: Path) -> None:
        events = tmp_path / "events.csv"
        events.write_text("1 2\n3 x\n")
        for arguments, message in (
            (("--events", str(events)), "line 2, column 2: 'x' is not a number"),
            (("--events", str(tmp_path / "nothing")), "does not exist"),
            (("equality", "--events", str(events)), "has no 'event_file'"),
        ):
            done = run_boxmatch("bench", *arguments)
            assert done.code == 2
            shown = "".join(done.err.replace("│", " ").split())  # paths are broken anywhere
            assert "".join(message.split()) in shown

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("nope",), "no preset 'nope'"),
            (("--predicates", "21"), "predicates must be"),
            (("equality", "--width", "0.5"), "has no 'width'"),
            (("--competitors", "spark"), "no competitor 'spark'"),
            (("--batch", "0"), "batch must be at least 1"),
            (("--event-count", "0"), "events must be at least 1"),
            (("--index-option", "groups"), "not NAME=VALUE"),
        ],
    )
    def test_refuses_bad_parameters(
        self, run_boxmatch: Command, arguments: tuple[str, ...], message: str
    ) -> None:
        done = run_boxmatch("bench", *arguments)
        assert done.code == 2
        assert message in " ".join(done.err.replace("│", " ").split())

    def test_unknown_index(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("bench", "--index", "nope", "--subscriptions", "10")
        assert done.code == 2
        assert "nope" in done.err


def test_json_of_a_benchmark_may_go_without_a_path() -> None:
    assert with_json_path(["width", "--json"]) == ["width", "--json", "-"]
    assert with_json_path(["--json", "--seed", "3"]) == ["--json", "-", "--seed", "3"]
    for kept in (["--json", "out.jsonl"], ["--json", "-", "--seed", "3"], ["width"], []):
        assert with_json_path(kept) == kept


class TestJsonLines:
    def test_a_file_grows(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "out.jsonl"
        path.write_text('{"n": 1}\n')
        lines = JsonLines(path)
        lines.add({"n": 2})
        assert path.read_text() == '{"n": 1}\n{"n": 2}\n'
        assert not lines.printed
        assert capsys.readouterr().out == ""

    def test_standard_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = JsonLines(Path("-"))
        lines.add({"n": "é"})
        assert lines.printed
        assert capsys.readouterr().out == '{"n": "é"}\n'

    def test_nowhere(self, capsys: pytest.CaptureFixture[str]) -> None:
        JsonLines(None).add({"n": 1})
        assert capsys.readouterr() == ("", "")
