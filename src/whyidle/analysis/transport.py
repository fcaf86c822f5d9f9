"""Moving batches: what it costs by itself, and what it costs because a worker holds its interpreter lock.

NOTE [handing over needs the worker's interpreter]
    A finished batch is pickled by a thread of the worker, and each tensor in it is fetched by the loop from another
    thread of the worker. Both need the worker's interpreter lock, which a worker that runs Python code of its next
    batch gives up only every 5 ms (sys.getswitchinterval). So a Python loop in the data set also makes handing over
    slow, and the cure is the loop, not the hand-over: that time belongs to the code that held the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.intervals import covered_ns
from whyidle.analysis.path import PathKind
from whyidle.model.timeline import Intervals

if TYPE_CHECKING:
    from whyidle.analysis.path import Path
    from whyidle.model.timeline import Batches, IntArray, RankTimeline


@dataclass(frozen=True, slots=True)
class Transport:
    """Time on the path spent moving batches, ns."""

    own_ns: float
    """Pickling, copying, reading and unpickling themselves."""
    held_ns: float
    """Blocked while the sending worker computed its next batch."""


def split_transport(rank: RankTimeline, path: Path) -> Transport:
    """Part the path's hand-overs into their own cost and waiting for the sender's interpreter."""
    batches = rank.batches
    total_ns, held_ns = 0.0, 0.0
    for kind, cpu_ns in (
        (PathKind.HANDOFF, batches.handoff_cpu_ns),
        (PathKind.RECEIVE, batches.receive_cpu_ns),
        (PathKind.TURN, None),
    ):
        chosen = path.kind == kind
        total_ns += float(path.length_ns[chosen].sum())
        known = chosen & (path.row >= 0)
        if cpu_ns is not None and known.any() and (batches.worker >= 0).any():
            rows = path.row[known]
            blocked_ns = np.maximum(path.length_ns[known] - np.maximum(cpu_ns[rows], 0), 0)
            computing = _sender_computes(
                rank, rows, path.start_ns[known], path.end_ns[known]
            )
            held_ns += float((blocked_ns * computing).sum())
    return Transport(own_ns=total_ns - held_ns, held_ns=held_ns)


def _sender_computes(
    rank: RankTimeline, rows: IntArray, start_ns: IntArray, end_ns: IntArray
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Part of each interval in which the worker that made a batch was on a CPU in another fetch, 0 to 1."""
    batches = rank.batches
    part = np.zeros(len(rows))
    for pid in np.unique(batches.pid[rows]).tolist():
        mine = batches.pid[rows] == pid
        fetches, on_cpu_ratio = _fetches_of(batches, pid)
        covered = covered_ns(fetches, start_ns[mine], end_ns[mine])
        part[mine] = on_cpu_ratio * covered / np.maximum(end_ns[mine] - start_ns[mine], 1)
    return part


def _fetches_of(batches: Batches, pid: int) -> tuple[Intervals, float]:
    rows = np.flatnonzero(batches.pid == pid)
    rows = rows[np.argsort(batches.start_ns[rows])]
    wall_ns = int((batches.end_ns - batches.start_ns)[rows].sum())
    awake_ns = (
        np.maximum(batches.cpu_ns[rows], 0).sum()
        + np.maximum(batches.runq_ns[rows], 0).sum()
    )
    track = Intervals(start_ns=batches.start_ns[rows], end_ns=batches.end_ns[rows])
    return track, float(awake_ns / wall_ns) if wall_ns else 0.0
