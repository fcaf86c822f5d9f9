"""`whyidle compare` and `whyidle check`: which runs, which form, which exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.recorded import record_run
from tests.timelines import MS, SimulatedLoader
from whyidle.commands import main

if TYPE_CHECKING:
    from pathlib import Path


def _record(folder: Path, work_ms: float, batches: int = 120) -> str:
    loader = SimulatedLoader(
        np.full((batches, 1), work_ms * MS), np.full(batches, 10.0 * MS), 2, 2
    )
    return str(record_run(folder, loader))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A run of 40 ms a step and one of 20 ms."""
    folder = tmp_path_factory.mktemp("runs")
    return _record(folder / "slow", 80), _record(folder / "fast", 40)


def test_faster_run_is_shown_with_both_times(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, after, change, and no line wider than the screen."""
    assert main(["compare", *runs]) == 0

    text = capsys.readouterr().out
    assert "Faster: 2.00 times the steps per second" in text
    assert "40.0 ms" in text
    assert max(map(len, text.splitlines())) <= 80


def test_comparison_for_programs_has_the_same_figures(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--json is one object with a schema version, and --redact hides folders in it."""
    assert main(["compare", "--json", "--redact", *runs]) == 0

    text = capsys.readouterr().out
    data = json.loads(text)
    assert (data["schema_version"], data["per"]) == (1, "step")
    assert data["step_ns"]["change"] == pytest.approx(-20 * MS, rel=0.01)
    assert data["step_ns"]["is_real"]
    assert "/tmp/" not in text


def test_run_that_is_too_short_is_refused(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mean would mean nothing."""
    short = _record(tmp_path / "short", 80, batches=9)

    assert main(["compare", runs[0], short]) == 2
    assert "run-too-short" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bounds", "status", "said"),
    [
        (["--max-idle", "0.8"], 0, "passed  --max-idle: idle 75 % of the time"),
        (["--max-idle", "0.1"], 1, "FAILED  --max-idle: idle 75 % of the time"),
        (["--max-step-ms", "41"], 0, "passed  --max-step-ms: 40.0 ms a step"),
        (["--max-step-ms", "39"], 1, "FAILED  --max-step-ms: 40.0 ms a step"),
        (["--max-idle", "0.8", "--max-step-ms", "39"], 1, "passed  --max-idle"),
    ],
)
def test_check_fails_when_a_bound_does_not_hold(
    runs: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    bounds: list[str],
    status: int,
    said: str,
) -> None:
    """Each bound is named with what was measured; one that fails fails the check."""
    assert main(["check", runs[0], *bounds]) == status
    assert said in capsys.readouterr().out


def test_check_fails_when_steps_became_longer_than_in_the_baseline(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The other way round it passes, and so does a run against itself."""
    slow, fast = runs

    assert main(["check", slow, "--baseline", fast]) == 1
    assert main(["check", fast, "--baseline", slow]) == 0
    assert main(["check", slow, "--baseline", slow]) == 0
    assert "40.0 ms a step, 20.0 ms in the baseline" in capsys.readouterr().out


def test_check_for_programs_says_what_passed(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--json has each bound; the exit status is the same."""
    assert main(["check", runs[0], "--max-idle", "0.1", "--json"]) == 1

    data = json.loads(capsys.readouterr().out)
    assert data["passed"] is False
    assert data["checked"][0]["bound"] == "--max-idle"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to check"),
        (["--max-idle", "10"], "expected a share from 0 to 1"),
        (["--max-step-ms", "0"], "milliseconds above 0"),
    ],
)
def test_check_without_a_sound_bound_is_wrong_usage(
    runs: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    """Nothing passes by a mistake in the command line."""
    assert main(["check", runs[0], *arguments]) == 2
    assert said in capsys.readouterr().err


def test_check_of_a_missing_run_is_neither_passed_nor_starved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gate whose run was never recorded must not look like a passed one."""
    assert main(["check", str(tmp_path / "none"), "--max-idle", "0.1"]) == 3
