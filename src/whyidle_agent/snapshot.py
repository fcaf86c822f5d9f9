"""What is kept of one call: its values as bytes, the random generators before it, what it did outside of its memory.

NOTE [what a replay gets]
    Arguments are pickled before the call and once more behind it: they differ if the function changed them. Tensors
    are pickled as bytes, shape and strides (pickle's persistent ids), so that torch's own saving is not involved.
    The states of the global random generators are only read, and kept where the call moved them.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import sys

_MYPY = False
if _MYPY:
    from typing import Any

MAX_RECORD_BYTES = 32_000_000
"""One call with more is refused: that is a whole batch of images, and pickling more would hold up the worker."""


class RefusedError(Exception):
    """A call cannot be kept; the text says why."""


# --- pickling -------------------------------------------------------------------------------------


class _Sink(io.RawIOBase):
    """Takes what is pickled, up to a bound."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []
        self.size = 0

    def write(self, part: Any) -> int:
        self.size += len(part)
        if self.size > MAX_RECORD_BYTES:
            raise RefusedError("more than %d MB" % (MAX_RECORD_BYTES // 1_000_000))
        self.parts.append(bytes(part))
        return len(part)


class _Pickler(pickle.Pickler):
    """Pickles tensors as bytes. See NOTE [what a replay gets]."""

    def persistent_id(self, obj: Any) -> Any:
        tensor_class = getattr(sys.modules.get("torch"), "Tensor", None)
        # Subclasses (torchvision's images, parameters) know themselves how they are pickled.
        if tensor_class is None or type(obj) is not tensor_class:
            return None
        return _parts_of(obj)


def _parts_of(tensor: Any) -> tuple[Any, ...]:
    torch: Any = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise RefusedError("a tensor on %s" % tensor.device.type)
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise RefusedError("a tensor of layout %s" % tensor.layout)
    if tensor.grad_fn is not None:
        raise RefusedError("a tensor that was computed with gradients")
    plain = (
        tensor.detach().resolve_conj()
        if hasattr(tensor, "resolve_conj")
        else tensor.detach()
    )
    flat = plain.contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    name = str(tensor.dtype).rpartition(".")[2]
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return ("tensor", name, shape, strides, bool(tensor.requires_grad), data)


def tensor_of(parts: tuple[Any, ...]) -> Any:
    """Make a tensor of what `_parts_of` gave. Imports torch: for replays only."""
    torch: Any = importlib.import_module("torch")
    _, name, shape, strides, requires_grad, data = parts
    dtype = getattr(torch, name)
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else None
    plain = (
        torch.empty(shape, dtype=dtype) if flat is None else flat.view(dtype).reshape(shape)
    )
    if plain.stride() != strides:
        try:
            plain = torch.empty_strided(shape, strides, dtype=dtype).copy_(plain)
        except RuntimeError:
            pass  # elements share memory, as after expand(): the values are what counts
    return plain.requires_grad_(requires_grad)


def dump(value: Any) -> bytes:
    """Pickle a value.

    Raises:
        Refused: it is too large, or holds what a replay cannot have.
        Exception: whatever the value's own classes raise.
    """
    sink = _Sink()
    _Pickler(sink, 4).dump(value)
    return b"".join(sink.parts)


# --- random state and side effects ------------------------------------------------------------------


_RANDOM_MODULES = {"python": "random", "numpy": "numpy.random", "torch": "torch"}


def random_states() -> dict[str, bytes]:
    """States of the global random generators. Reads only. Cost: about 60 us with numpy and torch."""
    states: dict[str, bytes] = {}
    python = sys.modules.get("random")
    if python is not None:
        states["python"] = pickle.dumps(python.getstate(), 4)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        states["numpy"] = pickle.dumps(numpy.get_state(), 4)
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def set_random_states(states: dict[str, bytes]) -> None:
    """Set what `random_states` gave; for replays only."""
    for name, state in states.items():
        module: Any = importlib.import_module(_RANDOM_MODULES[name])
        if name == "torch":
            module.set_rng_state(module.frombuffer(bytearray(state), dtype=module.uint8))
        else:
            restore = module.setstate if name == "python" else module.set_state
            restore(pickle.loads(state))


def moved(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Names of the generators that a call has moved on."""
    return [name for name, state in before.items() if after.get(name, state) != state]


_IO_FILE = "/proc/thread-self/io"


def io_counts() -> tuple[int, int, int] | None:
    """Bytes that this thread has read and written, by any call, and those of this look itself; None where unknown.

    Not an audit hook: that would run in every thread, at every look of the stack sampler too. Cost: about 8 us.
    """
    try:
        file = os.open(_IO_FILE, os.O_RDONLY)
        try:
            text = os.read(file, 1024)
        finally:
            os.close(file)
        counts = dict(line.split(b": ") for line in text.splitlines())
        return int(counts[b"rchar"]), int(counts[b"wchar"]), len(text)
    except (OSError, ValueError, KeyError):
        return None


def effects_of(
    before: tuple[int, int, int] | None, after: tuple[int, int, int] | None
) -> list[str]:
    """What a call did outside of its memory, as far as its thread's counters tell."""
    if before is None or after is None:
        return []
    found = ["reads files or pipes"] if after[0] - before[0] > before[2] else []
    return [*found, "writes files or pipes"] if after[1] > before[1] else found
