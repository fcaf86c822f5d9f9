"""The critical path: from the last batch back to the start of the window, always to what was really waited for.

NOTE [critical path]
    The loader is a max-plus system: a batch is handed over when the later of two things has happened, the ask and
    the arrival; it is made when the later of two things has happened, its indices came and its worker was free.
    Walking back along the later one gives a chain of segments that tiles the window. In such a system the part of
    the chain that a piece of work takes is, to first order, the part of the run that speeding it up would save,
    as long as the length of one piece does not depend on the others. Under contention for CPUs it does:
    `contention` corrects for that.

What a worker happened to do while the loop waited is not on this chain: blaming it is the classic mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whyidle.model.timeline import IntArray, RankTimeline

TURN_SLACK_NS = 1_000_000
"""Where it is not known when the loop sent a batch's indices: a worker that got them up to 1 ms after its last
fetch did not wait for the loop. Putting a batch away and taking up indices costs 60 to 250 us on two busy CPUs."""


class PathKind(IntEnum):
    """What a segment of the path is."""

    STEP = 0
    """The loop's own code."""
    FETCH = 1
    """A batch being made, in a worker or in the loop (num_workers=0)."""
    HANDOFF = 2
    """A finished batch on its way: pickled, written to the pipe."""
    RECEIVE = 3
    """The loop inside next() with its batch there: reading, unpickling, also of batches not yet wanted."""
    SAMPLER = 4
    """The loop inside next() drawing indices."""
    STARTUP = 5
    """An iteration being set up or torn down: workers start, import, open their data."""
    TURN = 6
    """A worker between two fetches: putting a batch away, taking up indices."""
    UNKNOWN = 7
    """Inside next(), for a reason that was not recorded."""


