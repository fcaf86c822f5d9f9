"""How much of the training's CPUs others use while it runs."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT, _STEAL, _COUNTED = 3, 4, 7, 8
"""Columns of a CPU's row in /proc/stat; guest time behind them is counted in user time already."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """CPU time up to a moment, s."""

    busy_s: float | None
    """All busy time of the CPUs that this process may use; None where /proc/stat cannot be read."""
    own_s: float
    """This process and its ended children."""
    at_s: float


def parse_busy_ticks(text: str, cpus: frozenset[int]) -> int:
    """Add up the busy time of some CPUs.

    Args:
        text: /proc/stat:
            cpu  100 0 50 800 10 0 5 35 0 0
            cpu0 60 0 30 380 6 0 4 20 0 0
        cpus: Numbers of the CPUs that count.
    """
    total = 0
    for line in text.splitlines():
        name, *columns = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal() and int(number) in cpus:
            values = [int(one) for one in columns[:_COUNTED]]
            # Stolen time is somebody else's as well: it was not there for the training.
            total += sum(values) - values[_IDLE] - values[_IOWAIT]
    return total


def read_clocks() -> Clocks:
    """Read the clocks of this process and its CPUs."""
    usage = [
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    own_s = sum(one.ru_utime + one.ru_stime for one in usage)
    try:
        ticks = parse_busy_ticks(
            _STAT.read_text(encoding="ascii"), frozenset(os.sched_getaffinity(0))
        )
        busy_s = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        busy_s = None
    return Clocks(busy_s, own_s, time.monotonic())


def used_cpus(before: Clocks, after: Clocks) -> tuple[float, float]:
    """Give the CPUs that this process with its children used between two readings, and those that others used.

    What others used is 0 where it cannot be told.

    >>> used_cpus(Clocks(10.0, 5.0, 0.0), Clocks(26.0, 15.0, 10.0))
    (1.0, 0.6)
    """
    length_s = max(after.at_s - before.at_s, 1e-9)
    own_s = after.own_s - before.own_s
    if before.busy_s is None or after.busy_s is None:
        return round(own_s / length_s, 3), 0.0
    others_s = max(after.busy_s - before.busy_s - own_s, 0.0)
    return round(own_s / length_s, 3), round(others_s / length_s, 3)
