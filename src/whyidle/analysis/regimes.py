"""Why the loop had to wait: the regime of each blame, from how workers and loop stood to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.contention import Reason
from whyidle.analysis.intervals import covered_ns
from whyidle.model.findings import Activity, Regime
from whyidle.model.timeline import Intervals

if TYPE_CHECKING:
    from whyidle.analysis.contention import Contention
    from whyidle.analysis.ledger import Blame
    from whyidle.model.timeline import BoolArray, IntArray, RankTimeline, Timeline

HEAD_OF_LINE_RATIO = 0.5
"""Part of the waiting in which some other worker stood idle, from which order is what holds the loop up
(planted slow samples: 0.99 to 1.00; everything else: up to 0.33)."""
INACTIVE_RATIO = 0.2
"""A worker that made less than this part of what the busiest made has no work."""
SPARE_CPUS = 0.8
"""With this much of a CPU unused one more worker would have run (a worker needs one)."""
FULL_DISK_RATIO = 0.85
"""Part of the time a disk had requests in flight from which it has no more to give."""


BURST_BLOCKS = 10
"""Fewer stretches cannot show bursts."""
BURST_SHARE, BURST_RATIO = 0.8, 0.5
"""Bursts: at most half of the stretches hold 0.8 of the waiting ..."""
BURST_VARIANCE = 6.0
"""... and the mean work of stretches varies this many times more than for batches in random order (there: 1 on average;
with 10 or more stretches chance exceeds 4 in less than 1 of 1,000 runs, and machines are less even than chance)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stance:
    """How a rank's workers and loop stood to each other in the window."""

    workers: int
    """num_workers of the loader that fed most steps."""
    active_workers: int
    """Workers with a fair part of the work."""
    head_of_line_ratio: float
    """Part of the waiting in which a worker other than the awaited one had nothing to do."""
    is_bursty: bool
    """The waiting comes in stretches longer than the queue, with stretches without waiting between them."""
    wait_ns: int
    """All waiting for batches."""
    spare_cpus: float | None
    """CPUs' worth of time that nobody used; None when not observed."""
    disk_busy_ratio: float | None
    """Of the busiest disk; None when not observed."""


def find_stance(timeline: Timeline, rank: RankTimeline, contention: Contention) -> Stance:
    """Measure how workers and loop stood to each other."""
    waits = waits_of(rank)
    spare = None
    if contention.tree_cpus is not None and contention.other_cpus is not None:
        spare = contention.allowed_count - contention.tree_cpus - contention.other_cpus
    return Stance(
        workers=main_worker_count(rank),
        active_workers=_active_workers(rank),
        head_of_line_ratio=_head_of_line_ratio(rank, waits),
        is_bursty=_is_bursty(rank, waits),
        wait_ns=waits.total_ns(),
        spare_cpus=spare,
        disk_busy_ratio=disk_busy_of(timeline, rank),
    )


def regime_of(blame: Blame, stance: Stance, contention: Contention) -> Regime:
    """Name the regime of one blame.

    Order matters: what follows from the activity alone comes first, then what concerns all workers.
    """
    if not blame.is_input:
        return _loop_regime(blame)
    if blame.activity is Activity.STARTUP:
        return Regime.EPOCH_START
    if stance.workers == 0:
        return Regime.SERIAL
    if blame.activity in (Activity.CPU_QUEUE, Activity.THROTTLED):
        return Regime.CONTENDED
    if blame.activity is Activity.SAMPLER:
        return Regime.SERIAL_STAGE
    if blame.is_serial:
        return Regime.SERIAL_STAGE
    if stance.active_workers < stance.workers:
        return Regime.INACTIVE_WORKERS
    if blame.activity is Activity.LOCK:
        return Regime.LOCK_BOUND
    if stance.head_of_line_ratio > HEAD_OF_LINE_RATIO:
        return Regime.HEAD_OF_LINE
    if stance.is_bursty:
        return Regime.BURSTY
    return Regime.FEW_WORKERS if _has_room(blame, stance, contention) else Regime.THROUGHPUT


def _loop_regime(blame: Blame) -> Regime:
    if blame.activity is Activity.COLLECTIVE:
        return Regime.STRAGGLER
    return Regime.PERIODIC if blame.is_periodic else Regime.STEADY


def _has_room(blame: Blame, stance: Stance, contention: Contention) -> bool:
    """Tell whether more workers would find the resource that this blame needs."""
    if blame.activity in (Activity.NETWORK, Activity.SLEEP):
        return True
    if blame.activity is Activity.STORAGE:
        return (stance.disk_busy_ratio or 0.0) < FULL_DISK_RATIO
    return contention.reason is Reason.NONE and (stance.spare_cpus or 0.0) >= SPARE_CPUS


def waits_of(rank: RankTimeline) -> Intervals:
    """Give the waits for batches in the window, one a step."""
    steps = rank.steps
    chosen = steps.ask_ns >= rank.window_start_ns
    return Intervals(start_ns=steps.ask_ns[chosen], end_ns=steps.got_ns[chosen])


def main_worker_count(rank: RankTimeline) -> int:
    """num_workers of the loader that fed most steps."""
    fed = loader_of_steps(rank)[main_steps(rank)]
    return next(
        (
            one.workers
            for one in rank.iterations.values()
            if len(fed) and one.loader == fed[0]
        ),
        0,
    )


