"""Who is to blame when a ready worker has no CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import FIRST_PID, MS, SimulatedLoader, make_timeline
from whyidle.analysis.contention import Reason, assess_contention, removable_ratio
from whyidle.model.timeline import Batches, Series

COUNT = 100


def _rank(queue_share: float, work_ms: float = 40.0):
    """A saturated loader whose fetches were ready without a CPU for a part of their time."""
    rank = SimulatedLoader(
        np.full((COUNT, 1), work_ms * MS), np.full(COUNT, 2.0 * MS), 2, 2
    ).rank()
    batches = rank.batches
    columns = {name: getattr(batches, name) for name in Batches.__dataclass_fields__}
    wall = batches.end_ns - batches.start_ns
    queued = (wall * queue_share).astype(np.int64)
    return replace(
        rank, batches=Batches(**{**columns, "runq_ns": queued, "cpu_ns": wall - queued})
    )


def _grows(rank, per_ns: float) -> Series:
    """A cumulative counter that grows evenly through the window."""
    times = np.linspace(rank.window_start_ns, rank.window_end_ns, 11).astype(np.int64)
    return Series(now_ns=times, value=((times - times[0]) * per_ns).astype(np.int64))


def _assess(rank, *, tree: float, other: float, allowed: int = 2, **counters: Series):
    machine = {
        "cpu.tree_ns": _grows(rank, tree),
        "cpu.other_ns": _grows(rank, other),
        **counters,
    }
    timeline = make_timeline(rank, counters=machine, allowed_count=allowed)
    return assess_contention(timeline, rank)


def test_workers_that_never_queue_are_not_contended() -> None:
    """Without run-queue wait nobody is to blame, whatever the machine does."""
    found = _assess(_rank(0.02), tree=1.9, other=0.0)

    assert (found.reason, found.queue_ratio) == (Reason.NONE, pytest.approx(0.02))


def test_own_work_that_fills_the_cpus_is_not_an_anomaly() -> None:
    """Three workers on two CPUs queue, but only less work would help."""
    found = _assess(_rank(0.4), tree=1.95, other=0.05)

    assert found.reason is Reason.OWN_WORK


@pytest.mark.parametrize("hogs", [0.6, 1.0, 1.4])
def test_other_processes_on_the_cpus_are_named(hogs: float) -> None:
    """The neighbour with the most CPU time is named, whatever its size."""
    rank = _rank(0.5)
    names = {
        "other.hog.cpu_ns": _grows(rank, hogs),
        "other.sshd.cpu_ns": _grows(rank, 0.01),
    }

    found = _assess(rank, tree=2 - hogs, other=hogs, **names)

    assert (found.reason, found.neighbour) == (Reason.NEIGHBOUR, "hog")


def test_mask_is_blamed_when_its_cpus_are_full() -> None:
    """A mask of one of two CPUs that are in full use is the reason."""
    assert _assess(_rank(0.6), tree=0.97, other=0.1, allowed=1).reason is Reason.MASK


def test_throttled_periods_name_the_quota() -> None:
    """A quota that stops the run in most periods comes before every other reason."""
    rank = _rank(0.7)
    periods, throttled = _grows(rank, 1e-8), _grows(rank, 0.9e-8)

    found = _assess(
        rank,
        tree=0.5,
        other=1.0,
        **{"cgroup.period_count": periods, "cgroup.throttled_count": throttled},
    )

    assert found.reason is Reason.QUOTA
    assert found.throttled_ratio == pytest.approx(0.9, abs=0.1)


def test_thread_pools_larger_than_the_machine_are_named() -> None:
    """Many ready threads a worker are the worker's own doing."""
    rank = _rank(0.7)
    times = np.linspace(rank.window_start_ns, rank.window_end_ns, 11).astype(np.int64)
    threads = Series(now_ns=times, value=np.full(11, 6))
    pools = {
        (FIRST_PID + number, "process.runnable_threads"): threads for number in range(2)
    }
    machine = {"cpu.tree_ns": _grows(rank, 1.9), "cpu.other_ns": _grows(rank, 0.0)}

    found = assess_contention(
        make_timeline(rank, counters=machine, process_counters=pools), rank
    )

    assert found.reason is Reason.THREADS


@pytest.mark.parametrize(
    ("queued_share", "busy_ratio", "expected"),
    [(0.5, 0.1, 0.56), (0.75, 0.5, 1.0), (0.2, 0.1, 0.22)],
)
def test_removable_part_is_what_a_free_machine_would_save(
    queued_share, busy_ratio, expected
) -> None:
    """Without queueing the step falls by its queueing on the path, but not below what the device needs."""
    rank = _rank(queued_share)
    found = _assess(rank, tree=0.97, other=0.0, allowed=1)

    removable = removable_ratio(found, rank, queued_share * rank.window_ns, 1 - busy_ratio)

    assert removable == pytest.approx(expected, abs=0.06)


def test_nothing_is_removable_where_own_work_fills_the_cpus() -> None:
    """Less work is the only cure."""
    rank = _rank(0.4)
    found = _assess(rank, tree=1.95, other=0.05)

    assert removable_ratio(found, rank, 0.4 * rank.window_ns, 0.9) == 0.0


def test_unknown_counters_give_none_not_zero() -> None:
    """What nobody observed is None."""
    rank = _rank(0.5)

    found = assess_contention(make_timeline(rank), rank)

    assert (found.tree_cpus, found.other_cpus, found.throttled_ratio) == (None, None, None)
