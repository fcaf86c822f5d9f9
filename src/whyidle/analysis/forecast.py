"""What a change would gain: the recorded loader, edited, simulated, and set against its replay.

A forecast is a ratio of two simulations of the same batches in the same order, so what the simulation leaves out of
both cancels. Its interval has three sources: which steps happened to be recorded (block bootstrap of the pairs), what
the model's parameters are known to (shares from samples, the replay's own miss), and how much a class of changes
differs from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.loader_model import (
    Label,
    LoaderModel,
    Part,
    Withheld,
    computing_ns,
    simulate_model,
)
from whyidle.analysis.work import Kind, PassStart
from whyidle.model.findings import Activity, Forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.analysis.work import FloatArray, Outcome

BASIS = "event simulation"
MAX_REPLAY_ERROR = 0.05
"""A replay that misses by more knows the loader too little to forecast a change of it (ARCHITECTURE §6)."""
TRIM_PERCENTILE = 95.0
"""A trimmed tail ends here: one batch in twenty is what people call rare."""
RESAMPLES = 200
"""Bootstrap resamples: the 5th and 95th percentile of 200 are known to within 1.5 percentiles."""
MIN_BLOCK_STEPS = 8
Z_90 = 1.645
"""Standard deviations either side that hold 90 % of a normal distribution."""
HANDSHAKE_NS = 1_000_000.0
"""Beginning a pass with workers that are there: a message to each and its answer, 0.3 to 1.5 ms measured for 2 to 8."""
PIN_BYTES_PER_NS = 5.0
"""Pinning copies once at about 5 GB/s."""
RECEIPT_NS = 500_000.0
"""Handing over and receiving one batch costs about this much CPU time on either side (0.43 to 0.58 ms measured for
batches of one or two tensors); used only where no batch was handed over in the recording."""
HELPERS_USEFUL_RATIO, HELPERS_SPREAD = 0.62, 0.15
"""Part of the CPU time of a worker's helper threads that is work, with its standard deviation; the rest is spinning and
switching. Measured: 0.57 for torch's own pool with four times the machine's threads, 1.0 for OpenCV's."""
WAKEUP_FLOOR = 0.1
"""A thread that wakes up waits a little even for a free CPU (50 us): a tenth of what it waits for a busy one."""
MAX_QUEUE_SCALE = 4.0
"""Beyond this much more waiting of the loop than recorded the extrapolation means nothing."""
RUN_NOISE = 0.02
"""Standard deviation of the mean step from run to run: 0.01 between unchanged blocks of one trial, several times that
where others use the machine as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the training. Only what is given is changed; two changes `joined` are both at once."""

    workers: int | None = None
    prefetch: int | None = None
    persistent: bool | None = None
    pinned: bool | None = None
    in_order: bool | None = None
    scaled: tuple[tuple[Label, float], ...] = ()
    """Causes whose work is multiplied: 0 removes it, 0.1 makes it ten times faster."""
    trimmed: tuple[Label, ...] = ()
    """Causes none of whose batches take longer than the 95th percentile."""
    to_device: tuple[tuple[Label, float], ...] = ()
    """Causes that move to the device, and what they cost there, ns a step."""
    cpus: int | None = None
    """CPUs that the run may use."""
    quota_removed: bool = False
    neighbour_removed: bool = False
    threads_limited: bool = False
    """Each worker computes in one thread."""
    parallel_reads: int | None = None
    """Requests that a worker has in flight while it makes a batch."""
    storage_factor: float | None = None
    """What is left of each request's time."""
    tensors_factor: float | None = None
    """What is left of the number of tensors in a batch."""
    bytes_factor: float | None = None
    """What is left of a batch's size."""
    sampler_factor: float | None = None
    """What is left of drawing indices."""
    loop_removed: tuple[tuple[Label, float], ...] = ()
    """Causes in the loop's own code, and the factor that is left of each."""
    lock_removed: bool = False
    """Workers no longer wait for one another at a lock they share."""
    rebalanced: bool = False
    """Every worker of an iterable data set has a part of the data."""
    data_free: bool = False
    """Batches cost nothing: the ceiling of all changes of the loader."""

    def joined(self, other: Change) -> Change:
        """Make both changes at once; where both set the same argument, the other one's value holds."""
        merged = {}
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, tuple):
                merged[one.name] = mine + theirs
            else:
                merged[one.name] = mine if theirs is None or theirs is False else theirs
        return Change(**merged)


