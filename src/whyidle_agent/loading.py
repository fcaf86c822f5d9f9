"""Import functions of a training by their file, after the training, as the training had imported them.

NOTE [the script without its training]
    A function of the main script cannot be had by running the script: that would train. A script with a main guard is
    run under the name that multiprocessing gives it in a spawned worker. Of one without, only the statements are run
    that the function needs: those that define the names it uses, and in turn the names that these use. A loop is
    never run, nor a call that stands alone, unless it is a call on something that is needed (`sys.path.append(...)`).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import types

_MYPY = False
if _MYPY:
    from typing import Any, Callable, Iterator

_MAIN = "__mp_main__"
_MAX_WRAPPERS = 8
_DEFINING = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.If,
    ast.Try,
    ast.With,
)
_main_script: _Script | None = None


def install_target(target: dict[str, Any]) -> None:
    """Stand where the training stood: its folder, its import path, its words of the command line."""
    global _main_script
    if os.path.isdir(target["folder"]):
        os.chdir(target["folder"])
    sys.path[:] = target["path"]
    sys.argv[:] = target["argv"]
    main = target.get("main")
    _main_script = _Script(main, target.get("package")) if main else None


def find_function(wanted: dict[str, Any], *, is_captured: bool) -> Callable[..., Any]:
    """Import a function.

    Args:
        wanted: `file`, `function` (`Class.method` for a method) and, where it is known, the name of the `module`.
        is_captured: It is the one that was captured: what lies behind its decorators.

    Raises:
        LookupError: the file has no such function.
        TypeError: it cannot be called.
        Exception: whatever importing the file raises.
    """
    first, *rest = wanted["function"].split(".")
    module = _module_of(wanted["file"], wanted.get("module"), first)
    found: Any = module
    for part in (first, *rest):
        names = vars(found) if hasattr(found, "__dict__") else {}
        if part not in names:
            raise LookupError("%s has no %s" % (wanted["file"], wanted["function"]))
        found = names[part]
    for _ in range(_MAX_WRAPPERS):
        inner = getattr(found, "__func__", None)
        if inner is None and is_captured:
            inner = getattr(found, "__wrapped__", None)
        if inner is None:
            break
        found = inner
    if not callable(found):
        raise TypeError("%s in %s cannot be called" % (wanted["function"], wanted["file"]))
    function: Callable[..., Any] = found
    return function


def load_main(name: str) -> types.ModuleType:
    """The module that stands for the script, with this name of it defined.

    Raises:
        LookupError: there was no script.
        Exception: whatever its statements raise.
    """
    if _main_script is None:
        raise LookupError("the training had no script: nothing in __main__ can be imported")
    _main_script.define(name)
    return _main_script.module


def _module_of(file: str, module: str | None, name: str) -> types.ModuleType:
    if _main_script is not None and os.path.realpath(file) == _main_script.file:
        return load_main(name)
    for candidate in [module, *_names_of(file)]:
        if candidate is None or candidate in ("__main__", _MAIN):
            continue
        try:
            found = importlib.import_module(candidate)
        except ModuleNotFoundError as error:
            # Only the candidate itself may be missing; what it imports may not.
            if error.name is None or not (candidate + ".").startswith(error.name + "."):
                raise
            continue
        if os.path.realpath(str(getattr(found, "__file__", ""))) == os.path.realpath(file):
            return found
    return _load_by_path(file)


def _names_of(file: str) -> Iterator[str]:
    """Names under which a file may be imported, given sys.path."""
    real = os.path.realpath(file)
    for entry in sys.path:
        folder = os.path.realpath(entry or os.getcwd())
        if not real.startswith(folder + os.sep):
            continue
        parts = os.path.splitext(os.path.relpath(real, folder))[0].split(os.sep)
        is_inside_package = os.path.exists(os.path.join(folder, "__init__.py"))
        if all(part.isidentifier() for part in parts) and not is_inside_package:
            yield ".".join(parts)


def _load_by_path(file: str) -> types.ModuleType:
    name = "whyidle_replaced_" + os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LookupError("%s is no Python file" % file)
    if os.path.dirname(file) not in sys.path:
        # As for a script: it may import what lies beside it. Last, so that the training's modules come first.
        sys.path.append(os.path.dirname(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# --- the script -------------------------------------------------------------------------------------


class _Script:
    """See NOTE [the script without its training]."""

    def __init__(self, file: str, package: str | None) -> None:
        self.file = os.path.realpath(file)
        self.module = types.ModuleType(_MAIN)
        self.module.__file__ = file
        self.module.__package__ = package
        self._tree: ast.Module | None = None
        self._done: set[int] = set()

    def define(self, name: str) -> None:
        """Run what defines a name."""
        tree = self._parsed()
        chosen = range(len(tree.body)) if _has_guard(tree) else _needed_for(name, tree)
        new = [number for number in chosen if number not in self._done]
        if not new:
            return
        self._done.update(new)
        # What __future__ changes holds for each compilation.
        futures = [one for one in tree.body if _is_future(one)]
        rest = [tree.body[number] for number in new if not _is_future(tree.body[number])]
        part = ast.Module(body=[*futures, *rest], type_ignores=[])
        exec(compile(part, self.file, "exec"), self.module.__dict__)

    def _parsed(self) -> ast.Module:
        if self._tree is None:
            with open(self.file, "rb") as file:
                self._tree = ast.parse(file.read(), self.file)
            # A class of the script says __main__ of itself, and may be looked up there.
            sys.modules["__main__"] = sys.modules[_MAIN] = self.module
        return self._tree


def _has_guard(tree: ast.Module) -> bool:
    return any(
        isinstance(one, ast.If)
        and any(
            isinstance(part, ast.Name) and part.id == "__name__"
            for part in ast.walk(one.test)
        )
        for one in tree.body
    )


def _needed_for(name: str, tree: ast.Module) -> list[int]:
    """Numbers of the statements that a name needs, in order."""
    needed, chosen = {name}, set()
    is_growing = True
    while is_growing:
        is_growing = False
        for number, statement in enumerate(tree.body):
            if number not in chosen and _is_needed(statement, needed):
                chosen.add(number)
                needed |= _used_names(statement)
                is_growing = True
    return sorted(chosen)


def _is_needed(statement: ast.stmt, needed: set[str]) -> bool:
    if isinstance(statement, ast.Expr):
        call = statement.value
        root: Any = call.func if isinstance(call, ast.Call) else None
        if not isinstance(root, ast.Attribute):
            return False
        while isinstance(root, (ast.Attribute, ast.Subscript)):
            root = root.value
        return isinstance(root, ast.Name) and root.id in needed
    return isinstance(statement, _DEFINING) and bool(_bound_names(statement) & needed)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _bound_names(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module binds there."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    names: set[str] = set()
    for part in ast.walk(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            names.add(part.name)
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            names.update((one.asname or one.name).partition(".")[0] for one in part.names)
    return names


def _used_names(statement: ast.stmt) -> set[str]:
    return {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
