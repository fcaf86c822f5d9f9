"""What watching a loader costs: CPU time added for each batch and each sample, in microseconds.

    python benchmarks/loader_cost.py

A loop over trivial samples runs with and without the agent at two batch sizes; two differences give
the part that each batch costs and the part that each sample costs. CPU time of the thread that makes
the batches, the least of several rounds, so that a busy machine matters little; what a worker costs
once, at its start, is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
BATCHES = {1: 300, 101: 40}
"""Samples in a batch to batches in a round: two sizes far apart, and with all rounds fewer samples than
the agent begins to thin out at."""
ROUNDS = 5

TARGET = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

size, rounds, batches, workers = map(int, sys.argv[1:])

class Trivial(Dataset):
    # Its thread's clock, from the sample that begins the second quarter to the last one.
    def __len__(self): return size * batches
    def __getitem__(self, index):
        if index == size * batches // 4:
            self.start = time.thread_time_ns()
        if index == size * batches - 1:
            return time.thread_time_ns() - self.start
        return index

def collate(samples): return samples[-1]

torch.set_num_threads(1)
best = None
for _ in range(rounds):
    loader = DataLoader(Trivial(), batch_size=size, collate_fn=collate, num_workers=workers)
    for used in loader: pass
    best = used if best is None else min(best, used)
print(best)
"""


def main() -> None:
    """Print a table."""
    print("                 us a batch   us a sample")
    small, large = BATCHES
    for name, workers in (("num_workers=0", 0), ("in a worker", 1)):
        added = {
            size: measure(size, workers, observed=True)
            - measure(size, workers, observed=False)
            for size in BATCHES
        }
        a_sample = (added[large] - added[small]) / (large - small)
        a_batch = added[small] - a_sample * small
        print(f"{name:<16} {a_batch:>10.1f} {a_sample:>13.2f}")


def measure(size: int, workers: int, *, observed: bool) -> float:
    """CPU time of a batch of so many samples, us."""
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if observed:
            env["PYTHONPATH"] = str(SOURCE / "whyidle_agent" / "inject")
            env["WHYIDLE_RUN_DIR"] = folder
        arguments = map(str, (size, ROUNDS, BATCHES[size], workers))
        command = [sys.executable, "-c", TARGET, *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return int(done.stdout) / (BATCHES[size] * 0.75) / 1000


if __name__ == "__main__":
    main()
