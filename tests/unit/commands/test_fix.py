"""`whyidle fix`: a diff of what a trial proved, applied or not, and what is left to do by hand."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.verdicts import make_cause, make_verdict
from whyidle.commands import main
from whyidle.commands.fix import CLOCK_SLACK_NS
from whyidle.model.verdict_json import parse_verdict
from whyidle.store import rundir

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "from torch.utils.data import DataLoader\nloader = DataLoader(data, num_workers=2)  # ours\n"
FIXED = SCRIPT.replace("num_workers=2", "num_workers=8, in_order=False")


@dataclass
class Tried:
    """A script, and a trial of it."""

    script: Path
    folder: Path

    def rewrite(self, **changes: object) -> None:
        """Change parts of the report."""
        path = self.folder / "trial.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """A trial that proved eight workers, begun after the script was written."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "the project" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o750)
    folder = tmp_path / "whyidle-runs" / "trial-20260131-093000-1"
    (folder / "recorded" / "journals").mkdir(parents=True)
    rundir.write_manifest(
        folder / "recorded",
        {"start_unix_ns": time.time_ns() + 1, "working_dir": str(script.parent)},
    )
    settings = {"num_workers": 8, "in_order": False}
    site = {"file": "train.py", "line": 2, "settings": {"num_workers": 2}}
    report = {
        "command": ["python", "train.py"],
        "loader": site,
        "best": {"settings": settings, "speedup": 1.62, "low": 1.55, "high": 1.7},
        "candidates": [
            {
                "settings": settings,
                "measured": {"pairs": 6},
                "losses": {"state": "identical", "note": "bit by bit over 50 steps"},
            }
        ],
    }
    (folder / "trial.json").write_text(json.dumps(report))
    return Tried(script, folder)


