"""Train on records of one large file, read around the page cache."""

import argparse
import json
import mmap
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

RECORD_BYTES = 131072


class Records(Dataset):
    """Records of one large file, in random order."""

    def __init__(self, path):
        self.path = path
        self.count = os.path.getsize(path) // RECORD_BYTES
        self.file = None

    def __len__(self):
        return 1_000_000

    def read_record(self, number):
        """Read a record into the aligned buffer."""
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            self.buffer = mmap.mmap(-1, RECORD_BYTES)
        os.preadv(self.file, [self.buffer], number * RECORD_BYTES)
        return self.buffer[:]

    def __getitem__(self, index):
        record = self.read_record(index * 7919 % self.count)
        return torch.frombuffer(bytearray(record), dtype=torch.uint8)[::64].clone()


class Model:
    """Stands for a forward and backward pass somewhere else: a fixed time a step."""

    def __init__(self, step_s):
        self.step_s = step_s
        self.worked_ns = 0

    def fit(self, batch):
        """Do one step."""
        begin_ns = time.monotonic_ns()
        time.sleep(self.step_s)
        self.worked_ns += time.monotonic_ns() - begin_ns

    def busy_ns(self):
        """How long steps have taken up to now."""
        return self.worked_ns


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
        Records(args.file),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached."""
    loader = build_loader(args)
    model = Model(args.step_ms / 1e3)
    progress = Progress(model, args)
    try:
        while True:
            for batch in loader:
                if progress.step():
                    return
                model.fit(batch)
    finally:
        progress.print()


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
