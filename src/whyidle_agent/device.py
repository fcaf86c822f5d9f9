"""When the device was busy or idle, on the host's clock.

Simulated: the accelerator tells when each piece of work begins and ends. CUDA: two events a step on
the current stream, before the wait for a batch and after it; the time between them on the device is
how long the device had nothing to do because of the wait.

NOTE [placing a CUDA idle on the host's clock]
    An idle device runs the event after the wait as soon as it is recorded, so that record is where
    the idle time ends on the host, within the length of the record call and the time a launch takes
    to arrive. Where the device was still working there is no idle time to place (a few microseconds,
    two events apart). No clock needs to be translated, so none can drift.
    Work on other streams than the current one is not seen.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

from whyidle_agent import control, loop, wire, writer

_MYPY = False
if _MYPY:
    from types import ModuleType
    from typing import Any

MERGE_NS = 5_000_000
"""Back-to-back pieces of simulated work are one record until they are this long."""
MAX_PENDING_STEPS = 64
"""Steps whose events the device may still owe us; beyond that, steps go unmeasured."""
LAUNCH_LATENCY_NS = 20_000
"""How late after its record an event may run on an idle device."""


class _Simulated:
    """What is known of one simulated accelerator, and its busy time that is not yet written."""

    __slots__ = ("device_id", "end_ns", "launched_ns", "start_ns")

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self.start_ns = 0
        self.end_ns = 0
        self.launched_ns = 0

    def add(self, launched_ns: int, start_ns: int, end_ns: int) -> None:
        if start_ns != self.end_ns or self.start_ns == 0:
            self.flush()
            self.start_ns, self.launched_ns = start_ns, launched_ns
        self.end_ns = end_ns
        if end_ns - self.start_ns >= MERGE_NS:
            self.flush()

    def flush(self) -> None:
        if self.start_ns and self.end_ns > self.start_ns:
            writer.emit(
                wire.DEVICE_BUSY,
                0,
                self.device_id,
                self.start_ns,
                self.end_ns,
                self.launched_ns,
                0,
                0,
                0,
            )
        self.start_ns = 0


class _Pending:
    """Two events of one wait, and where the second one was recorded on the host's clock."""

    __slots__ = (
        "after",
        "batch",
        "before",
        "device_id",
        "iteration",
        "record_ns",
        "recorded_ns",
    )

    def __init__(self, before: Any, iteration: int, batch: int, device_id: int) -> None:
        self.before = before
        self.after: Any = None
        self.iteration = iteration
        self.batch = batch
        self.device_id = device_id
        self.recorded_ns = 0
        self.record_ns = 0


class _Cuda:
    """The CUDA events in flight."""

    def __init__(self) -> None:
        self.ready = False
        self.failed = False
        self.open: _Pending | None = None
        self.pending: list[_Pending] = []
        self.free: list[Any] = []
        self.known_devices: set[int] = set()


_lock = RLock()
_simulated: dict[int, _Simulated] = {}
_cuda = _Cuda()
_CUDA_ID_BASE = 1000
"""Device ids: simulated ones are their serial numbers, CUDA ones are this plus the device's index."""


def install_simulated(testing: ModuleType) -> None:
    """Watch the simulated accelerators of `whyidle.testing`."""
    observers: Any = vars(testing)
    if _on_launch not in observers["_launch_observers"]:
        observers["_launch_observers"].append(_on_launch)
        observers["_synchronize_observers"].append(_on_synchronize)
        import atexit

        atexit.register(_flush_simulated)


def before_ask(iteration: int, batch: int) -> None:
    """The loop is about to wait for a batch.

    Cost: 1 us without CUDA; with it two event records and one query a step, about 15 us.
    """
    try:
        _flush_simulated()
        cuda = _cuda_if_used()
        if cuda is not None:
            _open_wait(cuda, iteration, batch)
    except Exception as error:
        _give_up(error)


def after_ask(iteration: int, batch: int) -> None:
    """The loop has got its batch."""
    try:
        if _cuda.open is not None:
            _close_wait(_cuda)
    except Exception as error:
        _give_up(error)


def _on_launch(accelerator: Any, launched_ns: int, start_ns: int, end_ns: int) -> None:
    try:
        control.saw_work(control.WEAK)
        with _lock:
            _known(accelerator).add(launched_ns, start_ns, end_ns)
    except Exception as error:
        writer.note("device-failed", repr(error))


