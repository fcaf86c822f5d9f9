"""Arithmetic on sorted, disjoint intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.model.timeline import Intervals

if TYPE_CHECKING:
    from whyidle.model.timeline import IntArray


def unite(
    start_ns: IntArray, end_ns: IntArray, window_start_ns: int, window_end_ns: int
) -> Intervals:
    """Unite intervals that may overlap and cut them to a window.

    Args:
        start_ns: (n,) int64, any order.
        end_ns: (n,) int64, `end_ns >= start_ns`.
        window_start_ns: What lies before is cut off.
        window_end_ns: What lies behind is cut off.
    """
    order = np.argsort(start_ns, kind="stable")
    starts = np.clip(start_ns[order], window_start_ns, window_end_ns)
    ends = np.clip(end_ns[order], window_start_ns, window_end_ns)
    kept = ends > starts
    starts, ends = starts[kept], np.maximum.accumulate(ends[kept])
    is_first = np.ones(len(starts), dtype=bool)
    is_first[1:] = starts[1:] > ends[:-1]
    is_last = np.append(is_first[1:], np.ones(min(1, len(starts)), dtype=bool))
    return Intervals(start_ns=starts[is_first], end_ns=ends[is_last])


def complement(track: Intervals, window_start_ns: int, window_end_ns: int) -> Intervals:
    """Give what a track leaves free of a window that it lies in."""
    starts = np.concatenate(([window_start_ns], track.end_ns)).astype(np.int64)
    ends = np.concatenate((track.start_ns, [window_end_ns])).astype(np.int64)
    kept = ends > starts
    return Intervals(start_ns=starts[kept], end_ns=ends[kept])


def covered_ns(track: Intervals, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Measure how much of each given interval a track covers.

    Args:
        track: Sorted and disjoint.
        start_ns: (n,) int64.
        end_ns: (n,) int64.

    Returns:
        (n,) int64 ns.

    >>> track = Intervals(start_ns=np.array([0, 10]), end_ns=np.array([5, 20]))
    >>> covered_ns(track, np.array([3]), np.array([12])).tolist()
    [4]
    """
    return _covered_until(track, end_ns) - _covered_until(track, start_ns)


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Give the time that lies in both tracks."""
    if not len(left) or not len(right):
        empty = np.empty(0, dtype=np.int64)
        return Intervals(start_ns=empty, end_ns=empty)
    edges = np.unique(
        np.concatenate((left.start_ns, left.end_ns, right.start_ns, right.end_ns))
    )
    starts, ends = edges[:-1], edges[1:]
    both = (covered_ns(left, starts, ends) > 0) & (covered_ns(right, starts, ends) > 0)
    return unite(starts[both], ends[both], int(edges[0]), int(edges[-1]))


def contains(
    track: Intervals, when_ns: IntArray
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Tell for each moment whether it lies in the track."""
    number = np.searchsorted(track.start_ns, when_ns, "right") - 1
    inside = number >= 0
    if len(track):
        inside &= when_ns < track.end_ns[np.maximum(number, 0)]
    return np.asarray(inside, dtype=bool)


def _covered_until(track: Intervals, when_ns: IntArray) -> IntArray:
    if not len(track):
        return np.zeros(len(when_ns), dtype=np.int64)
    lengths = track.end_ns - track.start_ns
    before = np.concatenate(([0], np.cumsum(lengths)))
    number = np.searchsorted(track.start_ns, when_ns, "right")
    last = np.maximum(number - 1, 0)
    partial = np.clip(when_ns - track.start_ns[last], 0, lengths[last])
    return np.where(number > 0, before[last] + partial, 0).astype(np.int64)
