"""The budget is divided so that it is kept, and short blocks stay long enough to measure."""

from __future__ import annotations

import pytest

from whyidle.trial.load import parse_busy_ticks
from whyidle.trial.plan import MIN_STEPS, WARMUP_STEPS, plan_blocks
from whyidle.units import NS_PER_S

MS = 1e6


@pytest.mark.parametrize("step_ms", [0.2, 10, 300, 5000])
@pytest.mark.parametrize("queued", [0, 4, 64])
@pytest.mark.parametrize("left_s", [20, 250, 3000])
def test_every_block_has_warm_up_and_steps_enough(
    step_ms: float, queued: int, left_s: int
) -> None:
    """Whatever the training and the budget: the queue is emptied first, then enough steps are measured."""
    plan = plan_blocks(
        step_ns=step_ms * MS,
        startup_ns=5 * NS_PER_S,
        queued_batches=queued,
        left_ns=left_s * NS_PER_S,
        candidates=3,
    )

    assert plan.warmup_steps == queued + WARMUP_STEPS
    assert plan.steps >= MIN_STEPS
    assert plan.bound == plan.warmup_steps + plan.steps + 1
    in_loop_s = (plan.warmup_steps + plan.steps) * step_ms / 1000
    assert plan.expected_ns == pytest.approx((5 + in_loop_s) * NS_PER_S)
    assert plan.seconds >= 2 * in_loop_s


def test_blocks_fill_the_budget() -> None:
    """A first look at each candidate and proof of one take what is left, no more."""
    plan = plan_blocks(
        step_ns=10 * MS, startup_ns=4 * NS_PER_S, queued_batches=8, left_ns=130 * NS_PER_S,
        candidates=3,
    )  # fmt: skip

    assert 13 * plan.expected_ns == pytest.approx(130 * NS_PER_S, rel=0.02)
    assert plan.proof_ns == 7 * plan.expected_ns


def test_busy_time_is_that_of_the_given_cpus() -> None:
    """Idle and waiting for disks is not busy; guest time is not counted twice; other CPUs do not count."""
    text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 60 1 30 380 6 2 4 20 7 7\ncpu1 5 5 5 5 5 5 5 5 5 5\nintr 1 2\n"

    assert parse_busy_ticks(text, frozenset({0})) == 60 + 1 + 30 + 2 + 4 + 20
    assert parse_busy_ticks(text, frozenset({0, 1})) == 117 + 30
