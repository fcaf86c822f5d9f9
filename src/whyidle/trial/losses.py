"""Whether a change left the losses of the first steps as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from whyidle.model.trial import LossComparison, LossState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MIN_LOSSES = 5
"""Fewer losses say nothing about a training."""
_T995 = (63.7, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25)
"""99.5 % points of Student's t for 1 to 9 degrees of freedom: one comparison in a hundred is a false alarm ..."""
_Z995 = 2.58
"""... and of the normal distribution."""


def compare_losses(
    unchanged: Sequence[Sequence[float]],
    changed: Sequence[Sequence[float]],
    *,
    reorders: bool,
) -> LossComparison:
    """Compare the losses of both arms, after those of the unchanged runs among themselves.

    Args:
        unchanged: Losses of each unchanged run, in order.
        changed: Losses of each run with the change.
        reorders: The change delivers samples in another order, so losses cannot stay the same step by step.
    """
    runs = [one for one in unchanged if one], [one for one in changed if one]
    if not runs[0] or not runs[1]:
        return _not_compared("backward was not called on a single number")
    steps = min(len(one) for arm in runs for one in arm)
    if steps < MIN_LOSSES:
        return _not_compared(f"only {steps} losses were seen")
    if len(runs[0]) < 2:
        return _not_compared("only one unchanged run, so its own spread is not known")
    plain, other = (np.array([one[:steps] for one in arm]) for arm in runs)
    if np.isnan(plain).any():
        return _not_compared("losses of the unchanged training are not numbers")
    if (plain == plain[0]).all():
        return _compare_seeded(plain[0], other, reorders=reorders)
    return _compare_spread(plain, other)


def _compare_seeded(
    plain: NDArray[np.float64], other: NDArray[np.float64], *, reorders: bool
) -> LossComparison:
    """Compare with a training that repeats itself bit by bit."""
    steps = len(plain)
    if (other == plain).all():
        return LossComparison(
            state=LossState.IDENTICAL, note=f"of {steps} steps the same, bit by bit"
        )
    first = int(np.argmax((other != plain).any(axis=0)))
    why = (
        "samples come in another order"
        if reorders
        else "random numbers drawn in workers depend on the worker"
    )
    return LossComparison(
        state=LossState.CHANGED,
        note=f"differ from step {first + 1} on, while unchanged runs repeat bit by bit ({why})",
    )


def _compare_spread(
    plain: NDArray[np.float64], other: NDArray[np.float64]
) -> LossComparison:
    """Compare mean losses with how far those of the unchanged runs lie apart."""
    means, changed = plain.mean(axis=1), other.mean(axis=1)
    runs, steps = plain.shape
    quantile = _T995[runs - 2] if runs - 2 < len(_T995) else _Z995
    allowed = quantile * float(means.std(ddof=1)) * np.sqrt(1 / runs + 1 / len(changed))
    off = float(abs(changed.mean() - means.mean()))
    if off <= allowed:
        return LossComparison(
            state=LossState.WITHIN_SPREAD,
            note=f"of {steps} steps within what unchanged runs differ by (the script is not seeded)",
        )
    return LossComparison(
        state=LossState.CHANGED,
        note=f"of {steps} steps are {off:.3g} off on average; unchanged runs explain {allowed:.3g}",
    )


def _not_compared(reason: str) -> LossComparison:
    return LossComparison(state=LossState.NOT_COMPARED, note=f"not compared: {reason}")
