"""The report of a run: one page for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from typing import Any, Final

from boxmatch import __version__
from boxmatch.model.schema import Schema
from boxmatch.reports import Charts, bullets, facts, page, table
from boxmatch.spark.pipeline.stages import StageRecord

Summary = dict[str, Any]
Row = Mapping[str, Any]

_PACKAGES: Final = ("pyspark", "pyarrow", "numpy", "numba", "sqlglot")
_COLOUR: Final = "#4c8fd0"  # readable on light and on dark
_HEIGHT: Final = 260


def summarise(
    done: Mapping[str, StageRecord], *, config: Row, schema: Schema, spark_version: str
) -> Summary:
    """All figures of a run, from what its stages noted down."""
    clean, index, match = done["clean"], done["index"], done["match"]
    found = done["statistics"].details
    measured = found["selectivities"]
    return {
        "events": {
            "files": done["read"].details["event_files"],
            "read": clean.details["read"],
            "good": clean.rows,
            "quarantined": clean.details["quarantined"],
            "derived": done["derive"].details["attributes"],
        },
        "subscriptions": {
            "usable": index.rows,
            "rejected": index.details["rejected"],
            "rejected_shown": index.details["rejected_shown"],
            "never": measured["never"],
            "index": {name: index.details[name] for name in ("version", "bytes", "shards")},
        },
        "matches": {
            "pairs": match.rows,
            "by_date": done["notify"].details["by_date"],
            "per_event": found["per_event"],
            "per_subscription": found["per_subscription"],
            "top": found["top"],
            "dead": found["dead"],
            "too_broad": {**found["too_broad"], "share": config["statistics"]["too_broad"]},
        },
        "attributes": measured["attributes"],
        "skipping": {
            "frequency": [attribute["predicates"] for attribute in measured["attributes"]],
            "boxes": measured["boxes"],
            "selectivity": measured["selectivity"],
            "sample": measured["sample"],
        },
        "latency": found["latency"],
        "stages": [_timing(record) for record in done.values()],
        "provenance": {
            "boxmatch": __version__,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "processed": match.details["processed"],
            "plan": match.details["plan"],
            "python": platform.python_version(),
            "spark": spark_version,
            "packages": {name: _version(name) for name in _PACKAGES},
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "schema": json.loads(schema.to_json()),
            "config": config,
        },
    }


def as_json(summary: Summary) -> str:
    """The report as JSON, for programs."""
    return json.dumps(summary, indent=2, ensure_ascii=False) + "\n"


def as_html(summary: Summary) -> str:
    """The report as a page for people, which needs no network."""
    charts = Charts()
    made = {
        "Events": _events(summary, charts),
        "Subscriptions": _subscriptions(summary),
        "Matches": _matches(summary, charts),
        "Attributes": _attributes(summary, charts),
        "Stages": _stages(summary, charts),
    }
    links = "".join(f'<li><a href="#{title.lower()}">{title}</a></li>' for title in made)
    return page(
        title="Boxmatch: pipeline report",
        heading="Pipeline report",
        introduction=f"<p>{escape(headline(summary))}</p>",
        origin=_origin(summary),
        contents=f"<ul>{links}</ul>",
        sections="".join(
            f'<section id="{title.lower()}"><h2>{title}</h2>{content}</section>'
            for title, content in made.items()
        ),
        charts=charts,
    )


def headline(summary: Summary) -> str:
    """The run in a sentence."""
    events, matches = summary["events"], summary["matches"]
    return (
        f"{events['read']:,} events read, {events['good']:,} of them valid; "
        f"{summary['subscriptions']['usable']:,} subscriptions; {matches['pairs']:,} matches, "
        f"{matches['pairs'] / max(1, events['good']):,.2f} per event."
    )


def _timing(record: StageRecord) -> Summary:
    rate = record.rows / record.seconds if record.rows and record.seconds else None
    return {
        "stage": record.name,
        "seconds": round(record.seconds, 3),
        "rows": record.rows,
        "rows_per_second": rate and round(rate),
        "resumed": record.resumed,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _origin(summary: Summary) -> str:
    origin = summary["provenance"]
    packages = ", ".join(f"{name} {v}" for name, v in origin["packages"].items() if v)
    config = origin["config"]
    events, subscriptions = (
        source["path"] or f"table {source['table']}"
        for source in (config["events"], config["subscriptions"])
    )
    return facts(
        {
            "Events from": events,
            "Subscriptions from": subscriptions,
            "Output": config["output"]["path"],
            "Matched": origin["processed"],
            "Plan": origin["plan"].replace("\n", "; "),
            "Software": f"boxmatch {origin['boxmatch']}, Spark {origin['spark']}, "
            f"Python {origin['python']}; {packages}",
            "Machine": origin["machine"],
        }
    )


def _events(summary: Summary, charts: Charts) -> str:
    events = summary["events"]
    reasons = events["quarantined"]
    put_aside = sum(reasons.values())
    says = f"{events['good']:,} events are valid, {put_aside:,} are quarantined."
    if events["derived"]:
        says += f" Derived attributes: {', '.join(events['derived'])}."
    parts = [f"<p>{escape(says)}</p>"]
    if reasons:
        parts.append(
            table(
                "Quarantined events by reason (rows in the folder quarantine)",
                ("reason", "events"),
                [(reason, f"{number:,}") for reason, number in reasons.items()],
            )
        )
    latency = summary["latency"]
    if latency is not None:
        shown = [(name, _duration(seconds)) for name, seconds in latency.items()]
        parts.append(table("Latency, event to match", ("percentile", "latency"), shown))
    by_date = summary["matches"]["by_date"]
    if len(by_date) > 1:
        bars = [{"name": day, "value": number} for day, number in by_date.items()]
        parts.append(charts.place([_bars(bars, "date", "notifications")]))
    return "".join(parts)


def _subscriptions(summary: Summary) -> str:
    found = summary["subscriptions"]
    index = found["index"]
    parts = [
        f"<p>{found['usable']:,} subscriptions are valid, {found['rejected']:,} are rejected. The "
        f"index takes {index['bytes'] / 1e6:,.1f} MB in {index['shards']:,} "
        f"{'shard' if index['shards'] == 1 else 'shards'}, version {index['version']}.</p>"
    ]
    if found["never"]:
        parts.append(f"<p>{found['never']:,} have a filter that no event can satisfy.</p>")
    shown = found["rejected_shown"]
    if shown:
        rows = [(_text(r["subscription_id"]), _text(r["filter"]), r["reason"]) for r in shown]
        more = found["rejected"] - len(shown)
        title = "Rejected" + (f" (and {more:,} more in the folder rejected)" if more else "")
        parts.append(table(title, ("subscription", "filter", "reason"), rows, labels=3))
    return "".join(parts)


def _matches(summary: Summary, charts: Charts) -> str:
    found = summary["matches"]
    dead, broad = found["dead"], found["too_broad"]
    bars = [
        _bars(_buckets(found[f"per_{each}"]), f"matches per {each}", f"{each}s")
        for each in ("event", "subscription")
    ]
    return "".join(
        [
            charts.place(bars),
            _table_of("Most matches", found["top"]),
            f"<h3>Dead</h3><p>{dead['number']:,} subscriptions matched nothing.</p>",
            _table_of("Examples", dead["shown"]),
            f"<h3>Too broad</h3><p>{broad['number']:,} subscriptions matched more than "
            f"{broad['share']:.3g} of the events.</p>",
            _table_of("Broadest", broad["shown"]),
        ]
    )


def _table_of(title: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    cells = [
        (_text(r["subscription_id"]), _text(r["filter"]), f"{r['matches']:,}", f"{r['share']:.4%}")
        for r in rows
    ]
    return table(title, ("subscription", "filter", "matches", "share of events"), cells, labels=2)


def _attributes(summary: Summary, charts: Charts) -> str:
    rows = summary["attributes"]
    skipping = summary["skipping"]
    asked = [{"name": r["name"], "value": r["subscriptions"]} for r in rows]
    shares = [{"name": r["name"], "value": r["selectivity"]} for r in rows if r["predicates"]]
    cells = [
        (
            r["name"],
            r["type"],
            f"{r['subscriptions']:,}",
            f"{r['predicates']:,}",
            f"{r['present']:.2%}",
            _text(r["selectivity"], ".4%"),
        )
        for r in rows
    ]
    heads = ("attribute", "type", "subscriptions", "predicates", "present in", "selectivity")
    notes = [
        "Subscriptions: how many constrain the attribute. Predicates: how many of their boxes do; "
        "a filter with OR has several boxes.",
        "Present in: the share of events that have the attribute. Selectivity: the share of events "
        "that satisfy one of these predicates, on average, measured on "
        f"{skipping['sample']:,} events.",
        f"Over all predicates of {skipping['boxes']:,} boxes, the selectivity is "
        f"{skipping['selectivity']:.4%}. Predicate skipping uses it and the numbers of predicates.",
    ]
    drawn = [_bars(asked, "attribute", "subscriptions")]
    if shares:
        drawn.append(_bars(shares, "attribute", "selectivity"))
    return f"{charts.place(drawn)}{table('Attributes', heads, cells, labels=2)}{bullets(notes)}"


def _stages(summary: Summary, charts: Charts) -> str:
    rows = summary["stages"]
    cells = [
        (
            r["stage"],
            f"{r['seconds']:,.2f}",
            _text(r["rows"], ","),
            _text(r["rows_per_second"], ","),
            "resumed" if r["resumed"] else "",
        )
        for r in rows
    ]
    heads = ("stage", "seconds", "rows out", "rows per second", "")
    bars = [{"name": r["stage"], "value": r["seconds"]} for r in rows]
    return f"{charts.place([_bars(bars, 'stage', 'seconds')])}{table('Stages', heads, cells)}"


def _buckets(histogram: Iterable[Row]) -> list[Summary]:
    return [
        {
            "name": f"{b['from']:,}" if b["from"] == b["to"] else f"{b['from']:,}–{b['to']:,}",
            "value": b["number"],
        }
        for b in histogram
    ]


def _bars(values: list[Summary], across: str, up: str) -> Summary:
    """A bar for each name, in the order given."""
    return {
        "width": "container",
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": {"type": "bar", "color": _COLOUR},
        "encoding": {
            "x": {"field": "name", "type": "nominal", "sort": None, "title": across,
                  "axis": {"labelAngle": -30}},
            "y": {"field": "value", "type": "quantitative", "title": up},
            "tooltip": [
                {"field": "name", "title": across},
                {"field": "value", "title": up, "format": ",.4~g"},
            ],
        },
    }  # fmt: skip


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.3f} seconds"


def _text(value: object, form: str = "") -> str:
    return "" if value is None else format(value, form)
