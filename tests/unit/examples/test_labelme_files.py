"""Annotation files in all the forms that labelme writes."""

from __future__ import annotations

import base64
import io

import labelme_files
import numpy as np
import pytest
from PIL import Image

SQUARE = np.array([[2, 3], [9, 3], [9, 7], [2, 7]], dtype=np.float32)


def shape(kind, points):
    """Describe a shape as labelme does."""
    return {
        "label": "a",
        "points": points,
        "shape_type": kind,
        "group_id": None,
        "flags": {},
    }


def test_mask_of_a_polygon_covers_its_pixels():
    """A polygon becomes ones on its inside and its outline, zeros elsewhere."""
    mask = labelme_files.draw_mask([SQUARE], 10, 12)

    wanted = np.zeros((10, 12), dtype=np.uint8)
    wanted[3:8, 2:10] = 1
    assert np.array_equal(mask, wanted)


def test_mask_of_no_shapes_is_empty():
    """An image without shapes has a mask of zeros."""
    assert not labelme_files.draw_mask([], 4, 6).any()


def test_rectangle_has_the_corners_of_its_diagonal():
    """Two opposite corners make the same outline as a polygon of four, in either order."""
    outline = labelme_files.outline_of(shape("rectangle", [[2, 3], [9, 7]]))
    reverse = labelme_files.outline_of(shape("rectangle", [[9, 7], [2, 3]]))

    assert np.array_equal(outline, SQUARE)
    assert {tuple(corner) for corner in reverse} == {tuple(corner) for corner in SQUARE}


def test_circle_runs_through_its_second_point():
    """A circle is given by its centre and a point on its rim."""
    outline = labelme_files.outline_of(shape("circle", [[10, 20], [13, 24]]))

    distances = np.hypot(*(outline - [10, 20]).T)
    assert np.allclose(distances, 5.0)
    assert np.allclose(outline.mean(axis=0), [10, 20], atol=1e-4)


def test_shape_without_a_type_is_a_polygon():
    """Old versions of labelme wrote polygons only, without saying so."""
    old = {"label": "a", "points": SQUARE.tolist(), "line_color": None, "fill_color": None}

    (outline,) = labelme_files.read_polygons({"shapes": [old]})

    assert np.array_equal(outline, SQUARE)


def test_shapes_without_area_are_left_out():
    """Points and lines have no inside to learn."""
    shapes = [shape("line", [[0, 0], [5, 5]]), shape("point", [[1, 1]])]

    assert labelme_files.read_polygons({"shapes": shapes}) == []


def test_unknown_shape_is_named_in_the_error():
    """A shape that cannot be drawn is refused, not dropped from the mask in silence."""
    with pytest.raises(ValueError, match="'mask'"):
        labelme_files.read_polygons({"shapes": [shape("mask", [[0, 0], [5, 5]])]})


def test_outline_is_walked_in_steps_of_a_pixel():
    """Points along an outline are one pixel apart and go once around."""
    points = labelme_files.walk_outline(SQUARE)

    assert points.shape == (22, 1, 2)
    assert points.dtype == np.float32
    assert np.allclose(np.hypot(*np.diff(points[:, 0], axis=0).T), 1.0)
    assert np.array_equal(points[0, 0], SQUARE[0])


def test_embedded_image_wins_over_the_path():
    """The image within the file is taken when there is one."""
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2), (10, 20, 30)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()

    image = labelme_files.read_image(
        {"imageData": data, "imagePath": "gone.png"}, folder=None
    )

    assert image.size == (3, 2)
    assert image.getpixel((0, 0)) == (10, 20, 30)


def test_path_with_backslashes_is_found(tmp_path):
    """A path written on Windows is relative to the annotation file like any other."""
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    Image.new("L", (3, 2), 77).save(tmp_path / "images" / "a.png")
    annotation = {"imageData": None, "imagePath": "..\\images\\a.png"}

    image = labelme_files.read_image(annotation, tmp_path / "labels")

    assert image.getpixel((2, 1)) == (77, 77, 77)


def test_image_is_turned_as_its_camera_asks(tmp_path):
    """Points belong to the image as labelme shows it, which is turned by its EXIF orientation."""
    image = Image.new("RGB", (4, 2))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter to be upright
    image.save(tmp_path / "a.jpg", exif=exif)

    upright = labelme_files.read_image({"imagePath": "a.jpg"}, tmp_path)

    assert upright.size == (2, 4)
