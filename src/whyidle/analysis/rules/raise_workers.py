"""`raise-workers`: more loader workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.regimes import SPARE_CPUS
from whyidle.analysis.rules.case import Proposal, plural
from whyidle.model.findings import Activity, Limit, Regime
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

MAX_WORKERS = 32
"""More are rarely seen: each holds the data set's objects and its own batches in memory."""
BLOCKED = frozenset((Activity.STORAGE, Activity.NETWORK, Activity.SLEEP, Activity.LOCK))
WHY_NOT = {
    Regime.SERIAL_STAGE: "batches pass through one place, one at a time",
    Regime.CONTENDED: "the CPUs are in use: more workers would only queue",
    Regime.LOCK_BOUND: "workers wait for one another at a lock",
    Regime.INACTIVE_WORKERS: "some of the present ones have nothing to load already",
    Regime.EPOCH_START: "they would start just as late",
}
"""By the regime of the first cause."""


def propose(case: Case) -> Iterator[Proposal]:
    """Try larger numbers of workers: up to the CPUs where they compute, beyond where they wait."""
    if case.loader is None:
        return
    now = case.loader.workers
    for count in _candidates(case, now):
        each = "" if now else " so that batches are made while the device works"
        yield Proposal(
            remedy="raise-workers",
            title=f"{plural(count)} instead of {now}",
            how=f"Set num_workers={count} in {case.loader_name}{each}. Each worker is a process with its own copy of "
            "what the data set holds.",
            where=case.built_at,
            change=Change(workers=count),
            automatic=True,
            settings=make_settings({"num_workers": count}),
            cost=count,
            is_common=True,
            in_vain=_why_not(case),
        )


def _candidates(case: Case, now: int) -> list[int]:
    cpus = case.contention.allowed_count
    waits = any(one.activity in BLOCKED for one in case.causes[:2])
    most = min(MAX_WORKERS, max(4 * max(now, 1), cpus) if waits else max(2 * now, cpus))
    wanted = {max(1, cpus // 2), cpus, now + 1, 2 * now, 3 * now, 4 * now}
    return sorted(count for count in wanted if now < count <= most)


def _why_not(case: Case) -> str:
    if case.limit is Limit.HOST:
        return "the loop's own code takes the time, not the loader"
    if case.causes and case.causes[0].regime in WHY_NOT:
        return WHY_NOT[case.causes[0].regime]
    if (case.stance.spare_cpus or 0.0) < SPARE_CPUS:
        return WHY_NOT[Regime.CONTENDED]
    return "the present ones have time left"
