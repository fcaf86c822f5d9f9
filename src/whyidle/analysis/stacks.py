"""Stack samples as recorded → arrays of samples over a list of distinct stacks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from whyidle.model.codes import StackFlag
from whyidle.model.syscalls import call_name
from whyidle.model.timeline import Frame, StackSamples
from whyidle.model.waits import CallShape, Wait, call_shape, link_wait, wait_outside_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whyidle.model.events import RunTables
    from whyidle.model.timeline import BoolArray, IntArray

MAX_WEIGHT_NS = 1_000_000_000
"""A sample stands for at most one second: a sampler that was stopped knows nothing of the gap."""


def align_stacks(
    run: RunTables, journals: list[int]
) -> tuple[StackSamples, tuple[tuple[Frame, ...], ...]]:
    """Collect the stack samples of some journals.

    Args:
        run: Tables as store gives them.
        journals: Journals of one rank's loop and workers.

    Returns:
        Samples sorted in time, and the distinct stacks (root first) that they point to.
    """
    rows = (
        run.tables["stack"]
        .filter(pl.col("journal").is_in(journals))
        .with_columns(pl.col("stack").cast(pl.String), pl.col("target").cast(pl.String))
        .sort("now_ns")
    )
    distinct = rows.select("journal", "stack").unique(maintain_order=True)
    stacks: dict[tuple[Frame, ...], int] = {}
    number_of: dict[tuple[int, str | None], int] = {}
    for journal, text in distinct.iter_rows():
        frames = parse_stack(journal, text, run.frame_texts)
        number_of[journal, text] = stacks.setdefault(frames, len(stacks))
    architecture = str((run.manifest.get("platform") or {}).get("architecture") or "x86_64")
    pid_of = {number: info.pid for number, info in enumerate(run.journals)}
    keys = list(zip(rows["journal"], rows["stack"], strict=True))
    now_ns = rows["now_ns"].to_numpy().astype(np.int64)
    flags = rows["flags"].cast(pl.Int64).to_numpy()
    on_cpu = (flags & StackFlag.BLOCKED) == 0
    samples = StackSamples(
        pid=np.array([pid_of[journal] for journal, _ in keys], dtype=np.int64),
        role=rows["role"].cast(pl.Int64).to_numpy(),
        now_ns=now_ns,
        weight_ns=np.clip(now_ns - rows["previous_ns"].to_numpy(), 0, MAX_WEIGHT_NS),
        stack=np.array([number_of[key] for key in keys], dtype=np.int64),
        on_cpu=on_cpu,
        flags=flags,
        wait=_waits(rows, on_cpu, architecture),
    )
    return samples, tuple(stacks)


def _waits(rows: pl.DataFrame, on_cpu: BoolArray, architecture: str) -> IntArray:
    waits = np.zeros(len(rows), dtype=np.int64)
    for number, (syscall, target) in enumerate(
        rows.select("syscall", "target").iter_rows()
    ):
        if not on_cpu[number]:
            waits[number] = agent_wait(syscall, target, architecture)
    return waits


_WAIT_OF_SHAPE = {
    CallShape.PATH: Wait.FILE,
    CallShape.PATH_AT: Wait.FILE,
    CallShape.FILE: Wait.FILE,
    CallShape.POLL: Wait.SOCKET,
    CallShape.SELECT: Wait.SOCKET,
    CallShape.EPOLL: Wait.SOCKET,
    CallShape.FUTEX: Wait.THREAD,
    CallShape.FUTEX_WAIT: Wait.THREAD,
    CallShape.DESCRIPTOR_LOCK: Wait.LOCK,
    CallShape.FCNTL: Wait.LOCK,
    CallShape.SLEEP: Wait.SLEEP,
    CallShape.CHILD: Wait.CHILD,
    CallShape.IPC: Wait.LOCK,
}
"""Calls without a descriptor the agent could name; inside a fetch nobody polls the loader's own queue."""


def agent_wait(syscall: int, target: str | None, architecture: str) -> int:
    """Name what a blocked thread waited for from what the agent saw of it.

    Args:
        syscall: Number of the call; -1 for none (a page fault).
        target: Link of the call's descriptor, or None.
        architecture: Whose numbers these are, as `uname -m` prints it.

    Returns:
        One of waits.Wait.
    """
    if syscall < 0:
        return int(wait_outside_call("D"))
    shape = call_shape(call_name(syscall, architecture))
    if shape is CallShape.DESCRIPTOR and target:
        return int(link_wait(target))
    return int(_WAIT_OF_SHAPE.get(shape, Wait.OTHER))


def parse_stack(
    journal: int, text: str | None, frame_texts: Mapping[tuple[int, int], str]
) -> tuple[Frame, ...]:
    r"""Read a recorded stack: frame ids in decimal, leaf first, joined by commas.

    Args:
        journal: Journal whose ids these are.
        text: `"12,7,3"`, or None for a sample without frames.
        frame_texts: (journal, id) to `file\0function\0line`.

    Returns:
        Frames, root first; unknown ids are left out.
    """
    frames = []
    for number in reversed((text or "").split(",")):
        parts = (
            frame_texts.get((journal, int(number)), "").split("\0")
            if number.isdigit()
            else []
        )
        if len(parts) == 3 and parts[2].isdigit():
            frames.append(Frame(os.path.normpath(parts[0]), parts[1], int(parts[2])))
    return tuple(frames)
