"""The bench runs what is wanted, once, next to what it is compared with, and goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scenarios.bench.arms import GROUPS, arms_of
from scenarios.bench.ledger import Ledger
from scenarios.bench.load import Gate
from scenarios.bench.plan import Job, Remaining, plan
from scenarios.truth import Scenario, load_scenario
from tests.scenarios.bench_rows import make_row

LOOP = load_scenario("python_loop")
TWO = load_scenario("decode_and_draw")
HEALTHY = load_scenario("healthy_light")
LOCK = load_scenario("shared_lock")


def make_plan(
    *scenarios: Scenario,
    settings: int = 1,
    repeats: int = 1,
    groups: set[str] | None = None,
) -> list[Job]:
    """Plan with every arm but those of other tools."""
    wanted = set(GROUPS) - {"tools"} if groups is None else groups
    return plan(
        scenarios, settings=settings, groups=wanted, tools=["py-spy"], repeats=repeats
    )


def names_of(scenario: Scenario) -> set[str]:
    """Give the arms of a scenario at its first setting."""
    return {it.name for it in arms_of(scenario, 0, set(GROUPS), [])}


def test_every_job_is_planned_once() -> None:
    """No two jobs have the same key."""
    jobs = make_plan(LOOP, TWO, HEALTHY, settings=3, repeats=2)

    assert len({job.key for job in jobs}) == len(jobs)


def test_arms_of_a_scenario_stand_together_between_two_unchanged_runs() -> None:
    """What is compared was run within minutes, and the unchanged run tells the noise."""
    jobs = make_plan(LOOP, TWO)
    first = [job for job in jobs if job.scenario is LOOP]

    assert jobs[: len(first)] == first
    assert (first[0].arm.name, first[-1].arm.name) == ("without", "without")
    assert first[0].repeat != first[-1].repeat


def test_one_unchanged_run_where_time_is_short() -> None:
    """`--once` leaves the second out, nothing else."""
    both = make_plan(LOOP)
    once = plan(
        [LOOP], settings=1, groups={*GROUPS} - {"tools"}, tools=[], repeats=1, once=True
    )

    assert [it.key for it in once] == [it.key for it in both[:-1]]


def test_order_is_another_one_in_each_round() -> None:
    """A drift of the machine does not always hit the same arm."""
    jobs = make_plan(LOOP, repeats=2)
    half = len(jobs) // 2

    assert {it.arm.name for it in jobs[:half]} == {it.arm.name for it in jobs[half:]}
    assert [it.arm.name for it in jobs[:half]] != [it.arm.name for it in jobs[half:]]


def test_costly_arms_run_at_the_first_setting_only() -> None:
    """Later settings have what verdicts and gains are graded by."""
    jobs = make_plan(LOOP, settings=2)

    groups = [{job.arm.group for job in jobs if job.setting == it} for it in (0, 1)]
    assert {"marginal", "changes"} <= groups[0]
    assert groups[1] == {"without", "with", "cured"}


def test_each_of_two_causes_is_removed_alone() -> None:
    """Two causes have three cured arms, one cause has one, a healthy control none."""
    assert {it for it in names_of(TWO) if it.startswith("cured")} == {
        "cured",
        "cured:0",
        "cured:1",
    }
    assert {it for it in names_of(LOOP) if it.startswith("cured")} == {"cured"}
    assert not {it for it in names_of(HEALTHY) if it.startswith("cured")}


def test_a_function_that_waits_for_a_lock_is_not_made_longer() -> None:
    """Others would wait longer as well: that is not a derivative by this cause."""
    assert {"slowed:0", "longer-step"} <= names_of(LOOP)
    assert not {"slowed:0", "longer-step"} & names_of(LOCK)


def test_known_results_are_not_run_again(tmp_path: Path) -> None:
    """A second call finds what the first one appended, also behind a line that was cut off."""
    path = tmp_path / "truth.jsonl"
    job = make_plan(LOOP)[0]
    Ledger(path).add(make_row())
    with path.open("a") as file:
        file.write('{"scenario": "pyth')

    again = Ledger(path)

    assert again.is_settled(job, 3)
    assert not again.is_settled(replace(job, repeat=7), 3)


def test_results_of_other_code_are_run_again_unless_asked_for(tmp_path: Path) -> None:
    """A watched run depends on whyidle's code, an unwatched one on the script's alone."""
    path = tmp_path / "truth.jsonl"
    ledger = Ledger(path)
    ledger.add(make_row("with", tool_code="old"))
    ledger.add(make_row("without"))
    jobs = {job.arm.name: job for job in reversed(make_plan(LOOP))}

    assert not Ledger(path).is_settled(jobs["with"], 3)
    assert len(Ledger(path).stale[jobs["with"].key]) == 1
    assert Ledger(path).is_settled(jobs["without"], 3)
    assert Ledger(path, keep_stale=True).is_settled(jobs["with"], 3)


def test_disturbed_runs_are_made_again_up_to_the_number_of_attempts() -> None:
    """Then the least disturbed attempt counts; none is dropped."""
    ledger = Ledger(None)
    job = make_plan(LOOP)[0]
    ledger.add(make_row(disturbed=["steal", "others"], step_s=0.09))
    ledger.add(make_row(disturbed=["steal"], step_s=0.06))

    assert not ledger.is_settled(job, 3)
    assert ledger.is_settled(job, 2)
    best = ledger.best(job.key)
    assert best is not None
    assert best.step_s == 0.06


def test_an_undisturbed_run_settles_a_job_and_counts() -> None:
    """One good attempt is enough."""
    ledger = Ledger(None)
    job = make_plan(LOOP)[0]
    ledger.add(make_row(failure="exit status 1", statistic=None))
    ledger.add(make_row(step_s=0.05))

    assert ledger.is_settled(job, 5)
    assert [row.failure for row in ledger.counted([job.key])] == [None]


def test_a_skipped_run_is_settled_and_does_not_count() -> None:
    """What cannot be run here is not tried again in the same file."""
    ledger = Ledger(None)
    job = make_plan(LOOP)[0]
    ledger.add(make_row(skipped="needs root", statistic=None))

    assert ledger.is_settled(job, 3)
    assert ledger.counted([job.key]) == []


def test_gate_names_what_disturbed() -> None:
    """Only what is above its limit is named; pressure during the run is the run's own."""
    gate = Gate(other_cpus=0.35)

    assert gate.reasons({"other_cpus": 0.2, "steal": 0.0, "pressure_cpu": 0.9}) == []
    assert gate.reasons({"other_cpus": 0.8, "steal": 0.05}) == [
        "others' CPUs 0.80 > 0.35",
        "steal 0.05 > 0.02",
    ]


def test_time_left_is_learnt_from_each_kind_of_run() -> None:
    """A slow tool does not make the rest look slow."""
    jobs = make_plan(LOOP, groups={"without", "with"})
    remaining = Remaining(8.0)
    guess_s = remaining.seconds(jobs)
    watched = next(job for job in jobs if job.arm.watched)

    remaining.note(watched, 100.0)

    assert remaining.seconds(jobs) == guess_s - 12.0 + 100.0
