"""What each planted cause really costs, measured. Pure: step times of the arms in, shares of the idle time out.

Removing is finite: the step becomes shorter only until something else bounds it. Being slower by a little is marginal.
The two differ wherever the device would be the limit before the cause is gone, so both are measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Step times of one scenario at one setting, s; None where an arm is missing."""

    step_s: float
    """Unchanged."""
    idle_ratio: float
    """Part of the time in which the device was idle, unchanged; from the device itself."""
    removed_s: float | None = None
    """With this cause removed alone."""
    all_removed_s: float | None = None
    others_removed_s: float | None = None
    """With every other planted cause removed; None with one cause."""
    slowed_s: float | None = None
    """With the planted function longer by `slowed_by`."""
    slowed_by: float = 1.0
    longer_step_s: float | None = None
    """With the device's work longer by `longer_by`."""
    longer_by: float = 0.25


def removal_share(measured: Measured) -> float | None:
    """Give the part of the idle time that goes when the cause is removed.

    (T − T_removed) ÷ (T · idle). With several causes the mean of removing it first and removing it last, which
    is what each is given when the gain of removing both is divided fairly (Shapley).
    """
    idle_s = measured.step_s * measured.idle_ratio
    if measured.removed_s is None or idle_s <= 0:
        return None
    first = within_one((measured.step_s - measured.removed_s) / idle_s)
    if measured.others_removed_s is None or measured.all_removed_s is None:
        return first
    last = within_one((measured.others_removed_s - measured.all_removed_s) / idle_s)
    return (first + last) / 2


def marginal_share(measured: Measured) -> float | None:
    """Give the cause's part of the derivatives of everything that is not the device's own work.

    The step time is the sum of its derivatives by the logarithm of each length (Euler: twice everything takes twice
    as long). So all that is not the device's work has T − dT/d ln(step), and the cause its share of that.
    """
    if measured.slowed_s is None or measured.longer_step_s is None:
        return None
    cause_s = (measured.slowed_s - measured.step_s) / measured.slowed_by
    device_s = (measured.longer_step_s - measured.step_s) / measured.longer_by
    busy_s = measured.step_s * (1 - measured.idle_ratio)
    rest_s = measured.step_s - min(max(device_s, 0.0), busy_s)
    return within_one(cause_s / rest_s) if rest_s > 0 else None


def within_one(share: float) -> float:
    """Keep a share, which noise may push beyond its ends, between 0 and 1."""
    return min(max(share, 0.0), 1.0)
