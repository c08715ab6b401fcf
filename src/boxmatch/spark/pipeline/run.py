"""`Pipeline`: the stages in their order, and no more than that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from boxmatch.indexes.registry import index_class
from boxmatch.model.schema import Schema
from boxmatch.reports import require_plotting
from boxmatch.spark.columns import columns_to_keep, subscription_columns
from boxmatch.spark.matching import MatchOptions, plan_match, run_plan
from boxmatch.spark.pipeline.clean import (
    REASON,
    Cleaned,
    derive,
    extend_schema,
    judge,
    judge_subscriptions,
    split,
)
from boxmatch.spark.pipeline.config import PipelineConfig, Source
from boxmatch.spark.pipeline.match import (
    DATE,
    check_no_date,
    drop_rejected,
    index_subscriptions,
    notifications,
    rejections,
)
from boxmatch.spark.pipeline.read import input_files, read
from boxmatch.spark.pipeline.report import as_html, as_json, summarise
from boxmatch.spark.pipeline.selectivity import attributes_table, measure_selectivities
from boxmatch.spark.pipeline.stages import STAGES, Done, Progress, StageRecord, Stages
from boxmatch.spark.pipeline.statistics import (
    dead_subscriptions,
    latency,
    matches_per_event,
    matches_per_subscription,
    power_buckets,
    select_filters,
    too_broad_subscriptions,
)
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import read_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CLEANED = f"{STAGES}/clean"
_DERIVED = f"{STAGES}/derive"
_SUBSCRIPTIONS = f"{STAGES}/subscriptions"
_MATCHED = f"{STAGES}/match"
_INDEX = "index"
_STATISTICS = "statistics"

_SHOWN = 50
"""Rejected subscriptions in the report; all of them are in the output `rejected`."""


@dataclass(frozen=True)
class PipelineResult:
    """What a run came to."""

    output: str
    report: str
    """The path of the report, an HTML page; report.json is beside it."""
    stages: tuple[StageRecord, ...]
    summary: Mapping[str, Any]
    """What report.json holds."""


class Pipeline:
    """From raw events and a table of subscriptions to notifications and statistics.

    ```
    output/
      notifications/date=…/   a row for each match
      quarantine/             events that could not be matched, with the reason
      rejected/               subscriptions that could not be used, with the reason
      statistics/             subscriptions, events and attributes in figures
      report.html report.json
      index/ stages/          what the next run builds upon
    ```

    Stages that are done, with the same settings on the same files, are not done again: a run that
    failed goes on where it stopped. For another order, or under another scheduler, call the
    functions of the stages yourself.
    """

    def __init__(self, config: PipelineConfig | str | os.PathLike[str]) -> None:
        self.config = config if isinstance(config, PipelineConfig) else PipelineConfig.load(config)

    def check(self) -> None:
        """Raise an error for what can be seen to be wrong without a Spark session."""
        require_plotting("spark")
        for source in (self.config.events, self.config.subscriptions):
            input_files(source)
        Folder.at(self.config.output.path).prepare()

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        restart: bool = False,
        progress: Progress | None = None,
    ) -> PipelineResult:
        """Run what is left to do; with `restart` all of it."""
        from boxmatch.spark.session import local_session

        self.check()
        stages = Stages(self.config.output.path, progress)
        if restart:
            stages.forget()
            stages.folder.remove(_INDEX)
        return _Run(self.config, stages, spark or local_session()).run()


@dataclass(frozen=True)
class _Inputs:
    """What will be worked on. No row of it has been looked at yet."""

    events: DataFrame
    """Judged, see `clean`."""
    subscriptions: DataFrame
    schema: Schema
    keep: list[str]
    """The columns of events that go into notifications."""


class _Run:
    def __init__(self, config: PipelineConfig, stages: Stages, spark: SparkSession) -> None:
        self.config = config
        self.settings = config.as_dict()
        self.stages = stages
        self.spark = spark
        self.event_id = config.events.event_id
        self.subscription_id = config.subscriptions.subscription_id
        self.filter = config.subscriptions.filter

    def run(self) -> PipelineResult:
        found: list[_Inputs] = []
        self.stages.run("read", None, lambda: self._read(found))
        inputs = found[0]
        clean = self._clean(inputs)
        derived = self._derive(clean)
        index = self._index(inputs)
        match = self._match(inputs, derived, index)
        self._notify(match)
        self._statistics(inputs, derived, index, match)
        return self._report(inputs.schema)

    def _read(self, found: list[_Inputs]) -> Done:
        """Everything that can be wrong with settings and columns comes up here."""
        config = self.config.events
        raw = read(self.spark, config)
        judged = judge(
            raw,
            config.attributes,
            event_id=self.event_id,
            event_time=config.event_time,
            duplicates=self.config.clean.duplicates,
        )
        derived = derive(split(judged, self.event_id).good, self.config.derive)
        schema = extend_schema(config.attributes, derived, self.config.derive)
        index_class(self.config.match.index)(len(schema), **self.config.match.index_options)
        columns = self.config.output.columns
        keep = columns_to_keep(
            derived, "all" if columns is None else columns, self.event_id, self.subscription_id
        )
        if config.event_time is not None and config.event_time not in keep:
            keep.append(config.event_time)
        check_no_date(keep)
        subscriptions = judge_subscriptions(
            read(self.spark, self.config.subscriptions),
            subscription_id=self.subscription_id,
            filter=self.filter,
        )
        good = split(subscriptions, self.subscription_id).good
        subscription_columns(good, schema, self.subscription_id, self.filter)
        found.append(_Inputs(judged, subscriptions, schema, keep))
        sources = (config, self.config.subscriptions)
        files = [input_files(source, self.spark) or [] for source in sources]
        return None, {
            "event_files": len(files[0]),
            "subscription_files": len(files[1]),
            "bytes": sum(size for some in files for _, size, _ in some),
        }

    def _clean(self, inputs: _Inputs) -> StageRecord:
        def work() -> Done:
            self.stages.write(inputs.events, _CLEANED)
            judged = self.stages.read(self.spark, _CLEANED)
            self.stages.write(split(judged, self.event_id).quarantined, "quarantine")
            counts = {row[REASON]: row["count"] for row in _count_by(judged, REASON)}
            good = counts.pop(None, 0)
            reasons = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
            return good, {"read": good + sum(reasons.values()), "quarantined": reasons}

        return self.stages.run(
            "clean",
            self._with_files(
                self.config.events,
                settings=[self.settings["events"], self.settings["clean"]],
                zone=self.spark.conf.get("spark.sql.session.timeZone"),
            ),
            work,
        )

    def _derive(self, clean: StageRecord) -> StageRecord:
        def work() -> Done:
            if self.config.derive:
                good = split(self.stages.read(self.spark, _CLEANED), self.event_id).good
                self.stages.write(derive(good, self.config.derive), _DERIVED)
            return clean.rows, {"attributes": list(self.config.derive)}

        expressions = list(self.config.derive.items())  # their order matters
        return self.stages.run("derive", {"from": clean.fingerprint, "derive": expressions}, work)

    def _events(self) -> DataFrame:
        if self.config.derive:
            return self.stages.read(self.spark, _DERIVED)
        return split(self.stages.read(self.spark, _CLEANED), self.event_id).good

    def _index(self, inputs: _Inputs) -> StageRecord:
        def work() -> Done:
            self.stages.write(inputs.subscriptions, _SUBSCRIPTIONS)
            parted = self._subscriptions()
            version = index_subscriptions(
                parted.good,
                self.index_path,
                inputs.schema,
                subscription_id=self.subscription_id,
                filter=self.filter,
                settings=self.config.match,
            )
            self.stages.wrote(f"{_INDEX}/versions")
            left_out = rejections(
                version, parted, subscription_id=self.subscription_id, filter=self.filter
            )
            self.stages.write(left_out, "rejected")
            left_out = self.stages.read(self.spark, "rejected")
            shown = left_out.orderBy("subscription_id", "filter").limit(_SHOWN).collect()
            return version.subscriptions, {
                "version": version.version,
                "bytes": version.nbytes,
                "shards": len(version.shards),
                "rejected": left_out.count(),
                "rejected_shown": [row.asDict() for row in shown],
            }

        return self.stages.run(
            "index",
            self._with_files(
                self.config.subscriptions,
                settings=[self.settings["subscriptions"], self.settings["match"]],
                schema=inputs.schema.to_json(),
            ),
            work,
        )

    def _subscriptions(self) -> Cleaned:
        return split(self.stages.read(self.spark, _SUBSCRIPTIONS), self.subscription_id)

    @property
    def index_path(self) -> str:
        return str(self.stages.folder / _INDEX)

    def _match(self, inputs: _Inputs, derived: StageRecord, index: StageRecord) -> StageRecord:
        def work() -> Done:
            events = self._events()
            processed = datetime.now(UTC)
            version = read_version(self.index_path, index.details["version"])
            options = MatchOptions(
                "pairs", self.event_id, self.subscription_id, inputs.keep, self.config.match.plan
            )
            plan = plan_match(events, version, options)
            self.stages.write(run_plan(plan, events), _MATCHED)
            found = self.stages.read(self.spark, _MATCHED).count()
            return found, {"plan": str(plan), "processed": processed.isoformat()}

        known = {"from": [derived.fingerprint, index.fingerprint], "keep": inputs.keep}
        return self.stages.run("match", known, work)

    def _notify(self, match: StageRecord) -> StageRecord:
        def work() -> Done:
            rows = notifications(
                self.stages.read(self.spark, _MATCHED),
                event_id=self.event_id,
                subscription_id=self.subscription_id,
                event_time=self.config.events.event_time,
                on=datetime.fromisoformat(match.details["processed"]).date(),
            )
            self.stages.write(rows, "notifications", [DATE])
            return match.rows, {
                "by_date": {str(row[DATE]): row["count"] for row in _count_by(rows, DATE)}
            }

        return self.stages.run("notify", {"from": match.fingerprint}, work)

    def _statistics(
        self, inputs: _Inputs, derived: StageRecord, index: StageRecord, match: StageRecord
    ) -> StageRecord:
        def work() -> Done:
            events, matches = self._events(), self.stages.read(self.spark, _MATCHED)
            usable = drop_rejected(
                self._subscriptions().good,
                read_version(self.index_path, index.details["version"]),
                subscription_id=self.subscription_id,
            )
            self.stages.write(
                matches_per_subscription(
                    matches,
                    select_filters(usable, inputs.schema, self.subscription_id, self.filter),
                    subscription_id=self.subscription_id,
                    events=derived.rows or 0,
                ),
                f"{_STATISTICS}/subscriptions",
            )
            self.stages.write(
                matches_per_event(matches, events, event_id=self.event_id),
                f"{_STATISTICS}/events",
            )
            measured = measure_selectivities(
                events,
                usable,
                inputs.schema,
                event_id=self.event_id,
                subscription_id=self.subscription_id,
                filter=self.filter,
                sample=self.config.statistics.sample,
            )
            self.stages.write(attributes_table(self.spark, measured), f"{_STATISTICS}/attributes")
            processed = datetime.fromisoformat(match.details["processed"])
            time = self.config.events.event_time
            return index.rows, {
                **self._per_subscription(),
                "per_event": power_buckets(
                    self.stages.read(self.spark, f"{_STATISTICS}/events"), "matches", "events"
                ),
                "selectivities": asdict(measured),
                "latency": latency(events, time, processed=processed) if time else None,
            }

        known = {"from": match.fingerprint, "settings": self.settings["statistics"]}
        return self.stages.run("statistics", known, work)

    def _per_subscription(self) -> dict[str, Any]:
        from pyspark.sql import functions as f

        settings = self.config.statistics
        all_of = self.stages.read(self.spark, f"{_STATISTICS}/subscriptions")

        def first(some: DataFrame) -> list[dict[str, Any]]:
            # Under names of its own, whatever the columns are called.
            shown = some.toDF("subscription_id", "filter", "matches", "share")
            ordered = shown.orderBy(f.desc("matches"), "subscription_id")
            return [row.asDict() for row in ordered.limit(settings.top).collect()]

        dead = dead_subscriptions(all_of)
        broad = too_broad_subscriptions(all_of, settings.too_broad)
        return {
            "per_subscription": power_buckets(all_of, "matches"),
            "top": first(all_of.where("matches > 0")),
            "dead": {"number": dead.count(), "shown": first(dead)},
            "too_broad": {"number": broad.count(), "shown": first(broad)},
        }

    def _report(self, schema: Schema) -> PipelineResult:
        summary = summarise(
            {record.name: record for record in self.stages.records},
            config=self.settings,
            schema=schema,
            spark_version=self.spark.version,
        )

        def work() -> Done:
            self.stages.publish("report.json", as_json(summary))
            self.stages.publish("report.html", as_html(summary))
            self.stages.tidy()
            return None, {}

        self.stages.run("report", None, work)
        folder = self.stages.folder
        return PipelineResult(
            str(folder), str(folder / "report.html"), tuple(self.stages.records), summary
        )

    def _with_files(self, source: Source, **known: Any) -> dict[str, Any] | None:
        """What a stage that reads a source depends on; None if its files are not known."""
        files = input_files(source, self.spark)
        return None if files is None else {"files": files, **known}


def _count_by(rows: DataFrame, name: str) -> list[Any]:
    return rows.groupBy(name).count().orderBy(name).collect()
