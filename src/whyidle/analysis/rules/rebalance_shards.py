"""`rebalance-shards`: every worker gets as much data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Deal the data out evenly, where some workers have none."""
    active, workers = case.stance.active_workers, case.stance.workers
    if case.loader is None or not case.loader.iterable or active >= workers:
        return
    yield Proposal(
        remedy="rebalance-shards",
        title=f"data for all {workers} workers, not for {active}",
        how=f"Only {active} of {workers} workers have something to load. Make as many shards as workers or a multiple "
        "of it, or deal out samples instead of shards: in `__iter__`, take every "
        "`get_worker_info().num_workers`-th sample from `get_worker_info().id` on.",
        where=case.built_at,
        change=Change(rebalanced=True),
    )
