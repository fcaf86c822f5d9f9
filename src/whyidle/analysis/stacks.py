"""Stack samples as recorded → arrays of samples over a list of distinct stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from whyidle.model.timeline import Frame, StackSamples
from whyidle.model.waits import classify_agent_wait
from whyidle_agent import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whyidle.model.events import RunTables

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
    pid_of = {number: info.pid for number, info in enumerate(run.journals)}
    keys = list(zip(rows["journal"], rows["stack"], strict=True))
    now_ns = rows["now_ns"].to_numpy().astype(np.int64)
    flags = rows["flags"].cast(pl.Int64).to_numpy()
    on_cpu = (flags & wire.STACK_BLOCKED) == 0
    samples = StackSamples(
        pid=np.array([pid_of[journal] for journal, _ in keys], dtype=np.int64),
        role=rows["role"].cast(pl.Int64).to_numpy(),
        now_ns=now_ns,
        weight_ns=np.clip(now_ns - rows["previous_ns"].to_numpy(), 0, MAX_WEIGHT_NS),
        stack=np.array([number_of[key] for key in keys], dtype=np.int64),
        on_cpu=on_cpu,
        flags=flags,
        wait=_waits(rows, on_cpu),
    )
    return samples, tuple(stacks)


def _waits(
    rows: pl.DataFrame, on_cpu: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    waits = np.zeros(len(rows), dtype=np.int64)
    for number, (syscall, target) in enumerate(
        rows.select("syscall", "target").iter_rows()
    ):
        if not on_cpu[number]:
            waits[number] = classify_agent_wait(syscall, target)
    return waits


def parse_stack(
    journal: int, text: str | None, frame_texts: Mapping[tuple[int, int], str]
) -> tuple[Frame, ...]:
    """Read a recorded stack: frame ids in decimal, leaf first, joined by commas.

    Args:
        journal: Journal whose ids these are.
        text: `"12,7,3"`, or None for a sample without frames.
        frame_texts: (journal, id) to `file\\0function\\0line`.

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
            frames.append(Frame(parts[0], parts[1], int(parts[2])))
    return tuple(frames)
