"""The folk rule: look at `nvidia-smi` and `htop`. State D means files, full cores mean computing.

Run as a program it starts the training and looks at /proc ten times a second, as a person looks at a screen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

LOOKS_PER_SECOND = 10.0
START_S = 2.0
"""Start-up is not looked at: a person waits until the training runs."""
IDLE_DEVICE = 0.10
"""Utilisation of 90 % and more counts as a busy device."""
WAITING = 0.20
"""A worker seen in state D every fifth time counts as waiting for files."""
FULL_CORE = 0.80
"""A process above 80 % of a core counts as computing."""


def watch(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Look at the training until it ends."""
    looks = waiting = 0
    worker_cpu_s: dict[int, tuple[float, float]] = {}
    main_cpu_s = (0.0, 0.0)
    begin_s = time.monotonic()
    first_s = None
    while process.poll() is None:
        time.sleep(1 / LOOKS_PER_SECOND)
        if time.monotonic() - begin_s < START_S:
            continue
        first_s = first_s or time.monotonic()
        workers = children_of(process.pid)
        looks += 1
        waiting += any(state_of(pid) == "D" for pid in [process.pid, *workers])
        for pid in workers:
            now_s = cpu_s_of(pid)
            worker_cpu_s[pid] = (worker_cpu_s.get(pid, (now_s, 0.0))[0], now_s)
        now_s = cpu_s_of(process.pid)
        main_cpu_s = (main_cpu_s[0] or now_s, max(now_s, main_cpu_s[1]))
    length_s = max(time.monotonic() - (first_s or begin_s), 1e-9)
    used = [(late - early) / length_s for early, late in worker_cpu_s.values()]
    return {
        "waiting": waiting / max(looks, 1),
        "worker_cpu": max(used, default=0.0),
        "main_cpu": (main_cpu_s[1] - main_cpu_s[0]) / length_s,
    }


def children_of(pid: int) -> list[int]:
    """Give the processes below one."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    below = [int(it) for it in found]
    return below + [deeper for it in below for deeper in children_of(it)]


def stat_of(pid: int) -> list[str]:
    """Read /proc/PID/stat from the state on; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """Give the state letter."""
    return (stat_of(pid) or ["?"])[0]


def cpu_s_of(pid: int) -> float:
    """Give the CPU time used so far, s; 0 when the process is gone."""
    fields = stat_of(pid)
    if not fields:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Start the training and write down what was seen."""
    out, *command = sys.argv[1:]
    process = subprocess.Popen([sys.executable, *command])
    Path(out).write_text(json.dumps(watch(process)))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
