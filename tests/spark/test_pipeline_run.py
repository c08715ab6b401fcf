from __future__ import annotations

import csv
import json
import logging
import re
import shutil
from collections import Counter
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boxmatch import Attribute, Matcher, Schema, SparkError
from boxmatch.spark.pipeline import Pipeline, PipelineConfig, PipelineResult, write_sample
from boxmatch.spark.pipeline.sample import CONFIG
from boxmatch.spark.pipeline.stages import Stages
from boxmatch.workloads import MarketWorkload
from command_line import Command

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGES = ["read", "clean", "derive", "index", "match", "notify", "statistics", "report"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sample")
    write_sample(place, ticks=400, alerts=60)
    alerts = records(place / "alerts.csv")
    with (place / "alerts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["subscription_id", "filter", "dialect"])
        writer.writerows([row["subscription_id"], row["filter"], ""] for row in alerts)
        writer.writerow(["selector", "symbol LIKE 'S%' AND NOT halted", "jms"])
    return place


@pytest.fixture(scope="module")
def result(spark: SparkSession, folder: Path) -> PipelineResult:
    return Pipeline(folder / CONFIG).run(spark)


def rows_at(spark: SparkSession, output: Path, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, spark.read.parquet(str(output / name)).collect()))


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def oracle(folder: Path) -> tuple[dict[str, dict[str, Any]], set[tuple[str, str]]]:
    """The good ticks and their matches, by reading the files in plain Python."""
    ticks: dict[str, dict[str, Any]] = {}
    for path in sorted((folder / "ticks").glob("*.csv")):
        for row in records(path):
            if not row["event_id"].startswith("tick-") or row["event_id"] in ticks:
                continue  # the later ones have a larger spread, so the first one stays
            at = datetime.fromisoformat(row["at"])
            price, volume = float(row["price"]), int(row["volume"])
            ticks[row["event_id"]] = {
                "symbol": row["symbol"], "price": price, "volume": volume,
                "spread": float(row["spread"]), "side": row["side"],
                "halted": row["halted"] == "true", "at": at, "notional": price * volume,
                "hour": at.hour,
            }  # fmt: skip
    derived = Attribute("notional", "float"), Attribute("hour", "int")
    matcher = Matcher(Schema([*MarketWorkload().schema, *derived]), index="scan")
    filters: dict[str, set[str]] = {}
    for row in records(folder / "alerts.csv"):
        if row["subscription_id"] and row["filter"]:
            filters.setdefault(row["subscription_id"], set()).add(row["filter"])
    table = [
        {"id": id, "filter": text, "dialect": "jms" if id == "selector" else None}
        for id, (text, *more) in filters.items()
        if not more
    ]
    matcher.subscribe_many(table, on_error="skip")
    return ticks, {(id, str(found)) for id, tick in ticks.items() for found in matcher.match(tick)}


class TestPipeline:
    def test_output_is_what_brute_force_finds(
        self, spark: SparkSession, folder: Path, result: PipelineResult
    ) -> None:
        ticks, pairs = oracle(folder)
        told = spark.read.parquet(str(folder / "output" / "notifications"))
        rows = told.collect()
        assert len(rows) == len(pairs) > 100
        assert {(row["event_id"], row["subscription_id"]) for row in rows} == pairs
        assert "selector" in {row["subscription_id"] for row in rows}
        for row in rows[:50]:
            tick = ticks[row["event_id"]]
            assert (row["price"], row["notional"]) == (tick["price"], tick["notional"])
            assert row["date"] == tick["at"].date()
        assert result.summary["matches"]["pairs"] == len(pairs)
        assert result.summary["events"]["good"] == len(ticks) == 400

    def test_quarantine_and_rejected(
        self, spark: SparkSession, folder: Path, result: PipelineResult
    ) -> None:
        quarantined = spark.read.parquet(str(folder / "output" / "quarantine")).collect()
        reasons = Counter(row["reason"] for row in quarantined)
        assert reasons == result.summary["events"]["quarantined"]
        assert reasons == {
            "duplicate event_id": 200, "malformed row": 8, "event_id is null": 4, "at is null": 4,
            "at is not a timestamp": 4, "price is not a float": 4, "volume is not an int": 4,
            "halted is not a bool": 4, "price is outside its domain": 4,
            "side is not one of its values": 4,
        }  # fmt: skip
        rejected = spark.read.parquet(str(folder / "output" / "rejected")).collect()
        shown = {row["subscription_id"]: (row["filter"], row["reason"]) for row in rejected}
        assert set(shown) == {None, "bad-1", "bad-2", "bad-3", "bad-4", "bad-5", "twice"}
        assert shown["bad-2"][0] == "colour = 'red'"
        assert "no attribute 'colour'" in shown["bad-2"][1]
        assert shown["bad-5"] == (None, "filter is null")
        assert shown["twice"][1] == "duplicate subscription_id, with different content"

    def test_figures(self, folder: Path, result: PipelineResult) -> None:
        ticks, pairs = oracle(folder)
        found = json.loads((folder / "output" / "report.json").read_text(encoding="utf-8"))
        assert found == result.summary
        assert sum(bucket["number"] for bucket in found["matches"]["per_event"]) == len(ticks)
        usable = found["subscriptions"]["usable"]
        assert sum(b["number"] for b in found["matches"]["per_subscription"]) == usable == 67
        counts = Counter(subscription for _, subscription in pairs)
        first = found["matches"]["top"][0]
        assert (first["subscription_id"], first["matches"]) == counts.most_common(1)[0]
        assert found["matches"]["dead"]["number"] == usable - len(counts)
        assert found["matches"]["too_broad"]["number"] == sum(
            number > 0.05 * len(ticks) for number in counts.values()
        )
        assert [stage["stage"] for stage in found["stages"]] == STAGES[:-1]
        assert found["subscriptions"]["never"] == 1
        assert found["provenance"]["config"]["output"]["path"] == str(folder / "output")

    def test_report_is_a_page(self, result: PipelineResult) -> None:
        import vl_convert

        page = Path(result.report).read_text(encoding="utf-8")
        found = re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)
        assert found is not None
        charts = json.loads(found[1])
        assert len(charts) == page.count('class="chart"') == 5
        for chart in charts:
            assert vl_convert.vegalite_to_svg({**chart, "width": 300}).startswith("<svg")
        assert "colour = &#x27;red&#x27;" in page

    def test_only_what_changed_is_done_again(
        self, spark: SparkSession, folder: Path, result: PipelineResult
    ) -> None:
        assert [stage.name for stage in result.stages] == STAGES
        assert not any(stage.resumed for stage in result.stages)
        again = Pipeline(folder / CONFIG).run(spark)
        assert redone(again) == ["read", "report"]
        assert again.summary["matches"] == result.summary["matches"]
        text = (folder / CONFIG).read_text().replace("too_broad = 0.05", "too_broad = 0.5")
        (folder / "other.toml").write_text(text)
        assert redone(Pipeline(folder / "other.toml").run(spark)) == [
            "read",
            "statistics",
            "report",
        ]
        shutil.rmtree(folder / "output" / "notifications")
        assert redone(Pipeline(folder / "other.toml").run(spark)) == ["read", "notify", "report"]


