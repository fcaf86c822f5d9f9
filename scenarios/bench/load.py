"""The noise gate: what others did to the machine during a run, and whether it was too much."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scenarios.harness import measured
from scenarios.surroundings import Surroundings

STEAL_LIMIT = 0.02
"""The hypervisor took more than this part of the CPU time: two of the seven points that a share may be off."""
PRESSURE_BEFORE_LIMIT = 0.10
"""Tasks of others waited for a CPU in more than this part of the time just before the run."""
QUIET_LOOK_S = 0.5
"""Length of the look at the machine before a run, s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When a run counts as disturbed."""

    other_cpus: float
    """Others used more than this many CPUs, on average."""
    steal: float = STEAL_LIMIT
    pressure_before: float = PRESSURE_BEFORE_LIMIT

    def reasons(self, load: dict[str, float]) -> list[str]:
        """Say in which ways a run was disturbed; what could not be measured is no reason."""
        limits = {
            "others' CPUs": ("other_cpus", self.other_cpus),
            "steal": ("steal", self.steal),
            "pressure before": ("pressure_before", self.pressure_before),
        }
        return [
            f"{words} {load[name]:.2f} > {limit:g}"
            for words, (name, limit) in limits.items()
            if load.get(name, 0.0) > limit
        ]


@contextlib.contextmanager
def watched_load(surroundings: Surroundings) -> Iterator[dict[str, float]]:
    """Measure the load from outside around a run; filled in when the block ends.

    Pressure during the run is written down, not judged: the run's own workers make most of it.
    """
    load = {"pressure_before": pressure_now()}
    steal, total = steal_ticks()
    stalled = pressures()
    begin_s = time.monotonic()
    with measured(surroundings) as cpus:
        yield load
    length_s = max(time.monotonic() - begin_s, 1e-9)
    later_steal, later_total = steal_ticks()
    load["other_cpus"] = cpus["other_cpus"]
    load["steal"] = round((later_steal - steal) / max(later_total - total, 1), 4)
    for name, value in pressures().items():
        load[f"pressure_{name}"] = round((value - stalled.get(name, value)) / length_s, 3)
    load |= {name: round(value, 3) for name, value in load.items()}


def pressure_now() -> float:
    """Give the part of a short look in which some task waited for a CPU; 0 without pressure accounting."""
    before = pressures().get("cpu", 0.0)
    time.sleep(QUIET_LOOK_S)
    waited_s = pressures().get("cpu", 0.0) - before
    return min(max(0.0, waited_s) / QUIET_LOOK_S, 1.0)  # the kernel adds it up now and then


def pressures() -> dict[str, float]:
    """Read how long some task was stalled since boot, s, by resource; empty without pressure accounting."""
    found = {}
    for name in ("cpu", "io", "memory"):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/pressure/{name}").read_text().splitlines()[0]
            found[name] = int(line.rpartition("total=")[2]) / 1e6
    return found


def steal_ticks() -> tuple[int, int]:
    """Read stolen and all CPU time of the machine, ticks."""
    ticks = [int(it) for it in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)
