"""An accelerator for people and tests without one: it takes work and is busy, nothing else.

Standard library only. The agent watches it when a training uses it under `whyidle run`.

    accelerator = SimulatedAccelerator()
    for batch in loader:
        loss = model(batch)
        accelerator.launch(0.050)      # returns at once, as a kernel launch does
    accelerator.synchronize()
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["SimulatedAccelerator"]

_serial_numbers = itertools.count(1)

_launch_observers: list[Callable[[SimulatedAccelerator, int, int, int], None]] = []
"""Called for each launch with the accelerator, and when the work was launched, begins and ends, ns;
calls of one accelerator never overlap."""
_synchronize_observers: list[Callable[[SimulatedAccelerator, int, int], None]] = []
"""Called after each synchronize with the accelerator, and when the call began and ended, ns."""


class SimulatedAccelerator:
    """A device with one queue: work runs in order, one piece at a time, on CLOCK_MONOTONIC.

    It needs no thread and no CPU: when a piece will run is known as soon as it is launched.

    Args:
        name: What reports call the device.
        max_queued: How many pieces may wait or run; one more launch blocks until the oldest is
            done, as a CUDA launch does when the driver's queue is full.
    """

    def __init__(self, name: str = "simulated", *, max_queued: int = 1024) -> None:
        """Start with an empty queue."""
        if max_queued < 1:
            msg = f"max_queued is {max_queued!r}, expected at least 1"
            raise ValueError(msg)
        self.name = name
        self.serial_number = next(_serial_numbers)
        self._lock = threading.Lock()
        self._end_mono_ns: deque[int] = deque(maxlen=max_queued)
        self._free_at_mono_ns = 0
        self._launched_ns = 0

    def launch(self, seconds: float) -> None:
        """Queue work of this length and return; blocks only while the queue is full."""
        length_ns = round(seconds * 1e9)
        if length_ns < 0:
            msg = f"cannot launch work of {seconds!r} s, expected 0 or more"
            raise ValueError(msg)
        with self._lock:
            self._wait_for_room()
            now = time.monotonic_ns()
            start = max(now, self._free_at_mono_ns)
            end = start + length_ns
            self._free_at_mono_ns = end
            self._launched_ns += length_ns
            self._end_mono_ns.append(end)
            for observer in _launch_observers:
                observer(self, now, start, end)

    def synchronize(self) -> None:
        """Wait until all work launched before this call is done."""
        begin = time.monotonic_ns()
        _sleep_until(self._free_at_mono_ns)
        for observer in _synchronize_observers:
            observer(self, begin, time.monotonic_ns())

    def busy_ns(self) -> int:
        """How long the device has worked up to now, ns: the truth that a report is held against."""
        with self._lock:
            return self._launched_ns - self._pending_ns()

    def pending_ns(self) -> int:
        """How long the device will be busy from now on if nothing more is launched, ns."""
        with self._lock:
            return self._pending_ns()

    def _pending_ns(self) -> int:
        # What is pending runs back to back from now on: there is no gap in front of queued work.
        return max(0, self._free_at_mono_ns - time.monotonic_ns())

    def _wait_for_room(self) -> None:
        ends = self._end_mono_ns
        if len(ends) == ends.maxlen:
            _sleep_until(ends[0])


def _sleep_until(mono_ns: int) -> None:
    while (left_ns := mono_ns - time.monotonic_ns()) > 0:
        time.sleep(left_ns / 1e9)
