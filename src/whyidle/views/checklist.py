"""What can be observed here, as a table."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from whyidle.model.checks import State
from whyidle.views.drawing import ASCII, BLOCKS, clean_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.model.checks import Check

STATE_CELLS = 9
NAME_CELLS = 21
_CODES = {State.OK: "38;5;33", State.LIMITED: "38;5;208", State.MISSING: "1;38;5;208"}
"""Blue and orange: told apart by every kind of colour vision; the word says it too."""


def render_checks(checks: Sequence[Check], *, width: int, color: bool, blocks: bool) -> str:
    """Write one row a check, what to do below it, and a last line that sums up."""
    glyphs = BLOCKS if blocks else ASCII
    lines = []
    for check in checks:
        state = f"{check.state.value:<{STATE_CELLS}}"
        name = f"{check.name:<{NAME_CELLS}}"
        rows = _wrap(clean_text(check.found, glyphs), name, width)
        if check.remedy is not None:
            rows += _wrap(
                clean_text(check.remedy, glyphs), f"{'':<{NAME_CELLS}}to do: ", width
            )
        if color:
            state = f"\x1b[{_CODES[check.state]}m{state}\x1b[0m"
        lines.append(state + rows[0])
        lines += [" " * STATE_CELLS + row for row in rows[1:]]
    return "\n".join([*lines, "", *textwrap.wrap(_sum_up(checks), width)]) + "\n"


def _wrap(text: str, first: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width - STATE_CELLS,
        initial_indent=first,
        subsequent_indent=" " * NAME_CELLS,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _sum_up(checks: Sequence[Check]) -> str:
    missing = sum(one.state is State.MISSING for one in checks)
    limited = sum(one.state is State.LIMITED for one in checks)
    if not missing and not limited:
        return "Everything that a verdict needs can be observed here."
    parts = [
        f"{number} {word}"
        for number, word in ((missing, "missing"), (limited, "limited"))
        if number
    ]
    return f"{' and '.join(parts)}: `whyidle run` works all the same, and says which statements are weaker for it."
