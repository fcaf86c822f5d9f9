"""Train a segmentation network on images with polygon annotations.

    python make_data.py data --count 2000
    python train.py data --workers 4
    torchrun --nproc-per-node 2 train.py data --workers 2

--device simulated trains nothing: every step queues some milliseconds of work on an accelerator that is
only a clock, so that the input pipeline can be studied where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Protocol

import torch
from dataset import STAGES, PolygonDataset
from model import SegmentationNet, loss_of, overlap_of
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Compute(Protocol):
    """What is done with a batch."""

    def step(self, batch: list[Tensor]) -> None:
        """Begin to work on a batch; need not wait until it is done."""

    def describe(self) -> str:
        """Wait for the last step and say in a few words how it went."""

    def save(self, path: str) -> None:
        """Write what was learnt."""


class Training:
    """Forward, backward and optimizer step on a CPU or a CUDA device."""

    def __init__(self, device: torch.device, learning_rate: float) -> None:
        self.device = device
        self.net: torch.nn.Module = SegmentationNet().to(device)
        if distributed.is_initialized():
            device_ids = [device.index] if device.type == "cuda" else None
            self.net = DistributedDataParallel(self.net, device_ids=device_ids)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=learning_rate)
        self.loss = self.overlap = torch.zeros(())

    def step(self, batch: list[Tensor]) -> None:
        """Learn from one batch."""
        images, *wanted = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        predicted = self.net(images)
        self.loss = loss_of(predicted, tuple(wanted))
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.backward()
        self.optimizer.step()
        self.overlap = overlap_of(predicted[0].detach(), wanted[0])

    def describe(self) -> str:
        """Give the loss and the overlap of masks in the last batch."""
        return f"loss {self.loss.item():.4f}  mask overlap {self.overlap.item():.1%}"

    def save(self, path: str) -> None:
        """Write the weights."""
        net = self.net.module if isinstance(self.net, DistributedDataParallel) else self.net
        torch.save(net.state_dict(), path)


class SimulatedTraining:
    """Device time without any computing: see `whyidle.testing.SimulatedAccelerator`."""

    def __init__(self, seconds_per_image: float) -> None:
        from whyidle.testing import SimulatedAccelerator

        self.accelerator = SimulatedAccelerator()
        self.seconds_per_image = seconds_per_image
        self.last_mono_ns = time.monotonic_ns()
        self.last_busy_ns = 0

    def step(self, batch: list[Tensor]) -> None:
        """Keep the device busy for as long as the images of a batch take."""
        self.accelerator.launch(self.seconds_per_image * len(batch[0]))
        if distributed.is_initialized():
            distributed.barrier()  # as an exchange of gradients would

    def describe(self) -> str:
        """Give the part of the time since the last call in which the device was busy."""
        self.accelerator.synchronize()
        now_ns, busy_ns = time.monotonic_ns(), self.accelerator.busy_ns()
        ratio = (busy_ns - self.last_busy_ns) / (now_ns - self.last_mono_ns)
        self.last_mono_ns, self.last_busy_ns = now_ns, busy_ns
        return f"simulated device busy {ratio:4.0%}"

    def save(self, path: str) -> None:
        """Refuse: there is nothing to write."""
        raise SystemExit(f"nothing is written to {path}: a simulated device learns nothing")


class Progress:
    """Prints a line every so many steps, on rank 0 only."""

    def __init__(self, every: int, batch_size: int, rank: int, ranks: int) -> None:
        self.every = every
        self.images_per_step = batch_size * ranks
        self.speaks = rank == 0
        self.start = time.monotonic()

    def after_step(self, epoch: int, step: int, compute: Compute) -> None:
        """Say how it goes when it is time to."""
        if step % self.every:
            return
        result = compute.describe()
        now = time.monotonic()
        rate = self.every * self.images_per_step / (now - self.start)
        self.start = now
        if self.speaks:
            print(
                f"epoch {epoch}  step {step:5d}  {result}  {rate:.0f} images/s", flush=True
            )


def join_ranks(device_name: str) -> tuple[int, int]:
    """Meet the other processes of torchrun, if there are any; give rank and number of ranks."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    distributed.init_process_group("nccl" if device_name == "cuda" else "gloo")
    return distributed.get_rank(), distributed.get_world_size()


def make_compute(options: argparse.Namespace) -> Compute:
    """Choose what a step does by --device."""
    if options.device == "simulated":
        return SimulatedTraining(options.simulated_ms / 1e3)
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return Training(device, options.learning_rate)


def make_loader(options: argparse.Namespace, rank: int, ranks: int) -> DataLoader:
    """Make the loader of this rank's part of the data."""
    data = PolygonDataset(options.data, options.size, options.stage)
    if len(data) < options.batch_size * ranks:
        raise SystemExit(
            f"{options.data} holds {len(data)} images, too few for a batch of "
            f"{options.batch_size} on each of {ranks} ranks"
        )
    return DataLoader(
        data,
        batch_size=options.batch_size,
        sampler=DistributedSampler(data, ranks, rank, seed=options.seed, drop_last=True),
        num_workers=options.workers,
        pin_memory=options.device == "cuda",
        persistent_workers=options.workers > 0,
        drop_last=True,
    )


def batches_of(loader: DataLoader, epochs: int) -> Iterator[tuple[int, list[Tensor]]]:
    """Go through the data so many times; give the epoch, from 1, with each batch."""
    for epoch in range(1, epochs + 1):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            yield epoch, batch


def train(options: argparse.Namespace, rank: int, ranks: int) -> None:
    """Train until the epochs or the steps are used up."""
    torch.manual_seed(options.seed)
    compute = make_compute(options)
    # Ranks start with the same weights, then each draws its own augmentations.
    torch.manual_seed(options.seed * 1000 + rank)
    loader = make_loader(options, rank, ranks)
    progress = Progress(options.log_every, options.batch_size, rank, ranks)
    step = 0
    for step, (epoch, batch) in enumerate(batches_of(loader, options.epochs), start=1):
        compute.step(batch)
        progress.after_step(epoch, step, compute)
        if step == options.steps:
            break
    if rank == 0:
        print(f"done after {step} steps", flush=True)
        if options.save:
            compute.save(options.save)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder with images and labelme annotations")
    parser.add_argument("--stage", choices=sorted(STAGES), default="baseline")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda", "simulated"), default="auto"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="end after so many steps")
    parser.add_argument("--batch-size", type=int, default=16, help="on each rank")
    parser.add_argument(
        "--workers", type=int, default=2, help="loader processes of each rank"
    )
    parser.add_argument("--size", type=int, default=224, help="images are resized to it")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=20, help="steps between lines")
    parser.add_argument(
        "--simulated-ms", type=float, default=1.5, help="simulated device time of an image"
    )
    parser.add_argument("--save", help="file for the weights")
    options = parser.parse_args()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    return options


def main() -> None:
    """Train."""
    options = parse_options()
    rank, ranks = join_ranks(options.device)
    try:
        train(options, rank, ranks)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
