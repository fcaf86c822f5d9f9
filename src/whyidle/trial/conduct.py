"""Run the arms in turn, keep what they gave, and judge it at any moment.

What runs an arm is passed in: this module knows nothing of processes and files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.model.trial import (
    Block,
    Candidate,
    CandidateResult,
    LossComparison,
    LossState,
    Outcome,
    TrialState,
)
from whyidle.trial.losses import compare_losses
from whyidle.trial.schedule import (
    Standing,
    choose_next,
    combine_next,
    judge_standing,
)
from whyidle.trial.statistics import Pair, Sampled, estimate_ratio, repeat_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whyidle.model.remedies import Settings

REORDERING = "in_order"
"""The setting that delivers samples in another order."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockRun:
    """A block and what was measured in it."""

    block: Block
    sampled: Sampled | None
    """None when the block failed."""
    losses: tuple[float, ...]


class Conduct:
    """The trials of one command. `go_on` runs them; everything else may be asked at any time."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        run_block: Callable[[int, Settings], BlockRun],
        left_ns: Callable[[], int],
        make_combination: Callable[[Settings], Candidate | None],
        cpu_count: int,
        recorded_losses: Sequence[float] = (),
    ) -> None:
        """Take what is to be tried.

        Args:
            candidates: In the order of the first look.
            run_block: Runs one block of an arm; called with its number, from 1, and the settings.
            left_ns: Time left in the budget.
            make_combination: Gives a candidate for joined settings, with the forecast made beforehand; None when
                it cannot be tried.
            cpu_count: CPUs that the training may use.
            recorded_losses: Losses of the recorded run, which was unchanged as well.
        """
        self._candidates = list(candidates)
        self._run_block = run_block
        self._left_ns = left_ns
        self._make_combination = make_combination
        self._cpu_count = cpu_count
        self._recorded_losses = tuple(recorded_losses)
        self._given_up: set[Settings] = set()
        self.runs: list[BlockRun] = []

    def go_on(self, after_block: Callable[[], None]) -> TrialState:
        """Run blocks until everything is known or the time is over.

        Args:
            after_block: Called behind every block, to show and keep what is known.
        """
        if not self._candidates:
            return TrialState.NOTHING_TO_TRY
        while True:
            if self.runs and self.runs[-1].block.settings == ():
                self._add_combination()
                chosen = self._choose()
                if chosen is None:
                    return self._end_state()
            else:
                chosen = ()
            if chosen == () and len(self.runs) <= 1 and not self._fits(1):
                return TrialState.OUT_OF_TIME
            run = self._run_block(len(self.runs) + 1, chosen)
            self.runs.append(run)
            after_block()
            if chosen == () and run.sampled is None:
                return TrialState.FAILED

    def _choose(self) -> Settings | None:
        return choose_next(self.standings(), self._affordable_pairs())

    def _add_combination(self) -> None:
        while joined := combine_next(self.standings(), self._given_up):
            candidate = self._make_combination(joined)
            if candidate is not None:
                self._candidates.append(candidate)
                return
            self._given_up.add(joined)

    def _end_state(self) -> TrialState:
        """Whether more time would have told more."""
        with_time = choose_next(self.standings(), len(self._candidates) * 10)
        return TrialState.COMPLETE if with_time is None else TrialState.OUT_OF_TIME

    def _fits(self, blocks: int) -> bool:
        return self._left_ns() >= blocks * self._block_ns()

    def _block_ns(self) -> int:
        """Median length of a block; 0 before the first."""
        walls = [run.block.wall_ns for run in self.runs]
        return int(np.median(walls)) if walls else 0

    def _affordable_pairs(self) -> int:
        return self._left_ns() // max(2 * self._block_ns(), 1)

    def blocks(self) -> tuple[Block, ...]:
        """Give the blocks so far, those of disturbed pairs marked."""
        disturbed = {
            number for number, pair in self._pairs() if pair.is_disturbed(self._cpu_count)
        }
        return tuple(
            replace(run.block, is_disturbed=number in disturbed)
            for number, run in enumerate(self.runs)
        )

    def _pairs(self) -> list[tuple[int, Pair]]:
        """Give the pairs by the position of their changed block."""
        found = []
        for number in range(1, len(self.runs) - 1):
            before, changed, after = self.runs[number - 1 : number + 2]
            if (
                changed.block.settings == ()
                or before.block.settings
                or after.block.settings
            ):
                continue
            if before.sampled and changed.sampled and after.sampled:
                found.append((number, Pair(before.sampled, changed.sampled, after.sampled)))
        return found

    def standings(self) -> list[Standing]:
        """Tell how far each candidate has come, in the order of the candidates."""
        pairs, noise = self._pairs(), self.noise_ratio()
        return [self._standing(one, pairs, noise) for one in self._candidates]

    def _standing(
        self,
        candidate: Candidate,
        pairs: Sequence[tuple[int, Pair]],
        noise: float | None,
    ) -> Standing:
        own = [
            pair
            for number, pair in pairs
            if self.runs[number].block.settings == candidate.settings
        ]
        calm = [pair for pair in own if not pair.is_disturbed(self._cpu_count)]
        dropped, reason = self._dropped(candidate)
        return Standing(
            candidate=candidate,
            ratio=estimate_ratio(calm, noise) if calm else None,
            disturbed_pairs=len(own) - len(calm),
            dropped=dropped,
            reason=reason,
        )

    def _dropped(self, candidate: Candidate) -> tuple[Outcome | None, str]:
        for run in self.runs:
            block = run.block
            if block.settings != candidate.settings:
                continue
            if block.refused and not block.applied:
                return Outcome.NOT_APPLIED, block.refused[0]
            if block.failure is not None:
                return Outcome.FAILED, block.failure
        return None, ""

    def noise_ratio(self) -> float | None:
        """Tell how far unchanged blocks in a row differ; None with fewer than two."""
        return repeat_noise(self._unchanged())

    def _unchanged(self) -> list[Sampled]:
        return [
            run.sampled
            for run in self.runs
            if run.block.settings == () and run.sampled is not None
        ]

    def unchanged_step_ns(self) -> float | None:
        """Median of the unchanged blocks' step times; None without one."""
        means = [one.mean_ns for one in self._unchanged()]
        return float(np.median(means)) if means else None

    def other_cpus(self) -> float | None:
        """CPUs that others used, mean over blocks; None without one."""
        seen = [run.block.other_cpus for run in self.runs]
        return float(np.mean(seen)) if seen else None

    def results(self) -> tuple[CandidateResult, ...]:
        """Judge every candidate by what is known, best first."""
        noise = self.noise_ratio()
        found = [self._result(standing, noise) for standing in self.standings()]
        return tuple(
            sorted(found, key=lambda one: -(one.measured.speedup if one.measured else 0.0))
        )

    def _result(self, standing: Standing, noise: float | None) -> CandidateResult:
        outcome, reason = judge_standing(standing, noise)
        settings = standing.candidate.settings
        own = [run for run in self.runs if run.block.settings == settings]
        means = [run.sampled.mean_ns for run in own if run.sampled is not None]
        return CandidateResult(
            candidate=standing.candidate,
            measured=standing.ratio,
            outcome=outcome,
            reason=reason,
            step_ns=float(np.median(means)) if means else None,
            losses=self._compare_losses(settings, own),
            disturbed_pairs=standing.disturbed_pairs,
        )

    def _compare_losses(
        self, settings: Settings, own: Sequence[BlockRun]
    ) -> LossComparison:
        if not own:
            return LossComparison(state=LossState.NOT_COMPARED, note="")
        unchanged = [run.losses for run in self.runs if run.block.settings == ()]
        return compare_losses(
            [self._recorded_losses, *unchanged],
            [run.losses for run in own],
            reorders=any(name == REORDERING for name, _ in settings),
        )
