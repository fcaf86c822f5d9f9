"""Idle time in the loop's own code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import ITERATION, MS, empty, intervals, ints, make_rank
from whyidle.analysis.contention import Reason
from whyidle.analysis.host import blame_loop
from whyidle.analysis.idle import split_idle
from whyidle.model.codes import Mark, StackRole
from whyidle.model.findings import Activity
from whyidle.model.timeline import (
    Batches,
    Frame,
    Marks,
    StackSamples,
    Steps,
    ThreadSamples,
)

STEPS = 60
NEXT_MS = 1


def _rank(device_ms: float, host_ms, *, sync: bool = True, gaps: int = 1, places=()):
    """A loop that asks (1 ms), launches, waits for the device, then runs its own code for `host_ms[step]`."""
    host_ms = np.broadcast_to(np.asarray(host_ms, dtype=float), (STEPS,))
    ask = np.concatenate(([0.0], np.cumsum(NEXT_MS + device_ms + host_ms)))[:STEPS] * MS
    ask = ask.astype(np.int64)
    got = ask + NEXT_MS * MS
    done = got + int(device_ms * MS)
    piece = int(device_ms * MS) // gaps
    busy = [(int(start) + k * piece, int(start) + k * piece + (piece if gaps == 1 else piece // 2))
            for start in got for k in range(gaps)]  # fmt: skip
    none = np.zeros(STEPS, dtype=np.int64)
    steps = empty(Steps, ask_ns=ask, got_ns=got, end_ns=np.append(ask[1:], got[-1]),
                  iteration=np.full(STEPS, ITERATION), batch=np.arange(STEPS), sampler_ns=none,
                  receive_cpu_ns=none)  # fmt: skip
    marks = empty(Marks, mark=np.full(STEPS, Mark.SYNC), start_ns=got, end_ns=done,
                  file=np.full(STEPS, "train.py", dtype=object), line=np.full(STEPS, 44))  # fmt: skip
    samples, stacks = _samples(done, host_ms, places)
    return make_rank(steps, empty(Batches), device_kind="simulated", busy=intervals(*busy),
                     marks=marks if sync else empty(Marks), stack_samples=samples, stacks=stacks)  # fmt: skip


def _samples(done, host_ms, places):
    """One sample in each step's own code, in the place that `places` names for the step."""
    stacks: dict[tuple[Frame, ...], int] = {}
    numbers, times, weights = [], [], []
    for step in range(len(places)):
        name, line = places[step]
        callee = () if name == "main" else (Frame("train.py", name, line + 100),)
        frames = (Frame("train.py", "main", line), *callee)
        numbers.append(stacks.setdefault(frames, len(stacks)))
        times.append(int(done[step] + host_ms[step] * MS / 2))
        weights.append(int(host_ms[step] * MS))
    rows = len(numbers)
    return empty(
        StackSamples, pid=np.ones(rows, dtype=np.int64), role=np.full(rows, StackRole.LOOP), now_ns=ints(*times),
        weight_ns=ints(*weights), stack=ints(*numbers), on_cpu=np.ones(rows, dtype=bool),
        flags=np.zeros(rows, dtype=np.int64),
    ), tuple(stacks)  # fmt: skip


def _blames(rank):
    return blame_loop(rank, split_idle(rank, Reason.NONE))


@pytest.mark.parametrize(("device_ms", "metric_ms"), [(20, 15), (5, 30), (40, 60)])
def test_slow_metric_is_named_with_its_function(device_ms: int, metric_ms: int) -> None:
    """One function that holds the loop's time is the reason, although a synchronising call exposes it."""
    blames = _blames(_rank(device_ms, metric_ms, places=[("metric", 50)] * STEPS))

    assert [(one.activity, one.where.function, one.is_periodic) for one in blames] == [
        (Activity.PYTHON, "metric", False)
    ]


@pytest.mark.parametrize("every", [4, 10, 20])
def test_checkpoint_every_few_steps_is_periodic(every: int) -> None:
    """A long stop in few steps is told apart from what every step has."""
    host_ms = np.where(np.arange(STEPS) % every == every - 1, 80.0, 0.3)
    places = [("save" if slow > 1 else "main", 60) for slow in host_ms]

    first = max(_blames(_rank(20, host_ms, places=places)), key=lambda one: one.idle_ns)

    assert (first.activity, first.where.function, first.is_periodic) == (
        Activity.PYTHON,
        "save",
        True,
    )


def test_ordinary_code_behind_a_wait_for_the_device_is_the_wait() -> None:
    """Short code all over the loop would hide behind the device, were it not for the wait in every step."""
    places = [("main", 50 + 10 * (step % 7)) for step in range(STEPS)]

    blames = _blames(_rank(20, 4, places=places))

    assert [(one.activity, one.where.line) for one in blames] == [(Activity.SYNC, 44)]


def test_many_gaps_a_step_are_slow_launching() -> None:
    """A device that runs dry between the pieces of one step is launched too slowly."""
    places = [("main", 50 + 10 * (step % 7)) for step in range(STEPS)]

    blames = _blames(_rank(20, 0.2, gaps=8, sync=False, places=places))

    assert blames[0].activity is Activity.LAUNCH


def test_time_at_the_loops_own_line_is_letting_go_of_the_last_batch() -> None:
    """Outside next() nothing is left of a `for` line but unmapping the batch before: moving data, not Python code."""
    blames = _blames(_rank(20, 15, places=[("main", 10)] * STEPS))

    assert [(one.activity, one.is_input, one.is_serial) for one in blames] == [
        (Activity.TRANSPORT, True, True)
    ]


@pytest.mark.parametrize("device_ms", [5, 50])
def test_blame_of_the_loop_adds_up_to_its_idle_time(device_ms: int) -> None:
    """Nothing is lost between the gaps and the ledger."""
    rank = _rank(device_ms, np.linspace(0, 30, STEPS), places=[("metric", 50)] * STEPS)

    assert sum(one.idle_ns for one in _blames(rank)) == pytest.approx(
        split_idle(rank, Reason.NONE).in_loop.total_ns()
    )


def test_sides_of_next_add_up_to_the_idle_time() -> None:
    """Idle time is either inside the loader or inside the loop's own code."""
    split = split_idle(_rank(10, 5), Reason.NONE)

    assert split.in_loader.total_ns() + split.in_loop.total_ns() == split.idle.total_ns()


@pytest.mark.parametrize(
    ("reason", "idle_ns"),
    [(Reason.QUOTA, 300 * MS), (Reason.OWN_WORK, 0), (Reason.NONE, 0)],
)
def test_idle_of_a_loop_without_accelerator_that_is_kept_from_the_cpu(
    reason: Reason, idle_ns: int
) -> None:
    """Its own code is the device's work, but not while a quota stops it; its own workers' share is no loss."""
    looks = empty(
        ThreadSamples, pid=ints(*[1] * 11), tid=ints(*[1] * 11), now_ns=ints(*range(0, 1001 * MS, 100 * MS)),
        runq_ns=ints(*range(0, 301 * MS, 30 * MS)),
    )  # fmt: skip
    rank = replace(_rank(10, 5), threads=looks, busy=None, device_kind="cpu", in_loader=intervals(),
                   window_start_ns=0, window_end_ns=1000 * MS)  # fmt: skip

    split = split_idle(rank, reason)

    assert (split.idle.total_ns(), split.in_loop.total_ns()) == (idle_ns, idle_ns)
