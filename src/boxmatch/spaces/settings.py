"""What spaces on disk are made of, which is said once and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from boxmatch.errors import SchemaError, StorageError
from boxmatch.model.schema import Schema, SchemaSpec


class Settings(NamedTuple):
    """The spaces, and whether `leave` is told."""

    spaces: dict[str, Schema]
    leave: bool

    def to_json(self) -> str:
        schemas = {name: json.loads(schema.to_json()) for name, schema in self.spaces.items()}
        return json.dumps({"spaces": schemas, "leave": self.leave})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        known = json.loads(text)
        schemas = {n: Schema.from_json(json.dumps(one)) for n, one in known["spaces"].items()}
        return cls(schemas, known["leave"])


def schemas_of(spaces: Mapping[str, SchemaSpec]) -> dict[str, Schema]:
    """The schema of each space."""
    given: object = spaces
    if not isinstance(given, Mapping):
        raise SchemaError(f"spaces are a mapping of names to schemas, not {given!r}")
    schemas = {}
    for name, spec in spaces.items():
        try:
            schemas[name] = Schema(spec)
        except SchemaError as error:
            raise SchemaError(f"space {name!r}: {error}") from None
    return schemas


def agreed(
    where: object, kept: str | None, spaces: Mapping[str, SchemaSpec] | None, leave: bool | None
) -> Settings:
    """The settings that are kept, if what is given does not say otherwise; else what is given."""
    if kept is None:
        if spaces is None:
            raise StorageError(f"there are no spaces at {where}: say which there shall be")
        return Settings(schemas_of(spaces), leave is not False)
    known = Settings.from_json(kept)
    if spaces is not None and schemas_of(spaces) != known.spaces:
        raise StorageError(
            f"{where} was made with other spaces or other settings of them: {known.to_json()}"
        )
    if leave not in (None, known.leave):
        raise StorageError(f"{where} was made with other settings: leave is {known.leave}")
    return known
