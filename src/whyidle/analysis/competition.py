"""What the simulation cannot read off the records: whom the workers met on the CPUs, and what they did under a lock.

Each is fitted to something that was counted (waiting for CPUs, CPU time of others, waiting for the lock), never to the
step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whyidle.analysis.loader_model import computing_ns, simulate_model
from whyidle.analysis.work import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from whyidle.analysis.loader_model import LoaderModel
    from whyidle.model.timeline import IntArray


CONTENDED_RATIO = 0.02
"""Waiting for CPUs below this part of the CPU time is left where it was recorded: it is wake-up latency."""
RIVALS_TOLERANCE = 0.005
"""The fit of the competition ends when simulated and recorded waiting differ by less, as a part of the CPU time."""
FIT_ROUNDS = 10
RESOURCE_ERROR = 0.03
"""A lock or a disk that misses the recorded step by more explains less than the recorded waiting does."""
MAX_RIVALS = 64.0


def fit_rivals(
    model: LoaderModel, queue_ratio: float, other_cpus: float, order: IntArray
) -> LoaderModel:
    """Find how many ready tasks of others the workers met.

    Two things are known of them: how long the workers waited, and how much CPU time others used. Each is explained by
    some number of rivals; the smaller one holds, for a worker that sleeps often also waits for its wake-up without any
    rival, and others may use CPUs that the run may not. What is not explained that way stays where it was recorded,
    beside the waits that cause it.

    Args:
        model: Without rivals.
        queue_ratio: Recorded waiting for a CPU over CPU time, workers.
        other_cpus: CPUs' worth of time used by others who would use more.
        order: Batches to fit with.
    """
    is_throttled = model.host.quota_cpus is not None
    if queue_ratio < CONTENDED_RATIO or model.settings.workers == 0 or is_throttled:
        return model
    seen = _Competition(model, order)
    rivals = 0.0
    if other_cpus > 0.0:
        rivals = min(
            seen.find(lambda one: one.queue_ratio, queue_ratio),
            seen.find(lambda one: one.other_cpus, other_cpus),
        )
    found = seen.look(rivals)
    model = replace(model, host=replace(model.host, rivals=rivals))
    unexplained = queue_ratio - found.queue_ratio
    return _with_wakeups(model, unexplained) if unexplained > CONTENDED_RATIO else model


@dataclass(frozen=True, slots=True)
class _Look:
    queue_ratio: float
    """Workers' waiting for a CPU over their CPU time."""
    other_cpus: float
    """CPUs that the rivals got."""


class _Competition:
    """What a number of rivals would look like."""

    def __init__(self, model: LoaderModel, order: IntArray) -> None:
        self.model, self.order = model, order
        self.cpu_ns = computing_ns(model, order)
        self.known: dict[float, _Look] = {}

    def look(self, rivals: float) -> _Look:
        """Simulate with so many rivals."""
        if rivals not in self.known:
            tried = replace(self.model, host=replace(self.model.host, rivals=rivals))
            outcome, _, _ = simulate_model(tried, self.order)
            work_ns = max(1.0, self.cpu_ns * len(outcome.got_ns))
            self.known[rivals] = _Look(
                outcome.worker_queue_ns / work_ns,
                outcome.rival_cpu_ns / max(1.0, outcome.end_ns),
            )
        return self.known[rivals]

    def find(self, what: Callable[[_Look], float], wanted: float) -> float:
        """Find the number of rivals with which something that grows with them is as wanted."""
        low, high = 0.0, 1.0
        while what(self.look(high)) < wanted and high < MAX_RIVALS:
            low, high = high, high * 2
        if low == 0.0 and what(self.look(0.0)) >= wanted:
            return 0.0
        for _ in range(FIT_ROUNDS):
            middle = (low + high) / 2
            found = what(self.look(middle))
            if abs(found - wanted) < RIVALS_TOLERANCE * max(1.0, wanted):
                return middle
            low, high = (middle, high) if found < wanted else (low, middle)
        return (low + high) / 2


def _with_wakeups(model: LoaderModel, queue_ratio: float) -> LoaderModel:
    """Lengthen what the workers are blocked in by the waiting for a CPU that follows it; else the turns."""
    waiting_ns = queue_ratio * computing_ns(model)
    blocked_ns = sum(
        float(part.amount_ns.mean()) for part in model.parts if part.kind is not Kind.CPU
    )
    if blocked_ns < waiting_ns:
        return replace(model, turn_ns=model.turn_ns + waiting_ns)
    factor = 1.0 + waiting_ns / blocked_ns
    parts = tuple(
        part if part.kind is Kind.CPU else replace(part, amount_ns=part.amount_ns * factor)
        for part in model.parts
    )
    return replace(model, parts=parts)


def fit_lock(
    plain: LoaderModel, locked: LoaderModel, waited_ns: float, order: IntArray
) -> LoaderModel:
    """Decide what is done while holding the lock.

    NOTE [a shared lock is held by somebody]
        Waiting for a lock is no work: it is made by who holds it. What is done while holding it is seen in stacks below
        the function that takes it. It may take it late or give it back early: where the steps are not repeated that
        way, the part under the lock is fitted to the waiting, and if that fails too, the waiting is left as it was.

    Args:
        plain: The loader with the waiting as it was recorded.
        locked: The same with its work under the lock, as seen in stacks.
        waited_ns: Recorded waiting for the lock, mean a batch.
        order: Batches to fit with.
    """
    widest = max((part.locked_ratio for part in locked.parts), default=0.0)
    if widest <= 0.0:
        return plain
    if misses_by(locked, order) <= RESOURCE_ERROR:
        return locked

    def under(factor: float) -> LoaderModel:
        parts = tuple(
            replace(part, locked_ratio=part.locked_ratio * factor) for part in locked.parts
        )
        return replace(locked, parts=parts)

    low, high = 0.0, 1.0 / widest
    for _ in range(FIT_ROUNDS):
        middle = (low + high) / 2
        outcome, _, _ = simulate_model(under(middle), order)
        is_short = outcome.lock_wait_ns / len(outcome.got_ns) < waited_ns
        low, high = (middle, high) if is_short else (low, middle)
    fitted = under((low + high) / 2)
    return fitted if misses_by(fitted, order) <= RESOURCE_ERROR else plain


def misses_by(model: LoaderModel, order: IntArray) -> float:
    """How far the simulated mean step is from the recorded one, as a part of it."""
    outcome, first, last = simulate_model(model, order)
    return abs(outcome.mean_step_ns(first, last) / model.step_ns - 1.0)
