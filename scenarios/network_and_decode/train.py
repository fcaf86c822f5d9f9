"""Train on photographs that are fetched and decoded."""

import argparse
import http.client
import io
import json
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def decode(content):
    """Turn a file's content into pixels."""
    picture = Image.open(io.BytesIO(content))
    return np.asarray(picture.convert("RGB"))[::8, ::8].copy()


class Photographs(Dataset):
    """Photographs of a store."""

    def __init__(self, host, *, stored, decoded):
        self.host = host
        self.connection = None
        content = self.fetch("first")
        self.connection = None
        self.content = content if stored else None
        self.pixels = decode(content) if decoded else None

    def __len__(self):
        return 1_000_000

    def fetch(self, key):
        """Get one object."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.host, timeout=20)
        self.connection.request("GET", f"/photographs/{key}.jpg")
        return self.connection.getresponse().read()

    def __getitem__(self, index):
        content = self.content or self.fetch(index)
        return torch.from_numpy(decode(content) if self.pixels is None else self.pixels)


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
        Photographs(
            args.host, stored=removed(args, "network"), decoded=removed(args, "decode")
        ),
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
    parser.add_argument("--host", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=14.0)
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
