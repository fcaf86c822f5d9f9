"""Time the parts of Compose-like containers, whatever library they come from.

A container is an object with a list of callables named `transforms`, or a Sequential. It is found
on the data set. Its parts are timed by wrapping `__call__` of their classes, in this process only;
the objects themselves are not touched, so their repr, type and pickle stay what they are. A part
that is a plain function has no class of its own and is not timed.

NOTE [classes that are left alone]
    torch's own classes may be part of the model as well. In a process that is no worker neither is
    any other torch.nn module wrapped, unless it comes from a module of transforms: a compiler that
    the person uses on the model looks into `__call__`.
"""

from __future__ import annotations

import functools
import os
import time
import types

from whyidle_agent import thread_state, writer
from whyidle_agent.patching import IdentityMap, disguised, is_wrapped

_MYPY = False
if _MYPY:
    from typing import Any, Callable, Iterator

MAX_HOPS = 3
"""Attributes followed from a data set to a container; from one data set to another it begins anew."""
MAX_OBJECTS = 512
"""Objects looked at in one search."""
MAX_LIST = 64
"""Longer lists on a data set are its data, not its parts."""
MAX_SPANS = 4096
"""Transforms of one batch that are kept."""

_now = time.monotonic_ns
_PLAIN_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    type,
)
_DATASET_LINKS = ("dataset", "datasets")
_STRANGERS = frozenset(("builtins", "numpy", "pandas", "pyarrow", "PIL", "h5py", "zarr"))

_names = IdentityMap()


def watch(dataset: Any) -> None:
    """Time the transforms that hang on a data set from now on.

    Cost: once for each fetcher, about 0.1 ms.
    """
    try:
        for container in _containers(dataset):
            _watch_parts(_parts_of(container) or ())
    except Exception as error:
        writer.note("transforms-failed", repr(error))


def _parts_of(candidate: Any) -> tuple[Any, ...] | None:
    """The callables of a container; None when it is none."""
    attributes = getattr(candidate, "__dict__", None)
    if type(attributes) is not dict:
        return None
    modules = attributes.get("_modules")
    if type(candidate).__name__ == "Sequential" and isinstance(modules, dict):
        return tuple(modules.values())
    parts = attributes.get("transforms")
    if parts is None and isinstance(modules, dict):
        listed = getattr(modules.get("transforms"), "_modules", None)
        parts = tuple(listed.values()) if isinstance(listed, dict) else None
    # albumentations keeps its parts in a list of a class of its own.
    if not isinstance(parts, (list, tuple)):
        return None
    parts = tuple(parts)
    return parts if parts and all(callable(part) for part in parts) else None


def _containers(dataset: Any) -> Iterator[Any]:
    """All containers that hang on a data set, outermost first."""
    seen = {id(dataset)}
    todo = [(dataset, 0)]
    while todo and len(seen) <= MAX_OBJECTS:
        candidate, hops = todo.pop(0)
        parts = _parts_of(candidate)
        if parts is not None:
            yield candidate
            following = [(part, 0) for part in parts]
        elif hops < MAX_HOPS:
            following = [
                (value, 0 if name in _DATASET_LINKS else hops + 1)
                for name, value in _attributes_of(candidate)
            ]
        else:
            continue
        for value, value_hops in following:
            if id(value) not in seen and _may_hold_transforms(value):
                seen.add(id(value))
                todo.append((value, value_hops))


def _attributes_of(candidate: Any) -> Iterator[tuple[str, Any]]:
    attributes = getattr(candidate, "__dict__", None)
    if type(attributes) is not dict:
        return
    for name, value in list(attributes.items()):
        if name == "_modules" and isinstance(value, dict):
            yield from value.items()
        elif type(value) in (list, tuple) and len(value) <= MAX_LIST:
            for one in value:
                yield name, one
        elif type(value) is dict and len(value) <= MAX_LIST:
            for one in list(value.values()):
                yield name, one
        else:
            yield name, value


def _may_hold_transforms(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN_FUNCTIONS or isinstance(value, (type, types.ModuleType)):
        return False
    return str(kind.__module__).partition(".")[0] not in _STRANGERS


def _watch_parts(parts: tuple[Any, ...]) -> None:
    counts: dict[str, int] = {}
    for part in parts:
        cls = type(part)
        if cls in _PLAIN_FUNCTIONS or _names.get(part) is not None:
            continue
        name = cls.__name__
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > 1:
            name = "%s#%d" % (name, counts[name])
        if _wrap(cls):
            _name(part, name)


def _name(part: Any, name: str) -> None:
    try:
        _names.set(part, writer.text(name))
    except TypeError:
        return  # cannot be held weakly: not timed


def _wrap(cls: Any) -> bool:
    """Wrap `__call__` of a class; False when it is to be left alone."""
    original = cls.__call__
    if is_wrapped(original):
        return True
    if not _may_wrap(cls, original):
        return False
    try:
        cls.__call__ = disguised(_timed(original), original)
    except (TypeError, AttributeError):
        return False  # a class made in C
    return True


def _may_wrap(cls: Any, original: Any) -> bool:
    """See NOTE [classes that are left alone]."""
    module = str(cls.__module__)
    if module.partition(".")[0] == "torch" or not isinstance(original, types.FunctionType):
        return False
    is_torch_module = any(
        str(base.__module__).startswith("torch.nn.modules.") for base in cls.__mro__
    )
    return thread_state.in_worker or not is_torch_module or "transforms" in module


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `__call__`.

    Cost: about 0.6 us for a part that is timed, and 0.6 us for its record; else 0.2 us.
    """
    names = _names

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = thread_state.current()
        ran = state.transforms
        if ran is None or state.innermost is self:
            return original(self, *args, **kwargs)
        name = names.get(self)
        if name is None or len(ran) >= MAX_SPANS:
            return original(self, *args, **kwargs)
        outer, state.innermost = state.innermost, self
        depth = state.depth
        state.depth = depth + 1
        start = _now()
        try:
            return original(self, *args, **kwargs)
        finally:
            end = _now()
            state.depth = depth
            state.innermost = outer
            spans = state.spans
            position = len(spans) if spans is not None else -1
            ran.append((name, start, end, position, depth))

    return call


if hasattr(os, "register_at_fork"):
    # The child writes a journal of its own, in which these text ids mean nothing.
    os.register_at_fork(after_in_child=_names.clear)
