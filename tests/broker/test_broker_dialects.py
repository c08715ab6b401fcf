"""Filters of other systems through the broker: by HTTP, by both clients, from the disk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, get_args

import httpx
import orjson
import pytest
from broker_server import RunningBroker

import boxmatch as bm
from boxmatch.broker.backup import back_up
from boxmatch.broker.store import Store
from boxmatch.broker.verify import verify
from boxmatch.cli.schemas import Dialect, dialect_names
from boxmatch.client import AsyncClient, Client
from boxmatch.model.dialects.registry import DIALECTS
from command_line import Command
from model.dialects import eventbridge_table, sns_table

SCHEMA = {"plan": "string", "amount": "float", "paid": "bool", "tags": "list of string"}
EVENTS: list[dict[str, Any]] = [
    {"plan": "gold", "amount": 120.0, "paid": True, "tags": ["a", "new"]},
    {"plan": "gold", "amount": 80.5, "paid": False},
    {"plan": "silver", "amount": 100.0, "tags": []},
    {"amount": -3.0, "paid": True},
    {"plan": "gone", "tags": ["b"]},
    {},
]
FILTERS: dict[str, tuple[str | None, Any]] = {
    "sql": (None, "amount > 100"),
    "sql-named": ("sql", "plan LIKE 'g%' AND NOT paid"),
    "sql-dict": (None, {"plan": ["gold", "gone"]}),
    "bridge-text": ("eventbridge", '{"plan": [{"prefix": "go"}], "amount": [{"exists": false}]}'),
    "bridge": ("eventbridge", {"$or": [{"tags": ["new"]}, {"amount": [{"numeric": ["<", 0]}]}]}),
    "bridge-wild": ("eventbridge", {"plan": [{"wildcard": "g*l*"}]}),
    "sns": ("sns", {"plan": ["gold"], "amount": [{"numeric": [">", 100]}]}),
    "sns-text": ("sns", '{"plan": [{"anything-but": ["gold"]}]}'),
    "sns-body": ("sns-body", {"paid": [True], "amount": [{"numeric": [">=", 0, "<", 130]}]}),
    "jms": ("jms", "plan IN ('gold', 'silver') AND amount + 1 > 100"),
    "jms-not": ("jms", "NOT (plan = 'gold')"),
    "cesql": ("cesql", "EXISTS plan AND (plan LIKE 'g%')"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Of this module alone: a test starts it again."""
    with RunningBroker(tmp_path_factory.mktemp("dialects") / "data") as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=120) as client:
        yield client


def create(http: httpx.Client, name: str, schema: Any = None) -> None:
    made = http.post("/feeds", json={"name": name, "schema": schema})
    assert made.status_code == 201, made.text


def put(http: httpx.Client, subscriber: str, id: str, **body: Any) -> httpx.Response:
    return http.put(f"/subscribers/{subscriber}/subscriptions/{id}", json=body)


def wanted(schema: Any, events: list[Any]) -> list[set[str]]:
    """What a matcher says of each event."""
    matcher = bm.Matcher(schema)
    for id, (dialect, filter) in FILTERS.items():
        matcher.subscribe(id, filter, dialect=dialect)
    return [set(matcher.match(event)) for event in events]


def got(http: httpx.Client, feed: str, subscriber: str, events: list[Any]) -> list[set[str]]:
    """The subscriptions that get each event once it is published."""
    receipt = http.post(f"/feeds/{feed}/events", json=events)
    assert receipt.status_code == 200, receipt.text
    after, found = receipt.json()["first"] - 1, [set[str]() for _ in events]
    path = f"/subscribers/{subscriber}/notifications"
    page = http.get(path, params={"after": after, "limit": 1_000}).json()
    for one in page["notifications"]:
        assert one["event"] == events[one["sequence"] - after - 1]
        found[one["sequence"] - after - 1] = set(one["subscriptions"])
    return found


def test_the_examples_have_every_dialect_and_tell_events_apart() -> None:
    assert {dialect for dialect, _ in FILTERS.values()} == {None, "sql", *DIALECTS}
    for schema in (SCHEMA, None):
        found = wanted(schema, EVENTS)
        assert all(0 < sum(id in ids for ids in found) < len(EVENTS) for id in FILTERS)