def redone(result: PipelineResult) -> list[str]:
    return [stage.name for stage in result.stages if not stage.resumed]


class Cut(Exception):
    """Somebody pulled the plug."""


@pytest.mark.slow
def test_a_run_that_fails_anywhere_goes_on_to_the_same_result(
    spark: SparkSession, folder: Path, result: PipelineResult, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    names = ["stages/clean", "stages/derive", "rejected", "stages/match", "notifications",
             "statistics/events", "report.html"]  # fmt: skip
    settings = PipelineConfig.load(folder / CONFIG).as_dict()
    settings["output"] = {"path": str(tmp_path)}
    for section in ("events", "subscriptions", "match"):
        settings[section] = {k: v for k, v in settings[section].items() if v is not None}
    pipeline = Pipeline(PipelineConfig.parse(settings))
    write, publish = Stages.write, Stages.publish
    seen: list[str] = []
    for name in names:

        def cut(self: Stages, output: DataFrame, at: str, partition_by: Any = (), *,
                bad: str = name) -> None:  # fmt: skip
            if at == bad:  # half of it is there, under a name that nobody looks at
                output.limit(1).write.mode("overwrite").parquet(self.path(f"_unfinished/{at}"))
                raise Cut
            write(self, output, at, partition_by)

        def cut_file(self: Stages, at: str, content: str, *, bad: str = name) -> None:
            if at == bad:
                raise Cut
            publish(self, at, content)

        monkeypatch.setattr(Stages, "write", cut)
        monkeypatch.setattr(Stages, "publish", cut_file)
        with pytest.raises(Cut):
            pipeline.run(
                spark,
                progress=lambda stage, record: (
                    seen.append(stage) if record and not record.resumed else None
                ),
            )
        assert not (tmp_path / name).exists()
    monkeypatch.undo()
    last = pipeline.run(spark)
    assert redone(last) == ["read", "report"]
    # No stage was done twice, but for reading.
    assert Counter(stage for stage in seen if stage != "read") == Counter(STAGES[1:-1])
    for name in ("notifications", "quarantine", "rejected"):
        assert rows_at(spark, tmp_path, name) == rows_at(spark, folder / "output", name)
    for part in ("events", "matches", "attributes", "skipping"):
        assert last.summary[part] == result.summary[part]
    assert not (tmp_path / "_unfinished").exists()
    # Another input, and everything that depends on it is done again.
    shutil.copytree(folder / "ticks", tmp_path / "ticks")
    (tmp_path / "ticks" / "ticks-3.csv").unlink()
    settings["events"]["path"] = str(tmp_path / "ticks")
    fewer = Pipeline(PipelineConfig.parse(settings)).run(spark)
    assert redone(fewer) == [stage for stage in STAGES if stage != "index"]
    assert fewer.summary["events"]["good"] == 300


class TestWithoutMuch:
    def test_no_time_no_derived_no_match(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "events.json").write_text('{"id": 1, "price": 5}\n{"id": 2, "price": null}\n')
        (tmp_path / "wanted.json").write_text('{"who": "me", "filter": "price > 9"}\n')
        config = PipelineConfig.parse(
            {
                "events": {"path": "events.json", "format": "json", "event_id": "id",
                           "attributes": {"price": "float"}},
                "subscriptions": {"path": "wanted.json", "format": "json",
                                  "subscription_id": "who"},
                "output": {"path": "out"},
            },
            folder=tmp_path,
        )  # fmt: skip
        summary = Pipeline(config).run(spark).summary
        assert summary["matches"]["pairs"] == 0
        assert summary["matches"]["by_date"] == {}
        assert summary["matches"]["per_event"] == [{"from": 0, "to": 0, "number": 2}]
        assert summary["latency"] is None
        assert summary["attributes"][0]["present"] == 0.5

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"events.path": "nowhere"}, "there are no files at"),
            ({"events.event_id": "uid"}, "the events have no column 'uid'"),
            ({"events.attributes": {"size": "float"}}, "the events have no column 'size'"),
            ({"subscriptions.subscription_id": "uid"}, "the subscriptions have no column 'uid'"),
            ({"subscriptions.filter": "wants"}, "neither a column 'wants' nor columns of bounds"),
            ({"derive": {"x": "prize * 2"}}, "derive: x = 'prize"),
            ({"derive": {"subscription_id": "1"}}, "a column 'subscription_id'"),
            (
                {"derive": {"date": "1", "event_date": "2", "notification_date": "3"}},
                "have columns date, event_date, notification_date, one of which must be free",
            ),
            ({"output.columns": ["prize"]}, "no column 'prize'"),
            ({"output.path": "pipeline.toml"}, "cannot write to"),
            ({"match.index": "nosuch"}, "nosuch"),
        ],
    )
    def test_errors_before_any_stage(
        self, spark: SparkSession, folder: Path, change: dict[str, Any], message: str
    ) -> None:
        settings = PipelineConfig.load(folder / CONFIG).as_dict()
        for section in ("events", "subscriptions", "match", "output"):
            settings[section] = {k: v for k, v in settings[section].items() if v is not None}
        settings["output"]["path"] = str(folder / "refused")
        for key, value in change.items():
            section, _, name = key.partition(".")
            if name:
                settings[section][name] = value
            else:
                settings[section] = value
        begun: list[str] = []
        with pytest.raises(Exception, match=message):
            Pipeline(PipelineConfig.parse(settings, folder=folder)).run(
                spark, progress=lambda stage, _: begun.append(stage)
            )
        assert begun in ([], ["read"])


