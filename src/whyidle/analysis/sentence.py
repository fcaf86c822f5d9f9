"""The verdict in one or two sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.model.findings import Activity, Limit, Regime
from whyidle.units import format_ns, format_ratio

if TYPE_CHECKING:
    from whyidle.model.findings import Place, Verdict

CLOSE_RATIO = 0.6
"""The second cause is named too when it has this part of the first one's share."""

ACTIVITY_WORDS = {
    Activity.COMPUTE: "computing in",
    Activity.CPU_QUEUE: "waiting for a free CPU",
    Activity.THROTTLED: "being stopped by the CPU quota",
    Activity.STORAGE: "reading files",
    Activity.NETWORK: "waiting for the network",
    Activity.LOCK: "waiting for a lock or another process",
    Activity.SLEEP: "sleeping",
    Activity.TRANSPORT: "moving batches between processes",
    Activity.SAMPLER: "drawing indices in the main process",
    Activity.STARTUP: "starting workers",
    Activity.MEMORY: "waiting for memory",
    Activity.COPY: "copying to the device",
    Activity.SYNC: "waiting for the device in every step, and the device then for the loop",
    Activity.LAUNCH: "issuing small pieces of work too slowly",
    Activity.PYTHON: "running the loop's own code",
    Activity.COLLECTIVE: "waiting for another rank",
    Activity.UNEXPLAINED: "something that was not seen",
}

REGIME_WORDS = {
    Regime.SERIAL: "no workers: the loop makes every batch itself",
    Regime.THROUGHPUT: "all workers busy, and still too slow",
    Regime.FEW_WORKERS: "too few at a time: the machine could do more at once",
    Regime.HEAD_OF_LINE: "one slow batch holds up those already made",
    Regime.BURSTY: "slow stretches empty the queue",
    Regime.SERIAL_STAGE: "a single consumer is the bottleneck; more workers do not help",
    Regime.CONTENDED: "the CPUs are not to be had",
    Regime.LOCK_BOUND: "workers wait for each other",
    Regime.INACTIVE_WORKERS: "most workers have no work",
    Regime.EPOCH_START: "at the start of each epoch",
    Regime.PERIODIC: "in few steps",
    Regime.STEADY: "in every step",
    Regime.STRAGGLER: "one rank is late",
}


def write_sentence(verdict: Verdict) -> str:
    """Say what bounds the training, in the words of a person.

    The open question of a half-CPU, half-waiting loader is answered in its second sentence: each part alone leaves
    a CPU half used, together they fill the time.
    """
    idle = format_ratio(verdict.idle_ratio or 0.0)
    if verdict.limit is Limit.UNRESOLVED:
        return _unresolved(verdict, idle)
    if verdict.limit is Limit.DEVICE:
        return f"The device is the limit: it was idle only {idle} of the time. Feeding it faster would gain nothing."
    device = (
        "the loop waited for data"
        if verdict.run.device_kind == "cpu"
        else "the device was idle"
    )
    opening = f"{device[0].upper()}{device[1:]} {idle} of the time"
    if not verdict.causes:
        return f"{opening}."
    first = verdict.causes[0]
    name, regime = name_cause(first.activity, first.where), REGIME_WORDS[first.regime]
    said = f"{opening}, {format_ratio(first.share)} of that because of {name}: {regime}."
    if len(verdict.causes) > 1 and verdict.causes[1].share >= CLOSE_RATIO * first.share:
        second = verdict.causes[1]
        name = name_cause(second.activity, second.where)
        said += f" Close behind: {name}, {format_ratio(second.share)}."
    return said + _half_and_half(verdict)


def _unresolved(verdict: Verdict, idle: str) -> str:
    if verdict.step_median_ns is None:
        return "Unresolved: no training step was seen."
    if all(missing.slug != "few-steps" for missing in verdict.not_observed):
        return (
            f"Unresolved: idle {idle} of the time, but {format_ratio(verdict.unexplained_ratio)} of that "
            "could not be explained."
        )
    return f"Unresolved: {verdict.run.steps} steps of {format_ns(verdict.step_median_ns)} are too few to judge."


def name_cause(activity: Activity, where: Place) -> str:
    """Name a cause within a sentence: `computing in augment, line 98`."""
    words = ACTIVITY_WORDS[activity]
    place = _place(where)
    if activity is Activity.COMPUTE:
        return f"{words} {place}" if place else "computing in the workers"
    return f"{words} ({place})" if place else words


def _place(where: Place) -> str:
    if where.process:
        return f"taken by {where.process}"
    name = where.transform or where.function
    if name and where.line:
        return f"{name}, line {where.line}"
    return name or where.mount or ""


def _half_and_half(verdict: Verdict) -> str:
    """Explain CPUs at half load with workers that are never idle."""
    workers = verdict.workers
    if not workers or verdict.limit is not Limit.INPUT:
        return ""
    on_cpu = sum(split.on_cpu_ratio for split in workers) / len(workers)
    blocked = sum(split.blocked_ratio for split in workers) / len(workers)
    if min(on_cpu, blocked) < 0.25 or on_cpu + blocked < 0.7:
        return ""
    return (
        f" Each worker computes {format_ratio(on_cpu)} and waits {format_ratio(blocked)} of the time, one after the "
        "other: that is why CPUs look half idle although no worker ever is."
    )
