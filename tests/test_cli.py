from __future__ import annotations

import json
from pathlib import Path

import pytest

import boxmatch as bm
from boxmatch.workloads import write_sample_events
from command_line import Command


def test_version(run_boxmatch: Command) -> None:
    assert run_boxmatch("--version") == (0, f"boxmatch {bm.__version__}\n", "")


def test_help_lists_the_commands(run_boxmatch: Command) -> None:
    out = run_boxmatch("--help").out
    assert all(command in out for command in ("demo", "bench", "check", "info"))


class TestCheck:
    def test_shows_the_boxes(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("check", "price > 3 AND NOT side = 'buy'", "--attribute", "price=float",
                   "--attribute", "side=buy|sell")  # fmt: skip
        assert done.code == 0
        assert "1 box:" in done.out
        assert "price > 3" in done.out
        assert "side = 'sell'" in done.out

    def test_json_compiles_to_the_same(self, run_boxmatch: Command) -> None:
        arguments = ("--attribute", "price=float", "--json")
        first = json.loads(run_boxmatch("check", "price > 3 OR price IS NULL", *arguments).out)
        again = json.loads(run_boxmatch("check", first["filter"], *arguments).out)
        assert first == again
        assert len(first["boxes"]) == 2
        assert first["never"] is False

    def test_takes_an_object_of_json(self, run_boxmatch: Command) -> None:
        arguments = ("--attribute", "price=float", "--json")
        wanted = {"price": {"low": 20, "high": 30, "high_open": True}}
        done = run_boxmatch("check", json.dumps(wanted), *arguments)
        assert json.loads(done.out)["filter"] == "price >= 20 AND price < 30"
        refused = run_boxmatch("check", '{"price": {"from": 20}}', *arguments)
        assert (refused.code, "'price': {'from': 20} is not a range" in refused.err) == (2, True)

    def test_says_that_a_filter_never_matches(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("check", "price > 3 AND price < 2", "--attribute", "price=float")
        assert done.code == 0
        assert "never" in done.out

    def test_points_at_the_error(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("check", "price > 3 AND prise < 9", "--attribute", "price=float")
        assert done.code == 2
        assert done.out == ""
        assert done.err.startswith("boxmatch: ")
        assert "prise" in done.err
        assert "^" in done.err

    def test_reads_a_schema_file(self, run_boxmatch: Command, tmp_path: Path) -> None:
        path = tmp_path / "schema.json"
        path.write_text(bm.Schema({"at": "timestamp"}).to_json())
        done = run_boxmatch("check", "at >= TIMESTAMP '2026-01-05 14:30:00'", "--schema", str(path))
        assert done.code == 0
        assert "2026-01-05" in done.out

    @pytest.mark.parametrize("arguments", [(), ("--attribute", "price"), ("--attribute", "a=b")])
    def test_needs_a_sound_schema(self, run_boxmatch: Command, arguments: tuple[str, ...]) -> None:
        assert run_boxmatch("check", "price > 3", *arguments).code == 2


class TestInfo:
    def test_describes_a_saved_matcher(self, run_boxmatch: Command, tmp_path: Path) -> None:
        matcher = bm.Matcher(bm.Schema({"price": "float", "side": ["buy", "sell"]}), index="scan")
        matcher.subscribe("alice", "price > 3")
        matcher.save(tmp_path / "saved")
        done = run_boxmatch("info", str(tmp_path / "saved"))
        assert done.code == 0
        assert "1 subscription" in done.out
        assert "side: enum of buy, sell" in done.out
        content = json.loads(run_boxmatch("info", str(tmp_path / "saved"), "--json").out)
        assert content["subscriptions"] == 1
        assert bm.Schema.from_json(json.dumps(content["schema"])) == matcher.schema

    def test_refuses_what_is_not_one(self, run_boxmatch: Command, tmp_path: Path) -> None:
        done = run_boxmatch("info", str(tmp_path / "nothing"))
        assert done.code == 2
        assert "nothing" in done.err


class TestDemo:
    def test_small(self, run_boxmatch: Command) -> None:
        done = run_boxmatch("demo", "--subscriptions", "20000", "--ticks", "500", "--batch", "200")
        assert done.code == 0
        assert "500 ticks against 20,000 subscriptions" in done.out
        assert "Busiest subscriptions" in done.out
        assert "One match explained" in done.out
        assert "━" not in done.err  # progress is for terminals

    def test_json_is_the_same_for_any_batch(self, run_boxmatch: Command) -> None:
        outcomes = [
            json.loads(
                run_boxmatch(
                    "demo", "--subscriptions", "20000", "--ticks", "500", "--json", "--batch", size
                ).out
            )
            for size in ("77", "500")
        ]
        for name in ("subscriptions", "ticks", "matches", "busiest"):
            assert outcomes[0][name] == outcomes[1][name]
        assert outcomes[0]["matches"] > 0


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
        done = run_boxmatch("bench", "width", "--subscriptions", "300", "--index", "scan",
                   "--json", str(path), *self.QUICK)  # fmt: skip
        assert done.code == 0
        assert "matches" in done.out
        assert "duckdb" in done.out
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["parameters"]["width"] for line in lines] == [0.1, 0.5, 0.7, 0.9]
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
        done = run_boxmatch("bench", "width", *small, *self.QUICK, "--json")
        assert done.code == 0
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert [line["parameters"]["width"] for line in lines] == [0.1, 0.5, 0.7, 0.9]
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
