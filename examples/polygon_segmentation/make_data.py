"""Make images of coloured blobs, each with a polygon annotation file as labelme writes it.

    python make_data.py data --count 2000

Image number i is the same for the same seed, whatever the count and the number of processes.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

LABELME_VERSION = "5.4.1"
BLOBS = (5, 9)
RADIUS_RATIO = (0.05, 0.11)
"""Mean radius of a blob, as part of the image's size."""
VERTICES = (18, 40)
BACKGROUND_CELLS = 8


def draw_background(size: int, rng: np.random.Generator) -> Image.Image:
    """Make a soft texture with some grain."""
    cells = rng.integers(60, 200, (BACKGROUND_CELLS, BACKGROUND_CELLS, 3), dtype=np.uint8)
    soft = Image.fromarray(cells).resize((size, size), Image.Resampling.BICUBIC)
    grain = rng.integers(-12, 13, (size, size, 1))
    return Image.fromarray(np.clip(np.asarray(soft) + grain, 0, 255).astype(np.uint8))


def make_blob(size: int, rng: np.random.Generator) -> np.ndarray:
    """Make a closed, wavy outline that lies within the image, (vertices, 2)."""
    radius = rng.uniform(*RADIUS_RATIO) * size
    angles = np.linspace(
        0, 2 * np.pi, rng.integers(*VERTICES, endpoint=True), endpoint=False
    )
    waves = sum(
        rng.uniform(0, 0.3 / k) * np.sin(k * angles + rng.uniform(0, 2 * np.pi))
        for k in (2, 3, 5)
    )
    rim = radius * (1 + waves)
    centre = rng.uniform(1.5 * radius, size - 1.5 * radius, 2)
    outline = centre + rim[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.clip(outline, 0, size - 1)


def annotate(polygons: list[np.ndarray], image_name: str, size: int) -> dict:
    """Describe the outlines as labelme does."""
    shapes = [
        {
            "label": "blob",
            "points": polygon.round(2).tolist(),
            "group_id": None,
            "shape_type": "polygon",
            "flags": {},
        }
        for polygon in polygons
    ]
    return {
        "version": LABELME_VERSION,
        "flags": {},
        "shapes": shapes,
        "imagePath": image_name,
        "imageData": None,
        "imageHeight": size,
        "imageWidth": size,
    }


def make_pair(number: int, folder: Path, size: int, seed: int, suffix: str) -> None:
    """Write one image and its annotation."""
    rng = np.random.default_rng([seed, number])
    image = draw_background(size, rng)
    draw = ImageDraw.Draw(image)
    polygons = [make_blob(size, rng) for _ in range(rng.integers(*BLOBS, endpoint=True))]
    for polygon in polygons:
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        draw.polygon([tuple(vertex) for vertex in polygon], fill=colour)
    name = f"{number:06d}{suffix}"
    image.save(folder / name)
    annotation = annotate(polygons, name, size)
    text = json.dumps(annotation, indent=2, ensure_ascii=False)
    (folder / f"{number:06d}.json").write_text(text, encoding="utf-8")


def make_data(
    folder: Path, count: int, *, size: int, seed: int, suffix: str, processes: int
) -> None:
    """Write images and annotations 0 to count - 1 into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    make = partial(make_pair, folder=folder, size=size, seed=seed, suffix=suffix)
    with ProcessPoolExecutor(processes) as pool:
        for _ in pool.map(make, range(count), chunksize=32):
            pass


def main() -> None:
    """Read the command line and make the data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2000, help="number of images")
    parser.add_argument("--size", type=int, default=224, help="width and height in pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=("jpg", "png"), default="jpg")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    make_data(
        options.folder,
        options.count,
        size=options.size,
        seed=options.seed,
        suffix=f".{options.format}",
        processes=options.processes,
    )
    print(f"{options.count} images with annotations in {options.folder}")


if __name__ == "__main__":
    main()
