"""The settings of a pipeline, and the TOML file that holds them."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from boxmatch.errors import SchemaError, SparkError
from boxmatch.model.schema import Schema

Format = Literal["parquet", "csv", "json"]
_FORMATS: Final = ("parquet", "csv", "json")
_PLANS: Final = ("auto", "replicated", "sharded")
_MANY: Final = 100_000  # what a report shows and what a worker is sent stays small


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from: files (a path, a folder or a pattern) or a table of the catalogue."""

    path: str | None = None
    table: str | None = None
    format: Format = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's reader. CSV files have a header unless they say otherwise."""

    @property
    def address(self) -> str:
        """The path or the table, for messages."""
        return f"table {self.table}" if self.path is None else self.path


@dataclass(frozen=True, kw_only=True)
class EventsConfig(Source):
    attributes: Schema
    """What filters may name, as in `boxmatch.Schema`."""
    event_id: str = "event_id"
    event_time: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionsConfig(Source):
    subscription_id: str = "subscription_id"
    filter: str = "filter"


@dataclass(frozen=True, kw_only=True)
class CleanConfig:
    duplicates: tuple[str, ...] | None = None
    """Columns that no two events may share; the event's id if left out, no check if empty."""


@dataclass(frozen=True, kw_only=True)
class MatchConfig:
    plan: Literal["auto", "replicated", "sharded"] = "auto"
    shards: int | None = None
    index: str = "tile"
    index_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    path: str
    columns: tuple[str, ...] | None = None
    """Of the event, in a notification; all of them if left out."""


