"""`whyidle try`: options, what is said, what is left. Trials themselves are in tests/scenarios/test_try.py."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.trial.reports import make_report, make_result
from whyidle.commands import main
from whyidle.commands.try_ import Progress
from whyidle.errors import LaunchError, WhyidleError
from whyidle.model.trial import TrialReport, TrialState
from whyidle.trial import session, workdir

if TYPE_CHECKING:
    from collections.abc import Callable


class _Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[TrialReport | WhyidleError], None]:
    """Set what a session answers instead of running anything; the working directory is empty."""
    monkeypatch.chdir(tmp_path)

    def set_answer(given: TrialReport | WhyidleError) -> None:
        def run(_: object) -> TrialReport:
            if isinstance(given, WhyidleError):
                raise given
            return given

        monkeypatch.setattr(session.Session, "run", run)

    return set_answer


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "0", "--", "x"], "number of minutes above 0, got '0'"),
        (["--minutes", "soon", "--", "x"], "above 0, got 'soon'"),
        (["--workdir", "there", "--", "x"], "invalid choice: 'there'"),
        ([], "whyidle try -- python train.py"),
        (["--json", "no/such/file.json", "--", "x"], "there is no folder 'no/such'"),
    ],
)
def test_wrong_option_starts_nothing(
    arguments: list[str],
    said: str,
    answer: Callable[[TrialReport | WhyidleError], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names the value; no folder is made."""
    assert main(["try", *arguments]) == 2

    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_large_working_folder_is_not_copied(
    answer: Callable[[TrialReport | WhyidleError], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is said before anything runs."""
    (tmp_path / "data").write_text("more than four bytes")
    monkeypatch.setattr(workdir, "MAX_COPY_BYTES", 4)

    assert main(["try", "--workdir", "copy", "--", "x"]) == 2

    assert "workdir-too-large" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("workdir_option", ["here", "copy"])
def test_person_is_told_before_that_runs_write(
    workdir_option: str,
    answer: Callable[[TrialReport | WhyidleError], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Trials run the script again and again: what it writes is written again and again."""
    answer(make_report(make_result(num_workers=4)))

    assert main(["try", "--workdir", workdir_option, "--", "x"]) == 0

    shown = capsys.readouterr()
    assert "it writes each time" in " ".join(shown.err.split())
    assert max(map(len, shown.err.splitlines())) <= 80
    assert "Proven: 2.00 times as fast" in shown.out


def test_report_is_written_to_the_named_file(
    answer: Callable[[TrialReport | WhyidleError], None], tmp_path: Path
) -> None:
    """The same as trial.json."""
    answer(make_report(make_result(num_workers=4)))

    main(["try", "--json", "report.json", "--", "x"])

    assert '"num_workers": 4' in (tmp_path / "report.json").read_text()


def test_interrupted_trials_are_shown_and_end_as_interrupted(
    answer: Callable[[TrialReport | WhyidleError], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C keeps what is known."""
    answer(make_report(make_result(num_workers=4), state=TrialState.INTERRUPTED))

    assert main(["try", "--", "x"]) == 130

    assert "interrupted: this is what was known by then" in capsys.readouterr().out


def test_command_that_cannot_be_started_leaves_nothing(
    answer: Callable[[TrialReport | WhyidleError], None], tmp_path: Path
) -> None:
    """As `whyidle run`."""
    answer(LaunchError("no", slug="command-not-found", hint="", exit_status=127))

    assert main(["try", "--", "x"]) == 127

    assert list(tmp_path.iterdir()) == []


def test_progress_in_a_pipe_is_lines_only() -> None:
    """Nothing is drawn over; each line is short enough to read."""
    stream = io.StringIO()
    progress = Progress(stream)

    progress.starts("num_workers=4", Path("none"), 60_000_000_000)
    progress.has_run("recorded run: " + "The loop waited for data. " * 6)
    progress.close()

    text = stream.getvalue()
    assert "\r" not in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_progress_on_a_terminal_shows_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, drawn over again, and taken away in the end."""
    monkeypatch.setattr("whyidle.commands.try_.REDRAW_S", 0.001)
    stream = _Terminal()
    progress = Progress(stream)

    progress.starts("num_workers=4", Path("none"), 60_500_000_000)
    while "left" not in stream.getvalue():
        pass
    progress.close()

    assert "\rwhyidle: num_workers=4: starting; 1:00 left\x1b[K" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
