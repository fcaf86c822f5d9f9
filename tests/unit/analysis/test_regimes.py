"""How workers and loop stand to each other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.timelines import MS, SimulatedLoader, make_timeline
from whyidle.analysis.contention import assess_contention
from whyidle.analysis.ledger import Blame
from whyidle.analysis.regimes import find_stance, regime_of
from whyidle.model.findings import Activity, Place, Regime
from whyidle.model.timeline import Series


def _loader(work_ms, step_ms: float, workers: int) -> SimulatedLoader:
    work = np.broadcast_to(np.asarray(work_ms, dtype=float), (400,)).reshape(-1, 1) * MS
    return SimulatedLoader(work.copy(), np.full(400, step_ms * MS), workers, 2)


def _regime(
    loader: SimulatedLoader, activity: Activity, *, busy_cpus: float = 1.9
) -> Regime:
    rank = loader.rank()
    times = np.array([rank.window_start_ns, rank.window_end_ns])
    counters = {
        "cpu.tree_ns": Series(
            now_ns=times, value=((times - times[0]) * busy_cpus).astype(np.int64)
        ),
        "cpu.other_ns": Series(now_ns=times, value=np.zeros(2, dtype=np.int64)),
    }
    timeline = make_timeline(rank, counters=counters)
    contention = assess_contention(timeline, rank)
    blame = Blame(activity=activity, where=Place(), idle_ns=1.0, is_input=True)
    return regime_of(blame, find_stance(timeline, rank, contention), contention)


@pytest.mark.parametrize(
    ("work_ms", "step_ms", "workers"), [(80, 10, 2), (300, 20, 4), (30, 2, 8)]
)
def test_even_work_that_keeps_all_workers_busy_is_throughput(
    work_ms: float, step_ms: float, workers: int
) -> None:
    """No batch is guilty when all are equally slow."""
    assert (
        _regime(_loader(work_ms, step_ms, workers), Activity.COMPUTE) is Regime.THROUGHPUT
    )


@pytest.mark.parametrize(("every", "workers"), [(9, 2), (31, 4), (30, 2)])
def test_one_slow_batch_among_fast_ones_is_head_of_line(every: int, workers: int) -> None:
    """Others stand idle while the one in turn is late."""
    work_ms = np.where(np.arange(400) % every == 3, 400.0, 8.0)

    assert _regime(_loader(work_ms, 12, workers), Activity.COMPUTE) is Regime.HEAD_OF_LINE


@pytest.mark.parametrize(("stretch", "factor"), [(60, 4.0), (100, 6.0), (40, 8.0)])
def test_slow_stretches_between_fast_ones_are_bursty(stretch: int, factor: float) -> None:
    """Hours of slow files, minutes of a busy neighbour: the queue runs dry for longer than it is deep."""
    slow = (np.arange(1200) // stretch) % 3 == 0
    work_ms = np.where(slow, 16.0 * factor, 16.0)
    loader = SimulatedLoader(work_ms.reshape(-1, 1) * MS, np.full(1200, 12.0 * MS), 2, 2)

    assert _regime(loader, Activity.COMPUTE) is Regime.BURSTY


@pytest.mark.parametrize("load", [0.95, 1.0, 1.1, 1.5, 3.0])
@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_random_work_is_not_called_bursty(load: float, workers: int, seed: int) -> None:
    """Chance alone makes waiting uneven, most of all when loader and loop are about as fast."""
    rng = np.random.default_rng(seed)
    work = rng.gamma(16, load * workers * 10 / 16, (1200, 1)) * MS

    assert (
        _regime(
            SimulatedLoader(work, np.full(1200, 10.0 * MS), workers, 2), Activity.COMPUTE
        )
        is not Regime.BURSTY
    )


def test_waiting_for_the_network_leaves_room_for_more_workers() -> None:
    """Requests in flight cost no CPU."""
    assert (
        _regime(_loader(80, 10, 2), Activity.NETWORK, busy_cpus=0.1) is Regime.FEW_WORKERS
    )


def test_computing_with_a_cpu_to_spare_is_too_few_workers() -> None:
    """One worker on two CPUs: a second would run."""
    assert (
        _regime(_loader(80, 10, 1), Activity.COMPUTE, busy_cpus=1.0) is Regime.FEW_WORKERS
    )


def test_a_lock_is_lock_bound_whatever_the_order() -> None:
    """Workers that wait for each other are lock-bound."""
    assert _regime(_loader(80, 10, 4), Activity.LOCK) is Regime.LOCK_BOUND


def test_one_busy_worker_of_four_is_inactive_workers() -> None:
    """A single shard feeds a single worker."""
    from dataclasses import replace

    rank = _loader(40, 5, 1).rank()
    iterations = {
        number: replace(one, workers=4) for number, one in rank.iterations.items()
    }
    rank = replace(rank, iterations=iterations)
    timeline = make_timeline(rank)
    contention = assess_contention(timeline, rank)
    blame = Blame(activity=Activity.COMPUTE, where=Place(), idle_ns=1.0, is_input=True)

    assert (
        regime_of(blame, find_stance(timeline, rank, contention), contention)
        is Regime.INACTIVE_WORKERS
    )
