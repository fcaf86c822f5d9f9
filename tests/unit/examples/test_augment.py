"""Augmentations: image, mask and points stay together."""

from __future__ import annotations

import augment
import labelme_files
import numpy as np
import pytest

SIZE = 64
BLOB = np.array([[10, 12], [26, 12], [26, 22], [10, 22]], dtype=np.float32)


@pytest.fixture
def sample():
    """A grey blob on black, its mask and its outline."""
    mask = labelme_files.draw_mask([BLOB], SIZE, SIZE)
    image = np.stack([mask * 200] * 3, axis=-1)
    return augment.Sample(image, mask, labelme_files.walk_outline(BLOB))


def centre_of(picture):
    """Centre of what is bright, in pixels from the corner: a pixel's own centre is at one half."""
    rows, columns = np.nonzero(picture)
    return np.array([columns.mean() + 0.5, rows.mean() + 0.5])


MOVES = {
    "flip": (augment.flip, [SIZE - 18.5, 17.5]),
    "translate": (lambda sample: augment.translate(sample, 5, -3), [23.5, 14.5]),
    "rotate": (lambda sample: augment.rotate(sample, 90.0), [17.5, SIZE - 18.5]),
    "rotate-back": (lambda sample: augment.rotate(sample, -90.0), [SIZE - 17.5, 18.5]),
    "rotate-a-little": (lambda sample: augment.rotate(sample, 20.0), None),
}


@pytest.mark.parametrize("name", MOVES)
def test_move_takes_image_mask_and_points_along(sample, name):
    """After a move the blob, its mask and its outline are at the same place, and it is the right one."""
    move, wanted = MOVES[name]

    moved = move(sample)

    mask_centre = centre_of(moved.mask)
    assert np.allclose(centre_of(moved.image[..., 0] > 100), mask_centre, atol=0.3)
    # Drawn outlines cover the pixels they touch, so a mask lies half a pixel to the lower right.
    assert np.allclose(moved.points[:, 0].mean(axis=0), mask_centre, atol=0.8)
    if wanted is not None:
        assert np.allclose(mask_centre, wanted, atol=0.1)


def test_moved_points_keep_their_form(sample):
    """Points stay (n, 1, 2) float32 whatever is done to them."""
    for move, _ in MOVES.values():
        points = move(sample).points
        assert points.shape == sample.points.shape
        assert points.dtype == np.float32


def test_flip_twice_changes_nothing(sample):
    """Mirroring is its own inverse."""
    again = augment.flip(augment.flip(sample))

    assert np.array_equal(again.image, sample.image)
    assert np.array_equal(again.points, sample.points)


def test_noise_changes_the_image_only(sample):
    """Noise has the strength that was asked for and leaves mask and points alone."""
    grey = sample._replace(image=np.full((SIZE, SIZE, 3), 128, dtype=np.uint8))

    noisy = augment.add_noise(grey, 8.0, np.random.default_rng(0))

    assert noisy.image.astype(float).std() == pytest.approx(8.0, rel=0.05)
    assert noisy.mask is grey.mask
    assert noisy.points is grey.points


def test_hue_turns_red_into_green(sample):
    """A third of the colour circle takes red to green; grey has no hue to turn."""
    image = np.zeros((2, 1, 3), dtype=np.uint8)
    image[0, 0] = (255, 0, 0)
    image[1, 0] = (90, 90, 90)

    turned = augment.shift_hue(sample._replace(image=image), 85).image

    assert np.allclose(turned[0, 0], (0, 255, 0), atol=6)
    assert np.array_equal(turned[1, 0], (90, 90, 90))


def test_shadow_darkens_inside_its_corners_only(sample):
    """A shadow takes its strength from the light within the polygon, and nothing outside of it."""
    bright = sample._replace(image=np.full((SIZE, SIZE, 3), 200, dtype=np.uint8))
    left_half = np.array([[0, 0], [31, 0], [31, 63], [0, 63]])

    image = augment.cast_shadow(bright, left_half, 0.5).image

    assert (image[:, :32] == 100).all()
    assert (image[:, 32:] == 200).all()


def test_augment_repeats_with_the_same_seed(sample):
    """All chance comes from the generator that is passed in."""
    first = augment.augment(sample, np.random.default_rng(5))
    second = augment.augment(sample, np.random.default_rng(5))
    other = augment.augment(sample, np.random.default_rng(6))

    assert np.array_equal(first.image, second.image)
    assert np.array_equal(first.points, second.points)
    assert not np.array_equal(first.image, other.image)
