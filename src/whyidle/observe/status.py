"""The status line: one line on a terminal's stderr while the training runs, nothing anywhere else."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TextIO

from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

REDRAW_NS = NS_PER_S // 2
_RATE_WINDOW_NS = 5 * NS_PER_S


def render_status(
    step_count: int, steps_per_s: float | None, elapsed_ns: int, activity: str, width: int
) -> str:
    """Write the line, cut to the width of the terminal.

    >>> render_status(120, 14.23, 12_000_000_000, "waits for data", 80)
    'whyidle: 120 steps, 14.2 steps/s, 0:12, loop waits for data'
    """
    parts = [f"{step_count} steps"] if step_count else ["no step yet"]
    if steps_per_s is not None:
        parts.append(f"{steps_per_s:.1f} steps/s")
    minutes, seconds = divmod(elapsed_ns // NS_PER_S, 60)
    hours, minutes = divmod(minutes, 60)
    parts.append(
        f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    )
    if activity:
        parts.append(f"loop {activity}")
    return f"whyidle: {', '.join(parts)}"[: max(width - 1, 0)]


def steps_per_second(history: Sequence[tuple[int, int]]) -> float | None:
    """Rate over (monotonic ns, step count) pairs; None when they show no progress yet.

    >>> steps_per_second([(0, 10), (2_000_000_000, 30)])
    10.0
    """
    if len(history) < 2:
        return None
    (start_ns, first), (end_ns, last) = history[0], history[-1]
    if end_ns <= start_ns or last <= first:
        return None
    return (last - first) * NS_PER_S / (end_ns - start_ns)


class StatusLine:
    """Draws and takes away the line. Never raises: a terminal may go away."""

    def __init__(self, stream: TextIO | None, start_ns: int) -> None:
        """Draw on `stream` if that is a terminal."""
        self._file = _terminal_of(stream)
        self._start_ns = start_ns
        self._next_ns = start_ns + 2 * REDRAW_NS
        self._history: list[tuple[int, int]] = []
        self._is_drawn = False

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal to draw on."""
        return self._file is not None

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time to draw again."""
        return self._file is not None and now_ns >= self._next_ns

    def draw(self, now_ns: int, step_count: int, activity: str) -> None:
        """Draw the line with what is known now."""
        self._next_ns = now_ns + REDRAW_NS
        if step_count:
            self._history.append((now_ns, step_count))
        while self._history and self._history[0][0] < now_ns - _RATE_WINDOW_NS:
            self._history.pop(0)
        rate = steps_per_second(self._history)
        elapsed_ns = now_ns - self._start_ns
        text = render_status(step_count, rate, elapsed_ns, activity, self._width())
        # The cursor goes back to the start: what the training prints next begins a line of its own.
        self._write(f"\r{text}\x1b[K\r")
        self._is_drawn = True

    def clear(self) -> None:
        """Take the line away."""
        if self._is_drawn:
            self._write("\r\x1b[K")
            self._is_drawn = False

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._file or 0).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            # In the background a write would stop us where `stty tostop` is set.
            if os.tcgetpgrp(self._file) == os.getpgrp():
                os.write(self._file, text.encode())


def _terminal_of(stream: TextIO | None) -> int | None:
    try:
        if stream is None or not stream.isatty():
            return None
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
