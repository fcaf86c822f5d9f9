"""Which arm comes next: a first look at every candidate, what two gains make together, then proof of the best.

NOTE [looking and proving]
    The first pair of each candidate tells where to look; a candidate is proven by MIN_PAIRS pairs and an interval
    above 1. While time is short, fewer candidates are looked at: what is best so far is proven first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyidle.model.trial import Outcome
from whyidle.trial.candidates import join
from whyidle.trial.statistics import MIN_PAIRS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from whyidle.model.remedies import Settings
    from whyidle.model.trial import Candidate, Ratio

MAX_PAIRS = 6
"""A gain that six pairs do not show is too small to keep a setting for."""
MAX_DISTURBED = 4
"""So many disturbed pairs of one candidate, and the machine is too uneven to measure it."""
MIN_GAIN = 0.02
"""Gains below it are not combined with others: they would be lost in the noise of most machines."""
MAX_COMBINATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a candidate has come."""

    candidate: Candidate
    ratio: Ratio | None
    """Of its undisturbed pairs; None without any."""
    disturbed_pairs: int
    dropped: Outcome | None
    """FAILED or NOT_APPLIED: no more trials."""
    reason: str
    """Why it was dropped."""

    @property
    def pairs(self) -> int:
        """Undisturbed pairs."""
        return self.ratio.pairs if self.ratio is not None else 0

    @property
    def is_open(self) -> bool:
        """Whether another trial of it may tell something."""
        return (
            self.dropped is None
            and self.pairs < MAX_PAIRS
            and self.disturbed_pairs < MAX_DISTURBED
        )

    @property
    def speedup(self) -> float:
        """Measured speed-up; 0 while unknown."""
        return self.ratio.speedup if self.ratio is not None else 0.0


def choose_next(standings: Sequence[Standing], affordable_pairs: int) -> Settings | None:
    """Choose the arm to try now; None when everything is known that trials can tell, or no pair fits any more."""
    if affordable_pairs < 1:
        return None
    open_ones = [one for one in standings if one.is_open]
    ranked = sorted((one for one in open_ones if one.pairs), key=lambda one: -one.speedup)
    missing = MIN_PAIRS - ranked[0].pairs if ranked and ranked[0].speedup > 1 else 0
    unseen = [one for one in open_ones if not one.pairs]
    if unseen and affordable_pairs > missing:
        return min(unseen, key=lambda one: one.disturbed_pairs).candidate.settings
    for one in ranked:
        if one.speedup > 1 - MIN_GAIN and one.pairs < MIN_PAIRS:
            return one.candidate.settings
    for one in ranked:
        if one.speedup > 1 + MIN_GAIN / 2 and one.ratio is not None and one.ratio.low <= 1:
            return one.candidate.settings
    return None


def combine_next(
    standings: Sequence[Standing], given_up: Collection[Settings]
) -> Settings | None:
    """Name the combination that has become worth a look, once every candidate has had its first; else None.

    Args:
        standings: How far each candidate has come.
        given_up: Combinations that cannot be tried.
    """
    if any(one.is_open and not one.pairs for one in standings):
        return None
    tried = {*given_up, *(one.candidate.settings for one in standings)}
    gaining = sorted(
        (one for one in standings if one.dropped is None and one.speedup > 1 + MIN_GAIN),
        key=lambda one: -one.speedup,
    )
    if len(gaining) < 2 or _combination_count(standings) >= MAX_COMBINATIONS:
        return None
    for other in gaining[1:]:
        joined = join((gaining[0].candidate, other.candidate))
        if joined is not None and joined not in tried:
            return joined
    return None


def _combination_count(standings: Sequence[Standing]) -> int:
    return sum(len(one.candidate.settings) > 1 for one in standings)


def judge_standing(standing: Standing, noise_ratio: float | None) -> tuple[Outcome, str]:
    """Give the outcome of a candidate, and the reason where the numbers do not say it."""
    ratio = standing.ratio
    if standing.dropped is not None:
        return standing.dropped, standing.reason
    if ratio is None and standing.disturbed_pairs:
        return Outcome.UNPROVEN, f"all {standing.disturbed_pairs} pairs were disturbed"
    if ratio is None:
        return Outcome.NOT_TRIED, "the time was over"
    if ratio.pairs < MIN_PAIRS:
        if ratio.speedup <= 1:
            return Outcome.NO_GAIN, "no gain at the first look"
        return Outcome.UNPROVEN, f"{ratio.pairs} of {MIN_PAIRS} pairs"
    if ratio.high < 1:
        return Outcome.SLOWER, ""
    if ratio.low <= 1:
        return Outcome.NO_GAIN, "the interval holds a standstill"
    if ratio.speedup < 1 + (noise_ratio or 0.0):
        return Outcome.NO_GAIN, "less than unchanged runs differ"
    return Outcome.PROVEN, ""
