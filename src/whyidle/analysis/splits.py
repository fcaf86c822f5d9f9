"""How each worker spent the window: on a CPU, waiting for one, blocked, or with nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.model.findings import WorkerSplit

if TYPE_CHECKING:
    from whyidle.model.timeline import RankTimeline


def split_workers(rank: RankTimeline) -> tuple[WorkerSplit, ...]:
    """Split the window of each worker four ways; the parts add up to 1.

    Counted are the fetches: what a worker does between two of them (putting a batch away) counts as idle.
    Empty for num_workers=0.
    """
    batches = rank.batches
    inside = (batches.start_ns >= rank.window_start_ns) & (
        batches.end_ns <= rank.window_end_ns
    )
    splits = []
    for worker in np.unique(batches.worker[inside & (batches.worker >= 0)]).tolist():
        rows = inside & (batches.worker == worker)
        wall_ns = int((batches.end_ns - batches.start_ns)[rows].sum())
        cpu_ns = int(np.maximum(batches.cpu_ns[rows], 0).sum())
        queue_ns = int(np.maximum(batches.runq_ns[rows], 0).sum())
        window_ns = max(rank.window_ns, wall_ns, 1)
        blocked_ns = max(0, wall_ns - cpu_ns - queue_ns)
        splits.append(
            WorkerSplit(
                rank=rank.rank,
                worker=worker,
                on_cpu_ratio=cpu_ns / window_ns,
                cpu_queue_ratio=queue_ns / window_ns,
                blocked_ratio=blocked_ns / window_ns,
                idle_ratio=1 - (cpu_ns + queue_ns + blocked_ns) / window_ns,
            )
        )
    return tuple(splits)
