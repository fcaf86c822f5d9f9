"""`cache-samples`: what was read once is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.loader_model import Label
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Activity
from whyidle.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case
    from whyidle.model.findings import Cause

MAX_BYTES = 64_000_000_000
"""More than 64 GB of samples fit few memories; that is a matter of storage, not of a cache."""

DECODING = re.compile(
    r"Image\.open|imread|decode|np\.load\(|json\.loads?\(|read_(image|annotation|csv|file)|\.convert\("
)
"""Source lines that turn a file into arrays."""


def propose(case: Case) -> Iterator[Proposal]:
    """Keep samples in memory, where the same ones are read again in each epoch of the run."""
    causes = case.causes_of(Activity.STORAGE, Activity.NETWORK)
    causes += [one for one in case.causes_of(Activity.COMPUTE) if _decodes(case, one)]
    size = _epoch_bytes(case)
    if not causes or size is None or size > MAX_BYTES:
        return
    yield Proposal(
        remedy="cache-samples",
        title="read and decode each sample once, and keep it",
        how=f"Keep what is read, {format_bytes(size)} of tensors an epoch, in memory that all workers share (a tensor "
        "made with `share_memory_()` and filled in the first epoch, or files on a RAM disk) or on a local disk, as it "
        "is before random augmentation. The first epoch stays as it is.",
        where=causes[0].where,
        change=Change(scaled=tuple((Label.of(one), 0.0) for one in causes)),
    )


def _decodes(case: Case, cause: Cause) -> bool:
    """Tell whether a cause turns files into arrays, the same in each epoch."""
    return DECODING.search(case.source_line(cause.where) or "") is not None


def _epoch_bytes(case: Case) -> float | None:
    """Size of one whole epoch; None where no epoch was seen from its beginning to its end."""
    if case.loader is None or case.batch_bytes <= 0:
        return None
    passes = sorted(
        one.iteration
        for one in case.rank.iterations.values()
        if one.loader == case.loader.loader
    )
    if len(passes) < 2:
        return None
    batches = int((case.rank.steps.iteration == passes[0]).sum())
    return batches * case.batch_bytes if batches else None
