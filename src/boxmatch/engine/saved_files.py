"""A matcher on disk: a directory with a manifest and arrays that are mapped, not read.

Every save writes what is new into a fresh subdirectory and then replaces the manifest, which is one
atomic step; files that it does not name are removed last. Whenever the process dies, the manifest
names files that are complete. Saves to one directory take turns, by a lock that dies with its
process.
"""

from __future__ import annotations

import json
import mmap
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import xxhash

from boxmatch.engine.box_stores import IndexedSegment, StoreView
from boxmatch.engine.filter_texts import FilterTexts
from boxmatch.engine.ids import IdArray
from boxmatch.engine.residuals import Residuals, residual_of
from boxmatch.errors import StorageError
from boxmatch.indexes.registry import index_class
from boxmatch.indexes.scan import InterimIndex, ScanIndex
from boxmatch.kernels.pieces import from_texts, to_texts
from boxmatch.model.axis_table import Axes, AxisTable
from boxmatch.model.expressions.nodes import from_json, to_json
from boxmatch.model.filters import DerivedAxis
from boxmatch.model.ids import IdKind
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
from boxmatch.storage.folders import alone, replacing, sync_file, sync_folder

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 8
_MANIFEST = "manifest.json"
_DATA = "data-"
_SETTINGS = ("index", "parameters", "max_boxes", "keep_texts")
_PLAIN = ("kind", "size", "change")
"""What the manifest has just as `Settings` and `Saved` have it."""
_OUR_NAMES = r"data-[0-9a-f]{32}|manifest\.json|\.?manifest\.json\.[0-9a-f]{32}"
_JOURNAL_NAMES = r"lock|journal\.sqlite(-wal|-shm|-journal)?"


@dataclass(frozen=True)
class Settings:
    """What a matcher is made with."""

    schema: Schema
    index: str
    parameters: dict[str, Any]
    max_boxes: int
    keep_texts: bool


@dataclass(frozen=True)
class Saved:
    """What a directory holds."""

    settings: Settings
    kind: IdKind | None
    size: int
    axes: Axes
    views: tuple[StoreView, ...]
    """Of segments alone."""
    change: int = 0
    """The last change that is in it, by the number that the journal gave it."""


class _Segment(NamedTuple):
    """A segment in files."""

    entry: dict[str, Any]
    removed: int


