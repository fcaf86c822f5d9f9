"""What the tests of the loader share: an interpreter with torch, and reading a loader's records.

`scripts/compat-matrix` names interpreters with other versions of torch in WHYIDLE_TEST_PYTHON.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from tests.agent.conftest import Target
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agent.decoding import Decoded, Record

PYTHON = os.environ.get("WHYIDLE_TEST_PYTHON") or sys.executable
"""The interpreter of the targets; it has torch."""

DATA = """
import itertools, os, pickle, sys, time, warnings
import torch
from torch.utils.data import (
    ConcatDataset, DataLoader, Dataset, IterableDataset, Sampler, Subset, get_worker_info,
)

class Numbers(Dataset):
    def __init__(self, length): self.length = length
    def __len__(self): return self.length
    def __getitem__(self, index): return torch.full((3,), float(index)), index

class Stream(IterableDataset):
    def __init__(self, *lengths): self.lengths = lengths
    def __iter__(self):
        info = get_worker_info()
        number = info.id if info is not None else 0
        for value in range(self.lengths[number]):
            yield torch.tensor([float(value)])
"""
"""Imports and data sets of most scripts."""


class Observed(NamedTuple):
    """A script that ran under the agent, and what was recorded of it."""

    script: str
    output: str
    main: Decoded
    workers: list[Decoded]

    def iterations(self, label: str) -> list[Record]:
        """LOADER records of the loop in the line that ends with `# label`, in order."""
        line = line_of(self.script, label)
        places = {
            place.ref for place in self.main.of(wire.LOADER_PLACE) if place.t1 == line
        }
        return [one for one in self.main.of(wire.LOADER) if one.ref in places]

    def of_iteration(self, kind: int, label: str, turn: int = 0) -> list[Record]:
        """Records of a main process' kind for one iteration of a loop."""
        number = self.iterations(label)[turn].ref
        return [record for record in self.main.of(kind) if record.ref == number]

    def worker_of(self, pid: int) -> Decoded:
        """Journal of a worker."""
        (journal,) = (one for one in self.workers if one.header["pid"] == pid)
        return journal

    def made_by_workers(
        self, kind: int, label: str, turn: int = 0
    ) -> dict[int, list[Record]]:
        """Records of the workers of one iteration, by worker id."""
        made = {}
        for worker in self.of_iteration(wire.WORKER, label, turn):
            journal = self.worker_of(worker.b)
            made[worker.a] = [one for one in journal.of(kind) if one.ref == worker.c]
        return made

    def notes(self) -> list[str]:
        """Everything that the agent said about itself."""
        return [
            f"{one.texts[note.ref]}: {one.texts[note.a]}"
            for one in (self.main, *self.workers)
            for note in one.of(wire.NOTE)
        ]


def line_of(script: str, label: str) -> int:
    """Number of the line that ends with `# label`."""
    (line,) = (
        number
        for number, text in enumerate(script.splitlines(), 1)
        if text.endswith(f"# {label}")
    )
    return line


def observe(folder: Path, code: str, **extra: str) -> Observed:
    """Run a script with torch under the agent to its end."""
    target = Target(PYTHON, folder)
    script = DATA + textwrap.dedent(code)
    done = target.run(script, **extra)
    assert done.returncode == 0, done.stderr
    main, *workers = target.journals()
    main_pid = [one for one in (main, *workers) if not one.of(wire.WORKER_START)]
    workers = [one for one in (main, *workers) if one.of(wire.WORKER_START)]
    (main,) = main_pid
    return Observed(script, done.stdout, main, workers)


def torch_version(observed: Observed) -> tuple[int, ...]:
    """Major and minor version of the target's torch."""
    return tuple(int(part) for part in observed.main.header["torch"].split(".")[:2])
