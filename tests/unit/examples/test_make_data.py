"""The generator of images and annotations."""

from __future__ import annotations

import json

import make_data
import numpy as np
import pytest
from PIL import Image


def contents(folder):
    """Read a whole folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def make(folder, *, count=2, seed=0, suffix=".jpg", processes=1):
    """Make data and read it back."""
    make_data.make_data(
        folder, count, size=64, seed=seed, suffix=suffix, processes=processes
    )
    return contents(folder)


def test_data_is_the_same_whatever_the_processes_and_count(tmp_path):
    """An image depends on the seed and its number alone."""
    few = make(tmp_path / "few", count=2, processes=1)
    many = make(tmp_path / "many", count=40, processes=2)
    other = make(tmp_path / "other", count=2, seed=1)

    assert len(many) == 80
    assert few.items() <= many.items()
    assert few["000000.json"] != other["000000.json"]


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_annotation_has_the_keys_that_labelme_writes(tmp_path, suffix):
    """A file of ours can be opened by labelme."""
    make(tmp_path, count=1, suffix=suffix)

    annotation = json.loads((tmp_path / "000000.json").read_text())

    assert list(annotation) == [
        "version",
        "flags",
        "shapes",
        "imagePath",
        "imageData",
        "imageHeight",
        "imageWidth",
    ]
    assert annotation["imageData"] is None
    for shape in annotation["shapes"]:
        assert set(shape) == {"label", "points", "group_id", "shape_type", "flags"}
    with Image.open(tmp_path / annotation["imagePath"]) as image:
        assert image.size == (annotation["imageWidth"], annotation["imageHeight"])


def test_outlines_stay_within_the_image():
    """No blob is cut off, so that outlines and pixels tell the same."""
    for seed in range(50):
        outline = make_data.make_blob(64, np.random.default_rng(seed))
        assert outline.min() >= 0
        assert outline.max() <= 63
