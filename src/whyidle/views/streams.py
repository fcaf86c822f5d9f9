"""What a stream can show, and writing to it whatever its state."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_WIDTH = 80
MIN_WIDTH = 60
"""On a narrower terminal the lines are broken by the terminal."""
MAX_WIDTH = 100
"""Lines longer than this are hard to read, however wide the terminal."""
_NEEDED_CHARACTERS = "▁█▓▒·µ×…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a stream can show."""

    width: int
    """Columns, between MIN_WIDTH and MAX_WIDTH."""
    color: bool
    """Whether colour codes are wanted."""
    blocks: bool
    """Whether block characters can be encoded; False: plain ASCII."""


def read_traits(stream: TextIO | None, environment: Mapping[str, str]) -> Traits:
    """Find out what a stream can show. NO_COLOR wins over FORCE_COLOR, COLUMNS over the terminal."""
    is_terminal = _is_terminal(stream)
    color = is_terminal and environment.get("TERM", "dumb") != "dumb"
    if environment.get("FORCE_COLOR"):
        color = True
    if environment.get("NO_COLOR"):
        color = False
    columns = environment.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else _terminal_width(stream, is_terminal)
    return Traits(
        width=min(max(width or DEFAULT_WIDTH, MIN_WIDTH), MAX_WIDTH),
        color=color,
        blocks=_can_encode(stream),
    )


def write_text(stream: TextIO | None, text: str) -> None:
    """Write text and flush; what the stream cannot encode becomes `?`.

    Raises:
        OSError: the stream takes no more (BrokenPipeError when its reader has gone).
    """
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def write_aside(stream: TextIO | None, text: str) -> None:
    """Write text if that is possible, and go on if it is not."""
    with contextlib.suppress(OSError, ValueError):
        write_text(stream, text)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _terminal_width(stream: TextIO | None, is_terminal: bool) -> int:
    if stream is None or not is_terminal:
        return DEFAULT_WIDTH
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return DEFAULT_WIDTH


def _can_encode(stream: TextIO | None) -> bool:
    try:
        _NEEDED_CHARACTERS.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
