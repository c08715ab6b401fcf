from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import property_examples
from command_line import quiet_logs, run_boxmatch  # noqa: F401 - fixtures for all

# Numba compiles inside the first example of a test, so a deadline would only measure that.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)

# Tests start many Java processes that live for seconds: the second compiler is not worth its time,
# and classes that `make test` has archived need not be read from their jars. A process that has
# other classes would warn that it cannot use them.
ARCHIVE = Path(sys.prefix, "spark.jsa")
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    + (f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else ""),
)

# Programs that tests start run as they do for users, who have neither of these set.
for _name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)

# Answers without kernels have tests of their own; all others are about those with kernels.
os.environ["BOXMATCH_BACKGROUND_COMPILATION"] = "0"

# Compiling kernels and comparing large answers make many objects, and next to no garbage in cycles.
gc.set_threshold(20_000, 20, 50)

# While one process compiles the kernels that most tests use, another does what needs none.
FIRST = (
    "tests/engine/test_matcher.py",
    "tests/model/filters/test_filter_properties.py",
    "tests/model/filters/test_filter_hostile.py",
    "tests/spaces/test_spaces_many.py",  # or else two brokers compile the same at once
)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "not slow":
        property_examples.share = 0.2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return FIRST.index(file) if file in FIRST else len(FIRST)

    items.sort(key=place)


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect() -> None:
    """What is there before a module is not looked through again by every collection of garbage.

    In the end that is a million objects, and benchmarks collect before each measurement.
    """
    gc.collect()
    gc.freeze()
