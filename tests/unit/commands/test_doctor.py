"""`whyidle doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.commands import main
from whyidle.model.checks import Check, State
from whyidle.observe import checks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_doctor_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What cannot be observed is no failure of the command; the folder asked for is looked at."""
    asked = []

    def check_all(folder: Path) -> list[Check]:
        asked.append(folder)
        return [Check(name="agent", state=State.MISSING, found="no", remedy="do")]

    monkeypatch.setattr(checks, "check_all", check_all)

    assert main(["doctor", "--out", str(tmp_path)]) == 0

    assert asked == [tmp_path]
    assert capsys.readouterr().out.splitlines()[0].split() == ["missing", "agent", "no"]
