"""Inside a loader's helpers: the loop of a worker process and the loop of the pin thread.

Queues are watched on the instance that the loop was given, never on their class.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque

from whyidle_agent import stacks, thread_state, trial, wire, writer
from whyidle_agent.fetching import without_our_frames
from whyidle_agent.patching import patch

_MYPY = False
if _MYPY:
    from types import ModuleType
    from typing import Any, Callable

    from whyidle_agent.thread_state import ThreadState

_INDEX_QUEUE, _DATA_QUEUE, _WORKER_ID = 2, 3, 10
"""Positions in the arguments of a worker loop."""

_now = time.monotonic_ns
_cpu_now = time.thread_time_ns


def install(
    worker_module: ModuleType,
    pin_module: ModuleType | None,
    iteration_of_queue: Callable[[Any], Callable[[], int]],
) -> None:
    """Wrap the loops of workers and pin threads.

    Args:
        worker_module: `torch.utils.data._utils.worker`.
        pin_module: `torch.utils.data._utils.pin_memory`.
        iteration_of_queue: For a result queue, gives what tells the current iteration id.
    """
    parameters = (
        "dataset_kind",
        "dataset",
        "index_queue",
        "data_queue",
        "done_event",
        "auto_collation",
        "collate_fn",
        "drop_last",
    )
    patch("worker-loop", worker_module, "_worker_loop", parameters, _worker_loop_wrapper)
    if pin_module is not None:

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            return _pin_loop_wrapper(original, iteration_of_queue)

        patch("pin-loop", pin_module, "_pin_memory_loop", ("in_queue", "out_queue"), make)


def _worker_loop_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    code = original.__code__
    is_known = code.co_varnames[_WORKER_ID : code.co_argcount][:1] == ("worker_id",)
    if not is_known:
        raise ValueError("argument %d is no worker_id" % _WORKER_ID)

    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        _enter(args)
        return original(*args, **kwargs)

    return _worker_loop


def _enter(args: tuple[Any, ...]) -> None:
    """Watch the queues of this worker."""
    try:
        entered_ns = _now()
        thread_state.enter_worker()
        trial.prepare_worker()
        stacks.watch(wire.STACK_ROLE_WORKER)
        if len(args) <= _WORKER_ID:
            reason = "worker-loop: %d arguments by position" % len(args)
            writer.note("patch-failed", reason)
            return
        state = thread_state.current()
        hand_off = _HandOff(args[_DATA_QUEUE], state)
        _watch_indices(args[_INDEX_QUEUE], state, entered_ns, args[_WORKER_ID])
        hand_off.install()
    except Exception as error:
        writer.note("worker-failed", repr(error))


def _watch_indices(queue: Any, state: ThreadState, entered_ns: int, worker_id: int) -> None:
    """Learn from the index queue which batch comes next and in which pass."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    resume = getattr(module, "_ResumeIteration", ())
    original = queue.get
    passes = 0
    has_asked = False

    def get(*args: Any, **kwargs: Any) -> Any:
        nonlocal passes, has_asked
        if not has_asked:
            has_asked = True
            trial.prepare_worker()
            _record_start(entered_ns, worker_id)
        state.reference = thread_state.NO_BATCH
        item = original(*args, **kwargs)
        if type(item) is tuple and len(item) == 2 and type(item[0]) is int:
            state.batch = item[0]
            state.index_ns = _now()
            state.reference = passes
        elif isinstance(item, resume):
            passes += 1
        return item

    queue.get = get


def _record_start(entered_ns: int, worker_id: int) -> None:
    try:
        start_ns = process_start_mono_ns()
        parent = os.getppid()
        emit, kind = writer.emit, wire.WORKER_START
        emit(kind, 0, 0, entered_ns, _now(), worker_id, start_ns, parent, 0)
    except Exception as error:
        writer.note("worker-failed", repr(error))