def test_every_dialect_by_http_also_from_a_backup_and_after_a_restart(
    broker: RunningBroker, tmp_path: Path
) -> None:
    schemas = {"http-typed": SCHEMA, "http-open": None}
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        for feed, schema in schemas.items():
            create(http, feed, schema)
            half = list(FILTERS.items())[::2]
            for id, (dialect, filter) in half:
                answer = put(http, feed, id, feed=feed, filter=filter, dialect=dialect)
                assert answer.status_code == 200, answer.text
                shown = (None if dialect == "sql" else dialect, filter)
                assert (answer.json()["dialect"], answer.json()["filter"]) == shown
            many = {id: filter for id, (_, filter) in FILTERS.items()}
            dialects = {id: dialect for id, (dialect, _) in FILTERS.items()}
            answer = http.post(
                f"/subscribers/{feed}/subscriptions",
                json={"feed": feed, "filters": many, "dialect": dialects},
            )
            assert answer.json() == {"count": len(FILTERS)}
            assert got(http, feed, feed, EVENTS) == wanted(schema, EVENTS)

    backup = tmp_path / "backup"
    back_up(broker.data, backup)
    assert verify(backup).problems == []
    broker.stop()
    broker.start()
    with RunningBroker(backup) as copy:
        for url, (feed, schema) in product((broker.url, copy.url), schemas.items()):
            with httpx.Client(base_url=url, timeout=30) as http:
                assert got(http, feed, feed, EVENTS) == wanted(schema, EVENTS)
                listed = http.get(f"/subscribers/{feed}/subscriptions").json()["subscriptions"]
                assert {one["id"]: (one["dialect"], one["filter"]) for one in listed} == {
                    id: (None if dialect == "sql" else dialect, filter)
                    for id, (dialect, filter) in FILTERS.items()
                }
                one = http.get(f"/subscribers/{feed}/subscriptions/jms").json()
                assert (one["dialect"], one["filter"]) == FILTERS["jms"]


def test_both_clients_and_one_dialect_for_all(broker: RunningBroker) -> None:
    with Client(broker.url) as client:
        client.create_feed("clients")
        for id, (dialect, filter) in FILTERS.items():
            made = client.subscribe("blocking", id, "clients", filter, dialect=dialect)
            assert made.dialect == (None if dialect == "sql" else dialect)
        dialects = {id: dialect for id, (dialect, _) in FILTERS.items() if dialect is not None}
        many = {id: filter for id, (_, filter) in FILTERS.items()}

    async def main() -> None:
        async with AsyncClient(broker.url) as client:
            await client.subscribe_many("awaited", "clients", many, dialect=dialects)
            policies = {str(n): {"amount": [{"numeric": [">", n]}]} for n in range(0, 3_000, 2)}
            assert await client.subscribe_many("all", "clients", policies, dialect="sns") == 1_500
            rule = await client.subscribe("one", "new", "clients", '{"tags":["new"]}',
                                          dialect="eventbridge")  # fmt: skip
            found = await client.subscription("one", "new")
            assert (found.dialect, found.filter) == (rule.dialect, rule.filter)
            tried = await client.dry_run("clients", {"plan": ["gold"]}, dialect="sns-body")
            assert (tried.events, tried.matches) == (0, 0)
            with pytest.raises(bm.ClientError, match="there is a dialect for 'y', and no filter"):
                await client.subscribe_many("x", "clients", {"x": "a"}, dialect={"y": "jms"})

    asyncio.run(main())
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        truth = wanted(None, EVENTS)
        assert got(http, "clients", "blocking", EVENTS) == truth
        assert got(http, "clients", "awaited", EVENTS) == truth
        assert [len(ids) for ids in got(http, "clients", "all", EVENTS)] == [60, 41, 50, 0, 0, 0]
    with Client(broker.url) as client:
        assert client.dry_run("clients", "amount > 100", dialect="jms").matches == 3
        event = EVENTS[0]
        rule = {"plan": [{"wildcard": "g*d"}]}
        assert client.explain("clients", filter=rule, dialect="eventbridge", event=event)
        stored = client.explain("clients", subscriber="blocking", subscription="jms", event=event)
        assert (stored.matched, stored.subscription) == (True, "jms")
        with pytest.raises(bm.ClientError) as caught:
            client.subscribe("x", "x", "clients", '{"a": 3}', dialect="eventbridge")
        assert caught.value.problem["position"] == 6


