"""What the calling thread is in: a fetch, for which batch, with which clocks."""

from __future__ import annotations

import os
import threading
from _thread import get_native_id

_MYPY = False
if _MYPY:
    from typing import Any

NO_BATCH = -1


class ThreadState:
    """Of one thread; no other touches it."""

    __slots__ = (
        "batch",
        "cost_stride",
        "depth",
        "fetch_count",
        "heartbeat_ns",
        "index_ns",
        "innermost",
        "inside",
        "native_id",
        "reference",
        "sample_stride",
        "schedule",
        "spans",
        "transforms",
    )

    def __init__(self) -> None:
        """Begin outside of everything."""
        self.native_id = get_native_id()
        self.schedule = Schedule(self.native_id)
        # Whose batch a fetch would be: FETCH.ref, NO_BATCH outside a loader of ours.
        self.reference = NO_BATCH
        self.batch = NO_BATCH
        self.index_ns = 0
        self.fetch_count = 0
        # Every how many-th fetch has its process' costs taken.
        self.cost_stride = 1
        # Every how many-th fetch has its samples recorded, for its own cost.
        self.sample_stride = 1
        self.heartbeat_ns = 0
        # In a fetch: whatever loaders run in there are part of it.
        self.inside = False
        # Samples of the fetch: (index, t0, t1). None: not to be recorded.
        self.spans: list[tuple[Any, int, int]] | None = None
        # Transforms of the fetch: (name, t0, t1, position, depth). None: not to be recorded.
        self.transforms: list[tuple[int, int, int, int, int]] | None = None
        self.innermost: object = None
        self.depth = 0


class Schedule:
    """The kernel's account of a thread of ours: how long it waited for a CPU.

    A target may close all descriptors and get our number for a file of its own: reading at an offset
    does not disturb that file, its text is no account, and closing looks first.
    """

    __slots__ = ("file", "path")

    def __init__(self, native_id: int) -> None:
        """Open nothing yet."""
        self.path = "/proc/self/task/%d/schedstat" % native_id
        self.file = -1

    def queued_ns(self) -> int:
        """Time waiting for a CPU since the thread began, ns; -1 where it is not accounted.

        Cost: 1.4 us.
        """
        if self.file == -2:
            return -1
        try:
            if self.file < 0:
                self.file = os.open(self.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            on_cpu, queued, slices = os.pread(self.file, 64, 0).split()
            if slices != b"0" or on_cpu != b"0":
                return int(queued)
        except (OSError, ValueError):
            pass
        # "0 0 0": switched off. Or there is no such file, or the number is not ours any more.
        self.file = -2
        return -1

    def close(self) -> None:
        """Close the descriptor if it is still ours."""
        file, self.file = self.file, -2
        try:
            if file >= 0 and os.readlink("/proc/self/fd/%d" % file).startswith("/proc/"):
                os.close(file)
        except OSError:
            return

    def __del__(self) -> None:
        """Close with the thread's end."""
        if self.file >= 0:
            self.close()


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


_local = _Local()
in_worker = False
"""Whether this process is a worker of a data loader: loaders in there are part of its fetches."""


def current() -> ThreadState:
    """State of the calling thread."""
    return _local.state


def enter_worker() -> None:
    """Note that this process is a worker from now on."""
    global in_worker
    in_worker = True


def _after_fork() -> None:
    global _local
    # The descriptor leads to the parent's thread.
    _local.state.schedule.close()
    _local = _Local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
