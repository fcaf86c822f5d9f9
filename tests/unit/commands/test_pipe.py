"""From a command line to a verdict with all parts real: launcher, agent, store, analysis, screen."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from whyidle.model.findings import Limit

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Loops(Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, index):
        return torch.tensor(count_slowly())

def count_slowly():
    total = 0
    for number in range(40_000):
        total += number * number
    return total % 7

if __name__ == "__main__":
    seen = 0
    for batch in DataLoader(Loops(), batch_size=2, num_workers=1):
        seen += len(batch)
    print("samples", seen)
    sys.exit(int(sys.argv[1]))
"""


def _whyidle(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whyidle", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.torch
def test_training_gets_its_verdict_and_keeps_its_output_and_status(tmp_path: Path) -> None:
    """stdout and status are the training's; the verdict is on stderr and in the file, and can be shown again."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "train.py", "3"]

    ran = _whyidle(tmp_path, "run", "--json", "verdict.json", "--", *command)

    assert (ran.returncode, ran.stdout) == (3, "samples 80\n"), ran.stderr
    verdict: dict[str, Any] = json.loads((tmp_path / "verdict.json").read_text())
    assert f"limit: {verdict['limit']}" in ran.stderr
    assert Limit(verdict["limit"]) is Limit.INPUT
    assert (verdict["run"]["command"], verdict["run"]["exit_status"]) == (command, 3)
    again = _whyidle(tmp_path, "report")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.strip() in ran.stderr
    assert json.loads(_whyidle(tmp_path, "report", "--json").stdout) == verdict


@pytest.mark.slow
def test_command_without_python_gets_an_honest_answer(tmp_path: Path) -> None:
    """Nothing was seen from inside: no limit is claimed, the reason is given, the status stands."""
    ran = _whyidle(tmp_path, "run", "--", "sh", "-c", "echo out; sleep 0.5; exit 4")

    assert (ran.returncode, ran.stdout) == (4, "out\n")
    assert "limit: unresolved" in ran.stderr
    assert "agent-not-loaded" in ran.stderr
    assert "Traceback" not in ran.stderr
