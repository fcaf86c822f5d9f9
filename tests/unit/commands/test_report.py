"""`whyidle report`: which run, judged when, in which form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.verdicts import make_cause, make_verdict
from whyidle.commands import main
from whyidle.store import rundir

if TYPE_CHECKING:
    from tests.unit.commands.conftest import Parts

STORED = make_verdict(
    make_cause(file="/secret/train.py", line=3), sentence="It was judged before."
)


def _make_run(name: str, verdict: object = None, parent: str = "whyidle-runs") -> Path:
    run_dir = Path(parent) / name
    run_dir.mkdir(parents=True)
    rundir.write_manifest(run_dir, {"end_mono_ns": 2})
    if verdict is not None:
        (run_dir / "verdict.json").write_text(json.dumps(verdict))
    return run_dir


def test_newest_run_is_shown_without_a_name(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tenth run of a second is newer than the ninth."""
    for name in ("20260131-093000-9", "20260131-093000-10", "20260130-103000-1"):
        _make_run(name, STORED.to_json())

    assert main(["report"]) == 0
    assert "whyidle report whyidle-runs/20260131-093000-10" in capsys.readouterr().out


def test_folder_of_runs_stands_for_its_newest(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was given to --out can be given to report."""
    _make_run("20260131-093000-1", STORED.to_json(), parent="mine")

    assert main(["report", "mine"]) == 0
    assert "mine/20260131-093000-1" in capsys.readouterr().out


def test_no_run_is_an_error_that_says_what_to_do(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was recorded here."""
    assert main(["report"]) == 3
    assert "whyidle run -- COMMAND" in capsys.readouterr().err


def test_stored_verdict_is_shown_without_judging(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was said at the end of the run is said again."""
    parts.judge_error = AssertionError("judged")
    run_dir = _make_run("20260131-093000-1", STORED.to_json())

    assert main(["report", str(run_dir)]) == 0
    assert "It was judged before." in capsys.readouterr().out


@pytest.mark.parametrize(
    "stored",
    [None, {}, [], {"schema_version": 99}, STORED.to_json() | {"limit": "unheard-of"}],
    ids=["missing", "empty", "no object", "too new", "unknown word"],
)
def test_records_are_judged_when_there_is_no_verdict(
    stored: object, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """A verdict that is missing, damaged or foreign is made again and kept."""
    run_dir = _make_run("20260131-093000-1", stored)

    assert main(["report", str(run_dir)]) == 0

    assert parts.verdict.sentence in capsys.readouterr().out
    kept = json.loads((run_dir / "verdict.json").read_text())
    assert kept == parts.verdict.to_json()


def test_verdict_of_a_run_that_goes_on_is_not_kept(parts: Parts) -> None:
    """The next look sees more."""
    run_dir = _make_run("20260131-093000-1")
    rundir.write_manifest(run_dir, {"end_mono_ns": None})

    assert main(["report", str(run_dir)]) == 0
    assert not (run_dir / "verdict.json").exists()


def test_json_is_the_public_form(parts: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get verdict.json as it is."""
    run_dir = _make_run("20260131-093000-1", STORED.to_json())

    assert main(["report", "--json", str(run_dir)]) == 0
    assert json.loads(capsys.readouterr().out) == STORED.to_json()


@pytest.mark.parametrize("form", ["--text", "--json"])
def test_redacted_report_shows_no_folder(
    form: str, parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """In both forms the folders of paths are hidden."""
    run_dir = _make_run("20260131-093000-1", STORED.to_json())

    assert main(["report", form, "--redact", str(run_dir)]) == 0

    text = capsys.readouterr().out
    assert "secret" not in text
    assert "train.py" in text


def test_text_and_json_exclude_each_other(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """One form at a time."""
    assert main(["report", "--text", "--json"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_foreign_folder_is_refused(
    parts: Parts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is no run is named, with what to do."""
    monkeypatch.undo()
    monkeypatch.chdir(Path(rundir.__file__).parent)

    assert main(["report", "."]) == 3
    assert "run-folder-foreign" in capsys.readouterr().err
