"""A matcher on disk: a directory with a manifest and arrays that are mapped, not read.

Every save writes its files into a fresh subdirectory and then replaces the manifest, which is one
atomic step; files of earlier saves are removed last. Whenever the process dies, the manifest names
files that are complete. Saves to one directory take turns, by a lock that dies with its process.
"""

from __future__ import annotations

import json
import mmap
import re
import shutil
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

from boxmatch.engine.box_stores import IndexedSegment, StoreView
from boxmatch.engine.ids import IdArray, as_objects
from boxmatch.engine.residuals import Residuals, residual_of
from boxmatch.errors import StorageError
from boxmatch.indexes.registry import index_class
from boxmatch.model.axis_table import Axes, AxisTable
from boxmatch.model.expressions.nodes import from_json, to_json
from boxmatch.model.filters import DerivedAxis
from boxmatch.model.ids import IdKind
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
from boxmatch.storage.folders import alone, replacing, sync_file, sync_folder

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 4
_MANIFEST = "manifest.json"
_DATA = "data-"
_PLAIN = ("index", "parameters", "max_boxes", "kind", "size")
"""What the manifest has just as `Saved` has it."""
_OUR_NAMES = r"data-[0-9a-f]{32}|manifest\.json|\.?manifest\.json\.[0-9a-f]{32}"


@dataclass(frozen=True)
class Saved:
    """What a directory holds."""

    schema: Schema
    index: str
    parameters: dict[str, Any]
    max_boxes: int
    kind: IdKind | None
    size: int
    axes: Axes
    views: tuple[StoreView, ...]
    """Of segments alone."""


def save(path: Path, saved: Saved) -> None:
    """Write everything."""
    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is not a directory")
    if path.is_dir() and any(not _is_ours(entry) for entry in path.iterdir()):
        raise StorageError(f"{path} holds other files; a matcher needs a directory of its own")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with alone(path):
            _save(path, saved)
    except OSError as error:
        raise StorageError(f"cannot save to {path}: {error}") from error


def _is_ours(entry: Path) -> bool:
    return re.fullmatch(_OUR_NAMES, entry.name) is not None


def _save(path: Path, saved: Saved) -> None:
    folder = path / f"{_DATA}{uuid.uuid4().hex}"
    folder.mkdir()
    writer = _Writer(folder)
    manifest = {
        "format": FORMAT,
        "schema": json.loads(saved.schema.to_json()),
        **{name: getattr(saved, name) for name in _PLAIN},
        "folder": folder.name,
        "expressions": [None if axis is None else axis.to_json() for axis in saved.axes.derived],
        "axes": {
            str(position): writer.table(f"strings-{position}", axis.to_arrow())
            for position, axis in saved.axes.strings.items()
        },
        "segments": [
            _save_segment(writer, f"segment-{number}", one)
            for number, one in enumerate(saved.views)
        ],
    }
    manifest["files"] = writer.files
    sync_folder(folder)
    text = json.dumps(manifest, indent=1)
    checksum = xxhash.xxh3_128_hexdigest(text.encode())
    with replacing(path / _MANIFEST) as draft:
        draft.write_text(f"{checksum}\n{text}", encoding="utf-8")
    # Also what saves left that were cut short.
    for old in path.iterdir():
        if not _is_ours(old) or old.name in (folder.name, _MANIFEST):
            continue
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)


def _save_segment(writer: _Writer, name: str, view: StoreView) -> dict[str, Any]:
    segment = view.store
    if not isinstance(segment, IndexedSegment):
        raise TypeError(f"only segments are saved, not {type(segment).__name__}")
    arrays = segment.index.to_arrays()
    entry: dict[str, Any] = {
        "index": segment.index.name,
        "dimensions": segment.index.dimensions,
        "arrays": {key: writer.array(f"{name}-{key}", value) for key, value in arrays.items()},
        "removed": writer.array(f"{name}-removed", np.array(view.removed_positions(), np.int64)),
    }
    if segment.owners is not None:
        entry["owners"] = writer.array(f"{name}-owners", segment.owners)
    if segment.residuals is not None:
        import pyarrow as pa

        entry["residuals"] = writer.array(f"{name}-residuals", segment.residuals.numbers)
        tests = [list(map(to_json, one.nodes)) for one in segment.residuals.distinct]
        table = pa.table({"tests": pa.array(tests, pa.list_(pa.large_string()))})
        entry["tests"] = writer.table(f"{name}-tests", table)
    if segment.ids.dtype == np.int64:
        entry["ids"] = writer.array(f"{name}-ids", segment.ids)
    else:
        import pyarrow as pa

        ids = pa.array(segment.ids, pa.large_string())
        entry["ids"] = writer.table(f"{name}-ids", pa.table({"id": ids}))
    return entry


