"""The settings of a pipeline, and the TOML file that holds them.

The dataclasses below are the description of the file: a section is one of them, a key one of its
fields. What a value may be besides its type is said in `__post_init__`, in errors that begin with
the key.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from boxmatch.adaptive.skipping import is_rate
from boxmatch.errors import FilterError, SchemaError, SparkError
from boxmatch.extras import requires
from boxmatch.model.dialects.registry import check_dialect
from boxmatch.model.schema import Schema

Section = TypeVar("Section")

_MANY: Final = 100_000  # what a report shows and what a worker is sent stays small


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from: files (a path, a folder or a pattern) or a table of the catalogue."""

    path: str | None = None
    table: str | None = None
    format: Literal["parquet", "csv", "json"] = "parquet"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of Spark's reader. CSV files have a header unless they say otherwise."""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.table):
            which = "both are" if self.path else "neither is"
            raise ValueError(f"path: give a path or a table; {which} given")
        for name, value in self.options.items():
            if not isinstance(value, (str, int, float)):
                raise ValueError(f"options.{name} must be a plain value, not {value!r:.80}")

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

    def __post_init__(self) -> None:
        super().__post_init__()
        for attribute in self.attributes:
            if attribute.type == "json":
                raise ValueError(
                    f"attributes.{attribute.name} is of type json, and a pipeline cleans values of "
                    "other types only: match such events with boxmatch.spark.match"
                )
        time = self.event_time
        if time is not None and time in self.attributes:
            kind = self.attributes[time].type
            if kind != "timestamp":
                raise ValueError(
                    f"event_time names {time!r}, which is of type {kind} and not a timestamp"
                )


@dataclass(frozen=True, kw_only=True)
class SubscriptionsConfig(Source):
    subscription_id: str = "subscription_id"
    filter: str = "filter"
    dialect: str | None = None
    """Of all filters; that in a column `dialect`, or SQL, if left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            check_dialect(self.dialect)
        except FilterError as error:
            raise ValueError(f"dialect: {error.reason}") from None


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
    max_false_positive_rate: float | None = None
    """False matches for each true one that are allowed, in return for speed; none if left out."""

    def __post_init__(self) -> None:
        rate = self.max_false_positive_rate
        if rate is not None and not is_rate(rate):
            raise ValueError(
                f"max_false_positive_rate must be from 0 up to, but not, 1, not {rate}"
            )
        if self.shards is not None and self.shards < 1:
            raise ValueError(f"shards must be at least 1, not {self.shards}")


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

    def __post_init__(self) -> None:
        if not 0 < self.too_broad <= 1:
            raise ValueError(f"too_broad is a share, above 0 and up to 1, not {self.too_broad}")
        for name in ("top", "sample"):
            value = getattr(self, name)
            if not 1 <= value <= _MANY:
                raise ValueError(f"{name} must be from 1 to {_MANY:,}, not {value:,}")


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """All settings. Paths are absolute once loaded from a file."""

    events: EventsConfig
    subscriptions: SubscriptionsConfig
    output: OutputConfig
    clean: CleanConfig = CleanConfig()
    derive: Mapping[str, str] = field(default_factory=dict)
    """Attributes to add, by name, as SQL expressions; each may use those before it."""
    match: MatchConfig = MatchConfig()
    statistics: StatisticsConfig = StatisticsConfig()

    def __post_init__(self) -> None:
        for name, expression in self.derive.items():
            if not expression.strip():
                raise ValueError(f"derive.{name} must be a SQL expression, not {expression!r}")

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
        try:
            return _parse_section(cls, "", given, folder or Path.cwd())
        except ValueError as error:
            raise SparkError(f"{where}: {error}") from None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for fingerprints and for the report."""
        text = json.dumps(
            dataclasses.asdict(self), default=lambda schema: json.loads(schema.to_json())
        )
        plain: dict[str, Any] = json.loads(text)
        return plain


def _parse_section(
    kind: type[Section], prefix: str, given: Mapping[str, Any], folder: Path
) -> Section:
    """A dataclass from a table of the file, whose keys are named with a prefix in errors."""
    fields: dict[str, Any] = {each.name: each for each in dataclasses.fields(cast("Any", kind))}
    hints = get_type_hints(kind)
    values = {}
    for name, described in fields.items():
        if name in given:
            values[name] = _parse_value(hints[name], prefix + name, given[name], folder)
        elif described.default is MISSING and described.default_factory is MISSING:
            raise ValueError(f"{prefix}{name} is missing")
    for name in given:
        if name not in fields:
            raise ValueError(f"unknown key {prefix}{name}; known are {', '.join(fields)}")
    if values.get("path"):
        values["path"] = _resolve(values["path"], folder)
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def _parse_value(kind: Any, key: str, given: Any, folder: Path) -> Any:
    with requires("spark", "a pipeline"):
        import msgspec

    is_table = kind is Schema or dataclasses.is_dataclass(kind) or get_origin(kind) is Mapping
    if is_table and not isinstance(given, Mapping):
        raise ValueError(f"{key} must be a table, not {given!r:.80}")
    if dataclasses.is_dataclass(kind):
        return _parse_section(cast("type[Any]", kind), f"{key}.", given, folder)
    if get_origin(kind) is Mapping:
        of_values = get_args(kind)[1]
        return {n: _parse_value(of_values, f"{key}.{n}", v, folder) for n, v in given.items()}
    try:
        return Schema(given) if kind is Schema else msgspec.convert(given, kind)
    except SchemaError as error:
        raise ValueError(f"{key}: {error}") from None
    except msgspec.ValidationError:
        raise ValueError(f"{key} must be {_describe(kind)}, not {given!r:.80}") from None


_KINDS: Final = {
    str: "a string", int: "a whole number", float: "a number", bool: "true or false",
    tuple[str, ...]: "a list of column names",
}  # fmt: skip


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return " or ".join(_KINDS[each] for each in get_args(kind) or (kind,) if each in _KINDS)


def _resolve(path: str, folder: Path) -> str:
    return path if ":/" in path or os.path.isabs(path) else str(folder / path)
