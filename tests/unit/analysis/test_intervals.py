"""Interval arithmetic keeps lengths."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.timelines import intervals, ints
from whyidle.analysis.intervals import complement, contains, covered_ns, intersect, unite

EDGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=12)


def _as_set(track) -> set[int]:
    return {
        moment
        for start, end in zip(track.start_ns, track.end_ns, strict=True)
        for moment in range(start, end)
    }


def _united(pairs):
    starts = ints(*(start for start, _ in pairs))
    return unite(starts, starts + ints(*(length for _, length in pairs)), 0, 260)


@given(EDGES)
def test_unite_covers_exactly_what_the_intervals_cover(pairs) -> None:
    """Uniting loses nothing, adds nothing and leaves no overlap."""
    track = _united(pairs)

    assert _as_set(track) == {
        moment for start, length in pairs for moment in range(start, start + length)
    }
    assert (track.start_ns[1:] > track.end_ns[:-1]).all()


@given(EDGES)
def test_complement_and_track_tile_the_window(pairs) -> None:
    """Busy and idle add up to the window."""
    track = _united(pairs)

    assert track.total_ns() + complement(track, 0, 260).total_ns() == 260


@given(EDGES, EDGES)
def test_intersect_is_what_both_cover(left, right) -> None:
    """A moment is in the intersection when it is in both."""
    both = intersect(_united(left), _united(right))

    assert _as_set(both) == _as_set(_united(left)) & _as_set(_united(right))


@given(EDGES, st.integers(0, 259), st.integers(0, 60))
def test_covered_counts_the_moments_inside(pairs, start: int, length: int) -> None:
    """The covered length of an interval is the number of covered moments in it."""
    track = _united(pairs)

    found = covered_ns(track, ints(start), ints(start + length))

    assert found[0] == len(_as_set(track) & set(range(start, start + length)))


def test_contains_is_half_open() -> None:
    """The start belongs to an interval, the end does not."""
    found = contains(intervals((10, 20)), ints(9, 10, 19, 20))

    assert found.tolist() == [False, True, True, False]


def test_contains_of_nothing_is_nowhere() -> None:
    """An empty track holds no moment."""
    assert not contains(intervals(), np.arange(5)).any()
