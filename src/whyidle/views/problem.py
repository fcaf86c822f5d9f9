"""An error as a person reads it: what failed, what to do, where to read on.

Standard library only: it is imported whatever is asked for.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whyidle.errors import WhyidleError

_LABELS = ("to do", "more")
_INDENT = "  "


def render_problem(error: WhyidleError, *, width: int = 80) -> str:
    """Write message, hint and slug as a block of a given width.

    whyidle: there is no folder 'runs/7'; expected a run folder

      to do  Name a folder in ./whyidle-runs, or record a run with `whyidle run`
      more   docs/messages.md, run-folder-missing
    """
    hint = error.hint[:1].upper() + error.hint[1:]
    more = f"docs/messages.md, {error.slug}"
    lines = [*_wrap(f"whyidle: {error.message}", "", "", width), ""]
    for label, text in zip(_LABELS, (hint, more), strict=True):
        lines += _wrap(text, f"{_INDENT}{label:<7}", " " * 9, width)
    return "\n".join(lines) + "\n"


def _wrap(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
    )
