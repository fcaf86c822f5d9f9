"""Measured facts beside each cause, in sentences a person can check with other tools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.contention import Reason
from whyidle.analysis.regimes import loader_of_steps
from whyidle.model.findings import Activity, Evidence, Regime
from whyidle.model.waits import Wait
from whyidle.units import format_bytes, format_ns, format_ratio

if TYPE_CHECKING:
    from whyidle.analysis.contention import Contention
    from whyidle.analysis.ledger import Blame
    from whyidle.analysis.regimes import Stance
    from whyidle.model.findings import WorkerSplit
    from whyidle.model.timeline import IntArray, RankTimeline

WAIT_WORDS: dict[int, str] = {
    Wait.FILE: "reading files",
    Wait.PAGE_FAULT: "page faults on mapped files",
    Wait.SOCKET: "a socket",
    Wait.PIPE: "a pipe",
    Wait.LOCK: "a lock shared between processes",
    Wait.THREAD: "another thread of their own",
    Wait.CHILD: "a child process",
    Wait.SLEEP: "a sleep",
    Wait.DEVICE: "a device file",
    Wait.OTHER: "something unnamed",
}


def gather_evidence(
    blame: Blame,
    regime: Regime,
    rank: RankTimeline,
    stance: Stance,
    contention: Contention,
    splits: tuple[WorkerSplit, ...],
) -> tuple[Evidence, ...]:
    """State the facts behind one cause, the most telling first."""
    facts: list[Evidence] = []
    if regime is Regime.HEAD_OF_LINE:
        facts.append(_head_of_line(stance))
        facts += _slowest_batch(rank)
    if regime is Regime.INACTIVE_WORKERS:
        facts.append(_inactive(stance))
    match blame.activity:
        case Activity.COMPUTE:
            facts += _on_cpu(splits, stance)
            facts += _own_work(contention, stance)
        case Activity.CPU_QUEUE | Activity.THROTTLED:
            facts += _queueing(contention, stance)
        case Activity.STORAGE | Activity.NETWORK | Activity.LOCK | Activity.SLEEP:
            facts.append(_blocked(blame, splits))
        case Activity.TRANSPORT:
            facts += _payload(rank)
        case Activity.SAMPLER:
            facts.append(_sampler(rank))
        case Activity.STARTUP:
            facts.append(_startup(rank))
        case Activity.PYTHON | Activity.SYNC | Activity.LAUNCH:
            facts.append(_loop_share(blame, rank))
        case _:
            pass
    if blame.is_input:
        facts += _loaders(rank)
    if blame.sample_count:
        facts.append(
            Evidence(
                text=f"place seen in {blame.sample_count} stack samples",
                value=blame.sample_count,
                unit="count",
            )
        )
    return tuple(facts)


def _loaders(rank: RankTimeline) -> list[Evidence]:
    """With several loaders: which one was waited for most, by the line that built it."""
    steps, loaders = rank.steps, loader_of_steps(rank)
    inside = steps.ask_ns >= rank.window_start_ns
    waits = {
        number: int((steps.got_ns - steps.ask_ns)[inside & (loaders == number)].sum())
        for number in np.unique(loaders[inside]).tolist()
    }
    total = sum(waits.values())
    if len(waits) < 2 or not total:
        return []
    first = max(waits, key=lambda number: waits[number])
    built = next(one for one in rank.iterations.values() if one.loader == first)
    place = (
        f"{os.path.basename(built.build_file)}:{built.build_line}"
        if built.build_file
        else f"number {first}"
    )
    ratio = waits[first] / total
    text = f"{format_ratio(ratio)} of the waiting is for the loader built at {place}, one of {len(waits)}"
    return [Evidence(text=text, value=ratio, unit="ratio")]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _on_cpu(splits: tuple[WorkerSplit, ...], stance: Stance) -> list[Evidence]:
    if not splits:
        return [
            Evidence(
                text="the loop makes each batch itself (num_workers=0)",
                value=None,
                unit=None,
            )
        ]
    ratio = _mean([split.on_cpu_ratio for split in splits])
    text = f"{stance.active_workers} of {stance.workers} workers active, on a CPU {format_ratio(ratio)} of the time"
    return [Evidence(text=text, value=ratio, unit="ratio")]


def _own_work(contention: Contention, stance: Stance) -> list[Evidence]:
    if contention.reason is Reason.OWN_WORK and contention.tree_cpus is not None:
        text = (
            f"the run uses {contention.tree_cpus:.1f} of {contention.allowed_count} CPUs: "
            "more workers would only queue"
        )
        return [Evidence(text=text, value=contention.tree_cpus, unit="count")]
    if stance.spare_cpus is not None and stance.spare_cpus >= 0.5:
        text = f"{stance.spare_cpus:.1f} of {contention.allowed_count} CPUs idle on average"
        return [Evidence(text=text, value=stance.spare_cpus, unit="count")]
    return []


def _queueing(contention: Contention, stance: Stance) -> list[Evidence]:
    queued = Evidence(
        text=f"workers were ready but had no CPU {format_ratio(contention.queue_ratio)} of their CPU time",
        value=contention.queue_ratio,
        unit="ratio",
    )
    match contention.reason:
        case Reason.QUOTA:
            ratio = contention.throttled_ratio or 0.0
            text = f"the CPU quota stopped the run in {format_ratio(ratio)} of its periods"
            return [Evidence(text=text, value=ratio, unit="ratio"), queued]
        case Reason.THREADS:
            threads = contention.runnable_threads or 0.0
            text = f"{threads:.1f} ready threads a worker × {stance.workers} workers on {contention.allowed_count} CPUs"
            return [Evidence(text=text, value=threads, unit="count"), queued]
        case Reason.MASK:
            text = f"an affinity mask allows {contention.allowed_count} of {contention.cpu_count} CPUs"
            return [
                Evidence(text=text, value=contention.allowed_count, unit="count"),
                queued,
            ]
        case Reason.NEIGHBOUR:
            cpus = contention.other_cpus or 0.0
            text = f"other processes used {cpus:.1f} of {contention.cpu_count} CPUs"
            text += f", most of it {contention.neighbour}" if contention.neighbour else ""
            return [Evidence(text=text, value=cpus, unit="count"), queued]
        case _:
            return [queued]


def _blocked(blame: Blame, splits: tuple[WorkerSplit, ...]) -> Evidence:
    ratio = _mean([split.blocked_ratio for split in splits])
    words = WAIT_WORDS.get(blame.wait, "something unnamed")
    if not splits:
        return Evidence(
            text=f"the loop waited for {words} inside next()", value=None, unit=None
        )
    text = f"workers blocked {format_ratio(ratio)} of the time, here on {words}"
    return Evidence(text=text, value=ratio, unit="ratio")


def _head_of_line(stance: Stance) -> Evidence:
    text = f"in {format_ratio(stance.head_of_line_ratio)} of the waiting another worker had nothing to do"
    return Evidence(text=text, value=stance.head_of_line_ratio, unit="ratio")


def _slowest_batch(rank: RankTimeline) -> list[Evidence]:
    length_ns = rank.batches.end_ns - rank.batches.start_ns
    if len(length_ns) < 2:
        return []
    slowest = int(length_ns.argmax())
    factor = float(length_ns[slowest] / max(1.0, float(np.median(length_ns))))
    text = (
        f"batch {int(rank.batches.batch[slowest])} took {format_ns(int(length_ns[slowest]))}, "
        f"{factor:.1f} × the median"
    )
    return [Evidence(text=text, value=float(length_ns[slowest]), unit="ns")]


def _inactive(stance: Stance) -> Evidence:
    text = f"only {stance.active_workers} of {stance.workers} workers made batches"
    return Evidence(text=text, value=stance.active_workers, unit="count")


def _known_median(values: IntArray) -> float | None:
    known = values[values >= 0]
    return float(np.median(known)) if len(known) else None


def _payload(rank: RankTimeline) -> list[Evidence]:
    tensors, size = (
        _known_median(rank.batches.tensor_count),
        _known_median(rank.batches.size_bytes),
    )
    facts = []
    if tensors is not None and size is not None:
        named = "tensor or array" if tensors == 1 else "tensors or arrays"
        text = f"a batch is {tensors:.0f} {named}, {format_bytes(size)}"
        facts.append(Evidence(text=text, value=size, unit="bytes"))
    receive_ns = float(rank.steps.receive_cpu_ns.mean()) if len(rank.steps) else 0.0
    text = (
        f"taking a batch off the queue costs the loop {format_ns(receive_ns)} of CPU time"
    )
    return [*facts, Evidence(text=text, value=receive_ns, unit="ns")]


def _sampler(rank: RankTimeline) -> Evidence:
    drawn_ns = float(rank.steps.sampler_ns.mean()) if len(rank.steps) else 0.0
    text = (
        f"drawing the indices of a batch takes {format_ns(drawn_ns)} in the loop's process"
    )
    return Evidence(text=text, value=drawn_ns, unit="ns")


def _startup(rank: RankTimeline) -> Evidence:
    begun = [
        one
        for one in rank.iterations.values()
        if rank.window_start_ns <= one.start_ns <= rank.window_end_ns
    ]
    started = sum(
        rank.window_start_ns <= life.loop_start_ns <= rank.window_end_ns
        for life in rank.workers
    )
    text = f"{len(begun)} iterations began and {started} workers were started in the window"
    return Evidence(text=text, value=started, unit="count")


def _loop_share(blame: Blame, rank: RankTimeline) -> Evidence:
    steps = max(1, len(rank.steps) - rank.warmup_steps)
    text = f"{format_ns(blame.idle_ns / steps)} a step on average with nothing for the device to do"
    return Evidence(text=text, value=blame.idle_ns / steps, unit="ns")
