"""Idle time → who is to blame, closed to the nanosecond.

The idle time on the loader's side is dealt out in proportion to the critical path's input segments; a segment of
making a batch is expanded by the whole composition of that batch (on a CPU, waiting for one, blocked), never by what
happened to overlap the wait. The idle time on the loop's side is dealt out by what the loop did meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.contention import Reason, removable_ratio
from whyidle.analysis.host import blame_loop
from whyidle.analysis.ledger import Blame
from whyidle.analysis.path import PathKind
from whyidle.analysis.places import WeightedStack, below_fetch, find_hot_places
from whyidle.analysis.transport import split_transport
from whyidle.model.codes import StackFlag, StackRole
from whyidle.model.findings import Activity, Place
from whyidle.model.waits import Wait

if TYPE_CHECKING:
    from whyidle.analysis.contention import Contention
    from whyidle.analysis.idle import IdleSplit
    from whyidle.analysis.path import Path
    from whyidle.analysis.places import HotPlace
    from whyidle.model.timeline import BoolArray, Frame, IntArray, RankTimeline, Timeline

MIN_SAMPLES = 20
"""With fewer samples on the path the whole window's samples are used: a share from 20 samples has a noise of 0.1."""

ACTIVITY_OF_WAIT: dict[int, Activity] = {
    Wait.FILE: Activity.STORAGE,
    Wait.PAGE_FAULT: Activity.STORAGE,
    Wait.SOCKET: Activity.NETWORK,
    Wait.PIPE: Activity.LOCK,
    Wait.LOCK: Activity.LOCK,
    Wait.THREAD: Activity.LOCK,
    Wait.CHILD: Activity.LOCK,
    Wait.SLEEP: Activity.SLEEP,
    Wait.DEVICE: Activity.STORAGE,
}
"""What a blocked thread waits for → what that is called; waits that are not here stay unexplained."""


@dataclass(slots=True)
class _Weights:
    """Parts of the input side in path ns, before they are scaled to idle time."""

    parts: list[Blame] = field(default_factory=list)

    def add(self, activity: Activity, weight: float, place: Place | None = None, *, wait: int = Wait.NONE,
            sample_count: int = 0) -> None:  # fmt: skip
        if weight > 0:
            self.parts.append(
                Blame(
                    activity=activity,
                    where=place or Place(),
                    idle_ns=weight,
                    is_input=True,
                    wait=wait,
                    sample_count=sample_count,
                )
            )


def blame_rank(
    timeline: Timeline,
    rank: RankTimeline,
    split: IdleSplit,
    path: Path,
    contention: Contention,
) -> list[Blame]:
    """Deal out the idle time of one rank.

    Returns:
        Blames whose `idle_ns` add up to `split.idle`, `unexplained` among them.
    """
    weights = _Weights()
    weights.add(Activity.STARTUP, path.total_ns(PathKind.STARTUP))
    weights.add(Activity.UNEXPLAINED, path.total_ns(PathKind.UNKNOWN))
    _add_sampler(weights, rank, path)
    parts = _compose(rank, path)
    transport = split_transport(rank, path)
    _add_transport(weights, transport.own_ns, parts["collate"])
    parts["cpu"] += (
        transport.held_ns
    )  # see NOTE [handing over needs the worker's interpreter]
    queued_ns = _queued(rank, split, contention, parts, weights)
    _add_fetches(
        weights, timeline, rank, path, parts["cpu"] + parts["ready"] - queued_ns, parts
    )
    if queued_ns > 0:
        weights.parts.append(_queue_blame(contention, queued_ns, is_input=True))
    scaled = _scale(weights.parts, split.in_loader.total_ns())
    if rank.device_kind == "cpu":
        # The loop's own code is the device's work here: what is idle outside next() is queueing, see split_idle.
        loop = [_queue_blame(contention, split.in_loop.total_ns(), is_input=False)]
        return [*_charge_queueing(scaled, contention), *loop]
    return _charge_queueing([*scaled, *blame_loop(rank, split)], contention)


