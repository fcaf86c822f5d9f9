"""Which recorded steps are simulated, and whose batch each of them got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.regimes import loader_of_steps

if TYPE_CHECKING:
    from whyidle.model.timeline import BoolArray, IntArray, RankTimeline

MAX_STEPS = 600
BLOCKS = 8
"""Of longer runs this many steps are simulated, in so many blocks: the mean of 600 steps is known to a 24th of
the spread of one, and the 40 simulations of a verdict take 1.2 s; with 1,200 a person waited 2.6 s for it."""
MIN_KNOWN_RATIO = 0.8
"""With less of the batches' making recorded the rest cannot be filled in by its neighbours."""


def all_steps(rank: RankTimeline, inside: BoolArray) -> IntArray:
    """Give the steps of the loader that fed most, those of the warm-up too."""
    loaders = loader_of_steps(rank)
    return np.flatnonzero(loaders == loaders[inside][0])


def spread_blocks(count: int) -> IntArray:
    """Of many steps take blocks, evenly spread, each in its recorded order; of few take all."""
    if count <= MAX_STEPS:
        return np.arange(count)
    length = MAX_STEPS // BLOCKS
    begins = np.linspace(0, count - length, BLOCKS).astype(np.int64)
    return np.unique(begins[:, None] + np.arange(length))


def rows_of(rank: RankTimeline, steps: IntArray) -> IntArray | None:
    """Row in `batches` of each step's batch; an unknown one is filled by its nearest known neighbour."""
    batches = rank.batches
    keys = zip(batches.iteration.tolist(), batches.batch.tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    asked = zip(
        rank.steps.iteration[steps].tolist(), rank.steps.batch[steps].tolist(), strict=True
    )
    rows = np.array([row_of.get(key, -1) for key in asked], dtype=np.int64)
    known = np.flatnonzero(rows >= 0)
    if len(known) < MIN_KNOWN_RATIO * len(rows):
        return None
    nearest = known[
        np.clip(np.searchsorted(known, np.arange(len(rows))), 0, len(known) - 1)
    ]
    return rows[nearest]