@dataclass(frozen=True, kw_only=True)
class StatisticsConfig:
    too_broad: float = 0.01
    """A subscription that matches more than this share of the events is too broad."""
    top: int = 20
    """How many subscriptions each list of the report shows."""
    sample: int = 10_000
    """How many events the selectivities are measured on."""


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """All of it. Paths are absolute once loaded from a file."""

    events: EventsConfig
    subscriptions: SubscriptionsConfig
    output: OutputConfig
    clean: CleanConfig = CleanConfig()
    derive: Mapping[str, str] = field(default_factory=dict)
    """Attributes to add, by name, as SQL expressions; each may use those before it."""
    match: MatchConfig = MatchConfig()
    statistics: StatisticsConfig = StatisticsConfig()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PipelineConfig:
        """Read a TOML file; relative paths in it start at its folder."""
        file = Path(path)
        try:
            with file.open("rb") as stream:
                found = tomllib.load(stream)
        except OSError as error:
            raise SparkError(f"{file}: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SparkError(f"{file}: not TOML: {error}") from None
        return cls.parse(found, where=str(file), folder=file.resolve().parent)

    @classmethod
    def parse(
        cls, given: Mapping[str, Any], *, where: str = "configuration", folder: Path | None = None
    ) -> PipelineConfig:
        """From nested dicts, as a TOML file holds them. `where` is for messages."""
        top = _Section(where, "", given)
        config = cls(
            events=_events(top.section("events"), folder),
            subscriptions=_subscriptions(top.section("subscriptions"), folder),
            output=_output(top.section("output"), folder),
            clean=CleanConfig(duplicates=_clean(top.section("clean", {}))),
            derive=_derive(top.section("derive", {})),
            match=_match(top.section("match", {})),
            statistics=_statistics(top.section("statistics", {})),
        )
        top.done()
        return config

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for fingerprints and for the report."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Schema):
        return json.loads(value.to_json())
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


_REQUIRED: Final = object()


class _Section:
    """One table of the file. Keys are taken out one by one; what is left in the end is unknown."""

    def __init__(self, where: str, name: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.name = name
        self._left = dict(values)
        self._known: list[str] = []

    def take(self, key: str, kinds: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        self._known.append(key)
        if key not in self._left:
            if default is _REQUIRED:
                raise SparkError(f"{self.where}: {self.path(key)} is missing")
            return default
        value = self._left.pop(key)
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        # True is an int to Python, but hardly to anybody who writes it into a file.
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            names = " or ".join(_KINDS[kind] for kind in wanted)
            raise self.error(key, f"must be {names}, not {value!r:.80}")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        values = self.take(key, list, None)
        if values is not None and not all(isinstance(value, str) and value for value in values):
            raise self.error(key, f"must be a list of column names, not {values!r:.80}")
        return None if values is None else tuple(values)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> Any:
        value = self.take(key, str, default)
        if value not in choices:
            raise self.error(key, f"must be one of {', '.join(choices)}, not {value!r:.80}")
        return value

    def section(self, key: str, default: Any = _REQUIRED) -> _Section:
        return _Section(self.where, self.path(key), self.take(key, dict, default))

    def rest(self) -> dict[str, Any]:
        """Everything that is left, for sections whose keys are names of the user's own."""
        left, self._left = self._left, {}
        return left

    def done(self) -> None:
        for key in self._left:
            known = f"; known are {', '.join(self._known)}" if self._known else ""
            raise SparkError(f"{self.where}: unknown key {self.path(key)}{known}")

    def path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def error(self, key: str, problem: str) -> SparkError:
        return SparkError(f"{self.where}: {self.path(key)} {problem}")


_KINDS: Final = {
    str: "a string", int: "a whole number", float: "a number", list: "a list", dict: "a table",
    bool: "true or false",
}  # fmt: skip


def _source(section: _Section, folder: Path | None) -> dict[str, Any]:
    path, table = section.take("path", str, None), section.take("table", str, None)
    if bool(path) == bool(table):
        which = "both are" if path else "neither is"
        raise SparkError(
            f"{section.where}: {section.name} needs a path or a table, and {which} given"
        )
    options = section.section("options", {}).rest()
    for name, value in options.items():
        if not isinstance(value, (str, int, float)):
            raise section.error(f"options.{name}", f"must be a plain value, not {value!r:.80}")
    return {
        "path": path and _resolve(path, folder),
        "table": table,
        "format": section.choice("format", _FORMATS, "parquet"),
        # As Spark writes truth, and everything else: as text.
        "options": {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in options.items()
        },
    }


def _resolve(path: str, folder: Path | None) -> str:
    if ":/" in path or os.path.isabs(path):
        return path
    return str((folder or Path.cwd()) / path)


def _events(section: _Section, folder: Path | None) -> EventsConfig:
    attributes = section.take("attributes", dict)
    try:
        schema = Schema(attributes)
    except SchemaError as error:
        raise section.error("attributes:", str(error)) from None
    config = EventsConfig(
        **_source(section, folder),
        attributes=schema,
        event_id=section.take("event_id", str, "event_id"),
        event_time=section.take("event_time", str, None),
    )
    section.done()
    time = config.event_time
    if time is not None and time in schema and schema[time].type != "timestamp":
        raise section.error(
            "event_time",
            f"names {time!r}, which is of type {schema[time].type} and not a timestamp",
        )
    return config


def _subscriptions(section: _Section, folder: Path | None) -> SubscriptionsConfig:
    config = SubscriptionsConfig(
        **_source(section, folder),
        subscription_id=section.take("subscription_id", str, "subscription_id"),
        filter=section.take("filter", str, "filter"),
    )
    section.done()
    return config


def _output(section: _Section, folder: Path | None) -> OutputConfig:
    path = _resolve(section.take("path", str), folder)
    config = OutputConfig(path=path, columns=section.texts("columns"))
    section.done()
    return config


def _clean(section: _Section) -> tuple[str, ...] | None:
    duplicates = section.texts("duplicates")
    section.done()
    return duplicates


def _derive(section: _Section) -> dict[str, str]:
    expressions = section.rest()
    for name, expression in expressions.items():
        if not isinstance(expression, str) or not expression.strip():
            raise section.error(name, f"must be a SQL expression, not {expression!r:.80}")
    return expressions


def _match(section: _Section) -> MatchConfig:
    shards = section.take("shards", int, None)
    if shards is not None and shards < 1:
        raise section.error("shards", f"must be at least 1, not {shards}")
    config = MatchConfig(
        plan=section.choice("plan", _PLANS, "auto"),
        shards=shards,
        index=section.take("index", str, "tile"),
        index_options=section.take("index_options", dict, {}),
    )
    section.done()
    return config


def _statistics(section: _Section) -> StatisticsConfig:
    config = StatisticsConfig(
        too_broad=float(section.take("too_broad", (float, int), StatisticsConfig.too_broad)),
        top=section.take("top", int, StatisticsConfig.top),
        sample=section.take("sample", int, StatisticsConfig.sample),
    )
    section.done()
    if not 0 < config.too_broad <= 1:
        raise section.error("too_broad", f"is a share, above 0 and up to 1, not {config.too_broad}")
    for name, value in (("top", config.top), ("sample", config.sample)):
        if not 1 <= value <= _MANY:
            raise section.error(name, f"must be from 1 to {_MANY:,}, not {value:,}")
    return config
