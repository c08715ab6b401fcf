from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from boxmatch import Schema, SparkError
from boxmatch.spark.pipeline import PipelineConfig
from boxmatch.spark.pipeline.stages import fingerprint_of

SMALLEST = """
[events]
path = "ticks"
attributes = { price = "float" }
[subscriptions]
path = "s3://bucket/alerts"
[output]
path = "out"
"""


def load(folder: Path, text: str) -> PipelineConfig:
    file = folder / "pipeline.toml"
    file.write_text(text, encoding="utf-8")
    return PipelineConfig.load(file)


def test_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    assert config.events.path == str(tmp_path / "ticks")
    assert config.events.format == "parquet"
    assert config.events.event_id == "event_id"
    assert config.events.event_time is None
    assert config.events.attributes == Schema({"price": "float"})
    assert config.subscriptions.path == "s3://bucket/alerts"
    assert config.output.path == str(tmp_path / "out")
    assert config.clean.duplicates is None
    assert config.match.plan == "auto"
    assert config.statistics.top == 20


def test_sample_shows_every_section() -> None:
    text = resources.files("boxmatch.spark.pipeline").joinpath("sample.toml").read_text()
    config = PipelineConfig.parse(tomllib.loads(text))
    assert config.derive == {"notional": "price * volume", "hour": "hour(at)"}
    assert config.clean.duplicates == ("event_id",)
    assert set(tomllib.loads(text)) == set(config.as_dict())


def test_options_are_plain_values(tmp_path: Path) -> None:
    text = SMALLEST + '[subscriptions.options]\nheader = true\nmaxColumns = 7\nsep = ";"\n'
    config = load(tmp_path, text)
    assert config.subscriptions.options == {"header": True, "maxColumns": 7, "sep": ";"}


def test_plain_values_tell_configs_apart(tmp_path: Path) -> None:
    one, same = load(tmp_path, SMALLEST), load(tmp_path, SMALLEST)
    other = load(tmp_path, SMALLEST.replace('"float"', '{ type = "float", domain = [0, inf] }'))
    prints = [fingerprint_of(config.as_dict()) for config in (one, same, other)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[output]", "[outputs]", "output is missing"),
        ('path = "out"', "", "output.path is missing"),
        ('path = "out"', "path = 3", "output.path must be a string, not 3"),
        ('path = "out"', 'path = "out"\nmode = "x"',
         "unknown key output.mode; known are path, columns"),
        ('path = "out"', 'path = "out"\ncolumns = "price"', "output.columns must be a list"),
        ("[output]", "[extra]\n[output]", "unknown key extra; known are events, subscriptions"),
        ('path = "ticks"', "", "events.path: give a path or a table; neither is given"),
        ('path = "ticks"', 'path = "ticks"\ntable = "t"', "both are given"),
        ('path = "ticks"', 'path = "ticks"\nformat = "xml"',
         "events.format must be one of parquet, csv, json, not 'xml'"),
        ('path = "ticks"', 'path = "ticks"\noptions = { header = [1] }', "events.options.header"),
        ('"float"', '"flaot"', "events.attributes: attribute 'price': unknown type 'flaot'"),
        ("attributes = ", "attribute = ", "events.attributes is missing"),
        ('"float"', '"json"', "events.attributes.price is of type json, and a pipeline cleans"),
        ("alerts\"", 'alerts"\ndialect = "jmss"',
         "subscriptions.dialect: there is no dialect 'jmss' (known are sql,"),
        ('path = "ticks"', 'path = "ticks"\nevent_time = "price"',
         "events.event_time names 'price', which is of type float"),
        ("[output]", "[clean]\nduplicates = [1]\n[output]", "clean.duplicates must be a list of"),
        ("[output]", "[derive]\nhour = 3\n[output]", "derive.hour must be a string, not 3"),
        ("[output]", '[derive]\nhour = " "\n[output]', "derive.hour must be a SQL expression"),
        ("[output]", '[match]\nplan = "best"\n[output]', "match.plan must be one of auto"),
        ("[output]", "[match]\nshards = true\n[output]", "match.shards must be a whole number"),
        ("[output]", "[match]\nshards = 0\n[output]", "match.shards must be at least 1, not 0"),
        ("[output]", "[match]\nmax_false_positive_rate = 1.5\n[output]",
         "match.max_false_positive_rate must be from 0 up to, but not, 1, not 1.5"),
        ("[output]", "[statistics]\ntoo_broad = 5\n[output]", "statistics.too_broad is a share"),
        ("[output]", "[statistics]\ntop = 0\n[output]", "statistics.top must be from 1 to 100,000"),
        ("[output]", "[output", "not TOML"),
    ],
)  # fmt: skip
def test_errors_name_the_key_and_the_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALLEST
    with pytest.raises(SparkError) as error:
        load(tmp_path, SMALLEST.replace(old, new, 1))
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "pipeline.toml"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match=r"none\.toml: No such file"):
        PipelineConfig.load(tmp_path / "none.toml")


def test_from_dicts() -> None:
    given: dict[str, Any] = tomllib.loads(SMALLEST)
    assert PipelineConfig.parse(given).events.path == str(Path.cwd() / "ticks")
    del given["events"]["attributes"]
    with pytest.raises(SparkError, match=r"^configuration: events.attributes is missing"):
        PipelineConfig.parse(given)
