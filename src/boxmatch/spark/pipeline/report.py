"""The report of a run: its figures as a page for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

from boxmatch.reports import Charts, bullets, facts, figures, folded, page, table
from boxmatch.spark.pipeline.summary import Summary

Row = Mapping[str, Any]

_COLOUR: Final = "#4c8fd0"  # readable on light and on dark
_HEIGHT: Final = 220
_MOST_BARS: Final = 25
_HISTORICAL: Final = 86_400.0
"""Seconds since the newest event from which on events count as historical."""


def as_html(summary: Summary) -> str:
    """The report as a page for people, which needs no network."""
    charts = Charts()
    made = {
        "Matches": _matches(summary, charts),
        "Subscriptions": _subscriptions(summary),
        "Events": _events(summary),
        "Attributes": _attributes(summary, charts),
        "Run": _run(summary, charts),
    }
    links = "".join(f'<li><a href="#{title.lower()}">{title}</a></li>' for title in made)
    return page(
        title="Pipeline report",
        heading="Pipeline report",
        introduction=_main_figures(summary),
        origin="",
        contents=f"<ol>{links}</ol>",
        sections="".join(
            f'<section id="{title.lower()}"><h2>{title}</h2>{content}</section>'
            for title, content in made.items()
        ),
        charts=charts,
    )


def _main_figures(summary: Summary) -> str:
    events, found, matches = summary["events"], summary["subscriptions"], summary["matches"]
    put_aside = sum(events["quarantined"].values())
    silent = matches["dead"]["number"]
    seconds = sum(stage["seconds"] for stage in summary["stages"] if not stage["resumed"])
    resumed = sum(stage["resumed"] for stage in summary["stages"])
    strip = [
        (f"{events['good']:,}", "events", f"{put_aside:,} more quarantined"),
        (f"{found['usable']:,}", "subscriptions", f"{found['rejected']:,} more rejected"),
        (f"{matches['pairs']:,}", "matches", f"{_per_event(summary)} per event"),
        (
            f"{silent:,}",
            "subscriptions without a match",
            f"{_share(silent / max(1, found['usable']))} of all",
        ),
        (
            _duration(seconds),
            "run time",
            f"{resumed} of {len(summary['stages'])} stages were done before" if resumed else "",
        ),
    ]
    return figures(strip)


def _per_event(summary: Summary) -> str:
    return _number(summary["matches"]["pairs"] / max(1, summary["events"]["good"]))


def _matches(summary: Summary, charts: Charts) -> str:
    found = summary["matches"]
    dead, broad = found["dead"], found["too_broad"]
    drawn = [
        _bars(_buckets(found["per_event"]), "Matches per event", "matches", "events"),
        _bars(
            _buckets(found["per_subscription"]),
            "Matches per subscription",
            "matches",
            "subscriptions",
        ),
    ]
    if len(found["by_date"]) > 1:
        drawn.append(_days(found["by_date"]))
    parts = [_precision(found["skipping"]), charts.place(drawn, narrow=True)]
    if found["top"]:
        limit = _share(broad["share"])
        says = f"{broad['number']:,} subscriptions match more than {limit} of the events."
        if broad["number"]:
            says += " They are marked as broad; are they meant to be?"
        rows = [
            (
                _text(r["subscription_id"]),
                _text(r["filter"]),
                f"{r['matches']:,}",
                _share(r["share"]),
                "broad" if r["share"] > broad["share"] else "",
            )
            for r in found["top"]
        ]
        heads = ("subscription", "filter", "matches", "share of events", "")
        most = table("Subscriptions with the most matches", heads, rows, labels=2, code=1)
        parts.append(f"{most}<p>{escape(says)}</p>")
    if dead["shown"]:
        silent = [(_text(r["subscription_id"]), _text(r["filter"])) for r in dead["shown"]]
        shown = table("", ("subscription", "filter"), silent, labels=2, code=1)
        number = f"{dead['number']:,} subscriptions without a match"
        some = "" if len(silent) == dead["number"] else f" (the first {len(silent)})"
        parts.append(folded(number + some, shown))
    return "".join(parts)


def _precision(skipping: Mapping[str, Any] | None) -> str:
    """How many of the matches may be false."""
    if skipping is None:
        return ""
    names = skipping["skipped_attributes"]
    if not names:
        return f"<p>All matches are exact, {escape(skipping['reason'])}.</p>"
    counted = skipping["sample"]
    true, false = counted["true"], counted["false"]
    says = (
        f"The matches include false ones: up to {_share(skipping['max_false_positive_rate'])} of "
        f"the true ones were allowed, and {_share(false / max(1, true))} were counted on a sample "
        f"({false:,} false, {true:,} true). No match is missing. Conditions on these attributes "
        f"were not checked: {', '.join(names)}."
    )
    return f"<p>{escape(says)}</p>"


def _subscriptions(summary: Summary) -> str:
    found = summary["subscriptions"]
    index = found["index"]
    says = (
        f"{found['usable']:,} subscriptions are valid. Their index takes "
        f"{_size(index['bytes'])} in {index['shards']:,} "
        f"{'shard' if index['shards'] == 1 else 'shards'} (version {index['version']})."
    )
    if found["never"]:
        says += f" {found['never']:,} of them cannot match: no event satisfies the filter."
    parts = [f"<p>{escape(says)}</p>"]
    shown = found["rejected_shown"]
    if shown:
        rows = [(_text(r["subscription_id"]), _text(r["filter"]), r["reason"]) for r in shown]
        more = found["rejected"] - len(shown)
        title = "Rejected subscriptions"
        title += f" (and {more:,} more in the folder rejected)" if more else ""
        heads = ("subscription", "filter", "reason")
        parts.append(table(title, heads, rows, labels=3, code=1))
    return "".join(parts)


def _events(summary: Summary) -> str:
    events, latency = summary["events"], summary["latency"]
    files = events["files"]
    says = f"{events['read']:,} events were read"
    says += f" from {files:,} {'file' if files == 1 else 'files'}." if files else "."
    if latency is not None:
        says += f" Those that are valid happened {_span(summary)} (UTC)."
    if events["derived"]:
        says += f" Derived attributes: {', '.join(events['derived'])}."
    parts = [f"<p>{escape(says)}</p>"]
    # How old historical events were when they were matched says nothing about the pipeline.
    if latency is not None and latency["least"] < _HISTORICAL:
        shown = [(name, _duration(seconds)) for name, seconds in latency.items()]
        parts.append(table("Latency, from event to match", ("percentile", "latency"), shown))
    reasons = events["quarantined"]
    if reasons:
        parts.append(
            table(
                "Quarantined events (their rows are in the folder quarantine)",
                ("reason", "events"),
                [(reason, f"{number:,}") for reason, number in reasons.items()],
            )
        )
    return "".join(parts)


def _span(summary: Summary) -> str:
    """From when to when events happened."""
    processed = datetime.fromisoformat(summary["provenance"]["processed"])
    first, last = (
        (processed - timedelta(seconds=summary["latency"][end])).strftime("%Y-%m-%d %H:%M")
        for end in ("most", "least")
    )
    return f"at {first}" if first == last else f"between {first} and {last}"


def _attributes(summary: Summary, charts: Charts) -> str:
    rows = summary["attributes"]
    skipping = summary["skipping"]
    asked = sorted((r for r in rows if r["predicates"]), key=lambda r: -r["subscriptions"])
    drawn = asked[:_MOST_BARS]
    some = "" if len(drawn) == len(asked) else f" (the first {_MOST_BARS})"
    bars = [
        _lying(drawn, "subscriptions", f"Subscriptions by attribute{some}", "subscriptions"),
        _lying(drawn, "selectivity", f"Selectivity by attribute{some}", "share of events", ".0%"),
    ]
    cells = [
        (
            r["name"],
            r["type"],
            f"{r['subscriptions']:,}",
            f"{r['predicates']:,}",
            _share(r["present"]),
            "" if r["selectivity"] is None else _share(r["selectivity"]),
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
        f"{_share(skipping['selectivity'])}. Predicate skipping uses it and the numbers of "
        "predicates.",
    ]
    return (
        f"{charts.place(bars) if drawn else ''}"
        f"{table('Attributes', heads, cells, labels=2)}{bullets(notes)}"
    )


def _run(summary: Summary, charts: Charts) -> str:
    rows = summary["stages"]
    cells = [
        (
            r["stage"],
            f"{r['seconds']:,.1f}",
            _text(r["rows"], ","),
            "" if r["rows_per_second"] is None else _number(r["rows_per_second"]),
            "done before" if r["resumed"] else "",
        )
        for r in rows
    ]
    heads = ("stage", "seconds", "rows out", "rows per second", "")
    bars = [{"name": r["stage"], "seconds": r["seconds"]} for r in rows]
    drawn = charts.place([_lying(bars, "seconds", "Time by stage", "seconds")])
    return f"{drawn}{table('Stages', heads, cells)}{_origin(summary)}"


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
            "Matched": datetime.fromisoformat(origin["processed"]).strftime("%Y-%m-%d %H:%M:%S %Z"),
            "Plan": origin["plan"].replace("\n", "; "),
            "Software": f"boxmatch {origin['boxmatch']}, Spark {origin['spark']}, "
            f"Python {origin['python']}; {packages}",
            "Machine": origin["machine"],
        }
    )


def _buckets(histogram: Iterable[Row]) -> list[Summary]:
    return [
        {
            "name": f"{b['from']:,}" if b["from"] == b["to"] else f"{b['from']:,}–{b['to']:,}",
            "value": b["number"],
        }
        for b in histogram
    ]


def _bars(values: list[Summary], title: str, across: str, up: str) -> Summary:
    """A bar for each name, in the order given."""
    name = {"field": "name", "type": "nominal", "sort": None, "title": across}
    return _chart(
        title,
        values,
        {"type": "bar"},
        x={**name, "axis": {"labelAngle": -40, "labelOverlap": "greedy"}},
        y=_amount("value", up),
        tooltip=[{"field": "name", "title": across}, _tooltip("value", up)],
    )


def _days(by_date: Mapping[str, int]) -> Summary:
    title = "Notifications by day"
    if len(by_date) <= _MOST_BARS:
        bars = [{"name": day, "value": number} for day, number in by_date.items()]
        return _bars(bars, title, "day", "notifications")
    day = {"field": "day", "timeUnit": "utcyearmonthdate", "type": "temporal", "title": None}
    return _chart(
        title,
        [{"day": day, "value": number} for day, number in by_date.items()],
        {"type": "area"},
        x={**day, "axis": {"format": "%b %Y", "tickCount": 4, "labelOverlap": "greedy"}},
        y=_amount("value", "notifications"),
        tooltip=[{**day, "title": "day", "format": "%Y-%m-%d"}, _tooltip("value", "notifications")],
    )


def _lying(values: Sequence[Row], field: str, title: str, across: str, form: str = "~s") -> Summary:
    """Bars that lie, since their names are long, one below the other in the order given."""
    name = {"field": "name", "type": "nominal", "sort": None, "title": None}
    chart = _chart(
        title,
        [{"name": row["name"], field: row[field]} for row in values],
        {"type": "bar"},
        x=_amount(field, across, form),
        y={**name, "axis": {"labelLimit": 150, "ticks": False}},
        tooltip=[name, _tooltip(field, across, ".3~%" if "%" in form else ",.4~g")],
    )
    return {**chart, "height": {"step": 22}}


def _chart(title: str, values: list[Summary], mark: Summary, **encoding: Any) -> Summary:
    return {
        "title": title,
        "width": "container",
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": {**mark, "color": _COLOUR},
        "encoding": encoding,
    }


def _amount(field: str, title: str, form: str = "~s") -> Summary:
    # Not as the format of the axis, which gives all labels one unit: 0k, 20k.
    label = f"format(datum.value, '{form}')"
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": {"labelExpr": label, "tickCount": 5},
    }


def _tooltip(field: str, title: str, form: str = ",.4~g") -> Summary:
    return {"field": field, "type": "quantitative", "title": title, "format": form}


def _number(value: float) -> str:
    """Three digits, or all of a whole number's that has more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _share(share: float) -> str:
    """Per cent, with digits that say something."""
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.00001:
        return "< 0.001%"
    return f"{share:.1%}" if share >= 0.1 else f"{100 * share:.2g}%"


def _size(nbytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{_number(nbytes / size)} {unit}"
    return f"{nbytes} bytes"


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if abs(seconds) >= 2 * size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(seconds)} seconds"


def _text(value: object, form: str = "") -> str:
    return "" if value is None else format(value, form)
