from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from command_line import run_boxmatch  # noqa: F401 - a fixture for all

# Numba compiles inside the first example of a test, so a deadline would only measure that.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)

# Tests start many Java processes that live for seconds: the second compiler is not worth its time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
