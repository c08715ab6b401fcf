"""`Pipeline`: the stages in their order, and no more than that."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from boxmatch.indexes.registry import index_class
from boxmatch.reports import require_plotting
from boxmatch.spark.build import build_index
from boxmatch.spark.columns import columns_to_keep
from boxmatch.spark.matching import run_plan
from boxmatch.spark.pipeline.clean import (
    REASON,
    Cleaned,
    clean,
    clean_subscriptions,
    derive,
    extend_schema,
)
from boxmatch.spark.pipeline.config import PipelineConfig, Source
from boxmatch.spark.pipeline.notify import (
    date_column,
    drop_rejected,
    notifications,
    rejections,
)
from boxmatch.spark.pipeline.read import input_files, read
from boxmatch.spark.pipeline.report import as_html
from boxmatch.spark.pipeline.selectivity import (
    Selectivities,
    attributes_table,
    measure_selectivities,
    sample_events,
)
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
from boxmatch.spark.pipeline.summary import as_json, summarise
from boxmatch.spark.plans import MatchOptions, MatchPlan, plan_match
from boxmatch.spark.skipping import skipping_pays
from boxmatch.spark.store import Folder
from boxmatch.spark.subscription_tables import subscription_columns
from boxmatch.spark.versions import IndexVersion, read_version

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


class _Run:
    """One run. Stages leave what later ones need in `done` and in the folder of the run."""

    def __init__(self, config: PipelineConfig, stages: Stages, spark: SparkSession) -> None:
        self.config = config
        self.settings = config.as_dict()
        self.stages = stages
        self.spark = spark
        self.done: dict[str, StageRecord] = {}
        self.event_id = config.events.event_id
        self.names = {
            "subscription_id": config.subscriptions.subscription_id,
            "filter": config.subscriptions.filter,
        }
        self.subscription_id = config.subscriptions.subscription_id
        self.dialect = config.subscriptions.dialect
        rate = config.match.max_false_positive_rate
        self.skips = bool(rate) and skipping_pays(config.match.index)

    def run(self) -> PipelineResult:
        settings = self.settings
        self._do("read", None, self._read)
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        known = self._files(
            self.config.events, settings=[settings["events"], settings["clean"]], zone=zone
        )
        clean = self._do("clean", known, self._clean)
        expressions = list(self.config.derive.items())  # their order matters
        derived = self._do("derive", {"from": clean, "derive": expressions}, self._derive)
        known = self._files(
            self.config.subscriptions,
            settings=[settings["subscriptions"], settings["match"]],
            schema=self.schema.to_json(),
            # Selectivities are measured on the events first, if what is skipped depends on them.
            measured=[derived, settings["statistics"]["sample"]] if self.skips else None,
        )
        index = self._do("index", known, self._index)
        match = self._do("match", {"from": [derived, index], "keep": self.keep}, self._match)
        self._do("notify", {"from": match}, self._notify)
        known = {"from": match, "settings": settings["statistics"]}
        self._do("statistics", known, self._statistics)
        summary = summarise(
            self.done, config=settings, schema=self.schema, spark_version=self.spark.version
        )
        self._do("report", None, lambda: self._report(summary))
        folder = self.stages.folder
        return PipelineResult(
            str(folder), str(folder / "report.html"), tuple(self.done.values()), summary
        )

    def _do(self, name: str, known: Mapping[str, Any] | None, work: Callable[[], Done]) -> str:
        """Do a stage, unless it is done; returns its fingerprint."""
        self.done[name] = self.stages.run(name, known, work)
        return self.done[name].fingerprint

    def _files(self, source: Source, **known: Any) -> dict[str, Any] | None:
        """What a stage that reads a source depends on; None if its files are not known."""
        files = input_files(source, self.spark)
        return None if files is None else {"files": files, **known}

    def _read(self) -> Done:
        """Everything that can be wrong with settings and columns comes up here; no row is read."""
        config = self.config.events
        self.cleaned = clean(
            read(self.spark, config),
            config.attributes,
            event_id=self.event_id,
            event_time=config.event_time,
            duplicates=self.config.clean.duplicates,
        )
        derived = derive(self.cleaned.good, self.config.derive)
        self.schema = extend_schema(config.attributes, derived, self.config.derive)
        index_class(self.config.match.index)(len(self.schema), **self.config.match.index_options)
        columns = self.config.output.columns
        # The columns of events that go into notifications.
        self.keep = columns_to_keep(
            derived, "all" if columns is None else columns, self.event_id, self.subscription_id
        )
        if config.event_time is not None and config.event_time not in self.keep:
            self.keep.append(config.event_time)
        self.date = date_column((self.event_id, self.subscription_id, *self.keep))
        self.wanted = clean_subscriptions(read(self.spark, self.config.subscriptions), **self.names)
        subscription_columns(self.wanted.good, self.schema, **self.names, dialect=self.dialect)
        sources = (config, self.config.subscriptions)
        files = [input_files(source, self.spark) or [] for source in sources]
        return None, {
            "event_files": len(files[0]),
            "subscription_files": len(files[1]),
            "bytes": sum(size for some in files for _, size, _ in some),
        }

    def _clean(self) -> Done:
        judged = self._write(self.cleaned.judged, _CLEANED)
        self._write(Cleaned(judged, self.event_id).quarantined, "quarantine")
        counts = {row[REASON]: row["count"] for row in _count_by(judged, REASON)}
        good = counts.pop(None, 0)
        reasons = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        return good, {"read": good + sum(reasons.values()), "quarantined": reasons}

    def _derive(self) -> Done:
        if self.config.derive:
            good = Cleaned(self._table(_CLEANED), self.event_id).good
            self._write(derive(good, self.config.derive), _DERIVED)
        return self.done["clean"].rows, {"attributes": list(self.config.derive)}

    def _events(self) -> DataFrame:
        if self.config.derive:
            return self._table(_DERIVED)
        return Cleaned(self._table(_CLEANED), self.event_id).good

    def _subscriptions(self) -> Cleaned:
        return Cleaned(self._table(_SUBSCRIPTIONS), self.subscription_id)

    def _index(self) -> Done:
        self._write(self.wanted.judged, _SUBSCRIPTIONS)
        cleaned = self._subscriptions()
        settings = self.config.match
        measured = self._measure(cleaned.good) if self.skips else None
        version = build_index(
            cleaned.good,
            str(self.stages.folder / _INDEX),
            schema=self.schema,
            shards=settings.shards,
            subscription_id=self.subscription_id,
            filter=self.names["filter"],
            dialect=self.dialect,
            index=settings.index,
            index_options=settings.index_options,
            selectivity=None if measured is None else measured.shares,
        )
        self.stages.wrote(f"{_INDEX}/versions")
        left_out = self._write(rejections(version, cleaned, **self.names), "rejected")
        shown = left_out.orderBy("subscription_id", "filter").limit(_SHOWN).collect()
        return version.subscriptions, {
            "version": version.version,
            "bytes": version.nbytes,
            "shards": len(version.shards),
            "rejected": left_out.count(),
            "rejected_shown": [row.asDict() for row in shown],
        }

    def _measure(self, subscriptions: DataFrame) -> Selectivities:
        return measure_selectivities(
            self._events(),
            subscriptions,
            self.schema,
            event_id=self.event_id,
            sample=self.config.statistics.sample,
            dialect=self.dialect,
            **self.names,
        )

    def _version(self) -> IndexVersion:
        version = self.done["index"].details["version"]
        return read_version(str(self.stages.folder / _INDEX), version)

    def _match(self) -> Done:
        events = self._events()
        processed = datetime.now(UTC)
        options = MatchOptions(
            "pairs",
            self.event_id,
            self.subscription_id,
            self.keep,
            self.config.match.plan,
            max_false_positive_rate=self.config.match.max_false_positive_rate,
        )
        plan = plan_match(events, self._version(), options)
        found = self._write(run_plan(plan, events), _MATCHED).count()
        return found, {
            "plan": str(plan),
            "processed": processed.isoformat(),
            "skipping": self._check_rate(plan, events),
        }

    def _check_rate(self, plan: MatchPlan, events: DataFrame) -> dict[str, Any] | None:
        """What was skipped, and how many false matches there really are, on a sample of events."""
        from pyspark.sql import functions as f

        if plan.skipping is None:
            return None
        if not plan.skipping.attributes:
            return {**plan.skipping.metadata, "reason": plan.skipping.reason}
        some = sample_events(events, self.event_id, self.config.statistics.sample).persist()
        counts = []
        for rate in (plan.skipping.rate, 0.0):
            counting = replace(plan.options, how="counts", keep=(), max_false_positive_rate=rate)
            matches = run_plan(plan_match(some, self._version(), counting), some)
            counts.append(matches.agg(f.sum(counting.found)).collect()[0][0] or 0)
        some.unpersist()
        found, true = counts
        return {**plan.skipping.metadata, "sample": {"true": true, "false": found - true}}

    def _processed(self) -> datetime:
        return datetime.fromisoformat(self.done["match"].details["processed"])

    def _notify(self) -> Done:
        rows = notifications(
            self._table(_MATCHED),
            event_id=self.event_id,
            subscription_id=self.subscription_id,
            event_time=self.config.events.event_time,
            on=self._processed().date(),
        )
        self.stages.write(rows, "notifications", [self.date])
        by_date = {str(row[self.date]): row["count"] for row in _count_by(rows, self.date)}
        return self.done["match"].rows, {"by_date": by_date}

    def _statistics(self) -> Done:
        events, matches = self._events(), self._table(_MATCHED)
        usable = drop_rejected(
            self._subscriptions().good, self._version(), subscription_id=self.subscription_id
        )
        per_subscription = self._write(
            matches_per_subscription(
                matches,
                select_filters(usable, self.schema, **self.names),
                subscription_id=self.subscription_id,
                events=self.done["derive"].rows or 0,
            ),
            f"{_STATISTICS}/subscriptions",
        )
        per_event = self._write(
            matches_per_event(matches, events, event_id=self.event_id), f"{_STATISTICS}/events"
        )
        measured = self._measure(usable)
        self._write(attributes_table(self.spark, measured), f"{_STATISTICS}/attributes")
        time = self.config.events.event_time
        return self.done["index"].rows, {
            **self._outliers(per_subscription),
            "per_event": power_buckets(per_event, "matches", "events"),
            "selectivities": asdict(measured),
            "latency": latency(events, time, processed=self._processed()) if time else None,
        }

    def _outliers(self, per_subscription: DataFrame) -> dict[str, Any]:
        """The subscriptions with the most matches, with none, and with too many."""
        from pyspark.sql import functions as f

        settings = self.config.statistics

        def first(some: DataFrame) -> list[dict[str, Any]]:
            # Under names of its own, whatever the columns are called.
            shown = some.toDF("subscription_id", "filter", "matches", "share")
            ordered = shown.orderBy(f.desc("matches"), "subscription_id")
            return [row.asDict() for row in ordered.limit(settings.top).collect()]

        dead = dead_subscriptions(per_subscription)
        broad = too_broad_subscriptions(per_subscription, settings.too_broad)
        return {
            "per_subscription": power_buckets(per_subscription, "matches"),
            "top": first(per_subscription.where("matches > 0")),
            "dead": {"number": dead.count(), "shown": first(dead)},
            "too_broad": {"number": broad.count()},
        }

    def _report(self, summary: dict[str, Any]) -> Done:
        self.stages.publish("report.json", as_json(summary))
        self.stages.publish("report.html", as_html(summary))
        self.stages.tidy()
        return None, {}

    def _table(self, name: str) -> DataFrame:
        return self.stages.read(self.spark, name)

    def _write(self, rows: DataFrame, name: str) -> DataFrame:
        """Write an output of the stage; returns it as it was written."""
        self.stages.write(rows, name)
        return self._table(name)


def _count_by(rows: DataFrame, name: str) -> list[Any]:
    return rows.groupBy(name).count().orderBy(name).collect()