def process_start_mono_ns() -> int:
    """When this process began, monotonic ns, good to a clock tick (10 ms); 0 where unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            text = file.read()
        boot_ticks = int(text.rpartition(b")")[2].split()[19])
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - _now()
        return boot_ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK")) - asleep_ns
    except (OSError, ValueError, AttributeError):
        return 0


class _HandOff:
    """Follows each result from `put` through the feeder thread into the pipe."""

    def __init__(self, queue: Any, state: ThreadState) -> None:
        self.queue = queue
        self.state = state
        # (pass, batch, put at) of the results that the feeder has not sent yet; -1: no batch.
        self.waiting: deque[tuple[int, int, int]] = deque()
        self.feeder_cpu_ns = 0

    def install(self) -> None:
        """Watch the queue. Nothing may have been put yet: the feeder thread takes its functions then."""
        queue = self.queue
        if not hasattr(queue, "_send_bytes") or getattr(queue, "_thread", None) is not None:
            reason = "handoff: %s has no _send_bytes" % type(queue).__name__
            writer.note("patch-failed", reason)
            return
        self._watch_put(queue.put)
        self._watch_send(queue._send_bytes)
        self._watch_failure(getattr(queue, "_on_queue_feeder_error", None))

    def _watch_put(self, original: Callable[..., Any]) -> None:
        def put(item: Any, *args: Any, **kwargs: Any) -> Any:
            self._before_put(item)
            return original(item, *args, **kwargs)

        self.queue.put = put

    def _watch_send(self, original: Callable[..., Any]) -> None:
        def send_bytes(buffer: Any, *args: Any, **kwargs: Any) -> Any:
            start_ns = _now()
            try:
                return original(buffer, *args, **kwargs)
            finally:
                self._after_send(start_ns, buffer)

        self.queue._send_bytes = send_bytes

    def _watch_failure(self, original: Callable[..., Any] | None) -> None:
        if original is None:
            return

        def on_queue_feeder_error(*args: Any, **kwargs: Any) -> Any:
            # What cannot be pickled is never sent.
            if self.waiting:
                self.waiting.popleft()
            return original(*args, **kwargs)

        self.queue._on_queue_feeder_error = on_queue_feeder_error

    def _before_put(self, item: Any) -> None:
        try:
            pass_, batch = self.state.reference, -1
            if type(item) is tuple and len(item) == 2 and type(item[0]) is int:
                batch = item[0]
                _restore_text(item[1])
            self.waiting.append((pass_, batch, _now()))
        except Exception as error:
            writer.note("worker-failed", repr(error))

    def _after_send(self, start_ns: int, buffer: Any) -> None:
        try:
            pass_, batch, put_ns = self.waiting.popleft()
            before_ns, self.feeder_cpu_ns = self.feeder_cpu_ns, _cpu_now()
            if batch >= 0 and pass_ >= 0:
                used_ns = self.feeder_cpu_ns - before_ns
                size = getattr(buffer, "nbytes", None) or len(buffer)
                emit, kind = writer.emit, wire.HANDOFF
                emit(kind, 0, pass_, put_ns, _now(), batch, start_ns, used_ns, size)
        except Exception as error:
            writer.note("worker-failed", repr(error))


def _restore_text(data: Any) -> None:
    """Have the text of an exception that goes to the main process read as it would without us."""
    if type(data).__name__ == "ExceptionWrapper":
        text = getattr(data, "exc_msg", None)
        if type(text) is str:
            data.exc_msg = without_our_frames(text)


class _Pinning:
    """The batch that a pin thread works on."""

    def __init__(self, current_iteration: Callable[[], int]) -> None:
        self.current_iteration = current_iteration
        self.batch = -1
        self.start_ns = 0
        self.cpu_ns = 0

    def begin(self, item: Any) -> None:
        self.batch = -1
        if type(item) is tuple and len(item) == 2 and type(item[0]) is int:
            self.batch = item[0]
            self.cpu_ns = _cpu_now()
            self.start_ns = _now()

    def end(self) -> None:
        if self.batch < 0:
            return
        end_ns = _now()
        used_ns = _cpu_now() - self.cpu_ns
        batch, self.batch = self.batch, -1
        number = self.current_iteration()
        writer.emit(wire.PIN, 0, number, self.start_ns, end_ns, batch, used_ns, 0, 0)


class _Inlet:
    """Stands in for the queue that a pin thread takes from."""

    def __init__(self, queue: Any, pinning: _Pinning) -> None:
        self._queue = queue
        self._pinning = pinning

    def get(self, *args: Any, **kwargs: Any) -> Any:
        item = self._queue.get(*args, **kwargs)
        self._pinning.begin(item)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Outlet:
    """Stands in for the queue that a pin thread puts to."""

    def __init__(self, queue: Any, pinning: _Pinning) -> None:
        self._queue = queue
        self._pinning = pinning

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self._pinning.end()
        return self._queue.put(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _pin_loop_wrapper(
    original: Callable[..., Any],
    iteration_of_queue: Callable[[Any], Callable[[], int]],
) -> Callable[..., Any]:
    def _pin_memory_loop(in_queue: Any, out_queue: Any, *args: Any, **kwargs: Any) -> Any:
        stacks.watch(wire.STACK_ROLE_PIN)
        pinning = _Pinning(iteration_of_queue(in_queue))
        inlet, outlet = _Inlet(in_queue, pinning), _Outlet(out_queue, pinning)
        return original(inlet, outlet, *args, **kwargs)

    return _pin_memory_loop
