from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from boxmatch import Matcher
from boxmatch.workloads import (
    DialectWorkload,
    EqualityWorkload,
    ExpressionWorkload,
    ListWorkload,
    RangeWorkload,
    TextWorkload,
    write_sample_events,
)
from boxmatch_bench import answers, competitors, measure, provenance, start, tables, timing
from boxmatch_bench.answers import FailedError
from boxmatch_bench.cases import UnavailableError, make_case
from boxmatch_bench.options import MatcherOptions
from boxmatch_bench.settings import PRESETS, MatcherSetting, Reference, choose_presets

SMALL = RangeWorkload(subscriptions=400, predicates=3, event_size=15)
SPARSE = replace(SMALL, attributes=50, event_size=45)  # too sparse for dense bulk loading
EQUAL = EqualityWorkload(subscriptions=2_000, accounts=30)
QUICK = MatcherOptions(
    index="scan", events=40, batch=15, single=10, repeats=1, competitor_seconds=0.01
)


def test_presets() -> None:
    sizes = {name: len(settings) for name, settings in PRESETS.items()}
    assert next(iter(PRESETS)) == "hem-default"
    assert sizes == {
        "hem-default": 1,
        "cpp": 16,
        "subscriptions": 3,
        "equality": 1,
        "ranges-10k": 1,
        "ranges-100k": 1,
        "expressions": 2,
        "needles": 2,
        "regexes": 1,
        "lists": 2,
        "dialects": 2,
    }
    (default,) = PRESETS["hem-default"]
    assert default.workload == RangeWorkload(
        subscriptions=1_000_000, attributes=20, predicates=10, event_size=20, width=0.3
    )
    assert default.reference == Reference("C++", 216)
    assert all(setting.reference for setting in PRESETS["cpp"])
    assert len(choose_presets(["all"], {})) == sum(sizes.values())


def test_presets_expect_the_published_numbers_of_matches() -> None:
    """The authors' C++ found these on the same data, so the settings are the same."""
    expected = [setting.workload.expected_matches for setting in PRESETS["cpp"][:7]]
    found = [6, 10, 32_084, 168_300, 598_526, 173_276, 28_967]
    assert expected == pytest.approx(found, rel=0.15)


def test_changed_parameters_lose_the_reference() -> None:
    (same,) = choose_presets(["hem-default"], {"seed": 9})
    assert same.reference is not None
    assert same.workload.seed == 9
    (other,) = choose_presets(["hem-default"], {"width": 0.2}, updates=5)
    assert other.reference is None
    assert other.updates == 5


