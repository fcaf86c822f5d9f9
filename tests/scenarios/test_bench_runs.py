"""The truth bench for real, its fast part: three trainings, watched, unwatched and cured, and a report."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.bench.cells import collect
from scenarios.bench.command import main
from scenarios.bench.ledger import read_rows
from scenarios.bench.verdicts import score
from scenarios.truth import load_scenario

NAMES = ("rate_limit", "slow_metric", "healthy_slow_sample")
"""Ones that need little CPU, so that a busy machine changes neither truth nor gain."""
LEAST_GAIN = 1.5
"""Each cure gains more than this at the first setting, on any machine: it takes away a sleep, or a loop."""


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Put the handler back that the command replaces."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.scenario
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_signals")
def test_fast_part_of_the_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdicts are right, cures help, the report is written, and a second call runs nothing."""
    results, document = tmp_path / "truth.jsonl", tmp_path / "truth.md"
    arguments = [
        *NAMES,
        *("--settings=1", "--arms=without,with,cured", "--seconds=6", "--once"),
        *("--attempts=1", "--patience=0", "--gate-cpus=99", "--gate-pressure=1"),
        *(f"--results={results}", f"--document={document}"),
    ]

    assert main(arguments) == 0
    rows = read_rows(results)
    assert main(arguments) == 0

    assert read_rows(results) == rows
    assert "8 runs, 8 known" in capsys.readouterr().out
    assert [row.failure for row in rows] == [None] * 8
    cells = collect(rows, {name: load_scenario(name) for name in NAMES})
    assert score(cells, "with").failures == ()
    for cell in cells:
        gain = cell.speedup("cured")
        assert gain is None or gain > LEAST_GAIN, cell.name
    assert "| met |" in document.read_text(encoding="utf-8")