def loader_of_steps(rank: RankTimeline) -> IntArray:
    """Loader that fed each step, (steps,); -1 unknown."""
    loader_of = {number: one.loader for number, one in rank.iterations.items()}
    return np.array(
        [loader_of.get(number, -1) for number in rank.steps.iteration.tolist()],
        dtype=np.int64,
    )


def main_steps(rank: RankTimeline) -> BoolArray:
    """Tell which steps of the window the loader fed that fed most, (steps,) bool: validation is not among them."""
    loaders = loader_of_steps(rank)
    inside = rank.steps.ask_ns >= rank.window_start_ns
    numbers, counts = np.unique(loaders[inside], return_counts=True)
    most = numbers[counts.argmax()] if len(numbers) else -1
    return np.asarray(inside & (loaders == most), dtype=bool)


def _in_window(rank: RankTimeline) -> IntArray:
    batches = rank.batches
    return np.flatnonzero(
        (batches.end_ns > rank.window_start_ns) & (batches.start_ns < rank.window_end_ns)
    )


def _active_workers(rank: RankTimeline) -> int:
    workers = rank.batches.worker[_in_window(rank)]
    made = np.unique(workers[workers >= 0], return_counts=True)[1]
    return int((made >= INACTIVE_RATIO * made.max()).sum()) if len(made) else 0


def _head_of_line_ratio(rank: RankTimeline, waits: Intervals) -> float:
    """Part of the waiting in which a worker other than the awaited one was idle between two batches."""
    total = waits.total_ns()
    awaited = _awaited_worker(rank)
    if total <= 0:
        return 0.0
    best = np.zeros(len(waits), dtype=np.int64)
    for worker, idle in _idle_of_workers(rank).items():
        idle_ns = covered_ns(idle, waits.start_ns, waits.end_ns)
        best = np.maximum(best, np.where(awaited == worker, 0, idle_ns))
    return float(best.sum() / total)


def _is_bursty(rank: RankTimeline, waits: Intervals) -> bool:
    """Tell whether batches get slow in stretches, each longer than the loader's queue, which hold the waiting.

    Uneven waiting alone proves nothing: a loader about as fast as its loop waits in clusters by chance.
    """
    iteration = next(iter(rank.iterations.values()), None)
    queue = iteration.workers * max(1, iteration.prefetch) if iteration else 1
    length = max(8, 2 * queue)
    wait_ns = _in_stretches(waits.end_ns - waits.start_ns, length).sum(axis=1)
    work = _in_stretches(_work_in_order(rank), length)
    if len(wait_ns) < BURST_BLOCKS or len(work) < BURST_BLOCKS or not wait_ns.sum():
        return False
    held = np.cumsum(np.sort(wait_ns)[::-1])
    needed = int(np.searchsorted(held, BURST_SHARE * held[-1])) + 1
    by_chance = float(work.var()) / length
    return bool(
        needed <= BURST_RATIO * len(wait_ns)
        and work.mean(axis=1).var() > BURST_VARIANCE * by_chance
    )


def _in_stretches(values: IntArray, length: int) -> IntArray:
    """Cut into rows of `length`, (stretches, length); what does not fill a row is left out."""
    count = len(values) // length
    return values[: count * length].reshape(count, length)


def _work_in_order(rank: RankTimeline) -> IntArray:
    """How long each batch of the window took to make, in the order they were begun."""
    rows = _in_window(rank)
    rows = rows[np.argsort(rank.batches.start_ns[rows], kind="stable")]
    return rank.batches.end_ns[rows] - rank.batches.start_ns[rows]


def _awaited_worker(rank: RankTimeline) -> IntArray:
    """Worker that made each step's batch, (steps in the window,); -1 unknown."""
    batches, steps = rank.batches, rank.steps
    keys = zip(batches.iteration.tolist(), batches.batch.tolist(), strict=True)
    worker_of = dict(zip(keys, batches.worker.tolist(), strict=True))
    chosen = steps.ask_ns >= rank.window_start_ns
    asked = zip(steps.iteration[chosen].tolist(), steps.batch[chosen].tolist(), strict=True)
    return np.array([worker_of.get(key, -1) for key in asked], dtype=np.int64)


def _idle_of_workers(rank: RankTimeline) -> dict[int, Intervals]:
    """Per worker, when it had made a batch and waited for the indices of its next one."""
    batches = rank.batches
    found: dict[int, Intervals] = {}
    for worker in np.unique(batches.worker).tolist():
        rows = np.flatnonzero(batches.worker == worker)
        rows = rows[np.argsort(batches.start_ns[rows])]
        starts, ends = batches.end_ns[rows][:-1], batches.index_ns[rows][1:]
        waited = (ends > starts) & (batches.pid[rows][1:] == batches.pid[rows][:-1])
        if worker >= 0:
            found[worker] = Intervals(start_ns=starts[waited], end_ns=ends[waited])
    return found


def disk_busy_of(timeline: Timeline, rank: RankTimeline) -> float | None:
    """Part of the window in which the busiest disk had requests in flight; None when not observed."""
    window = rank.window_start_ns, rank.window_end_ns
    ratios = [
        (series.change(*window) or 0) / max(1, series.span_ns(*window))
        for name, series in timeline.machine.counters.items()
        if name.startswith("disk.") and name.endswith(".busy_ns")
    ]
    return max(ratios) if ratios else None
