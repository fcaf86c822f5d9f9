"""Bounds end a real loop in an orderly way."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.agent.launching import launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRAIN = """
import atexit, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 100000
    def __getitem__(self, index): time.sleep(0.002); return torch.zeros(2)
if __name__ == "__main__":
    atexit.register(lambda: print("atexit"))
    count = 0
    try:
        for batch in DataLoader(Data(), batch_size=4, num_workers=2):
            count += 1
            if count == 1: print("first", flush=True)
    finally:
        print("finally", count)
"""


@pytest.mark.parametrize(
    ("options", "ended_by"), [({"steps": 30}, "steps"), ({"seconds": 8}, "seconds")]
)
def test_bound_ends_the_loop_in_order(
    tmp_path: Path, options: dict[str, int], ended_by: str
) -> None:
    """The loop ends through `finally` and `atexit` with status 0, and no signal was needed."""
    done = launch(
        tmp_path / "run", sys.executable, "-c", TRAIN, options=json.dumps(options)
    )

    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    first, last, at_exit = done.stdout.split("\n")[:3]
    assert (done.returncode, first, at_exit) == (0, "first", "atexit")
    assert last.startswith("finally ")
    slugs = {one["slug"] for one in manifest["not_observed"]}
    assert (manifest["ended_by"], slugs - {"observer-late"}) == (ended_by, set())
    if ended_by == "steps":
        assert last == "finally 30"
