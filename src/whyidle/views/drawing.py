"""Bars, and text that fits: in blocks or in ASCII, counted in terminal cells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What could move the cursor, change colours or turn the direction of writing: it may come from a file's name."""
_PLAIN = str.maketrans(
    {"µ": "u", "×": "x", "·": "-", "…": "..", "–": "-", "—": "-", "→": "->"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters of a screen; each fits one cell."""

    levels: str
    """Idle ratio over time, from none to all."""
    eighths: str
    """Ends of a bar, from one part of a cell to a whole one; ASCII has only whole ones."""
    split: str
    """Parts of a worker's time: on a CPU, waiting for one, blocked, idle. Distinct without colour."""
    margin: str
    """In front of the verdict."""
    bullet: str
    """In front of a piece of evidence."""
    ellipsis: str
    """In place of what was cut out."""
    ascii_only: bool
    """Whether text has to be turned into ASCII too."""


BLOCKS = Glyphs(
    levels="▁▂▃▄▅▆▇█",
    eighths="▏▎▍▌▋▊▉█",
    split="█▓░·",
    margin="▌",
    bullet="·",
    ellipsis="…",
    ascii_only=False,
)
ASCII = Glyphs(
    levels="_.:-=+*#",
    eighths="#",
    split="#=-.",
    margin="|",
    bullet="-",
    ellipsis="..",
    ascii_only=True,
)


def clean_text(text: str, glyphs: Glyphs) -> str:
    r"""Make text from anywhere safe for one line of a screen.

    >>> clean_text("a\x1b[31mb µs", ASCII)
    'a?[31mb us'
    """
    visible = _CONTROL.sub("?", text)
    if glyphs.ascii_only:
        return visible.translate(_PLAIN).encode("ascii", "replace").decode()
    return visible.encode("utf-8", "replace").decode()


def shorten_middle(text: str, cells: int, glyphs: Glyphs) -> str:
    """Cut the middle out of a text that is too long; the end tells more than the beginning and keeps more.

    >>> shorten_middle("/home/somebody/projects/polygons/train.py", 24, BLOCKS)
    '/home/s…olygons/train.py'
    """
    if cell_len(text) <= cells:
        return text
    room = max(cells - len(glyphs.ellipsis), 0)
    head = set_cell_size(text, room // 3)
    tail = set_cell_size(text[::-1], room - cell_len(head))[::-1]
    return f"{head}{glyphs.ellipsis}{tail}"[: max(cells, 0)]


def draw_bar(ratio: float, cells: int, glyphs: Glyphs) -> str:
    """Draw a share as a bar; what is not nothing has at least its smallest part.

    >>> draw_bar(0.5, 4, ASCII), draw_bar(0.001, 4, BLOCKS), draw_bar(0.0, 4, BLOCKS)
    ('##', '▏', '')
    """
    steps = len(glyphs.eighths)
    filled = round(min(max(ratio, 0.0), 1.0) * cells * steps)
    if ratio > 0:
        filled = max(filled, 1)
    whole, part = divmod(filled, steps)
    return glyphs.eighths[-1] * whole + (glyphs.eighths[part - 1] if part else "")


def draw_series(series: Sequence[float], cells: int, glyphs: Glyphs) -> str:
    """Draw ratios over time, one cell a slice; more slices than cells are averaged.

    >>> draw_series([0.0, 0.5, 1.0, 1.0], 2, ASCII)
    ':#'
    """
    top = len(glyphs.levels) - 1
    count = min(cells, len(series))
    drawn = ""
    for cell in range(count):
        part = series[cell * len(series) // count : (cell + 1) * len(series) // count]
        ratio = min(max(sum(part) / len(part), 0.0), 1.0)
        drawn += glyphs.levels[round(ratio * top)]
    return drawn


def split_cells(ratios: Sequence[float], cells: int) -> list[int]:
    """Part cells in proportion, without losing one: the largest remainders get the rest.

    >>> split_cells([0.5, 0.25, 0.25, 0.0], 10)
    [5, 3, 2, 0]
    """
    total = sum(ratios)
    if total <= 0:
        return [0] * len(ratios)
    exact = [ratio / total * cells for ratio in ratios]
    given = [int(one) for one in exact]
    by_remainder = sorted(range(len(exact)), key=lambda at: given[at] - exact[at])
    for at in by_remainder[: cells - sum(given)]:
        given[at] += 1
    return given
