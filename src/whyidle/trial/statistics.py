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
"""Draws of a pair's steps: the ends of a 90 % interval are good to a twentieth of its width."""
LOW_PERCENT, HIGH_PERCENT = 5.0, 95.0
CHUNKS_A_BLOCK = 12
"""Steps are drawn in as many stretches: neighbours in a loader depend on each other through its queue."""
DISTURBED_CPUS = 0.3
"""Others using more CPUs than in the runs beside it: on two CPUs that is 15 % of what there is ..."""
DISTURBED_RATIO = 0.1
"""... and on many CPUs as much as this part of them."""
FULL_RATIO = 0.8
"""With a fifth of the CPU time free, whoever wakes up finds a CPU: others do not hold the training up."""
QUEUED_THREADS = 0.3
"""With fewer threads of the training waiting for a CPU at a time, on average, others cost it some percent at most,
which the spread of the pairs shows. (A rival for one of two full CPUs makes one wait all the time.)"""
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
    """CPUs that others used."""
    own_cpus: float
    """CPUs that the training used."""
    queued_threads: float | None = None
    """Its threads that were ready without a CPU, on average; None when that was not observed."""

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
        """Whether others were so uneven over the three blocks, and CPUs so short, that the ratio may be theirs.

        What serves the training (a file system, a server on this host) works more when the training is faster:
        CPU time of others that grows with the steps is no disturbance.
        """
        three = (self.before, self.changed, self.after)
        fullest = max(one.own_cpus + one.other_cpus for one in three)
        queued = [one.queued_threads for one in three]
        is_short = any(one is None or one > QUEUED_THREADS for one in queued)
        if fullest < FULL_RATIO * cpu_count or not is_short:
            return False
        limit = max(DISTURBED_CPUS, DISTURBED_RATIO * cpu_count)
        usual = (self.before.other_cpus + self.after.other_cpus) / 2
        excess = abs(self.changed.other_cpus - usual)
        excess_a_step = abs(self.changed.other_cpus - usual * self.speedup)
        within = abs(self.before.other_cpus - self.after.other_cpus)
        return max(min(excess, excess_a_step), within) > limit


def estimate_ratio(pairs: Sequence[Pair], noise_ratio: float | None = None) -> Ratio:
    """Estimate the speed-up with its 90 % interval.

    With several pairs the interval is Student's t over their log ratios (a bootstrap of three numbers cannot reach
    its own tails), no narrower than what unchanged runs differ by allows: three pairs may agree by chance. A single
    pair has only its steps to tell from: they are drawn again, in stretches.

    Args:
        pairs: At least one.
        noise_ratio: How far unchanged blocks in a row differ, median; None when it is not known.
    """
    logs = np.log([pair.speedup for pair in pairs])
    centre = float(logs.mean())
    if len(pairs) == 1:
        draws = _draw_logs(pairs[0], np.random.default_rng(_SEED))
        low, high = np.percentile(draws, (LOW_PERCENT, HIGH_PERCENT)) - draws.mean()
    else:
        high = _t95(len(pairs)) * logs.std(ddof=1) / np.sqrt(len(pairs))
        low = -high
    least = _Z95 * _spread_of_pair(noise_ratio or 0.0) / np.sqrt(len(pairs))
    return Ratio(
        speedup=float(np.exp(centre)),
        low=float(np.exp(centre + min(low, -least))),
        high=float(np.exp(centre + max(high, least))),
        pairs=len(pairs),
    )


def _spread_of_pair(noise_ratio: float) -> float:
    """Standard deviation of a pair's log ratio, when blocks in a row differ so much in the median.

    Of a normal distribution half lies within 0.6745 standard deviations; a difference has two blocks' variance, a
    pair one and a half.
    """
    return float(np.log1p(noise_ratio) / 0.6745 / np.sqrt(2) * np.sqrt(1.5))


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


def _t95(pairs: int) -> float:
    degrees = pairs - 1
    return _T95[degrees - 1] if degrees <= len(_T95) else _Z95
