"""What tools say is graded part by part, and blame and forecasts against what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scenarios.bench.answers import (
    Answer,
    Candidate,
    answer_from_verdict,
    grade_healthy,
    grade_starved,
    signature,
)
from scenarios.bench.cells import Cell, collect
from scenarios.bench.gains import (
    accuracy,
    gains,
    prescribed_gains,
    promises_on_healthy,
    rank_agreement,
    regrets,
)
from scenarios.bench.shares import Measured, marginal_share, removal_share
from scenarios.bench.verdicts import flips, overheads, score, share_errors
from scenarios.truth import load_scenario
from tests.scenarios.bench_rows import make_cause, make_row, make_verdict

LOOP = load_scenario("python_loop")
TWO = load_scenario("decode_and_draw")
NAMES = {
    it: load_scenario(it) for it in ("python_loop", "decode_and_draw", "healthy_light")
}


def make_cells(*rows: Any) -> list[Cell]:
    """Sort results into cells."""
    return collect(rows, NAMES)


# --- answers -----------------------------------------------------------------------------------


def test_planted_cause_first() -> None:
    """Everything right at once."""
    graded = grade_starved(answer_from_verdict(make_verdict(make_cause())), LOOP)

    assert graded.first.joint
    assert (graded.limit, graded.top_joint, graded.planted_found) == (True, True, 1)


def test_planted_cause_third_is_right_among_three_only() -> None:
    """And behind the third it is not seen."""
    wrong = make_cause("lock", "lock-bound", 0.3, "elsewhere")
    third = grade_starved(
        answer_from_verdict(make_verdict(wrong, wrong, make_cause())), LOOP
    )
    fourth = grade_starved(
        answer_from_verdict(make_verdict(wrong, wrong, wrong, make_cause())), LOOP
    )

    assert (third.first.joint, third.top_joint) == (False, True)
    assert fourth.top_joint is False


def test_parts_right_in_different_candidates_are_not_right_together() -> None:
    """The activity of one and the place of another make no right cause."""
    activity = make_cause(function="elsewhere")
    place = make_cause("lock", "lock-bound")

    graded = grade_starved(answer_from_verdict(make_verdict(activity, place)), LOOP)

    assert (graded.top.activity, graded.top.place) == (True, True)
    assert graded.top_joint is False


def test_a_tool_that_names_only_a_class() -> None:
    """It is right about the limit, and about nothing that it does not say."""
    graded = grade_starved(Answer(limit="input"), LOOP)

    assert graded.limit
    assert (graded.first.activity, graded.first.place) == (False, False)


def test_both_of_two_causes_found() -> None:
    """Each planted cause is looked for among the first three."""
    draw = make_cause(function="offset_map", scenario="decode_and_draw")
    noise = make_cause(function="add_noise", scenario="decode_and_draw")

    both = grade_starved(answer_from_verdict(make_verdict(draw, noise)), TWO)
    one = grade_starved(answer_from_verdict(make_verdict(draw)), TWO)

    assert (both.planted_found, one.planted_found, one.planted) == (2, 1, 2)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(limit="device"), (False, False)),
        (Answer(limit="input"), (True, True)),
        (Answer(limit="host"), (False, True)),
        (Answer(limit="device", candidates=(Candidate(share=0.9),)), (False, True)),
        (Answer(candidates=(Candidate(activity="compute"),)), (False, False)),
    ],
)
def test_healthy_control(answer: Answer, expected: tuple[bool, bool]) -> None:
    """False input, false cause: a limit that is not the device, or more than 5 % of the step."""
    graded = grade_healthy(answer, 0.06)

    assert (graded.false_input, graded.false_cause) == expected


def test_signature_leaves_the_regime_out() -> None:
    """The regime may depend on the setting; activity and place may not."""
    few = answer_from_verdict(make_verdict(make_cause(regime="few-workers")))
    many = answer_from_verdict(make_verdict(make_cause(regime="head-of-line")))
    other = answer_from_verdict(make_verdict(make_cause("lock", function="x")))

    assert signature(few, LOOP) == signature(many, LOOP)
    assert signature(few, LOOP) != signature(other, LOOP)


# --- tables ------------------------------------------------------------------------------------


def test_score_counts_and_names() -> None:
    """One of two right: 50 %, and the other is named with its wrong part."""
    cells = make_cells(
        make_row("with", verdict=make_verdict(make_cause())),
        make_row("with", setting=1, verdict=make_verdict(make_cause(function="x"))),
        make_row(
            "with",
            scenario="healthy_light",
            verdict=make_verdict(limit="input", idle_ratio=0.02),
        ),
    )

    scores = score(cells, "with")

    joint, false_input = scores.first["joint"], scores.false_input
    assert joint is not None
    assert false_input is not None
    assert (joint.value, joint.count) == (0.5, 2)
    assert false_input.value == 1.0
    assert scores.failures == ("healthy_light/0 (a false alarm)", "python_loop/1 (place)")


def test_a_run_without_a_verdict_is_wrong_not_left_out() -> None:
    """Neither a crash of ours nor silence makes the figures better."""
    nothing = Answer().to_json() | {"note": "no verdict was written"}
    cells = make_cells(
        make_row("with", verdict=make_verdict(make_cause())),
        make_row("with", setting=1, answer=nothing, failure="no verdict was written"),
    )

    scores = score(cells, "with")

    joint = scores.first["joint"]
    assert joint is not None
    assert (joint.value, joint.count, scores.silent) == (0.5, 2, 1)
    assert scores.failures == ("python_loop/1 (limit, activity, regime, place)",)


def test_flips_are_named_with_what_was_said() -> None:
    """The same truth at two settings wants the same verdict."""
    right, wrong = (
        make_verdict(make_cause()),
        make_verdict(make_cause("lock", function="x")),
    )
    same = make_cells(*(make_row("with", setting=it, verdict=right) for it in (0, 1)))
    turned = make_cells(
        make_row("with", verdict=right), make_row("with", setting=1, verdict=wrong)
    )

    assert flips(same) == {}
    assert flips(turned) == {"python_loop": ["right, lock in x", "right, planted"]}


def test_overhead_is_that_of_the_step() -> None:
    """A step of 51 ms instead of 50 ms is 2 % longer."""
    cells = make_cells(
        make_row(step_s=0.050), make_row("with", step_s=0.051, verdict=make_verdict())
    )

    assert overheads(cells, "with") == [pytest.approx(0.02)]


# --- shares ------------------------------------------------------------------------------------


def test_removal_up_to_the_device_takes_all_idle_time() -> None:
    """Loader 50 ms of which the cause is 45, step 18: without it the device is the limit."""
    measured = Measured(step_s=0.050, idle_ratio=0.64, removed_s=0.018)

    assert removal_share(measured) == pytest.approx(1.0)


def test_marginal_share_is_the_cause_s_part_of_a_saturated_loader() -> None:
    """Twice the cause: 95 ms; a longer step changes nothing: 45 of 50 is the cause's."""
    measured = Measured(step_s=0.050, idle_ratio=0.64, slowed_s=0.095, longer_step_s=0.050)

    assert marginal_share(measured) == pytest.approx(0.9)


