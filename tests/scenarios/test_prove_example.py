"""The story's own change, end to end: the map loop is captured, and a vectorised one is proved equal and faster."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.agent.launching import launcher_environment
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.scenario, pytest.mark.slow, pytest.mark.torch]

EXAMPLE = REPOSITORY / "examples" / "polygon_segmentation"
FAST = '''
import numpy as np
from targets import KERNEL, STRIDE


def outline_maps(points, height, width):
    rows, columns = height // STRIDE, width // STRIDE
    places = points[:, 0] / STRIDE
    inside = (places >= 0).all(axis=1) & (places[:, 0] < columns) & (places[:, 1] < rows)
    places = places[inside]
    column, row = places.astype(int).T
    offset = np.zeros((2, rows, columns), dtype=np.float32)
    # Of several points in a cell the last one counts: a later assignment wins.
    offset[0, row, column] = places[:, 0] - column
    offset[1, row, column] = places[:, 1] - row
    heat = np.zeros((rows + 2, columns + 2), dtype=np.float32)
    for dy in range(3):
        for dx in range(3):
            np.maximum.at(heat, (row + dy, column + dx), KERNEL[dy, dx])
    return heat[1:-1, 1:-1].copy(), offset


def careless(points, height, width):
    """Forgets the points outside of the image that come back on its other side."""
    heat, offset = outline_maps(points, height, width)
    return np.roll(heat, 1, axis=1), offset
'''


def whyidle(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "whyidle", *words],
        cwd=folder,
        env=launcher_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example, and in it a run of which the map loop's calls were kept."""
    folder = tmp_path_factory.mktemp("story") / "segmentation"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "fast.py").write_text(FAST)
    make = [sys.executable, "make_data.py", "data", "--count", "160"]
    subprocess.run(make, cwd=folder, check=True, capture_output=True)
    train = [sys.executable, "train.py", "data", "--device", "simulated", "--epochs", "100"]
    done = whyidle(
        folder, "run", "--steps", "80", "--capture", "targets.py:outline_maps", "--", *train
    )
    assert done.returncode == 0, done.stderr
    assert "calls kept" in done.stderr
    return folder


def test_vectorised_loop_is_proved(captured: Path) -> None:
    """Equal on everything that the workers gave it, several times as fast, and the training gains from it."""
    done = whyidle(
        captured, "prove", "--json", "--seconds", "5",
        "whyidle-runs", "targets.py:outline_maps", "fast.py:outline_maps",
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    proof = json.loads(done.stdout)
    assert proof["capture"]["checked"] >= 100
    assert proof["timing"]["processes"] == 2
    assert proof["timing"]["low"] > 2
    forecast = proof["forecast"]
    if forecast is None:
        # Others on the machine: the replay misses, and the forecast says so.
        pytest.skip(proof["forecast_missing"])
    assert 1 < forecast["low"] <= forecast["speedup"] <= forecast["high"]


def test_careless_replacement_is_refuted(captured: Path) -> None:
    """The first difference is named with its cell, and nothing is measured."""
    done = whyidle(
        captured, "prove", "whyidle-runs", "targets.py:outline_maps", "fast.py:careless"
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "NEW is not equal to OLD" in done.stdout
    assert "result[0][" in done.stdout
    assert "rounds of both" not in done.stdout