def test_all_filters_of_the_tables_on_one_feed_match_as_in_a_matcher(http: httpx.Client) -> None:
    """Patterns, policies and selectors together, and all of their events."""
    rows = [
        *(("eventbridge", row) for row in eventbridge_table.MATCHES),
        *(("sns", row) for row in sns_table.ATTRIBUTES),
        *(("sns-body", row) for row in sns_table.BODIES),
    ]
    matcher = bm.Matcher()
    filters, dialects = {}, {}
    for number, (dialect, (filter, _, _)) in enumerate(rows):
        filters[f"{number}"], dialects[f"{number}"] = filter, dialect
    for number, text in enumerate(("x = 1", "x > 0 AND x < 20", "x LIKE 'a%'", "x IS NULL", "x")):
        for dialect in (None, "jms"):
            filters[f"{dialect}-{number}"], dialects[f"{dialect}-{number}"] = text, dialect
    for id, filter in filters.items():
        matcher.subscribe(id, filter, dialect=dialects[id])
    events = [one for _, (_, yes, no) in rows for one in (*yes, *no) if _is_json(one)]
    assert len(events) > 400
    create(http, "tables")
    body = {"feed": "tables", "filters": filters, "dialect": dialects}
    answer = http.post("/subscribers/tables/subscriptions", json=body)
    assert answer.status_code == 200, answer.text
    for start in range(0, len(events), 100):
        part = events[start : start + 100]
        assert got(http, "tables", "tables", part) == [set(matcher.match(one)) for one in part]


def _is_json(event: Any) -> bool:
    """Whether JSON says it in 64 bits."""
    try:
        return bool(orjson.loads(orjson.dumps(event)) == event)
    except TypeError:
        return False


WRONG: list[tuple[str, Any, str, str | None]] = [
    ("eventbridge", '{"plan": ["gold"], "amount": 3}', "takes a list of values", "3"),
    ("eventbridge", '{"plan": [{"prefx": "a"}]}', "prefx", '"prefx"'),
    ("eventbridge", '{"plan": ["gold"', "should be here", ""),
    ("sns", '{"amount": [{"numeric": [">", "a"]}]}', "number", '"a"'),
    ("sns-body", '{"plan": {"tier": "x"}}', "list", '"x"'),
    ("jms", "amount > 3 AND plan LIKE", "the selector ends", ""),
    ("jms", "plan = '🚀' AND amount >> 3", "expected", "> 3"),
    ("cesql", "plan = 'a' AND amount = 1 OR paid", "parentheses", "OR"),
    ("cesql", "plan LIKE 5", "", "5"),
]


@pytest.mark.parametrize(("dialect", "filter", "said", "at"), WRONG)
def test_what_is_wrong_is_said_with_its_place(
    http: httpx.Client, dialect: str, filter: str, said: str, at: str
) -> None:
    if http.get("/feeds/wrong").status_code == 404:
        create(http, "wrong")
    with pytest.raises(bm.FilterError) as caught:
        bm.Matcher().subscribe(0, filter, dialect=dialect)
    position = caught.value.position
    assert position is not None
    assert filter[position:].startswith(at) if at else position == len(filter)
    body = {"filter": filter, "dialect": dialect}
    answers = [
        put(http, "wim", "one", feed="wrong", **body),
        http.post("/feeds/wrong/dry-run", json=body),
        http.post("/feeds/wrong/explain", json={**body, "event": {}}),
    ]
    for answer in answers:
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "urn:boxmatch:problem:filter")
        assert (problem["detail"], problem["position"]) == (str(caught.value), position)
        assert said in problem["detail"]
    many: dict[str, Any] = {"feed": "wrong", "filters": {"good": '{"a": [1]}', "bad": filter}}
    many["dialect"] = {"good": "eventbridge", "bad": dialect}
    problem = http.post("/subscribers/wim/subscriptions", json=many).json()
    assert problem["detail"].startswith(f"subscription 'bad': {caught.value.reason}")
    assert problem["position"] == position
    assert http.get("/subscribers/wim/subscriptions").json()["subscriptions"] == []


