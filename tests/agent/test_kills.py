"""`kill -9` of anything at any time leaves a folder that opens, with a verdict or an honest `unresolved`."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whyidle.analysis.verdict import judge
from whyidle.model.findings import Limit
from whyidle.store.rundir import find_runs, load_tables

KILLS = 100
TRAINING = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.zeros(8)

if __name__ == "__main__":
    torch.set_num_threads(1)
    for batch in DataLoader(Samples(), batch_size=4, num_workers=2):
        batch.sum()
"""
VICTIMS = ("worker", "loop", "observer", "everything")


def _children(pid: int) -> list[int]:
    try:
        return [
            int(word)
            for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def _kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_for_training(launcher: subprocess.Popen[bytes]) -> tuple[int, list[int]]:
    """The loop's pid and its workers', once there are any."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for loop in _children(launcher.pid):
            workers = _children(loop)
            if len(workers) >= 2:
                return loop, workers
        if launcher.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError("the training never started its workers")


def _kill_one(folder: Path, seed: int) -> tuple[str, Path]:
    """Start a training, kill somebody at a random time, and clear up what is left."""
    rng = random.Random(seed)
    victim = VICTIMS[seed % len(VICTIMS)]
    script = folder / "train.py"
    script.write_text(TRAINING)
    command = [
        sys.executable,
        "-m",
        "whyidle",
        "run",
        "--out",
        str(folder / "runs"),
        "--",
        sys.executable,
        str(script),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as launcher:
        loop, workers = _wait_for_training(launcher)
        time.sleep(rng.uniform(0, 1.2))
        if victim == "worker":
            _kill(rng.choice(workers))
        elif victim == "loop":
            _kill(loop)
        elif victim == "observer":
            _kill(launcher.pid)
            time.sleep(rng.uniform(0, 0.3))
        else:
            _kill(launcher.pid, loop, *workers)
        if victim == "observer":
            _kill(loop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(30)
        _kill(loop, *workers, *([] if launcher.returncode is not None else [launcher.pid]))
    (run,) = find_runs(folder / "runs")
    return victim, run


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_kill_at_any_time_leaves_a_run_that_opens(tmp_path: Path) -> None:
    """A hundred kills of workers, loops, observers and all at once: every folder opens and is judged."""
    folders = [tmp_path / str(seed) for seed in range(KILLS)]
    for folder in folders:
        folder.mkdir()

    with ThreadPoolExecutor(max_workers=5) as pool:
        killed = list(pool.map(_kill_one, folders, range(KILLS)))

    judged = [(victim, judge(load_tables(run))) for victim, run in killed]
    assert {victim for victim, _ in judged} == set(VICTIMS)
    seen = [verdict for _, verdict in judged if verdict.limit is not Limit.UNRESOLVED]
    assert len(seen) > KILLS / 4
    for victim, verdict in judged:
        assert verdict.limit in (Limit.INPUT, Limit.UNRESOLVED), victim
        shares = sum(cause.share for cause in verdict.causes) + verdict.unexplained_ratio
        assert not verdict.idle_ratio or shares == pytest.approx(1.0, abs=0.005)
