"""Two runs beside each other on one screen: faster or not, which causes went, what limits now."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.text import Text

from whyidle.model.comparison import Trend
from whyidle.units import format_ns, format_ratio
from whyidle.views import drawing, words
from whyidle.views.place import draw_place
from whyidle.views.redaction import redact_comparison
from whyidle.views.screen import ACCENT, LABEL_CELLS, QUIET, SECOND, Screen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath

    from whyidle.model.comparison import CauseChange, Comparison, Difference

    Form = Callable[[float], str]

COLUMN_CELLS = 10
"""`-37.9 ms` and a gap."""
SCALED_CELLS, SCALED_WIDTH = 12, 76
"""On a narrower screen the change over all steps has no room."""
MAX_CAUSES = 6
MIN_RATIO = 0.01
"""Causes that are less than this part of the earlier step in both runs are left out."""


def render_comparison(
    comparison: Comparison,
    *,
    folders: tuple[PurePath, PurePath],
    width: int = 80,
    color: bool,
    redact: bool = False,
    blocks: bool = True,
) -> str:
    """Write a comparison for a terminal.

    Args:
        comparison: What to show.
        folders: The run folders, before and after.
        width: Columns; no line is longer.
        color: With colour codes. Nothing is said by colour alone.
        redact: Hide the folders of all paths.
        blocks: With block characters; False: ASCII only.
    """
    shown = redact_comparison(comparison) if redact else comparison
    screen = Screen(width, drawing.BLOCKS if blocks else drawing.ASCII)
    screen.add(_heading(shown, screen))
    screen.add(_runs(shown, None if redact else folders, screen))
    screen.add(_measures(shown, screen))
    screen.add(_causes(shown, screen))
    screen.add(_caveats(shown, screen))
    return screen.render(color)


def _heading(comparison: Comparison, screen: Screen) -> list[Text]:
    step = comparison.step
    style = QUIET if not step.is_real else ACCENT if step.change < 0 else SECOND
    margin = Text.assemble((f"{screen.glyphs.margin} ", style))
    return screen.wrap(comparison.sentence, margin, margin)


def _runs(
    comparison: Comparison, folders: tuple[PurePath, PurePath] | None, screen: Screen
) -> list[Text]:
    lines = []
    verdicts = comparison.before, comparison.after
    for at, (name, verdict) in enumerate(zip(("before", "after"), verdicts, strict=True)):
        command = screen.shorten(shlex.join(verdict.run.command), screen.content_cells)
        lines += screen.row(name, command)
        said = f"{verdict.run.steps} steps, limit: {verdict.limit.value}"
        if folders:
            said += f"; {folders[at]}"
        lines += screen.row("", Text(screen.shorten(said, screen.content_cells), QUIET))
    return lines


def _measures(comparison: Comparison, screen: Screen) -> list[Text]:
    per = comparison.per
    lines = [_titles("", "90 % interval", screen)]
    rows: tuple[tuple[str, Difference, Form, Form], ...] = (
        (f"a {per}", comparison.step, format_ns, _signed_ns),
        ("its idle", comparison.idle, format_ns, _signed_ns),
        ("idle", comparison.idle_ratio, format_ratio, _points),
    )
    for name, one, form, signed in rows:
        line = _numbers(name, one.before, one.after, form, screen)
        line.append(screen.clean(f"{signed(one.change):>{COLUMN_CELLS}}"), _style(one))
        between = f"   [{signed(one.low)}, {signed(one.high)}]"
        line.append(screen.clean(between))
        if not one.is_real:
            line.append("  not real", QUIET)
        lines += screen.wrap(line)
    return lines


def _titles(label: str, last: str, screen: Screen) -> Text:
    columns = "".join(f"{one:>{COLUMN_CELLS}}" for one in ("before", "after", "change"))
    return Text(screen.clean(f"{label:<{LABEL_CELLS}}{columns}   {last}"), style=QUIET)


def _numbers(label: str, before: float, after: float, form: Form, screen: Screen) -> Text:
    numbers = f"{form(before):>{COLUMN_CELLS}}{form(after):>{COLUMN_CELLS}}"
    return Text.assemble((f"{label:<{LABEL_CELLS}}", QUIET), screen.clean(numbers))


def _signed_ns(value: float) -> str:
    """Write a change of time with its sign.

    >>> _signed_ns(-2e6), _signed_ns(2e6)
    ('-2.00 ms', '+2.00 ms')
    """
    return f"+{format_ns(value)}" if value > 0 else format_ns(value)


def _points(change: float) -> str:
    """Write a change of a percentage, in points.

    >>> _points(-0.174)
    '-17 pts'
    """
    return f"{change * 100:+.0f} pts"


def _style(one: Difference) -> str:
    if not one.is_real:
        return QUIET
    return f"bold {ACCENT if one.change < 0 else SECOND}"


def _causes(comparison: Comparison, screen: Screen) -> list[Text]:
    least_ns = MIN_RATIO * comparison.step.before
    shown = [
        one for one in comparison.causes if max(one.before_ns, one.after_ns) >= least_ns
    ][:MAX_CAUSES]
    if not shown:
        return []
    steps = f"in {comparison.before.run.steps} steps"
    is_wide = screen.width >= SCALED_WIDTH
    lines = [_titles("idle for", steps if is_wide else "", screen)]
    for one in shown:
        lines += _cause(one, screen)
    return lines


def _cause(one: CauseChange, screen: Screen) -> list[Text]:
    line = _numbers(one.trend.value, one.before_ns, one.after_ns, format_ns, screen)
    is_better = one.change_ns < 0
    style = QUIET if one.trend is Trend.SAME else f"bold {ACCENT if is_better else SECOND}"
    line.append(screen.clean(f"{_signed_ns(one.change_ns):>{COLUMN_CELLS}}"), style)
    scaled = f"   {_signed_ns(one.scaled_change_ns):<{SCALED_CELLS}}"
    line.append(screen.clean(scaled if screen.width >= SCALED_WIDTH else "   "))
    words_of = Text.assemble((words.ACTIVITY_WORDS[one.activity], "bold"))
    return [
        *screen.wrap(words_of, line, " " * line.cell_len),
        *draw_place(one.where, screen),
    ]


def _caveats(comparison: Comparison, screen: Screen) -> list[Text]:
    bullet = Text.assemble((f"{screen.glyphs.bullet} ", QUIET))
    return [
        line
        for one in comparison.caveats
        for line in screen.wrap(f"note: {one}", bullet, "  ")
    ]
