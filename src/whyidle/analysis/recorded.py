"""The steps of a rank's main loader beside the batches they were given: what the model of the loader is built from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whyidle.model.timeline import (
        BoolArray,
        IntArray,
        Iteration,
        RankTimeline,
        Timeline,
    )


class Recorded:
    """Recorded times, (steps,) each, ns."""

    def __init__(
        self,
        timeline: Timeline,
        rank: RankTimeline,
        steps: IntArray,
        rows: IntArray,
        goes_on: BoolArray,
        first: int,
    ) -> None:
        """Take the steps and their batches' rows.

        Args:
            timeline: The run.
            rank: The rank.
            steps: Steps of the loader that fed most.
            rows: Their rows in `batches`.
            goes_on: (steps - 1,) no other block of steps begins there.
            first: First step of the window; those before it are the warm-up.
        """
        self.first = first
        self.timeline, self.rank = timeline, rank
        self.steps, self.rows = steps, rows
        self.ask = rank.steps.ask_ns[steps]
        self.got = rank.steps.got_ns[steps]
        self.end = rank.steps.end_ns[steps]
        self.iteration = rank.steps.iteration[steps]
        self.goes_on = goes_on
        self.loader: Iteration = rank.iterations[int(self.iteration[-1])]
        batches = rank.batches
        self.start, self.made = batches.start_ns[rows], batches.end_ns[rows]
        self.wall = (self.made - self.start).astype(float)
        self.cpu = np.maximum(batches.cpu_ns[rows], 0).astype(float)
        self.queued = np.maximum(batches.runq_ns[rows], 0).astype(float)
        self.blocked = np.maximum(self.wall - self.cpu - self.queued, 0.0)
        self.visible = self._visible_ns()

    def _visible_ns(self) -> IntArray:
        """When each batch lay in the queue: sent, but early enough for the loop to have read it with its CPU time.

        A result larger than the pipe is sent while it is read.
        """
        batches = self.rank.batches
        sent = np.maximum(batches.sent_ns[self.rows], self.made)
        received = batches.receive_end_ns[self.rows]
        read = received - np.maximum(batches.receive_cpu_ns[self.rows], 0)
        return np.where(received >= 0, np.maximum(np.minimum(sent, read), self.made), sent)