OF_THE_LOOP = frozenset(
    (Activity.TRANSPORT, Activity.SAMPLER, Activity.PYTHON, Activity.SYNC, Activity.LAUNCH)
)
"""What the loop's thread does itself, and does slower when it has to queue for a CPU."""


def _add_transport(weights: _Weights, serial_ns: float, collate_ns: float) -> None:
    """Moving batches is one cause, whether workers copy them or the loop unpickles them."""
    if serial_ns + collate_ns > 0:
        blame = Blame(
            activity=Activity.TRANSPORT,
            where=Place(),
            idle_ns=serial_ns + collate_ns,
            is_input=True,
            is_serial=serial_ns >= collate_ns,
        )
        weights.parts.append(blame)


def _queue_blame(contention: Contention, idle_ns: float, *, is_input: bool) -> Blame:
    is_quota = contention.reason is Reason.QUOTA
    is_neighbour = contention.reason is Reason.NEIGHBOUR
    return Blame(
        activity=Activity.THROTTLED if is_quota else Activity.CPU_QUEUE,
        where=Place(process=contention.neighbour if is_neighbour else None),
        idle_ns=idle_ns,
        is_input=is_input,
    )


def _charge_queueing(blames: list[Blame], contention: Contention) -> list[Blame]:
    """Charge the part of the loop's own time that it stood in the queue for a CPU to whoever held the CPUs.

    Never more than the loop's thread did queue: what it was blocked in has nothing to do with CPUs.
    """
    own_ns = sum(blame.idle_ns for blame in blames if blame.activity in OF_THE_LOOP)
    if contention.reason in (Reason.NONE, Reason.OWN_WORK) or own_ns <= 0:
        return blames
    ratio = min(contention.loop_queue_ratio, contention.loop_queued_ns / own_ns)
    charged: list[Blame] = []
    for blame in blames:
        if blame.activity in OF_THE_LOOP and ratio > 0:
            charged.append(replace(blame, idle_ns=blame.idle_ns * (1 - ratio)))
            charged.append(
                _queue_blame(contention, blame.idle_ns * ratio, is_input=blame.is_input)
            )
        else:
            charged.append(blame)
    return charged


def _scale(parts: list[Blame], idle_ns: int) -> list[Blame]:
    """Scale path weights to idle time; without any path the idle time is unexplained."""
    total = sum(part.idle_ns for part in parts)
    if idle_ns <= 0:
        return []
    if total <= 0:
        return [
            Blame(
                activity=Activity.UNEXPLAINED, where=Place(), idle_ns=idle_ns, is_input=True
            )
        ]
    return [replace(part, idle_ns=part.idle_ns * idle_ns / total) for part in parts]


def _add_sampler(weights: _Weights, rank: RankTimeline, path: Path) -> None:
    samples = rank.stack_samples
    chosen = (samples.role == StackRole.LOOP) & ((samples.flags & StackFlag.IN_NEXT) != 0)
    chosen &= (samples.flags & StackFlag.IN_FETCH) == 0
    stacks = [
        WeightedStack(frames, float(samples.weight_ns[number]))
        for number in np.flatnonzero(chosen)
        if (frames := _below_sampler(rank, int(samples.stack[number])))
    ]
    hot = find_hot_places(stacks)
    weights.add(
        Activity.SAMPLER,
        path.total_ns(PathKind.SAMPLER),
        hot[0].place if hot else None,
        sample_count=hot[0].sample_count if hot else 0,
    )


def _below_sampler(rank: RankTimeline, stack: int) -> tuple[Frame, ...]:
    """Frames below `_next_index`; empty when the loop was elsewhere in next()."""
    frames = rank.stacks[stack]
    for depth, frame in enumerate(frames):
        if frame.function == "_next_index":
            return frames[depth + 1 :]
    return ()


