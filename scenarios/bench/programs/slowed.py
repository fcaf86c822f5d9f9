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
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DECORATOR = "__longer__"
BLOCKED_S = 5e-5
"""Less is the measuring itself and the end of a time slice, not a call that blocks."""


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
    here = PerThread()

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if here.inside:
            return function(*arguments, **keywords)
        here.inside = True
        clock = Clock()
        try:
            return function(*arguments, **keywords)
        finally:
            clock.go_on(by, here)
            here.inside = False

    @functools.wraps(function)
    def items(*arguments: Any, **keywords: Any) -> Iterator[Any]:
        source = function(*arguments, **keywords)
        while True:
            clock = Clock()
            try:
                item = next(source)
            except StopIteration:
                return
            clock.go_on(by, here)
            yield item

    return items if inspect.isgeneratorfunction(function) else call


class PerThread(threading.local):
    """What a longer function keeps for each thread."""

    inside = False
    """Whether the function is running: what it calls of itself is not made longer again."""
    owed_cpu_s = 0.0
    """Computing that is still to be done; below 0 when the last time was a little too long."""
    owed_sleep_s = 0.0


class Clock:
    """Measures how long this thread computed and was blocked since it was made."""

    def __init__(self) -> None:
        """Start."""
        self.queued_s = queued_s()
        self.wall_s = time.monotonic()
        self.cpu_s = time.thread_time()

    def go_on(self, by: float, here: PerThread) -> None:
        """Compute and sleep on, by a part of what was computed and slept."""
        cpu_s = time.thread_time() - self.cpu_s
        wall_s = time.monotonic() - self.wall_s
        blocked_s = max(0.0, wall_s - cpu_s - (queued_s() - self.queued_s))
        here.owed_cpu_s += by * cpu_s
        here.owed_sleep_s += by * blocked_s if blocked_s > BLOCKED_S else 0.0
        begin_s = time.thread_time()
        while time.thread_time() - begin_s < here.owed_cpu_s:
            sum(range(100))
        here.owed_cpu_s -= time.thread_time() - begin_s
        if here.owed_sleep_s > 0:
            begin_s = time.monotonic()
            time.sleep(here.owed_sleep_s)
            here.owed_sleep_s -= time.monotonic() - begin_s


def queued_s() -> float:
    """Give how long this thread was ready and had no CPU, s; 0 where the kernel does not say."""
    try:
        text = os.pread(schedstat(os.getpid(), threading.get_native_id()), 64, 0)
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e9


@functools.cache
def schedstat(pid: int, thread: int) -> int:
    """Open the kernel's figures of a thread once."""
    return os.open(f"/proc/{pid}/task/{thread}/schedstat", os.O_RDONLY)


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
