"""`remove-lock`: workers no longer wait for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal, name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Take the lock away, where workers wait for it."""
    for cause in case.causes_of(Activity.LOCK)[:1]:
        line = case.source_line(cause.where)
        seen = f": `{line}`" if line else ""
        yield Proposal(
            remedy="remove-lock",
            title="no lock shared by the workers",
            how=f"Workers wait for one another in {name_place(cause.where)}{seen}. Give each worker its own: "
            "open files and connections in the worker (worker_init_fn, or at first use) instead of sharing them, keep "
            "the locked part as short as it can be, or use a format that is read without a lock.",
            where=cause.where,
            change=Change(lock_removed=True),
        )
