"""Blame under contention: by what speeding a cause up would save, not by how much of the critical path it holds.

NOTE [why the path is not enough]
    The path gives each piece of work the part of the run that it takes. That is what would be saved by speeding it up
    only while the length of one piece does not depend on the others. Where CPUs are contended it does: a CPU second
    saved anywhere frees a CPU for others, and waiting on a disk meanwhile is nearly free. Then each cause is made
    2 % faster in the simulation, and what that saves is its weight.

What goes with the reason of the queueing itself (a quota, a mask, neighbours, too many threads) is simulated whole:
without the reason, how much of the idle time goes?
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import MAX_REPLAY_ERROR, Change, edit, mean_step_ns
from whyidle.analysis.loader_model import Label, Withheld
from whyidle.model.findings import Activity, Evidence
from whyidle.units import format_ratio

if TYPE_CHECKING:
    from whyidle.analysis.contention import Contention
    from whyidle.analysis.ledger import Blame
    from whyidle.analysis.loader_model import LoaderModel

SPEED_UP = 0.02
"""Each cause is made this much faster and this much slower: small enough that the path hardly moves, and half the
difference of both has none of the second-order effects of one."""
LEAST_EFFECT = 0.001
"""When all causes made 2 % faster save less than this part of a step, nothing in the loader limits it."""
TELLING_DIFFERENCE = 0.15
"""Path and simulation differ by up to 0.05 without contention, and by 0.2 and more with it."""
QUEUEING = frozenset((Activity.CPU_QUEUE, Activity.THROTTLED))


def is_decisive(model: LoaderModel | Withheld, contention: Contention) -> bool:
    """Whether blame has to come from the simulation, and can: CPUs are contended, and it repeats the recording.

    Of too many threads it does not know how much of their time they spin away: there the estimate from counters stays.
    """
    return (
        not isinstance(model, Withheld)
        and contention.reason not in (Reason.NONE, Reason.THREADS)
        and model.settings.workers > 0
        and abs(model.replay_error) <= MAX_REPLAY_ERROR
    )


def deal_by_effect(
    model: LoaderModel, blames: list[Blame], contention: Contention
) -> list[Blame]:
    """Deal the input side's idle time out anew, by simulated effects.

    Args:
        model: The loader, its parts named by these blames.
        blames: Entries dealt out by the path.
        contention: Who holds the CPUs.

    Returns:
        Entries with the same sum. Those that the model does not know (loop side, start-up, unexplained) stay.
    """
    known = {Label(one.activity, one.where) for one in blames if _is_work(one)}
    known &= set(model.labels)
    effects = _effects(model, known)
    whole = sum(effects.values())
    if whole < LEAST_EFFECT * model.simulated_ns:
        return blames
    work = [
        one for one in blames if _is_work(one) and Label(one.activity, one.where) in known
    ]
    queued = [one for one in blames if one.is_input and one.activity in QUEUEING]
    idle_ns = sum(one.idle_ns for one in (*work, *queued))
    queued_ns = idle_ns * removable_ratio(model, contention) if queued else 0.0
    queue_before = sum(one.idle_ns for one in queued)
    dealt = [one for one in blames if one not in work and one not in queued]
    dealt += [
        replace(one, idle_ns=queued_ns * one.idle_ns / queue_before, path_ns=one.idle_ns)
        for one in queued
    ]
    held: dict[Label, float] = {}
    for one in work:
        label = Label(one.activity, one.where)
        held[label] = held.get(label, 0.0) + one.idle_ns
    for one in work:
        label = Label(one.activity, one.where)
        part = one.idle_ns / held[label] if held[label] > 0 else 0.0
        effect_ns = (idle_ns - queued_ns) * effects[label] / whole * part
        dealt.append(replace(one, idle_ns=effect_ns, path_ns=one.idle_ns))
    return dealt


def state_difference(share: float, path_share: float | None) -> tuple[Evidence, ...]:
    """Say it where a cause holds far more, or far less, of the path than it would save: that is contention."""
    if path_share is None or abs(share - path_share) < TELLING_DIFFERENCE:
        return ()
    text = (
        f"{format_ratio(path_share)} of the critical path's waiting, but {format_ratio(share)} by what speeding it up "
        "saves in the simulation: CPUs are contended"
    )
    return (Evidence(text=text, value=share - path_share, unit="ratio"),)


def _is_work(blame: Blame) -> bool:
    return blame.is_input and blame.activity not in QUEUEING


def _effects(model: LoaderModel, labels: set[Label]) -> dict[Label, float]:
    """What each label made 2 % faster saves a step, ns.

    Waiting for one lock is one thing, wherever it is done; and what faster work under the lock saves by holding it for
    less time is the lock's.
    """
    effects = {label: _effect(model, (label,)) for label in labels}
    queued = {
        part.label: float(part.amount_ns.mean())
        for part in model.parts
        if part.is_remade and part.label is not None and part.label in labels
    }
    waited = sum(queued.values())
    if waited <= 0:
        return effects
    together = _effect(model, tuple(queued))
    held = {
        part.label: float(part.amount_ns.mean()) * part.locked_ratio
        for part in model.parts
        if part.label is not None
    }
    whole = max(1.0, sum(held.values()))
    for label in labels - set(queued):
        effects[label] = max(0.0, effects[label] - together * held.get(label, 0.0) / whole)
    return effects | {label: together * ns / waited for label, ns in queued.items()}


def _effect(model: LoaderModel, labels: tuple[Label, ...]) -> float:
    """What 2 % less of some labels' work saves a step, ns; never negative."""
    faster = Change(scaled=tuple((label, 1.0 - SPEED_UP) for label in labels))
    slower = Change(scaled=tuple((label, 1.0 + SPEED_UP) for label in labels))
    saved_ns = mean_step_ns(edit(model, slower)) - mean_step_ns(edit(model, faster))
    return max(0.0, saved_ns / 2)


def removable_ratio(model: LoaderModel, contention: Contention) -> float:
    """Simulate how much of the waiting goes when nothing but the reason of the queueing goes, 0 to 1."""
    change = {
        Reason.QUOTA: Change(quota_removed=True),
        Reason.MASK: Change(cpus=contention.cpu_count),
        Reason.NEIGHBOUR: Change(neighbour_removed=True),
    }.get(contention.reason)
    if change is None:
        return 0.0
    now = model.simulated_ns
    free = mean_step_ns(edit(model, Change(data_free=True).joined(change)))
    if now <= free:
        return 0.0
    without = mean_step_ns(edit(model, change))
    return min(1.0, max(0.0, (now - without) / (now - free)))
