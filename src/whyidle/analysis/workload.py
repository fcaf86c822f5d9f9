"""Timeline of a rank → the work its loader did, in a form that the simulation can do again, changed or not.

NOTE [every recorded segment has one home]
    From the sending of a batch's indices to the loop's next ask, recorded time is cut into segments that touch:
    turn (indices → fetch), fetch, handoff (fetch → in the queue), receipt, delivery, step. Each becomes work of the
    simulation in its recorded length and order, less what the simulation makes itself: waiting for a CPU, for the lock,
    for the device, and for batches. So a replay without contention is exact by construction, and where it is not,
    a term is missing.

Labels are those of the verdict's causes, so that "make this cause k times faster" edits exactly its part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.batch_shares import deal, match_label
from whyidle.analysis.blame import ACTIVITY_OF_WAIT, deal_blocked, fetch_intervals
from whyidle.analysis.chosen_steps import MAX_STEPS, all_steps, rows_of, spread_blocks
from whyidle.analysis.competition import (
    RESOURCE_ERROR,
    fit_lock,
    fit_rivals,
    misses_by,
)
from whyidle.analysis.contention import NEIGHBOUR_RATIO, assess_contention
from whyidle.analysis.loader_model import (
    Label,
    LoaderModel,
    Part,
    Withheld,
    cut,
    replay,
    simulate_model,
)
from whyidle.analysis.loop_time import loop_parts, loop_segments
from whyidle.analysis.places import below_fetch
from whyidle.analysis.recorded import Recorded
from whyidle.analysis.regimes import (
    FULL_DISK_RATIO,
    disk_busy_of,
    main_steps,
)
from whyidle.analysis.work import Host, Kind, PassStart, Settings
from whyidle.model.codes import StackFlag
from whyidle.model.findings import Activity
from whyidle.model.waits import Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.analysis.contention import Contention
    from whyidle.analysis.work import FloatArray
    from whyidle.model.timeline import BoolArray, IntArray, RankTimeline, Timeline

MIN_STEPS = 20
"""Fewer steps carry no forecast: their mean has an error of a fifth of the spread of one step."""
MANY_THREADS = 1.15
"""A process that uses this much more CPU time than the thread that makes the batch, sending apart, computes in
several threads (planted: 1.27 to 6; all else: up to 1.05)."""
HELPERS_NS = 1_000_000.0
"""What torch's own threads of a worker (sending, lending file descriptors) use at most a batch (0.2 to 0.6 ms seen)."""
LOCK_RATIO = 0.05
"""Waiting for a lock below this part of the making limits nobody."""
FEW_EXAMPLES = 5
"""With fewer receipts of a kind (found there, waited for) the other kind's cost stands in."""
REPLAY_STEPS = 400
"""Steps used to fit the machine's competition: the noise of a mean over them is below what it is fitted to."""
BLOCKED_KINDS = {
    Activity.STORAGE: Kind.STORAGE,
    Activity.NETWORK: Kind.WAIT,
    Activity.SLEEP: Kind.WAIT,
    Activity.LOCK: Kind.WAIT,
}
"""Activities of a blocked worker, and what the simulation makes of them."""


