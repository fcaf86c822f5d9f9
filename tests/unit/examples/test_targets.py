"""The maps that are filled point by point."""

from __future__ import annotations

import numpy as np
import pytest
import targets


def at(*points):
    """Points in the form that outlines have."""
    return np.array(points, dtype=np.float32).reshape(-1, 1, 2)


def maps_in_closed_form(points, rows, columns):
    """The same maps by array operations: the largest kernel value of any point, the last offset of any cell."""
    x, y = points[:, 0, 0] / targets.STRIDE, points[:, 0, 1] / targets.STRIDE
    inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
    x, y = x[inside], y[inside]
    column, row = x.astype(int), y.astype(int)
    # A border of one cell takes the part of the kernel that sticks out.
    heat = np.zeros((rows + 2, columns + 2), dtype=np.float32)
    for (dy, dx), value in np.ndenumerate(targets.KERNEL):
        np.maximum.at(heat, (row + dy, column + dx), value)
    offset = np.zeros((2, rows, columns), dtype=np.float32)
    offset[0, row, column], offset[1, row, column] = x - column, y - row
    return heat[1:-1, 1:-1], offset


def test_maps_of_one_point():
    """A point is a gaussian around its cell, and its place within the cell."""
    heat, offset = targets.outline_maps(at((9, 6)), 16, 20)

    assert heat.shape == (4, 5)
    assert offset.shape == (2, 4, 5)
    assert heat[1, 2] == 1.0
    assert np.array_equal(heat[0:3, 1:4], targets.KERNEL)
    assert heat.sum() == pytest.approx(targets.KERNEL.sum())
    assert tuple(offset[:, 1, 2]) == (0.25, 0.5)
    assert np.count_nonzero(offset) == 2


def test_points_outside_are_left_out():
    """What an augmentation has moved out of the image leaves no trace."""
    heat, offset = targets.outline_maps(at((-0.5, 3), (3, -9), (20, 3), (3, 16)), 16, 20)

    assert not heat.any()
    assert not offset.any()


def test_last_point_of_a_cell_gives_its_offset():
    """Of several points in one cell the last one counts."""
    _, offset = targets.outline_maps(at((4, 4), (5, 6)), 16, 16)

    assert tuple(offset[:, 1, 1]) == (0.25, 0.5)


@pytest.mark.parametrize("count", [0, 1, 400])
def test_loop_equals_the_closed_form(count):
    """The loop gives exactly what array operations give, at borders and with repeated cells too."""
    points = np.random.default_rng(count).uniform(-6, 46, (count, 1, 2)).astype(np.float32)

    heat, offset = targets.outline_maps(points, 40, 32)

    wanted_heat, wanted_offset = maps_in_closed_form(points, 10, 8)
    assert np.array_equal(heat, wanted_heat)
    assert np.array_equal(offset, wanted_offset)