def forecast(model: LoaderModel, change: Change) -> Forecast | Withheld:
    """Say what a change would gain.

    Args:
        model: The recorded loader.
        change: What to change.

    Returns:
        A Forecast, no higher than the ceiling of a loader that costs nothing (its interval: than the ceiling's);
        Withheld where the replay misses.
    """
    return forecast_all(model, (change,))[0]


def forecast_all(
    model: LoaderModel, changes: Sequence[Change]
) -> list[Forecast | Withheld]:
    """Say what each of several changes would gain, the replay and the ceiling made once."""
    if abs(model.replay_error) > MAX_REPLAY_ERROR:
        missed = Withheld(
            "replay-misses",
            f"the simulated loader is {abs(model.replay_error):.0%} "
            f"{'slower' if model.replay_error > 0 else 'faster'} than the recorded one: no forecast",
        )
        return [missed for _ in changes]
    forecaster = _Forecaster(model)
    return [forecaster.forecast(change) for change in changes]


def rate_bound(model: LoaderModel, change: Change) -> float:
    """Speedup by rates alone: a step is no shorter than the loop's own, nor than a batch's work over its workers.

    It knows no order, no variance and no waiting for one another: a ceiling for the simulation, and what the
    simulation has to be better than.
    """
    return _rate_ns(model) / _rate_ns(edit(model, change))


def _rate_ns(model: LoaderModel) -> float:
    making = sum(float(part.amount_ns.mean()) for part in model.parts)
    computing = sum(
        float(part.amount_ns.mean()) * model.width
        for part in model.parts
        if part.kind in (Kind.CPU, Kind.LOCKED_CPU)
    )
    host = sum(float(part.amount_ns.mean()) for part in model.loop_parts)
    synced = np.where(model.is_synced, model.synced_ns, 0.0)
    step = float(
        max(
            host,
            (model.launch_ns + synced + model.wake_ns).mean()
            + host
            - model.before_ns.mean(),
        )
    )
    step = max(step, float((model.synced_ns + model.unsynced_ns).mean()))
    serial = float((model.receive_cpu_ns + model.deliver_ns + model.sampler_ns).mean())
    workers = model.settings.workers
    if workers == 0:
        return step + making + serial
    cpus = model.host.cpus if model.host.quota_cpus is None else model.host.quota_cpus
    return max(step + serial, making / workers, computing / cpus)


def mean_step_ns(model: LoaderModel) -> float:
    """Mean step of a loader going on for ever, ns."""
    outcome, first, last = simulate_model(model)
    return outcome.mean_step_ns(first, last)


# --- editing -----------------------------------------------------------------------------------------


def edit(model: LoaderModel, change: Change) -> LoaderModel:
    """Apply a change to the recorded loader."""
    if change.data_free:
        model = _free_data(model)
    model = _edit_work(model, change)
    model = _edit_loop(model, change)
    model = _edit_host(model, change)
    return _edit_settings(model, change)


def _free_data(model: LoaderModel) -> LoaderModel:
    nothing = np.zeros(model.count)
    return replace(
        model, parts=(), turn_ns=nothing, handoff_ns=nothing, handoff_held_ns=nothing, receive_cpu_ns=nothing,
        receive_ns=nothing, receive_fresh_ns=nothing, receive_held_ns=nothing, pin_ns=nothing, deliver_ns=nothing,
        sampler_ns=nothing, starts={}, persistent=True, shares=None,
    )  # fmt: skip


