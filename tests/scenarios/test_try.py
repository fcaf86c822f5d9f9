"""`whyidle try` for real: it finds, forecasts and proves the change, leaves the script alone, ends when asked."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.scenario, pytest.mark.torch]

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """
    import os
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self): return 4000
        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.full((8,), float(index % 10))

    if __name__ == "__main__":
        open("checkpoint", "a").write("step\\n")
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        loader = DataLoader(Slow(), batch_size=2, num_workers=1)  # built here
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            time.sleep(0.005)
"""
"""Starved: a batch takes 40 ms, a step 5 ms, and nobody computes."""


def _start(folder: Path, script: str, *options: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(textwrap.dedent(script))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("WHYIDLE_")
    }
    command = [sys.executable, "-m", "whyidle", "try", *options, "--"]
    return subprocess.Popen(
        [*command, sys.executable, "train.py"],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _run(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    process = _start(folder, script, *options)
    output, errors = process.communicate(timeout=280)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _trial_dir(folder: Path) -> Path:
    (found,) = (folder / "whyidle-runs").iterdir()
    return found


def test_winning_change_is_forecast_and_proven(tmp_path: Path) -> None:
    """More workers are named with file and line, proven within the budget, the losses bit-identical."""
    done = _run(tmp_path, SCRIPT, "--minutes", "2", "--workdir", "copy")

    assert done.returncode == 0, done.stderr
    folder = _trial_dir(tmp_path)
    report = json.loads((folder / "trial.json").read_text())
    best = report["best"]
    assert best["settings"]["num_workers"] > 1
    assert best["low"] > 1
    line = (
        textwrap.dedent(SCRIPT)
        .splitlines()
        .index("    loader = DataLoader(Slow(), batch_size=2, num_workers=1)  # built here")
    )
    assert (best["file"], best["line"]) == (str(tmp_path / "train.py"), line + 1)
    (winner,) = (one for one in report["candidates"] if one["settings"] == best["settings"])
    assert winner["forecast"]["low"] > 1
    assert winner["losses"]["state"] == "identical"
    forecast = (folder / "forecast.json").read_bytes()
    assert hashlib.sha256(forecast).hexdigest() == report["forecast_sha256"]
    first_run = folder / "runs" / "01" / "manifest.json"
    assert (folder / "forecast.json").stat().st_mtime <= first_run.stat().st_mtime
    assert f"DataLoader(..., {best['arguments']})" in done.stdout
    # Each run had a copy: the script's own files are as they were.
    assert sorted(one.name for one in tmp_path.iterdir()) == ["train.py", "whyidle-runs"]


def test_interrupt_keeps_what_is_known(tmp_path: Path) -> None:
    """Ctrl-C in a trial ends it, prints the report so far and leaves no process."""
    process = _start(tmp_path, SCRIPT, "--minutes", "5")
    assert process.stderr is not None
    for line in process.stderr:
        if "run 1, unchanged" in line:
            break

    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted: this is what was known by then" in output
    report = json.loads((_trial_dir(tmp_path) / "trial.json").read_text())
    assert report["state"] == "interrupted"
    assert len(report["blocks"]) >= 1
    assert (tmp_path / "checkpoint").read_text().count("step") >= 2
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.mark.parametrize(
    ("script", "slug", "said"),
    [
        ("raise SystemExit('no such data set')", "try-training-failed", "no such data set"),
        ("print('no loader here')", "try-no-steps", "no loader here"),
    ],
)
def test_training_that_cannot_be_tried_is_said(
    tmp_path: Path, script: str, slug: str, said: str
) -> None:
    """The person gets the training's own last words, no traceback of ours."""
    done = _run(tmp_path, script)

    assert done.returncode == 1
    text = " ".join(done.stderr.split())
    assert slug in text
    assert said in text
    assert "Traceback" not in text
