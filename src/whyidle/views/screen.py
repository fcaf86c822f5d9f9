"""Lines of a fixed width, in colour or plain, for everything that is shown on a terminal.

NOTE [the grid]
    Every row has a label of LABEL_CELLS and then its content; what does not fit is continued below the content.
    Colour only repeats what words and characters say already. Blue and orange differ for every kind of colour vision.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from whyidle.views import drawing

if TYPE_CHECKING:
    from collections.abc import Iterable

LABEL_CELLS = 10
ACCENT, SECOND, QUIET = "color(33)", "color(208)", "color(245)"


class Screen:
    """Lines of a fixed width, added section by section."""

    def __init__(self, width: int, glyphs: drawing.Glyphs) -> None:
        self.width = width
        self.glyphs = glyphs
        self.content_cells = width - LABEL_CELLS
        self._console = Console(
            file=io.StringIO(),
            width=width,
            force_terminal=True,
            color_system="256",
            legacy_windows=False,
            _environ={},
        )
        self._lines: list[Text] = []

    def add(self, section: Iterable[Text]) -> None:
        """Add lines, parted from what is there by an empty one."""
        lines = list(section)
        if lines and self._lines:
            self._lines.append(Text())
        self._lines += lines

    def clean(self, text: str) -> str:
        """Make a text safe for one line, and ASCII where that is all there is."""
        return drawing.clean_text(text, self.glyphs)

    def shorten(self, text: str, cells: int) -> str:
        """Clean a text and cut its middle out if it is too long."""
        return drawing.shorten_middle(self.clean(text), cells, self.glyphs)

    def wrap(
        self, content: Text | str, first: Text | str = "", rest: Text | str = ""
    ) -> list[Text]:
        """Break content into lines behind `first` and, from the second line on, `rest`."""
        text = Text(self.clean(content)) if isinstance(content, str) else content
        margins = [Text(one) if isinstance(one, str) else one for one in (first, rest)]
        cells = max(self.width - margins[1].cell_len, 1)
        broken = text.wrap(self._console, cells)
        return [Text.assemble(margins[min(at, 1)], line) for at, line in enumerate(broken)]

    def row(self, label: str, content: Text | str) -> list[Text]:
        """A label and its content; see NOTE [the grid]."""
        padded = Text.assemble((f"{label:<{LABEL_CELLS}}", QUIET))
        return self.wrap(content, padded, " " * LABEL_CELLS)

    def render(self, color: bool) -> str:
        """Give all lines as one text, with colour codes or without."""
        if not color:
            return "".join(f"{line.plain.rstrip()}\n" for line in self._lines)
        with self._console.capture() as capture:
            for line in self._lines:
                line.rstrip()
                self._console.print(line, no_wrap=True, crop=True, highlight=False)
        return capture.get()
