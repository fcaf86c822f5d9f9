"""Where something is, on a screen: function, file and line, and what lies around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from whyidle.views.screen import ACCENT, LABEL_CELLS, Screen

if TYPE_CHECKING:
    from whyidle.model.findings import Place


def draw_place(where: Place, screen: Screen) -> list[Text]:
    """One line that says where, or two where one is too narrow; none when nothing is known."""
    code, around = _code_place(where, screen), "  ".join(_surroundings(where))
    said = [one for one in (code, screen.clean(around)) if one]
    if cell_len("  ".join(said)) <= screen.content_cells:
        said = ["  ".join(said)] if said else []
    indent = " " * LABEL_CELLS
    return [
        line
        for one in said
        for line in screen.wrap(Text.assemble((one, ACCENT)), indent, indent)
    ]


def _code_place(where: Place, screen: Screen) -> str:
    """Function, file and line; the path is cut to what fits."""
    function = screen.shorten(where.function or "", screen.content_cells // 2)
    if where.file is None:
        return function
    file = where.file if where.line is None else f"{where.file}:{where.line}"
    gap = "  " if function else ""
    room = screen.content_cells - cell_len(function) - len(gap)
    return f"{function}{gap}{screen.shorten(file, room)}"


def _surroundings(where: Place) -> list[str]:
    """What a place says beside its code."""
    named = (
        ("transform", where.transform),
        ("on", where.mount),
        ("taken by", where.process),
        ("only rank", where.rank),
    )
    return [f"{before} {value}" for before, value in named if value is not None]
