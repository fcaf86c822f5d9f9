"""Statistics that the bench reports: proportions and medians with intervals, rank correlation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

Z_95 = 1.959964
DRAWS = 2000
"""Bootstrap draws: the ends of a 95 % interval then rest on 50 draws each."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with a 95 % interval, and how many values it rests on."""

    value: float
    low: float
    high: float
    count: int


def proportion(right: int, count: int) -> Estimate | None:
    """Give a part with its Wilson interval, which is sound for small counts and near 0 and 1; None without a count."""
    if count == 0:
        return None
    part = right / count
    spread = Z_95**2 / count
    centre = (part + spread / 2) / (1 + spread)
    half = Z_95 * sqrt(part * (1 - part) / count + spread / (4 * count)) / (1 + spread)
    return Estimate(part, max(0.0, centre - half), min(1.0, centre + half), count)


def quantile_of(values: Sequence[float], part: float, seed: int = 0) -> Estimate | None:
    """Give a quantile with its percentile bootstrap interval; None without a value."""
    if not values:
        return None
    given = np.asarray(values, dtype=float)
    chosen = np.random.default_rng(seed).integers(0, len(given), (DRAWS, len(given)))
    drawn = np.quantile(given[chosen], part, axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(quantile(values, part), float(low), float(high), len(values))


def median(values: Sequence[float]) -> Estimate | None:
    """Give the median with its interval."""
    return quantile_of(values, 0.5)


def quantile(values: Sequence[float], part: float) -> float:
    """Give a quantile, linearly between values.

    Raises:
        ValueError: There is no value.
    """
    if not values:
        msg = "a quantile needs at least one value, got none"
        raise ValueError(msg)
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Give Kendall's τ-b of two lists of the same length; None when one of them is constant."""
    agreeing = 0
    untied = [0, 0]
    for i in range(len(first)):
        for j in range(i):
            one, two = first[i] - first[j], second[i] - second[j]
            untied[0] += one != 0
            untied[1] += two != 0
            agreeing += (one * two > 0) - (one * two < 0)
    if not untied[0] or not untied[1]:
        return None
    return agreeing / sqrt(untied[0] * untied[1])
