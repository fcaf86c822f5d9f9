"""Timeline → when the device was idle, and on which side of next() the loop stood meanwhile.

Every idle nanosecond belongs to exactly one side, because the device works again only after the loop has launched:
what the loop did during a gap is what delayed the launch that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.contention import Reason
from whyidle.analysis.intervals import complement, covered_ns, intersect, unite
from whyidle.model.timeline import Intervals

if TYPE_CHECKING:
    from whyidle.model.timeline import RankTimeline

SERIES_SLICES = 60
"""Slices of the idle bar: fits 80 columns beside its label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSplit:
    """The idle time of one rank's device in the window. `in_loader` and `in_loop` add up to `idle`."""

    idle: Intervals
    in_loader: Intervals
    """The loop stood inside iter() or next(): input side."""
    in_loop: Intervals
    """The loop ran its own code."""
    ratio: float
    """Part of the window, 0 to 1."""
    series: tuple[float, ...]
    """Idle ratio in SERIES_SLICES equal slices of the window."""


def split_idle(rank: RankTimeline, contended_by: Reason) -> IdleSplit:
    """Find the idle time of a rank's device.

    For `cpu` (no accelerator) the loop outside the loader counts as busy, unless something that can be removed (a
    quota, a mask, a neighbour, surplus threads) kept its thread from the CPU; for `simulated` idle is what the
    device's own busy intervals leave free; for `cuda` it is what events on the device measured.
    """
    window = rank.window_start_ns, rank.window_end_ns
    if rank.device_idle is not None:
        idle = rank.device_idle
    elif rank.busy is not None:
        idle = complement(rank.busy, *window)
    elif contended_by in (Reason.NONE, Reason.OWN_WORK):
        idle = rank.in_loader
    else:
        idle = _in_loader_or_queued(rank)
    in_loader = intersect(idle, rank.in_loader)
    return IdleSplit(
        idle=idle,
        in_loader=in_loader,
        in_loop=intersect(idle, complement(rank.in_loader, *window)),
        ratio=idle.total_ns() / rank.window_ns if rank.window_ns else 0.0,
        series=_series(idle, *window),
    )


def _in_loader_or_queued(rank: RankTimeline) -> Intervals:
    """Add the times in which the loop's thread was ready without a CPU: as long as counted, before each look."""
    looks = rank.threads
    mine = (looks.pid == rank.pid) & (looks.tid == rank.pid) & (looks.runq_ns >= 0)
    now_ns, queued_ns = looks.now_ns[mine], np.diff(looks.runq_ns[mine])
    lengths = np.minimum(np.maximum(queued_ns, 0), np.diff(now_ns))
    return unite(
        np.append(rank.in_loader.start_ns, now_ns[1:] - lengths),
        np.append(rank.in_loader.end_ns, now_ns[1:]),
        rank.window_start_ns,
        rank.window_end_ns,
    )


def _series(idle: Intervals, start_ns: int, end_ns: int) -> tuple[float, ...]:
    if end_ns <= start_ns:
        return ()
    edges = np.linspace(start_ns, end_ns, SERIES_SLICES + 1).astype(np.int64)
    lengths = np.maximum(np.diff(edges), 1)
    return tuple((covered_ns(idle, edges[:-1], edges[1:]) / lengths).round(4).tolist())
