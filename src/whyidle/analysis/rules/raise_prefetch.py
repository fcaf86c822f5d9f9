"""`raise-prefetch`: more batches made ahead by each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Limit, Regime
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

FACTORS = (2, 4)
"""A queue twice and four times as long: longer ones hold more memory than most machines want to give."""
UNEVEN = (Regime.HEAD_OF_LINE, Regime.BURSTY, Regime.EPOCH_START, Regime.PERIODIC)


def propose(case: Case) -> Iterator[Proposal]:
    """Try deeper queues."""
    if case.loader is None or case.loader.workers == 0:
        return
    now = max(1, case.loader.prefetch)
    for factor in FACTORS:
        yield Proposal(
            remedy="raise-prefetch",
            title=f"{factor * now} batches ahead of each worker instead of {now}",
            how=f"Set prefetch_factor={factor * now} in {case.loader_name}. It costs the memory of "
            f"{(factor - 1) * now * case.loader.workers} more batches.",
            where=case.built_at,
            change=Change(prefetch=factor * now),
            automatic=True,
            settings=make_settings({"prefetch_factor": factor * now}),
            cost=factor,
            is_common=True,
            in_vain=_why_not(case),
        )


def _why_not(case: Case) -> str:
    if case.limit is Limit.HOST:
        return "batches are there when they are asked for"
    if case.causes and case.causes[0].regime in UNEVEN:
        return "the slow stretches are longer than any queue"
    return "the workers never get ahead: a deeper queue would stay empty"
