"""Executors that are processes of their own. In a file of its own, to run beside the others.

Slow: the guide's job, which `make test` submits to a cluster of processes, is a first look.
"""

from __future__ import annotations

import pytest
from other_sparks import run_portable_tests  # in this folder

pytestmark = pytest.mark.slow


def test_portable_tests_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "not test_attempts")


def test_attempts_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "test_attempts")