def _queued(
    rank: RankTimeline,
    split: IdleSplit,
    contention: Contention,
    parts: dict[str, float],
    weights: _Weights,
) -> float:
    """Weight of queueing for CPUs: its removable part of the idle time, at most all CPU time on the path."""
    awake_ns = parts["cpu"] + parts["ready"]
    whole_ns = awake_ns + parts["blocked"] + sum(part.idle_ns for part in weights.parts)
    return min(
        awake_ns, whole_ns * removable_ratio(contention, rank, parts["ready"], split.ratio)
    )


def _add_fetches(
    weights: _Weights,
    timeline: Timeline,
    rank: RankTimeline,
    path: Path,
    computing_ns: float,
    parts: dict[str, float],
) -> None:
    """Deal the batches on the path out over computing and blocked time, and each of these over places."""
    on_path = _on_path(rank, path)
    _add_places(
        weights,
        Activity.COMPUTE,
        computing_ns,
        _on_cpu_places(rank, on_path),
    )
    for wait, wait_ns in deal_blocked(timeline, rank, on_path, parts["blocked"]).items():
        activity = ACTIVITY_OF_WAIT.get(wait, Activity.UNEXPLAINED)
        if wait == Wait.NONE:
            _add_places(
                weights, Activity.COMPUTE, wait_ns, _blocked_places(rank, on_path, None)
            )
            continue
        _add_places(weights, activity, wait_ns, _blocked_places(rank, on_path, wait),
                    wait=wait, mount=_mount_of(timeline, rank, wait))  # fmt: skip


def _compose(rank: RankTimeline, path: Path) -> dict[str, float]:
    """Split the fetch time on the path: cpu, ready, blocked, collate. They add up to it.

    torch's own collate is charged to `collate` (it copies), with its part of the CPU and ready time; a person's own
    collate stays in `cpu`, where its line is found.
    """
    batches = rank.batches
    fetch = path.kind == PathKind.FETCH
    rows, length = path.row[fetch], path.length_ns[fetch].astype(float)
    wall = np.maximum(batches.end_ns - batches.start_ns, 1)[rows]
    part = length / wall
    cpu = np.maximum(batches.cpu_ns[rows], 0) * part
    ready = np.maximum(batches.runq_ns[rows], 0) * part
    blocked = np.maximum(length - cpu - ready, 0)
    own_collate = (
        np.where(batches.default_collate[rows], batches.collate_ns[rows], 0) * part
    )
    collate = np.minimum(own_collate, cpu + ready)
    awake = np.maximum(cpu + ready, 1)
    return {
        "cpu": float((cpu * (1 - collate / awake)).sum()),
        "ready": float((ready * (1 - collate / awake)).sum()),
        "blocked": float(blocked.sum()),
        "collate": float(collate.sum()),
    }


