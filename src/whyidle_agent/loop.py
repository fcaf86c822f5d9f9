"""Marks in the training loop's thread: backward, optimizer, waits for the device, saves, collections.

Everything is recorded only in the thread that asks for batches, outermost call only, with the line
of the target that made the call. Each patch point is guarded by itself: on a surprise it is left
alone and the journal says so.

NOTE [what compilers see]
    torch.compile recognises functions by identity and methods by name. Collectives are therefore
    wrapped at the end of their module's execution, before anybody has taken them; the optimizer is
    watched through torch's own global hooks; methods of tensors are wrapped only once CUDA is in use.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import time
from _thread import get_ident

from whyidle_agent import control, wire, writer

_MYPY = False
if _MYPY:
    from types import FrameType, ModuleType
    from typing import Any, Callable

GC_MIN_NS = 100_000
"""Shorter garbage collections are not recorded."""
SYNC_MIN_NS = 10_000
"""Shorter copies of values to the host are not recorded: nothing was waited for."""
MAX_CACHED_FILES = 4096
"""Files remembered as inside or outside of torch."""

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
"""Functions of torch.distributed that may wait for other ranks."""
SYNCHRONISING_METHODS = ("cpu", "item", "tolist")
"""Methods of a tensor that wait for the device when the tensor lies there."""


class _State:
    """Of the loop's thread alone, so it needs no lock."""

    __slots__ = (
        "gc_start_ns",
        "inside",
        "optimizer_start_ns",
    )

    def __init__(self) -> None:
        self.inside = False
        self.gc_start_ns = 0
        self.optimizer_start_ns = 0


_state = _State()
_file_is_inside: dict[str, bool] = {}
_inside_folders: tuple[str, ...] = (os.path.dirname(os.path.abspath(__file__)) + os.sep,)
_wrapped_marker = "__whyidle_mark__"


def install(torch: ModuleType) -> None:
    """Watch the calls of a whole, imported torch. Calling it again changes nothing."""
    _learn_folder(torch)
    _guarded("autograd.backward", _install_backward, torch)
    _guarded("optimizer", _install_optimizer, torch)
    _guarded("torch.save", _install_save, torch)
    _guarded("cuda.synchronize", _install_synchronize, torch)
    _guarded("gc", _install_gc)
    collectives = sys.modules.get("torch.distributed.distributed_c10d")
    if collectives is not None:
        install_collectives(collectives)


def install_collectives(module: ModuleType) -> None:
    """Wrap the collectives of `torch.distributed.distributed_c10d`."""
    public = sys.modules.get("torch.distributed")
    for name in COLLECTIVES:
        function = getattr(module, name, None)
        if function is not None:
            _guarded(name, _replace, name, wire.MARK_COLLECTIVE, 0, module, public)


def install_synchronising_methods(torch: Any) -> None:
    """Wrap the methods that copy a tensor's values to the host; called once CUDA is in use."""
    for name in SYNCHRONISING_METHODS:
        _guarded("Tensor." + name, _install_method, torch, name)


def mark(kind: int, t0: int, t1: int, detail: int = 0, depth: int = 1) -> None:
    """Record that the loop's thread did something, if this is the loop's thread.

    Args:
        kind: MARK_*.
        t0: When it began, monotonic ns.
        t1: When it ended, monotonic ns.
        detail: MARK.d.
        depth: Frames between the caller's line and this function.
    """
    if get_ident() != control.loop_thread():
        return
    file, line = _calling_line(sys._getframe(depth))
    writer.emit(wire.MARK, 0, kind, t0, t1, -1, file, line, detail)


def _guarded(point: str, install_point: Callable[..., None], *args: Any) -> None:
    try:
        install_point(*args)
    except Exception as error:
        writer.note("patch-failed", f"{point}: {error!r}")


def _learn_folder(torch: ModuleType) -> None:
    global _inside_folders
    file = getattr(torch, "__file__", None)
    if file:
        folder = os.path.dirname(os.path.abspath(file)) + os.sep
        if folder not in _inside_folders:
            _inside_folders += (folder,)
            _file_is_inside.clear()


