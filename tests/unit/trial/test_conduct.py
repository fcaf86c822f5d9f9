"""The order of the runs and what is made of them, on trainings whose true speed-ups are known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from whyidle.model.remedies import Settings, make_settings
from whyidle.model.trial import Block, Candidate, CandidateResult, Outcome, TrialState
from whyidle.trial.candidates import make_candidate
from whyidle.trial.conduct import BlockRun, Conduct
from whyidle.trial.statistics import Sampled

BLOCK_NS = 10
WORKERS = make_settings({"num_workers": 4})
ORDER = make_settings({"in_order": False})
PREFETCH = make_settings({"prefetch_factor": 4})
BOTH = make_settings({"num_workers": 4, "in_order": False})


@dataclass
class World:
    """A training that is as fast as it is told to be, and a clock that goes on by a block a run."""

    step_ns: dict[Settings, float]
    """Step time of each arm."""
    budget_blocks: int = 100
    failing: dict[Settings, str] = field(default_factory=dict)
    refusing: dict[Settings, str] = field(default_factory=dict)
    loads: dict[int, float] = field(default_factory=dict)
    """Run number to CPUs that others use."""
    order: list[Settings] = field(default_factory=list)

    def run_block(self, number: int, settings: Settings) -> BlockRun:
        """Run one."""
        self.order.append(settings)
        step_ns, failure = self.step_ns.get(settings, 10.0), self.failing.get(settings)
        refused = self.refusing.get(settings)
        wobble = 1 + 0.002 * (number % 3)
        sampled = Sampled(np.full(30, step_ns * wobble), self.loads.get(number, 0.0), 1.5)
        block = Block(
            number=number,
            settings=settings,
            steps=30,
            step_ns=step_ns,
            own_cpus=sampled.own_cpus,
            other_cpus=sampled.other_cpus,
            wall_ns=BLOCK_NS,
            failure=failure,
            applied=() if refused or not settings else ("loader 1",),
            refused=(refused,) if refused else (),
        )
        return BlockRun(block, None if failure else sampled, (1.0,) * 9)

    def conduct(self, *settings: Settings, unwanted: Settings = ()) -> Conduct:
        """Make the trials of some candidates, a combination of which may be unwanted."""
        return Conduct(
            [_candidate(one) for one in settings],
            run_block=self.run_block,
            left_ns=lambda: (self.budget_blocks - len(self.order)) * BLOCK_NS,
            make_combination=lambda one: None if one == unwanted else _candidate(one),
            cpu_count=2,
        )


def _candidate(settings: Settings) -> Candidate:
    return make_candidate(settings, 2)


def _run(world: World, *settings: Settings) -> tuple[TrialState, list[CandidateResult]]:
    conduct = world.conduct(*settings)
    state = conduct.go_on(lambda: None)
    return state, list(conduct.results())


def _result(results: list[CandidateResult], settings: Settings) -> CandidateResult:
    (found,) = (one for one in results if one.candidate.settings == settings)
    return found


def test_gain_is_proven_by_three_pairs() -> None:
    """Every run of the change stands between two unchanged ones."""
    world = World({WORKERS: 5.0})

    state, results = _run(world, WORKERS)

    assert state is TrialState.COMPLETE
    assert world.order == [(), WORKERS, (), WORKERS, (), WORKERS, ()]
    (result,) = results
    assert result.outcome is Outcome.PROVEN
    assert result.measured is not None
    assert result.measured.speedup == pytest.approx(2.0, rel=0.01)
    assert result.measured.pairs == 3


def test_two_gains_are_tried_together() -> None:
    """What two changes make together is looked at when both gain, and proven when it is best."""
    world = World({WORKERS: 8.0, ORDER: 5.0, BOTH: 3.0})

    state, results = _run(world, WORKERS, ORDER)

    assert state is TrialState.COMPLETE
    assert results[0].candidate.settings == BOTH
    assert {one.outcome for one in results} == {Outcome.PROVEN}


def test_combination_that_cannot_be_tried_is_passed_over() -> None:
    """Its queue may be too deep for the blocks: the next one is looked at."""
    third = make_settings({"pin_memory": True})
    other = make_settings({"in_order": False, "pin_memory": True})
    world = World({WORKERS: 8.0, ORDER: 5.0, third: 9.0, other: 4.0})
    conduct = world.conduct(WORKERS, ORDER, third, unwanted=BOTH)

    conduct.go_on(lambda: None)

    assert BOTH not in world.order
    assert other in world.order


def test_changes_of_the_same_argument_are_not_combined() -> None:
    """Four workers and eight are no combination."""
    eight = make_settings({"num_workers": 8})
    world = World({WORKERS: 8.0, eight: 5.0})

    _run(world, WORKERS, eight)

    assert set(world.order) == {(), WORKERS, eight}


def test_change_without_gain_costs_one_look() -> None:
    """What is slower at the first look is not looked at again."""
    world = World({WORKERS: 5.0, PREFETCH: 12.0})

    _, results = _run(world, PREFETCH, WORKERS)

    assert world.order.count(PREFETCH) == 1
    assert _result(results, PREFETCH).outcome is Outcome.NO_GAIN


def test_nothing_is_proven_where_nothing_gains() -> None:
    """Changes that do nothing do not become proven by many looks."""
    state, results = _run(World({}), WORKERS, ORDER, PREFETCH)

    assert state is TrialState.COMPLETE
    assert Outcome.PROVEN not in {one.outcome for one in results}


def test_best_is_proven_before_the_time_is_over() -> None:
    """With time for three pairs and a bit, the first that gains is proven; others wait."""
    world = World({WORKERS: 5.0, ORDER: 9.0}, budget_blocks=8)

    state, results = _run(world, WORKERS, ORDER, PREFETCH)

    assert state is TrialState.OUT_OF_TIME
    assert _result(results, WORKERS).outcome is Outcome.PROVEN
    assert _result(results, PREFETCH).outcome is Outcome.NOT_TRIED
    assert len(world.order) <= 8


def test_budget_is_kept() -> None:
    """No pair is begun that cannot be ended, whatever the budget."""
    for budget in range(1, 30):
        world = World({WORKERS: 8.0, ORDER: 5.0}, budget_blocks=budget)
        _run(world, WORKERS, ORDER, PREFETCH)
        assert len(world.order) <= budget


def test_disturbed_pairs_are_repeated_and_kept() -> None:
    """A pair in which others ran does not count, is tried again, and stays in the list."""
    world = World({WORKERS: 5.0}, loads={2: 1.0})
    conduct = world.conduct(WORKERS)

    state = conduct.go_on(lambda: None)

    (result,) = conduct.results()
    assert state is TrialState.COMPLETE
    assert (result.outcome, result.disturbed_pairs) == (Outcome.PROVEN, 1)
    assert result.measured is not None
    assert result.measured.pairs == 3
    blocks = conduct.blocks()
    assert [one.number for one in blocks if one.is_disturbed] == [2]
    assert len(blocks) == len(world.order) == 9


def test_endless_disturbance_ends() -> None:
    """A machine that is never even is said to be so."""
    world = World({WORKERS: 5.0}, loads=dict.fromkeys(range(2, 99, 2), 1.0))

    state, (result,) = _run(world, WORKERS)

    assert state is TrialState.COMPLETE
    assert result.outcome is Outcome.UNPROVEN
    assert "disturbed" in result.reason


def test_change_that_fails_is_dropped() -> None:
    """A training that dies with a change is not tried with it again, and the others go on."""
    world = World({ORDER: 5.0}, failing={WORKERS: "exit status 1: no memory"})

    _, results = _run(world, WORKERS, ORDER)

    assert world.order.count(WORKERS) == 1
    failed = _result(results, WORKERS)
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "exit status 1: no memory")
    assert _result(results, ORDER).outcome is Outcome.PROVEN


def test_change_that_was_not_applied_proves_nothing() -> None:
    """However fast the run was: it was an unchanged one."""
    world = World({ORDER: 5.0}, refusing={ORDER: "no such argument"})

    _, (result,) = _run(world, ORDER)

    assert (result.outcome, result.reason) == (Outcome.NOT_APPLIED, "no such argument")


def test_unchanged_training_that_fails_ends_the_trials() -> None:
    """Without it there is nothing to compare with."""
    state, _ = _run(World({}, failing={(): "exit status 1"}), WORKERS)

    assert state is TrialState.FAILED


def test_state_can_be_asked_after_every_run() -> None:
    """What is known is complete enough to be shown at any moment: Ctrl-C may come."""
    world = World({WORKERS: 8.0, ORDER: 5.0})
    conduct = world.conduct(WORKERS, ORDER)
    seen: list[int] = []

    def look() -> None:
        conduct.results()
        seen.append(len(conduct.blocks()))

    conduct.go_on(look)

    assert seen == list(range(1, len(world.order) + 1))
