"""Augmentations that move or change an image, its mask and its outline points together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

MAX_SHIFT_RATIO = 0.1
MAX_ANGLE_DEGREES = 30.0
MAX_NOISE = 12.0
MAX_HUE_SHIFT = 20
SHADOW_STRENGTH = (0.3, 0.6)
PROBABILITY = 0.5


class Sample(NamedTuple):
    """One image and what is drawn on it."""

    image: np.ndarray
    """(height, width, 3) uint8."""
    mask: np.ndarray
    """(height, width) uint8: 1 inside of a shape, 0 elsewhere."""
    points: np.ndarray
    """(n, 1, 2) float32: points along all outlines, x and y in pixels from the upper left corner."""


def flip(sample: Sample) -> Sample:
    """Mirror left and right."""
    points = sample.points.copy()
    points[..., 0] = sample.image.shape[1] - points[..., 0]
    return Sample(sample.image[:, ::-1], sample.mask[:, ::-1], points)


def translate(sample: Sample, dx: int, dy: int) -> Sample:
    """Move by whole pixels to the right and down; what comes in is black."""
    matrix = (1, 0, -dx, 0, 1, -dy)
    height, width = sample.mask.shape
    image = Image.fromarray(sample.image).transform(
        (width, height), Image.Transform.AFFINE, matrix
    )
    mask = Image.fromarray(sample.mask).transform(
        (width, height), Image.Transform.AFFINE, matrix
    )
    points = sample.points + np.array([dx, dy], dtype=np.float32)
    return Sample(np.asarray(image), np.asarray(mask), points)


def rotate(sample: Sample, degrees: float) -> Sample:
    """Turn counter-clockwise about the centre."""
    image = Image.fromarray(sample.image).rotate(degrees, Image.Resampling.BILINEAR)
    mask = Image.fromarray(sample.mask).rotate(degrees, Image.Resampling.NEAREST)
    height, width = sample.mask.shape
    centre = np.array([width / 2, height / 2])
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    # The y axis points down, so this matrix turns counter-clockwise on the screen.
    turn = np.array([[cos, sin], [-sin, cos]])
    points = (sample.points - centre) @ turn.T + centre
    return Sample(np.asarray(image), np.asarray(mask), points.astype(np.float32))


def add_noise(sample: Sample, sigma: float, rng: np.random.Generator) -> Sample:
    """Add gaussian noise to every channel of every pixel."""
    noisy = sample.image + rng.normal(0.0, sigma, sample.image.shape)
    return sample._replace(image=np.clip(noisy, 0, 255).astype(np.uint8))


def shift_hue(sample: Sample, shift: int) -> Sample:
    """Turn all colours on the colour circle, 256 being a full turn."""
    hue, saturation, value = Image.fromarray(sample.image).convert("HSV").split()
    hue = hue.point([(level + shift) % 256 for level in range(256)])
    image = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
    return sample._replace(image=np.asarray(image))


def cast_shadow(sample: Sample, corners: np.ndarray, strength: float) -> Sample:
    """Darken the part of the image within a polygon."""
    height, width = sample.mask.shape
    shadow = Image.new("L", (width, height))
    ImageDraw.Draw(shadow).polygon([tuple(corner) for corner in corners], fill=1)
    light = 1.0 - strength * np.asarray(shadow)[..., None]
    return sample._replace(image=(sample.image * light).astype(np.uint8))


def augment(sample: Sample, rng: np.random.Generator) -> Sample:
    """Apply each augmentation with an even chance, in a fixed order."""
    height, width = sample.mask.shape
    if rng.random() < PROBABILITY:
        sample = flip(sample)
    if rng.random() < PROBABILITY:
        reach_x, reach_y = int(width * MAX_SHIFT_RATIO), int(height * MAX_SHIFT_RATIO)
        dx, dy = rng.integers(-reach_x, reach_x + 1), rng.integers(-reach_y, reach_y + 1)
        sample = translate(sample, int(dx), int(dy))
    if rng.random() < PROBABILITY:
        sample = rotate(sample, rng.uniform(-MAX_ANGLE_DEGREES, MAX_ANGLE_DEGREES))
    if rng.random() < PROBABILITY:
        sample = add_noise(sample, rng.uniform(0.0, MAX_NOISE), rng)
    if rng.random() < PROBABILITY:
        sample = shift_hue(sample, int(rng.integers(-MAX_HUE_SHIFT, MAX_HUE_SHIFT + 1)))
    if rng.random() < PROBABILITY:
        corners = rng.uniform((0, 0), (width, height), size=(4, 2))
        sample = cast_shadow(sample, corners, rng.uniform(*SHADOW_STRENGTH))
    return sample
