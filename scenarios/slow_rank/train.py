"""Train on two ranks, each with its own half of the files."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.testing import SimulatedAccelerator


def scan_page(page):
    """Sum up what is on a page."""
    total = 0
    for letter in page:
        total = (total * 31 + letter) % 65_537
    return total


class Pages(Dataset):
    """Pages of this rank."""

    def __init__(self, *, large):
        self.page = bytes(250_000 if large else 2_000)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.tensor([scan_page(self.page), index])


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


def build_loader(args, rank):
    """Make the loader of a rank."""
    return DataLoader(
        Pages(large=rank == 1 and not args.cured),
        batch_size=args.batch_size,
        num_workers=args.workers,
        persistent_workers=True,
    )


def train(args):
    """Train until the bound is reached; each rank waits for the slowest after every step."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    loader = build_loader(args, rank)
    device = SimulatedAccelerator()
    progress = Progress(device, args)
    gradient = torch.zeros(1000)
    try:
        while True:
            for batch in loader:
                over = torch.tensor(float(progress.step()))
                torch.distributed.all_reduce(over)  # all ranks end together
                if over:
                    return
                device.launch(args.step_ms / 1e3)
                device.synchronize()  # the gradient is copied
                torch.distributed.all_reduce(gradient)
    finally:
        if rank == 0:
            progress.print()
        torch.distributed.destroy_process_group()


def main():
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=16.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
