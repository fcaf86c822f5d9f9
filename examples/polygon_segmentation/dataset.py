"""Images with polygon annotations from a folder of labelme files, as training samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from augment import Sample, augment
from labelme_files import (
    draw_mask,
    read_annotation,
    read_image,
    read_polygons,
    walk_outline,
)
from targets import outline_maps
from torch.utils.data import Dataset

Augment = Callable[[Sample, np.random.Generator], Sample]
MakeMaps = Callable[[np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]

STAGES: dict[str, tuple[Augment, MakeMaps]] = {"baseline": (augment, outline_maps)}
"""What is done to a sample after reading it, by the name of `train.py --stage`."""


class PolygonDataset(Dataset):
    """Training samples from a folder of labelme annotations.

    A sample is an image (3, size, size), a mask (1, size, size), a heat map (1, cells, cells) and an
    offset map (2, cells, cells), all float32. Augmentations are drawn from torch's random numbers, which the
    DataLoader seeds in each worker.

    Args:
        folder: Searched for annotation files, subfolders included.
        size: Images are resized to squares of so many pixels.
        stage: A key of STAGES.
    """

    def __init__(self, folder: str | Path, size: int, stage: str = "baseline") -> None:
        """List the annotation files."""
        self.paths = sorted(Path(folder).rglob("*.json"))
        if not self.paths:
            raise FileNotFoundError(
                f"there is no annotation file (*.json) in {str(folder)!r}"
            )
        self.size = size
        self.augment, self.make_maps = STAGES[stage]

    def __len__(self) -> int:
        """Count the images."""
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        """Read one image with its annotation and make a training sample of it."""
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        sample = self.augment(self.read(self.paths[index]), rng)
        heat, offset = self.make_maps(sample.points, self.size, self.size)
        image = np.transpose(sample.image, (2, 0, 1)).astype(np.float32) / 255.0
        return (
            torch.from_numpy(image),
            torch.from_numpy(sample.mask.astype(np.float32)[None]),
            torch.from_numpy(heat[None]),
            torch.from_numpy(offset),
        )

    def read(self, path: Path) -> Sample:
        """Read one annotation file and its image, both at the size of the network's input."""
        annotation = read_annotation(path)
        image = read_image(annotation, path.parent)
        scale = np.array(
            [self.size / image.width, self.size / image.height], dtype=np.float32
        )
        if image.size != (self.size, self.size):
            image = image.resize((self.size, self.size))
        polygons = [polygon * scale for polygon in read_polygons(annotation)]
        mask = draw_mask(polygons, self.size, self.size)
        outlines = [walk_outline(polygon) for polygon in polygons]
        points = np.concatenate(outlines) if outlines else np.zeros((0, 1, 2), np.float32)
        return Sample(np.asarray(image), mask, points)
