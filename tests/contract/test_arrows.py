"""The parts import each other as docs/architecture.md draws it, and the linter would notice if not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

LINTER = Path(sys.executable).with_name("lint-imports")
FORBIDDEN = {
    "the agent imports whyidle": ("whyidle_agent/writer.py", "from whyidle import units"),
    "the agent imports a library": ("whyidle_agent/writer.py", "import numpy"),
    "model imports analysis": (
        "whyidle/model/findings.py",
        "from whyidle.analysis import path",
    ),
    "analysis imports store": (
        "whyidle/analysis/path.py",
        "from whyidle.store import rundir",
    ),
    "observe imports the agent": (
        "whyidle/observe/procfs.py",
        "from whyidle_agent import wire",
    ),
    "store imports more of the agent": (
        "whyidle/store/journal.py",
        "from whyidle_agent import writer",
    ),
    "units imports errors": ("whyidle/units.py", "from whyidle import errors"),
    "a new part nobody placed": ("whyidle/leftovers.py", "from whyidle import units"),
}


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINTER, "--no-cache"],
        cwd=root,
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources that a test may spoil."""
    shutil.copytree(
        REPOSITORY / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.pyc")
    )
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_arrows_hold(sources: Path) -> None:
    """No part imports one that it may not see."""
    result = _lint(sources)

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("planted", FORBIDDEN)
def test_arrows_are_noticed_when_broken(sources: Path, planted: str) -> None:
    """Each kind of forbidden import fails the linter."""
    name, line = FORBIDDEN[planted]
    with (sources / "src" / name).open("a") as file:
        file.write(f"\n{line}\n")

    assert _lint(sources).returncode != 0
