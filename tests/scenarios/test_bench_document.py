"""The report says what was measured, names what is wrong, and does not break on what is missing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from scenarios.bench.about_runs import Circumstances
from scenarios.bench.cells import Cell, collect
from scenarios.bench.document import write
from scenarios.truth import load_scenario
from tests.scenarios.bench_rows import make_cause, make_row, make_verdict

NAMES = {it: load_scenario(it) for it in ("python_loop", "healthy_light")}
FACTS = Circumstances(
    date="2026-01-31",
    command="make bench-truth",
    machine=["2 CPUs"],
    versions=["whyidle 0.1"],
    runs=6,
    disturbed=["python_loop/0 with: steal 0.05 > 0.02"],
    skipped=["needs root"],
)


def make_cells(**changed: Any) -> list[Cell]:
    """Give one starved and one healthy cell with most kinds of results."""
    forecasts = [{"arm": "cured", "speedup": 2.4, "low": 2.2, "high": 2.6}]
    tool = {"limit": "input", "candidates": [], "note": "INPUT-BOUND"}
    rows = [
        make_row(repeat=0),
        make_row(repeat=1, step_s=0.051),
        make_row("cured", step_s=0.020),
        make_row(
            "with",
            verdict=make_verdict(make_cause(**changed)),
            forecasts=forecasts,
        ),
        make_row("tool:TraceML", answer=tool),
        make_row(
            "with",
            scenario="healthy_light",
            verdict=make_verdict(limit="device", idle_ratio=0.02),
        ),
    ]
    return collect(rows, NAMES)


def row_of(text: str, begin: str) -> str:
    """Find the line of a table."""
    return next(line for line in text.splitlines() if line.startswith(f"| {begin}"))


def test_report_holds_what_was_measured_against_the_targets() -> None:
    """One right verdict: met; and the numbers of the runs are in it."""
    text, _ = write(make_cells(), FACTS)

    assert row_of(text, "first cause right").endswith("| ≥ 95 % | met |")
    assert row_of(text, "`input` said of a healthy").endswith("met |")
    assert "| 5.2 % (" in row_of(text, "forecast error, cause removed, median")
    assert "not measured" in row_of(text, "forecast error, loader argument, median")


def test_report_names_what_is_wrong() -> None:
    """A wrong place is named with its scenario and setting."""
    text, _ = write(make_cells(function="elsewhere"), FACTS)

    assert "**missed**" in row_of(text, "first cause right")
    assert "- python_loop/0 (place)" in text


def test_report_says_which_runs_were_disturbed_or_left_out() -> None:
    """Nothing is dropped silently."""
    text, _ = write(make_cells(), FACTS)

    assert "- python_loop/0 with: steal 0.05 > 0.02" in text
    assert "- needs root" in text


def test_other_tools_stand_beside_it_on_the_same_scenarios() -> None:
    """A tool that was not run says so."""
    text, _ = write(make_cells(), FACTS)

    assert "100 %" in row_of(text, "TraceML | 0.5.0")
    assert "not run" in row_of(text, "train-doctor")


def test_report_of_verdicts_alone() -> None:
    """Without forecasts, cures and tools every section still says what it has."""
    cells = collect([make_row("with", verdict=make_verdict(make_cause()))], NAMES)

    text, picture = write(cells, FACTS)

    assert "No forecast was measured." in text
    assert "No other tool was run." in text
    ET.fromstring(picture)


def test_tables_are_whole() -> None:
    """Every line of a table has as many cells as its head."""
    text, picture = write(make_cells(), FACTS)
    lines = text.splitlines()

    for number, line in enumerate(lines):
        if line.startswith("|---"):
            width = lines[number - 1].count(" | ")
            below = lines[number + 1 :]
            for row in below[: below.index("")]:
                assert row.count(" | ") == width, row
    assert ET.fromstring(picture).tag.endswith("svg")
