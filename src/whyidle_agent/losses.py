"""The losses of the first steps, in trials only: did a change of the loader change the training?

NOTE [reading later]
    Reading a tensor on a device waits for the device. A copy of each loss stays where it is, made by one small
    kernel, and is read when the training ends. Only tensors of one element are losses.
"""

from __future__ import annotations

import atexit
import functools
import os
import struct
import sys

from whyidle_agent import control, trial, wire, writer

_MYPY = False
if _MYPY:
    from types import ModuleType
    from typing import Any, Callable

_BITS = struct.Struct("<d")
_AS_INTEGER = struct.Struct("<q")
_marker = "__whyidle_losses__"
_kept: list[Any] = []
_of_parent: list[Any] = []
_read_count = 0


def install(torch: Any) -> None:
    """Keep the tensors on which `backward` is called, if this is a trial. Calling it again changes nothing."""
    if not trial.loss_count():
        return
    function = torch.autograd.backward
    if getattr(function, _marker, False):
        return
    torch.autograd.backward = _keeping(function, torch)
    control.before_end.append(read)
    atexit.register(read)
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    # Children of multiprocessing end without atexit.
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, read, exitpriority=-90)


def _keeping(function: Callable[..., Any], torch: ModuleType) -> Callable[..., Any]:
    most = trial.loss_count()

    @functools.wraps(function)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if len(_kept) < most:
            _keep(args[0] if args else kwargs.get("tensors"), torch)
        return function(*args, **kwargs)

    setattr(backward, _marker, True)
    return backward


def _keep(tensors: Any, torch: Any) -> None:
    try:
        loss = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or _captures(torch):
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            _kept.append(loss.detach().clone())
    except Exception as error:
        writer.note("losses-failed", repr(error))


def _captures(torch: Any) -> bool:
    """Whether a CUDA graph is being recorded, which our copy would become a part of."""
    cuda = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def read() -> None:
    """Read what was kept and record it. Waits for the device; called when the training has ended."""
    global _read_count
    try:
        while _read_count < len(_kept):
            position = _read_count
            _read_count += 1
            value = float(_kept[position])
            _kept[position] = None
            (bits,) = _AS_INTEGER.unpack(_BITS.pack(value))
            writer.emit(wire.LOSS, 0, 0, writer.now(), 0, position, bits, 0, 0)
    except Exception as error:
        writer.note("losses-failed", repr(error))


def _after_fork() -> None:
    # Letting go of a tensor on a device is for the process that made it alone.
    global _kept, _of_parent, _read_count
    _of_parent = _kept
    _kept = []
    _read_count = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
