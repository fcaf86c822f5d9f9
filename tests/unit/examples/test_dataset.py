"""Training samples from folders of annotations."""

from __future__ import annotations

import json

import dataset
import make_data
import numpy as np
import profile_dataset
import pytest
import torch
from PIL import Image

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three images of 64 pixels with annotations."""
    path = tmp_path_factory.mktemp("data")
    for number in range(3):
        make_data.make_pair(number, path, 64, 0, ".png")
    return path


def test_sample_has_the_shapes_that_the_network_wants(folder):
    """Image, mask, heat map and offset map are float32 tensors of fixed size."""
    image, mask, heat, offset = dataset.PolygonDataset(folder, 32)[0]

    assert image.shape == (3, 32, 32)
    assert mask.shape == (1, 32, 32)
    assert heat.shape == (1, 8, 8)
    assert offset.shape == (2, 8, 8)
    assert {tensor.dtype for tensor in (image, mask, heat, offset)} == {torch.float32}
    assert image.min() >= 0.0
    assert image.max() <= 1.0
    assert set(mask.unique().tolist()) <= {0.0, 1.0}


def test_sample_repeats_with_torchs_seed(folder):
    """Augmentations follow torch's random numbers, which a DataLoader seeds in each worker."""
    data = dataset.PolygonDataset(folder, 64)

    torch.manual_seed(3)
    first = data[1]
    torch.manual_seed(3)
    second = data[1]

    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_outline_is_scaled_with_its_image(folder):
    """Reading at half the size halves the coordinates of the outlines as well."""
    data = dataset.PolygonDataset(folder, 64)
    half = dataset.PolygonDataset(folder, 32)

    whole_points = data.read(data.paths[0]).points
    half_points = half.read(half.paths[0]).points

    assert np.allclose(half_points.max(axis=0) * 2, whole_points.max(axis=0), atol=1.5)
    assert np.allclose(half_points[0] * 2, whole_points[0], atol=1e-3)


def test_image_that_is_not_square_is_read_with_its_shapes(tmp_path):
    """Both directions are scaled by themselves."""
    Image.new("RGB", (80, 20)).save(tmp_path / "wide.png")
    corners = [[40, 0], [80, 0], [80, 20], [40, 20]]
    shape = {"label": "a", "points": corners, "shape_type": "polygon"}
    annotation = {"shapes": [shape], "imagePath": "wide.png", "imageData": None}
    (tmp_path / "wide.json").write_text(json.dumps(annotation))
    data = dataset.PolygonDataset(tmp_path, 40)

    mask = data.read(data.paths[0]).mask

    assert mask[:, 20:].all()
    assert not mask[:, :20].any()


def test_image_without_shapes_is_a_sample_too(tmp_path):
    """Nothing drawn: an empty mask and empty maps."""
    Image.new("RGB", (16, 16)).save(tmp_path / "empty.png")
    annotation = {"shapes": [], "imagePath": "empty.png", "imageData": None}
    (tmp_path / "empty.json").write_text(json.dumps(annotation))

    _, mask, heat, offset = dataset.PolygonDataset(tmp_path, 16)[0]

    assert not mask.any()
    assert not heat.any()
    assert not offset.any()


def test_empty_folder_is_named_in_the_error(tmp_path):
    """A wrong path is said to be wrong before the training starts."""
    with pytest.raises(FileNotFoundError, match=r"no annotation file"):
        dataset.PolygonDataset(tmp_path, 16)


def test_profile_shares_add_up(folder):
    """The profile's shares are of the whole time of the samples."""
    data = dataset.PolygonDataset(folder, 64)

    shares = profile_dataset.read_shares(profile_dataset.profile_samples(data, 3), data)

    assert sum(shares.values()) == pytest.approx(1.0)
    assert min(shares.values()) >= 0.0


@pytest.mark.slow
def test_profile_tells_the_story(tmp_path):
    """At the example's own size, the map loop and the augmentations take about two fifths each."""
    for number in range(60):
        make_data.make_pair(number, tmp_path, 224, 0, ".jpg")
    data = dataset.PolygonDataset(tmp_path, 224)
    torch.manual_seed(0)

    shares = profile_dataset.read_shares(profile_dataset.profile_samples(data, 120), data)

    assert 0.33 < shares["heat and offset maps"] < 0.52
    assert 0.28 < shares["augment"] < 0.48