def _edit_work(model: LoaderModel, change: Change) -> LoaderModel:
    factors = dict(change.scaled) | {label: 0.0 for label, _ in change.to_device}
    before = computing_ns(model)
    parts = []
    for part in model.parts:
        amount = (
            part.amount_ns * factors.get(part.label, 1.0) if part.label else part.amount_ns
        )
        if change.lock_removed and part.label and part.label.activity is Activity.LOCK:
            amount = amount * 0.0
        held = part.locked_ratio * _lock_left(factors, change)
        if part.label in change.trimmed:
            amount = np.minimum(amount, np.percentile(amount, TRIM_PERCENTILE))
        if change.parallel_reads and _is_request(part) and model.host.storage_slots is None:
            amount = amount / min(change.parallel_reads, model.batch_size)
        if change.storage_factor is not None and part.kind is Kind.STORAGE:
            amount = amount * change.storage_factor
        if (
            change.bytes_factor is not None
            and part.label
            and part.label.activity is Activity.TRANSPORT
        ):
            amount = amount * change.bytes_factor
        parts.append(replace(part, amount_ns=amount, locked_ratio=held))
    model = replace(model, parts=tuple(parts))
    model = _edit_transport(model, factors, change)
    left = computing_ns(model) / before if before > 0 else 1.0
    added = sum(cost for _, cost in change.to_device)
    return replace(
        model,
        handoff_held_ns=model.handoff_held_ns * min(1.0, left),
        receive_held_ns=model.receive_held_ns * min(1.0, left),
        synced_ns=np.where(model.is_synced, model.synced_ns + added, model.synced_ns),
        unsynced_ns=np.where(model.is_synced, model.unsynced_ns, model.unsynced_ns + added),
    )


def _lock_left(factors: dict[Label, float], change: Change) -> float:
    """What is left of holding the lock when the waiting for it is to be so much less."""
    if change.lock_removed:
        return 0.0
    return min(
        (factor for label, factor in factors.items() if label.activity is Activity.LOCK),
        default=1.0,
    )


def _is_request(part: Part) -> bool:
    return part.kind is Kind.STORAGE or (
        part.label is not None and part.label.activity is Activity.NETWORK
    )


def _edit_transport(
    model: LoaderModel, factors: dict[Label, float], change: Change
) -> LoaderModel:
    """Moving batches costs by the tensor; drawing indices and beginning passes are the loop's own."""
    activities = {label.activity: factor for label, factor in factors.items()}
    moving = activities.get(Activity.TRANSPORT, 1.0)
    moving *= _tensors_left(model, change)
    drawing = activities.get(Activity.SAMPLER, 1.0)
    if change.sampler_factor is not None:
        drawing *= change.sampler_factor
    starting = activities.get(Activity.STARTUP, 1.0)
    return replace(
        model,
        handoff_ns=model.handoff_ns * moving,
        handoff_held_ns=model.handoff_held_ns * moving,
        receive_cpu_ns=model.receive_cpu_ns * moving,
        receive_ns=model.receive_ns * moving,
        receive_fresh_ns=model.receive_fresh_ns * moving,
        receive_held_ns=model.receive_held_ns * moving,
        sampler_ns=model.sampler_ns * drawing,
        starts={
            at: PassStart(gap_ns=one.gap_ns * starting, ready_ns=one.ready_ns * starting)
            for at, one in model.starts.items()
        },
    )


def _tensors_left(model: LoaderModel, change: Change) -> float:
    """Part of the batch's tensors that is left; one at least is."""
    if change.tensors_factor is None:
        return 1.0
    return max(change.tensors_factor, min(1.0, 1.0 / max(1.0, model.tensor_count)))