@pytest.fixture
def command(run_boxmatch: Command) -> Command:
    return partial(run_boxmatch, "pipeline")


class TestCommand:
    def test_run(
        self, command: Command, spark: SparkSession, folder: Path, result: PipelineResult
    ) -> None:
        done = command("run", "--config", str(folder / CONFIG))
        assert done.code == 0, done.err
        assert "640 events from 4 files: 400 valid, 240 quarantined" in done.out
        assert "67 subscriptions, 8 more rejected" in done.out
        assert result.report in done.out.replace("\n", "")
        assert all(stage in done.err for stage in STAGES)
        assert "done before" in done.err
        done = command("run", "--config", str(folder / CONFIG), "--json")
        assert json.loads(done.out)["events"] == result.summary["events"]

    def test_sample_by_default(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from boxmatch.spark.pipeline import sample

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(Pipeline, "check", lambda self: refuse())

        def refuse() -> None:
            raise SparkError("that will do")

        done = command("run")
        assert done.code == 2
        assert "running the sample in boxmatch-sample" in done.err
        assert done.err.endswith("boxmatch: that will do\n")
        assert len(list((tmp_path / "boxmatch-sample" / "ticks").iterdir())) == 4
        assert sample.TICKS == 200_000

    def test_sample(self, command: Command, tmp_path: Path) -> None:
        done = command("sample", str(tmp_path / "s"))
        assert done.code == 0
        assert f"--config {tmp_path / 's' / CONFIG}" in done.out.replace("\n", "")
        before = (tmp_path / "s" / "alerts.csv").stat().st_mtime_ns
        command("sample", str(tmp_path / "s"))
        assert (tmp_path / "s" / "alerts.csv").stat().st_mtime_ns == before

    def test_errors_are_one_paragraph(self, command: Command, tmp_path: Path) -> None:
        done = command("run", "--config", str(tmp_path / "none.toml"))
        assert (done.code, done.out) == (2, "")
        assert done.err == f"boxmatch: {tmp_path / 'none.toml'}: No such file or directory\n"

    def test_spark_that_does_not_start_says_so_in_one_paragraph(
        self, command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = (
            "An error occurred while calling None.Context.\n: Error: no master\n\tat Context.scala"
        )

        def refuse(master: str) -> None:
            raise RuntimeError(said)

        monkeypatch.setattr("boxmatch.spark.local_session", refuse)
        done = command("run", "--config", str(folder / CONFIG))
        assert done.code == 2
        assert "boxmatch: Spark did not start: Error: no master; its log is " in done.err
        assert "scala" not in done.err

    def test_what_is_logged_goes_to_the_log(
        self, command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(master: str) -> None:
            logging.exception("KeyboardInterrupt while sending command.")  # as Py4J does
            raise KeyboardInterrupt

        monkeypatch.setattr(logging.root, "handlers", [])  # those of pytest
        monkeypatch.setattr("boxmatch.spark.local_session", interrupted)
        done = command("run", "--config", str(folder / CONFIG))
        assert done.code == 130
        assert "sending command" not in done.err
        output = Path(PipelineConfig.load(folder / CONFIG).output.path)
        assert "sending command" in (output / "spark.log").read_text()
        assert logging.root.handlers == []


def test_sample_never_changes(tmp_path: Path) -> None:
    import hashlib

    write_sample(tmp_path, ticks=1000, alerts=100)
    digest = hashlib.sha256()
    for path in sorted(tmp_path.rglob("*.csv")):
        digest.update(path.read_bytes())
    assert digest.hexdigest()[:16] == "0b799b9d37dc402b"
