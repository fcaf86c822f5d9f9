"""Timelines for tests: built by hand, or by simulating a loader whose truth is known.

The simulation is the max-plus recurrence of the loader without contention:
    disp[b] = got[b - P*W];  start[b] = max(disp[b], fin[b - W]);  fin[b] = start[b] + work[b]
    got[b] = max(ask[b], fin[b]);  ask[b + 1] = got[b] + step[b]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from whyidle.model.timeline import (
    Batches,
    Intervals,
    Iteration,
    Machine,
    Marks,
    RankTimeline,
    StackSamples,
    Steps,
    ThreadSamples,
    Timeline,
    Transforms,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MS = 1_000_000
ITERATION = 1
FIRST_PID = 1000


def ints(*values: int) -> NDArray[np.int64]:
    """Make an int64 array."""
    return np.array(values, dtype=np.int64)


def intervals(*pairs: tuple[int, int]) -> Intervals:
    """Make a track from (start, end) pairs."""
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals(start_ns=edges[:, 0], end_ns=edges[:, 1])


def empty(table: type, **columns: Any) -> Any:
    """Make a table without rows, or with the given columns and -1 (0 for flags) in all others."""
    rows = len(next(iter(columns.values()))) if columns else 0
    filled: dict[str, Any] = {}
    for name in table.__dataclass_fields__:
        if name in ("target", "file", "name"):
            filled[name] = np.full(rows, None, dtype=object)
        elif name in ("ready", "on_cpu", "default_collate"):
            filled[name] = np.zeros(rows, dtype=bool)
        else:
            filled[name] = np.full(
                rows, 0 if name in ("flags", "mount", "wait") else -1, dtype=np.int64
            )
    return table(**{**filled, **columns})


def make_iteration(**changes: Any) -> Iteration:
    """Make one pass over a loader with two workers."""
    plain = Iteration(
        iteration=ITERATION, loader=1, workers=2, prefetch=2, batch_size=8, start_ns=0, end_ns=0,
        persistent=False, in_order=True, iterable=False, pinned=False, resumed=False,
        loop_file="train.py", loop_line=10, build_file="train.py", build_line=5,
    )  # fmt: skip
    return replace(plain, **changes)


def make_rank(steps: Steps, batches: Batches, **changes: Any) -> RankTimeline:
    """Make a rank from its steps and batches; the device is the loop (`cpu`)."""
    plain = RankTimeline(
        rank=0, pid=1, steps=steps, batches=batches, iterations={ITERATION: make_iteration()},
        in_loader=Intervals(start_ns=steps.ask_ns, end_ns=steps.got_ns), workers=(),
        stack_samples=empty(StackSamples), stacks=(), threads=empty(ThreadSamples), marks=empty(Marks),
        transforms=empty(Transforms), device_kind="cpu", device_name=None, busy=None, device_idle=None,
        warmup_steps=0, window_start_ns=int(steps.ask_ns[0]), window_end_ns=int(steps.got_ns[-1]),
    )  # fmt: skip
    return replace(plain, **changes)


def make_machine(**changes: Any) -> Machine:
    """Make a machine with two CPUs and no counters."""
    plain = Machine(
        cpu_count=2, allowed_count=2, counters={}, process_counters={}, mounts={}
    )
    return replace(plain, **changes)


def make_timeline(*ranks: RankTimeline, **machine: Any) -> Timeline:
    """Make a timeline of some ranks."""
    return Timeline(ranks=ranks, machine=make_machine(**machine))


@dataclass(frozen=True)
class SimulatedLoader:
    """A loader with known work.

    `phases[b, p]` is what batch b needs in phase p, ns; `step_ns[b]` the loop's own time behind it.
    """

    phases: NDArray[np.float64]
    step_ns: NDArray[np.float64]
    workers: int
    prefetch: int

    def times(self) -> dict[str, NDArray[np.float64]]:
        """Run it; ask, got, start, fin, each (batches,) ns."""
        work = self.phases.sum(axis=1)
        count, window = len(work), self.workers * self.prefetch
        ask, got, start, fin = (np.zeros(count) for _ in range(4))
        for b in range(count):
            ask[b] = got[b - 1] + self.step_ns[b - 1] if b else 0.0
            dispatched = got[b - window] if b >= window else 0.0
            start[b] = max(dispatched, fin[b - self.workers] if b >= self.workers else 0.0)
            fin[b] = start[b] + work[b]
            got[b] = max(ask[b], fin[b])
        return {"ask": ask, "got": got, "start": start, "fin": fin}

    def marginal_shares(self) -> NDArray[np.float64]:
        """The truth: how much of the effect of speeding all phases up by 2 % each of them has."""
        whole = self.times()["got"][-1]
        effects = []
        for phase in range(self.phases.shape[1]):
            faster = self.phases.copy()
            faster[:, phase] *= 0.98
            effects.append(whole - replace(self, phases=faster).times()["got"][-1])
        return np.array(effects) / sum(effects)

    def rank(self) -> RankTimeline:
        """Write down what an agent would have recorded."""
        times = {
            name: np.round(values).astype(np.int64) for name, values in self.times().items()
        }
        count = len(self.phases)
        batch = np.arange(count, dtype=np.int64)
        worker = batch % self.workers
        window = self.workers * self.prefetch
        dispatched = np.concatenate(
            (np.zeros(min(window, count), dtype=np.int64), times["got"][:-window])
        )[:count]
        previous = np.concatenate(
            (
                np.zeros(min(self.workers, count), dtype=np.int64),
                times["fin"][: -self.workers],
            )
        )[:count]
        steps = empty(
            Steps, ask_ns=times["ask"], got_ns=times["got"], end_ns=np.append(times["ask"][1:], times["got"][-1]),
            iteration=np.full(count, ITERATION), batch=batch,
            sampler_ns=np.zeros(count, dtype=np.int64), receive_cpu_ns=np.zeros(count, dtype=np.int64),
        )  # fmt: skip
        batches = empty(
            Batches, iteration=np.full(count, ITERATION), batch=batch, worker=worker, pid=FIRST_PID + worker,
            index_ns=np.maximum(dispatched, previous), start_ns=times["start"], end_ns=times["fin"],
            cpu_ns=times["fin"] - times["start"], runq_ns=np.zeros(count, dtype=np.int64),
            collate_ns=np.zeros(count, dtype=np.int64),
        )  # fmt: skip
        changes = {ITERATION: make_iteration(workers=self.workers, prefetch=self.prefetch)}
        return make_rank(steps, batches, iterations=changes)
