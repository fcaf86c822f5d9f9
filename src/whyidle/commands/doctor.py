"""`whyidle doctor`: what can be observed here and what cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.views.streams import read_traits, write_text

if TYPE_CHECKING:
    import argparse


class DoctorCommand:
    """Tell what can be observed here, what cannot, and why.

    Starts the `python` on PATH with the agent in it, looks at it as `whyidle run` would,
    and at the machine. Changes nothing. Type it where the training runs: in the same
    container, as the same user, in the same environment.
    """

    usage = "[--out DIR]"
    examples = ("whyidle doctor",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare where runs would go."""
        parser.add_argument(
            "--out",
            type=Path,
            default=Path(),
            metavar="DIR",
            help="where run folders would be made (default: here)",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Try everything and print the table."""
        from whyidle.observe.checks import check_all
        from whyidle.views.checklist import render_checks

        traits = read_traits(sys.stdout, os.environ)
        text = render_checks(
            check_all(arguments.out),
            width=traits.width,
            color=traits.color,
            blocks=traits.blocks,
        )
        write_text(sys.stdout, text)
        return 0
