"""A comparison on a terminal: a golden screen, and what holds for every width."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len

from tests.verdicts import MS, make_cause, make_verdict
from whyidle.model.comparison import CauseChange, Comparison, Difference, Speedup, Trend
from whyidle.model.findings import Activity, Place
from whyidle.views.comparison import render_comparison

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDERS = Path("before/20260131-093000-1"), Path("after/20260131-094500-1")


def _difference(before: float, after: float, margin: float, *, is_real: bool = True):
    change = after - before
    return Difference(
        before=before, after=after, change=change, low=change - margin, high=change + margin, is_real=is_real
    )  # fmt: skip


def _comparison() -> Comparison:
    loop = Place(file="/home/me/polygons/targets.py", line=45, function="outline_maps")
    augment = Place(file="/home/me/polygons/augment.py", line=98, function="augment")
    changes = (
        (Activity.COMPUTE, loop, 20.9 * MS, 0.0, Trend.GONE),
        (Activity.COMPUTE, augment, 18.2 * MS, 17.9 * MS, Trend.SAME),
        (Activity.TRANSPORT, Place(), 2.0 * MS, 5.0 * MS, Trend.LARGER),
    )
    return Comparison(
        before=make_verdict(make_cause()),
        after=make_verdict(make_cause()),
        sentence="Faster: 1.63 times the steps per second. Gone is computing in outline_maps.",
        per="step",
        step=_difference(78.7 * MS, 48.3 * MS, 3 * MS),
        idle=_difference(54.7 * MS, 53.3 * MS, 3 * MS, is_real=False),
        idle_ratio=_difference(0.70, 0.50, 0.02),
        speedup=Speedup(value=1.63, low=1.57, high=1.7),
        causes=tuple(
            CauseChange(
                activity=activity, where=where, before_ns=before, after_ns=after,
                scaled_change_ns=(after - before) * 200, trend=trend,
            )
            for activity, where, before, after, trend in changes
        ),
        caveats=("other programs used 0.8 CPUs before and 0.5 after",),
    )  # fmt: skip


def _render(width: int = 80, **options: bool) -> str:
    return render_comparison(
        _comparison(), folders=FOLDERS, width=width, **({"color": False} | options)
    )


def test_comparison_as_a_screen(golden: Callable[[str, str], None]) -> None:
    """What a person reads after a change."""
    golden("comparison.txt", _render())


@pytest.mark.parametrize("width", [60, 72, 80, 100])
@pytest.mark.parametrize("blocks", [True, False])
def test_no_line_is_wider_than_the_screen(width: int, blocks: bool) -> None:
    """At any width, in blocks or ASCII."""
    text = _render(width, blocks=blocks)

    assert max(map(cell_len, text.splitlines())) <= width
    assert blocks or text.isascii()


def test_redacted_comparison_shows_no_folder() -> None:
    """Neither of places nor of runs."""
    text = _render(redact=True)

    assert "/home" not in text
    assert "20260131" not in text