def test_what_makes_no_sense_is_refused(http: httpx.Client) -> None:
    create(http, "sense", SCHEMA)
    state = {"name": "map", "kind": "state", "spaces": {"map": {"x": "int"}}}
    http.post("/feeds", json=state).raise_for_status()

    def refused(answer: httpx.Response, said: str, status: int = 422) -> None:
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text

    known = "known are sql, eventbridge, sns, sns-body, cesql, jms"
    body = {"filter": "a = 1", "dialect": "jmx"}
    refused(put(http, "sue", "1", feed="sense", **body), f"({known}); did you mean 'jms'?")
    refused(http.post("/feeds/sense/dry-run", json=body), known)
    refused(http.post("/feeds/sense/explain", json={**body, "event": {}}), known)
    refused(put(http, "sue", "1", feed="map", region={"x": 1}, dialect="jmx"), known)
    refused(put(http, "sue", "1", feed="sense", dialect="jms"), "a subscription needs a filter")
    refused(put(http, "sue", "1", feed="sense", filter="a", dialect=3), "body/dialect")
    refused(
        put(http, "sue", "1", feed="map", region={"x": 1}, dialect="jms"), "is a state feed", 409
    )
    many = "/subscribers/sue/subscriptions"
    filters = {"a": "plan = 'x'"}
    for dialect, said in (
        ("jmx", known),
        ({"a": "jmx"}, known),
        ({"b": "jms"}, "there is a dialect for 'b', and no filter"),
        ({"a": 3}, "body/dialect"),
        (["jms"], "body/dialect"),
    ):
        body = {"feed": "sense", "filters": filters, "dialect": dialect}
        refused(http.post(many, json=body), said)
    stored = {"event": {}, "subscriber": "sue", "subscription": "1", "dialect": "jms"}
    refused(http.post("/feeds/sense/explain", json=stored), "a dialect is that of a filter")
    # In the dialect's own terms, whatever is given.
    refused(put(http, "sue", "1", feed="sense", filter={"price": ["x"]}, dialect="sns"),
            "there is no attribute 'price'")  # fmt: skip
    refused(put(http, "sue", "1", feed="sense", filter={"plan": "x"}, dialect="jms"), "at offset")
    assert http.get(many).json()["subscriptions"] == []


def test_listings_and_traces_show_the_dialect(http: httpx.Client) -> None:
    create(http, "shown", SCHEMA)
    rule = {"plan": [{"prefix": "g"}], "amount": [{"numeric": [">", 100]}]}
    put(http, "sid", "rule", feed="shown", filter=rule, dialect="eventbridge").raise_for_status()
    put(http, "sid", "sql", feed="shown", filter="amount > 100").raise_for_status()
    http.post("/feeds/shown/events", json=EVENTS).raise_for_status()
    ranked = http.get("/feeds/shown/subscriptions").json()["subscriptions"]
    assert {one["id"]: one["dialect"] for one in ranked} == {"rule": "eventbridge", "sql": None}
    traced = http.post("/feeds/shown/trace", json={"event": {"amount": 200.0}}).json()
    assert [(one["id"], one["dialect"]) for one in traced["gets"]] == [("sql", None)]
    [miss] = traced["misses"]
    assert (miss["id"], miss["dialect"], miss["filter"]) == ("rule", "eventbridge", rule)
    assert [(one["attribute"], one["satisfied"]) for one in miss["predicates"]] == [
        ("amount", True),
        ("plan", False),
    ]
    tried = http.post(
        "/feeds/shown/dry-run",
        json={"filter": {"plan": [{"wildcard": "g*d"}]}, "dialect": "eventbridge", "recent": 6},
    ).json()
    assert (tried["matches"], tried["cost"]) == (2, "residual")
    assert [one["matches"] for one in tried["recent"]] == [False] * 4 + [True] * 2


def test_an_older_subscription_is_sql(tmp_path: Path) -> None:
    """What was stored before there were dialects names none."""
    data = tmp_path / "data"
    with RunningBroker(data) as running, httpx.Client(base_url=running.url) as http:
        create(http, "old", SCHEMA)
        put(http, "olga", "all", feed="old", filter="amount > 100").raise_for_status()
    with Store.open(data) as store:
        [row] = store.reader.subscriptions(1)
        body = json.loads(row.wanted)
        del body["dialect"]
        store.write(
            lambda transaction: transaction.put_subscription(
                row.subscriber, row.id, row.feed, json.dumps(body).encode(), row.updated
            )
        ).result()
    with RunningBroker(data) as running, httpx.Client(base_url=running.url) as http:
        one = http.get("/subscribers/olga/subscriptions/all").json()
        assert (one["dialect"], one["filter"]) == (None, "amount > 100")
        assert got(http, "old", "olga", EVENTS[:2]) == [{"all"}, set()]


