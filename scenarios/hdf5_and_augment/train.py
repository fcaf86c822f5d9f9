"""Train on rows of a compressed HDF5 file, with noise."""

import argparse
import json
import os
import tempfile
import time

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def write_file(path):
    """Write rows in chunks of 256."""
    rows = np.random.default_rng(4).integers(0, 40, (1024, 2048)).astype(np.int16)
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", data=rows, chunks=(256, 2048), compression="gzip")
    return path


def add_noise(row):
    """Add noise, smoothed twice."""
    noise = np.random.default_rng().normal(size=(110, len(row)))
    for line in noise:
        row = row + np.convolve(line, np.ones(5) / 5, "same")
    return row


class Rows(Dataset):
    """Rows of the file."""

    def __init__(self, path, *, unpacked, clean):
        self.path = path
        self.file = None
        self.clean = clean
        with h5py.File(path, "r") as file:
            self.count = len(file["rows"])
            self.rows = file["rows"][:] if unpacked else None

    def __len__(self):
        return 1_000_000

    def read_row(self, number):
        """Read one row from its chunk."""
        if self.file is None:
            self.file = h5py.File(self.path, "r", rdcc_nbytes=0)
        return self.file["rows"][number]

    def __getitem__(self, index):
        number = index * 389 % self.count
        row = self.read_row(number) if self.rows is None else self.rows[number]
        row = row.astype(np.float64)
        return torch.from_numpy(row if self.clean else add_noise(row))


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
        Rows(args.file, unpacked=removed(args, "chunks"), clean=removed(args, "noise")),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached; the loss is read at every tenth step."""
    folder = tempfile.TemporaryDirectory()
    args.file = write_file(os.path.join(folder.name, "rows.h5"))
    loader = build_loader(args)
    device = SimulatedAccelerator(max_queued=8)
    progress = Progress(device, args)
    try:
        while True:
            for batch in loader:
                if progress.step():
                    return
                device.launch(args.step_ms / 1e3)
                if progress.steps % 10 == 0:
                    device.synchronize()
    finally:
        progress.print()


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=7.0)
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
