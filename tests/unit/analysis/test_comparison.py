"""Two runs beside each other: what is a real difference, and what became of each cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.timelines import MS, SimulatedLoader, make_timeline
from tests.verdicts import make_cause, make_verdict
from whyidle.analysis.comparison import (
    StepSamples,
    compare_runs,
    has_enough_steps,
    idle_interval,
    sample_steps,
)
from whyidle.model.comparison import Trend
from whyidle.model.findings import Activity, Limit

if TYPE_CHECKING:
    from whyidle.model.comparison import CauseChange, Comparison

LOOP = {"file": "/a/targets.py", "line": 45, "function": "outline_maps"}
AUGMENT = {"file": "/a/augment.py", "line": 98, "function": "augment"}


def _steps(seed: int, work_ms: float = 80, batch_size: int = 8) -> StepSamples:
    rng = np.random.default_rng(seed)
    work = rng.normal(work_ms * MS, 8 * MS, (200, 1))
    rank = SimulatedLoader(work, np.full(200, 10 * MS), 2, 2).rank()
    return replace(sample_steps(make_timeline(rank)), batch_size=batch_size)


def _compare(before: StepSamples, after: StepSamples, *causes, **changes) -> Comparison:
    old = make_verdict(*causes, limit=Limit.INPUT)
    new = changes.pop("new", old)
    return compare_runs((old, before), (new, after))


def _change_of(comparison: Comparison, function: str) -> CauseChange:
    return next(one for one in comparison.causes if one.where.function == function)


def test_steps_and_idle_time_of_a_saturated_loader_are_measured() -> None:
    """80 ms of work on two workers give a batch every 40 ms; the loop works 10 of them."""
    samples = _steps(0)

    assert samples.step_ns.mean() == pytest.approx(40 * MS, rel=0.03)
    assert samples.idle_ns.mean() == pytest.approx(30 * MS, rel=0.04)
    low, high = idle_interval(samples)
    assert low < samples.idle_ns.sum() / samples.step_ns.sum() < high


def test_same_training_twice_is_no_real_difference() -> None:
    """Chance alone proves nothing."""
    comparison = _compare(_steps(1), _steps(2), make_cause(**LOOP))

    assert not comparison.step.is_real
    assert comparison.sentence.startswith("No real difference")
    assert all(one.trend is Trend.SAME for one in comparison.causes)


def test_interval_of_the_change_holds_the_true_change_in_nine_of_ten_pairs() -> None:
    """A loader made 5 ms a batch faster gains 2.5 ms a step with two workers."""
    held = 0
    for seed in range(40):
        step = _compare(_steps(seed), _steps(1000 + seed, work_ms=75), make_cause()).step
        held += step.low <= -2.5 * MS <= step.high

    assert held >= 31  # of 40; fewer than that have a chance of 1 % if each has one of 0.9


def test_vectorised_loop_is_gone_and_the_next_cause_is_named() -> None:
    """The story: the map loop went, augmentation is what limits now. Folder and line have changed meanwhile."""
    old = (make_cause(share=0.6, **LOOP), make_cause(share=0.4, **AUGMENT))
    moved = AUGMENT | {"file": "/b/augment.py", "line": 99}
    new = make_verdict(make_cause(share=1.0, **moved))

    comparison = _compare(_steps(1), _steps(2, work_ms=40), *old, new=new)

    loop, augment = (_change_of(comparison, name) for name in ("outline_maps", "augment"))
    assert loop.trend is Trend.GONE
    assert loop.before_ns == pytest.approx(0.6 * 30 * MS, rel=0.05)
    assert loop.scaled_change_ns == pytest.approx(-loop.before_ns * 199)
    assert augment.where.line == 99
    assert comparison.speedup.value == pytest.approx(2.0, rel=0.05)
    assert "Gone is computing in outline_maps" in comparison.sentence
    assert "is computing in augment, line 99" in comparison.sentence


def test_changes_of_all_causes_add_up_to_the_change_of_idle_time() -> None:
    """Nothing gets lost between two closed ledgers, the unexplained rest included."""
    old = (make_cause(share=0.5, **LOOP), make_cause(share=0.3, **AUGMENT))
    new = make_verdict(make_cause(Activity.STORAGE, share=0.95, mount="/data (nfs4)"))

    comparison = _compare(_steps(1), _steps(2, work_ms=60), *old, new=new)

    assert sum(one.change_ns for one in comparison.causes) == pytest.approx(
        comparison.idle.change
    )


def test_time_that_other_programs_took_is_no_difference_of_the_training() -> None:
    """The machine was busier in the first run: the second is faster, but nothing was mended."""
    neighbour = {"activity": Activity.CPU_QUEUE, "process": "backup"}
    old = (make_cause(share=0.4, **neighbour), make_cause(share=0.6, **LOOP))
    new = make_verdict(make_cause(share=1.0, **LOOP))

    comparison = _compare(_steps(1), _steps(2, work_ms=56), *old, new=new)

    assert comparison.step.high < 0
    assert not comparison.step.is_real
    assert any("other programs" in one for one in comparison.caveats)


def test_different_batch_sizes_are_compared_by_the_sample() -> None:
    """A step of twice the samples that takes twice as long is as fast."""
    comparison = _compare(_steps(1), _steps(2, work_ms=160, batch_size=16), make_cause())

    assert comparison.per == "sample"
    assert comparison.speedup.value == pytest.approx(1.0, abs=0.05)
    assert any("batch size" in one for one in comparison.caveats)


def test_run_without_steps_cannot_be_measured() -> None:
    """A command that never asked a loader has nothing to compare."""
    assert not has_enough_steps(sample_steps(make_timeline()))