def test_the_commands(broker: RunningBroker, run_boxmatch: Command) -> None:
    url = ("--url", broker.url)
    assert "without a schema" in run_boxmatch("feeds", "create", "typed-in", *url).out
    pattern = '{"plan": [{"prefix": "g"}]}'
    named = ("--dialect", "eventbridge", *url)
    done = run_boxmatch("subscribe", "cli", "rule", "typed-in", pattern, *named, "--json")
    assert json.loads(done.out)["dialect"] == "eventbridge"
    assert json.loads(done.out)["filter"] == pattern
    tried = run_boxmatch("subscribe", "cli", "rule", "typed-in", pattern, *named, "--dry-run")
    assert "Matches 0 of the last 0 events" in tried.out
    wrong = run_boxmatch("subscribe", "cli", "x", "typed-in", '{"plan": "g"}', *named)
    assert wrong.code == 2
    assert "a list of values" in wrong.err
    assert "^" in wrong.err
    unknown = run_boxmatch("subscribe", "cli", "x", "typed-in", "a", "--dialect", "jmx", *url)
    assert "did you mean 'jms'?" in unknown.err


HOSTILE: list[tuple[str, str, int]] = [
    ("jms", "(" * 30_000 + "a = 1" + ")" * 30_000, 422),
    ("jms", "a = " + "1 + " * 15_000 + "1", 200),
    ("jms", " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(30)), 200),
    ("jms", "a IN (" + ", ".join(f"'{i}'" for i in range(7_000)) + ")", 200),
    ("cesql", "UPPER(" * 9_000 + "a" + ")" * 9_000 + " = 'X'", 422),
    ("cesql", "a LIKE '" + "%a" * 30_000 + "'", 200),
    ("eventbridge", '{"a": ' * 9_000 + "[1]" + "}" * 9_000, 422),
    ("eventbridge", '{"a": [{"wildcard": "' + "*a" * 30_000 + '"}]}', 200),
    ("eventbridge", json.dumps({"a": [{"anything-but": [str(i) for i in range(6_000)]}]}), 200),
    ("eventbridge", json.dumps({"$or": [{f"a{i}": [1]} for i in range(3_000)]}), 422),
    ("sns", json.dumps({"a": [{"prefix": f"{i}"} for i in range(3_000)]}), 422),
    ("sns-body", "[" * 60_000, 422),
]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux tells in /proc")
def test_hostile_filters_take_no_time(broker: RunningBroker, http: httpx.Client) -> None:
    create(http, "hostile")
    for number, (dialect, filter, status) in enumerate(HOSTILE):
        began = broker.cpu_seconds
        answer = put(http, "mallory", f"{number}", feed="hostile", filter=filter, dialect=dialect)
        took = broker.cpu_seconds - began
        assert answer.status_code == status, (dialect, filter[:60], answer.text[:300])
        assert took < 5, (dialect, filter[:60], took)  # on a slow machine; here it is below 1
    began = broker.cpu_seconds
    assert http.post("/feeds/hostile/events", json={"a": "a" * 10_000}).status_code == 200
    assert broker.cpu_seconds - began < 5


def test_every_dialect_is_offered_where_one_is_chosen() -> None:
    """In the playground and in the descriptions of commands and of the API."""
    names = ["sql", *DIALECTS]
    dashboard = files("boxmatch.broker").joinpath("dashboard")
    page = dashboard.joinpath("index.html").read_text(encoding="utf-8")
    select = page.partition('<select id="filter-dialect">')[2].partition("</select>")[0]
    assert re.findall(r'<option value="([\w-]+)">', select) == names
    script = dashboard.joinpath("dialects.js").read_text(encoding="utf-8")
    described = script.partition("const DIALECTS = {")[2]
    assert re.findall(r'^  "?([\w-]+)"?: (?:SQL|\{)', described, re.MULTILINE) == names
    assert dialect_names("") == names
    option = get_args(Dialect)[1]
    assert [name for name in names if f"{name}" not in option.help] == []
