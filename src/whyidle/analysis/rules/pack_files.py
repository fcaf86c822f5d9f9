"""`pack-files`: many small files become few large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.analysis.rules.reading import reading_change, where_read
from whyidle.model.findings import Activity
from whyidle.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

SMALL_BYTES = 1_000_000
"""Below a megabyte a file's opening and its first answer cost more than its bytes (1 MB at 500 MB/s takes 2 ms)."""
LEFT_RATIO = 0.1
"""One request for ten samples: shards hold hundreds, and read ahead."""


def propose(case: Case) -> Iterator[Proposal]:
    """Pack, where the workers wait for many small answers."""
    causes = case.causes_of(Activity.STORAGE, Activity.NETWORK)
    if not causes or not case.loader or case.loader.iterable:
        return
    size = case.batch_bytes / max(1, case.loader.batch_size)
    if size > SMALL_BYTES:
        return
    yield Proposal(
        remedy="pack-files",
        title="few large files instead of many small ones",
        how=f"A sample is {format_bytes(size)}, so a read is waiting more than moving bytes ({where_read(causes[0])}). "
        "Pack samples into files of 100 MB and more (tar shards as WebDataset reads them, one .npy that is mapped, "
        "LMDB), and read them in sequence, shuffling shards and within a buffer. The forecast is for a tenth of the "
        "waiting.",
        where=causes[0].where,
        change=reading_change(causes, LEFT_RATIO, Change()),
    )
