"""The loop's own recorded time: its code, the device's work, and the waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.batch_shares import deal, match_label
from whyidle.analysis.intervals import complement, contains, covered_ns, unite
from whyidle.analysis.loader_model import Part
from whyidle.analysis.places import is_library
from whyidle.analysis.simulate import COLD_NS, WARM_NS
from whyidle.analysis.work import Kind
from whyidle.model.codes import Mark, StackFlag, StackRole
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.analysis.loader_model import Label
    from whyidle.analysis.recorded import Recorded
    from whyidle.analysis.work import FloatArray
    from whyidle.model.timeline import (
        BoolArray,
        Frame,
        IntArray,
        Intervals,
        RankTimeline,
    )


MIN_EXAMPLES = 20
"""Steps of either kind from which their medians are compared: each is then known to a fifth of the spread."""
LOOP_ACTIVITIES = frozenset((Activity.PYTHON, Activity.LAUNCH, Activity.SYNC))
"""Causes in the loop's own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSegments:
    """The loop's recorded time, (steps,) ns each."""

    deliver_ns: FloatArray
    host_ns: FloatArray
    launch_ns: FloatArray
    before_ns: FloatArray
    synced_ns: FloatArray
    unsynced_ns: FloatArray
    is_synced: BoolArray
    cold_ns: float
    last_ns: IntArray
    """When the last wait for the device ended; the answer's time where there was none."""
    wake_ns: FloatArray
    cpu_ratio: float
    queue_ratio: float
    background_cpus: float
    span: tuple[int, int]
    """First and last step to measure between: at both the device has nothing left to do."""


def loop_segments(recorded: Recorded) -> LoopSegments:
    """Cut each step into the host's time before and behind its wait for the device, and the device's work."""
    rank = recorded.rank
    ask, got = recorded.ask, recorded.got
    followed = np.append(recorded.goes_on, False)
    next_got = np.where(followed, np.append(got[1:], got[-1:]), recorded.end)
    followed[:-1] &= np.diff(recorded.iteration) == 0
    end = np.where(followed, np.append(ask[1:], ask[-1:]), recorded.end)
    deliver = _deliveries(recorded)
    busy = rank.busy
    if busy is None and rank.device_idle is not None:
        busy = complement(rank.device_idle, rank.window_start_ns, rank.window_end_ns)
    whole = (end - got).astype(float)
    count = len(got)
    if busy is None:
        synced, unsynced, launch = np.zeros(count), np.zeros(count), np.zeros(count)
        waits, last = np.zeros(count), got.copy()
    else:
        waits, last = _sync_waits(rank, got, end)
        synced = covered_ns(busy, got, last).astype(float)
        unsynced = covered_ns(busy, last, np.maximum(next_got, last)).astype(float)
        launch = _device_delay(busy.start_ns, busy.end_ns, got, end)
    is_synced = last > got
    idle = np.where(is_synced, (last - got) - synced, 0.0)
    begins = np.ones(count, dtype=bool)
    if busy is not None:
        begins = ~contains(busy, got)
        begins[0] = True
        begins[1:] |= is_synced[:-1]
        synced, unsynced = _as_launched(synced, unsynced, is_synced, begins)
    before = np.maximum((last - got).astype(float) - waits, 0.0)
    wake = np.maximum(idle - before, 0.0)
    host = np.maximum(whole - waits, 0.0)
    wait_ns = got - ask
    cold_ns = _cold_ns(host[recorded.first :], wait_ns[recorded.first :])
    cooled = np.clip((wait_ns - WARM_NS) / (COLD_NS - WARM_NS), 0.0, 1.0)
    host = np.maximum(host - cold_ns * cooled, 0.0)
    receive = np.maximum(
        rank.batches.receive_end_ns[recorded.rows]
        - np.maximum(rank.batches.receive_start_ns[recorded.rows], recorded.visible),
        0,
    )
    seen = _LoopCpu.look(recorded, host + deliver + wake, receive.astype(float))
    return LoopSegments(
        deliver_ns=np.maximum(deliver - rank.steps.sampler_ns[recorded.steps], 0.0),
        host_ns=host,
        launch_ns=np.where(is_synced, np.minimum(idle, before), launch),
        before_ns=before,
        synced_ns=synced,
        unsynced_ns=unsynced,
        is_synced=is_synced,
        cold_ns=cold_ns,
        last_ns=last,
        wake_ns=wake,
        cpu_ratio=seen.cpu_ratio,
        queue_ratio=seen.queue_ratio,
        background_cpus=seen.background_cpus,
        span=_span(begins, recorded.first),
    )


