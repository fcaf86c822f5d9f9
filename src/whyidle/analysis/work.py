"""What a loader has to do, how it is set up, on which machine, and what came of it: the simulation's records.

All times are ns, floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


class Kind(IntEnum):
    """What a phase of work needs."""

    CPU = 0
    """Core-ns, shared with others."""
    WAIT = 1
    """Passes by itself: a sleep, an answer over the network."""
    STORAGE = 2
    """One of the storage's slots for this long."""
    LOCKED_CPU = 3
    """The lock that all workers share, and core-ns while holding it."""
    LOCKED_WAIT = 4
    """The same lock, held for a time that passes by itself."""
    LAUNCH = 5
    """Loop only: work for the device, begun at once or when the device is free."""
    SYNC = 6
    """Loop only: wait until the device is free."""
    HELD = 7
    """Loop and pin thread only: this long, or until the sender of the result has made its next batch."""
    BUSY = 8
    """Computing that does not have to share its CPU, but takes one away: the kernel serves a thread that sleeps a lot
    before those that compute."""


Phase = tuple[Kind, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the loader is set up."""

    workers: int
    prefetch: int = 2
    in_order: bool = True
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the machine gives."""

    cpus: float = inf
    """CPUs that the run may use."""
    quota_cpus: float | None = None
    """CPU time a period, in CPUs; None: no quota."""
    period_ns: float = 100_000_000.0
    """Length of a quota period; the kernel's default."""
    rivals: float = 0.0
    """Ready tasks of other processes on the same CPUs, mean; each weighs as much as one of ours."""
    storage_slots: int | None = None
    """Requests that storage serves side by side; None: as many as come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStart:
    """The beginning of a pass over the data."""

    gap_ns: float
    """From the last batch's step to the first ask: the old iterator ends, the new one is made."""
    ready_ns: float
    """From the sending of the first indices until workers can take them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done, (batches,) each."""

    phases: Sequence[Sequence[Phase]]
    """Making of each batch."""
    width: Sequence[float]
    """Threads that compute while a batch's CPU phases run."""
    handoff_ns: Sequence[float]
    """From the end of a fetch (or of its worker's handoff before) until its result lies in the queue."""
    receive: Sequence[Sequence[Phase]]
    """Taking a result that lies there off the queue, on the loop or on the pin thread."""
    receive_fresh: Sequence[Sequence[Phase]]
    """The same by a loop that waited for it."""
    handoff_held_ns: Sequence[float]
    """What a handoff takes longer while its worker makes the next batch: both need one interpreter lock."""
    receive_held_ns: Sequence[float]
    """What a receipt takes longer while the sender makes another batch, at most until that is made."""
    pin_ns: Sequence[float]
    """Pinning, on the pin thread."""
    deliver: Sequence[Sequence[Phase]]
    """Inside next() behind the receipt: drawing indices, sending them."""
    step: Sequence[Sequence[Phase]]
    """The loop's own code behind each batch."""
    starts: Mapping[int, PassStart] = field(default_factory=dict)
    """Batches that begin a pass, other than the first one."""
    cold_ns: float = 0.0
    """What a step takes longer behind a wait of COLD_NS and more: caches and clock have cooled down."""
    stop: int | None = None
    """The simulation ends when so many batches have been handed over; those behind only keep the workers busy."""
    first_ready_ns: float = 0.0
    """From the first ask until workers can take up their first indices."""
    shares: tuple[int, ...] | None = None
    """Iterable data sets: batches that each worker has a pass; None: any worker makes any batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What happened."""

    ask_ns: FloatArray
    got_ns: FloatArray
    """(batches,) in the order of delivery."""
    device_free_ns: FloatArray
    """When the device has done all that was launched before each `got_ns`."""
    end_ns: float
    """End of the last step, the device included."""
    device_busy_ns: float
    cpu_ns: float
    """CPU time used by the run."""
    rival_cpu_ns: float
    """CPU time that the rivals got."""
    worker_queue_ns: float
    """Being ready without a CPU, all workers."""
    loop_queue_ns: float
    """The same of the loop."""
    full_ratio: float
    """Part of the loop's own time in which workers and rivals leave it no CPU, 0 to 1."""
    lock_wait_ns: float
    """Waiting for the lock, all workers."""
    storage_wait_ns: float
    """Waiting for a slot of the storage, all workers."""

    def done_ns(self) -> FloatArray:
        """When each batch's step could begin and all device work before it was done.

        A loop that never waits for its device asks ever earlier; what counts is when the work is done.
        """
        return np.maximum(self.got_ns, self.device_free_ns)

    def mean_step_ns(self, first: int = 0, last: int = -1) -> float:
        """Mean step between two batches."""
        done = self.done_ns()
        last %= len(done)
        return float((done[last] - done[first]) / max(1, last - first))
