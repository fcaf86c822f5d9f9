"""What a trial reads from a recorded run: step times with epoch ends, losses of the rank, what was really changed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.builders import JournalBuilder, RunBuilder
from whyidle.analysis.align import build_timeline
from whyidle.model.remedies import Settings, make_settings
from whyidle.observe.launch import LaunchResult
from whyidle.store import rundir
from whyidle.trial.plan import BlockPlan
from whyidle.trial.runner import Recording, read_block, read_losses, startup_ns
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.trial.conduct import BlockRun

MAIN_PID, OTHER_PID = 100, 200
STEP_NS, GAP_NS, FIRST_NS = 10_000_000, 400_000_000, 2_000_000_000
PLAN = BlockPlan(warmup_steps=10, steps=40, seconds=9.0, expected_ns=1)
WORKERS = make_settings({"num_workers": 2})


def _record(
    folder: Path,
    *,
    steps: int = 60,
    exit_status: int = 0,
    note: tuple[str, str] | None = None,
) -> Recording:
    """Give a run of two passes of 30 steps over a loader with two workers, a gap between them."""
    ask_ns = FIRST_NS + np.arange(steps) * STEP_NS + (np.arange(steps) >= 30) * GAP_NS
    main = JournalBuilder(pid=MAIN_PID)
    for number, asks in enumerate((ask_ns[:30], ask_ns[30:]), 1):
        if not len(asks):
            continue
        main.emit(
            wire.LOADER, ref=number, t0=asks[0] - 1, t1=asks[0], a=7, b=2, c=2, d=4,
            flags=wire.LOADER_IN_ORDER,
        )  # fmt: skip
        main.emit_rows(
            wire.ASK,
            ref=number,
            t0=asks,
            t1=asks + 1000,
            a=np.arange(len(asks)),
            b=-1,
            c=-1,
        )
    if note is not None:
        main.emit(wire.NOTE, ref=main.text(note[0]), a=main.text(note[1]))
    other = JournalBuilder(pid=OTHER_PID)
    for journal, losses in ((main, (2.5, 1.25)), (other, (9.0,))):
        for position, loss in enumerate(losses):
            (bits,) = struct.unpack("<q", struct.pack("<d", loss))
            journal.emit(wire.LOSS, a=position, b=bits)
    run = RunBuilder(folder / "run")
    run.add(main)
    run.add(other)
    tables = rundir.load_tables(run.write())
    return Recording(
        result=LaunchResult(
            exit_status=exit_status,
            signal=None,
            ended_by=None,
            not_observed=(),
            observed=True,
            start_mono_ns=0,
            end_mono_ns=0,
        ),
        tables=tables,
        timeline=build_timeline(tables),
        own_cpus=1.0,
        other_cpus=0.5,
        wall_ns=6_000_000_000,
    )


def _block(recording: Recording, settings: Settings = (), last_words: str = "") -> BlockRun:
    return read_block(3, settings, recording, PLAN, last_words)


def test_block_is_measured_behind_its_warmup_epoch_ends_included(tmp_path: Path) -> None:
    """Forty steps, one of which holds the start of an epoch."""
    run = _block(_record(tmp_path))

    assert run.sampled is not None
    assert (run.block.steps, run.block.failure) == (40, None)
    assert run.block.step_ns == pytest.approx(STEP_NS + GAP_NS / 40)
    assert (run.block.own_cpus, run.block.other_cpus) == (1.0, 0.5)


def test_losses_are_those_of_the_rank_bit_by_bit(tmp_path: Path) -> None:
    """Another process of the run may call backward as well."""
    assert read_losses(_record(tmp_path)) == (2.5, 1.25)


def test_time_outside_of_the_steps_is_startup(tmp_path: Path) -> None:
    """Up to the first ask, and behind the last."""
    in_loop_ns = 59 * STEP_NS + GAP_NS + 1000

    assert startup_ns(_record(tmp_path)) == 6_000_000_000 - in_loop_ns


def test_block_of_a_failed_training_says_its_last_line(tmp_path: Path) -> None:
    """However many steps it took before."""
    run = _block(_record(tmp_path, exit_status=1), last_words="a\nRuntimeError: no memory")

    assert run.sampled is None
    assert (
        run.block.failure
        == "the training ended with exit status 1: RuntimeError: no memory"
    )


def test_block_with_too_few_steps_is_no_measurement(tmp_path: Path) -> None:
    """The script may have ended by itself."""
    run = _block(_record(tmp_path, steps=30))

    assert run.block.failure == "only 19 steps behind 10 of warm-up"


@pytest.mark.parametrize(
    ("note", "settings", "applied", "refused"),
    [
        (("remedy-applied", "loader 1"), WORKERS, ("loader 1",), ()),
        (("remedy-refused", "no such argument"), WORKERS, (), ("no such argument",)),
        (
            ("remedy-applied", "loader 1"),
            make_settings({"num_workers": 4, "pin_memory": True}),
            (),
            (
                "num_workers is 2 in the loader, not 4",
                "pin_memory is False in the loader, not True",
            ),
        ),
    ],
    ids=["applied", "refused", "without effect"],
)
def test_change_counts_only_where_the_loader_really_has_it(
    tmp_path: Path,
    note: tuple[str, str],
    settings: Settings,
    applied: tuple[str, ...],
    refused: tuple[str, ...],
) -> None:
    """The agent's word is checked against the loader as it was recorded."""
    block = _block(_record(tmp_path, note=note), settings).block

    assert (block.applied, block.refused) == (applied, refused)
