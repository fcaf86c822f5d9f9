"""Run a training script under a tool that has to be called from inside it, as its documentation says.

    python scenarios/bench/programs/trainer.py {plain,traceml,gpuprof,torch-profiler} OUT train.py …

The scenarios' device is simulated, so their loops have no model and no optimizer. Tools that find steps by those
get them here: a small model's forward, backward and optimizer step around what the loop does with each batch.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import dataloader

WARMUP_STEPS = 2
ACTIVE_STEPS = 30
"""torch.profiler records a few tens of steps after a short warm-up, as the schedules of its tutorials do."""
SHOWN_OPERATIONS = 10


class Trainer:
    """Brackets what the loop does with a batch as one training step."""

    def __init__(self) -> None:
        """Make a model that costs next to nothing."""
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.step: AbstractContextManager[Any] | None = None

    def around(self) -> AbstractContextManager[Any]:
        """Give the context of one step."""
        return contextlib.nullcontext()

    def begin(self) -> None:
        """A batch has arrived."""
        self.step = self.around()
        self.step.__enter__()
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()

    def end(self) -> None:
        """The next batch is asked for."""
        if self.step is not None:
            self.optimizer.step()
            self.step.__exit__(None, None, None)
            self.step = None
            self.after_step()

    def after_step(self) -> None:
        """Called between steps."""


def attach(trainer: Trainer) -> None:
    """Call the trainer at each batch of every loader."""
    original = dataloader._BaseDataLoaderIter.__next__

    def following(self: Any) -> Any:
        trainer.end()
        batch = original(self)
        trainer.begin()
        return batch

    dataloader._BaseDataLoaderIter.__next__ = following  # type: ignore[method-assign]


def run_script(command: list[str]) -> None:
    """Execute the script as the main program."""
    sys.argv = command
    sys.path[0] = str(Path(command[0]).parent)
    runpy.run_path(command[0], run_name="__main__")


def run_plain(_out: Path, command: list[str]) -> None:
    """Only make steps visible: for tools that come in from outside."""
    attach(Trainer())
    run_script(command)


def run_traceml(_out: Path, command: list[str]) -> None:
    """`traceml.init()` and `with traceml.trace_step(model)`; started by `traceml run`."""
    import traceml_ai as traceml

    traceml.init()

    class Traced(Trainer):
        def around(self) -> AbstractContextManager[Any]:
            step: AbstractContextManager[Any] = traceml.trace_step(self.model)
            return step

    attach(Traced())
    run_script(command)


def run_gpuprof(out: Path, command: list[str]) -> None:
    """`with gpuprof.profile(...)` around the loop; the insights are kept."""
    import gpuprof

    with gpuprof.profile("scenario", db_path=str(out / "gpuprof.db")):
        attach(Trainer())
        run_script(command)


def run_torch_profiler(out: Path, command: list[str]) -> None:
    """`torch.profiler.profile` with a schedule, and the table by self CPU time."""
    from torch.profiler import ProfilerActivity, profile, schedule

    def keep(finished: Any) -> None:
        events = sorted(finished.key_averages(), key=lambda it: -it.self_cpu_time_total)
        rows = [
            {"name": it.key, "self_us": it.self_cpu_time_total}
            for it in events[:SHOWN_OPERATIONS]
        ]
        total_us = sum(it.self_cpu_time_total for it in events)
        text = json.dumps({"total_us": total_us, "rows": rows})
        (out / "operations.json").write_text(text)

    plan = schedule(wait=1, warmup=WARMUP_STEPS, active=ACTIVE_STEPS, repeat=1)
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep
    ) as profiler:

        class Profiled(Trainer):
            def after_step(self) -> None:
                profiler.step()

        attach(Profiled())
        run_script(command)


RUNS = {
    "plain": run_plain,
    "traceml": run_traceml,
    "gpuprof": run_gpuprof,
    "torch-profiler": run_torch_profiler,
}


def arguments() -> Iterator[str]:
    """Give the arguments, for torchrun-like launchers that pass them on as one list."""
    yield from sys.argv[1:]


def main() -> None:
    """Run the script under the named tool."""
    name, out, *command = arguments()
    RUNS[name](Path(out), command)


if __name__ == "__main__":
    main()
