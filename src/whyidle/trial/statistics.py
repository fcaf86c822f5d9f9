"""How much faster one arm is than the other, from interleaved blocks.

NOTE [pairs]
    Blocks run in the order U a U b U a U ...: every block of a changed arm has an unchanged one (U) before and
    behind it, and is compared with both. A drift that is even over the three cancels, and each unchanged block
    serves two pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from whyidle.model.trial import Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    StepArray = NDArray[np.float64]

MIN_PAIRS = 3
"""Fewer pairs prove nothing: their spread is not known."""
DRAWS = 2000
"""Bootstrap draws: the ends of a 90 % interval are good to a twentieth of its width."""
LOW_PERCENT, HIGH_PERCENT = 5.0, 95.0
CHUNKS_A_BLOCK = 12
"""Steps are drawn in as many stretches: neighbours in a loader depend on each other through its queue."""
DISTURBED_CPUS = 0.3
"""Others using more CPUs than in the runs beside it: on two CPUs that is 15 % of what there is ..."""
DISTURBED_RATIO = 0.1
"""... and on many CPUs as much as this part of them."""
_SEED = 20240229

_T95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83)
"""95 % points of Student's t for 1 to 9 degrees of freedom, and of the normal distribution."""
_Z95 = 1.645


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """The measured steps of one block."""

    step_ns: StepArray
    """(steps,) ns, in order."""
    other_cpus: float

    @property
    def mean_ns(self) -> float:
        """Mean step time: what a training's length is made of. A median would not see rare slow steps."""
        return float(self.step_ns.mean())


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A block of a changed arm between two unchanged ones."""

    before: Sampled
    changed: Sampled
    after: Sampled

    @property
    def speedup(self) -> float:
        """Steps per second with the change, divided by those without."""
        return (self.before.mean_ns + self.after.mean_ns) / 2 / self.changed.mean_ns

    def is_disturbed(self, cpu_count: int) -> bool:
        """Whether others were so uneven over the three blocks that the ratio may be theirs.

        What serves the training (a file system, a server on this host) works more when the training is faster:
        CPU time of others that grows with the steps is no disturbance.
        """
        limit = max(DISTURBED_CPUS, DISTURBED_RATIO * cpu_count)
        usual = (self.before.other_cpus + self.after.other_cpus) / 2
        excess = abs(self.changed.other_cpus - usual)
        excess_a_step = abs(self.changed.other_cpus - usual * self.speedup)
        within = abs(self.before.other_cpus - self.after.other_cpus)
        return max(min(excess, excess_a_step), within) > limit


def estimate_ratio(pairs: Sequence[Pair]) -> Ratio:
    """Estimate the speed-up with its 90 % interval.

    The interval is a bootstrap over pairs and, within each block, over stretches of steps; it is widened for few
    pairs as Student's t is. With one pair it covers only what the steps themselves vary.

    Args:
        pairs: At least one.
    """
    logs = np.log([pair.speedup for pair in pairs])
    centre = float(logs.mean())
    rng = np.random.default_rng(_SEED)
    draws = np.stack([_draw_logs(pair, rng) for pair in pairs])
    chosen = rng.integers(0, len(pairs), (len(pairs), DRAWS))
    means = np.take_along_axis(draws, chosen, axis=0).mean(axis=0)
    low, high = np.percentile(means, (LOW_PERCENT, HIGH_PERCENT)) - np.median(means)
    widened = _widening(len(pairs))
    return Ratio(
        speedup=float(np.exp(centre)),
        low=float(np.exp(centre + widened * low)),
        high=float(np.exp(centre + widened * high)),
        pairs=len(pairs),
    )


def repeat_noise(blocks: Sequence[Sampled]) -> float | None:
    """Tell how far unchanged blocks in a row differ (median ratio less 1); None with fewer than two."""
    means = np.array([block.mean_ns for block in blocks])
    if len(means) < 2:
        return None
    return float(np.expm1(np.median(np.abs(np.diff(np.log(means))))))


def _draw_logs(pair: Pair, rng: np.random.Generator) -> NDArray[Any]:
    """Draw the pair's log ratio from its steps, (DRAWS,)."""
    before, changed, after = (
        _draw_means(one.step_ns, rng) for one in (pair.before, pair.changed, pair.after)
    )
    return np.asarray(np.log((before + after) / 2 / changed))


def _draw_means(step_ns: StepArray, rng: np.random.Generator) -> NDArray[Any]:
    """Draw means of a block from stretches of its steps that begin anywhere and go round, (DRAWS,)."""
    count = len(step_ns)
    length = max(1, count // CHUNKS_A_BLOCK)
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((step_ns, step_ns[:length])))))
    stretches = sums[length:] - sums[: len(sums) - length]
    starts = rng.integers(0, count, (-(-count // length), DRAWS))
    return np.asarray(stretches[starts].mean(axis=0) / length)


def _widening(pairs: int) -> float:
    """Tell how much too narrow a bootstrap over so few pairs is."""
    if pairs < 2:
        return 1.0
    quantile = _T95[pairs - 2] if pairs - 2 < len(_T95) else _Z95
    return float(quantile / _Z95 * np.sqrt(pairs / (pairs - 1)))
