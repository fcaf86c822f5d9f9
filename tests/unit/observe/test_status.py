"""The status line's text, and that it is drawn on terminals only."""

from __future__ import annotations

import io

import pytest

from whyidle.observe.status import StatusLine, render_status, steps_per_second
from whyidle.units import NS_PER_S


@pytest.mark.parametrize(
    ("steps", "rate", "elapsed_s", "activity", "text"),
    [
        (0, None, 3, "", "whyidle: no step yet, 0:03"),
        (
            1500,
            14.26,
            3725,
            "computes",
            "whyidle: 1500 steps, 14.3 steps/s, 1:02:05, loop computes",
        ),
    ],
)
def test_status_text(
    steps: int, rate: float | None, elapsed_s: int, activity: str, text: str
) -> None:
    """What is not known is left out."""
    assert render_status(steps, rate, elapsed_s * NS_PER_S, activity, 80) == text


def test_status_is_cut_to_the_terminal() -> None:
    """The line leaves the last column free, so that no terminal wraps it."""
    assert len(render_status(10, 1.0, NS_PER_S, "waits for data", 20)) == 19


def test_rate_needs_progress() -> None:
    """One reading, or two with the same count, give no rate."""
    assert steps_per_second([(0, 1)]) is None
    assert steps_per_second([(0, 1), (NS_PER_S, 1)]) is None
    assert steps_per_second([(0, 1), (2 * NS_PER_S, 2)]) == 0.5


def test_nothing_is_drawn_into_a_pipe() -> None:
    """A stream that is no terminal, or is closed, is never written to."""
    stream, closed = io.StringIO(), io.StringIO()
    closed.close()

    for one in (stream, closed, None):
        line = StatusLine(one, 0)
        line.draw(NS_PER_S, 5, "computes")
        line.clear()
        assert not line.is_shown

    assert stream.getvalue() == ""
