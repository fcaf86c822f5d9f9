"""`whyidle prove`: the exit status of each outcome, where NEW is looked for, and what is left without a forecast."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.store.test_captures import add_slot
from tests.unit.views.test_proof import FEW, PROOF
from tests.verdicts import make_cause, make_verdict
from whyidle.commands import main
from whyidle.store import rundir
from whyidle.trial import proving

if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.trial.proving import Request


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """A run with captured calls, and what is asked of the part that replays them."""
    requests: list[Request] = []

    def replay(request: Request, say: Any) -> proving.Replayed:
        requests.append(request)
        say("checking")
        return proving.Replayed(
            capture=PROOF.capture,
            not_reproduced=PROOF.not_reproduced,
            different=PROOF.different,
            not_comparable=PROOF.not_comparable,
            timing=PROOF.timing,
        )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(proving, "replay", replay)
    folder = tmp_path / "run"
    (folder / "journals").mkdir(parents=True)
    (folder / "columns").mkdir()
    rundir.write_manifest(folder, {"end_mono_ns": 1})
    verdict = make_verdict(make_cause())
    run = replace(verdict.run, workers=3, ranks=2)
    rundir.write_verdict(folder, replace(verdict, run=run))
    add_slot(folder, "0-draw/0", 10, 3, target={"folder": str(tmp_path / "job")})
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "fast.py").touch()
    return requests


def test_request_follows_the_run(
    asked: list[Request], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many processes as the workers of all ranks; NEW is found where the training ran."""
    assert main(["prove", "run", "maps.py:draw", "fast.py:draw"]) == 0

    (request,) = asked
    assert request.processes == 6
    assert request.new.file == str(tmp_path / "job" / "fast.py")
    shown = capsys.readouterr()
    assert "15.9x as fast" in shown.out
    # The records of this run are empty: the proof stands without a forecast, and says why.
    assert "no forecast" in shown.out
    assert shown.err == "whyidle: checking ...\n"


def test_run_with_captured_calls_is_chosen(asked: list[Request], tmp_path: Path) -> None:
    """Of several runs the newest that kept calls of OLD, though others were recorded since."""
    runs = tmp_path / "whyidle-runs"
    runs.mkdir()
    (tmp_path / "run").rename(runs / "20260131-093000-1")
    later = runs / "20260131-100000-1"
    (later / "journals").mkdir(parents=True)
    rundir.write_manifest(later, {"end_mono_ns": 1})

    assert main(["prove", "whyidle-runs", "maps.py:draw", "fast.py:draw"]) == 0

    record = asked[0].capture.records[0].absolute()
    assert record.is_relative_to(runs / "20260131-093000-1")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 0),
        ({"different": FEW, "timing": None}, 1),
        ({"not_reproduced": FEW}, 4),
        ({"not_comparable": FEW}, 4),
        ({"timing": replace(PROOF.timing, low=0.9)}, 5),
    ],
)
def test_exit_status_tells_the_outcome(
    changes: dict[str, Any],
    status: int,
    asked: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For scripts: 0 only for a replacement that is equal and faster; the JSON says the same."""
    replay = proving.replay

    def changed(request: Request, say: Any) -> proving.Replayed:
        return replace(replay(request, say), **changes)

    monkeypatch.setattr(proving, "replay", changed)

    assert main(["prove", "--json", "run", "maps.py:draw", "fast.py:draw"]) == status

    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == 1
    assert (report["outcome"] == "equal-and-faster") == (status == 0)


@pytest.mark.parametrize(
    ("arguments", "slug", "status"),
    [
        (["run", "maps.py:draw", "gone.py:draw"], "function-file-missing", 2),
        (["run", "maps.py:draw", "fast.py"], "bad-function-name", 2),
        (["run", "maps.py:paint", "fast.py:draw"], "nothing-captured", 3),
        (["gone", "maps.py:draw", "fast.py:draw"], "run-folder-missing", 3),
        (["--rtol", "-1", "run", "maps.py:draw", "fast.py:draw"], "bad-arguments", 2),
    ],
)
def test_nothing_is_called_for_a_wrong_question(
    arguments: list[str],
    slug: str,
    status: int,
    asked: list[Request],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names what is missing."""
    assert main(["prove", *arguments]) == status

    assert slug in capsys.readouterr().err
    assert asked == []
