"""Train on rows of Parquet files; each worker reads its own files."""

import argparse
import json
import os
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from whyidle.testing import SimulatedAccelerator


def write_files(folder, count):
    """Write some files."""
    numbers = [[float(number + place) for place in range(8000)] for number in range(100)]
    for number in range(count):
        pq.write_table(
            pa.table({"values": numbers}), os.path.join(folder, f"{number}.parquet")
        )
    return folder


def convert(values):
    """Scale the values of a row."""
    total = 0.0
    for value in values:
        total += value.as_py()
    scaled = []
    for value in values:
        scaled.append(value.as_py() / total)
    return scaled


class Rows(IterableDataset):
    """Rows of the files that are this worker's."""

    def __init__(self, folder):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]

    def __iter__(self):
        worker = get_worker_info()
        while True:
            mine = self.paths[worker.id :: worker.num_workers]
            if not mine:
                return
            for path in mine:
                for row in pq.read_table(path)["values"]:
                    yield torch.tensor(convert(row.values))


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
        Rows(args.folder),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached; the loss is read at every tenth step."""
    folder = tempfile.TemporaryDirectory()
    args.folder = write_files(folder.name, 1 if not args.cured else args.workers)
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
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=14.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
