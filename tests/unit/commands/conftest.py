"""Commands with the parts around them replaced: no process is started, nothing is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.verdicts import make_cause, make_verdict
from whyidle.analysis import verdict as analysis
from whyidle.model.events import RunTables
from whyidle.observe import launch
from whyidle.store import rundir

if TYPE_CHECKING:
    from pathlib import Path

    from whyidle.model.findings import Verdict


@dataclass
class Parts:
    """What the parts around a command are asked, and what they answer."""

    verdict: Verdict = field(default_factory=lambda: make_verdict(make_cause()))
    exit_status: int = 0
    observed: bool = True
    launch_error: Exception | None = None
    judge_error: BaseException | None = None
    launched: list[tuple[list[str], Any, Any]] = field(default_factory=list)
    """Command, steps and seconds of each launch."""

    def run_observed(
        self, command: list[str], run_dir: Path, *, steps: Any, seconds: Any, **_: Any
    ) -> launch.LaunchResult:
        """Stand in for the launcher."""
        self.launched.append((command, steps, seconds))
        if self.launch_error:
            raise self.launch_error
        rundir.write_manifest(run_dir, {"end_mono_ns": 2})
        return launch.LaunchResult(
            exit_status=self.exit_status,
            signal=None,
            ended_by=None,
            not_observed=(),
            observed=self.observed,
            start_mono_ns=1,
            end_mono_ns=2,
        )

    def load_tables(self, path: Path) -> RunTables:
        """Stand in for the store."""
        manifest = rundir.read_manifest(path)
        return RunTables(manifest=manifest, journals=(), tables={}, frame_texts={})

    def judge(self, _: RunTables, read_source: object = None) -> Verdict:
        """Stand in for analysis."""
        if self.judge_error:
            raise self.judge_error
        return self.verdict


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Parts:
    """Replaced parts, in an empty working directory."""
    found = Parts()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "run_observed", found.run_observed)
    monkeypatch.setattr(rundir, "load_tables", found.load_tables)
    monkeypatch.setattr(analysis, "judge", found.judge)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return found