INPUT_KINDS = tuple(kind for kind in PathKind if kind is not PathKind.STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The critical path of one rank, (segments,) each, latest first; neighbours touch."""

    kind: IntArray
    """PathKind."""
    start_ns: IntArray
    end_ns: IntArray
    row: IntArray
    """Row of the batch in `rank.batches`; -1 where none is meant."""

    @property
    def length_ns(self) -> IntArray:
        """Length of each segment."""
        return self.end_ns - self.start_ns

    def total_ns(self, kind: PathKind) -> int:
        """Add up the segments of a kind."""
        return int(self.length_ns[self.kind == kind].sum())


def walk_path(rank: RankTimeline) -> Path:
    """Walk the critical path of a rank through its window.

    Returns:
        A Path whose segments add up to the window exactly; empty without steps.
    """
    walker = _Walker(rank)
    if len(rank.steps):
        walker.walk()
    return walker.path()


class _Walker:
    """One walk; `now` only ever falls."""

    def __init__(self, rank: RankTimeline) -> None:
        steps, batches = rank.steps, rank.batches
        self.rank = rank
        self.first_ns, self.now = rank.window_start_ns, rank.window_end_ns
        self.ask, self.got = steps.ask_ns.tolist(), steps.got_ns.tolist()
        self.sampler = steps.sampler_ns.tolist()
        self.iteration = steps.iteration.tolist()
        self.start, self.end = batches.start_ns.tolist(), batches.end_ns.tolist()
        self.index, self.send = batches.index_ns.tolist(), batches.send_start_ns.tolist()
        self.row_of_step = _row_of_step(rank)
        self.sent_at_step = _sent_at_step(rank)
        self.previous = _previous_on_worker(rank)
        self.ready_of_pid = {life.pid: life.ready_ns for life in rank.workers}
        self.pid = batches.pid.tolist()
        self.segments: list[tuple[int, int, int, int]] = []

    def path(self) -> Path:
        rows = np.array(self.segments, dtype=np.int64).reshape(-1, 4)
        return Path(kind=rows[:, 0], start_ns=rows[:, 1], end_ns=rows[:, 2], row=rows[:, 3])

    def go(self, kind: PathKind, to_ns: int, row: int = -1) -> None:
        """Add the segment from `to_ns` to now and stand at its beginning."""
        start_ns = max(min(to_ns, self.now), self.first_ns)
        if start_ns < self.now:
            self.segments.append((kind, start_ns, self.now, row))
            self.now = start_ns

    def walk(self) -> None:
        step = len(self.ask) - 1
        while self.now > self.first_ns and step >= 0:
            before = self.now, step
            step = self._through_next(step)
            if (self.now, step) == before:
                break
        self.go(PathKind.UNKNOWN, self.first_ns)

    def _through_next(self, step: int) -> int:
        """Walk from inside (or the end of) one next() to the step to go on with."""
        row = self.row_of_step[step]
        iteration = self.rank.iterations.get(self.iteration[step])
        if row < 0:
            self._deliver(step, self.ask[step], PathKind.UNKNOWN)
            return self._before_ask(step)
        if iteration is None or iteration.workers == 0:
            self._inline(step, row)
            return self._before_ask(step)
        visible_ns = self.send[row] if self.send[row] >= 0 else self.end[row]
        if visible_ns <= self.ask[step]:
            self._deliver(step, self.ask[step], PathKind.RECEIVE, row)
            return self._before_ask(step)
        self._deliver(step, visible_ns, PathKind.RECEIVE, row)
        self.go(PathKind.HANDOFF, self.end[row], row)
        while (
            row >= 0 and self.start[row] >= self.now
        ):  # not begun yet: its worker was at an earlier one
            row = self.previous[row]
        if row < 0:
            self.go(PathKind.STARTUP, self.ask[step])
            return self._before_ask(step)
        self.go(PathKind.TURN, self.end[row], row)
        return self._through_worker(step, row)

    def _deliver(self, step: int, to_ns: int, kind: PathKind, row: int = -1) -> None:
        """The end of next(): indices for a later batch are drawn last, after the batch was received."""
        self.go(PathKind.SAMPLER, max(to_ns, self.now - self.sampler[step]))
        self.go(kind, to_ns, row)

    def _inline(self, step: int, row: int) -> None:
        """num_workers=0: next() draws indices, then makes the batch."""
        self.go(PathKind.RECEIVE, self.end[row])
        self.go(PathKind.FETCH, max(self.start[row], self.ask[step]), row)
        self.go(PathKind.RECEIVE, min(self.now, self.ask[step] + self.sampler[step]))
        self.go(PathKind.SAMPLER, self.ask[step])

    def _through_worker(self, step: int, row: int) -> int:
        """Follow a worker's fetches back to the one it had to wait for."""
        while self.now > self.first_ns:
            self.go(PathKind.FETCH, self.start[row], row)
            previous = self.previous[row]
            if previous >= 0 and self._had_indices(row, self.end[previous]):
                self.go(PathKind.TURN, self.end[previous], previous)
                row = previous
                continue
            sent_at = self.sent_at_step[row]
            if sent_at >= 0 and self.got[sent_at] <= self.now:
                self.go(PathKind.TURN, self.got[sent_at], row)
                return sent_at
            if 0 <= self.index[row] < self.now:
                self.go(PathKind.TURN, self.index[row], row)
            return self._back_to_loop(step, row, is_first=previous < 0)
        return step

    def _had_indices(self, row: int, when_ns: int) -> bool:
        """Whether a batch's indices lay at its worker at a moment, so that the worker had not to wait for the loop."""
        sent_at = self.sent_at_step[row]
        if sent_at >= 0:
            return bool(self.got[sent_at] <= when_ns)
        return bool(self.index[row] <= when_ns + TURN_SLACK_NS)

    def _back_to_loop(self, step: int, row: int, *, is_first: bool) -> int:
        """The worker had waited for the loop (or had just come up): where was the loop then?"""
        iteration = self.rank.iterations[self.iteration[step]]
        ready_ns = self.ready_of_pid.get(self.pid[row], -1)
        came_up = is_first and ready_ns > iteration.start_ns
        if came_up or self.now <= iteration.end_ns:
            self.go(PathKind.STARTUP, iteration.start_ns)
            return self._before(self.now)
        return self._before(self.now)

    def _before(self, when_ns: int) -> int:
        """Find the step that holds a moment, and walk its own code if the moment lies there."""
        step = int(np.searchsorted(self.rank.steps.ask_ns, when_ns, "left")) - 1
        if step >= 0 and when_ns > self.got[step]:
            self._outside(self.got[step])
        return step

    def _before_ask(self, step: int) -> int:
        """From an ask to the end of the next() before it."""
        if step > 0:
            self._outside(max(self.got[step - 1], self.first_ns))
        return step - 1

    def _outside(self, to_ns: int) -> None:
        """The loop between two answered asks: its own code, or setting up an iteration."""
        track = self.rank.in_loader
        stop = int(np.searchsorted(track.start_ns, self.now, "left")) - 1
        while self.now > to_ns:
            if stop < 0 or track.end_ns[stop] <= to_ns:
                self.go(PathKind.STEP, to_ns)
                return
            self.go(PathKind.STEP, max(to_ns, int(track.end_ns[stop])))
            self.go(PathKind.STARTUP, max(to_ns, int(track.start_ns[stop])))
            stop -= 1


def _row_of_step(rank: RankTimeline) -> list[int]:
    """Row in `batches` of what each step was given; -1 when nobody recorded its making."""
    batches, steps = rank.batches, rank.steps
    rows = {
        key: row
        for row, key in enumerate(
            zip(batches.iteration.tolist(), batches.batch.tolist(), strict=True)
        )
    }
    keys = zip(steps.iteration.tolist(), steps.batch.tolist(), strict=True)
    return [rows.get(key, -1) for key in keys]


def _sent_at_step(rank: RankTimeline) -> list[int]:
    """Step at whose end the loop sent the indices of each batch; -1 for those sent at the start, and where unknown.

    The loader sends the indices of one batch for each batch that it hands over, `workers * prefetch` ahead. A batch
    whose worker had its indices before that (a stream that ended early) is unknown.
    """
    steps, batches = rank.steps, rank.batches
    keys = zip(steps.iteration.tolist(), steps.batch.tolist(), strict=True)
    step_of = {key: step for step, key in enumerate(keys)}
    got_ns = steps.got_ns.tolist()
    found = []
    rows = zip(
        batches.iteration.tolist(),
        batches.batch.tolist(),
        batches.index_ns.tolist(),
        strict=True,
    )
    for number, batch, index_ns in rows:
        iteration = rank.iterations.get(number)
        ahead = iteration.workers * iteration.prefetch if iteration else 0
        step = step_of.get((number, batch - ahead), -1) if ahead else -1
        found.append(
            step
            if step >= 0 and (index_ns < 0 or got_ns[step] <= index_ns + TURN_SLACK_NS)
            else -1
        )
    return found


def _previous_on_worker(rank: RankTimeline) -> list[int]:
    """Row of the batch that the same worker process made before; -1 for its first."""
    batches = rank.batches
    order = np.lexsort((batches.start_ns, batches.pid))
    previous = np.full(len(batches), -1, dtype=np.int64)
    same = batches.pid[order][1:] == batches.pid[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return [int(row) for row in previous]


def path_share_of_batches(path: Path, rank: RankTimeline) -> IntArray:
    """Measure how much of each batch's fetch lies on the path, (batches,) int64 ns."""
    lengths = np.zeros(len(rank.batches), dtype=np.int64)
    fetch = path.kind == PathKind.FETCH
    np.add.at(lengths, path.row[fetch], path.length_ns[fetch])
    return lengths
