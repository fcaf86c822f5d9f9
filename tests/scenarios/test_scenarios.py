"""Planted causes are named by the whole tool: a fast part of `python -m scenarios`, without root."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from scenarios.harness import run_scenario
from scenarios.surroundings import CGROUPS, PREFIX, Surroundings, missing_needs, prepare
from scenarios.truth import Scenario, load_scenario

FAST = (
    "rate_limit",
    "http_plain",
    "http_timeout",
    "file_lock",
    "slow_sample_wait",
    "slow_metric",
    "healthy_slow_sample",
    "fuse_direct",
)
"""Mostly ones that need little CPU themselves, so that a busy machine does not change the truth."""
SECONDS = 8.0
REPEATS = 3


@pytest.mark.scenario
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("name", FAST)
def test_planted_cause_is_named_first(name: str) -> None:
    """The verdict has the right limit, first cause and place."""
    scenario = load_scenario(name)
    if missing := missing_needs(scenario.needs):
        pytest.skip(f"needs {', '.join(missing)}")

    for _ in range(REPEATS):
        result = run_scenario(scenario, 0, seconds=SECONDS)
        if not result.disturbed:
            break
    else:
        if not result.ok:
            pytest.skip(f"others used {result.other_cpus} CPUs in each of {REPEATS} runs")

    assert result.failure is None
    assert result.ok, result.verdict


def leftovers() -> list[Path]:
    """List scratch folders and cgroups of this process."""
    mine = f"{PREFIX}{os.getpid()}-*"
    return [*Path(tempfile.gettempdir()).glob(mine), *CGROUPS.glob(f"*/{mine}")]


def fail_within(scenario: Scenario, seen: list[Surroundings]) -> None:
    """Set up, and raise inside."""
    with prepare(scenario.environment) as surroundings:
        seen.append(surroundings)
        raise ZeroDivisionError


@pytest.mark.scenario
@pytest.mark.root
@pytest.mark.parametrize(
    "name", ["fuse_direct", "disk_buffered", "cpu_quota", "http_plain"]
)
def test_surroundings_leave_nothing_behind_after_a_failure(name: str) -> None:
    """Mounts, loop devices, cgroups, processes and folders go, also when the run raises."""
    scenario = load_scenario(name)
    if missing := missing_needs(scenario.needs):
        pytest.skip(f"needs {', '.join(missing)}")

    seen: list[Surroundings] = []
    with pytest.raises(ZeroDivisionError):
        fail_within(scenario, seen)

    assert seen
    assert leftovers() == []
    for surroundings in seen:
        assert str(surroundings.scratch) not in Path("/proc/mounts").read_text()
        assert all(process.poll() is not None for process in surroundings.helpers)
