"""Intervals and rank correlation, against values worked out by hand or published."""

from __future__ import annotations

import pytest

from scenarios.bench.stats import kendall_tau, median, proportion, quantile, quantile_of


def test_wilson_interval() -> None:
    """9 of 10: 0.596 to 0.982, as in textbooks; all of 10 does not end at 1 alone."""
    some, all_of_them = proportion(9, 10), proportion(10, 10)

    assert some is not None
    assert all_of_them is not None
    assert (some.low, some.high) == pytest.approx((0.596, 0.982), abs=1e-3)
    assert all_of_them.low == pytest.approx(0.722, abs=1e-3)
    assert all_of_them.high == pytest.approx(1.0)


def test_nothing_to_estimate() -> None:
    """Without values there is no number."""
    assert proportion(0, 0) is None
    assert median([]) is None


def test_bootstrap_interval_holds_the_median_and_widens_with_spread() -> None:
    """Equal values have no interval, spread ones do."""
    narrow, wide = median([0.1] * 9), median([0.1 * it for it in range(9)])

    assert narrow is not None
    assert wide is not None
    assert (narrow.low, narrow.value, narrow.high) == pytest.approx((0.1, 0.1, 0.1))
    assert wide.value == pytest.approx(0.4)
    assert wide.low < wide.value < wide.high
    assert quantile_of([1.0, 2.0, 4.0], 0.9) == quantile_of([1.0, 2.0, 4.0], 0.9)


def test_quantile_lies_between_values() -> None:
    """Linear between neighbours; a single value is every quantile."""
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([7.0], 0.9) == 7.0
    with pytest.raises(ValueError, match="at least one value"):
        quantile([], 0.9)


def test_kendall_tau() -> None:
    """One swapped pair of six: (5 − 1) ÷ 6; ties shorten the denominator; a constant has no order."""
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1.0
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)
    assert kendall_tau([1, 1, 1], [1, 2, 3]) is None
