"""`faster-storage`: the data lies somewhere faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.analysis.rules.reading import is_remote, reading_change, where_read
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LEFT_RATIO = 0.1
"""A local NVMe disk answers in 0.1 ms, a busy disk, a network mount or an object store in 1 to 50 ms: a tenth is
what may be promised without knowing both."""


def propose(case: Case) -> Iterator[Proposal]:
    """Move the data, where the workers wait for it."""
    causes = case.causes_of(Activity.STORAGE, Activity.NETWORK)
    if not causes:
        return
    yield Proposal(
        remedy="faster-storage",
        title="the data on a local disk"
        if is_remote(causes[0])
        else "the data on storage ten times as fast",
        how=f"Workers wait for {where_read(causes[0])}. Copy the data to a local NVMe disk before the training (or to "
        "a RAM disk if it fits), or mount with a cache. The forecast is for a tenth of the waiting.",
        where=causes[0].where,
        change=reading_change(causes, LEFT_RATIO, Change(storage_factor=LEFT_RATIO)),
    )
