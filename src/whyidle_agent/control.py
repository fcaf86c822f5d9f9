"""Bounded runs: end the training after so many steps, in the way a script itself would end.

NOTE [which asks are steps]
    A step is an ask with training work between it and the next one. What counts as work is the
    strongest sign this process has ever given: a backward pass or an optimizer step; failing that, a
    launch on a device; failing that, every ask. So validation does not count once a training loop
    has been recognised, and a loop that gives no sign is still bounded.

NOTE [all ranks end at the same step]
    Every rank of a synchronous training counts the same steps, and the same bound is given to all:
    by the environment, or by the launcher in the control file, some steps ahead of the furthest rank.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from _thread import get_ident

from whyidle_agent import boot, wire, writer

_MYPY = False
if _MYPY:
    from typing import Any, Callable

WEAK, STRONG = 1, 2
"""Signs of training work: a launch on a device; a backward pass or an optimizer step."""
GRACE_SECONDS = 5.0
"""How long the main thread may go on after the loop ended in another thread."""

_STOP_AT = struct.Struct("<q")


class TrainingEnded(SystemExit):
    """Raised out of next() at the bound: `finally` and `atexit` run, the exit status is 0."""


class _Counts:
    """How often this process has asked, and how often with work since the ask before."""

    __slots__ = ("asks", "loop_thread", "strong", "weak", "work")

    def __init__(self) -> None:
        # -1: the first ask begins the first step, it does not end one.
        self.asks = -1
        self.weak = 0
        self.strong = 0
        self.work = 0
        self.loop_thread = 0

    def count_ask(self) -> int:
        """Count one more ask of the calling thread; the steps done so far."""
        self.loop_thread = get_ident()
        self.asks += 1
        if self.work:
            self.weak += 1
            self.strong += self.work == STRONG
            self.work = 0
        return self.completed()

    def completed(self) -> int:
        """Steps done so far. See NOTE [which asks are steps]."""
        return self.strong or self.weak or max(self.asks, 0)


before_end: list[Callable[[], None]] = []
"""Called when the bound is reached, before the loop is left."""

_counts = _Counts()
_control: Any = None
_control_tried = False
_ending_main = False


def _bound_of_environment() -> int:
    value = os.environ.get(wire.ENV_STEPS, "")
    return int(value) if value.isdigit() else 0


_steps_bound = _bound_of_environment()


def loop_thread() -> int:
    """Identity (threading.get_ident) of the thread that asked last; 0 before the first ask."""
    return _counts.loop_thread


def saw_work(sign: int) -> None:
    """Note a sign of training work (WEAK, STRONG) since the last ask."""
    if sign > _counts.work:
        _counts.work = sign


def on_step(step_count: int | None = None) -> None:
    """Count an ask for a batch, before it waits, and end the training when its bound is reached.

    Args:
        step_count: How many asks the caller has counted; not needed.

    Raises:
        SystemExit: the bound is reached (TrainingEnded in the main thread); the caller lets it
            through to the training loop.

    Cost: about 1 us.
    """
    try:
        if boot.is_data_worker():
            return
        completed = _counts.count_ask()
        writer.beat(completed)
        bound = _bound_of_launcher() or _steps_bound
        if _steps_bound:
            bound = min(bound, _steps_bound)
        reached = 0 < bound <= completed
    except Exception as error:
        writer.note("bound-failed", repr(error))
        return
    if reached:
        _end()


def _bound_of_launcher() -> int:
    """`stop_at_step` of the control file; 0 when there is none."""
    global _control, _control_tried
    if not _control_tried:
        _control_tried = True
        _control = _map_control()
    return int(_STOP_AT.unpack_from(_control, 0)[0]) if _control is not None else 0


def _map_control() -> Any:
    import mmap

    folder = boot.run_dir()
    if folder is None:
        return None
    try:
        with open(os.path.join(folder, wire.CONTROL_FILE), "rb") as file:
            return mmap.mmap(file.fileno(), wire.CONTROL_BYTES, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None  # no such file, or a short one: nobody will speak to us


def _end() -> None:
    """Raise out of the loop; again at each later ask, for scripts that swallow everything."""
    writer.note("ended-at-bound", f"step {_counts.completed()}")
    for call in before_end:
        call()
    if threading.current_thread() is threading.main_thread():
        raise TrainingEnded(0)
    _end_main_thread_later()
    # Not the subclass: a thread that ends with exactly SystemExit ends without a word.
    raise SystemExit(0)


def _end_main_thread_later() -> None:
    """See to it that a process whose loop ran in another thread ends as well.

    Mostly it does by itself: a join returns, a future hands the exception on. A main thread that
    still runs after some grace is interrupted as by Ctrl-C, which also wakes it up from a lock.
    """
    global _ending_main
    if _ending_main:
        return
    _ending_main = True
    try:
        import _thread

        _thread.start_new_thread(_interrupt_main_thread, (os.getpid(),))
    except Exception as error:
        writer.note("bound-failed", repr(error))


def _interrupt_main_thread(pid: int) -> None:
    try:
        import signal

        time.sleep(GRACE_SECONDS)
        main = threading.main_thread()
        if os.getpid() != pid or not main.is_alive() or not callable(_sigint_handler()):
            return
        sys.excepthook = _quiet_after(sys.excepthook)
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
    except Exception:
        return


def _sigint_handler() -> Any:
    import signal

    return signal.getsignal(signal.SIGINT)


def _quiet_after(hook: Any) -> Any:
    """An excepthook that makes of the interrupt what it stands for: an end with status 0."""

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        if kind is KeyboardInterrupt:
            raise SystemExit(0)
        hook(kind, error, trace)

    return excepthook


def _after_fork() -> None:
    # The mapping of the control file stays: it is as good in the child.
    global _counts, _ending_main
    _counts = _Counts()
    _ending_main = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
