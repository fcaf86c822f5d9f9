"""Train a segmentation network: augmentation and target maps cost about the same."""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator

SIDE = 48


def add_noise(image, generator):
    """Add Gaussian noise and bring the image back to bytes."""
    noisy = image + generator.normal(0.0, 8.0, image.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def offset_map(points):
    """Fill each pixel with the offset to its nearest point."""
    offsets = np.zeros((2, SIDE, SIDE), np.float32)
    for row in range(SIDE):
        for column in range(SIDE):
            nearest = min(
                points, key=lambda point: abs(point[0] - row) + abs(point[1] - column)
            )
            offsets[0, row, column] = nearest[0] - row
            offsets[1, row, column] = nearest[1] - column
    return offsets


def offset_map_at_once(points):
    """Fill all pixels with array operations."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    points = np.asarray(points)
    distance = abs(points[:, 0, None, None] - rows) + abs(
        points[:, 1, None, None] - columns
    )
    nearest = points[distance.argmin(axis=0)]
    return np.stack([nearest[..., 0] - rows, nearest[..., 1] - columns]).astype(np.float32)


class Polygons(Dataset):
    """Images with a few points each."""

    def __init__(self, *, cured):
        self.cured = cured
        self.image = np.random.default_rng(2).integers(0, 256, (256, 256, 3), np.uint8)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        generator = np.random.default_rng(index)
        points = generator.integers(0, SIDE, (2, 2)).tolist()
        quiet = self.cured in ("noise", "all")
        image = self.image.copy() if quiet else add_noise(self.image, generator)
        draw = offset_map_at_once if self.cured in ("draw", "all") else offset_map
        return torch.from_numpy(image), torch.from_numpy(draw(points))


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
        Polygons(cured=args.cured),
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
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--step-ms", type=float, default=16.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--cured",
        nargs="?",
        const="all",
        choices=["draw", "noise", "all"],
        help="without what makes it slow",
    )
    train(parser.parse_args())


if __name__ == "__main__":
    main()
