"""`boxmatch match`: files in every format, standard input as it comes, and what may be wrong."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import boxmatch as bm
from boxmatch.cli import matches
from boxmatch.cli.files import lines_as_they_come
from boxmatch.cli.schemas import infer_from_columns, infer_from_events
from command_line import Command

SUBSCRIPTIONS = [
    {"id": "alice", "filter": "symbol = 'IBM' AND price BETWEEN 20 AND 30"},
    {"id": "bob", "filter": "price < 25 OR volume >= 1000000"},
    {"id": "carol", "filter": "volume >= 500"},
]
EVENTS: list[dict[str, Any]] = [
    {"symbol": "IBM", "price": 24.5, "volume": 100},
    {"symbol": "SAP", "price": 120.0},
    {"symbol": "IBM", "price": 29.0, "volume": 700},
]
WANTED = {0: ["alice", "bob"], 2: ["alice", "carol"]}
ATTRIBUTES = ("symbol=string", "price=float", "volume=int")
SCHEMA = tuple(word for one in ATTRIBUTES for word in ("--attribute", one))
FORMATS = ("csv", "parquet", "arrow", "arrows", "json", "jsonl")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    table = pa.Table.from_pylist(rows)
    match path.suffix:
        case ".json":
            path.write_text(json.dumps(rows))
        case ".jsonl":
            path.write_text("\n\n".join(map(json.dumps, rows)))
        case ".csv":
            pyarrow.csv.write_csv(table, path)
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            pyarrow.feather.write_feather(table, str(path))
        case ".arrows":
            with pa.ipc.new_stream(str(path), table.schema) as stream:
                stream.write_table(table)
    return str(path)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "subscriptions.csv", SUBSCRIPTIONS)
    write(tmp_path / "events.jsonl", EVENTS)
    return tmp_path


def inferred(schema: str) -> str:
    """What is said on standard error of a schema that was not given."""
    return (
        f"boxmatch: the schema was inferred from the events: {schema}. "
        "Give another with --attribute or --schema.\n"
    )


def found(text: str) -> dict[int, list[Any]]:
    lines = map(json.loads, text.splitlines())
    return {line["row"]: line["subscriptions"] for line in lines}


def test_what_a_terminal_shows(files: Path, run_boxmatch: Command) -> None:
    done = run_boxmatch("match", "-s", "subscriptions.csv", "-e", "events.jsonl")
    assert done == (
        0,
        '0  alice, bob  {"symbol": "IBM", "price": 24.5, "volume": 100}\n'
        '2  alice, carol  {"symbol": "IBM", "price": 29.0, "volume": 700}\n',
        inferred("symbol=string, price=float, volume=float"),
    )
    again = run_boxmatch("match", "-s", "subscriptions.csv", "-e", "events.jsonl", *SCHEMA)
    assert again == (0, done.out, "")


@pytest.mark.parametrize("kind", FORMATS)
def test_formats(files: Path, run_boxmatch: Command, kind: str) -> None:
    subscriptions = write(files / f"s.{kind}", SUBSCRIPTIONS)
    events = write(files / f"e.{kind}", EVENTS)
    for schema in ((), SCHEMA):
        done = run_boxmatch("match", "-s", subscriptions, "-e", events, "--json", *schema)
        assert done.code == 0, done.err
        assert found(done.out) == WANTED
        assert json.loads(done.out.splitlines()[0])["event"] == EVENTS[0]


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_ranges_in_json(files: Path, run_boxmatch: Command, kind: str) -> None:
    objects = [
        {"id": "alice", "filter": {"symbol": "IBM", "price": {"low": 20, "high": 30}}},
        {"id": "bob", "filter": {"price": {"high": 25, "high_open": True}}},
        {"id": "carol", "filter": {"volume": {"low": 500, "high": None}}},
    ]
    path = write(files / f"s.{kind}", objects)
    done = run_boxmatch("match", "-s", path, "-e", "events.jsonl", "--json")
    assert (done.code, found(done.out)) == (0, WANTED), done.err


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "jsonl"])
def test_files_of_matches(files: Path, run_boxmatch: Command, kind: str) -> None:
    path = files / f"matches.{kind}"
    keep = () if kind == "jsonl" else ("--keep", "symbol", "--keep", "volume")
    for events in ("events.jsonl", write(files / "e.parquet", EVENTS)):
        done = run_boxmatch(
            "match", "-s", "subscriptions.csv", "-e", events, "-o", str(path), *keep
        )
        volume = "int" if events.endswith("parquet") else "float"
        said = inferred(f"symbol=string, price=float, volume={volume}")
        assert done == (0, f"3 events, 2 of them matched, 4 matches in {path}\n", said)
        if kind == "jsonl":
            assert found(path.read_text()) == WANTED
            continue
        table = read(path)
        assert table.column_names == ["row", "symbol", "volume", "subscription"]
        rows = sorted((row["row"], row["subscription"]) for row in table.to_pylist())
        assert rows == [(row, one) for row, ids in WANTED.items() for one in ids]
        assert {(row["row"], row["volume"]) for row in table.to_pylist()} == {(0, 100), (2, 700)}
    assert {one.name for one in files.iterdir()} == {
        *("subscriptions.csv", "events.jsonl", "e.parquet", path.name)
    }


def read(path: Path) -> pa.Table:
    match path.suffix:
        case ".csv":
            return pyarrow.csv.read_csv(path)
        case ".parquet":
            return pq.read_table(path)
    return pyarrow.feather.read_table(str(path))


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "jsonl"])
def test_no_events(files: Path, run_boxmatch: Command, kind: str) -> None:
    (files / "none.jsonl").write_text("\n")
    (files / "none.csv").write_text("symbol,price\n")
    for events in ("none.jsonl", "none.csv"):
        done = run_boxmatch(
            "match", "-s", "subscriptions.csv", "-e", events, "-o", f"none.m.{kind}"
        )
        assert done.code == 0, done.err
        assert done.out.startswith("0 events, 0 of them matched")
        if kind != "jsonl":
            assert read(files / f"none.m.{kind}").num_rows == 0


def test_subscriptions_that_were_saved(files: Path, run_boxmatch: Command) -> None:
    inputs = ("-s", "subscriptions.csv", "-e", "events.jsonl")
    first = run_boxmatch("match", *inputs, "--save", "saved", "--json")
    again = run_boxmatch("match", "-s", "saved", "-e", "events.jsonl", "--json")
    assert (first.code, first.out, "") == again
    assert found(again.out) == WANTED
    assert "3 subscriptions" in run_boxmatch("info", "saved").out
    refused = run_boxmatch("match", "-s", "saved", "-e", "events.jsonl", *SCHEMA)
    assert refused.code == 2
    assert "saved has a schema" in refused.err


def test_nan_in_a_table_is_absent(files: Path, run_boxmatch: Command) -> None:
    path = write(files / "e.parquet", [{"symbol": "IBM", "price": float("nan"), "volume": 700}])
    inputs = ("match", "-s", "subscriptions.csv", "-e", path)
    assert run_boxmatch(*inputs).out == '0  carol  {"symbol": "IBM", "volume": 700}\n'
    assert "got absent" in run_boxmatch(*inputs, "--explain", "bob").out


def test_explain(files: Path, run_boxmatch: Command) -> None:
    inputs = ("-s", "subscriptions.csv", "-e", "events.jsonl", "--explain", "carol")
    done = run_boxmatch("match", *inputs)
    assert done.code == 0
    assert "row 1: {" in done.out
    assert "✗ volume >= 500   got absent" in done.out
    lines = list(map(json.loads, run_boxmatch("match", *inputs, "--json").out.splitlines()))
    assert [line["matched"] for line in lines] == [False, False, True]
    wanted = {"attribute": "volume", "wanted": "volume >= 500", "got": 700, "satisfied": True}
    assert lines[2]["predicates"] == [wanted | {"residual": False}]


def test_ids_that_are_numbers(files: Path, run_boxmatch: Command) -> None:
    rows = [{"id": 7, "filter": "price < 25"}, {"id": 0, "filter": "price > 25"}]
    subscriptions = write(files / "numbers.csv", rows)
    inputs = ("-s", subscriptions, "-e", "events.jsonl")
    assert found(run_boxmatch("match", *inputs, "--json").out) == {0: [7], 1: [0], 2: [0]}
    assert "7 does not match" in run_boxmatch("match", *inputs, "--explain", "7").out
    (files / "numbers.csv").write_text("id,filter\n007,price < 25\n8,price < 25\n")
    assert found(run_boxmatch("match", *inputs, "--json").out) == {0: ["007", "8"]}


def test_standard_input_is_answered_as_it_comes(
    files: Path, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b'{"price": 1}\n[{"price": 2}]\n\n{"price": 30}'))
    monkeypatch.setattr(sys, "stdin", piped)
    done = run_boxmatch("match", "-s", "subscriptions.csv", "--json", *SCHEMA)
    assert found(done.out) == {0: ["bob"], 1: ["bob"]}

    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        values = lines_as_they_come(source)
        sink.write(b'{"n": 1}\n{"n": 2}\n{"n"')
        assert next(values) == [{"n": 1}, {"n": 2}]
        sink.write(b": 3}\n")
        assert next(values) == [{"n": 3}]
        sink.write(b'{"n": 4}')
        sink.close()
        assert list(values) == [[{"n": 4}]]


def test_subscriptions_that_are_left_out(files: Path, run_boxmatch: Command) -> None:
    rows = [*SUBSCRIPTIONS, {"id": "dora", "filter": "prize < 3"}]
    subscriptions = write(files / "some.csv", rows)
    inputs = ("-s", subscriptions, "-e", "events.jsonl", "--json")
    done = run_boxmatch("match", *inputs, "--skip-bad")
    assert done.code == 0
    assert found(done.out) == WANTED
    assert "\nboxmatch: left out row 3: there is no attribute 'prize'" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-s", "none.csv", "-e", "events.jsonl"), "none.csv: No such file or directory"),
        (("-s", "subscriptions.csv", "-e", "none.csv"), "none.csv: No such file or directory"),
        (("-s", "subscriptions.csv", "-e", "x.txt"), "x.txt: its name does not say what it is"),
        (("-s", "subscriptions.csv", "-e", "bad.jsonl"), "bad.jsonl: line 2 is not JSON"),
        (("-s", "subscriptions.csv", "-e", "bad.jsonl", "--format", "parquet"), "not parquet"),
        (("-s", "subscriptions.csv", "-e", "bad.json"), "bad.json: this is not JSON"),
        (("-s", "subscriptions.csv", "-e", "bad.csv"), "bad.csv: this is not csv"),
        (("-s", "subscriptions.csv", "-e", "five.jsonl"), "five.jsonl: row 0: an event is"),
        (("-s", "subscriptions.csv", "-e", "five.jsonl", *SCHEMA), "five.jsonl, row 0: an event"),
        (("-s", "subscriptions.csv", "-e", "dear.jsonl", *SCHEMA),
         "dear.jsonl, row 1: attribute 'price': 'dear' is not a float"),
        (("-s", "subscriptions.csv", "-e", "dear.csv", *SCHEMA), "dear.csv: this is not csv"),
        (("-s", "subscriptions.csv", "-e", "dear.jsonl"),
         "boxmatch: the schema was inferred from the events: symbol=string. "
         "Left out: attribute 'price' is of type float in one place (1.0) and string in another"),
        (("-s", "subscriptions.csv", "-e", "nested.jsonl"), "no schema can be inferred"),
        (("-s", "bad.csv", "-e", "events.jsonl"), "bad.csv: this is not csv"),
        (("-s", "other.csv", "-e", "events.jsonl"), "other.csv: the table of subscri"),
        (("-s", "other.jsonl", "-e", "events.jsonl"), "other.jsonl: record 0 has no 'id'"),
        (("-s", "twice.csv", "-e", "events.jsonl"), "'alice' occurs more than once"),
        (("-s", ".", "-e", "events.jsonl"), "no matcher is saved at ."),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "--explain", "zoe"), "id 'zoe'"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "-o", "x.txt"), "must end with .csv"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "-o", "no/x.csv"),
         "cannot write no/x.csv: No such file or directory"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "-o", "x.csv", "--json"), "not both"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "-o", "x.csv", "--explain", "bob"),
         "not both"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "--keep", "price"), "--output"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "-o", "x.csv", "--keep", "prize"),
         "--keep prize: the first events have no such attribute"),
        (("-s", "subscriptions.csv", "-e", "events.parquet", "-o", "x.csv", "--keep", "prize"),
         "--keep prize: the events have no such column"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "--attribute", "price"), "NAME=TYPE"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "--schema", "bad.json"), "bad.json"),
        (("-s", "subscriptions.csv", "-e", "events.jsonl", "--schema", "bad.json", *SCHEMA),
         "not both"),
    ],
)  # fmt: skip
def test_mistakes(
    files: Path, run_boxmatch: Command, arguments: tuple[str, ...], said: str
) -> None:
    texts = {
        "bad.jsonl": '{"price": 1}\n{"price"\n',
        "bad.json": "[1,",
        "bad.csv": "a,b\n1,2\n3\n",
        "five.jsonl": "5\n",
        "x.txt": "",
        "dear.jsonl": '{"symbol": "A", "price": 1}\n{"symbol": "B", "price": "dear"}\n',
        "dear.csv": "symbol,price\nA,1\nB,dear\n",
        "nested.jsonl": '{"x": [[1]]}\n',
        "other.csv": "name,rule\na,b\n",
        "other.jsonl": '{"name": "a"}\n',
        "twice.csv": "id,filter\nalice,price < 3\nalice,price < 4\n",
    }
    for name, text in texts.items():
        (files / name).write_text(text)
    write(files / "events.parquet", EVENTS)
    there = set(files.iterdir())
    done = run_boxmatch("match", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("boxmatch: ")
    assert said in done.err
    assert "Traceback" not in done.err
    assert set(files.iterdir()) == there, "something half-written was left behind"


@pytest.mark.parametrize(
    ("kind", "writer"), [("csv", matches.TableWriter), ("jsonl", matches.LineWriter)]
)
def test_a_full_disk(
    files: Path, run_boxmatch: Command, monkeypatch: pytest.MonkeyPatch, kind: str, writer: Any
) -> None:
    really = writer._close

    def close(self: object) -> None:
        really(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "_close", close)
    there = set(files.iterdir())
    inputs = ("-s", "subscriptions.csv", "-e", "events.jsonl")
    done = run_boxmatch("match", *inputs, *SCHEMA, "-o", f"m.{kind}")
    assert done == (2, "", f"boxmatch: cannot write m.{kind}: the disk is full\n")
    assert set(files.iterdir()) == there


class TestInference:
    def test_numbers_of_json_are_floats(self) -> None:
        events = [{"price": 3, "ok": True}, {"price": 4, "big": 2**60}]
        schema = infer_from_events(events).schema
        assert schema == bm.Schema({"price": "float", "ok": "bool", "big": "int"})

    def test_what_cannot_be_an_attribute_is_left_out(self) -> None:
        inferred = infer_from_events(
            [{"price": 3, "sizes": [1], "box": {"size": 2}, "lists": [["a"]], "none": None}]
        )
        assert inferred.schema == bm.Schema(
            {"price": "float", "sizes": "list of float", "box.size": "float"}
        )
        assert len(inferred.left_out) == 2
        columns = pa.schema([("price", pa.float32()), ("tags", pa.list_(pa.list_(pa.string())))])
        inferred = infer_from_columns(columns)
        assert inferred.schema == bm.Schema({"price": "float"})
        assert "tags" in str(inferred)

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            (["TRUE", "IBM"], "string"),
            (["TRUE", "false"], "bool"),
            (["TRUE", "T"], "string"),
            (["1", "0"], "int"),
            (["007", "12"], "string"),
            (["007.5", "1.5"], "string"),
            (["-7", "12"], "int"),
            (["+7", "12"], "string"),
            (["9223372036854775807"], "int"),
            (["9223372036854775808"], "string"),
            (["1", "2.5", ".5", "1e3"], "float"),
            (["9007199254740993", "0.5"], "string"),
            (["1e999", "1.0"], "string"),
            (["NA", "DE"], "string"),
            (["2026-01-05", "2026-01-06 12:30"], "timestamp"),
            (["2026-01-05T12:30:00Z", "2026-01-05T12:30:00+02:00"], "timestamp"),
            (["2026-01-05T12:30:00Z", "2026-01-05"], "string"),
            (["2026-02-30"], "string"),
        ],
    )
    def test_columns_of_csv(
        self, files: Path, run_boxmatch: Command, values: list[str], kind: str
    ) -> None:
        """And what is text stays as it is written; an empty field is absent."""
        (files / "e.csv").write_text("\n".join(["x,y", *(f"{value},1" for value in values), ",1"]))
        (files / "s.csv").write_text("id,filter\nall,y = 1\npresent,x IS NOT NULL\n")
        done = run_boxmatch("match", "-s", "s.csv", "-e", "e.csv", "--json")
        assert done.err == inferred(f"x={kind}, y=int")
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert [sorted(row["subscriptions"]) for row in rows] == [
            *(["all", "present"] for _ in values), ["all"]
        ]  # fmt: skip
        if kind == "string":
            assert [row["event"].get("x") for row in rows] == [*values, None]

    def test_a_number_that_is_none_is_named(self, files: Path, run_boxmatch: Command) -> None:
        (files / "e.csv").write_text("price,none\n1.5,\n2.5,\nNA,\n")
        (files / "s.csv").write_text("id,filter\na,price > 2\n")
        files_given = ("match", "-s", "s.csv", "-e", "e.csv", "--json")
        refused = run_boxmatch(*files_given)
        assert refused.code == 2
        assert "price=string" in refused.err
        assert "price is text because of 'NA'." in refused.err
        assert "Left out: column 'none' has no values" in refused.err
        done = run_boxmatch(*files_given, "--null", "NA")
        assert found(done.out) == {1: ["a"]}
        assert "price=float" in done.err
        done = run_boxmatch(*files_given, "--null", "NA", "--attribute", "price=float")
        assert (found(done.out), done.err) == ({1: ["a"]}, "")
        refused = run_boxmatch(*files_given, "--attribute", "price=float")
        assert "invalid value 'NA'" in refused.err

    def test_texts_of_a_given_schema_and_of_subscriptions(
        self, files: Path, run_boxmatch: Command
    ) -> None:
        (files / "e.csv").write_text("code,price\nNA,1\nTRUE,2\n007,3\n,4\n")
        (files / "s.csv").write_text("id,code,price_low\n1,NA,\n2,TRUE,2\n3,007,3\n4,,4\n")
        schema = ("--attribute", "code=string", "--attribute", "price=int")
        for given in ((), schema):
            done = run_boxmatch("match", "-s", "s.csv", "-e", "e.csv", "--json", *given)
            assert found(done.out) == {0: [1], 1: [2], 2: [3], 3: [4]}, done.err


class TestNested:
    FILTERS = (
        "id,filter\n"
        "gold,order.tier = 'gold'\n"
        "urgent,'urgent' = ANY(tags)\n"
        "big,price * volume > 100\n"
        "oil,title LIKE '%oil%'\n"
        "item,\"EXISTS(items, i -> i.price > 10 AND i.kind = 'a')\"\n"
    )
    EVENTS: ClassVar[list[dict[str, Any]]] = [
        {"title": "crude oil", "price": 20.0, "volume": 10, "tags": ["urgent"],
         "order": {"tier": "gold"}, "items": [{"price": 11, "kind": "a"}]},
        {"title": "x", "price": 2.0, "volume": 1, "tags": [], "order": {"tier": "silver"},
         "items": [{"price": 11, "kind": "b"}, {"price": 1, "kind": "a"}]},
    ]  # fmt: skip

    @pytest.fixture(autouse=True)
    def files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("s.csv").write_text(self.FILTERS)
        Path("e.jsonl").write_text("".join(json.dumps(one) + "\n" for one in self.EVENTS))
        pq.write_table(pa.Table.from_pylist(self.EVENTS), "e.parquet")

    @pytest.mark.parametrize("events", ["e.jsonl", "e.parquet"])
    def test_lists_and_structs(self, run_boxmatch: Command, events: str) -> None:
        done = run_boxmatch("match", "-s", "s.csv", "-e", events, "--json")
        assert done.code == 0, done.err
        [matched] = found(done.out).values()
        assert sorted(matched) == ["big", "gold", "item", "oil", "urgent"]
        keep = ("--keep", "order.tier", "--keep", "tags")
        done = run_boxmatch("match", "-s", "s.csv", "-e", events, "-o", "m.csv", *keep)
        assert done.code == 0, done.err
        lines = Path("m.csv").read_text().splitlines()
        assert lines[1].startswith('0,"gold","[""urgent""]",')
        done = run_boxmatch(
            "match", "-s", "s.csv", "-e", events, "-o", "m.csv", "--keep", "order.x"
        )
        assert done.code == 2
        assert "--keep order.x: the" in done.err

    def test_columns_with_dots(self, run_boxmatch: Command) -> None:
        Path("e.csv").write_text("title,price,volume,order.tier\noil,20,10,gold\nx,1,2,\n")
        Path("s.csv").write_text("id,filter\na,order.tier = 'gold' AND price * volume > 100\n")
        given = ("price=float", "volume=int", "order.tier=string", "tags=list of string")
        schema = [word for one in given for word in ("--attribute", one)]
        for more in ([], schema):
            done = run_boxmatch("match", "-s", "s.csv", "-e", "e.csv", "--json", *more)
            assert done.code == 0, done.err
            assert found(done.out) == {0: ["a"]}
        Path("e.csv").write_text("price,tags\n1,a\n")
        done = run_boxmatch("match", "-s", "s.csv", "-e", "e.csv", *schema)
        assert done.code == 2
        assert "attribute 'tags'" in done.err
        assert "is not a list" in done.err

    def test_explaining_residuals(self, run_boxmatch: Command) -> None:
        explain = ("match", "-s", "s.csv", "-e", "e.jsonl", "--explain")
        done = run_boxmatch(*explain, "item", "--json")
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert [row["predicates"][0]["satisfied"] for row in rows] == [True, False]
        assert rows[0]["predicates"][0]["residual"] is True
        assert "got 200.0" in run_boxmatch(*explain, "big").out


def test_filters_of_other_dialects(tmp_path: Path, run_boxmatch: Command) -> None:
    rules = [
        {"id": "a", "filter": {"source": [{"prefix": "aws."}], "detail": {"n": [2]}}},
        {"id": "b", "filter": "source = 'x'", "dialect": "sql"},
    ]
    events = [{"source": "aws.ec2", "detail": {"n": [1, 2]}}, {"source": "x"}]
    for name, rows in (("rules.jsonl", rules), ("events.jsonl", events)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = ("-s", str(tmp_path / "rules.jsonl"), "-e", str(tmp_path / "events.jsonl"))
    done = run_boxmatch("match", *files, "--dialect", "eventbridge")
    assert [line.split()[:2] for line in done.out.splitlines()] == [["0", "a"], ["1", "b"]]
