"""Train a key-point network whose heat maps are filled point by point."""

import argparse
import json
import math
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator

MAP_SIDE = 64
RADIUS = 9


def draw_points(points):
    """Fill a heat map, pixel by pixel around each point."""
    heat_map = np.zeros((MAP_SIDE, MAP_SIDE), np.float32)
    for x, y in points:
        for row in range(max(0, y - RADIUS), min(MAP_SIDE, y + RADIUS + 1)):
            for column in range(max(0, x - RADIUS), min(MAP_SIDE, x + RADIUS + 1)):
                distance = (row - y) ** 2 + (column - x) ** 2
                value = math.exp(-distance / 18.0)
                heat_map[row, column] = max(heat_map[row, column], value)
    return heat_map


def draw_points_at_once(points):
    """Fill a heat map with array operations."""
    side = np.arange(MAP_SIDE, dtype=np.float32)
    rows = np.exp(-((side[None, :] - points[:, 1:]) ** 2) / 18.0)
    columns = np.exp(-((side[None, :] - points[:, :1]) ** 2) / 18.0)
    return (rows[:, :, None] * columns[:, None, :]).max(axis=0)


class KeyPoints(Dataset):
    """Images with twelve points each."""

    def __init__(self, *, at_once):
        self.draw = draw_points_at_once if at_once else draw_points

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        generator = np.random.default_rng(index)
        image = torch.from_numpy(generator.random((3, 96, 96), np.float32))
        points = generator.integers(0, MAP_SIDE, (12, 2))
        return image, torch.from_numpy(self.draw(points))


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
        KeyPoints(at_once=args.cured),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
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
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--step-ms", type=float, default=18.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
