"""The critical path against the truth of simulated loaders, and against the rules people use instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.timelines import ITERATION, MS, SimulatedLoader, make_iteration, make_rank
from whyidle.analysis.path import PathKind, path_share_of_batches, walk_path

BATCHES, WORKERS, BATCH_SIZE = 600, 8, 8
PATH_TOLERANCE = 0.02
"""METHOD §8.1: the path matched the marginal truth within 2 points in all data-bound cases."""


def _samples(
    rng: np.random.Generator,
    decode_ms: float,
    heat_ms: float,
    tail: float = 0.0,
    tail_ms: float = 0.0,
):
    """Phases of BATCHES batches: decode and heat map per sample, collate per batch."""
    shape = BATCHES, BATCH_SIZE
    decode = rng.gamma(20, decode_ms / 20, shape)
    heat = rng.gamma(20, heat_ms / 20, shape) + (rng.random(shape) < tail) * tail_ms
    collate = np.full(BATCHES, decode_ms * BATCH_SIZE * 0.15)
    return np.stack([decode.sum(1), heat.sum(1), collate], axis=1) * MS


def _loader(case: str) -> SimulatedLoader:
    rng = np.random.default_rng(7)
    if case == "saturated":
        return SimulatedLoader(_samples(rng, 6, 4), np.full(BATCHES, 4.0 * MS), WORKERS, 2)
    if case == "heavy tail":
        return SimulatedLoader(
            _samples(rng, 6, 1, 0.02, 250), np.full(BATCHES, 4.0 * MS), WORKERS, 2
        )
    if case == "mean fits, rare slow sample":
        return SimulatedLoader(
            _samples(rng, 6, 1, 0.006, 400), np.full(BATCHES, 9.5 * MS), WORKERS, 2
        )
    if case == "one slow worker":
        phases = _samples(rng, 6, 4)
        phases[3::WORKERS] *= 2
        return SimulatedLoader(phases, np.full(BATCHES, 7.0 * MS), WORKERS, 2)
    if case == "bursts":
        phases = _samples(rng, 4, 2)
        phases[(np.arange(BATCHES) // 60) % 3 == 0, 0] *= 3
        return SimulatedLoader(phases, np.full(BATCHES, 8.0 * MS), WORKERS, 2)
    raise AssertionError(case)


CASES = (
    "saturated",
    "heavy tail",
    "mean fits, rare slow sample",
    "one slow worker",
    "bursts",
)


def _path_shares(loader: SimulatedLoader) -> np.ndarray:
    rank = loader.rank()
    on_path = path_share_of_batches(walk_path(rank), rank)
    composition = loader.phases / loader.phases.sum(axis=1, keepdims=True)
    seconds = (composition * on_path[:, None]).sum(axis=0)
    return seconds / seconds.sum()


def _work_shares(loader: SimulatedLoader) -> np.ndarray:
    """The naive rule of a sampling profiler: who used the most worker time."""
    return loader.phases.sum(axis=0) / loader.phases.sum()


def _wait_window_shares(loader: SimulatedLoader) -> np.ndarray:
    """The naive rule of an overlay: what was the awaited worker doing while the loop waited?"""
    times, found = loader.times(), np.zeros(loader.phases.shape[1])
    for b in np.flatnonzero(times["got"] > times["ask"]):
        edges = times["start"][b] + np.concatenate(([0], np.cumsum(loader.phases[b])))
        found += np.clip(
            np.minimum(edges[1:], times["got"][b])
            - np.maximum(edges[:-1], times["ask"][b]),
            0,
            None,
        )
    return found / found.sum()


def _error(shares: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(shares - truth).max())


@pytest.mark.parametrize("case", CASES)
def test_path_shares_match_the_marginal_truth(case: str) -> None:
    """The path's share of a phase is what speeding that phase up would really save, within two points."""
    loader = _loader(case)

    shares = _path_shares(loader)

    assert _error(shares, loader.marginal_shares()) <= PATH_TOLERANCE, (
        shares,
        loader.marginal_shares(),
    )


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        (_work_shares, "heavy tail"),
        (_work_shares, "mean fits, rare slow sample"),
        (_wait_window_shares, "saturated"),
        (_wait_window_shares, "one slow worker"),
    ],
)
def test_naive_rule_blames_wrongly_where_the_path_does_not(rule, case: str) -> None:
    """Worker time and overlap of the wait are off by at least five times as much as the path, and by 4 points."""
    loader = _loader(case)
    truth = loader.marginal_shares()

    naive, path = _error(rule(loader), truth), _error(_path_shares(loader), truth)

    assert naive > max(0.04, 5 * path), (naive, path)


@pytest.mark.parametrize("case", CASES)
def test_path_tiles_the_window(case: str) -> None:
    """Segments touch, and add up to the window to the nanosecond."""
    rank = _loader(case).rank()

    path = walk_path(rank)

    assert int(path.length_ns.sum()) == rank.window_ns
    assert (path.start_ns[:-1] == path.end_ns[1:]).all()


def test_path_of_a_device_bound_loop_is_its_own_steps() -> None:
    """A loader that is always ahead is not on the path."""
    loader = SimulatedLoader(np.full((200, 1), 5.0 * MS), np.full(200, 20.0 * MS), 2, 2)

    path = walk_path(loader.rank())

    assert path.total_ns(PathKind.STEP) > 0.99 * int(path.length_ns.sum())


def test_path_without_workers_goes_through_the_fetch_inside_next() -> None:
    """With num_workers=0 the fetch is part of next(), the rest of next() is receiving."""
    loader = SimulatedLoader(np.full((20, 1), 5.0 * MS), np.full(20, 10.0 * MS), 1, 1)
    rank = loader.rank()
    batches = rank.batches
    inline = make_rank(
        rank.steps,
        type(batches)(**{
            **{name: getattr(batches, name) for name in type(batches).__dataclass_fields__},
            "worker": batches.worker * 0 - 1,
            "start_ns": rank.steps.ask_ns, "end_ns": rank.steps.got_ns,
        }),
        iterations={ITERATION: make_iteration(workers=0, prefetch=0)},
    )  # fmt: skip

    path = walk_path(inline)

    assert path.total_ns(PathKind.FETCH) + path.total_ns(PathKind.STEP) == inline.window_ns


@pytest.mark.parametrize("late_ms", [0.3, 1.5, 6.0])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_that_take_up_their_indices_late_stay_on_the_path(
    late_ms: float, workers: int
) -> None:
    """On a busy machine a worker needs milliseconds to take up the next indices: that is no waiting for the loop."""
    loader = SimulatedLoader(
        np.full((200, 1), 160.0 * MS), np.full(200, 1.0 * MS), workers, 2
    )
    rank = loader.rank()
    late = int(late_ms * MS)
    columns = {
        name: getattr(rank.batches, name)
        for name in type(rank.batches).__dataclass_fields__
    }
    columns["index_ns"] = columns["index_ns"] + np.minimum(
        late, np.arange(200) * 1000 + late // 2
    )
    rank = replace(rank, batches=type(rank.batches)(**columns))

    path = walk_path(rank)

    assert path.total_ns(PathKind.FETCH) > 0.97 * rank.window_ns
