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

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.blame import ACTIVITY_OF_WAIT, deal_blocked, fetch_intervals
from whyidle.analysis.contention import NEIGHBOUR_RATIO, assess_contention
from whyidle.analysis.intervals import complement, contains, covered_ns, unite
from whyidle.analysis.places import below_fetch, is_library
from whyidle.analysis.regimes import loader_of_steps, main_steps
from whyidle.analysis.simulate import (
    COLD_NS,
    WARM_NS,
    Host,
    Kind,
    PassStart,
    Settings,
    Work,
    simulate,
)
from whyidle.model.codes import Mark, StackFlag, StackRole
from whyidle.model.findings import Activity
from whyidle.model.waits import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whyidle.analysis.contention import Contention
    from whyidle.analysis.simulate import FloatArray, Outcome, Phase
    from whyidle.model.findings import Cause, Place
    from whyidle.model.timeline import (
        BoolArray,
        Frame,
        IntArray,
        Iteration,
        RankTimeline,
        Timeline,
    )

MIN_STEPS = 20
"""Fewer steps carry no forecast: their mean has an error of a fifth of the spread of one step."""
MAX_STEPS = 2000
BLOCKS = 8
"""Of longer runs this many steps are simulated, in so many blocks: the mean of 2,000 steps is known to a fortieth of
the spread of one, and a simulation takes 50 ms."""
MIN_KNOWN_RATIO = 0.8
"""With less of the batches' making recorded the rest cannot be filled in by its neighbours."""
MANY_THREADS = 1.15
"""A process that uses this much more CPU time than the thread that makes the batch, sending apart, computes in
several threads (planted: 1.27 to 6; all else: up to 1.05)."""
HELPERS_NS = 1_000_000.0
"""What torch's own threads of a worker (sending, lending file descriptors) use at most a batch (0.2 to 0.6 ms seen)."""
PRIOR_SAMPLES = 4.0
"""How many samples the shares of batches of like length weigh against a batch's own (a batch of 40 ms has four)."""
GROUP_SAMPLES = 40
"""Samples a group of batches of like length needs: the noise of a share from 40 samples is 0.08."""
MAX_GROUPS = 4
MIXED_ROUNDS = 4
"""Making a batch alternates between computing and waiting sample by sample; more rounds than 4 change the simulated
step by less than 0.5 %."""
LOCK_ROUNDS = 8
"""A lock that is taken for each sample is handed on more often; beyond 8 times a batch its waiting hardly changes."""
LOCK_RATIO = 0.05
"""Waiting for a lock below this part of the making limits nobody."""
MIXED_RATIO = 0.1
"""Below this part of the fetch the smaller of computing and waiting may as well be one piece."""
FEW_EXAMPLES = 5
"""With fewer receipts of a kind (found there, waited for) the other kind's cost stands in."""
WARMUP_BATCHES = 100
"""Batches run before the measured ones, beyond those in the queue: the last ones of the window, so that the queue is
at its beginning what it is at its end."""
REPLAY_STEPS = 400
"""Steps used to fit the machine's competition: the noise of a mean over them is below what it is fitted to."""
CONTENDED_RATIO = 0.02
"""Waiting for CPUs below this part of the CPU time is left where it was recorded: it is wake-up latency."""
RIVALS_TOLERANCE = 0.005
"""The fit of the competition ends when simulated and recorded waiting differ by less, as a part of the CPU time."""
FIT_ROUNDS = 10
LOCK_ERROR = 0.03
"""A lock that misses the recorded step by more explains less than the recorded waiting does."""
MAX_RIVALS = 64.0


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why there is no forecast."""

    slug: str
    reason: str


@dataclass(frozen=True, slots=True)
class Label:
    """Whose work it is: a cause of the verdict by activity and place."""

    activity: Activity
    where: Place

    @classmethod
    def of(cls, cause: Cause) -> Label:
        """Give the label of a cause."""
        return cls(cause.activity, replace(cause.where, rank=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One label's part of making each batch, or of each step."""

    label: Label | None
    """None: work that no cause names."""
    kind: Kind
    amount_ns: FloatArray
    """(batches,)"""
    sample_count: int = 0
    """Stack samples that its share of the whole rests on; 0: counted, not sampled."""
    is_shared: bool = False
    """Its share of the whole is known from samples only."""
    before_share: float = 0.0
    """Loop only: part of it before the wait for the device."""
    locked_ratio: float = 0.0
    """Workers only: part of it done while holding the lock that they share."""
    is_remade: bool = False
    """Waiting for that lock: the simulation makes it anew instead of repeating it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderModel:
    """The recorded loader; arrays are (batches,) ns in the order of the window."""

    parts: tuple[Part, ...]
    """Making of a batch."""
    loop_parts: tuple[Part, ...]
    """The loop's own code: its host time, the device not included."""
    width: float
    """CPU time that a batch takes of the machine, over that of the thread that makes it."""
    is_threaded: bool
    """Batches are made by several threads a worker."""
    turn_ns: FloatArray
    handoff_ns: FloatArray
    handoff_held_ns: FloatArray
    receive_cpu_ns: FloatArray
    receive_ns: FloatArray
    """Blocked while taking a result off the queue that lay there."""
    receive_fresh_ns: FloatArray
    """The same for one that was waited for."""
    receive_held_ns: FloatArray
    pin_ns: FloatArray
    deliver_ns: FloatArray
    """Without drawing indices."""
    sampler_ns: FloatArray
    launch_ns: FloatArray
    """Host time before the device has its work."""
    before_ns: FloatArray
    """Host time up to the wait for the device, `launch_ns` included."""
    synced_ns: FloatArray
    """Device work that is waited for."""
    unsynced_ns: FloatArray
    """Device work that is not."""
    is_synced: BoolArray
    wake_ns: FloatArray
    """From the end of the awaited device work until the loop goes on."""
    cold_ns: float
    """What a step takes longer behind a long wait."""
    loop_cpu_ratio: float
    """Part of the loop's own time on a CPU."""
    loop_queue_ratio: float
    """Part of it ready without a CPU."""
    starts: dict[int, PassStart]
    persistent: bool
    settings: Settings
    shares: tuple[int, ...] | None
    host: Host
    tensor_count: float
    size_bytes: float
    batch_size: int
    is_throttled: bool
    device_kind: str
    step_ns: float
    """Recorded mean step."""
    replay_ns: float = 0.0
    """Simulated mean step of the recorded run, from its beginning."""
    simulated_ns: float = 0.0
    """Simulated mean step of the same loader going on for ever."""
    full_ratio: float = 0.0
    """Part of the replay in which a thread that wakes up finds no CPU free."""
    loop_queue_scale: float = 1.0
    """How much longer than recorded the loop waits for a CPU, under a change."""

    @property
    def count(self) -> int:
        """Count the batches."""
        return len(self.turn_ns)

    @property
    def replay_error(self) -> float:
        """Simulated over recorded mean step, less 1."""
        return self.replay_ns / self.step_ns - 1

    @property
    def labels(self) -> dict[Label, float]:
        """Labels that can be edited, with their mean ns a batch."""
        found: dict[Label, float] = {}
        for part in (*self.parts, *self.loop_parts):
            if part.label is not None:
                mean = float(part.amount_ns.mean())
                found[part.label] = found.get(part.label, 0.0) + mean
        return found


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
    fed = _all_steps(rank, inside)
    first = int(np.searchsorted(fed, inside.argmax()))
    if len(fed) > MAX_STEPS:
        fed, first = fed[first:], 0
    chosen = _spread_blocks(len(fed))
    steps = fed[chosen]
    rows = _rows_of(rank, steps)
    if rows is None:
        return Withheld(
            "no-fetches",
            "the making of too few batches was recorded for a simulation",
        )
    return _Builder(timeline, rank, steps, rows, np.diff(chosen) == 1, first).build(labels)