def _edit_loop(model: LoaderModel, change: Change) -> LoaderModel:
    """Shorten the loop's own code; without its synchronising call the loop runs ahead of the device."""
    factors = dict(change.scaled) | dict(change.loop_removed)
    parts, before = [], model.before_ns
    for part in model.loop_parts:
        factor = factors.get(part.label, 1.0) if part.label else 1.0
        if part.label and part.label.activity is Activity.TRANSPORT:
            factor *= _tensors_left(model, change)
        before = before - part.amount_ns * (1.0 - factor) * part.before_share
        parts.append(replace(part, amount_ns=part.amount_ns * factor))
    old = np.maximum(model.before_ns, 1.0)
    before = np.maximum(before, 0.0)
    model = replace(
        model,
        loop_parts=tuple(parts),
        before_ns=before,
        launch_ns=model.launch_ns * np.where(model.is_synced, before / old, 1.0),
    )
    if any(
        label.activity is Activity.SYNC and factor < 1.0
        for label, factor in factors.items()
    ):
        return replace(
            model,
            is_synced=np.zeros(model.count, dtype=bool),
            unsynced_ns=model.synced_ns + model.unsynced_ns,
            synced_ns=np.zeros(model.count),
        )
    return model


def _edit_host(model: LoaderModel, change: Change) -> LoaderModel:
    host = model.host
    if change.cpus is not None:
        host = replace(host, cpus=float(change.cpus))
    if change.quota_removed:
        host = replace(host, quota_cpus=None)
        model = replace(model, loop_queue_scale=0.0)
    if change.neighbour_removed:
        host = replace(host, rivals=0.0)
    if change.threads_limited and model.is_threaded:
        useful = 1.0 + (model.width - 1.0) * HELPERS_USEFUL_RATIO
        parts = tuple(
            replace(part, amount_ns=part.amount_ns * useful)
            if part.kind is Kind.CPU
            else part
            for part in model.parts
        )
        # Among groups of processes the kernel shares CPUs by group, so fewer threads of ours get no smaller part.
        host = replace(host, rivals=host.rivals / model.width)
        model = replace(model, parts=parts, width=1.0, is_threaded=False)
    return replace(model, host=host)


def _edit_settings(model: LoaderModel, change: Change) -> LoaderModel:
    settings, starts, shares = model.settings, model.starts, model.shares
    if change.workers is not None and change.workers != settings.workers:
        if settings.workers == 0:
            model = _with_handover(model)
        ratio = change.workers / max(1, settings.workers)
        settings = replace(settings, workers=change.workers)
        if not model.persistent:
            starts = {
                at: PassStart(gap_ns=one.gap_ns * ratio, ready_ns=one.ready_ns)
                for at, one in starts.items()
            }
        shares = None
    if change.prefetch is not None:
        settings = replace(settings, prefetch=change.prefetch)
    if change.in_order is not None:
        settings = replace(settings, in_order=change.in_order)
    if change.pinned and not settings.pinned:
        settings = replace(settings, pinned=True)
        model = replace(
            model, pin_ns=np.full(model.count, model.size_bytes / PIN_BYTES_PER_NS)
        )
    if change.persistent and not model.persistent:
        starts = {at: PassStart(gap_ns=HANDSHAKE_NS, ready_ns=0.0) for at in starts}
    if change.rebalanced:
        shares = None
    return replace(model, settings=settings, starts=starts, shares=shares)


def _with_handover(model: LoaderModel) -> LoaderModel:
    """Batches that the loop made itself are handed over from now on, at a usual cost."""
    usual = np.full(model.count, RECEIPT_NS)
    return replace(
        model,
        handoff_ns=usual,
        receive_cpu_ns=usual,
        receive_ns=usual,
        receive_fresh_ns=usual,
    )


# --- forecasting --------------------------------------------------------------------------------------


