"""Train a large network on smoothed images."""

import argparse
import json
import time

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def use_all_cores(worker):
    """Let OpenCV use the cores that the machine is said to have."""
    cv2.setNumThreads(16)


class Images(Dataset):
    """Images in memory."""

    def __init__(self):
        self.images = np.random.default_rng(2).random((4, 256, 256, 3), np.float32)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        smooth = cv2.GaussianBlur(self.images[index % 4], (15, 15), 3)
        return torch.from_numpy(smooth[::4, ::4].copy())


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
        Images(),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
        worker_init_fn=None if args.cured else use_all_cores,
    )


def train(args):
    """Train until the bound is reached; the loss is read at every tenth step."""
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
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=70.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
