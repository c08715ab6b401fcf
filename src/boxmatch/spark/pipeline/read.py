"""Read: files or tables to DataFrames, and which files these are.

Text is read as text: what it means is for `clean` to say, row by row. A line that is no row at all
comes with its text in the column `MALFORMED`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.spark.pipeline.config import Source
from boxmatch.spark.pipeline.failures import translate_errors
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MALFORMED: Final = "_malformed"

# As spreadsheets and most programs write CSV. Files whose columns are in another order are an
# error: Spark would put values under wrong names.
_CSV: Final = {"header": "true", "escape": '"', "enforceSchema": "false"}

InputFile = tuple[str, int, int]


def read(spark: SparkSession, source: Source) -> DataFrame:
    """The rows of a source. CSV and JSON values are strings, unless nested."""
    with translate_errors(f"cannot read {source.address}"):
        if source.table is not None:
            frame = spark.table(source.table)
        elif source.format == "parquet":
            frame = spark.read.options(**source.options).parquet(_path(source))
        else:
            frame = _read_text(spark, source)
        _ = frame.schema  # what is missing is to be found here, also on Spark Connect
        return frame


def input_files(source: Source, spark: SparkSession | None = None) -> list[InputFile] | None:
    """The files that a source consists of, with bytes and time of change; None if nobody knows.

    Those of a table only Spark can tell. For a pattern all files of the folder count in which it
    starts: a few too many do no harm.
    """
    if source.path is None:
        return None if spark is None else _table_files(spark, source)
    path = re.sub(r"/[^/]*[*?\[{].*", "", source.path)
    files = Folder.at(path).files()
    if not files:
        raise SparkError(f"there are no files at {source.path}")
    return files


def _read_text(spark: SparkSession, source: Source) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    path = _path(source)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    if source.format == "csv":
        options = {**_CSV, **options, **source.options}
        names = spark.read.options(**{**options, "inferSchema": "false"}).csv(path).columns
        fields = [StructField(name, StringType()) for name in names]
    else:
        options = {**options, **source.options, "primitivesAsString": "true"}
        found = spark.read.options(**options).json(path).schema
        fields = [column for column in found if column.name != MALFORMED]
    schema = StructType([*fields, StructField(MALFORMED, StringType())])
    reader = spark.read.options(**options).schema(schema)
    return reader.csv(path) if source.format == "csv" else reader.json(path)


def _path(source: Source) -> str:
    """The path as Spark takes it: its own default may be another filesystem than this machine's."""
    path = source.path or ""
    return f"file://{path}" if path.startswith("/") else path


def _table_files(spark: SparkSession, source: Source) -> list[InputFile] | None:
    with translate_errors(f"cannot read {source.address}"):
        paths = spark.table(source.table or "").inputFiles()
    try:
        return [file for path in sorted(paths) for file in Folder.at(path).files()] or None
    except SparkError:  # a filesystem that only Spark can open
        return None
