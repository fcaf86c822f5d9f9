"""Run folders as agents and observer would have left them, from a simulated loader with known work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.builders import JournalBuilder, RunBuilder
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

    from tests.timelines import SimulatedLoader

MAIN_PID, FIRST_WORKER_PID, OBSERVER_PID = 100, 201, 90
ORIGIN_NS = 1_000_000
"""Simulated time 0 on the run's clock."""
SAMPLE_NS = 50_000_000
SCRIPT = "/home/me/train.py"


def record_run(
    folder: Path,
    loader: SimulatedLoader,
    *,
    cpu_share: float = 1.0,
    place: tuple[str, int] = ("offset_map", 33),
    wait: int = wire.WAIT_FILE,
    target: str = "/data/7.png",
    observed: bool = True,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """Write the run of a simulated loader into a folder.

    Args:
        folder: Folder to make; it becomes the run folder.
        loader: What to run.
        cpu_share: Part of each fetch spent on a CPU; the rest is blocked in `wait`.
        place: Function and line of the person's script where workers are seen.
        wait: What blocked workers wait for.
        target: And its name.
        observed: With an observer's journal beside those of the agents.
        manifest: Changes to the manifest.
    """
    times = {
        name: np.round(values).astype(np.int64) + ORIGIN_NS
        for name, values in loader.times().items()
    }
    run = RunBuilder(folder, **(manifest or {}))
    run.add(_main_journal(loader, times))
    for worker in range(loader.workers):
        run.add(_worker_journal(loader, times, worker, cpu_share, place))
    if observed:
        run.add(_observer_journal(loader, times, cpu_share, wait, target))
    return run.write()


def _main_journal(loader: SimulatedLoader, times: dict[str, Any]) -> JournalBuilder:
    count = len(loader.phases)
    batch = np.arange(count)
    journal = JournalBuilder(pid=MAIN_PID)
    flags = wire.LOADER_IN_ORDER
    journal.emit(
        wire.LOADER,
        ref=1,
        t0=0,
        t1=ORIGIN_NS,
        a=1,
        b=loader.workers,
        c=loader.prefetch,
        d=8,
        flags=flags,
    )
    for worker in range(loader.workers):
        journal.emit(wire.WORKER, ref=1, a=worker, b=FIRST_WORKER_PID + worker)
    journal.emit_rows(
        wire.ASK,
        ref=1,
        t0=times["ask"],
        t1=times["got"],
        a=batch,
        b=batch % loader.workers,
        c=-1,
    )
    return journal


def _worker_journal(
    loader: SimulatedLoader,
    times: dict[str, Any],
    worker: int,
    cpu_share: float,
    place: tuple[str, int],
) -> JournalBuilder:
    rows = np.arange(worker, len(loader.phases), loader.workers)
    window = loader.workers * loader.prefetch
    start, fin = times["start"][rows], times["fin"][rows]
    dispatched = np.where(
        rows >= window, times["got"][np.maximum(rows - window, 0)], ORIGIN_NS
    )
    index = np.maximum(dispatched, np.append(ORIGIN_NS, fin[:-1]))
    journal = JournalBuilder(
        pid=FIRST_WORKER_PID + worker, parent_pid=MAIN_PID, is_worker=True
    )
    journal.emit(wire.WORKER_START, t0=0, t1=ORIGIN_NS, a=worker, b=0, c=MAIN_PID)
    cpu = ((fin - start) * cpu_share).astype(np.int64)
    journal.emit_rows(wire.FETCH, ref=0, t0=start, t1=fin, a=rows, b=cpu, c=0, d=index)
    stack = journal.stack(
        (SCRIPT, *place), (SCRIPT, "__getitem__", 12), (_FETCH, "fetch", 54)
    )
    now = _in_fetch(start, fin)
    on_cpu = np.arange(len(now)) < len(now) * cpu_share
    flags = wire.STACK_IN_FETCH | np.where(on_cpu, wire.STACK_ON_CPU, wire.STACK_BLOCKED)
    journal.emit_rows(wire.STACK, ref=wire.STACK_ROLE_WORKER, t0=now - SAMPLE_NS, t1=now, a=stack,
                      b=FIRST_WORKER_PID + worker, c=np.where(on_cpu, -2, 0), flags=flags)  # fmt: skip
    return journal


_FETCH = "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"


def _in_fetch(start: Any, fin: Any) -> Any:
    """The ticks of a 20 Hz sampler that lie in a fetch."""
    ticks = np.arange(ORIGIN_NS, int(fin[-1]), SAMPLE_NS)
    number = np.searchsorted(start, ticks, "right") - 1
    return ticks[(number >= 0) & (ticks <= fin[np.maximum(number, 0)])]


def _observer_journal(
    loader: SimulatedLoader, times: dict[str, Any], cpu_share: float, wait: int, target: str
) -> JournalBuilder:
    journal = JournalBuilder(role="observer", pid=OBSERVER_PID)
    journal.emit(
        wire.PROCESS,
        ref=journal.text("python"),
        a=MAIN_PID,
        b=OBSERVER_PID,
        c=wire.PROCESS_ROLE_TRAINING,
        d=8,
    )
    journal.emit(wire.MOUNT, ref=journal.text("fuse.sshfs\0/data"), a=31)
    name = journal.text(target)
    for worker in range(loader.workers):
        rows = np.arange(worker, len(loader.phases), loader.workers)
        now, pid = (
            _in_fetch(times["start"][rows], times["fin"][rows]),
            FIRST_WORKER_PID + worker,
        )
        blocked = np.arange(len(now)) >= len(now) * cpu_share
        journal.emit_rows(
            wire.THREAD, ref=np.where(blocked, name, 0), t0=now - SAMPLE_NS, t1=now, a=pid << 32 | pid,
            b=np.where(blocked, 31 << 40 | ord("S") << 32, ord("R") << 32 | 0xFFFFFFFE), c=-1, d=-1,
            flags=np.where(blocked, wait, wire.WAIT_NONE),
        )  # fmt: skip
    return journal