def test_diff_is_shown_with_the_measured_gain(
    tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    """Message and diff on stdout, ready for git; the file stays as it is."""
    assert main(["fix"]) == 0

    shown = capsys.readouterr()
    assert shown.out.startswith(
        "Set num_workers=8, in_order=False where the loader is built\n\n"
        "whyidle try measured 1.62 times as many steps a second with it (90 %\n"
        "interval 1.55 to 1.70, 6 pairs of interleaved runs of `python\n"
        "train.py`). Losses identical: bit by bit over 50 steps.\n"
        "\n    num_workers=8 (was 2)\n    in_order=False\n"
    )
    assert shown.out.endswith(
        "--- a/the project/train.py\t\n+++ b/the project/train.py\t\n@@ -1,2 +1,2 @@\n"
        " from torch.utils.data import DataLoader\n"
        "-loader = DataLoader(data, num_workers=2)  # ours\n"
        "+loader = DataLoader(data, num_workers=8, in_order=False)  # ours\n"
    )
    assert shown.err.startswith(
        "whyidle: kept in whyidle-runs/trial-20260131-093000-1/fix.patch"
    )
    assert tried.script.read_text() == SCRIPT


@pytest.mark.parametrize("tool", ["patch", "git"])
def test_applied_change_can_be_taken_back(
    tool: str,
    tried: Tried,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file changes in place with its mode, and the command that is shown brings it back byte by byte."""
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    if tool == "git":
        subprocess.run(["git", "init", "-q"], cwd=tried.script.parent, check=True)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    assert main(["fix", "--apply"]) == 0

    assert tried.script.read_text() == FIXED
    assert stat.S_IMODE(tried.script.stat().st_mode) == 0o750
    undo = capsys.readouterr().err.splitlines()[-1]
    assert tool in undo
    subprocess.run(undo, shell=True, check=True, capture_output=True)
    assert tried.script.read_text() == SCRIPT


def test_changed_file_is_left_as_it_is(
    tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is younger than the run is shown with a warning, and not written."""
    later_ns = time.time_ns() + 2 * CLOCK_SLACK_NS
    os.utime(tried.script, ns=(later_ns, later_ns))

    assert main(["fix"]) == 0
    assert "changed since the run" in capsys.readouterr().err
    assert main(["fix", "--apply"]) == 2

    assert "source-changed" in capsys.readouterr().err
    assert tried.script.read_text() == SCRIPT


def test_what_is_left_is_said_with_its_value(
    tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    """An argument from elsewhere is named with its value and its source; the others are set; the status says it."""
    before = tried.script.stat().st_mtime_ns
    tried.script.write_text(SCRIPT.replace("num_workers=2", "num_workers=options.workers"))
    os.utime(tried.script, ns=(before, before))

    assert main(["fix", "--apply"]) == 1

    assert "num_workers=8: it comes from `options.workers`" in capsys.readouterr().err
    assert "num_workers=options.workers, in_order=False" in tried.script.read_text()


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"best": None}, "nothing-proven"),
        ({"candidates": []}, "trial-damaged"),
        ({"loader": {"file": None, "line": None, "settings": {}}}, "loader-elsewhere"),
        (
            {"loader": {"file": "/x/site-packages/l.py", "line": 2, "settings": {}}},
            "loader-elsewhere",
        ),
        ({"loader": {"file": "gone.py", "line": 2, "settings": {}}}, "loader-elsewhere"),
        (
            {"loader": {"file": "train.py", "line": 1, "settings": {}}},
            "loader-call-not-found",
        ),
    ],
)
def test_nothing_to_set_or_nowhere_is_an_error(
    changes: dict[str, object], slug: str, tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says why; where the values are known they are named."""
    tried.rewrite(**changes)

    assert main(["fix"]) in (2, 3)

    said = " ".join(capsys.readouterr().err.split())
    assert slug in said
    assert slug.startswith("loader-") == ("num_workers=8, in_order=False" in said)


def test_forecast_is_taken_only_when_asked_for(
    tried: Tried, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a trial there is nothing proven; --forecast takes the best one and says what it is."""
    from whyidle.commands import fix
    from whyidle.model.trial import LoaderSite

    run_dir = tried.folder / "recorded"
    verdict = make_verdict(make_cause()).to_json()
    forecast = {"speedup": 1.4, "low": 1.3, "high": 1.5, "basis": "event simulation"}
    verdict["prescriptions"] = [
        {
            "remedy": "raise-workers",
            "where": verdict["causes"][0]["where"],
            "title": "more workers",
            "how": "num_workers=4",
            "automatic": True,
            "forecast": forecast,
            "settings": {"num_workers": 4},
        }
    ]
    rundir.write_verdict(run_dir, parse_verdict(verdict))
    site = LoaderSite(file="train.py", line=2, settings=(("num_workers", 2),))
    monkeypatch.setattr(fix, "find_site", lambda _: site)
    (tried.folder / "trial.json").unlink()
    (run_dir / "columns").mkdir()

    assert main(["fix", str(run_dir)]) == 2
    assert "nothing-proven" in capsys.readouterr().err
    assert main(["fix", "--forecast", str(run_dir)]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "forecasts 1.40 times as many steps" in shown
    assert "has not been tried" in shown
    assert "num_workers=4)" in shown


def test_missing_libcst_is_named_with_its_remedy(
    tried: Tried, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is asked for before anything is read."""
    monkeypatch.setitem(sys.modules, "libcst", None)

    assert main(["fix"]) == 2

    said = " ".join(capsys.readouterr().err.split())
    assert "fix-needs-libcst" in said
    assert 'pip install "whyidle[fix]"' in said
    assert tried.script.read_text() == SCRIPT


def test_read_only_file_is_left_as_it_is(
    tried: Tried, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The diff is printed all the same."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)

    assert main(["fix", "--apply"]) == 2

    shown = capsys.readouterr()
    assert "source-not-writable" in shown.err
    assert "+loader = DataLoader(data, num_workers=8" in shown.out
    assert tried.script.read_text() == SCRIPT