def test_an_event_file_replaces_the_values(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    write_sample_events(path)
    sizes = {"attributes": 12, "event_size": 12, "predicates": 2, "subscriptions": 400}
    (setting,) = choose_presets(["hem-default"], {"event_file": path, **sizes}, updates=20)
    assert setting.reference is None
    result = measure.measure_matcher(
        setting, replace(QUICK, events=310)
    )  # ten more than the file has
    assert json.loads(json.dumps(result))["parameters"]["event_file"] == str(path)
    assert result["batch"]["matches_per_event"] > 1
    (table, _) = tables.preset_tables([result])
    assert str(table.title).endswith(f"w = 0.3, events = {path})")


def test_options_name_all_competitors() -> None:
    assert tuple(competitors.COMPETITORS) == MatcherOptions().competitors


@pytest.mark.parametrize("workload", [SMALL, SPARSE, EQUAL], ids=["ranges", "sparse", "equality"])
@pytest.mark.parametrize("name", competitors.COMPETITORS)
def test_competitors_agree_with_the_filters(name: str, workload: Any) -> None:
    case = make_case(workload)
    answers = competitors.COMPETITORS[name](case, workload.subscriptions, 12)(0, 12)
    filters = case.filters(0, workload.subscriptions)
    for event, answer in zip(case.event_dicts(0, 12), answers, strict=True):
        assert answer.tolist() == [i for i, f in enumerate(filters) if satisfied(f, event)]


def satisfied(filter_: dict[str, Any], event: dict[str, Any]) -> bool:
    return all(
        name in event
        and (
            wanted[0] <= event[name] <= wanted[1]
            if isinstance(wanted, tuple)
            else event[name] == wanted
        )
        for name, wanted in filter_.items()
    )


@pytest.mark.parametrize("workload", [SMALL, SPARSE, EQUAL], ids=["ranges", "sparse", "equality"])
@pytest.mark.parametrize("index", ["scan", "tile"])
def test_measures_everything(workload: Any, index: str) -> None:
    stages: list[str] = []
    result = measure.measure_matcher(
        MatcherSetting(preset="test", workload=workload, updates=100),
        replace(QUICK, index=index),
        stages.append,
    )
    assert len(stages) == measure.STAGES + len(QUICK.competitors)
    assert result["batch"]["matches_per_event"] == pytest.approx(workload.expected_matches, rel=0.6)
    assert result["batch"]["match_events"] == 40
    assert result["single"]["events"] == 10
    assert result["checked_events"] == 20
    assert result["updates"]["count"] == 100
    assert all(figures["microseconds"] > 0 for figures in result["competitors"].values())
    assert json.loads(json.dumps(result))["parameters"]["seed"] == 1


@pytest.mark.parametrize(
    ("workload", "matches"),
    [
        (ExpressionWorkload(subscriptions=1_500, predicates=2), 90),
        (ExpressionWorkload(subscriptions=1_500, predicates=2, share=0.0), 135),
        (TextWorkload(subscriptions=600, categories=3, words=40), 36),
        (TextWorkload(subscriptions=600, categories=0, words=400), 15),
        (TextWorkload(subscriptions=300, categories=0, words=300, pattern="regex"), 1.5),
        (ListWorkload(subscriptions=1_000, predicates=3), 55),
        (ListWorkload(subscriptions=1_000, predicates=3, values=0), 27),
    ],
    ids=["expressions", "ranges", "category", "needles", "regexes", "lists", "values"],
)
def test_measures_beside_the_same_in_duckdb(workload: Any, matches: float) -> None:
    pytest.importorskip("duckdb")
    result = measure.measure_matcher(
        MatcherSetting(preset="test", workload=workload, updates=20),
        replace(QUICK, index="tile", competitors=("numpy", "duckdb")),
    )
    assert result["batch"]["matches_per_event"] == pytest.approx(matches, rel=0.6)
    assert result["checked_events"] == 20
    assert result["updates"]["count"] == 20
    assert "columns" in result["competitors"]["numpy"]["skipped"]
    assert result["competitors"]["duckdb"]["microseconds"] > 0
    assert json.loads(json.dumps(result))["parameters"]["seed"] == 1


@pytest.mark.parametrize(("rules", "matches"), [("values", 0.015), ("operators", 9)])
def test_measures_event_patterns(rules: Any, matches: float) -> None:
    workload = DialectWorkload(subscriptions=2_000, rules=rules)
    result = measure.measure_matcher(
        MatcherSetting(preset="test", workload=workload, updates=20),
        replace(QUICK, index="tile", events=200),
    )
    assert result["batch"]["matches_per_event"] == pytest.approx(matches, rel=0.6)
    assert result["checked_events"] == 20
    assert result["updates"]["count"] == 20
    assert result["competitors"]["scan"]["microseconds"] > 0
    assert result["competitors"]["duckdb"]["skipped"]
    assert json.loads(json.dumps(result))["parameters"]["rules"] == rules


def test_a_wrong_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    right = answers.by_event

    def wrong(*arguments: Any) -> Any:
        return [ids[1:] for ids in right(*arguments)]

    monkeypatch.setattr(measure, "by_event", wrong)
    with pytest.raises(answers.MismatchError, match="missing"):
        measure.measure_matcher(MatcherSetting(preset="test", workload=SMALL, updates=0), QUICK)


def test_lost_updates_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matcher, "unsubscribe", lambda self, subscription_id: None)
    everything = replace(SMALL, predicates=0)  # every subscription matches every event
    with pytest.raises(answers.MismatchError, match="after updates"):
        measure.measure_matcher(
            MatcherSetting(preset="test", workload=everything, updates=10), QUICK
        )


def test_lists_fewer_events_where_most_subscriptions_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LISTED", 1_000)
    everything = replace(SMALL, predicates=0)
    result = measure.measure_matcher(
        MatcherSetting(preset="test", workload=everything, updates=0),
        replace(QUICK, competitors=()),
    )
    assert result["batch"]["matches_per_event"] == 400
    assert result["batch"]["match_events"] == 2


