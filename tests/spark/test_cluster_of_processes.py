"""Executors that are processes of their own. In a file of its own, to run beside the others."""

from __future__ import annotations

import pytest
from other_sparks import run_portable_tests  # in this folder


def test_portable_tests_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "not test_attempts")


@pytest.mark.slow
def test_attempts_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "test_attempts")
