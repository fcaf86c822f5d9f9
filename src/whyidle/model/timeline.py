"""One run, aligned and immutable: what every analysis reads and every picture is drawn from.

Times are monotonic ns of the host, int64. -1 stands for "not measured" only inside the arrays of this module, and
only where a field says so; everything that leaves analysis says None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]

DeviceKind = Literal["cuda", "simulated", "cpu"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a Python stack."""

    file: str
    function: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Columns of equal length."""

    def __len__(self) -> int:
        """Count the rows."""
        return len(getattr(self, fields(self)[0].name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(_Table):
    """The answered asks of one rank, (steps,) each, sorted by `ask_ns`. Asks of nested loaders are among them."""

    ask_ns: IntArray
    """When next() was called."""
    got_ns: IntArray
    """When it returned."""
    end_ns: IntArray
    """The next ask, on any loader of the rank; for the last one, the end of what was seen."""
    iteration: IntArray
    batch: IntArray
    """Index of the delivered batch within its iteration."""
    sampler_ns: IntArray
    """Time spent drawing indices inside this call."""
    receive_cpu_ns: IntArray
    """CPU time spent taking items off the result queue inside this call; 0 for num_workers=0."""
    ready: BoolArray
    """The batch had been received before the ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches(_Table):
    """The batches that were made for one rank, (batches,) each, sorted by (iteration, batch)."""

    iteration: IntArray
    batch: IntArray
    worker: IntArray
    """Id of the worker; -1 for num_workers=0."""
    pid: IntArray
    index_ns: IntArray
    """When the worker got the indices; -1 unknown."""
    start_ns: IntArray
    end_ns: IntArray
    cpu_ns: IntArray
    """Time on a CPU in the fetch; -1 unknown."""
    runq_ns: IntArray
    """Time ready but without a CPU in the fetch; -1 unknown."""
    process_cpu_ns: IntArray
    """CPU time of all the process' threads in the fetch; -1 unknown."""
    collate_ns: IntArray
    """Wall time of the collate inside the fetch."""
    default_collate: BoolArray
    """The collate function is torch's own."""
    send_start_ns: IntArray
    """When the feeder began to send; -1 unknown."""
    sent_ns: IntArray
    """When it had been sent; -1 unknown."""
    handoff_cpu_ns: IntArray
    """CPU time of the feeder thread for it; -1 unknown."""
    receive_cpu_ns: IntArray
    """CPU time of the loop for taking it off the queue; -1 unknown."""
    receive_start_ns: IntArray
    """When the loop began to take it off the queue (or to wait for something to be there); -1 unknown."""
    receive_end_ns: IntArray
    """When it had been taken off; -1 unknown."""
    size_bytes: IntArray
    """Bytes in tensors and arrays; -1 unknown."""
    tensor_count: IntArray
    """-1 unknown."""
    minor_faults: IntArray
    """-1 unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSamples(_Table):
    """Stack samples of one rank's loop and workers, (samples,) each, sorted by `now_ns`."""

    pid: IntArray
    role: IntArray
    """codes.StackRole."""
    now_ns: IntArray
    weight_ns: IntArray
    """Time since the same thread was sampled before: what this sample stands for."""
    stack: IntArray
    """Index into RankTimeline.stacks."""
    on_cpu: BoolArray
    """True: running or ready; False: blocked in the kernel."""
    flags: IntArray
    """codes.StackFlag."""
    wait: IntArray
    """waits.Wait of a blocked thread as the agent saw it; Wait.NONE while on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSamples(_Table):
    """The observer's looks at threads of one rank, (looks,) each, sorted by `now_ns`."""

    pid: IntArray
    tid: IntArray
    now_ns: IntArray
    weight_ns: IntArray
    wait: IntArray
    """waits.Wait."""
    on_cpu_ns: IntArray
    """Time on a CPU since the thread began; -1 unknown."""
    runq_ns: IntArray
    """Time ready without a CPU since the thread began; -1 unknown."""
    target: NDArray[np.object_]
    """What it waits for: a path, `socket:`, ... or None."""
    mount: IntArray
    """Mount id of the target; 0 unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks(_Table):
    """Things the loop's thread did, (marks,) each, sorted by `start_ns`."""

    mark: IntArray
    """codes.Mark."""
    start_ns: IntArray
    end_ns: IntArray
    file: NDArray[np.object_]
    line: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Transforms(_Table):
    """Outermost transforms that ran, (transforms,) each, sorted by (pid, start_ns)."""

    pid: IntArray
    start_ns: IntArray
    end_ns: IntArray
    name: NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals(_Table):
    """Disjoint intervals, sorted."""

    start_ns: IntArray
    end_ns: IntArray

    def total_ns(self) -> int:
        """Add up the lengths."""
        return int((self.end_ns - self.start_ns).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One pass over a DataLoader."""

    iteration: int
    loader: int
    """Same for all passes over the same DataLoader object."""
    workers: int
    prefetch: int
    batch_size: int
    """-1: none."""
    start_ns: int
    """iter() was called."""
    end_ns: int
    """iter() returned: workers started, first indices sent."""
    persistent: bool
    in_order: bool
    iterable: bool
    pinned: bool
    resumed: bool
    """The workers were there already (persistent_workers)."""
    loop_file: str | None
    loop_line: int | None
    build_file: str | None
    build_line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLife:
    """One worker process."""

    pid: int
    worker: int
    process_start_ns: int
    loop_start_ns: int
    ready_ns: int
    """First asked for indices: imports, worker_init_fn and opening of data are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """What one training process and its workers did."""

    rank: int
    pid: int
    steps: Steps
    batches: Batches
    iterations: Mapping[int, Iteration]
    in_loader: Intervals
    """When the loop was inside iter() or next() of a loader, also the next() that ended an iteration."""
    workers: tuple[WorkerLife, ...]
    stack_samples: StackSamples
    stacks: tuple[tuple[Frame, ...], ...]
    """Distinct stacks, root first."""
    threads: ThreadSamples
    marks: Marks
    transforms: Transforms
    device_kind: DeviceKind
    device_name: str | None
    busy: Intervals | None
    """When the device worked, by its own clock; None for a device without one (`cpu`)."""
    device_idle: Intervals | None
    """Idle seen by events on the device (cuda); None where `busy` is there."""
    warmup_steps: int
    """Steps at the start that are left out of the window."""
    window_start_ns: int
    window_end_ns: int

    @property
    def window_ns(self) -> int:
        """Length of what is analysed."""
        return self.window_end_ns - self.window_start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A counter over time, (points,) each; cumulative ones only grow."""

    now_ns: IntArray
    value: IntArray

    def change(self, start_ns: int, end_ns: int) -> int | None:
        """Give the growth between two times; None with fewer than two points there."""
        inside = (self.now_ns >= start_ns) & (self.now_ns <= end_ns)
        values = self.value[inside]
        return int(values[-1] - values[0]) if len(values) > 1 else None

    def span_ns(self, start_ns: int, end_ns: int) -> int:
        """Give the time between the first and the last point in a window."""
        times = self.now_ns[(self.now_ns >= start_ns) & (self.now_ns <= end_ns)]
        return int(times[-1] - times[0]) if len(times) > 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted file system."""

    kind: str
    point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the host offered and did."""

    cpu_count: int
    allowed_count: int
    """CPUs in the affinity mask of the training and its workers, the smallest seen."""
    counters: Mapping[str, Series]
    process_counters: Mapping[tuple[int, str], Series]
    """(pid, name) to series."""
    mounts: Mapping[int, Mount]
    quota_cpus: float | None = None
    """CPU quota of the command's cgroup when it was started, in CPUs; None: none, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One run."""

    ranks: tuple[RankTimeline, ...]
    machine: Machine
    left_out_trainings: int = 0
    """Trainings of the same command that ran before or after this one."""

    def check(self) -> list[str]:
        """Name every broken invariant; an empty list is a sound timeline.

        Steps and fetches do not end before they begin, steps do not overlap their successor, on-CPU and
        run-queue time fit into the fetch (1 ms of clock granularity allowed), intervals are sorted and disjoint.
        """
        return [
            f"rank {rank.rank}: {broken}"
            for rank in self.ranks
            for broken in _broken_invariants(rank)
        ]


_CLOCK_SLACK_NS = 1_000_000
"""Two clocks read one after the other differ by a preemption at most; 1 ms is a short time slice."""


def _broken_invariants(rank: RankTimeline) -> list[str]:
    steps, batches = rank.steps, rank.batches
    wall = batches.end_ns - batches.start_ns
    known = (batches.cpu_ns >= 0) & (batches.runq_ns >= 0)
    used = batches.cpu_ns + batches.runq_ns
    tests = {
        "a step's batch arrived before it was asked for": np.any(
            steps.got_ns < steps.ask_ns
        ),
        "a step ends before its batch arrived": np.any(steps.end_ns < steps.got_ns),
        "steps are not in order": np.any(np.diff(steps.ask_ns) < 0),
        "a fetch ends before it begins": np.any(wall < 0),
        "a fetch used more time than passed": np.any(
            known & (used > wall + _CLOCK_SLACK_NS)
        ),
        "the window ends before it begins": rank.window_end_ns < rank.window_start_ns,
    }
    for name in ("busy", "device_idle"):
        track = getattr(rank, name)
        if track is not None and len(track):
            tests[f"{name} intervals overlap"] = np.any(
                track.start_ns[1:] < track.end_ns[:-1]
            )
    return [name for name, is_broken in tests.items() if bool(is_broken)]
