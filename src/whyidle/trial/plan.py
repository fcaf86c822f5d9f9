"""How the budget is divided: the recorded run, then blocks that are long enough to measure."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.trial.statistics import MIN_PAIRS
from whyidle.units import NS_PER_S

WARMUP_STEPS = 10
"""Left out of each block behind the steps that are fed from the first filling of the queue."""
MIN_STEPS = 24
"""A block is measured over at least so many steps: twice the stretches that the bootstrap draws."""
SHORTEST_BLOCK_NS = 3 * NS_PER_S
"""Measured part of a block, at least: shorter ones differ by whatever the machine does in a second."""
LONGEST_BLOCK_NS = 10 * NS_PER_S
"""At most: beyond it more pairs tell more than longer blocks."""
RECORDED_SHARE = 0.15
"""Part of the budget for the recorded run, behind its start-up ..."""
RECORDED_SECONDS = (6.0, 45.0)
"""... within these bounds: the verdict needs some hundred steps, the forecast no more than some thousand."""
WARMUP_SHARE, WARMUP_NS = 0.05, 10 * NS_PER_S
"""Emptying the queue that was filled at the start may take this part of the time left, or this long; arms with a
deeper one are not tried."""
JOINED_WARMUP_NS = 2 * NS_PER_S
"""As above for combinations, which deepen the warm-up of all blocks whether or not they are tried in the end."""
PATIENCE = 4.0
"""A block may take this many times as long as the unchanged training would, then it is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """How each block is run: the same for all arms, so that they see the same data."""

    warmup_steps: int
    """Left out at the start."""
    steps: int
    """Measured behind them."""
    seconds: float
    """Bound in case an arm is much slower, from its first step."""
    expected_ns: int
    """Length of a block of the unchanged training, start-up included."""

    @property
    def bound(self) -> int:
        """Steps to run: the last measured one has to end."""
        return self.warmup_steps + self.steps + 1

    @property
    def pair_ns(self) -> int:
        """What one more pair takes."""
        return 2 * self.expected_ns

    @property
    def proof_ns(self) -> int:
        """What proof of one candidate takes."""
        return (2 * MIN_PAIRS + 1) * self.expected_ns


def recorded_seconds(minutes: float) -> float:
    """Give the bound of the recorded run, s from its first step.

    >>> recorded_seconds(5.0), recorded_seconds(0.5)
    (45.0, 6.0)
    """
    shortest, longest = RECORDED_SECONDS
    return min(max(minutes * 60 * RECORDED_SHARE, shortest), longest)


def deepest_queue(step_ns: float, left_ns: int) -> int:
    """Give how many batches an arm may have in its queue and still be tried."""
    return int(max(WARMUP_NS, WARMUP_SHARE * left_ns) / step_ns)


def deepest_joined_queue(step_ns: float, queued: int) -> int:
    """Give the same for combinations; `queued` is the deepest queue of the changes in them."""
    return max(queued, int(JOINED_WARMUP_NS / step_ns))


def plan_blocks(
    *,
    step_ns: float,
    startup_ns: int,
    queued_batches: int,
    left_ns: int,
    candidates: int,
    most_steps: int | None = None,
) -> BlockPlan | None:
    """Divide what is left of the budget.

    Args:
        step_ns: Mean step time of the unchanged training.
        startup_ns: From the start of the command to its first step, and from its last to its end.
        queued_batches: Largest workers x prefetch of any arm: so many steps are fed from the first filling.
        left_ns: Time that is left.
        candidates: How many are to be looked at.
        most_steps: Where the script ends by itself; None: further than anybody looked.

    Returns:
        The plan; None when the script ends before enough steps can be measured.
    """
    warmup = queued_batches + WARMUP_STEPS
    wanted_blocks = 2 * (MIN_PAIRS + candidates) + 1
    overhead_ns = startup_ns + warmup * step_ns
    measured_ns = left_ns / wanted_blocks - overhead_ns
    measured_ns = min(max(measured_ns, SHORTEST_BLOCK_NS), LONGEST_BLOCK_NS)
    steps = max(MIN_STEPS, round(measured_ns / step_ns))
    if most_steps is not None:
        steps = min(steps, most_steps - warmup - 1)
    if steps < MIN_STEPS:
        return None
    in_loop_ns = (warmup + steps) * step_ns
    return BlockPlan(
        warmup_steps=warmup,
        steps=steps,
        # The launcher gives a run as long again to reach its first step.
        seconds=max(PATIENCE * in_loop_ns, 2 * startup_ns) / NS_PER_S,
        expected_ns=int(startup_ns + in_loop_ns),
    )