class _Writer:
    """Writes arrays and tables into a folder and remembers their checksums."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[str, dict[str, Any]] = {}

    def array(self, name: str, array: npt.NDArray[Any]) -> str:
        def write(path: Path) -> None:
            np.save(path, array, allow_pickle=False)

        return self._write(f"{name}.npy", write)

    def table(self, name: str, table: pa.Table) -> str:
        import pyarrow as pa

        def write(path: Path) -> None:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
                file.write_table(table)

        return self._write(f"{name}.arrow", write)

    def _write(self, name: str, write: Any) -> str:
        path = self._folder / name
        write(path)
        sync_file(path)
        self.files[name] = {"bytes": path.stat().st_size, "xxh3": _checksum(path)}
        return name


def _checksum(path: Path) -> str:
    # A map, not a read: the same pages serve the arrays afterwards.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return xxhash.xxh3_128_hexdigest(content)


def load(path: Path) -> Saved:
    """Read a directory that `save` has written; `StorageError` names any file that is not whole."""
    manifest = _read_manifest(path)
    while True:
        try:
            return _load(path, manifest)
        except StorageError:
            # A save in the meantime removes the files that the manifest before it names.
            before, manifest = manifest, _read_manifest(path)
            if manifest == before:
                raise


def _load(path: Path, manifest: dict[str, Any]) -> Saved:
    try:
        reader = _Reader(path / manifest["folder"], manifest["files"])
        schema = Schema.from_json(json.dumps(manifest["schema"]))
        derived = [
            None if axis is None else DerivedAxis.from_json(axis)
            for axis in manifest["expressions"]
        ]
        strings = {
            int(position): StringAxis.from_arrow(reader.table(name))
            for position, name in manifest["axes"].items()
        }
        return Saved(
            schema=schema,
            **{name: manifest[name] for name in _PLAIN},
            axes=AxisTable(schema, derived, strings).latest(),
            views=tuple(
                StoreView(_load_segment(reader, entry, manifest)) for entry in manifest["segments"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path / _MANIFEST} does not describe a matcher: {error}") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest_path = path / _MANIFEST
    try:
        checksum, _, text = manifest_path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        raise StorageError(f"no matcher is saved at {path}: {_MANIFEST} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read {manifest_path}: {error}") from error
    if xxhash.xxh3_128_hexdigest(text.encode()) != checksum:
        raise StorageError(f"{manifest_path} is damaged: its checksum is wrong")
    manifest: dict[str, Any] = json.loads(text)
    if manifest.get("format") != FORMAT:
        raise StorageError(
            f"{manifest_path} has format {manifest.get('format')}; this version reads {FORMAT}: "
            "subscribe the filters anew, and save again"
        )
    return manifest


def _load_segment(
    reader: _Reader, entry: dict[str, Any], manifest: dict[str, Any]
) -> IndexedSegment:
    arrays = {key: reader.array(name) for key, name in entry["arrays"].items()}
    kind = index_class(entry["index"])
    parameters = manifest["parameters"] if entry["index"] == manifest["index"] else {}
    index = kind.from_arrays(entry["dimensions"], parameters, arrays)
    ids: IdArray
    if entry["ids"].endswith(".npy"):
        ids = reader.array(entry["ids"])
    else:
        ids = as_objects(reader.table(entry["ids"])["id"].to_pylist())
    owners = reader.array(entry["owners"]) if "owners" in entry else None
    residuals = None
    if "residuals" in entry:
        tests: list[Any] = reader.table(entry["tests"])["tests"].to_pylist()
        distinct = [residual_of(tuple(map(from_json, one))) for one in tests]
        residuals = Residuals(reader.array(entry["residuals"]), distinct)
    segment = IndexedSegment(index, ids, owners, residuals)
    segment.removals.add(reader.array(entry["removed"]).tolist())
    return segment


_reading_header = threading.Lock()
"""NumPy parses headers as Python, which two threads at once cannot always do in Python 3.11: a
collection of garbage in between ends in a `SystemError`."""


class _Reader:
    """Maps files of a folder after comparing their checksums."""

    def __init__(self, folder: Path, files: dict[str, dict[str, Any]]) -> None:
        self._folder = folder
        self._files = files

    def _checked(self, name: str) -> Path:
        path = self._folder / name
        expected = self._files[name]
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StorageError(f"{path} is missing") from None
        if size != expected["bytes"]:
            raise StorageError(f"{path} has {size} bytes instead of {expected['bytes']}")
        if _checksum(path) != expected["xxh3"]:
            raise StorageError(f"{path} is damaged: its checksum is wrong")
        return path

    def array(self, name: str) -> npt.NDArray[Any]:
        # Private maps are writable as far as NumPy can tell, so that kernels see one kind of
        # array, though nobody writes and all processes share the pages.
        path = self._checked(name)
        with _reading_header:
            array: npt.NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        return np.asarray(array)

    def table(self, name: str) -> pa.Table:
        import pyarrow as pa

        with pa.memory_map(str(self._checked(name))) as source:
            return pa.ipc.open_file(source).read_all()
