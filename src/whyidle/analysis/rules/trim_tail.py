"""`trim-tail`: the slowest samples become cheaper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.forecast import Change
from whyidle.analysis.loader_model import Label
from whyidle.analysis.rules.case import Proposal, name_place
from whyidle.model.findings import Activity, Regime
from whyidle.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

TAIL_RATIO = 2.0
"""A batch at the 95th percentile that takes twice the median is a tail (even batches: up to 1.4)."""
UNEVEN = (Regime.HEAD_OF_LINE, Regime.BURSTY)
MADE = (Activity.COMPUTE, Activity.STORAGE, Activity.NETWORK, Activity.SLEEP)


def propose(case: Case) -> Iterator[Proposal]:
    """Bound what the slowest batches spend in the causes, where batches are uneven."""
    length_ns = case.rank.batches.end_ns - case.rank.batches.start_ns
    if len(length_ns) < 2 or case.loader is None or case.loader.workers == 0:
        return
    median, tail = np.percentile(length_ns, (50, 95))
    causes = [
        one
        for one in case.causes_of(*MADE)
        if one.regime in UNEVEN or tail > TAIL_RATIO * max(1.0, median)
    ]
    if not causes:
        return
    slowest = int(length_ns.argmax())
    number = int(case.rank.batches.batch[slowest])
    yield Proposal(
        remedy="trim-tail",
        title="bound the slowest samples",
        how=f"Batch {number} took {format_ns(int(length_ns[slowest]))}, the median is {format_ns(float(median))}, "
        f"mostly in {name_place(causes[0].where)}. Find what its samples have in common (size, length, number of "
        "objects, a file that is retried) and bound it: resize or crop beforehand, set a timeout, leave it out. The "
        "forecast is for no batch slower than today's 95th percentile.",
        where=causes[0].where,
        change=Change(trimmed=tuple(Label.of(one) for one in causes)),
    )