def test_large_workloads_are_not_for_dense_competitors() -> None:
    case = make_case(replace(SMALL, attributes=900, subscriptions=1_000_000))
    with pytest.raises(UnavailableError, match="GB"):
        competitors.numpy_int32(case, 1_000_000, 1)


def test_timing_grows_the_sample_until_it_is_long_enough() -> None:
    asked: list[int] = []

    timing_ = timing.best_time(asked.append, 1_000, 10.0)
    assert timing_.events == max(asked) == 1_000
    assert timing_.microseconds > 0
    assert asked[0] == 1
    assert asked == sorted(asked)


def test_report_shows_what_varies(tmp_path: Path) -> None:
    results = [
        measure.measure_matcher(
            MatcherSetting(preset="sweep", workload=replace(SMALL, width=w), updates=0), QUICK
        )
        for w in (0.1, 0.2)
    ]
    results[1]["competitors"]["duckdb"] = {"skipped": "not installed"}
    console = Console(width=160, record=True, file=(tmp_path / "out").open("w"))
    for table in tables.preset_tables(results):
        console.print(tables.console_table(table))
    console.file.close()
    text = (tmp_path / "out").read_text()
    assert "sweep (subscriptions = 400, d = 20, k = 3, event size = 15, values = uniform)" in text
    assert "0.1" in text
    assert "not installed" in text
    assert "best known" not in text  # there is no published figure for these


def test_report_shows_published_figures() -> None:
    setting = MatcherSetting(
        preset="known", workload=SMALL, reference=Reference("them", 1e6), updates=0
    )
    result = measure.measure_matcher(setting, QUICK)
    table, _ = tables.preset_tables([result])
    cells = dict(zip(table.columns, map(list, zip(*table.rows, strict=True)), strict=True))
    assert cells["best known\nµs/event"] == ["1,000,000\nthem"]
    times = tables.number(1e6 / result["batch"]["count_microseconds"])
    assert cells["count\nfaster"] == [f"{times}×"]


@pytest.mark.parametrize(("grown", "shown"), [(None, 70), (0, 70), (-5, 70), (90, 90)])
def test_memory_is_never_less_than_the_matcher_holds(grown: int | None, shown: int) -> None:
    memory = {"resident": grown, "parts": {"total": 70}}
    assert tables.memory_bytes({"memory": memory}) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (0.00001234, "1.2e-05"), (0.00456, "0.00456"), (0.123, "0.123"), (0.5, "0.5"),
        (5.678, "5.68"), (56.78, "56.8"), (5678.9, "5,679"), (12_345.6, "12,346"), (-3.0, "-3.00"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert tables.number(value) == shown


def test_provenance_names_the_machine() -> None:
    origin = provenance.provenance()
    assert origin["machine"]["cpu"]
    assert origin["packages"]["numpy"] == np.__version__
    memory = provenance.resident_bytes()
    assert memory is None or memory > 1_000_000


@pytest.mark.parametrize(
    ("commit", "shown"),
    [(None, "unknown"), (40 * "a", 12 * "a"), (40 * "a" + "+", 12 * "a" + "+")],
)
def test_commits_are_shown_short_with_their_plus(commit: str | None, shown: str) -> None:
    assert provenance.shown_commit({"commit": commit}) == shown


@pytest.mark.slow
def test_new_processes_answer_before_and_after_they_have_an_index() -> None:
    cold, warm = start.measure_start("dicts", subscriptions=2000, seed=3)
    assert (cold["cache"], warm["cache"]) == ("cold", "warm")
    assert cold["index_seconds"] > cold["first_answer_seconds"]
    assert warm["index_seconds"] is None
    assert cold["cached"] == warm["cached"] > 20
    assert warm["compiled"] == 0
    table = start.start_table([cold, warm])
    assert [row[:2] for row in table.rows] == [("dicts", "cold"), ("dicts", "warm")]
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_new_process_that_fails_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_SCRIPT", "raise SystemExit('wrong answer')")
    with pytest.raises(FailedError, match="wrong answer"):
        next(start.measure_start("dicts", subscriptions=1, seed=3))
