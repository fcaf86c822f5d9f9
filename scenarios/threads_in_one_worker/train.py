"""Train on texts that threads of the worker prepare."""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator

TEXT = "what four threads do in one interpreter takes as long as in one thread " * 1000


def hash_words(text):
    """Give each word a number, letter by letter."""
    numbers, number = [], 5381
    for letter in text:
        if letter == " ":
            numbers.append(number % 30_000)
            number = 5381
        else:
            number = number * 33 + ord(letter)
    return numbers


class Texts(Dataset):
    """Texts, a batch of which is prepared by four threads."""

    def __init__(self, *, prepared):
        self.prepared = hash_words(TEXT) if prepared else None
        self.pool = None

    def __len__(self):
        return 1_000_000

    def __getitems__(self, indices):
        if self.prepared:
            return [torch.tensor(self.prepared) for _ in indices]
        if self.pool is None:
            self.pool = ThreadPoolExecutor(4)
        texts = [TEXT for _ in indices]
        samples = []
        for numbers in self.pool.map(hash_words, texts):
            samples.append(torch.tensor(numbers))
        return samples


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
        Texts(prepared=args.cured),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
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
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=14.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
