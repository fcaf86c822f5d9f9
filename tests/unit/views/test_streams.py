"""What a stream can show."""

from __future__ import annotations

import io

import pytest

from whyidle.views.streams import (
    DEFAULT_WIDTH,
    MAX_WIDTH,
    MIN_WIDTH,
    read_traits,
    write_aside,
    write_text,
)


class _Terminal(io.TextIOWrapper):
    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "color"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_color_on_a_terminal_follows_the_environment(
    environment: dict[str, str], color: bool
) -> None:
    """NO_COLOR and a dumb terminal turn colour off."""
    assert read_traits(_Terminal(), environment).color is color


def test_pipe_has_no_color_unless_forced() -> None:
    """A file that is read by a program holds no colour codes."""
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")

    assert not read_traits(pipe, {"TERM": "xterm"}).color
    assert read_traits(pipe, {"FORCE_COLOR": "1"}).color


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        ("72", 72),
        ("500", MAX_WIDTH),
        ("1", MIN_WIDTH),
        ("", DEFAULT_WIDTH),
        ("x", DEFAULT_WIDTH),
        ("0", DEFAULT_WIDTH),
    ],
)
def test_width_follows_columns_within_bounds(columns: str, width: int) -> None:
    """COLUMNS is heeded where it makes sense; a pipe without it has 80."""
    assert read_traits(io.StringIO(), {"COLUMNS": columns}).width == width


@pytest.mark.parametrize(
    ("encoding", "blocks"),
    [("utf-8", True), ("ascii", False), ("latin-1", False), ("cp437", False)],
)
def test_blocks_need_an_encoding_that_has_them(encoding: str, blocks: bool) -> None:
    """A stream in ASCII or Latin-1 gets no block characters."""
    assert read_traits(_Terminal(encoding), {}).blocks is blocks


def test_text_that_cannot_be_encoded_is_written_with_question_marks() -> None:
    """Half a surrogate from a file name does not end the program."""
    stream = _Terminal("ascii")

    write_text(stream, "µ\udcff\n")

    assert stream.buffer.getvalue() == b"??\n"  # type: ignore[attr-defined]


def test_closed_stream_is_no_reason_to_stop() -> None:
    """What is said aside goes nowhere when nobody can hear it."""
    stream = _Terminal()
    stream.close()

    write_aside(stream, "text")
    write_aside(None, "text")

    assert read_traits(stream, {}).color is False
    assert read_traits(None, {}).blocks is False