class SavedFolder:
    """A directory that one matcher is saved to, again and again, or loaded from.

    Segments that are in its files already are not written again.
    """

    def __init__(self, path: Path, *, journal: bool = False) -> None:
        self._path = path
        self._names = f"{_OUR_NAMES}|{_JOURNAL_NAMES}" if journal else _OUR_NAMES
        self._files: dict[str, dict[str, Any]] = {}
        self._segments: WeakKeyDictionary[IndexedSegment, _Segment] = WeakKeyDictionary()
        self._strings: dict[int, tuple[StringAxis, int, str]] = {}

    @property
    def is_saved(self) -> bool:
        """Whether a matcher is there."""
        return (self._path / _MANIFEST).exists()

    def check(self) -> None:
        """`StorageError` if the directory cannot be a matcher's."""
        path = self._path
        if path.exists() and not path.is_dir():
            raise StorageError(f"{path} is not a directory")
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
        strange = [name for name in names if not re.fullmatch(self._names, name)]
        if any(re.fullmatch(_JOURNAL_NAMES, name) for name in strange) and _MANIFEST in names:
            raise StorageError(f"{path} is that of a durable matcher, which saves itself")
        if strange:
            raise StorageError(f"{path} holds other files; a matcher needs a directory of its own")

    def save(self, saved: Saved) -> None:
        """Write what is not there yet, and have the directory hold this."""
        self.check()
        path = self._path
        try:
            path.mkdir(parents=True, exist_ok=True)
            with alone(path):
                self._save(saved)
        except BaseException as error:
            # What was written is not named by any manifest, and goes with the next save.
            self._segments.clear()
            self._strings.clear()
            if not isinstance(error, OSError):
                raise
            raise StorageError(f"cannot save to {path}: {error}") from error

    def _save(self, saved: Saved) -> None:
        path = self._path
        folder = path / f"{_DATA}{uuid.uuid4().hex}"
        folder.mkdir()
        writer = _Writer(folder)
        manifest = {
            "format": FORMAT,
            "schema": json.loads(saved.settings.schema.to_json()),
            **{name: getattr(saved.settings, name) for name in _SETTINGS},
            **{name: getattr(saved, name) for name in _PLAIN},
            "expressions": [
                None if axis is None else axis.to_json() for axis in saved.axes.derived
            ],
            "axes": {
                str(position): self._save_strings(writer, position, axis)
                for position, axis in saved.axes.strings.items()
            },
            "segments": [
                self._save_segment(writer, f"segment-{number}", view)
                for number, view in enumerate(saved.views)
            ],
        }
        used = set(_names_in(manifest["axes"])) | set(_names_in(manifest["segments"]))
        files = self._files | writer.files
        self._files = manifest["files"] = {name: files[name] for name in sorted(used)}
        sync_folder(folder)
        text = json.dumps(manifest, indent=1)
        checksum = xxhash.xxh3_128_hexdigest(text.encode())
        with replacing(path / _MANIFEST) as draft:
            draft.write_text(f"{checksum}\n{text}", encoding="utf-8")
        # Also what saves left that were cut short.
        kept = {_MANIFEST, *(name.partition("/")[0] for name in used)}
        for old in path.iterdir():
            if old.name in kept or not re.fullmatch(_OUR_NAMES, old.name):
                continue
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink(missing_ok=True)

    def _save_strings(self, writer: _Writer, position: int, axis: StringAxis) -> str:
        known = self._strings.get(position)
        if known is None or known[0] is not axis or known[1] != len(axis):
            name = writer.table(f"strings-{position}", axis.to_arrow())
            known = self._strings[position] = axis, len(axis), name
        return known[2]

    def _save_segment(self, writer: _Writer, name: str, view: StoreView) -> dict[str, Any]:
        segment = view.store
        if not isinstance(segment, IndexedSegment):
            raise TypeError(f"only segments are saved, not {type(segment).__name__}")
        known = self._segments.get(segment)
        entry = _write_segment(writer, name, segment) if known is None else known.entry
        if known is None or known.removed != view.removed:
            removed = np.array(view.removed_positions(), np.int64)
            entry = {**entry, "removed": writer.array(f"{name}-removed", removed)}
            self._segments[segment] = _Segment(entry, view.removed)
        return entry

    def load(self) -> Saved:
        """Read what is there; `StorageError` names any file that is not whole."""
        manifest = self._read_manifest()
        while True:
            try:
                return self._load(manifest)
            except StorageError:
                # A save in the meantime removes the files that the manifest before it names.
                before, manifest = manifest, self._read_manifest()
                if manifest == before:
                    raise

    def _load(self, manifest: dict[str, Any]) -> Saved:
        try:
            reader = _Reader(self._path, manifest["files"])
            schema = Schema.from_json(json.dumps(manifest["schema"]))
            derived = [
                None if axis is None else DerivedAxis.from_json(axis)
                for axis in manifest["expressions"]
            ]
            strings = {
                int(position): StringAxis.from_arrow(reader.table(name))
                for position, name in manifest["axes"].items()
            }
            segments = [_load_segment(reader, entry, manifest) for entry in manifest["segments"]]
            saved = Saved(
                Settings(schema, *(manifest[name] for name in _SETTINGS)),
                **{name: manifest[name] for name in _PLAIN},
                axes=AxisTable(schema, derived, strings).latest(),
                views=tuple(map(StoreView, segments)),
            )
        except StorageError:
            raise
        except OSError as error:  # of a file that was there a moment ago
            raise StorageError(f"cannot read {self._path}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{self._path / _MANIFEST} does not describe a matcher: {error}"
            ) from error
        self._files = manifest["files"]
        self._strings = {
            position: (axis, len(axis), manifest["axes"][str(position)])
            for position, axis in strings.items()
        }
        for segment, entry in zip(segments, manifest["segments"], strict=True):
            self._segments[segment] = _Segment(entry, len(segment.removals))
        return saved

    def _read_manifest(self) -> dict[str, Any]:
        manifest_path = self._path / _MANIFEST
        try:
            checksum, _, text = manifest_path.read_text(encoding="utf-8").partition("\n")
        except FileNotFoundError:
            raise StorageError(
                f"no matcher is saved at {self._path}: {_MANIFEST} is missing"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {manifest_path}: {error}") from error
        if xxhash.xxh3_128_hexdigest(text.encode()) != checksum:
            raise StorageError(f"{manifest_path} is damaged: its checksum is wrong")
        manifest: dict[str, Any] = json.loads(text)
        if manifest.get("format") != FORMAT:
            raise StorageError(
                f"{manifest_path} has format {manifest.get('format')}; this version reads "
                f"{FORMAT}: subscribe the filters anew, and save again"
            )
        return manifest


def _names_in(entries: Any) -> Iterator[str]:
    """The files that a part of the manifest names."""
    if isinstance(entries, str):
        if "/" in entries:
            yield entries
    elif isinstance(entries, (dict, list)):
        for one in entries.values() if isinstance(entries, dict) else entries:
            yield from _names_in(one)


def _write_segment(writer: _Writer, name: str, segment: IndexedSegment) -> dict[str, Any]:
    """Write all of a segment but what is removed, which may change."""
    arrays = segment.index.to_arrays()
    entry: dict[str, Any] = {
        "index": segment.index.name,
        "dimensions": segment.index.dimensions,
        "arrays": {key: writer.array(f"{name}-{key}", value) for key, value in arrays.items()},
    }
    if segment.owners is not None:
        entry["owners"] = writer.array(f"{name}-owners", segment.owners)
    if segment.residuals is not None:
        import pyarrow as pa

        entry["residuals"] = writer.array(f"{name}-residuals", segment.residuals.numbers)
        tests = [list(map(to_json, one.nodes)) for one in segment.residuals.distinct]
        table = pa.table({"tests": pa.array(tests, pa.list_(pa.large_string()))})
        entry["tests"] = writer.table(f"{name}-tests", table)
    if segment.texts is not None:
        entry["texts"] = writer.buffer(f"{name}-texts", segment.texts.file)
        entry["known"] = writer.array(f"{name}-known", segment.texts.known)
    if segment.ids.dtype == np.int64:
        entry["ids"] = writer.array(f"{name}-ids", segment.ids)
    else:
        import pyarrow as pa

        ids = to_texts(segment.ids, pa.large_string()).combine_chunks()
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

    def buffer(self, name: str, buffer: pa.Buffer) -> str:
        """Of an Arrow file."""

        def write(path: Path) -> None:
            path.write_bytes(memoryview(buffer))

        return self._write(f"{name}.arrow", write)

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
        name = f"{self._folder.name}/{name}"
        self.files[name] = {"bytes": path.stat().st_size, "xxh3": _checksum(path)}
        return name


def _checksum(path: Path) -> str:
    # A map, not a read: the same pages serve the arrays afterwards.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return xxhash.xxh3_128_hexdigest(content)


def _load_segment(
    reader: _Reader, entry: dict[str, Any], manifest: dict[str, Any]
) -> IndexedSegment:
    arrays = {key: reader.array(name) for key, name in entry["arrays"].items()}
    kind = index_class(entry["index"])
    if kind is ScanIndex and manifest["index"] != kind.name:
        kind = InterimIndex  # it was saved before there were kernels
    parameters = manifest["parameters"] if entry["index"] == manifest["index"] else {}
    index = kind.from_arrays(entry["dimensions"], parameters, arrays)
    ids: IdArray
    if entry["ids"].endswith(".npy"):
        ids = reader.array(entry["ids"])
    else:
        ids = from_texts(reader.table(entry["ids"])["id"])
    owners = reader.array(entry["owners"]) if "owners" in entry else None
    residuals = None
    if "residuals" in entry:
        tests: list[Any] = reader.table(entry["tests"])["tests"].to_pylist()
        distinct = [residual_of(tuple(map(from_json, one))) for one in tests]
        residuals = Residuals(reader.array(entry["residuals"]), distinct)
    texts = None
    if "texts" in entry:
        texts = FilterTexts(reader.buffer(entry["texts"]), reader.array(entry["known"]))
    segment = IndexedSegment(index, ids, owners, residuals, texts)
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

        return pa.ipc.open_file(self.buffer(name)).read_all()

    def buffer(self, name: str) -> pa.Buffer:
        """The bytes of a file, mapped."""
        import pyarrow as pa

        with pa.memory_map(str(self._checked(name))) as source:
            return source.read_buffer()
