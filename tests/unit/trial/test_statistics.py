"""Speed-ups from interleaved blocks: right on average, honest about few pairs, blind to even drift."""

from __future__ import annotations

import numpy as np
import pytest

from whyidle.trial.statistics import Pair, Sampled, estimate_ratio, repeat_noise


def _block(mean_ns: float, other_cpus: float = 0.0, own_cpus: float = 1.5) -> Sampled:
    return Sampled(np.full(30, mean_ns), other_cpus, own_cpus)


def _pair(before: float, changed: float, after: float) -> Pair:
    return Pair(_block(before), _block(changed), _block(after))


def test_speedup_is_steps_per_second_after_over_before() -> None:
    """Half the step time is twice as fast."""
    ratio = estimate_ratio([_pair(10.0, 5.0, 10.0)] * 3)

    assert ratio.speedup == pytest.approx(2.0)
    assert ratio.pairs == 3


def test_speedup_counts_rare_slow_steps() -> None:
    """One slow step in thirty is part of the mean, though the median does not see it."""
    slow = Sampled(np.array([1.0] * 29 + [31.0]), 0.0, 1.0)

    assert estimate_ratio([Pair(slow, _block(1.0), slow)]).speedup == pytest.approx(2.0)


def test_even_drift_cancels() -> None:
    """A machine that gets slower at an even pace changes nothing."""
    pairs = [_pair(10.0, 5.5, 12.0), _pair(12.0, 6.5, 14.0), _pair(14.0, 7.5, 16.0)]

    ratio = estimate_ratio(pairs)

    assert (ratio.speedup, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("pairs", [3, 4, 6])
def test_interval_holds_the_truth_nine_times_in_ten(pairs: int) -> None:
    """With few pairs the interval is wide enough, and not much wider than that."""
    rng = np.random.default_rng(7)
    noise, truth, rounds = 0.05, 1.3, 300
    held = 0
    for _ in range(rounds):
        plain = np.exp(rng.normal(0.0, noise, pairs + 1))
        changed = np.exp(rng.normal(-np.log(truth), noise, pairs))
        ratio = estimate_ratio(
            [_pair(plain[at], changed[at], plain[at + 1]) for at in range(pairs)]
        )
        held += ratio.low <= truth <= ratio.high

    assert 0.83 <= held / rounds <= 0.96


def test_interval_is_no_narrower_than_the_machine_repeats_itself() -> None:
    """Pairs that agree by chance do not make a machine exact."""
    ratio = estimate_ratio([_pair(10.0, 9.9, 10.0)] * 3, noise_ratio=0.05)

    assert ratio.low < 1 < ratio.high


def test_interval_of_one_pair_comes_from_its_steps() -> None:
    """A single pair of even blocks is narrow, one of uneven blocks wide."""
    rng = np.random.default_rng(3)
    uneven = Sampled(rng.exponential(10.0, 60), 0.0, 1.0)

    narrow = estimate_ratio([_pair(10.0, 5.0, 10.0)])
    wide = estimate_ratio([Pair(uneven, _block(5.0), uneven)])

    assert narrow.high - narrow.low < 1e-9
    assert wide.high - wide.low > 0.1


@pytest.mark.parametrize(
    ("loads", "speedup", "is_disturbed"),
    [
        ((0.0, 0.0, 0.0), 1.0, False),
        ((0.0, 1.0, 0.0), 0.5, True),
        ((1.0, 0.0, 1.0), 2.0, True),
        ((0.0, 0.4, 0.8), 1.0, True),
        ((1.5, 1.5, 1.5), 1.0, False),
        ((0.4, 0.8, 0.4), 2.0, False),
    ],
    ids=["quiet", "changed arm hit", "unchanged hit", "rising", "steady", "our server"],
)
def test_pair_is_disturbed_by_uneven_load(
    loads: tuple[float, float, float], speedup: float, is_disturbed: bool
) -> None:
    """What is even over the three blocks cancels; what grows with our own steps serves us."""
    before, changed, after = loads
    pair = Pair(_block(10.0, before), _block(10.0 / speedup, changed), _block(10.0, after))

    assert pair.is_disturbed(2) is is_disturbed


def test_pair_is_not_disturbed_while_cpus_are_free() -> None:
    """Others that run on CPUs which nobody else needed hold nobody up."""
    pair = Pair(_block(10.0, 0.1, 0.2), _block(5.0, 0.9, 0.3), _block(10.0, 0.1, 0.2))

    assert not pair.is_disturbed(2)


def test_pair_is_not_disturbed_while_its_threads_get_their_cpus() -> None:
    """Others may take all that is left, as long as the training's own threads need not wait for them."""
    loads = (0.1, 1.0, 0.1)
    served = [Sampled(np.full(30, 10.0), load, 1.0, 0.1) for load in loads]
    waiting = [Sampled(np.full(30, 10.0), load, 1.0, 1.0) for load in loads]

    assert not Pair(*served).is_disturbed(2)
    assert Pair(*waiting).is_disturbed(2)


def test_noise_is_how_far_blocks_in_a_row_differ() -> None:
    """The median of the ratios, less one; unknown with a single block."""
    blocks = [_block(10.0), _block(11.0), _block(10.0), _block(11.0)]

    assert repeat_noise(blocks) == pytest.approx(0.1)
    assert repeat_noise(blocks[:1]) is None
