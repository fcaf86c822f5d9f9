"""The truth files are whole: what they name exists, and every script can be started three ways."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from scenarios.surroundings import NEEDS, PARTS
from scenarios.truth import Scenario, load_scenario, scenario_names
from whyidle.model.findings import Activity, Limit, Regime

SCENARIOS = [load_scenario(name) for name in scenario_names()]


def functions_of(scenario: Scenario) -> dict[str, range]:
    """Give the functions of a script and the lines they span."""
    tree = ast.parse(scenario.script.read_text(encoding="utf-8"))
    return {
        node.name: range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_truth_uses_the_closed_sets(scenario: Scenario) -> None:
    """Limits, activities, regimes, needs and parts are ones that exist."""
    activities = [it.activity for it in scenario.causes]
    regimes = [regime for it in scenario.causes for regime in it.regimes]
    for cause in scenario.causes:
        activities += [it.activity for it in cause.allowed]
        regimes += [regime for it in cause.allowed for regime in it.regimes]

    assert set(scenario.limits) <= {it.value for it in Limit}
    assert set(activities) <= {it.value for it in Activity}
    assert set(regimes) <= {it.value for it in Regime}
    assert set(scenario.needs) <= set(NEEDS)
    assert {*scenario.environment, *scenario.cured_environment} <= set(PARTS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_planted_lines_are_in_the_function_that_is_named(scenario: Scenario) -> None:
    """A planted line lies within the planted function."""
    functions = functions_of(scenario)

    for place in (cause.place for cause in scenario.causes):
        assert set(place.functions) <= set(functions)
        if place.first_line is not None and place.last_line is not None:
            assert place.first_line in functions[place.functions[0]]
            assert place.last_line in functions[place.functions[0]]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_script_can_be_started_three_ways_and_cured(scenario: Scenario) -> None:
    """There are three settings, and the script knows every argument that the harness passes."""
    source = scenario.script.read_text(encoding="utf-8")

    assert len(scenario.settings) == 3
    for argument in (
        "--workers",
        "--batch-size",
        "--step-ms",
        "--seconds",
        "--steps",
        "--cured",
    ):
        assert f'"{argument}"' in source


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_script_knows_the_switch_of_each_cause(scenario: Scenario) -> None:
    """A cause that can be removed alone has a switch of its own, which the script names."""
    source = scenario.script.read_text(encoding="utf-8")
    switches = [it.cure for it in scenario.causes if it.cure is not None]

    assert len(set(switches)) == len(switches)
    for switch in switches:
        assert f'"{switch}"' in source


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_script_imports_only_the_simulated_device_of_whyidle(scenario: Scenario) -> None:
    """A training script knows nothing of whyidle but the device it runs on."""
    tree = ast.parse(scenario.script.read_text(encoding="utf-8"))

    imported = {
        alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    ours = {name for name in imported if name.startswith("whyidle")}

    assert ours <= {"whyidle.testing.SimulatedAccelerator"}


def test_a_healthy_control_has_no_cause() -> None:
    """Healthy is what has the device for its limit and nothing planted."""
    healthy = [it for it in SCENARIOS if not it.causes]

    assert {it.limits for it in healthy} == {("device",)}
    assert {it.kind for it in healthy} == {"healthy"}


NOT_PLANTED = {Activity.COPY, Activity.UNEXPLAINED}
"""A copy needs an accelerator with a memory of its own; nothing can be planted that has no cause."""


def test_each_activity_and_regime_is_planted_twice() -> None:
    """A rule that is right by chance does not pass for one that is right."""
    causes = [cause for scenario in SCENARIOS for cause in scenario.causes]
    activities = Counter(cause.activity for cause in causes)
    regimes = Counter(cause.regimes[0] for cause in causes)

    assert {it for it in Activity if activities[it.value] < 2} == NOT_PLANTED
    assert {it.value for it in Regime if regimes[it.value] < 2} == set()


def test_there_are_two_causes_at_once_nulls_and_ones_to_look_at_last() -> None:
    """A tool that names one cause, or always one, does not pass; nor one that was fitted to what it is held against."""
    kinds = Counter(min(len(it.causes), 2) for it in SCENARIOS)
    held_out = Counter(min(len(it.causes), 2) for it in SCENARIOS if it.split == "held-out")

    assert kinds[0] >= 10
    assert kinds[2] >= 10
    assert kinds.total() >= 48
    assert min(held_out[0], held_out[1], held_out[2]) >= 3


@pytest.mark.parametrize(
    "scenario", [it for it in SCENARIOS if len(it.causes) > 1], ids=lambda it: it.name
)
def test_each_of_several_causes_can_be_removed_alone(scenario: Scenario) -> None:
    """Without that its marginal effect cannot be measured."""
    assert all(cause.removable_alone for cause in scenario.causes)
