"""`lower-workers`: fewer loader workers, where they are in one another's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal, plural
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Try half the workers, and as many as there are CPUs."""
    if case.loader is None or case.loader.workers < 2:
        return
    now = case.loader.workers
    for count in sorted({now // 2, case.contention.allowed_count, now - 1}):
        if 0 < count < now:
            yield Proposal(
                remedy="lower-workers",
                title=f"{plural(count)} instead of {now}",
                how=f"Set num_workers={count} in {case.loader_name}: the present ones take CPUs from one another and "
                "from the loop.",
                where=case.built_at,
                change=Change(workers=count),
                automatic=True,
                settings=make_settings({"num_workers": count}),
                cost=-count,
            )
