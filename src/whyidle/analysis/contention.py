"""Why a thread that is ready does not run: a quota, a mask, a neighbour, too many threads, or simply enough work.

The kernel counts how long a thread was ready without a CPU; this module says who is to blame for that, and how much
of the idle time would go if nothing but the queueing went.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whyidle.model.timeline import Batches, Machine, RankTimeline, Timeline

QUEUE_RATIO = 0.15
"""Part of a fetch's CPU time (running + ready) spent ready that counts as contention (METHOD §4.3: resource-bound)."""
THROTTLED_RATIO = 0.1
"""Part of the quota periods with throttling from which the quota is the reason (healthy runs: 0; planted: > 0.9)."""
OVERSUBSCRIBED_THREADS = 2.0
"""Ready threads a worker from which its own thread pool is the reason (planted: 3.6 to 7.4; all else: up to 1.8)."""
NEIGHBOUR_RATIO = 0.25
"""Part of the machine taken by other processes from which they are the reason; a desktop takes 0.05 to 0.1."""
FULL_RATIO = 0.75
"""A set of CPUs used this much is full: short sleeps and hand-overs keep a saturated pool from reaching 1."""


class Reason(Enum):
    """Why CPUs were not to be had."""

    NONE = "none"
    """They were to be had."""
    QUOTA = "quota"
    THREADS = "threads"
    """The workers' own thread pools are larger than the machine."""
    MASK = "mask"
    NEIGHBOUR = "neighbour"
    OWN_WORK = "own-work"
    """The workers' useful work fills the CPUs: less work is the only cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """How CPUs were shared in a rank's window."""

    reason: Reason
    queue_ratio: float
    """Part of the fetches' CPU time spent ready without a CPU, 0 to 1."""
    loop_queue_ratio: float
    """Part of the loop thread's CPU time spent ready without a CPU, 0 to 1; 0 when not observed."""
    loop_queued_ns: int
    """Time that the loop's thread was ready without a CPU; 0 when not observed."""
    throttled_ratio: float | None
    """Part of the quota periods with throttling; None without a quota counter."""
    runnable_threads: float | None
    """Ready or running threads a worker, mean; None when not observed."""
    tree_cpus: float | None
    """CPUs' worth of time used by the run; None when not observed."""
    other_cpus: float | None
    """CPUs' worth used by everybody else; None when not observed."""
    allowed_count: int
    cpu_count: int
    neighbour: str | None
    """Name of the other process with the most CPU time."""


def assess_contention(timeline: Timeline, rank: RankTimeline) -> Contention:
    """Find out whether, and because of whom, a rank's workers had to queue for CPUs."""
    machine = timeline.machine
    window = rank.window_start_ns, rank.window_end_ns
    queue_ratio = _queue_ratio(rank.batches)
    loop_queue_ratio, loop_queued_ns = _loop_queue(rank)
    throttled_ratio = _throttled_ratio(machine, *window)
    runnable = _runnable_threads(machine, rank)
    tree_cpus = _cpus(machine, "cpu.tree_ns", *window)
    other_cpus = _cpus(machine, "cpu.other_ns", *window)
    reason = Reason.NONE
    if max(queue_ratio, loop_queue_ratio) >= QUEUE_RATIO:
        reason = _reason(machine, throttled_ratio, runnable, tree_cpus, other_cpus)
    return Contention(
        reason=reason,
        queue_ratio=queue_ratio,
        loop_queue_ratio=loop_queue_ratio,
        loop_queued_ns=loop_queued_ns,
        throttled_ratio=throttled_ratio,
        runnable_threads=runnable,
        tree_cpus=tree_cpus,
        other_cpus=other_cpus,
        allowed_count=machine.allowed_count,
        cpu_count=machine.cpu_count,
        neighbour=_neighbour(machine, *window),
    )


def _reason(
    machine: Machine,
    throttled_ratio: float | None,
    runnable: float | None,
    tree_cpus: float | None,
    other_cpus: float | None,
) -> Reason:
    """Decide in the order of certainty: what a counter states outright comes first."""
    if throttled_ratio is not None and throttled_ratio > THROTTLED_RATIO:
        return Reason.QUOTA
    if runnable is not None and runnable > OVERSUBSCRIBED_THREADS:
        return Reason.THREADS
    is_masked = machine.allowed_count < machine.cpu_count
    if is_masked and (tree_cpus is None or tree_cpus > FULL_RATIO * machine.allowed_count):
        return Reason.MASK
    if other_cpus is not None and other_cpus > NEIGHBOUR_RATIO * machine.cpu_count:
        return Reason.NEIGHBOUR
    return Reason.OWN_WORK


