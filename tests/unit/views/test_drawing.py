"""Bars and text that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from whyidle.views.drawing import (
    ASCII,
    BLOCKS,
    clean_text,
    draw_bar,
    draw_series,
    shorten_middle,
    split_cells,
)

RATIOS = st.floats(0, 1)


@given(st.lists(RATIOS, min_size=1, max_size=6), st.integers(0, 80))
def test_split_loses_no_cell(ratios: list[float], cells: int) -> None:
    """The parts of a bar fill it, whatever they round to."""
    assert sum(split_cells(ratios, cells)) == (cells if sum(ratios) > 0 else 0)


@given(st.text(max_size=60), st.integers(2, 40), st.sampled_from([ASCII, BLOCKS]))
def test_shortened_text_fits(text: str, cells: int, glyphs) -> None:
    """Wide and joined characters are counted by the cells they take."""
    shown = shorten_middle(clean_text(text, glyphs), cells, glyphs)

    assert cell_len(shown) <= cells


@given(RATIOS, st.integers(1, 40), st.sampled_from([ASCII, BLOCKS]))
def test_bar_fits_and_shows_what_is_there(ratio: float, cells: int, glyphs) -> None:
    """A bar is empty only for nothing, and never too long."""
    drawn = draw_bar(ratio, cells, glyphs)

    assert (drawn == "") is (ratio == 0)
    assert len(drawn) <= cells


@given(st.lists(RATIOS, max_size=100), st.integers(1, 80))
def test_series_has_a_cell_a_slice_at_most(series: list[float], cells: int) -> None:
    """More slices than cells are averaged, fewer are not stretched."""
    assert len(draw_series(series, cells, BLOCKS)) == min(len(series), cells)


@pytest.mark.parametrize(("ratio", "level"), [(0.0, "▁"), (1.0, "█")])
def test_series_shows_the_extremes(ratio: float, level: str) -> None:
    """Nothing is the lowest level, and visible; all is the highest."""
    assert draw_series([ratio] * 3, 3, BLOCKS) == level * 3


def test_text_of_a_file_name_is_harmless() -> None:
    """Line breaks, escapes, direction marks and undecodable bytes become question marks."""
    assert clean_text("a\nb\x1b[1m\u202ec\udcff", BLOCKS) == "a?b?[1m?c?"