def build_model(
    timeline: Timeline, rank: RankTimeline, labels: Sequence[Label]
) -> LoaderModel | Withheld:
    """Make the simulation's input from a rank's records, and see whether it repeats what was recorded.

    Args:
        timeline: The run.
        rank: One of its ranks.
        labels: Causes to keep apart; all other work has no label.

    Returns:
        A LoaderModel, whose `replay_error` tells how well it repeats the recording; Withheld where the records do
        not carry one.
    """
    inside = main_steps(rank)
    if inside.sum() < MIN_STEPS:
        return Withheld(
            "few-steps",
            f"only {inside.sum()} steps after warm-up: a forecast needs {MIN_STEPS}",
        )
    fed = all_steps(rank, inside)
    if not set(rank.steps.iteration[fed].tolist()) <= set(rank.iterations):
        return Withheld("no-fetches", "how the loader is set up was not recorded")
    first = int(np.searchsorted(fed, inside.argmax()))
    if len(fed) > MAX_STEPS:
        fed, first = fed[first:], 0
    chosen = spread_blocks(len(fed))
    steps = fed[chosen]
    rows = rows_of(rank, steps)
    if rows is None:
        return Withheld(
            "no-fetches",
            "the making of too few batches was recorded for a simulation",
        )
    return _Builder(timeline, rank, steps, rows, np.diff(chosen) == 1, first).build(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handoffs:
    """From the end of a fetch into the queue, (batches,) ns."""

    at_rest_ns: FloatArray
    held_ns: FloatArray
    """On top of it while the worker makes its next batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Receipts:
    """Off the queue, (batches,) ns."""

    cpu_ns: FloatArray
    at_rest_ns: FloatArray
    """Blocked, for a result that lay there."""
    fresh_ns: FloatArray
    """Blocked, for one that was waited for."""
    held_ns: FloatArray
    """On top of it while the sender makes another batch."""


class _Builder(Recorded):
    """One model under construction."""

    def __init__(
        self,
        timeline: Timeline,
        rank: RankTimeline,
        steps: IntArray,
        rows: IntArray,
        goes_on: BoolArray,
        first: int,
    ) -> None:
        """Take what `Recorded` takes, and see who held the CPUs."""
        super().__init__(timeline, rank, steps, rows, goes_on, first)
        self.contention: Contention = assess_contention(timeline, rank)

    def build(self, labels: Sequence[Label]) -> LoaderModel:
        """Put the model together, its parts named by `labels`, fit the competition for CPUs, and replay."""
        loop = loop_segments(self)
        width = self._width()
        handoffs, receipts = self._handoffs(), self._receipts()
        is_threaded = self._is_threaded(width)
        parts = self._parts(labels, is_threaded=is_threaded)
        whole = LoaderModel(
            parts=parts,
            loop_parts=loop_parts(self, labels, loop.host_ns, loop.last_ns),
            width=width,
            is_threaded=is_threaded,
            turn_ns=self._turns() * self._calm_ratio(),
            handoff_ns=handoffs.at_rest_ns * self._calm_ratio(),
            handoff_held_ns=handoffs.held_ns,
            receive_cpu_ns=receipts.cpu_ns,
            receive_ns=receipts.at_rest_ns,
            receive_fresh_ns=receipts.fresh_ns,
            receive_held_ns=receipts.held_ns,
            pin_ns=np.zeros(len(self.rows)),
            deliver_ns=loop.deliver_ns,
            sampler_ns=self.rank.steps.sampler_ns[self.steps].astype(float),
            launch_ns=loop.launch_ns,
            before_ns=loop.before_ns,
            synced_ns=loop.synced_ns,
            unsynced_ns=loop.unsynced_ns,
            is_synced=loop.is_synced,
            wake_ns=loop.wake_ns,
            cold_ns=loop.cold_ns,
            loop_cpu_ratio=loop.cpu_ratio,
            loop_queue_ratio=loop.queue_ratio,
            starts=self._starts(),
            persistent=self.loader.persistent,
            settings=Settings(
                workers=self.loader.workers,
                prefetch=max(1, self.loader.prefetch),
                in_order=self.loader.in_order,
                pinned=False,
            ),
            shares=self._shares(),
            host=self._host(loop.background_cpus),
            tensor_count=_mean_known(self.rank.batches.tensor_count[self.rows]),
            size_bytes=_mean_known(self.rank.batches.size_bytes[self.rows]),
            batch_size=max(1, self.loader.batch_size),
            is_throttled=self._is_throttled(),
            device_kind=self.rank.device_kind,
            step_ns=self._step_ns(loop.span),
        )
        order = np.arange(self.first, min(whole.count, self.first + REPLAY_STEPS))
        queue_ratio = self._queue_ratio(is_threaded=is_threaded)
        whole = fit_rivals(whole, queue_ratio, self._rival_cpus(), order)
        whole = self._with_full_disk(self._with_lock(whole, order), order)
        window = cut(whole, loop.span)
        outcome, begin, end = simulate_model(window)
        simulated_ns = replay_ns = outcome.mean_step_ns(begin, end)
        if self.first:
            replay_ns = replay(whole, loop.span, self._first_ready_ns())
        return replace(
            window,
            simulated_ns=simulated_ns,
            replay_ns=replay_ns,
            full_ratio=outcome.full_ratio,
        )

    def _calm_ratio(self) -> float:
        """Part of what a worker does between two fetches in which no quota stops it."""
        if not self._is_throttled():
            return 1.0
        ran, queued = float(self.cpu.sum()), float(self.queued.sum())
        return ran / max(1.0, ran + queued)

    def _rival_cpus(self) -> float:
        """CPUs' worth of time used by others who would use more: few use little because they want no more."""
        other, count = self.contention.other_cpus, self.timeline.machine.cpu_count
        return other if other is not None and other >= NEIGHBOUR_RATIO * count else 0.0

    def _modest_cpus(self) -> float:
        """CPUs' worth of time used by others who want no more, on the CPUs of the run."""
        machine = self.timeline.machine
        other = self.contention.other_cpus or 0.0
        return (
            other * machine.allowed_count / machine.cpu_count
            if self._rival_cpus() == 0
            else 0.0
        )

    def _step_ns(self, span: tuple[int, int]) -> float:
        """Recorded mean step."""
        inside = slice(*span)
        return float(np.diff(self.got)[inside][self.goes_on[inside]].mean())

    def _queue_ratio(self, *, is_threaded: bool) -> float:
        """Workers' waiting for a CPU over their CPU time; waiting for their own threads is waiting for CPUs too."""
        inside = slice(self.first, None)
        queued = float(self.queued[inside].sum())
        if is_threaded:
            queued += float(self.blocked[inside].sum()) * self._inner_share()
        return queued / max(1.0, float(self.cpu[inside].sum()))

    def _first_ready_ns(self) -> float:
        """From the first ask until the workers took up their first indices."""
        return float(max(0, int(self.start.min() - self.ask[0])))

    # --- making a batch ------------------------------------------------------------------------------

    def _width(self) -> float:
        """CPU time of a worker's process over that of the thread that makes the batch."""
        process = self.rank.batches.process_cpu_ns[self.rows]
        known = process >= 0
        if not known.any() or self.loader.workers == 0:
            return 1.0
        return max(1.0, float(process[known].sum() / max(1.0, self.cpu[known].sum())))

    def _is_threaded(self, width: float) -> bool:
        """Whether batches are made by several threads; sending the batch before is not making one."""
        others_ns = (width - 1.0) * float(self.cpu.mean())
        return width >= MANY_THREADS and others_ns >= HELPERS_NS

    def _parts(self, labels: Sequence[Label], *, is_threaded: bool) -> tuple[Part, ...]:
        batches = self.rank.batches
        awake = np.maximum(self.cpu + self.queued, 1.0)
        own = np.where(
            batches.default_collate[self.rows], batches.collate_ns[self.rows], 0
        ).astype(float)
        collate = np.minimum(own, awake) * self.cpu / awake
        computing = [label for label in labels if label.activity is Activity.COMPUTE]
        parts = self._sampled_parts(computing, self.cpu - collate, on_cpu=True)
        transport = next(
            (label for label in labels if label.activity is Activity.TRANSPORT), None
        )
        parts.append(Part(label=transport, kind=Kind.CPU, amount_ns=collate))
        blocked = self.blocked * (1.0 - self._inner_share() if is_threaded else 1.0)
        waiting = [label for label in labels if label.activity in BLOCKED_KINDS]
        parts += self._sampled_parts(waiting, blocked, on_cpu=False)
        return tuple(part for part in parts if part.amount_ns.any())

    def _with_lock(self, model: LoaderModel, order: IntArray) -> LoaderModel:
        """See NOTE [a shared lock is held by somebody]."""
        queued = [
            part
            for part in model.parts
            if part.label and part.label.activity is Activity.LOCK
        ]
        waited_ns = sum(float(part.amount_ns.mean()) for part in queued)
        dealt = deal_blocked(self.timeline, self.rank, fetch_intervals(self.rank), 1.0)
        locks = {
            wait: part
            for wait, part in dealt.items()
            if ACTIVITY_OF_WAIT.get(wait) is Activity.LOCK
        }
        is_shared = locks.get(Wait.LOCK, 0.0) >= 0.5 * sum(locks.values()) > 0.0
        if not is_shared or waited_ns < LOCK_RATIO * float(self.wall.mean()):
            return model
        holders = {
            (part.label.where.file, part.label.where.function)
            for part in queued
            if part.label
        }
        parts = tuple(
            replace(part, is_remade=True)
            if part in queued
            else replace(part, locked_ratio=self._held_ratio(part, holders, model))
            for part in model.parts
        )
        return fit_lock(model, replace(model, parts=parts), waited_ns, order)

    def _with_full_disk(self, model: LoaderModel, order: IntArray) -> LoaderModel:
        """A disk that is busy nearly all the time serves one batch after the other: waiting for it is made anew."""
        busy_ratio = disk_busy_of(self.timeline, self.rank) or 0.0
        waited = sum(
            float(part.amount_ns.mean())
            for part in model.parts
            if part.kind is Kind.STORAGE
        )
        service = model.step_ns * busy_ratio
        if busy_ratio < FULL_DISK_RATIO or waited <= service:
            return model
        parts = tuple(
            replace(part, amount_ns=part.amount_ns * service / waited)
            if part.kind is Kind.STORAGE
            else part
            for part in model.parts
        )
        full = replace(model, parts=parts, host=replace(model.host, storage_slots=1))
        return full if misses_by(full, order) <= RESOURCE_ERROR else model

    def _held_ratio(
        self, part: Part, holders: set[tuple[str | None, str | None]], model: LoaderModel
    ) -> float:
        """Part of a label's samples taken below a function that takes the lock, and not waiting for it."""
        samples = self.rank.stack_samples
        on_cpu = part.kind is Kind.CPU
        same = [
            one.label
            for one in model.parts
            if one.label and (one.kind is Kind.CPU) == on_cpu and one.is_shared
        ]
        wanted = ((samples.flags & StackFlag.IN_FETCH) != 0) & (samples.on_cpu == on_cpu)
        wanted &= samples.wait != Wait.LOCK
        held = seen = 0
        for number in np.flatnonzero(wanted).tolist():
            frames = self.rank.stacks[samples.stack[number]]
            at = self._label_of(same, number, on_cpu=on_cpu)
            label = same[at] if at < len(same) else None
            if label == part.label:
                seen += 1
                held += any((frame.file, frame.function) in holders for frame in frames)
        return held / seen if seen else 0.0

    def _inner_share(self) -> float:
        """Part of the blocked time spent waiting for the worker's own computing threads: the simulation makes it."""
        dealt = deal_blocked(self.timeline, self.rank, fetch_intervals(self.rank), 1.0)
        return dealt.get(Wait.NONE, 0.0) + dealt.get(Wait.THREAD, 0.0)

    def _sampled_parts(
        self, labels: list[Label], amount: FloatArray, *, on_cpu: bool
    ) -> list[Part]:
        """Part an exact amount a batch over labels, by the stack samples taken in that batch and in those like it."""
        samples = self.rank.stack_samples
        wanted = ((samples.flags & StackFlag.IN_FETCH) != 0) & (samples.on_cpu == on_cpu)
        if on_cpu and self.rank.batches.default_collate.any():
            wanted &= (samples.flags & StackFlag.IN_COLLATE) == 0
        batch = self._batch_at(samples.pid, samples.now_ns)
        numbers = np.flatnonzero(wanted & (batch >= 0))
        column = np.array(
            [self._label_of(labels, number, on_cpu=on_cpu) for number in numbers.tolist()],
            dtype=np.int64,
        )
        shares = deal(
            amount, batch[numbers], column, samples.weight_ns[numbers], len(labels) + 1
        )
        parts = []
        for at, label in enumerate((*labels, None)):
            kind = (
                Kind.CPU
                if on_cpu
                else BLOCKED_KINDS[label.activity]
                if label
                else Kind.WAIT
            )
            parts.append(
                Part(
                    label=label,
                    kind=kind,
                    amount_ns=amount * shares[:, at],
                    sample_count=int((column == at).sum()),
                    is_shared=len(numbers) > 0,
                )
            )
        return parts

    def _batch_at(self, pid: IntArray, now_ns: IntArray) -> IntArray:
        """Batch of the window that a process was making at each moment; -1: none of them."""
        pids = self.rank.batches.pid[self.rows]
        found = np.full(len(pid), -1, dtype=np.int64)
        for one in np.unique(pids).tolist():
            mine = np.flatnonzero(pids == one)
            mine = mine[np.argsort(self.start[mine], kind="stable")]
            asked = pid == one
            at = np.searchsorted(self.start[mine], now_ns[asked], "right") - 1
            inside = (at >= 0) & (now_ns[asked] <= self.made[mine][np.maximum(at, 0)])
            found[asked] = np.where(inside, mine[np.maximum(at, 0)], -1)
        return found

    def _label_of(self, labels: list[Label], number: int, *, on_cpu: bool) -> int:
        """Which label a sample belongs to; `len(labels)`: none."""
        samples = self.rank.stack_samples
        frames = below_fetch(self.rank.stacks[samples.stack[number]])
        if on_cpu:
            return match_label(labels, frames)
        activity = ACTIVITY_OF_WAIT.get(int(samples.wait[number]))
        same = [at for at, label in enumerate(labels) if label.activity is activity]
        chosen = same or list(range(len(labels)))
        at = match_label([labels[index] for index in chosen], frames)
        return chosen[at] if at < len(chosen) else len(labels)

    # --- between worker and loop ----------------------------------------------------------------------

    def _turns(self) -> FloatArray:
        """From the moment a worker was free and had its indices to the fetch."""
        if self.loader.workers == 0:
            return np.zeros(len(self.rows))
        batches = self.rank.batches
        pids = batches.pid[self.rows]
        free = np.full(len(self.rows), np.iinfo(np.int64).min)
        for one in np.unique(pids).tolist():
            mine = np.flatnonzero(batches.pid == one)
            ends = np.sort(batches.end_ns[mine])
            asked = np.flatnonzero(pids == one)
            at = np.searchsorted(ends, self.start[asked], "right") - 1
            free[asked] = np.where(at >= 0, ends[np.maximum(at, 0)], free[asked])
        sent, index_ns = self._sent_ns(), batches.index_ns[self.rows]
        since = np.maximum(free, np.where(sent >= 0, sent, index_ns))
        known = ((sent >= 0) | (index_ns >= 0)) & (since <= self.start)
        turn = (self.start - since).astype(float)
        usual = float(np.median(turn[known])) if known.any() else 0.0
        return np.where(known, turn, usual)

    def _sent_ns(self) -> IntArray:
        """When the loop sent each batch's indices: at the end of the next() one queue's length earlier; -1 unknown."""
        ahead = self.loader.workers * max(1, self.loader.prefetch)
        sent = np.full(len(self.rows), -1, dtype=np.int64)
        if 0 < ahead < len(self.rows):
            same = self.iteration[ahead:] == self.iteration[:-ahead]
            begun = np.concatenate(([0], np.cumsum(~self.goes_on)))
            same &= begun[ahead:] == begun[:-ahead]
            sent[ahead:][same] = self.got[:-ahead][same]
        return sent

    def _handoffs(self) -> _Handoffs:
        """Handoffs in their recorded length, parted by whether the worker computed on."""
        since = np.maximum(self.made, self._sent_before())
        latency = np.maximum(self.visible - since, 0).astype(float)
        computing = self._computes(since, np.maximum(self.visible, since))
        cpu = np.maximum(self.rank.batches.handoff_cpu_ns[self.rows], 0).astype(float)
        base = _at_rest(latency, ~computing, latency >= 0, 2.0 * cpu)
        held = np.where(computing, np.maximum(latency - base, 0.0), 0.0)
        usual = float(held[computing].mean()) if computing.any() else 0.0
        return _Handoffs(
            at_rest_ns=np.where(computing, np.minimum(latency, base), latency),
            held_ns=np.where(computing, held, usual),
        )

    def _sent_before(self) -> IntArray:
        """When the same worker had sent its batch before: one thread sends one after the other."""
        pids = self.rank.batches.pid[self.rows]
        before = np.zeros(len(self.rows), dtype=np.int64)
        for one in np.unique(pids).tolist():
            mine = np.flatnonzero(pids == one)
            mine = mine[np.argsort(self.made[mine], kind="stable")]
            before[mine[1:]] = self.visible[mine[:-1]]
        return before

    def _computes(self, start_ns: IntArray, end_ns: IntArray) -> BoolArray:
        """Whether the sender of each batch was making another one in an interval."""
        batches = self.rank.batches
        pids = batches.pid[self.rows]
        found = np.zeros(len(self.rows), dtype=bool)
        for one in np.unique(pids).tolist():
            mine = np.flatnonzero(batches.pid == one)
            mine = mine[np.argsort(batches.start_ns[mine], kind="stable")]
            asked = np.flatnonzero(pids == one)
            at = np.searchsorted(batches.start_ns[mine], end_ns[asked], "left") - 1
            row = mine[np.maximum(at, 0)]
            other = (at >= 0) & (row != self.rows[asked])
            found[asked] = other & (batches.end_ns[row] > start_ns[asked])
        return found

    def _receipts(self) -> _Receipts:
        """What taking results off the queue costs, found there or waited for, and behind a computing sender."""
        batches = self.rank.batches
        begun, ended = (
            batches.receive_start_ns[self.rows],
            batches.receive_end_ns[self.rows],
        )
        cpu = np.maximum(batches.receive_cpu_ns[self.rows], 0).astype(float)
        known = (begun >= 0) & (ended >= begun)
        since = np.maximum(begun, self.visible)
        wall = np.where(known, np.maximum(ended - since, 0), 0).astype(float)
        cpu = np.minimum(cpu, wall)
        blocked = wall - cpu
        there, fresh = known & (self.visible <= begun), known & (self.visible > begun)
        computing = self._computes(since, np.maximum(ended, since)) & known
        rest = np.where(
            there,
            _at_rest(blocked, there & ~computing, there, cpu),
            _at_rest(blocked, fresh & ~computing, fresh, cpu),
        )
        held = np.where(computing, np.maximum(blocked - rest, 0.0), 0.0)
        usual = float(held[computing].mean()) if computing.any() else 0.0
        return _Receipts(
            cpu_ns=cpu,
            at_rest_ns=_filled(blocked - held, there, fresh),
            fresh_ns=_filled(blocked - held, fresh, there),
            held_ns=np.where(computing, held, usual),
        )

    # --- around it -----------------------------------------------------------------------------------

    def _starts(self) -> dict[int, PassStart]:
        """Where passes begin inside the window, and what that costs."""
        starts = {}
        changes = (np.diff(self.iteration) != 0) & self.goes_on
        for at in (np.flatnonzero(changes) + 1).tolist():
            one = self.rank.iterations[int(self.iteration[at])]
            first = self.start[at : at + max(1, one.workers)]
            starts[at] = PassStart(
                gap_ns=float(max(0, self.ask[at] - self.end[at - 1])),
                ready_ns=float(max(0, int(first.min()) - one.end_ns))
                if one.workers
                else 0.0,
            )
        return starts

    def _shares(self) -> tuple[int, ...] | None:
        """Iterable data sets of which some workers have no part: 1 for those that have."""
        if not self.loader.iterable or not self.loader.workers:
            return None
        made = np.bincount(
            np.maximum(self.rank.batches.worker[self.rows], 0),
            minlength=self.loader.workers,
        )
        return tuple(int(count > 0) for count in made) if (made == 0).any() else None

    def _host(self, background_cpus: float) -> Host:
        machine = self.timeline.machine
        return Host(
            cpus=max(0.5, machine.allowed_count - background_cpus - self._modest_cpus()),
            quota_cpus=machine.quota_cpus if self._is_throttled() else None,
        )

    def _is_throttled(self) -> bool:
        return (
            bool(self.contention.throttled_ratio)
            and self.timeline.machine.quota_cpus is not None
        )


def _mean_known(values: IntArray) -> float:
    known = values[values >= 0]
    return float(known.mean()) if len(known) else 0.0


def _at_rest(
    values: FloatArray, calm: BoolArray, every: BoolArray, cpu_ns: FloatArray
) -> float:
    """What moving a batch takes beyond its CPU time while its worker does not compute.

    Where that was not seen often enough it is what the quickest took, and no more than the CPU time itself: at rest
    both were alike in every run that showed it (0.5 to 1.2 times).
    """
    if calm.sum() >= FEW_EXAMPLES:
        return float(np.median(values[calm]))
    if not every.any():
        return 0.0
    return min(float(np.percentile(values[every], 10)), float(cpu_ns[every].mean()))


def _filled(values: FloatArray, known: BoolArray, other: BoolArray) -> FloatArray:
    """Fill what was not seen by the mean of what was, or of the other kind."""
    source = known if known.sum() >= FEW_EXAMPLES or not other.any() else other
    usual = float(values[source].mean()) if source.any() else 0.0
    return np.where(known, values, usual)
