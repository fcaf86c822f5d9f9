"""The training script as a person runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import make_data
import pytest
import torch
from model import SegmentationNet, loss_of, overlap_of

from tests.unit.examples.conftest import EXAMPLE

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixteen images of 64 pixels with annotations."""
    path = tmp_path_factory.mktemp("data")
    for number in range(16):
        make_data.make_pair(number, path, 64, 0, ".jpg")
    return path


def train(folder, *options, launcher=()):
    """Run the script on small images; give how it ended and what it printed."""
    defaults = ("--size", "64", "--batch-size", "4", "--log-every", "1")
    command = [sys.executable, *launcher, EXAMPLE / "train.py", folder, *defaults, *options]
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def lines_without_rates(output):
    """Give step and result of each line, without the speed."""
    return re.findall(r"step +(\d+)  (.*?)  [\d.]+ images/s", output)


def test_network_predicts_at_the_size_of_its_targets():
    """The mask is as large as the image, the maps are a quarter of it."""
    mask, heat, offset = SegmentationNet(width=4)(torch.zeros(2, 3, 32, 48))

    assert mask.shape == (2, 1, 32, 48)
    assert heat.shape == (2, 1, 8, 12)
    assert offset.shape == (2, 2, 8, 12)


def test_loss_is_small_for_a_right_answer():
    """Confident and right costs next to nothing, confident and wrong costs much."""
    mask = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2)
    offset = torch.full((1, 2, 1, 2), 0.5)
    logits = (mask - 0.5) * 40

    right = loss_of((logits, logits, torch.zeros(1, 2, 1, 2)), (mask, mask, offset))
    wrong = loss_of((-logits, -logits, torch.zeros(1, 2, 1, 2)), (mask, mask, offset))

    assert right.item() < 0.01
    assert wrong.item() > 30


def test_overlap_counts_common_pixels():
    """Intersection over union: one of three pixels in both."""
    found = torch.tensor([1.0, 1.0, -1.0, -1.0])
    true = torch.tensor([1.0, 0.0, 1.0, 0.0])

    assert overlap_of(found, true).item() == pytest.approx(1 / 3)


@pytest.mark.slow
def test_training_repeats_with_the_same_seed(folder):
    """Two runs with one seed print the same losses, and they are finite."""
    options = ("--device", "cpu", "--steps", "3", "--workers", "1", "--seed", "7")

    first, second = (train(folder, *options) for _ in range(2))

    assert first.returncode == 0, first.stderr
    assert len(lines_without_rates(first.stdout)) == 3
    assert lines_without_rates(first.stdout) == lines_without_rates(second.stdout)
    assert "nan" not in first.stdout


@pytest.mark.slow
def test_training_on_two_ranks_takes_its_steps(folder):
    """Started by torchrun with two ranks on a CPU it trains; only the first rank speaks."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

    result = train(
        folder, "--device", "cpu", "--steps", "3", "--workers", "1", launcher=launcher
    )

    assert result.returncode == 0, result.stderr
    assert [step for step, _ in lines_without_rates(result.stdout)] == ["1", "2", "3"]
    assert result.stdout.count("done after 3 steps") == 1


@pytest.mark.slow
def test_simulated_training_says_what_it_is(folder):
    """Without a device nothing is learnt, and no line pretends it was."""
    result = train(folder, "--device", "simulated", "--steps", "2", "--workers", "0")

    assert result.returncode == 0, result.stderr
    assert result.stdout.count("simulated device busy") == 2
    assert "loss" not in result.stdout


@pytest.mark.slow
def test_training_with_too_few_images_says_so(folder):
    """A batch that cannot be filled is an error in words, not an endless empty training."""
    result = train(folder, "--device", "cpu", "--batch-size", "17", "--workers", "0")

    assert result.returncode == 1
    assert "16 images, too few" in result.stderr