def _queue_ratio(batches: Batches) -> float:
    known = (batches.cpu_ns >= 0) & (batches.runq_ns >= 0)
    ran_ns, waited_ns = int(batches.cpu_ns[known].sum()), int(batches.runq_ns[known].sum())
    return waited_ns / (ran_ns + waited_ns) if ran_ns + waited_ns else 0.0


def _loop_queue(rank: RankTimeline) -> tuple[float, int]:
    looks = rank.threads
    mine = (looks.pid == rank.pid) & (looks.tid == rank.pid)
    mine &= (looks.now_ns >= rank.window_start_ns) & (looks.now_ns <= rank.window_end_ns)
    mine &= (looks.on_cpu_ns >= 0) & (looks.runq_ns >= 0)
    if mine.sum() < 2:
        return 0.0, 0
    ran_ns, waited_ns = int(np.ptp(looks.on_cpu_ns[mine])), int(np.ptp(looks.runq_ns[mine]))
    return (waited_ns / (ran_ns + waited_ns) if ran_ns + waited_ns else 0.0), waited_ns


def _throttled_ratio(machine: Machine, start_ns: int, end_ns: int) -> float | None:
    periods = _change(machine, "cgroup.period_count", start_ns, end_ns)
    throttled = _change(machine, "cgroup.throttled_count", start_ns, end_ns)
    if periods is None or throttled is None:
        return None
    return throttled / periods if periods else 0.0


def _change(machine: Machine, name: str, start_ns: int, end_ns: int) -> int | None:
    series = machine.counters.get(name)
    return series.change(start_ns, end_ns) if series else None


def _cpus(machine: Machine, name: str, start_ns: int, end_ns: int) -> float | None:
    series = machine.counters.get(name)
    used_ns = series.change(start_ns, end_ns) if series else None
    if series is None or used_ns is None:
        return None
    return used_ns / max(1, series.span_ns(start_ns, end_ns))


def _runnable_threads(machine: Machine, rank: RankTimeline) -> float | None:
    """Mean count of ready threads in the workers (in the loop's process for num_workers=0)."""
    means = []
    for pid in np.unique(rank.batches.pid).tolist():
        series = machine.process_counters.get((pid, "process.runnable_threads"))
        if series is None:
            continue
        inside = (series.now_ns >= rank.window_start_ns) & (
            series.now_ns <= rank.window_end_ns
        )
        if inside.any():
            means.append(float(series.value[inside].mean()))
    return sum(means) / len(means) if means else None


def _neighbour(machine: Machine, start_ns: int, end_ns: int) -> str | None:
    used = {
        name.removeprefix("other.").removesuffix(".cpu_ns"): series.change(start_ns, end_ns)
        or 0
        for name, series in machine.counters.items()
        if name.startswith("other.")
    }
    return max(used, key=lambda name: used[name]) if used else None


def removable_ratio(
    contention: Contention, rank: RankTimeline, queued_on_path_ns: float, idle_ratio: float
) -> float:
    """Predict how much of the idle time goes when nothing but the queueing for CPUs goes.

    T is the mean step, S the part of it in which the device was busy. Without queueing the step is no shorter than S,
    than the critical path without its queueing, and than the work spread over all CPUs of the machine:
    T_free = max(S, T - queued on the path, cpu / CPUs), and the answer is (T - T_free) / (T - S).

    Worked example: four workers on one of two CPUs, 52 ms of CPU time a batch, T = 55 ms, S = 40 ms, 42 ms of queueing
    on the path a step: T_free = max(40, 13, 26) = 40, so all of the idle time is removable.

    Args:
        contention: Who is to blame for the queueing.
        rank: The rank.
        queued_on_path_ns: Queueing on its critical path, whole window.
        idle_ratio: Part of the window in which the device was idle.

    Returns:
        0 to 1; 0 when nobody but the run's own work fills the CPUs.
    """
    steps = len(rank.steps) - rank.warmup_steps
    if contention.reason in (Reason.NONE, Reason.OWN_WORK) or idle_ratio <= 0 or steps < 2:
        return 0.0
    batches = rank.batches
    known = (batches.cpu_ns >= 0) & (batches.process_cpu_ns >= 0)
    if not known.any():
        known = batches.cpu_ns >= 0
    cpu_ns = (
        float(np.maximum(batches.cpu_ns, batches.process_cpu_ns)[known].mean())
        if known.any()
        else 0.0
    )
    if contention.reason is Reason.THREADS:
        cpu_ns = 0.0  # what surplus threads burn in switching and spinning is not work
    step_ns = rank.window_ns / steps
    busy_ns = step_ns * (1 - idle_ratio)
    free_ns = max(
        busy_ns, step_ns - queued_on_path_ns / steps, cpu_ns / contention.cpu_count
    )
    return float(np.clip((step_ns - free_ns) / (step_ns - busy_ns), 0.0, 1.0))
