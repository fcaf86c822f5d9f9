"""Train on hard examples that are drawn anew for each step."""

import argparse
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from whyidle.testing import SimulatedAccelerator


class Light(Dataset):
    """Small samples that cost nothing."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((3, 32, 32), float(index))


class HardExamples(Sampler):
    """Draws the hardest of some candidates, by their last loss."""

    def __init__(self, *, easy, per_batch):
        self.easy = easy
        self.candidates = 90_000 // per_batch
        self.losses = [random.random() for _ in range(50_000)]

    def __len__(self):
        return 1_000_000

    def hardest(self, start):
        """Look through the candidates one by one."""
        best, number = -1.0, 0
        for candidate in range(start, start + self.candidates):
            loss = self.losses[candidate % 50_000]
            if loss > best:
                best, number = loss, candidate
        return number

    def __iter__(self):
        for index in range(1_000_000):
            yield index if self.easy else self.hardest(index)


def find_median(scores):
    """Sort by inserting into a list of limits."""
    seen = sorted(scores)
    middle = 0.0
    for score in scores:
        if abs(score - seen[len(seen) // 2]) < 0.25:
            middle += score
    return middle


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
        sampler=HardExamples(easy=removed(args, "sampler"), per_batch=args.batch_size),
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached."""
    loader = build_loader(args)
    device = SimulatedAccelerator()
    progress = Progress(device, args)
    scores = [random.Random(2).random() for _ in range(40_000)]
    try:
        while True:
            for batch in loader:
                if progress.step():
                    return
                device.launch(args.step_ms / 1e3)
                device.synchronize()  # the loss is read
                if not removed(args, "metric"):
                    find_median(scores)
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
