"""Train, rank the answers after each step and save every twelfth time."""

import argparse
import json
import os
import pickle
import random
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def rank_answers(scores):
    """Find the area under the curve by sorting."""
    total = 0
    for rank, number in enumerate(sorted(range(len(scores)), key=scores.__getitem__)):
        if number % 3 == 0:
            total += rank
    return total


def write_state(state, folder):
    """Write the state, and be sure that it is on the disk."""
    with open(os.path.join(folder, "state.bin"), "wb") as file:
        pickle.dump(state, file)
        file.flush()
        os.fsync(file.fileno())


class Light(Dataset):
    """Small samples that cost nothing."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((3, 32, 32), float(index))


def removed(args, name):
    """Say whether what has this name is not to be in the training."""
    return args.cured in (name, "all")


class Progress:
    """Counts steps and how long the device was idle since the first batch arrived."""

    def __init__(self, device, args):
        self.device = device
        self.step_bound = args.steps
        self.seconds = args.seconds
        self.steps = 0
        self.begin_s = time.monotonic()
        self.first_s = None
        self.first_busy_ns = 0

    def step(self):
        """Count a batch that has arrived; True when the training is over."""
        now_s = time.monotonic()
        if self.first_s is None:
            self.first_s, self.first_busy_ns = now_s, self.device.busy_ns()
        self.steps += 1
        bounded = self.step_bound is not None and self.steps > self.step_bound
        return bounded or now_s - self.begin_s > self.seconds

    def print(self):
        """Write one line of JSON."""
        if self.first_s is None:
            return
        length_s = time.monotonic() - self.first_s
        busy_s = (self.device.busy_ns() - self.first_busy_ns) / 1e9
        idle_ratio = round(1 - busy_s / length_s, 3)
        per_second = round(self.steps / length_s, 2)
        line = {
            "steps": self.steps,
            "idle_ratio": idle_ratio,
            "steps_per_second": per_second,
        }
        print(json.dumps(line), flush=True)


def build_loader(args):
    """Make the loader."""
    return DataLoader(
        Light(),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached."""
    loader = build_loader(args)
    device = SimulatedAccelerator()
    progress = Progress(device, args)
    folder = tempfile.TemporaryDirectory()
    state = {f"layer{number}": os.urandom(4_000_000) for number in range(8)}
    scores = [random.Random(1).random() for _ in range(26_000)]
    try:
        while True:
            for batch in loader:
                if progress.step():
                    return
                device.launch(args.step_ms / 1e3)
                device.synchronize()  # the loss is read
                if not removed(args, "metric"):
                    rank_answers(scores)
                if progress.steps % 12 == 0 and not removed(args, "checkpoint"):
                    write_state(state, folder.name)
    finally:
        progress.print()


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--cured",
        nargs="?",
        const="all",
        help="without what makes it slow, or without one part of it",
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()
