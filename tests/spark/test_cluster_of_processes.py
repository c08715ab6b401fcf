"""Executors that are processes of their own. In a file of its own, to run beside the others."""

from __future__ import annotations

import pytest
from other_sparks import run_portable_tests  # in this folder


def test_a_few_portable_tests_on_a_local_cluster() -> None:
    """An index, matches of it by both plans, and a stream."""
    run_portable_tests("local-cluster", "test_both_plans or test_changes_between_the_batches")


@pytest.mark.slow
def test_portable_tests_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "not test_attempts")


@pytest.mark.slow
def test_attempts_on_a_local_cluster() -> None:
    run_portable_tests("local-cluster", "test_attempts")
