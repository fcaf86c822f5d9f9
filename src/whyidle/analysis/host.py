"""Idle time while the loop ran its own code: which code, in every step or only in some, or a needless wait.

The device had nothing to do although no batch was missing: metrics, logging, checkpoints, evaluation, launching too
slowly, a synchronising call that keeps the loop from running ahead, another rank that is late.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.intervals import contains, covered_ns, intersect, unite
from whyidle.analysis.ledger import Blame
from whyidle.analysis.places import WeightedStack, find_hot_places, is_library
from whyidle.model.codes import Mark, StackFlag, StackRole
from whyidle.model.findings import Activity, Place

if TYPE_CHECKING:
    from whyidle.analysis.idle import IdleSplit
    from whyidle.analysis.places import HotPlace
    from whyidle.model.timeline import BoolArray, Frame, IntArray, Intervals, RankTimeline

OUTLIER_FACTOR = 3.0
"""A step with this many times the median idle time is one of few. Steady host code varies by less than 2."""
OUTLIER_FLOOR_NS = 1_000_000
"""And by at least 1 ms: below, scheduling noise alone makes factors of 3."""
FEW_STEPS_RATIO = 0.5
"""Few steps are at most this part of all."""
PERIODIC_SHARE = 0.3
"""Few steps matter when they hold this part of the loop's idle time."""
MANY_GAPS = 3.0
"""Gaps a step from which the loop issues its work too slowly: one gap is the turn of the step, two are a step in
two halves."""
SYNC_STEPS_RATIO = 0.5
"""A synchronising call in this part of the steps belongs to the loop."""
DOMINANT_RATIO = 0.5
"""One place with this part of the loop's idle time is the reason itself; below, the loop's ordinary code is spread
out and what exposes it is the wait before it."""
MIN_SAMPLES = 5


def blame_loop(rank: RankTimeline, split: IdleSplit) -> list[Blame]:
    """Deal out the idle time on the loop's side; the answer adds up to `split.in_loop`."""
    gaps = split.in_loop
    if not len(gaps):
        return []
    collective = intersect(gaps, _marked(rank, Mark.COLLECTIVE))
    blames = [_blame(Activity.COLLECTIVE, Place(), collective.total_ns())]
    rest_ns = gaps.total_ns() - collective.total_ns()
    few = _few_steps(rank, gaps)
    few_ns = float(covered_ns(gaps, few.start_ns, few.end_ns).sum())
    periodic_ns = (
        min(few_ns, rest_ns) if few_ns >= PERIODIC_SHARE * gaps.total_ns() else 0.0
    )
    inside = _samples_in(rank, gaps)
    in_few = inside & contains(few, rank.stack_samples.now_ns)
    if periodic_ns:
        blames += _python(periodic_ns, _places(rank, in_few), is_periodic=True)
        inside = inside & ~in_few
    blames += _steady(rank, split, rest_ns - periodic_ns, _places(rank, inside))
    return [_as_transport(rank, blame) for blame in blames if blame.idle_ns > 0]


def _as_transport(rank: RankTimeline, blame: Blame) -> Blame:
    """See time spent at the loop's own `for` line outside next() for what it is: letting go of the last batch.

    Its name is bound to the new batch there, and the old one's shared memory is given back, page by page.
    """
    line = blame.where.file, blame.where.line
    is_release = any(
        line == (one.loop_file, one.loop_line) for one in rank.iterations.values()
    )
    if blame.activity is not Activity.PYTHON or not is_release:
        return blame
    return Blame(
        activity=Activity.TRANSPORT,
        where=Place(),
        idle_ns=blame.idle_ns,
        is_input=True,
        is_serial=True,
    )


def _blame(
    activity: Activity,
    where: Place,
    idle_ns: float,
    *,
    is_periodic: bool = False,
    sample_count: int = 0,
) -> Blame:
    return Blame(activity=activity, where=where, idle_ns=idle_ns, is_input=False,
                 is_periodic=is_periodic, sample_count=sample_count)  # fmt: skip


def _marked(rank: RankTimeline, mark: int) -> Intervals:
    marks = rank.marks
    chosen = marks.mark == mark
    return unite(
        marks.start_ns[chosen],
        marks.end_ns[chosen],
        rank.window_start_ns,
        rank.window_end_ns,
    )


def _host_edges(rank: RankTimeline) -> tuple[IntArray, IntArray]:
    """Each step's own code: from its batch to the next batch (loader time in between is not in the gaps)."""
    got_ns = rank.steps.got_ns[rank.steps.got_ns >= rank.window_start_ns]
    return got_ns, np.append(got_ns[1:], rank.window_end_ns)


