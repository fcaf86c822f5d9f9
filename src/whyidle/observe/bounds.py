"""`--seconds`: ask the ranks to end their loops, and become firmer only when they do not."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from whyidle.store import live
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXTRA_STEPS = 2
"""Ranks stop at the step of the farthest one plus this, so that all of them stop at the same one."""
GRACE_NS = 30 * NS_PER_S
"""How long a loop may take to end after it was asked, checkpoint and exit handlers included, and how long
the training may take after each signal. Long enough for writing a large checkpoint to slow storage."""
STARTUP_NS = 30 * NS_PER_S
"""How much longer than the bound itself a training may take to its first step: the time is for the loop, not for
imports. A command without a Python that could loop gets none of it."""
GRACE_STEPS = 5
"""Added to GRACE_NS: so many mean steps, for loops whose single step takes long."""

_LADDER = (
    (signal.SIGINT, "an interrupt (SIGINT), as Ctrl-C sends it"),
    (signal.SIGTERM, "a request to terminate (SIGTERM)"),
    (signal.SIGKILL, "a kill (SIGKILL)"),
)


class Deadline:
    """Ends the training at a point in time; does nothing before."""

    def __init__(
        self,
        run_dir: Path | None,
        pid: int,
        start_ns: int,
        duration_ns: int | None,
        say: Callable[[str], None],
    ) -> None:
        """Watch one process.

        Args:
            run_dir: Where the agents look for a step to stop at; None when there are none.
            pid: The target.
            start_ns: When it was started.
            duration_ns: How long it may go on after its first step; None: for ever.
            say: Tells the person what was done to the training.
        """
        self._run_dir = run_dir
        self._pid = pid
        self._start_ns = start_ns
        self._duration_ns = duration_ns
        self._next_ns = None if duration_ns is None else start_ns + duration_ns
        self._has_stepped = False
        self._has_waited = False
        self._say = say
        self._rung = -1
        self.ended_with: signal.Signals | None = None
        """The signal that had to be sent because the loop did not end by itself."""

    @property
    def was_reached(self) -> bool:
        """Whether the training was asked to end."""
        return self._rung >= 0

    def poll(self, now_ns: int) -> None:
        """Do what is due now."""
        if self._next_ns is None or self._duration_ns is None:
            return
        if self._rung < 0 and not self._has_stepped and self._run_dir is not None:
            self._begin(self._run_dir, now_ns, self._duration_ns)
        if now_ns < self._next_ns:
            return
        if self._rung < 0:
            self._rung = 0
            if self._ask_loops(now_ns):
                return
        self._send(now_ns)

    def _begin(self, run_dir: Path, now_ns: int, duration_ns: int) -> None:
        """Let the time begin with the first step, and wait for that a while longer."""
        if highest_step(run_dir) > 0:
            self._has_stepped = True
            self._start_ns = now_ns
            self._next_ns = now_ns + duration_ns
        elif (
            not self._has_waited
            and now_ns >= (self._next_ns or 0)
            and live.list_booted(run_dir)
        ):
            self._has_waited = True
            self._next_ns = now_ns + max(STARTUP_NS, duration_ns)

    def _ask_loops(self, now_ns: int) -> bool:
        """Name a step to stop at; False when there is no loop that could hear it."""
        if self._run_dir is None or not live.list_booted(self._run_dir):
            return False
        step = highest_step(self._run_dir)
        try:
            live.write_stop_at_step(self._run_dir, step + EXTRA_STEPS)
        except OSError:
            return False
        mean_step_ns = (now_ns - self._start_ns) // step if step else 0
        self._next_ns = now_ns + GRACE_NS + GRACE_STEPS * mean_step_ns
        return True

    def _send(self, now_ns: int) -> None:
        number, meaning = _LADDER[min(self._rung, len(_LADDER) - 1)]
        self._rung += 1
        self._next_ns = now_ns + GRACE_NS
        self.ended_with = signal.Signals(number)
        self._say(
            f"the time is over and the training has not ended by itself: sending {meaning}"
        )
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, number)


def highest_step(run_dir: Path, pids: frozenset[int] = frozenset()) -> int:
    """The step of the rank that is farthest; 0 before the first. With pids, only those are looked at."""
    journals = live.list_agent_journals(run_dir)
    headers = (
        live.load_live_journal(path)
        for pid, path in journals.items()
        if not pids or pid in pids
    )
    return max((header.step_count for header in headers if header is not None), default=0)