def _cold_ns(host_ns: FloatArray, wait_ns: IntArray) -> float:
    """What a step takes longer behind a long wait than behind none, ns; 0 where both were not seen often enough."""
    warm, cold = wait_ns < WARM_NS, wait_ns >= COLD_NS
    if min(warm.sum(), cold.sum()) < MIN_EXAMPLES:
        return 0.0
    return max(0.0, float(np.median(host_ns[cold]) - np.median(host_ns[warm])))


def _span(begins: BoolArray, first: int) -> tuple[int, int]:
    """Measure between moments at which the device has nothing left; everything where they are too few."""
    whole = first, len(begins) - 1
    at = np.flatnonzero(begins)
    at = at[at >= first]
    if len(at) < 2 or at[-1] - at[0] < (whole[1] - whole[0]) / 2:
        return whole
    return int(at[0]), int(at[-1])


def _as_launched(
    synced: FloatArray, unsynced: FloatArray, is_synced: BoolArray, begins: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Give each step the device work it launched instead of what ran during it.

    Where the loop runs ahead of the device, work runs steps later. Between two moments at which the device had nothing
    left (a wait for it, or an idle device at the answer) every step gets the same.
    """
    group = np.cumsum(begins) - 1
    whole = np.bincount(group, synced + unsynced) / np.bincount(group)
    is_alone = np.bincount(group)[group] == 1
    each = whole[group]
    return (
        np.where(is_alone, synced, np.where(is_synced, each, 0.0)),
        np.where(is_alone, unsynced, np.where(is_synced, 0.0, each)),
    )


def _deliveries(recorded: Recorded) -> FloatArray:
    """Inside next() without making or taking batches: looking, sending indices, handing over."""
    inside = (recorded.got - recorded.ask).astype(np.float64)
    if recorded.loader.workers == 0:
        made = np.minimum(recorded.made, recorded.got) - np.maximum(
            recorded.start, recorded.ask
        )
        return np.asarray(np.maximum(inside - np.maximum(made, 0), 0.0), dtype=np.float64)
    batches = recorded.rank.batches
    received = batches.receive_end_ns >= 0
    if not received.any():
        since = np.maximum(recorded.visible, recorded.ask)
        return np.asarray(np.maximum(recorded.got - since, 0), dtype=np.float64)
    taking = unite(
        batches.receive_start_ns[received],
        batches.receive_end_ns[received],
        int(recorded.ask[0]),
        int(recorded.got[-1]),
    )
    taken = covered_ns(taking, recorded.ask, recorded.got)
    return np.asarray(np.maximum(inside - taken, 0.0), dtype=np.float64)


def _sync_waits(
    rank: RankTimeline, got: IntArray, end: IntArray
) -> tuple[FloatArray, IntArray]:
    """Time in synchronising calls in each step, and when the last of them ended (`got` where there is none)."""
    marks = rank.marks
    chosen = marks.mark == Mark.SYNC
    start_ns, end_ns = marks.start_ns[chosen], marks.end_ns[chosen]
    step = np.searchsorted(got, start_ns, "right") - 1
    inside = step >= 0
    inside &= end_ns <= end[np.maximum(step, 0)]
    waits = np.zeros(len(got))
    last = got.copy()
    np.add.at(waits, step[inside], (end_ns - start_ns)[inside].astype(float))
    np.maximum.at(last, step[inside], end_ns[inside])
    return waits, last


def _waits(rank: RankTimeline) -> Intervals:
    """When the loop was in a synchronising call."""
    marks = rank.marks
    chosen = marks.mark == Mark.SYNC
    return unite(
        marks.start_ns[chosen],
        marks.end_ns[chosen],
        rank.window_start_ns,
        rank.window_end_ns,
    )


def _device_delay(
    busy_start: IntArray, busy_end: IntArray, got: IntArray, end: IntArray
) -> FloatArray:
    """From each answer until the device works again; 0 where it still does."""
    at = np.searchsorted(busy_end, got, "right")
    begins = busy_start[np.minimum(at, len(busy_start) - 1)] if len(busy_start) else got
    delay = np.where(at < len(busy_start), begins - got, 0)
    return np.asarray(np.clip(delay, 0, end - got), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoopCpu:
    """What the observer saw of the loop's thread in the window; 0 where it did not."""

    cpu_ratio: float = 0.0
    """Part of its own time (without taking batches off the queue) on a CPU."""
    queue_ratio: float = 0.0
    """Part of all its time ready without a CPU."""
    background_cpus: float = 0.0
    """CPUs that it used while it waited: signals are served then, our own sampler's among them."""

    @classmethod
    def look(
        cls, recorded: Recorded, own_ns: FloatArray, receive_ns: FloatArray
    ) -> _LoopCpu:
        """Compare what the thread used with what it did."""
        rank, first = recorded.rank, recorded.first
        looks = rank.threads
        mine = (looks.pid == rank.pid) & (looks.tid == rank.pid)
        mine &= (looks.now_ns >= rank.window_start_ns) & (
            looks.now_ns <= rank.window_end_ns
        )
        mine &= (looks.on_cpu_ns >= 0) & (looks.runq_ns >= 0)
        span_ns = float(np.ptp(looks.now_ns[mine])) if mine.any() else 0.0
        own, receive = float(own_ns[first:].sum()), float(receive_ns[first:].sum())
        if span_ns <= 0 or own <= 0 or recorded.loader.workers == 0:
            return cls()
        window_ns = float(np.diff(recorded.got)[first:][recorded.goes_on[first:]].sum())
        scale = window_ns / span_ns
        received = float(rank.steps.receive_cpu_ns[recorded.steps[first:]].sum())
        ran = max(0.0, float(np.ptp(looks.on_cpu_ns[mine])) * scale - received)
        waited = float(np.ptp(looks.runq_ns[mine])) * scale
        ratio = min(1.0, ran / own)
        return cls(
            cpu_ratio=ratio,
            queue_ratio=min(1.0 - ratio, waited / (own + receive)),
            background_cpus=(ran - ratio * own) / window_ns,
        )


def loop_parts(
    recorded: Recorded, labels: Sequence[Label], host_ns: FloatArray, last_ns: IntArray
) -> tuple[Part, ...]:
    """Part the loop's own time over the causes on its side."""
    own = [label for label in labels if label.activity in LOOP_ACTIVITIES]
    moving = [label for label in labels if label.activity is Activity.TRANSPORT]
    named = [*own, *moving]
    lines = {(one.loop_file, one.loop_line) for one in recorded.rank.iterations.values()}

    def column_of(frames: Sequence[Frame]) -> int:
        if moving and is_release(frames, lines):
            return len(own)
        at = match_label(own, frames)
        return at if at < len(own) else len(named)

    rank = recorded.rank
    samples = rank.stack_samples
    wanted = (samples.role == StackRole.LOOP) & ((samples.flags & StackFlag.IN_NEXT) == 0)
    step = np.searchsorted(recorded.got, samples.now_ns, "right") - 1
    inside = step >= 0
    inside &= samples.now_ns <= recorded.end[np.maximum(step, 0)]
    # Waiting for the device is no host time: it is not shared out.
    numbers = np.flatnonzero(wanted & inside & ~contains(_waits(rank), samples.now_ns))
    column = np.array(
        [column_of(rank.stacks[samples.stack[number]]) for number in numbers.tolist()],
        dtype=np.int64,
    )
    shares = deal(
        host_ns, step[numbers], column, samples.weight_ns[numbers], len(named) + 1
    )
    early = samples.now_ns[numbers] < last_ns[step[numbers]]
    return tuple(
        Part(
            label=label,
            kind=Kind.WAIT,
            amount_ns=host_ns * shares[:, at],
            sample_count=int((column == at).sum()),
            is_shared=len(numbers) > 0,
            before_share=float(early[column == at].mean()) if (column == at).any() else 0.0,
        )
        for at, label in enumerate((*named, None))
    )


def is_release(frames: Sequence[Frame], lines: set[tuple[str | None, int | None]]) -> bool:
    """Whether the loop is at its own `for` line outside next(): there it lets go of the batch before."""
    own = [frame for frame in frames if not is_library(frame.file)]
    return bool(own) and (own[-1].file, own[-1].line) in lines
