"""What the network learns to predict along outlines: where they run, and where exactly within a cell."""

from __future__ import annotations

import numpy as np

STRIDE = 4
"""Pixels of the image in a cell of the maps, in each direction."""
KERNEL = np.array(
    [[0.37, 0.61, 0.37], [0.61, 1.0, 0.61], [0.37, 0.61, 0.37]], dtype=np.float32
)
"""A gaussian with a standard deviation of one cell, cut off behind the next cell."""


def outline_maps(
    points: np.ndarray, height: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw outline points into a heat map and an offset map.

    Args:
        points: (n, 1, 2) x and y in pixels; points outside of the image are left out.
        height: Of the image, in pixels.
        width: Of the image, in pixels.

    Returns:
        The heat map, (height / STRIDE, width / STRIDE): 1 in cells with an outline point, less in the
        cells around them, 0 elsewhere. The offset map, (2, height / STRIDE, width / STRIDE): x and y of
        the outline point from the corner of its cell, in cells; of the last point where there are several.
    """
    rows, columns = height // STRIDE, width // STRIDE
    heat = np.zeros((rows, columns), dtype=np.float32)
    offset = np.zeros((2, rows, columns), dtype=np.float32)
    for i in range(len(points)):
        x, y = points[i, 0] / STRIDE
        if not (0 <= x < columns and 0 <= y < rows):
            continue
        column, row = int(x), int(y)
        offset[0, row, column] = x - column
        offset[1, row, column] = y - row
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                r, c = row + dy, column + dx
                value = KERNEL[dy + 1, dx + 1]
                if 0 <= r < rows and 0 <= c < columns and heat[r, c] < value:
                    heat[r, c] = value
    return heat, offset
