"""`whyidle run`: options, the training's own status, and what is left when something fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whyidle.commands import main
from whyidle.commands.run import take_command
from whyidle.errors import LaunchError, RunFolderError

if TYPE_CHECKING:
    from tests.unit.commands.conftest import Parts

COMMAND = ["python", "train.py"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--", *COMMAND], COMMAND),
        (COMMAND, COMMAND),
        (["--", "tool", "--", "x"], ["tool", "--", "x"]),
        (["tool", "--", "x"], ["tool", "--", "x"]),
        (["tool", "--steps", "3", "--help"], ["tool", "--steps", "3", "--help"]),
    ],
)
@pytest.mark.parametrize("options", [[], ["--steps", "7"]])
def test_command_is_taken_as_it_stands(
    words: list[str], command: list[str], options: list[str], parts: Parts
) -> None:
    """With `--` or without, with options before it or not: the command's own words are left alone."""
    main(["run", *options, *words])

    assert parts.launched == [(command, 7 if options else None, None)]


def test_bounds_reach_the_launcher(parts: Parts) -> None:
    """Steps are a whole number, seconds may have a fraction."""
    main(["run", "--steps", "200", "--seconds", "1.5", "--", *COMMAND])

    assert parts.launched == [(COMMAND, 200, 1.5)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0", "--", "x"], "at least 1, got '0'"),
        (["--steps", "-3", "--", "x"], "at least 1, got '-3'"),
        (["--steps", "many", "--", "x"], "at least 1, got 'many'"),
        (["--seconds", "0", "--", "x"], "above 0, got '0'"),
        (["--seconds", "nan", "--", "x"], "above 0, got 'nan'"),
        (["--seconds", "inf", "--", "x"], "above 0, got 'inf'"),
        (["--step", "3", "--", "x"], "--step"),
        ([], "command to observe is missing"),
        (["--"], "command to observe is missing"),
        (["--json", "no/such/file.json", "--", "x"], "there is no folder 'no/such'"),
        (["--json", ".", "--", "x"], "it is a folder"),
    ],
)
def test_wrong_option_starts_nothing(
    arguments: list[str],
    said: str,
    parts: Parts,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names the value; no folder is made."""
    assert main(["run", *arguments]) == 2

    assert said in " ".join(capsys.readouterr().err.split())
    assert parts.launched == []
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_starts_nothing(
    parts: Parts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a place for its records would be for nothing."""
    (tmp_path / "file").touch()

    assert main(["run", "--out", "file", "--", *COMMAND]) == 3

    assert "run-folder-not-writable" in capsys.readouterr().err
    assert parts.launched == []


@pytest.mark.parametrize("status", [0, 3, 137])
def test_exit_status_is_that_of_the_training(
    status: int, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict goes to stderr, stdout is the training's alone."""
    parts.exit_status = status

    assert main(["run", "--", *COMMAND]) == status

    output = capsys.readouterr()
    assert output.out == ""
    assert "limit: input" in output.err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("ups"), "an error inside whyidle"),
        (RunFolderError("nothing", slug="run-folder-empty", hint="x"), "run-folder-empty"),
        (KeyboardInterrupt(), "interrupted before the verdict"),
        (OSError("disk full"), "disk full"),
    ],
    ids=["crash", "no records", "interrupt", "system"],
)
def test_exit_status_stands_when_judging_fails(
    error: BaseException, said: str, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, where the run is kept, and the training's status."""
    parts.exit_status, parts.judge_error = 5, error

    assert main(["run", "--", *COMMAND]) == 5

    text = " ".join(capsys.readouterr().err.split())
    assert said in text
    assert "Traceback" not in text
    (run_dir,) = Path("whyidle-runs").iterdir()
    assert f"`whyidle report {run_dir}`" in text


def test_verdict_is_written_into_the_folder_and_the_file(
    parts: Parts, tmp_path: Path
) -> None:
    """`verdict.json` and the file of --json hold the same."""
    main(["run", "--out", "runs", "--json", "v.json", "--", *COMMAND])

    (run_dir,) = (tmp_path / "runs").iterdir()
    expected = parts.verdict.to_json()
    assert json.loads((run_dir / "verdict.json").read_text()) == expected
    assert json.loads((tmp_path / "v.json").read_text()) == expected


def test_command_that_cannot_start_leaves_nothing(
    parts: Parts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt command is told as a shell would, without an empty run behind it."""
    parts.launch_error = LaunchError(
        "cannot start 'pythn'", slug="command-not-found", hint="x", exit_status=127
    )

    assert main(["run", "--", "pythn"]) == 127

    assert "cannot start 'pythn'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_folder_of_others_stays_when_a_command_cannot_start(
    parts: Parts, tmp_path: Path
) -> None:
    """Only what was made for the run is taken away."""
    (tmp_path / "runs").mkdir()
    parts.launch_error = LaunchError("x", slug="y-z", hint="", exit_status=126)

    main(["run", "--out", "runs", "--", "x"])

    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_unobserved_run_has_no_verdict(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing was recorded, the launcher has said so; nothing is judged."""
    parts.observed, parts.judge_error = False, AssertionError("judged")

    assert main(["run", "--", *COMMAND]) == 0
    assert capsys.readouterr().err == ""


def test_only_the_first_dashes_are_ours() -> None:
    """A command may have `--` of its own, even first after ours."""
    assert take_command(["--", "--", "x"]) == ["--", "x"]