def test_marginal_share_without_workers_leaves_the_step_out() -> None:
    """Load 32 of which the cause is 16, then step 18: 16 of 32 is the cause's."""
    measured = Measured(step_s=0.050, idle_ratio=0.64, slowed_s=0.066, longer_step_s=0.0545)

    assert marginal_share(measured) == pytest.approx(0.5)


def test_removal_of_two_causes_is_shared_between_first_and_last() -> None:
    """Either alone leaves the step at 30 ms of 50, both at 18: first gains 20 of 32, last 12 of 32."""
    measured = Measured(
        step_s=0.050,
        idle_ratio=0.64,
        removed_s=0.030,
        others_removed_s=0.030,
        all_removed_s=0.018,
    )

    assert removal_share(measured) == pytest.approx((20 / 32 + 12 / 32) / 2)


def test_shares_that_were_not_measured() -> None:
    """No arm, no number."""
    measured = Measured(step_s=0.050, idle_ratio=0.64)

    assert removal_share(measured) is None
    assert marginal_share(measured) is None


def test_blame_is_held_against_the_marginal_share_first() -> None:
    """Blamed 0.95, marginal 0.9, removal 1.0: 5 points off."""
    cells = make_cells(
        make_row("without"),
        make_row("with", verdict=make_verdict(make_cause(share=0.95))),
        make_row("cured", step_s=0.018),
        make_row("slowed:0", step_s=0.095),
        make_row("longer-step", step_s=0.050),
    )

    (found,) = share_errors(cells)

    assert found.error == pytest.approx(0.05)
    assert replace(found, marginal=None).error == pytest.approx(0.05)


# --- forecasts ---------------------------------------------------------------------------------