class _Forecaster:
    """Forecasts for one model."""

    def __init__(self, model: LoaderModel) -> None:
        self.model = model
        self.done = _done_ns(*simulate_model(model))
        free = Change(data_free=True)
        done = self._simulate(free)
        self.ceiling = self._speedup(done)
        self.ceiling_high = self.ceiling * exp(
            Z_90 * self._spread(done, free, self.ceiling)
        )

    def forecast(self, change: Change) -> Forecast:
        """Simulate one change."""
        done = self._simulate(change)
        speedup = self._speedup(done)
        spread = self._spread(done, change, speedup)
        low, high = speedup * exp(-Z_90 * spread), speedup * exp(Z_90 * spread)
        if _is_of_the_loader(change):
            speedup, low = min(speedup, self.ceiling), min(low, self.ceiling)
            high = min(high, self.ceiling_high)
        return Forecast(speedup=speedup, low=low, high=high, basis=BASIS)

    def _simulate(self, change: Change) -> FloatArray:
        """When each step is done under a change, ns; twice where the loop's own waiting for a CPU changes."""
        edited = edit(self.model, change)
        simulated = simulate_model(edited)
        scale = self._queue_scale(simulated[0])
        if scale is not None:
            simulated = simulate_model(replace(edited, loop_queue_scale=scale))
        return _done_ns(*simulated)

    def _queue_scale(self, outcome: Outcome) -> float | None:
        """How much longer the loop waits for a CPU; None where it is as recorded."""
        if self.model.full_ratio <= 0.0 or self.model.host.quota_cpus is not None:
            return None
        now, before = (
            outcome.full_ratio + WAKEUP_FLOOR,
            self.model.full_ratio + WAKEUP_FLOOR,
        )
        return min(MAX_QUEUE_SCALE, now / before)

    def _speedup(self, done: FloatArray) -> float:
        return float((self.done[-1] - self.done[0]) / (done[-1] - done[0]))

    def _spread(self, done: FloatArray, change: Change, speedup: float) -> float:
        """Standard deviation of the forecast's logarithm."""
        sampled = self._share_spread(change) * abs(log(speedup))
        missed = abs(self.model.replay_error) / sqrt(3.0)
        threads = self._threads_spread() if change.threads_limited else 0.0
        parts = (self._step_spread(done), sampled, missed, threads, RUN_NOISE)
        return sqrt(sum(part**2 for part in parts))

    def _threads_spread(self) -> float:
        """From how much of their time helper threads spin away."""
        if not self.model.is_threaded:
            return 0.0
        helpers = self.model.width - 1.0
        return helpers * HELPERS_SPREAD / (1.0 + helpers * HELPERS_USEFUL_RATIO)

    def _step_spread(self, done: FloatArray) -> float:
        """From which steps were recorded: blocks of steps drawn again, the same ones before and after the change."""
        settings = self.model.settings
        length = max(MIN_BLOCK_STEPS, 2 * settings.workers * settings.prefetch)
        edges = np.arange(0, len(done), length)
        if len(edges) < 3:
            return 0.0
        before, after = np.diff(self.done[edges]), np.diff(done[edges])
        drawn = np.random.default_rng(0).integers(
            0, len(before), size=(RESAMPLES, len(before))
        )
        ratios = before[drawn].sum(axis=1) / after[drawn].sum(axis=1)
        return float(np.log(ratios).std())

    def _share_spread(self, change: Change) -> float:
        """Relative error of the edited causes' shares, from how few samples they rest on."""
        edited = {
            label for label, _ in (*change.scaled, *change.loop_removed, *change.to_device)
        }
        edited |= set(change.trimmed)
        known = [
            part
            for part in (*self.model.parts, *self.model.loop_parts)
            if part.label in edited and part.is_shared and part.sample_count
        ]
        whole = sum(float(part.amount_ns.mean()) for part in known)
        errors = [float(part.amount_ns.mean()) ** 2 / part.sample_count for part in known]
        return sqrt(sum(errors)) / whole if whole > 0 else 0.0


def _done_ns(outcome: Outcome, first: int, last: int) -> FloatArray:
    return outcome.done_ns()[first : last + 1]


def _is_of_the_loader(change: Change) -> bool:
    """Whether the loop's own step stays as it is, so that a free loader is the ceiling."""
    return not (
        change.loop_removed or change.to_device or change.quota_removed or change.neighbour_removed
        or change.cpus is not None or change.threads_limited
        or any(label.activity in (Activity.PYTHON, Activity.SYNC, Activity.LAUNCH) for label, _ in change.scaled)
    )  # fmt: skip
