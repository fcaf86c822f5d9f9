"""How much faster one function is than another, from calls that were timed in turns."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.trial.proving import estimate_round, estimate_speedup


def rows(records: np.ndarray, wall_ns: np.ndarray, queued_ns: float = 0.0) -> np.ndarray:
    """Timed calls: record, wall, CPU, queued."""
    queued = np.full(len(records), queued_ns)
    return np.column_stack([records, wall_ns + queued, wall_ns, queued])


def measure(rng: np.random.Generator, ratio: float) -> tuple[float, float, float]:
    """Inputs of very different length, ten rounds in which the machine is faster or slower, a little noise each."""
    lengths = rng.lognormal(14, 0.8, 60)
    gains = ratio * rng.lognormal(0, 0.1, 60)
    records = np.arange(60)
    old, new = [], []
    for _ in range(10):
        drift = rng.lognormal(0, 0.2)
        old.append(rows(records, lengths * drift * rng.lognormal(0, 0.05, 60)))
        new.append(rows(records, lengths / gains * drift * rng.lognormal(0, 0.05, 60)))
    rounds = [estimate_round(*pair) for pair in zip(old, new, strict=True)]
    return estimate_speedup(np.vstack(old), np.vstack(new), rounds)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 15.0])
def test_interval_holds_the_true_ratio(ratio: float) -> None:
    """In about nine of ten measurements, and it is not wide: inputs and drifts are paired."""
    rng = np.random.default_rng(7)
    # The gain of the whole is ratio / exp(0.1 ** 2 / 2): half a percent less, nothing beside the interval.
    found = [measure(rng, ratio) for _ in range(200)]

    inside = np.mean([low <= ratio <= high for _, low, high in found])
    width = np.median([high / low for _, low, high in found])
    assert inside >= 0.85
    assert width < 1.15


def test_wait_for_a_cpu_is_left_out() -> None:
    """Calls that waited for a free CPU took no longer for that."""
    records = np.arange(5)
    old, new = rows(records, np.full(5, 4e6), 9e6), rows(records, np.full(5, 1e6))

    speedup, _, _ = estimate_speedup(old, new, [estimate_round(old, new)] * 6)

    assert speedup == pytest.approx(4.0)