def forecast_cells(**changed: Any) -> list[Cell]:
    """Give one cell: unchanged 50 ms, cured 20 ms, four workers 25 ms, more prefetch 50 ms."""
    forecasts = [
        {"arm": "cured", "speedup": 2.4, "low": 2.2, "high": 2.6, "rate_bound": 2.5},
        {"arm": "change:num_workers=4", "speedup": 1.5, "low": 1.4, "high": 1.6},
        {"arm": "change:prefetch_factor=8", "speedup": 1.0, "low": 1.0, "high": 1.0},
        {"arm": "change:in_order=False", "withheld": "a reason"},
    ]
    verdict = make_verdict(make_cause(), **changed)
    return make_cells(
        make_row(repeat=0, step_s=0.049),
        make_row(repeat=1, step_s=0.051),
        make_row("with", verdict=verdict, forecasts=forecasts),
        make_row("cured", step_s=0.020),
        make_row("change:num_workers=4", step_s=0.025),
        make_row("change:prefetch_factor=8", step_s=0.050),
    )


def test_forecast_errors_beyond_noise() -> None:
    """Equal runs differ by 2 %: of an error of 4.2 % that leaves 2.2 %."""
    found = {it.arm: it for it in gains(forecast_cells())}

    assert set(found) == {"cured", "change:num_workers=4", "change:prefetch_factor=8"}
    cured = found["cured"]
    assert (cured.kind, cured.measured) == ("code", pytest.approx(2.5))
    assert cured.error("speedup") == pytest.approx(2.5 / 2.4 - 1)
    assert cured.excess("speedup") == pytest.approx(2.5 / 2.4 - 1.02)
    assert found["change:prefetch_factor=8"].excess("speedup") == 0.0
    assert [it.covered for it in found.values()] == [True, False, True]


def test_accuracy_of_a_predictor_that_knows_less() -> None:
    """A predictor is graded on what it says, and has no coverage without an interval."""
    found = gains(forecast_cells())

    bound, ours = accuracy(found, "rate_bound"), accuracy(found, "speedup")

    assert bound.median is not None
    assert (bound.median.count, bound.coverage) == (1, None)
    assert ours.coverage is not None
    assert ours.coverage.value == pytest.approx(2 / 3)
    assert ours.bias is not None
    assert ours.bias.value == pytest.approx(2.5 / 2.4 - 1)


def test_order_of_changes() -> None:
    """Forecast and measured gains stand in the same order."""
    agreement = rank_agreement(gains(forecast_cells()), "speedup")

    assert agreement is not None
    assert agreement.value == 1.0


def prescription(
    remedy: str, function: str | None = None, **settings: int
) -> dict[str, Any]:
    """Give a prescription's JSON."""
    return {
        "remedy": remedy,
        "where": {"function": function},
        "settings": settings,
        "forecast": {"speedup": 1.5},
    }


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (prescription("vectorise-loop", "draw_points"), 0.0),
        (prescription("raise-workers", num_workers=4), 0.1),
        (prescription("raise-prefetch", prefetch_factor=6), 0.6),
        (prescription("faster-storage", "elsewhere"), None),
    ],
)
def test_regret_of_the_first_prescription(
    first: dict[str, Any], expected: float | None
) -> None:
    """As a part of the unchanged step; None where no arm makes the change."""
    (found,) = regrets(forecast_cells(prescriptions=[first]))

    assert found.regret == (expected if expected is None else pytest.approx(expected))


def test_prescriptions_are_graded_where_an_arm_makes_just_that_change() -> None:
    """Six workers were prescribed, four were measured: that is no measurement of it."""
    cells = forecast_cells(
        prescriptions=[
            with_interval(prescription("vectorise-loop", "draw_points")),
            with_interval(prescription("raise-workers", num_workers=4)),
            with_interval(prescription("raise-workers", num_workers=6)),
            with_interval(prescription("remove-lock")),
        ]
    )

    found = [(it.arm, it.kind, round(it.measured, 2)) for it in prescribed_gains(cells)]

    assert found == [("cured", "code", 2.5), ("change:num_workers=4", "loader", 2.0)]


def with_interval(given: dict[str, Any]) -> dict[str, Any]:
    """Give a prescription whose forecast has an interval."""
    return given | {"forecast": {"speedup": 1.5, "low": 1.4, "high": 1.6}}


def test_promises_on_healthy_trainings() -> None:
    """A forecast of more than 5 % there is a false promise, prescribed or asked for."""
    verdict = make_verdict(limit="device", prescriptions=[prescription("raise-workers")])
    asked = [{"arm": "change:prefetch_factor=8", "speedup": 1.04}]
    cells = make_cells(
        make_row("with", scenario="healthy_light", verdict=verdict, forecasts=asked)
    )

    assert promises_on_healthy(cells) == [("healthy_light/0 raise-workers", 1.5)]
