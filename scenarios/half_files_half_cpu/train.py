"""Train on files of a network mount that are then parsed in Python."""

import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def read_record(path):
    """Read one file whole."""
    with open(path, "rb") as file:
        return file.read()


def parse_record(record):
    """Sum up runs of bytes."""
    sums = []
    total = 0
    for number, byte in enumerate(record):
        total = (total + byte * number) & 0xFFFF
        if number % 64 == 0:
            sums.append(total)
    return torch.tensor(sums)


class Records(Dataset):
    """Files of one folder."""

    def __init__(self, folder, *, cured):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        read = [read_record(path) for path in self.paths] if cured else []
        self.records = read if cured == "read" else None
        self.sums = list(map(parse_record, read)) if cured == "parse" else None
        self.prepared = list(map(parse_record, read)) if cured == "all" else None

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        number = index % len(self.paths)
        if self.prepared:
            return self.prepared[number]
        record = self.records[number] if self.records else read_record(self.paths[number])
        return self.sums[number] if self.sums else parse_record(record)


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
        Records(args.data, cured=args.cured),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
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
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--cured",
        nargs="?",
        const="all",
        choices=["read", "parse", "all"],
        help="without what makes it slow",
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()