def _few_steps(rank: RankTimeline, gaps: Intervals) -> Intervals:
    """Find the steps whose code left the device idle far longer than usual."""
    start_ns, end_ns = _host_edges(rank)
    idle_ns = covered_ns(gaps, start_ns, end_ns)
    usual_ns = float(np.median(idle_ns)) if len(idle_ns) else 0.0
    high = idle_ns > OUTLIER_FACTOR * usual_ns + OUTLIER_FLOOR_NS
    if not 2 <= high.sum() <= FEW_STEPS_RATIO * len(high):
        high[:] = False
    return unite(start_ns[high], end_ns[high], rank.window_start_ns, rank.window_end_ns)


def _samples_in(rank: RankTimeline, gaps: Intervals) -> BoolArray:
    samples = rank.stack_samples
    in_loop = (samples.role == StackRole.LOOP) & ((samples.flags & StackFlag.IN_NEXT) == 0)
    return np.asarray(in_loop & contains(gaps, samples.now_ns), dtype=bool)


def _places(rank: RankTimeline, chosen: BoolArray) -> list[HotPlace]:
    samples = rank.stack_samples
    loop = _loop_function(rank)
    return find_hot_places(
        WeightedStack(
            _from_loop(rank.stacks[samples.stack[number]], loop),
            float(samples.weight_ns[number]),
        )
        for number in np.flatnonzero(chosen).tolist()
    )


def _loop_function(rank: RankTimeline) -> tuple[str, str] | None:
    """The function that calls next(): the innermost own frame of the samples inside next()."""
    samples = rank.stack_samples
    inside = (samples.role == StackRole.LOOP) & ((samples.flags & StackFlag.IN_NEXT) != 0)
    inside &= (samples.flags & StackFlag.IN_FETCH) == 0
    seen: Counter[tuple[str, str]] = Counter()
    for number in np.flatnonzero(inside).tolist():
        own = [
            frame
            for frame in rank.stacks[samples.stack[number]]
            if not is_library(frame.file)
        ]
        if own:
            seen[own[-1].file, own[-1].function] += 1
    return seen.most_common(1)[0][0] if seen else None


def _from_loop(
    frames: tuple[Frame, ...], loop: tuple[str, str] | None
) -> tuple[Frame, ...]:
    for depth, frame in enumerate(frames):
        if (frame.file, frame.function) == loop:
            return frames[depth:]
    return frames


def _python(idle_ns: float, places: list[HotPlace], *, is_periodic: bool) -> list[Blame]:
    whole = sum(hot.weight_ns for hot in places)
    if whole <= 0:
        return [_blame(Activity.PYTHON, Place(), idle_ns, is_periodic=is_periodic)]
    return [
        _blame(Activity.PYTHON, hot.place, idle_ns * hot.weight_ns / whole,
               is_periodic=is_periodic, sample_count=hot.sample_count)
        for hot in places
    ]  # fmt: skip


def _steady(
    rank: RankTimeline, split: IdleSplit, idle_ns: float, places: list[HotPlace]
) -> list[Blame]:
    """Name what every step has: slow launching, a needless wait for the device, or plainly slow code."""
    steps = max(1, len(rank.steps) - rank.warmup_steps)
    whole = sum(hot.weight_ns for hot in places)
    dominant = places[0].weight_ns / whole if whole else 0.0
    is_spread = (
        dominant < DOMINANT_RATIO or sum(hot.sample_count for hot in places) < MIN_SAMPLES
    )
    if is_spread and len(split.in_loop) / steps >= MANY_GAPS:
        return [_blame(Activity.LAUNCH, places[0].place if places else Place(), idle_ns)]
    sync = _sync_place(rank, steps)
    if is_spread and sync is not None and _would_hide(rank, split, steps):
        return [_blame(Activity.SYNC, sync, idle_ns)]
    return _python(idle_ns, places, is_periodic=False)


def _sync_place(rank: RankTimeline, steps: int) -> Place | None:
    """Line of the loop's most frequent synchronising call; None when it is not in most steps."""
    marks = rank.marks
    chosen = (marks.mark == Mark.SYNC) & (marks.start_ns >= rank.window_start_ns)
    if chosen.sum() < SYNC_STEPS_RATIO * steps:
        return None
    (file, line), _ = Counter(
        zip(marks.file[chosen], marks.line[chosen].tolist(), strict=True)
    ).most_common(1)[0]
    return Place(file=file, line=line if line > 0 else None)


def _would_hide(rank: RankTimeline, split: IdleSplit, steps: int) -> bool:
    """Without the wait the loop runs ahead: its own time disappears behind the device's when it is the shorter."""
    host_ns = split.in_loop.total_ns() / steps
    device_ns = (rank.window_ns - split.idle.total_ns()) / steps
    return host_ns < device_ns
