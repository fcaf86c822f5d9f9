"""Losses of both arms: the same, as far apart as unchanged runs are, or changed."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.model.trial import LossState
from whyidle.trial.losses import compare_losses

SEEDED = [2.0 / step for step in range(1, 21)]


def _noisy(count: int, mean: float = 1.0, seed: int = 0) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [(mean + rng.normal(0, 0.1, 20)).tolist() for _ in range(count)]


def test_seeded_losses_are_identical_bit_by_bit() -> None:
    """Runs that repeat themselves, and a change that repeats them too."""
    compared = compare_losses([SEEDED] * 3, [SEEDED] * 3, reorders=False)

    assert compared.state is LossState.IDENTICAL


@pytest.mark.parametrize("reorders", [True, False])
def test_smallest_difference_of_a_seeded_training_is_a_change(reorders: bool) -> None:
    """The step from which on they differ is named, and the likely reason."""
    other = [*SEEDED[:7], SEEDED[7] + 1e-15, *SEEDED[8:]]

    compared = compare_losses([SEEDED] * 2, [other], reorders=reorders)

    assert compared.state is LossState.CHANGED
    assert "from step 8 on" in compared.note
    assert ("another order" in compared.note) is reorders


def test_unseeded_losses_are_compared_with_their_own_spread() -> None:
    """What differs no more than unchanged runs do is no change."""
    compared = compare_losses(_noisy(4), _noisy(3, seed=1), reorders=False)

    assert compared.state is LossState.WITHIN_SPREAD


def test_unseeded_losses_far_off_are_a_change() -> None:
    """A mean loss that the spread of unchanged runs does not explain."""
    compared = compare_losses(_noisy(4), _noisy(3, mean=1.5), reorders=False)

    assert compared.state is LossState.CHANGED


def test_false_alarms_are_rare() -> None:
    """Of many comparisons of equal trainings about one in a hundred is called a change."""
    alarms = sum(
        compare_losses(
            _noisy(4, seed=at), _noisy(2, seed=at + 10_000), reorders=False
        ).state
        is LossState.CHANGED
        for at in range(1000, 1200)
    )

    assert alarms <= 8


@pytest.mark.parametrize(
    ("unchanged", "changed", "word"),
    [
        ([[], []], [SEEDED], "backward"),
        ([SEEDED] * 2, [[]], "backward"),
        ([SEEDED[:3]] * 2, [SEEDED], "3 losses"),
        ([SEEDED], [SEEDED], "one unchanged run"),
        ([[float("nan")] * 9] * 2, [SEEDED], "not numbers"),
    ],
)
def test_losses_that_tell_nothing_are_not_compared(
    unchanged: list[list[float]], changed: list[list[float]], word: str
) -> None:
    """The note says why."""
    compared = compare_losses(unchanged, changed, reorders=False)

    assert compared.state is LossState.NOT_COMPARED
    assert word in compared.note
