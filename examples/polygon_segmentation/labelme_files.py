"""Read annotation files of labelme: an image and the shapes that were drawn on it."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps

CIRCLE_VERTICES = 64
WITHOUT_AREA = {"point", "points", "line", "linestrip"}


def read_image(annotation: dict, folder: Path) -> Image.Image:
    """Open the image of an annotation: embedded in it, or a file beside it."""
    if annotation.get("imageData"):
        source = io.BytesIO(base64.b64decode(annotation["imageData"]))
    else:
        # labelme on Windows writes backslashes.
        source = folder / annotation["imagePath"].replace("\\", "/")
    with Image.open(source) as image:
        # Points are drawn on the image as it is shown, so turn it as cameras ask for.
        return ImageOps.exif_transpose(image).convert("RGB")


def read_polygons(annotation: dict) -> list[np.ndarray]:
    """Give the outline of each shape that has an area, (vertices, 2) float32, in pixels."""
    drawn = [shape for shape in annotation["shapes"] if kind_of(shape) not in WITHOUT_AREA]
    return [outline_of(shape) for shape in drawn]


def kind_of(shape: dict) -> str:
    """Give the type of a shape; old versions of labelme drew polygons only and wrote no type."""
    return shape.get("shape_type") or "polygon"


def outline_of(shape: dict) -> np.ndarray:
    """Give the corners of one shape in order, (vertices, 2) float32."""
    points = np.array(shape["points"], dtype=np.float32)
    kind = kind_of(shape)
    if kind == "polygon":
        return points
    if kind == "rectangle":
        (left, top), (right, bottom) = points
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        return np.array(corners, dtype=np.float32)
    if kind == "circle":
        centre, rim = points
        angles = np.linspace(0, 2 * math.pi, CIRCLE_VERTICES, endpoint=False)
        ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return (centre + np.hypot(*(rim - centre)) * ring).astype(np.float32)
    raise ValueError(
        f"cannot read a shape of type {kind!r}; polygon, rectangle and circle are known"
    )


def draw_mask(polygons: list[np.ndarray], height: int, width: int) -> np.ndarray:
    """Fill polygons with 1 on a ground of 0, (height, width) uint8."""
    mask = Image.new("L", (width, height))
    draw = ImageDraw.Draw(mask)
    for polygon in polygons:
        draw.polygon([tuple(vertex) for vertex in polygon], outline=1, fill=1)
    return np.asarray(mask)


def walk_outline(polygon: np.ndarray) -> np.ndarray:
    """Give points along a closed outline, one pixel apart, (n, 1, 2) float32."""
    closed = np.concatenate([polygon, polygon[:1]])
    lengths = np.hypot(*np.diff(closed, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    stops = np.arange(0.0, along[-1], 1.0)
    x = np.interp(stops, along, closed[:, 0])
    y = np.interp(stops, along, closed[:, 1])
    return np.stack([x, y], axis=1)[:, None, :].astype(np.float32)


def read_annotation(path: Path) -> dict:
    """Read one annotation file."""
    with path.open(encoding="utf-8") as file:
        return json.load(file)
