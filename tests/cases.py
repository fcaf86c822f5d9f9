"""Evidence for rules: a simulated loader's rank, with causes, contention and sources by keyword."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.timelines import MS, SimulatedLoader
from whyidle.analysis.contention import Contention, Reason
from whyidle.analysis.regimes import Stance
from whyidle.analysis.rules.case import Case, Source
from whyidle.model.findings import Limit

if TYPE_CHECKING:
    from whyidle.model.findings import Cause


def make_contention(reason: Reason = Reason.NONE, **changes: Any) -> Contention:
    """Two CPUs of eight, as no rule but that for the reason looks at them."""
    plain = Contention(
        reason=reason, queue_ratio=0.3, loop_queue_ratio=0.0, loop_queued_ns=0, throttled_ratio=0.9,
        runnable_threads=4.0, tree_cpus=2.0, other_cpus=1.5, allowed_count=4, cpu_count=8, neighbour="backup",
    )  # fmt: skip
    return replace(plain, **changes)


def make_stance(**changes: Any) -> Stance:
    """Two workers, both at work, two CPUs to spare."""
    plain = Stance(
        workers=2, active_workers=2, head_of_line_ratio=0.0, is_bursty=False, wait_ns=0, spare_cpus=2.0,
        disk_busy_ratio=None,
    )  # fmt: skip
    return replace(plain, **changes)


def make_case(
    *causes: Cause,
    work_ms: float = 80,
    slow_ms: float = 80,
    sources: dict[str, str] | None = None,
    loader: dict[str, Any] | None = None,
    rank: dict[str, Any] | None = None,
    payload: dict[str, int] | None = None,
    **changes: Any,
) -> Case:
    """A starved loader of two workers.

    Args:
        causes: What it waits for.
        work_ms: Work of most batches.
        slow_ms: Work of each tenth batch.
        sources: Text of files.
        loader: Changes to the pass.
        rank: Changes to the rank.
        payload: Size and number of tensors of each batch.
        changes: To the case.
    """
    work = np.full((60, 1), work_ms * MS)
    work[::10] = slow_ms * MS
    made = SimulatedLoader(work, np.full(60, 10.0 * MS), 2, 2).rank()
    made = replace(made, **(rank or {}))
    batches = {name: np.full(60, value) for name, value in (payload or {}).items()}
    made = replace(made, batches=replace(made.batches, **batches))
    texts = sources or {}
    plain = Case(
        limit=Limit.INPUT,
        causes=causes,
        rank=made,
        loader=replace(made.iterations[1], **(loader or {})),
        stance=make_stance(),
        contention=make_contention(),
        torch="2.13.0",
        read_source=lambda file: Source(texts.get(file), "no such file"),
    )
    return replace(plain, **changes)
