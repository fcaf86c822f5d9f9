"""Run an unchanged training script with one of its functions made longer, or its loaders given other arguments.

    python scenarios/bench/programs/slowed.py --function draw_points --by 1.0 train.py …
    python scenarios/bench/programs/slowed.py --loader '{"num_workers": 4}' train.py …

A longer function does more of the same afterwards: where it computed, it computes on; where it was blocked, it sleeps.
What it waited for a CPU is not made longer: that follows by itself from more computing.
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DECORATOR = "__longer__"


def main() -> None:
    """Run the script as `python train.py …` would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--function")
    parser.add_argument("--by", type=float, default=1.0)
    parser.add_argument("--loader", type=json.loads, default={})
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.loader:
        change_loaders(args.loader)
    run_script(args.command, args.function, args.by)


def run_script(command: list[str], function: str | None, by: float) -> None:
    """Execute a script as the main module, one function of it decorated."""
    path = command[0]
    tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    if function is not None:
        tree = decorated(tree, function)
    sys.argv = command
    sys.path[0] = str(Path(path).parent)
    script = types.ModuleType("__main__", ast.get_docstring(tree))
    script.__file__ = path
    script.__dict__[DECORATOR] = functools.partial(longer, by=by)
    sys.modules["__main__"] = script  # classes of the script are pickled by that name
    exec(compile(tree, path, "exec"), script.__dict__)


def decorated(tree: ast.Module, function: str) -> ast.Module:
    """Put the decorator on every definition of the function.

    Raises:
        ValueError: The script does not define it.
    """
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    if not found:
        msg = f"the script defines no function {function!r}"
        raise ValueError(msg)
    for node in found:
        name = ast.Name(id=DECORATOR, ctx=ast.Load())
        node.decorator_list.append(ast.copy_location(name, node))
    return ast.fix_missing_locations(tree)


def longer(function: Callable[..., Any], *, by: float) -> Callable[..., Any]:
    """Make a function longer by a part of itself; of a generator, each item."""
    nested = threading.local()

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if getattr(nested, "inside", False):
            return function(*arguments, **keywords)
        nested.inside = True
        clock = Clock()
        try:
            return function(*arguments, **keywords)
        finally:
            clock.go_on(by)
            nested.inside = False

    @functools.wraps(function)
    def items(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        source = function(*arguments, **keywords)
        while True:
            clock = Clock()
            try:
                item = next(source)
            except StopIteration:
                return
            clock.go_on(by)
            yield item

    return items if inspect.isgeneratorfunction(function) else call


class Clock:
    """Measures how long this thread computed and was blocked since it was made."""

    def __init__(self) -> None:
        """Start."""
        self.cpu_s = time.thread_time()
        self.queued_s = queued_s()
        self.wall_s = time.monotonic()

    def go_on(self, by: float) -> None:
        """Compute and sleep on, by a part of what was computed and slept."""
        cpu_s = time.thread_time() - self.cpu_s
        queued = queued_s() - self.queued_s
        blocked_s = max(0.0, time.monotonic() - self.wall_s - cpu_s - queued)
        end_s = time.thread_time() + by * cpu_s
        while time.thread_time() < end_s:
            sum(range(200))
        if blocked_s > 0:
            time.sleep(by * blocked_s)


def queued_s() -> float:
    """Give how long this thread was ready and had no CPU, s; 0 where the kernel does not say."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text()
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9


def change_loaders(arguments: dict[str, Any]) -> None:
    """Give every DataLoader of this process these arguments instead of its own."""
    from torch.utils.data import DataLoader

    original = DataLoader.__init__

    @functools.wraps(original)
    def changed(self: Any, *positional: Any, **keywords: Any) -> None:
        bound = inspect.signature(original).bind(self, *positional, **keywords)
        bound.arguments |= arguments
        if not bound.arguments.get("num_workers"):
            for name in ("prefetch_factor", "persistent_workers"):
                bound.arguments.pop(name, None)
        original(*bound.args, **bound.kwargs)

    DataLoader.__init__ = changed  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
