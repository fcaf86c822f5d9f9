"""Train a small network on the CPU, with cheap samples, in a container."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Light(Dataset):
    """Small samples that cost nothing."""

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((16, 24, 24), float(index))


class Model:
    """A small network trained on the CPU: always as many passes a step."""

    def __init__(self, step_s):
        torch.set_num_threads(1)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)
        self.inputs = torch.rand(32, 64)
        self.worked_ns = 0
        self.passes = 0
        self.run_passes(20)  # the first ones are slow
        begin_s = time.thread_time()
        self.run_passes(50)
        self.passes = round(50 * step_s / (time.thread_time() - begin_s))

    def run_passes(self, count):
        """Go forward and backward so often."""
        for _ in range(count):
            self.optimizer.zero_grad()
            self.network(self.inputs).square().mean().backward()
            self.optimizer.step()

    def fit(self, batch):
        """Do one step."""
        begin_ns = time.thread_time_ns()
        self.run_passes(self.passes)
        self.worked_ns += time.thread_time_ns() - begin_ns

    def busy_ns(self):
        """How long steps have computed up to now: a CPU that is stopped does not work."""
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
        Light(),
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
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=38.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--cured", action="store_true", help="without what makes it slow")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