def _on_synchronize(accelerator: Any, t0: int, t1: int) -> None:
    try:
        loop.mark(wire.MARK_SYNC, t0, t1, depth=3)
    except Exception as error:
        writer.note("device-failed", repr(error))


def _known(accelerator: Any) -> _Simulated:
    number = accelerator.serial_number
    device = _simulated.get(number)
    if device is None:
        device = _simulated[number] = _Simulated(number)
        name = writer.text(str(accelerator.name))
        writer.emit(
            wire.DEVICE, 0, number, writer.now(), 0, wire.DEVICE_KIND_SIMULATED, name, 0, 0
        )
    return device


def _flush_simulated() -> None:
    if _simulated:
        with _lock:
            for device in _simulated.values():
                device.flush()


def _cuda_if_used() -> _Cuda | None:
    """The CUDA state once the target has initialised CUDA; asking never initialises it."""
    cuda = _cuda
    if cuda.failed:
        return None
    if not cuda.ready:
        module = sys.modules.get("torch.cuda")
        if module is None or not module.is_initialized():
            return None
        cuda.ready = True
        loop.install_synchronising_methods(sys.modules["torch"])
    return cuda


def _open_wait(cuda: _Cuda, iteration: int, batch: int) -> None:
    module: Any = sys.modules["torch.cuda"]
    _collect(cuda)
    cuda.open = None
    capturing = getattr(module, "is_current_stream_capturing", None)
    if len(cuda.pending) >= MAX_PENDING_STEPS or (capturing is not None and capturing()):
        return
    device_id = _CUDA_ID_BASE + module.current_device()
    _announce(cuda, module, device_id)
    pending = _Pending(_event(cuda, module), iteration, batch, device_id)
    pending.before.record()
    cuda.open = pending


def _close_wait(cuda: _Cuda) -> None:
    module: Any = sys.modules["torch.cuda"]
    pending, cuda.open = cuda.open, None
    if pending is None or _CUDA_ID_BASE + module.current_device() != pending.device_id:
        return
    pending.after = _event(cuda, module)
    begin = writer.now()
    pending.after.record()
    pending.recorded_ns = writer.now()
    pending.record_ns = pending.recorded_ns - begin
    cuda.pending.append(pending)


def _collect(cuda: _Cuda) -> None:
    """Write the idle times whose events have run; never waits for one that has not."""
    done = 0
    for pending in cuda.pending:
        if not pending.after.query():
            break
        idle_ns = int(pending.before.elapsed_time(pending.after) * 1e6)
        t1 = pending.recorded_ns
        error_ns = pending.record_ns + LAUNCH_LATENCY_NS
        writer.emit(
            wire.DEVICE_IDLE,
            0,
            pending.device_id,
            t1 - idle_ns,
            t1,
            error_ns,
            pending.iteration,
            pending.batch,
            0,
        )
        if pending.device_id in cuda.known_devices:
            cuda.free += (pending.before, pending.after)
        done += 1
    del cuda.pending[:done]


def _event(cuda: _Cuda, module: Any) -> Any:
    return cuda.free.pop() if cuda.free else module.Event(enable_timing=True)


def _announce(cuda: _Cuda, module: Any, device_id: int) -> None:
    if device_id in cuda.known_devices:
        return
    if cuda.known_devices:
        # Events of one device cannot be recorded on another: begin anew, and never mix.
        cuda.free.clear()
    cuda.known_devices = {device_id}
    name = writer.text(str(module.get_device_name(device_id - _CUDA_ID_BASE)))
    writer.emit(
        wire.DEVICE,
        0,
        device_id,
        writer.now(),
        0,
        wire.DEVICE_KIND_CUDA,
        name,
        LAUNCH_LATENCY_NS,
        0,
    )


def _give_up(error: Exception) -> None:
    _cuda.failed = True
    _cuda.open = None
    _cuda.pending.clear()
    _cuda.free.clear()
    writer.note("device-failed", repr(error))


def _after_fork() -> None:
    """A child has no CUDA context of its own and other devices to announce."""
    global _lock, _cuda
    # Destroying the parent's events here would call into CUDA: keep them.
    _parents.append(_cuda)
    _lock, _cuda = RLock(), _Cuda()
    _simulated.clear()


_parents: list[_Cuda] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
