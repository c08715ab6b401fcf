from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import boxmatch as bm
from boxmatch.cli.terminal import format_bytes
from boxmatch.kernels.jit import cache_folder, notice
from command_line import Command


def test_version(run_boxmatch: Command) -> None:
    assert run_boxmatch("--version") == (0, f"boxmatch {bm.__version__}\n", "")


def test_help_lists_the_commands(run_boxmatch: Command) -> None:
    out = run_boxmatch("--help").out
    assert all(command in out for command in ("demo", "bench", "check", "info"))


def test_warm_up(run_boxmatch: Command) -> None:
    done = run_boxmatch("warmup")
    assert done.code == 0
    assert f"cached in {cache_folder()}.\n" in done.out
    result = json.loads(run_boxmatch("warmup", "--json").out)
    assert result["seconds"] > 0
    assert (result["compiled"], result["cache"]) == (notice.compiled, str(cache_folder()))


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

    def test_shows_what_it_costs(self, run_boxmatch: Command) -> None:
        schema = ("--attribute", "title=string", "--attribute", "tags=list of string")
        done = run_boxmatch("check", "length(title) > 3 AND title LIKE '%a%'", *schema)
        assert done.out.splitlines() == [
            "1 box:",
            "  LENGTH(title) >= 4 AND CONTAINS(title, 'a')",
            "worked out for every event:",
            "  LENGTH(title)",
            "  strings in title",
            "cost: axis",
        ]
        done = run_boxmatch("check", "'x' = ANY(tags) AND NOT title LIKE '%a%'", *schema)
        assert done.out.splitlines() == [
            "1 box:",
            "  ANY(tags) = 'x'",
            "checked for every event in a box:",
            "  NOT CONTAINS(title, 'a')",
            "cost: residual",
        ]
        done = run_boxmatch("check", "NOT title LIKE '%a%'", *schema)
        assert done.out.splitlines()[0] == "checked for every event:"
        assert "every event is checked with NOT CONTAINS(title, 'a')" in done.err
        done = run_boxmatch("check", '{"title": {"rlike": "a+"}}', *schema, "--json")
        checked = json.loads(done.out)
        assert (checked["cost"], checked["axes"]) == ("axis", ["regular expressions in title"])
        assert "warning" not in checked

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


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_234_567, "1.2 MB"),
        (305_000_000_000, "305.0 GB"),
        (10**16, "10,000.0 TB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert format_bytes(size) == text

    def test_another_dialect(self, run_boxmatch: Command) -> None:
        pattern = '{"state": [{"prefix": "stop"}], "n": [{"numeric": [">", 3]}]}'
        done = run_boxmatch("check", pattern, "--dialect", "eventbridge", "--json")
        found = json.loads(done.out)
        assert found["boxes"] == ["ANY(n) > 3 AND ANY(state) LIKE 'stop%'"]
        assert (found["axes"], found["cost"]) == (["n", "state"], "axis")
        typed = ("--attribute", "price=float", "--dialect", "jms")
        assert "price > 3" in run_boxmatch("check", "price > 3", *typed).out
        for text, said in (("prize > 3", "no attribute 'prize'"), ("price >", "  price >\n")):
            wrong = run_boxmatch("check", text, *typed)
            assert (wrong.code, said in wrong.err) == (2, True), wrong.err
        unknown = run_boxmatch("check", "x", "--dialect", "nope")
        assert "(known are sql, eventbridge, sns, sns-body, cesql, jms)" in unknown.err


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

    def test_sizes_by_what_they_hold(self, run_boxmatch: Command, tmp_path: Path) -> None:
        matcher = bm.Matcher({"symbol": "string", "price": "float"})
        matcher.subscribe_many([{"id": n, "filter": f"symbol = 'x{n}'"} for n in range(3000)])
        matcher.save(tmp_path / "saved")
        out = run_boxmatch("info", str(tmp_path / "saved")).out
        held = dict(re.findall(r"^  (index|filters|ids|strings in filters): (.*)$", out, re.M))
        assert len(held) == 4
        assert all(re.fullmatch(r"\d{1,3}\.\d kB|\d{1,3} B", size) for size in held.values())
        assert re.search(r"^\d+\.\d kB of memory:$", out, re.M)
        assert "\n3,000 boxes\n" in out
        assert "expressions" not in out

    def test_what_is_worked_out_and_checked(self, run_boxmatch: Command, tmp_path: Path) -> None:
        matcher = bm.Matcher({"symbol": "string", "price": "float"})
        matcher.subscribe(1, "price * 2 > 3 OR price < 1")
        matcher.subscribe(2, "symbol NOT LIKE '%x%'")
        matcher.save(tmp_path / "saved")
        out = run_boxmatch("info", str(tmp_path / "saved")).out
        assert "1 expression, worked out for every event" in out
        assert "1 subscription with conditions that are checked event by event" in out
        told = json.loads(run_boxmatch("info", str(tmp_path / "saved"), "--json").out)
        assert (told["subscriptions"], told["expressions"], told["residuals"]) == (2, 1, 1)

    @pytest.mark.parametrize(("typed", "known"), [("alice", "alice"), ("-7", -7)])
    def test_one_filter(
        self, run_boxmatch: Command, tmp_path: Path, typed: str, known: str | int
    ) -> None:
        matcher = bm.Matcher({"price": "float"})
        matcher.subscribe(known, "price > 3")
        matcher.save(tmp_path / "saved")
        saved = str(tmp_path / "saved")
        assert run_boxmatch("info", saved, f"--id={typed}") == (0, f"{typed}\tprice > 3\n", "")
        shown = run_boxmatch("info", saved, f"--id={typed}", "--json").out
        assert json.loads(shown) == {"id": known, "filter": "price > 3"}
        refused = run_boxmatch("info", saved, "--id", "bob")
        assert (refused.code, "no subscription with id 'bob'" in refused.err) == (2, True)

    def test_all_filters(self, run_boxmatch: Command, tmp_path: Path) -> None:
        with bm.Matcher.open(tmp_path / "kept", {"price": "float"}) as matcher:
            matcher.subscribe("alice", "price < 5 OR price > 9")
            matcher.subscribe("bob", {"price": (None, 3)})
        kept = str(tmp_path / "kept")
        done = run_boxmatch("info", kept, "--filters")
        assert sorted(done.out.splitlines()) == [
            "alice\tprice < 5 OR price > 9",
            "bob\tprice <= 3",
        ]
        rows = map(json.loads, run_boxmatch("info", kept, "--filters", "--json").out.splitlines())
        assert {row["id"]: row["filter"] for row in rows} == dict(
            line.split("\t") for line in done.out.splitlines()
        )
        assert "not both" in run_boxmatch("info", kept, "--filters", "--id", "bob").err

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
        assert "Explanation of one match" in done.out
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