def _on_path(rank: RankTimeline, path: Path) -> dict[int, tuple[IntArray, IntArray]]:
    """Per process, the sorted intervals in which it made batches of the path."""
    fetch = np.flatnonzero(path.kind == PathKind.FETCH)[::-1]
    intervals: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    pids = rank.batches.pid[path.row[fetch]].tolist()
    for pid, start_ns, end_ns in zip(
        pids, path.start_ns[fetch].tolist(), path.end_ns[fetch].tolist(), strict=True
    ):
        intervals[pid][0].append(start_ns)
        intervals[pid][1].append(end_ns)
    return {
        pid: (np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
        for pid, (starts, ends) in intervals.items()
    }


def fetch_intervals(rank: RankTimeline) -> dict[int, tuple[IntArray, IntArray]]:
    """Per process, the sorted intervals in which it made batches inside the window."""
    batches = rank.batches
    inside = (batches.end_ns > rank.window_start_ns) & (
        batches.start_ns < rank.window_end_ns
    )
    found = {}
    for pid in np.unique(batches.pid[inside]).tolist():
        rows = np.flatnonzero(inside & (batches.pid == pid))
        rows = rows[np.argsort(batches.start_ns[rows])]
        found[pid] = batches.start_ns[rows], batches.end_ns[rows]
    return found


def select_within(
    pid: IntArray, now_ns: IntArray, intervals: dict[int, tuple[IntArray, IntArray]]
) -> BoolArray:
    """Tell which samples lie in their own process' intervals, (samples,) bool."""
    chosen = np.zeros(len(pid), dtype=bool)
    for one, (starts, ends) in intervals.items():
        mine = pid == one
        number = np.searchsorted(starts, now_ns[mine], "right") - 1
        chosen[mine] = (number >= 0) & (now_ns[mine] <= ends[np.maximum(number, 0)])
    return chosen


def _path_or_all(
    rank: RankTimeline, pid: IntArray, now_ns: IntArray, wanted: BoolArray,
    on_path: dict[int, tuple[IntArray, IntArray]],
) -> BoolArray:  # fmt: skip
    """Narrow samples to the path where enough of them lie there, else to all fetches."""
    chosen = wanted & select_within(pid, now_ns, on_path)
    if chosen.sum() >= MIN_SAMPLES:
        return chosen
    return wanted & select_within(pid, now_ns, fetch_intervals(rank))


def _fetch_samples(rank: RankTimeline) -> BoolArray:
    """Tell which stack samples were taken inside a fetch of the window, (samples,) bool."""
    samples = rank.stack_samples
    inside = (samples.now_ns >= rank.window_start_ns) & (
        samples.now_ns <= rank.window_end_ns
    )
    return np.asarray(inside & ((samples.flags & StackFlag.IN_FETCH) != 0), dtype=bool)


def _on_cpu_places(
    rank: RankTimeline, on_path: dict[int, tuple[IntArray, IntArray]]
) -> list[HotPlace]:
    samples = rank.stack_samples
    in_own_collate = (samples.flags & StackFlag.IN_COLLATE) != 0
    if not rank.batches.default_collate.any():
        in_own_collate = np.zeros(len(samples), dtype=bool)
    wanted = _fetch_samples(rank) & samples.on_cpu & ~in_own_collate
    chosen = _path_or_all(rank, samples.pid, samples.now_ns, wanted, on_path)
    return _places(rank, chosen)


def _blocked_places(
    rank: RankTimeline, on_path: dict[int, tuple[IntArray, IntArray]], wait: int | None
) -> list[HotPlace]:
    """Places of blocked samples: those that wait for the same thing if there are any, else all blocked ones."""
    samples = rank.stack_samples
    blocked = _fetch_samples(rank) & ~samples.on_cpu
    same = blocked & (samples.wait == wait) if wait is not None else blocked
    wanted = same if same.any() else blocked
    return _places(rank, _path_or_all(rank, samples.pid, samples.now_ns, wanted, on_path))


def _places(rank: RankTimeline, chosen: BoolArray) -> list[HotPlace]:
    samples = rank.stack_samples
    numbers = np.flatnonzero(chosen)
    names = _transform_at(rank, samples.pid[numbers], samples.now_ns[numbers])
    return find_hot_places(
        WeightedStack(
            below_fetch(rank.stacks[samples.stack[number]]),
            float(samples.weight_ns[number]),
            name,
        )
        for number, name in zip(numbers.tolist(), names, strict=True)
    )


def _transform_at(rank: RankTimeline, pid: IntArray, now_ns: IntArray) -> list[str | None]:
    """Name the outermost transform that ran at each moment in each process."""
    transforms = rank.transforms
    names: list[str | None] = [None] * len(pid)
    for one in np.unique(pid).tolist():
        rows = np.flatnonzero(transforms.pid == one)
        if not len(rows):
            continue
        for number in np.flatnonzero(pid == one).tolist():
            at = (
                int(np.searchsorted(transforms.start_ns[rows], now_ns[number], "right")) - 1
            )
            if at >= 0 and now_ns[number] <= transforms.end_ns[rows[at]]:
                names[number] = transforms.name[rows[at]]
    return names


def _add_places(
    weights: _Weights, activity: Activity, total_ns: float, places: list[HotPlace], *,
    wait: int = Wait.NONE, mount: str | None = None,
) -> None:  # fmt: skip
    """Deal a weight out over places; without any it keeps its activity and has no place."""
    whole = sum(hot.weight_ns for hot in places)
    if whole <= 0:
        weights.add(activity, total_ns, Place(mount=mount), wait=wait)
        return
    for hot in places:
        place = hot.place
        where = Place(file=place.file, line=place.line, function=place.function,
                      transform=place.transform, mount=mount)  # fmt: skip
        weights.add(
            activity,
            total_ns * hot.weight_ns / whole,
            where,
            wait=wait,
            sample_count=hot.sample_count,
        )


def deal_blocked(
    timeline: Timeline,
    rank: RankTimeline,
    on_path: dict[int, tuple[IntArray, IntArray]],
    blocked_ns: float,
) -> dict[int, float]:
    """Deal blocked time out over what was waited for, as the observer saw it (else the agent).

    WAIT_NONE in the answer means: another thread of the worker computed meanwhile. A wait that nobody saw is
    WAIT_OTHER, which stays unexplained.
    """
    looks = rank.threads
    seen: dict[int, float] = defaultdict(float)
    lead = looks.pid == looks.tid
    waiting = lead & ~np.isin(looks.wait, (Wait.NONE, Wait.QUEUE))
    chosen = _path_or_all(rank, looks.pid, looks.now_ns, waiting, on_path)
    for number in np.flatnonzero(chosen).tolist():
        weight = float(looks.weight_ns[number])
        if looks.wait[number] == Wait.THREAD:
            for wait, part in _other_threads(rank, number).items():
                seen[wait] += weight * part
        else:
            seen[int(looks.wait[number])] += weight
    if not seen:
        samples = rank.stack_samples
        blocked = _fetch_samples(rank) & ~samples.on_cpu
        for number in np.flatnonzero(blocked).tolist():
            seen[int(samples.wait[number])] += float(samples.weight_ns[number])
    total = sum(seen.values())
    if total <= 0:
        return {Wait.OTHER: blocked_ns}
    return {wait: blocked_ns * weight / total for wait, weight in seen.items()}


POOL_LOOK_NS = 300_000_000
"""Other threads are looked at 4 times a second: the nearest look is at most this far away."""


def _other_threads(rank: RankTimeline, number: int) -> dict[int, float]:
    """What the worker's other threads did while its lead waited for one of them."""
    looks = rank.threads
    pid, now_ns = looks.pid[number], looks.now_ns[number]
    first, last = np.searchsorted(
        looks.now_ns, (now_ns - POOL_LOOK_NS, now_ns + POOL_LOOK_NS)
    )
    near = np.arange(first, last)
    near = near[(looks.pid[near] == pid) & (looks.tid[near] != pid)]
    idle_waits = (Wait.THREAD, Wait.QUEUE, Wait.OTHER, Wait.PIPE)
    telling = near[~np.isin(looks.wait[near], idle_waits)]
    if not len(telling):
        return {Wait.THREAD: 1.0}
    waits, counts = np.unique(looks.wait[telling], return_counts=True)
    return {
        int(wait): count / len(telling) for wait, count in zip(waits, counts, strict=True)
    }


def _mount_of(timeline: Timeline, rank: RankTimeline, wait: int) -> str | None:
    """Name the mount that most waits of a kind were on, with its type."""
    looks = rank.threads
    chosen = (looks.wait == wait) & (looks.mount > 0)
    if wait not in (Wait.FILE, Wait.PAGE_FAULT) or not chosen.any():
        return None
    numbers, counts = np.unique(looks.mount[chosen], return_counts=True)
    mount = timeline.machine.mounts.get(int(numbers[counts.argmax()]))
    return f"{mount.point} ({mount.kind})" if mount else None
