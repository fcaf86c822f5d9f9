"""What watching a loader costs: CPU time added for each batch and each sample, in microseconds.

    python benchmarks/loader_cost.py

A loop over trivial samples runs with and without the agent at two batch sizes; two differences give
the part that each batch costs and the part that each sample costs. Thread CPU time, the least of
several rounds, so that a busy machine matters little. Work in the worker is measured there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
SIZES = (1, 101)
"""Samples in a batch: two sizes far apart."""
ROUNDS = 7
BATCHES = 300

TARGET = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

size, rounds, batches, workers = map(int, sys.argv[1:])

class Trivial(Dataset):
    def __len__(self): return size * batches
    def __getitem__(self, index):
        return index if index < size * batches - 1 else -time.thread_time_ns()

# The first element tells whose clock: of the loop's thread, or of the worker at its last sample.
def collate(samples): return samples[-1]

torch.set_num_threads(1)
best = None
for _ in range(rounds):
    loader = DataLoader(Trivial(), batch_size=size, collate_fn=collate, num_workers=workers)
    start = time.thread_time_ns()
    for last in loader: pass
    used = -last if workers else time.thread_time_ns() - start
    best = used if best is None else min(best, used)
print(best)
"""


def main() -> None:
    """Print a table."""
    print("                 us a batch   us a sample")
    for name, workers in (("num_workers=0", 0), ("in a worker", 1)):
        added = [
            measure(size, workers, observed=True) - measure(size, workers, observed=False)
            for size in SIZES
        ]
        a_sample = (added[1] - added[0]) / (SIZES[1] - SIZES[0])
        a_batch = added[0] - a_sample * SIZES[0]
        print(f"{name:<16} {a_batch:>10.1f} {a_sample:>13.2f}")


def measure(size: int, workers: int, *, observed: bool) -> float:
    """CPU time of a batch of so many samples, us."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if observed:
            env["PYTHONPATH"] = str(SOURCE / "whyidle_agent" / "inject")
            env["WHYIDLE_RUN_DIR"] = folder
        arguments = map(str, (size, ROUNDS, BATCHES, workers))
        command = [sys.executable, "-c", TARGET, *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return int(done.stdout) / BATCHES / 1000


if __name__ == "__main__":
    main()