def _calling_line(frame: FrameType | None) -> tuple[int, int]:
    """Text id of the file and line of the innermost frame that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        inside = _file_is_inside.get(file)
        if inside is None:
            inside = _is_inside(file)
        if not inside:
            return writer.text(file), frame.f_lineno or 0
        frame = frame.f_back
    return 0, 0


def _is_inside(file: str) -> bool:
    inside = file.startswith(_inside_folders) or file.startswith("<frozen ")
    inside = inside or file.endswith(("/contextlib.py", "/functools.py"))
    if len(_file_is_inside) < MAX_CACHED_FILES:
        _file_is_inside[file] = inside
    return inside


def _marked(function: Callable[..., Any], kind: int, sign: int) -> Callable[..., Any]:
    """Wrap a function so that its calls from the loop's thread leave a mark.

    Cost: about 3 us per recorded call, 0.3 us for any other.
    """
    now = time.monotonic_ns

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _state.inside or get_ident() != control.loop_thread():
            return function(*args, **kwargs)
        _state.inside = True
        t0 = now()
        try:
            return function(*args, **kwargs)
        finally:
            t1 = now()
            _state.inside = False
            _leave_mark(kind, sign, t0, t1)

    setattr(call, _wrapped_marker, True)
    return call


def _leave_mark(kind: int, sign: int, t0: int, t1: int) -> None:
    """Leave a mark of the caller's caller, which runs in the loop's thread."""
    try:
        if sign:
            control.saw_work(sign)
        file, line = _calling_line(sys._getframe(2))
        writer.emit(wire.MARK, 0, kind, t0, t1, -1, file, line, 0)
    except Exception as error:
        writer.note("mark-failed", repr(error))


def _replace(name: str, kind: int, sign: int, *owners: Any) -> None:
    """Wrap an attribute in every module that holds the same function under this name."""
    function = getattr(owners[0], name)
    if getattr(function, _wrapped_marker, False):
        return
    wrapper = _marked(function, kind, sign)
    for owner in owners:
        if owner is not None and getattr(owner, name, None) is function:
            setattr(owner, name, wrapper)


def _install_backward(torch: Any) -> None:
    # Tensor.backward looks this function up at each call, in every version.
    _replace("backward", wire.MARK_BACKWARD, control.STRONG, torch.autograd)


def _install_save(torch: Any) -> None:
    _replace("save", wire.MARK_SAVE, 0, torch.serialization, torch)


def _install_synchronize(torch: Any) -> None:
    _replace("synchronize", wire.MARK_SYNC, 0, torch.cuda)


def _install_gc() -> None:
    if _on_gc not in gc.callbacks:
        gc.callbacks.append(_on_gc)


def _on_gc(phase: str, info: dict[str, int]) -> None:
    """Time the collections of the loop's thread; runs inside the collector, so it stays short."""
    try:
        if get_ident() != control.loop_thread():
            return
        if phase == "start":
            _state.gc_start_ns = writer.now()
            return
        t0, t1 = _state.gc_start_ns, writer.now()
        _state.gc_start_ns = 0
        if t0 and t1 - t0 >= GC_MIN_NS:
            mark(wire.MARK_GC, t0, t1, detail=info.get("generation", 0), depth=2)
    except Exception:
        return


def _install_optimizer(torch: Any) -> None:
    module = sys.modules.get("torch.optim.optimizer")
    before = getattr(module, "register_optimizer_step_pre_hook", None)
    after = getattr(module, "register_optimizer_step_post_hook", None)
    if before is None or after is None:
        _wrap_optimizer_classes(torch)
    elif not getattr(module, _wrapped_marker, False):
        before(_before_optimizer)
        after(_after_optimizer)
        setattr(module, _wrapped_marker, True)


def _wrap_optimizer_classes(torch: Any) -> None:
    """Before torch 2.0 there are no global hooks: wrap `step` of each optimizer that torch brings."""
    base = torch.optim.Optimizer
    for cls in list(vars(torch.optim).values()):
        own = isinstance(cls, type) and issubclass(cls, base) and vars(cls).get("step")
        if own and cls is not base and not getattr(own, _wrapped_marker, False):
            cls.step = _marked(own, wire.MARK_OPTIMIZER, control.STRONG)


def _before_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Run by torch before each optimizer step."""
    if get_ident() == control.loop_thread():
        _state.optimizer_start_ns = writer.now()


def _after_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Run by torch after each optimizer step."""
    start_ns = _state.optimizer_start_ns
    if start_ns and get_ident() == control.loop_thread():
        _state.optimizer_start_ns = 0
        _leave_mark(wire.MARK_OPTIMIZER, control.STRONG, start_ns, writer.now())


def _install_method(torch: Any, name: str) -> None:
    method = getattr(torch.Tensor, name)
    # Without it, asking a tensor where it lies would be seen by the target's __torch_function__.
    unseen = torch._C.DisableTorchFunction
    if getattr(method, _wrapped_marker, False):
        return
    now = time.monotonic_ns

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _state.inside or get_ident() != control.loop_thread():
            return method(self, *args, **kwargs)
        t0 = now()
        try:
            return method(self, *args, **kwargs)
        finally:
            t1 = now()
            if t1 - t0 >= SYNC_MIN_NS:
                _leave_sync_mark(self, unseen, t0, t1)

    setattr(call, _wrapped_marker, True)
    setattr(torch.Tensor, name, call)


def _leave_sync_mark(tensor: Any, unseen: Any, t0: int, t1: int) -> None:
    try:
        with unseen():
            on_device = tensor.is_cuda
        if on_device:
            mark(wire.MARK_SYNC, t0, t1, depth=3)
    except Exception as error:
        writer.note("mark-failed", repr(error))


def _after_fork() -> None:
    global _state
    _state = _State()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
