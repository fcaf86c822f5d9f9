"""`parallel-reads`: reads within a batch overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.analysis.rules.reading import where_read
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

THREADS = (4, 8)
"""Requests of one worker at a time: file servers and object stores take tens from one machine without slowing down."""


def propose(case: Case) -> Iterator[Proposal]:
    """Overlap the reads of a batch, where workers wait for one answer at a time."""
    causes = case.causes_of(Activity.STORAGE, Activity.NETWORK)
    if not causes or not case.loader or case.loader.iterable or case.loader.batch_size < 2:
        return
    for threads in THREADS:
        yield Proposal(
            remedy="parallel-reads",
            title=f"{threads} reads of a batch at once",
            how=f"Each worker waits for one answer at a time ({where_read(causes[0])}). Give the data set a method "
            "`__getitems__(self, indices)`, which torch 2 calls with a whole batch: `return "
            f"list(self.pool.map(self.__getitem__, indices))`, with a ThreadPoolExecutor({threads}) made at a worker's "
            "first call. Threads wait side by side; computing stays one at a time.",
            where=causes[0].where,
            change=Change(parallel_reads=threads),
            cost=threads,
        )
