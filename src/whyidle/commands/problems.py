"""Telling a person on stderr what went wrong."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback

from whyidle import __version__
from whyidle.errors import WhyidleError
from whyidle.views.problem import render_problem
from whyidle.views.streams import read_traits, write_aside


def say_problem(error: WhyidleError) -> None:
    """Say what failed and what to do."""
    traits = read_traits(sys.stderr, os.environ)
    write_aside(sys.stderr, render_problem(error, width=traits.width))


def say_crash(error: Exception) -> None:
    """Say that it was an error of ours; the traceback goes into a file."""
    kept = _keep_traceback(error)
    where = f", which is in {kept}" if kept else ""
    say_problem(
        WhyidleError(
            f"an error inside whyidle, not in your training: {type(error).__name__}: {error}",
            slug="internal-error",
            hint=f"Report it with the traceback{where}. What was recorded is not lost.",
        )
    )


def _keep_traceback(error: Exception) -> str | None:
    """Write the traceback to a file in the temporary folder; None when even that fails."""
    try:
        file, path = tempfile.mkstemp(prefix="whyidle-error-", suffix=".txt")
        with os.fdopen(file, "w", encoding="utf-8", errors="replace") as opened:
            opened.write(f"whyidle {__version__}, Python {sys.version}\n\n")
            opened.writelines(traceback.format_exception(error))
    except OSError:
        return None
    return path
