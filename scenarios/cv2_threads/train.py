"""Train on pictures that OpenCV prepares with as many threads as the old server had cores."""

import argparse
import json
import time

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def set_threads(thread_count):
    """Give OpenCV its threads."""
    cv2.setNumThreads(thread_count)


def smooth(picture):
    """Blur and shrink."""
    return cv2.resize(cv2.GaussianBlur(picture, (9, 9), 2.0), (96, 96))


class Pictures(Dataset):
    """Pictures in memory."""

    def __init__(self, thread_count):
        self.thread_count = thread_count
        self.pictures = np.random.default_rng(6).integers(
            0, 256, (8, 720, 960, 3), np.uint8
        )

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        set_threads(self.thread_count)
        return torch.from_numpy(smooth(self.pictures[index % 8]))


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
        Pictures(0 if args.cured else 16),
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
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=12.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
