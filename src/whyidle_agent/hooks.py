"""Wait for the target to import a few modules, and look at each right after it was executed.

NOTE [the import stays the target's]
    The finder asks the other finders for the module's own spec and returns exactly that; only the
    loader instance gets an `exec_module` of its own for the length of the import. Spec, loader type
    and loader attributes are what they would be without us, `importlib.reload` comes through here
    again, and an exception of ours is caught after the module was executed.
"""

from __future__ import annotations

import sys
from _thread import get_ident

_MYPY = False
if _MYPY:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Sequence

_LOADER = "torch.utils.data.dataloader"
_TORCH = "torch"
_COLLECTIVES = "torch.distributed.distributed_c10d"
_TESTING = "whyidle.testing"


def install() -> None:
    """Begin to wait; modules that are there already are looked at once."""
    sys.meta_path.insert(0, _Finder())
    for name in _WATCHED:
        module = sys.modules.get(name)
        if module is not None:
            _executed(name, module)


class _Finder:
    """First entry of sys.meta_path. Cost: one look into a dict per import of the target."""

    def __init__(self) -> None:
        self._asking: set[tuple[int, str]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for a watched module; None for any other."""
        if name not in _WATCHED:
            return None
        key = (get_ident(), name)
        if key in self._asking:
            return None
        self._asking.add(key)
        try:
            spec = self._spec_of_others(name, path, target)
        finally:
            self._asking.discard(key)
        if spec is not None:
            _look_after_exec(name, spec.loader)
        return spec

    def _spec_of_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        # Exceptions of other finders pass through: they would without us.
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                return spec
        return None


def _look_after_exec(name: str, loader: Any) -> None:
    """Let this one loader instance call us after it has executed the module."""
    try:
        if isinstance(loader, type) or type(loader).__name__ == "LazyLoader":
            return  # shared by all modules, or made to wait: not ours to touch
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if module.__name__ != name:
                execute(module)  # one loader for several modules: ours is still to come
                return
            loader.__dict__.pop("exec_module", None)
            execute(module)
            _executed(name, module)

        loader.__dict__["exec_module"] = exec_module
    except Exception as error:
        report("hook-failed", f"{name}: {error!r}")


def _executed(name: str, module: ModuleType) -> None:
    try:
        _WATCHED[name](module)
    except Exception as error:
        report("hook-failed", f"{name}: {error!r}")


def _torch_is_whole() -> bool:
    torch = sys.modules.get(_TORCH)
    spec = getattr(torch, "__spec__", None)
    return torch is not None and not getattr(spec, "_initializing", False)


def _on_loader(module: ModuleType) -> None:
    if _torch_is_whole():
        _install_loop()
    from whyidle_agent import loader

    loader.install(module)


def _on_torch(module: ModuleType) -> None:
    # Called when torch/__init__ was executed; a process that only computes is left alone.
    if _LOADER in sys.modules:
        _install_loop()


def _install_loop() -> None:
    try:
        from whyidle_agent import loop, losses, writer

        loop.install(sys.modules[_TORCH])
        losses.install(sys.modules[_TORCH])
        writer.update_header()
    except Exception as error:
        report("hook-failed", f"loop: {error!r}")


def _on_collectives(module: ModuleType) -> None:
    from whyidle_agent import loop

    loop.install_collectives(module)


def _on_testing(module: ModuleType) -> None:
    from whyidle_agent import device

    device.install_simulated(module)


_WATCHED = {
    _LOADER: _on_loader,
    _TORCH: _on_torch,
    _COLLECTIVES: _on_collectives,
    _TESTING: _on_testing,
}


def report(slug: str, message: str) -> None:
    """Write a note into the journal, if there can be one."""
    try:
        from whyidle_agent import writer

        writer.note(slug, message)
    except Exception:
        return
