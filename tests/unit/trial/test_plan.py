"""The budget is divided so that it is kept, and short blocks stay long enough to measure."""

from __future__ import annotations

import pytest

from whyidle.trial.load import parse_busy_ticks
from whyidle.trial.plan import (
    MIN_STEPS,
    WARMUP_STEPS,
    deepest_joined_queue,
    deepest_queue,
    plan_blocks,
)
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

    assert plan is not None
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

    assert plan is not None
    assert 13 * plan.expected_ns == pytest.approx(130 * NS_PER_S, rel=0.02)
    assert plan.proof_ns == 7 * plan.expected_ns


@pytest.mark.parametrize(("most_steps", "steps"), [(60, 41), (43, 24), (42, None)])
def test_blocks_end_before_the_script_does(most_steps: int, steps: int | None) -> None:
    """A script that ends by itself gives the length; with too few steps there is no plan."""
    plan = plan_blocks(
        step_ns=10 * MS, startup_ns=0, queued_batches=8, left_ns=130 * NS_PER_S, candidates=3,
        most_steps=most_steps,
    )  # fmt: skip

    assert (plan.steps if plan else None) == steps


def test_queues_that_take_long_to_empty_are_not_tried() -> None:
    """With steps of a second, 12 batches are used up within a twentieth of four minutes; with short ones, thousands."""
    left_ns = 240 * NS_PER_S

    assert deepest_queue(1000 * MS, left_ns) == 12
    assert deepest_queue(5 * MS, left_ns) == 2400
    assert deepest_joined_queue(1000 * MS, 8) == 8
    assert deepest_joined_queue(5 * MS, 8) == 400


def test_busy_time_is_that_of_the_given_cpus() -> None:
    """Idle and waiting for disks is not busy; guest time is not counted twice; other CPUs do not count."""
    text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 60 1 30 380 6 2 4 20 7 7\ncpu1 5 5 5 5 5 5 5 5 5 5\nintr 1 2\n"

    assert parse_busy_ticks(text, frozenset({0})) == 60 + 1 + 30 + 2 + 4 + 20
    assert parse_busy_ticks(text, frozenset({0, 1})) == 117 + 30
