"""Train on point clouds in text files, without workers."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def read_text(path):
    """Read one file."""
    with open(path, "rb", buffering=0) as file:
        return file.read()


def parse_points(content):
    """Take the bytes apart, one by one."""
    points = []
    for number in range(0, len(content) - 3, 3):
        x, y, z = content[number], content[number + 1], content[number + 2]
        points.append((x / 255.0, y / 255.0, z / 255.0))
    return torch.tensor(points)


class Clouds(Dataset):
    """Clouds of points, a file each."""

    def __init__(self, folder, *, copied, parsed):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        self.contents = [read_text(path) for path in self.paths] if copied else None
        self.points = parse_points(read_text(self.paths[0])) if parsed else None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        number = index % len(self.paths)
        content = self.contents[number] if self.contents else read_text(self.paths[number])
        return parse_points(content) if self.points is None else self.points


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
        Clouds(args.data, copied=removed(args, "mount"), parsed=removed(args, "parse")),
        batch_size=args.batch_size,
        num_workers=args.workers,
        shuffle=True,
    )


def train(args):
    """Train until the bound is reached."""
    loader = build_loader(args)
    device = SimulatedAccelerator()
    progress = Progress(device, args)
    try:
        while True:
            for batch in loader:
                if progress.step():
                    return
                device.launch(args.step_ms / 1e3)
                device.synchronize()  # the loss is read
    finally:
        progress.print()


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=16.0)
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
