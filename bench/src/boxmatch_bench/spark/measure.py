"""One setting from beginning to end, each part in a process of its own, answers compared."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, get_args

from boxmatch.errors import BoxmatchError
from boxmatch_bench.answers import FailedError, MismatchError
from boxmatch_bench.options import SparkOptions
from boxmatch_bench.settings import SparkSetting
from boxmatch_bench.spark import engine, jobs
from boxmatch_bench.spark.engine import Digest, Files

P = ParamSpec("P")
T = TypeVar("T")

Stage = Callable[[str], None]
_LINES: Final = 20

STAGES: Final = 5
"""How often `measure` reports a stage."""


def measure(
    setting: SparkSetting, options: SparkOptions, scratch: Path, stage: Stage = lambda _: None
) -> dict[str, Any]:
    """Measure one setting, in a folder of its own below `scratch`, which is removed at the end.

    Raises `MismatchError` when an answer is wrong, and leaves the folder for a look.
    """
    name = f"{setting.preset}-{setting.workload.subscriptions}-{setting.events}"
    files = Files(scratch.resolve() / name)
    shutil.rmtree(files.folder, ignore_errors=True)
    files.folder.mkdir(parents=True)
    stage("writing events, building the index, joining in SQL")
    prepared, joined = run_apart(files.log, jobs.prepare, setting, options, files)
    stage("matching on Spark")
    spark = run_apart(files.log, jobs.match_on_spark, setting, options, files)
    alone: dict[str, Any] = {}
    for kind in get_args(engine.Kind):
        stage(f"matching without Spark ({kind})")
        alone[kind] = run_apart(files.log, engine.engine_alone, setting, options, files, kind)
        _same(f"Spark differs from the engine alone ({kind})", spark, alone[kind])
    stage("checking against scan")
    checked = run_apart(files.log, engine.check, setting, options, files)
    if joined is not None:
        engine.check_join(setting, files, joined["events"], joined["subscriptions"])
    shutil.rmtree(files.folder)
    faster = min(alone, key=lambda kind: float(alone[kind]["seconds"]))
    memory = spark.pop("memory")
    return {
        "bench": "spark",
        "preset": setting.preset,
        "workload": type(setting.workload).__name__,
        "parameters": asdict(setting.workload),
        "events": setting.events,
        "options": {**asdict(options), "cores": options.cores},
        "prepare": prepared,
        "spark": spark,
        "engine": {**alone, "faster": faster},
        "overhead": spark["seconds"] / alone[faster]["seconds"],
        "overhead_of_matching": spark["seconds"] / alone[faster]["match_seconds"],
        "sql": joined,
        "sql_slower": joined and joined["microseconds"] / spark["microseconds"],
        "memory": memory,
        "checked_events": checked,
    }


def _same(complaint: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    got, wanted = (Digest(one["pairs"], one["checksum"]) for one in (ours, theirs))
    if got != wanted:
        raise MismatchError(f"{complaint}: {got} for {wanted}")


def run_apart(log: Path, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that ran in a new process; what it printed is added to `log`."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, mp_context=context, initializer=_print_to, initargs=(str(log),)
    ) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except (MismatchError, BoxmatchError):
            raise
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            printed = log.read_text(errors="replace").splitlines()[-_LINES:]
            message = f"{function.__name__} failed: {type(error).__name__}: {first}"
            raise FailedError("\n".join([message, *printed])) from error


def _print_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno())
    os.close(file)
