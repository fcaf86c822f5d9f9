"""The recorded loader as data: the work of each batch and step, and how the simulation is fed with it.

Edits (`forecast`) and fits (`competition`) make another model of a model; nothing here changes one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.simulate import simulate
from whyidle.analysis.work import Host, Kind, PassStart, Settings, Work

if TYPE_CHECKING:
    from whyidle.analysis.work import FloatArray, Outcome, Phase
    from whyidle.model.findings import Activity, Cause, Place
    from whyidle.model.timeline import BoolArray, IntArray


MIXED_ROUNDS = 4
"""Making a batch alternates between computing and waiting sample by sample; more rounds than 4 change the simulated
step by less than 0.5 %."""
LOCK_ROUNDS = 8
"""A lock that is taken for each sample is handed on more often; beyond 8 times a batch its waiting hardly changes."""
MIXED_RATIO = 0.1
"""Below this part of the fetch the smaller of computing and waiting may as well be one piece."""
WARMUP_BATCHES = 100
"""Batches run before the measured ones, beyond those in the queue: the last ones of the window, so that the queue is
at its beginning what it is at its end."""


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


def computing_ns(model: LoaderModel, order: IntArray | None = None) -> float:
    """Mean CPU time of making a batch, its own thread's, ns."""
    return sum(
        float((part.amount_ns if order is None else part.amount_ns[order]).mean())
        for part in model.parts
        if part.kind in (Kind.CPU, Kind.LOCKED_CPU)
    )


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


def replay(model: LoaderModel, span: tuple[int, int], ready_ns: float) -> float:
    """Mean step of the recorded run between two steps, simulated from its very beginning, ns."""
    order = np.arange(model.count)
    tail = order[: model.settings.workers * model.settings.prefetch]
    work = _compile(model, np.concatenate((order, tail)), 0, model.count)
    outcome = simulate(replace(work, first_ready_ns=ready_ns), model.settings, model.host)
    return outcome.mean_step_ns(*span)


def cut(model: LoaderModel, span: tuple[int, int]) -> LoaderModel:
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