def _all_steps(rank: RankTimeline, inside: BoolArray) -> IntArray:
    """Give the steps of the loader that fed most, those of the warm-up too."""
    loaders = loader_of_steps(rank)
    return np.flatnonzero(loaders == loaders[inside][0])


def _spread_blocks(count: int) -> IntArray:
    """Of many steps take blocks, evenly spread, each in its recorded order; of few take all."""
    if count <= MAX_STEPS:
        return np.arange(count)
    length = MAX_STEPS // BLOCKS
    begins = np.linspace(0, count - length, BLOCKS).astype(np.int64)
    return np.unique(begins[:, None] + np.arange(length))


def _rows_of(rank: RankTimeline, steps: IntArray) -> IntArray | None:
    """Row in `batches` of each step's batch; an unknown one is filled by its nearest known neighbour."""
    batches = rank.batches
    keys = zip(batches.iteration.tolist(), batches.batch.tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    asked = zip(
        rank.steps.iteration[steps].tolist(), rank.steps.batch[steps].tolist(), strict=True
    )
    rows = np.array([row_of.get(key, -1) for key in asked], dtype=np.int64)
    known = np.flatnonzero(rows >= 0)
    if len(known) < MIN_KNOWN_RATIO * len(rows):
        return None
    nearest = known[
        np.clip(np.searchsorted(known, np.arange(len(rows))), 0, len(known) - 1)
    ]
    return rows[nearest]


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


class _Builder:
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
        """Take the steps and their batches' rows.

        Args:
            timeline: The run.
            rank: The rank.
            steps: Steps of the loader that fed most.
            rows: Their rows in `batches`.
            goes_on: (steps - 1,) no other block of steps begins there.
            first: First step of the window; those before it are the warm-up.
        """
        self.first = first
        self.timeline, self.rank = timeline, rank
        self.steps, self.rows = steps, rows
        self.contention: Contention = assess_contention(timeline, rank)
        self.ask = rank.steps.ask_ns[steps]
        self.got = rank.steps.got_ns[steps]
        self.end = rank.steps.end_ns[steps]
        self.iteration = rank.steps.iteration[steps]
        self.goes_on = goes_on
        self.loader: Iteration = rank.iterations[int(self.iteration[-1])]
        batches = rank.batches
        self.start, self.made = batches.start_ns[rows], batches.end_ns[rows]
        self.wall = (self.made - self.start).astype(float)
        self.cpu = np.maximum(batches.cpu_ns[rows], 0).astype(float)
        self.queued = np.maximum(batches.runq_ns[rows], 0).astype(float)
        self.blocked = np.maximum(self.wall - self.cpu - self.queued, 0.0)
        self.visible = self._visible_ns()

    def build(self, labels: Sequence[Label]) -> LoaderModel:
        """Put the model together, its parts named by `labels`, fit the competition for CPUs, and replay."""
        loop = _loop_segments(self)
        width = self._width()
        handoffs, receipts = self._handoffs(), self._receipts()
        is_threaded = self._is_threaded(width)
        parts = self._parts(labels, is_threaded=is_threaded)
        whole = LoaderModel(
            parts=parts,
            loop_parts=_loop_parts(self, labels, loop.host_ns, loop.last_ns),
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
        whole = _fit_rivals(whole, queue_ratio, self._rival_cpus(), order)
        whole = self._with_lock(whole, order)
        window = _cut(whole, loop.span)
        outcome, begin, end = simulate_model(window)
        simulated_ns = replay_ns = outcome.mean_step_ns(begin, end)
        if self.first:
            replay_ns = _replay(whole, loop.span, self._first_ready_ns())
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

    def _visible_ns(self) -> IntArray:
        """When each batch lay in the queue: sent, but early enough for the loop to have read it with its CPU time.

        A result larger than the pipe is sent while it is read.
        """
        batches = self.rank.batches
        sent = np.maximum(batches.sent_ns[self.rows], self.made)
        received = batches.receive_end_ns[self.rows]
        read = received - np.maximum(batches.receive_cpu_ns[self.rows], 0)
        return np.where(received >= 0, np.maximum(np.minimum(sent, read), self.made), sent)

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
        return _fit_lock(model, replace(model, parts=parts), waited_ns, order)

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
        sent = self._sent_ns()
        since = np.maximum(free, sent)
        index_ns = batches.index_ns[self.rows]
        known = (since > 0) & (since <= self.start)
        turn = np.where(known, self.start - since, np.maximum(self.start - index_ns, 0))
        usual = float(np.median(turn[known])) if known.any() else 0.0
        longest = np.percentile(turn[known], 99) if known.any() else 0.0
        return np.where(turn <= longest, turn, usual).astype(float)

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


BLOCKED_KINDS = {
    Activity.STORAGE: Kind.STORAGE,
    Activity.NETWORK: Kind.WAIT,
    Activity.SLEEP: Kind.WAIT,
    Activity.LOCK: Kind.WAIT,
}
"""Activities of a blocked worker, and what the simulation makes of them."""


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


def match_label(labels: Sequence[Label], frames: Sequence[Frame]) -> int:
    """Find the label whose place a stack is in, innermost frame first; `len(labels)`: none.

    Of several labels in one function the one with the nearest line is meant.
    """
    for frame in reversed(frames):
        if is_library(frame.file):
            continue
        here = [
            (abs((label.where.line or frame.line) - frame.line), at)
            for at, label in enumerate(labels)
            if label.where.file == frame.file
            and label.where.function in (None, frame.function)
        ]
        if here:
            return min(here)[1]
    anywhere = [at for at, label in enumerate(labels) if label.where.file is None]
    return anywhere[0] if len(anywhere) == 1 else len(labels)


def deal(
    amount: FloatArray, batch: IntArray, column: IntArray, weight: IntArray, columns: int
) -> FloatArray:
    """Estimate each batch's shares from its own samples and those of batches of like length.

    Args:
        amount: (batches,) what is to be shared out, ns.
        batch: (samples,) batch that each sample was taken in.
        column: (samples,) what it was seen at.
        weight: (samples,) time it stands for, ns.
        columns: Number of columns; the last one takes what nothing is known of.

    Returns:
        (batches, columns) shares; rows add up to 1.
    """
    seen = np.zeros((len(amount), columns))
    np.add.at(seen, (batch, column), weight.astype(float))
    if not len(batch) or seen.sum() <= 0:
        shares = np.zeros((len(amount), columns))
        shares[:, -1] = 1.0
        return shares
    seen /= weight.mean()
    groups = _groups_of_like_length(amount, len(batch))
    prior = np.zeros_like(seen)
    overall = seen.sum(axis=0) / seen.sum()
    for group in range(groups.max() + 1):
        inside = groups == group
        total = seen[inside].sum(axis=0) + overall
        prior[inside] = total / total.sum()
    mixed = seen + PRIOR_SAMPLES * prior
    return np.asarray(mixed / mixed.sum(axis=1, keepdims=True))


def _groups_of_like_length(amount: FloatArray, sample_count: int) -> IntArray:
    """Part batches into groups that hold equal time, so that a few long ones are a group of their own."""
    count = int(np.clip(sample_count // GROUP_SAMPLES, 1, MAX_GROUPS))
    order = np.argsort(amount, kind="stable")
    held = np.cumsum(amount[order])
    groups = np.zeros(len(amount), dtype=np.int64)
    if held[-1] > 0:
        groups[order] = np.minimum((held * count / held[-1]).astype(np.int64), count - 1)
    return groups


# --- the loop's own time ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoopSegments:
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


def _loop_segments(builder: _Builder) -> _LoopSegments:
    """Cut each step into the host's time before and behind its wait for the device, and the device's work."""
    rank = builder.rank
    ask, got = builder.ask, builder.got
    followed = np.append(builder.goes_on, False)
    next_got = np.where(followed, np.append(got[1:], got[-1:]), builder.end)
    followed[:-1] &= np.diff(builder.iteration) == 0
    end = np.where(followed, np.append(ask[1:], ask[-1:]), builder.end)
    deliver = _deliveries(builder)
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
    cold_ns = _cold_ns(host[builder.first :], wait_ns[builder.first :])
    cooled = np.clip((wait_ns - WARM_NS) / (COLD_NS - WARM_NS), 0.0, 1.0)
    host = np.maximum(host - cold_ns * cooled, 0.0)
    receive = np.maximum(
        rank.batches.receive_end_ns[builder.rows]
        - np.maximum(rank.batches.receive_start_ns[builder.rows], builder.visible),
        0,
    )
    seen = _LoopCpu.look(builder, host + deliver + wake, receive.astype(float))
    return _LoopSegments(
        deliver_ns=np.maximum(deliver - rank.steps.sampler_ns[builder.steps], 0.0),
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
        span=_span(begins, builder.first),
    )


def _cold_ns(host_ns: FloatArray, wait_ns: IntArray) -> float:
    """What a step takes longer behind a long wait than behind none, ns; 0 where both were not seen often enough."""
    warm, cold = wait_ns < WARM_NS, wait_ns >= COLD_NS
    if min(warm.sum(), cold.sum()) < MIN_STEPS:
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


def _deliveries(builder: _Builder) -> FloatArray:
    """Inside next() without making or taking batches: looking, sending indices, handing over."""
    inside = (builder.got - builder.ask).astype(np.float64)
    if builder.loader.workers == 0:
        made = np.minimum(builder.made, builder.got) - np.maximum(
            builder.start, builder.ask
        )
        return np.asarray(np.maximum(inside - np.maximum(made, 0), 0.0), dtype=np.float64)
    batches = builder.rank.batches
    received = batches.receive_end_ns >= 0
    if not received.any():
        since = np.maximum(builder.visible, builder.ask)
        return np.asarray(np.maximum(builder.got - since, 0), dtype=np.float64)
    taking = unite(
        batches.receive_start_ns[received],
        batches.receive_end_ns[received],
        int(builder.ask[0]),
        int(builder.got[-1]),
    )
    taken = covered_ns(taking, builder.ask, builder.got)
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
        cls, builder: _Builder, own_ns: FloatArray, receive_ns: FloatArray
    ) -> _LoopCpu:
        """Compare what the thread used with what it did."""
        rank, first = builder.rank, builder.first
        looks = rank.threads
        mine = (looks.pid == rank.pid) & (looks.tid == rank.pid)
        mine &= (looks.now_ns >= rank.window_start_ns) & (
            looks.now_ns <= rank.window_end_ns
        )
        mine &= (looks.on_cpu_ns >= 0) & (looks.runq_ns >= 0)
        span_ns = float(np.ptp(looks.now_ns[mine])) if mine.any() else 0.0
        own, receive = float(own_ns[first:].sum()), float(receive_ns[first:].sum())
        if span_ns <= 0 or own <= 0 or builder.loader.workers == 0:
            return cls()
        window_ns = float(np.diff(builder.got)[first:][builder.goes_on[first:]].sum())
        scale = window_ns / span_ns
        received = float(rank.steps.receive_cpu_ns[builder.steps[first:]].sum())
        ran = max(0.0, float(np.ptp(looks.on_cpu_ns[mine])) * scale - received)
        waited = float(np.ptp(looks.runq_ns[mine])) * scale
        ratio = min(1.0, ran / own)
        return cls(
            cpu_ratio=ratio,
            queue_ratio=min(1.0 - ratio, waited / (own + receive)),
            background_cpus=(ran - ratio * own) / window_ns,
        )


def _loop_parts(
    builder: _Builder, labels: Sequence[Label], host_ns: FloatArray, last_ns: IntArray
) -> tuple[Part, ...]:
    """Part the loop's own time over the causes on its side."""
    own = [label for label in labels if label.activity in LOOP_ACTIVITIES]
    moving = [label for label in labels if label.activity is Activity.TRANSPORT]
    named = [*own, *moving]
    lines = {(one.loop_file, one.loop_line) for one in builder.rank.iterations.values()}

    def column_of(frames: Sequence[Frame]) -> int:
        if moving and is_release(frames, lines):
            return len(own)
        at = match_label(own, frames)
        return at if at < len(own) else len(named)

    rank = builder.rank
    samples = rank.stack_samples
    wanted = (samples.role == StackRole.LOOP) & ((samples.flags & StackFlag.IN_NEXT) == 0)
    step = np.searchsorted(builder.got, samples.now_ns, "right") - 1
    inside = step >= 0
    inside &= samples.now_ns <= builder.end[np.maximum(step, 0)]
    numbers = np.flatnonzero(wanted & inside)
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


LOOP_ACTIVITIES = frozenset((Activity.PYTHON, Activity.LAUNCH, Activity.SYNC))
"""Causes in the loop's own code."""


# --- model → simulation -------------------------------------------------------------------------------


def simulate_model(
    model: LoaderModel, order: IntArray | None = None
) -> tuple[Outcome, int, int]:
    """Run a model as if it went on for ever.

    Args:
        model: What to simulate.
        order: Batches to run, in order; all of them by default.

    Returns:
        The outcome, and the first and last batch that count. Those before them bring the queue into the state that it
        has at the end, those behind them keep the workers busy.
    """
    order = np.arange(model.count) if order is None else order
    queue = model.settings.workers * model.settings.prefetch
    warmup = queue + WARMUP_BATCHES
    head = order[np.arange(-warmup, 0) % len(order)]
    tail = order[np.arange(queue) % len(order)]
    stop = warmup + len(order)
    work = _compile(model, np.concatenate((head, order, tail)), warmup, stop)
    return simulate(work, model.settings, model.host), warmup, stop - 1


def _replay(model: LoaderModel, span: tuple[int, int], ready_ns: float) -> float:
    """Mean step of the recorded run between two steps, simulated from its very beginning, ns."""
    order = np.arange(model.count)
    tail = order[: model.settings.workers * model.settings.prefetch]
    work = _compile(model, np.concatenate((order, tail)), 0, model.count)
    outcome = simulate(replace(work, first_ready_ns=ready_ns), model.settings, model.host)
    return outcome.mean_step_ns(*span)


def _cut(model: LoaderModel, span: tuple[int, int]) -> LoaderModel:
    """Keep the batches whose steps begin in a span of steps."""
    first, last = span
    inside = slice(first, last)
    cut = {
        one.name: getattr(model, one.name)[inside]
        for one in fields(model)
        if isinstance(getattr(model, one.name), np.ndarray)
    }
    for name in ("parts", "loop_parts"):
        cut[name] = tuple(
            replace(part, amount_ns=part.amount_ns[inside]) for part in getattr(model, name)
        )
    starts = {at - first: start for at, start in model.starts.items() if first < at < last}
    return replace(model, starts=starts, **cut)


def _compile(model: LoaderModel, order: IntArray, warmup: int, stop: int) -> Work:
    making = _making(model)
    steps = _step_programs(model)
    receive = _receive_programs(model, model.receive_ns)
    fresh = _receive_programs(model, model.receive_fresh_ns)
    picked = order.tolist()
    scale = _loop_scale(model)
    own = _Host(_busy_kind(model), min(1.0, model.loop_cpu_ratio / scale))
    deliver = own.phases(model.deliver_ns[order] * scale + model.sampler_ns[order])
    starts = {}
    for at in range(warmup + 1, len(picked)):
        if picked[at] in model.starts and picked[at] == picked[at - 1] + 1:
            starts[at] = model.starts[picked[at]]
    return Work(
        phases=[making[one] for one in picked],
        width=[model.width] * len(picked),
        handoff_ns=model.handoff_ns[order].tolist(),
        handoff_held_ns=model.handoff_held_ns[order].tolist(),
        receive=[receive[one] for one in picked],
        receive_fresh=[fresh[one] for one in picked],
        receive_held_ns=model.receive_held_ns[order].tolist(),
        pin_ns=model.pin_ns[order].tolist(),
        deliver=deliver,
        step=[steps[one] for one in picked],
        starts=starts,
        cold_ns=model.cold_ns,
        stop=stop,
        shares=model.shares and tuple(share * len(picked) for share in model.shares),
    )


def _is_calm(model: LoaderModel) -> bool:
    """Whether every thread can have a CPU of its own all the time, so that computing is like waiting."""
    needed = model.settings.workers * model.width + 1 + model.host.rivals
    return model.host.quota_cpus is None and needed <= model.host.cpus


def _making(model: LoaderModel) -> list[tuple[Phase, ...]]:
    """Phases of making each batch: one of a kind, or in rounds where computing and waiting alternate."""
    kinds: dict[Kind, FloatArray] = {}
    calm = _is_calm(model)
    for part in model.parts:
        if part.is_remade:
            continue
        kind = Kind.WAIT if calm and part.kind is Kind.CPU else part.kind
        kinds[kind] = kinds.get(kind, 0.0) + part.amount_ns * (1.0 - part.locked_ratio)
        if part.locked_ratio > 0.0:
            kind = Kind.LOCKED_CPU if part.kind is Kind.CPU else Kind.LOCKED_WAIT
            kinds[kind] = kinds.get(kind, 0.0) + part.amount_ns * part.locked_ratio
    total = sum(float(amount.sum()) for amount in kinds.values())
    mixed = sum(float(amount.sum()) > MIXED_RATIO * total for amount in kinds.values()) > 1
    rounds = min(MIXED_ROUNDS, model.batch_size) if mixed else 1
    if Kind.LOCKED_CPU in kinds or Kind.LOCKED_WAIT in kinds:
        rounds = min(LOCK_ROUNDS, model.batch_size)
    columns = [(kind, (amount / rounds).tolist()) for kind, amount in kinds.items()]
    turn = model.turn_ns.tolist()
    return [
        (
            (Kind.WAIT, turn[at]),
            *rounds * [(kind, values[at]) for kind, values in columns if values[at] > 0.0],
        )
        for at in range(model.count)
    ]


def _loop_scale(model: LoaderModel) -> float:
    """What the loop's own time comes to: its waiting for a CPU as long as the change makes it.

    Under a quota the simulation stops the loop itself.
    """
    scale = 0.0 if model.host.quota_cpus is not None else model.loop_queue_scale
    return 1.0 - model.loop_queue_ratio * (1.0 - scale)


def _busy_kind(model: LoaderModel) -> Kind:
    """Under a quota the loop is stopped like everybody else."""
    return Kind.BUSY if model.host.quota_cpus is None else Kind.CPU


def _receive_programs(model: LoaderModel, blocked: FloatArray) -> list[tuple[Phase, ...]]:
    kind = _busy_kind(model)
    cpu = model.receive_cpu_ns.tolist()
    waits = (blocked * _loop_scale(model)).tolist()
    return [
        ((kind, cpu[at]), (Kind.WAIT, wait)) if cpu[at] > 0 else ((Kind.WAIT, wait),)
        for at, wait in enumerate(waits)
    ]


def _step_programs(model: LoaderModel) -> list[tuple[Phase, ...]]:
    """Each step: launch, go on, wait for the device where it is waited for, go on."""
    scale = _loop_scale(model)
    host = sum((part.amount_ns for part in model.loop_parts), np.zeros(model.count)) * scale
    before = np.minimum(model.before_ns * scale, host)
    launch = np.minimum(model.launch_ns * scale, host)
    behind = np.where(model.is_synced, before, launch)
    own = _Host(_busy_kind(model), min(1.0, model.loop_cpu_ratio / scale))
    columns = zip(
        own.phases(launch),
        model.synced_ns.tolist(),
        own.phases(before - launch),
        own.phases(model.wake_ns * scale),
        model.unsynced_ns.tolist(),
        own.phases(host - behind),
        model.is_synced.tolist(),
        strict=True,
    )
    programs: list[tuple[Phase, ...]] = []
    for first, synced, middle, wake, unsynced, last, is_synced in columns:
        if is_synced:
            waited = (Kind.LAUNCH, synced), *middle, (Kind.SYNC, 0.0), *wake
            programs.append((*first, *waited, (Kind.LAUNCH, unsynced), *last))
        else:
            programs.append((*first, (Kind.LAUNCH, unsynced), *last))
    return programs


@dataclass(frozen=True, slots=True)
class _Host:
    """How the loop's own time is spent."""

    kind: Kind
    cpu_ratio: float

    def phases(self, length: FloatArray) -> list[tuple[Phase, ...]]:
        """Part lengths into computing and the rest."""
        return [
            ((self.kind, one * self.cpu_ratio), (Kind.WAIT, one * (1.0 - self.cpu_ratio)))
            if one > 0.0
            else ()
            for one in length.tolist()
        ]


# --- competition for CPUs -----------------------------------------------------------------------------


def _fit_rivals(
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


def _fit_lock(
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
    if _misses_by(locked, order) <= LOCK_ERROR:
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
    return fitted if _misses_by(fitted, order) <= LOCK_ERROR else plain


def _misses_by(model: LoaderModel, order: IntArray) -> float:
    """How far the simulated mean step is from the recorded one, as a part of it."""
    outcome, first, last = simulate_model(model, order)
    return abs(outcome.mean_step_ns(first, last) / model.step_ns - 1.0)


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


def computing_ns(model: LoaderModel, order: IntArray | None = None) -> float:
    """Mean CPU time of making a batch, its own thread's, ns."""
    return sum(
        float((part.amount_ns if order is None else part.amount_ns[order]).mean())
        for part in model.parts
        if part.kind in (Kind.CPU, Kind.LOCKED_CPU)
    )


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
