"""`whyidle report`: show a recorded run again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.judging import judge_run
from whyidle.errors import RunFolderError
from whyidle.store import rundir
from whyidle.views.streams import read_traits, write_text

if TYPE_CHECKING:
    import argparse

    from whyidle.model.findings import Verdict


class ReportCommand:
    """Show the verdict of a recorded run again.

    RUN is the folder that `whyidle run` printed, or a folder with several of them:
    then the newest is taken. Without RUN it is the newest in ./whyidle-runs.
    """

    usage = "[--text | --json] [--redact] [RUN]"
    examples = (
        "whyidle report",
        "whyidle report whyidle-runs/20260131-093000-1 --json",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run and the form."""
        parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="run folder")
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--text", action="store_true", help="for a terminal (default)")
        form.add_argument("--json", action="store_true", help="for programs: verdict.json")
        parser.add_argument(
            "--redact", action="store_true", help="hide the folders of all paths"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Find the run, judge it if that was not done yet, and print.

        Raises:
            RunFolderError: there is no run, or it cannot be read.
        """
        run_dir = choose_run(arguments.run)
        verdict = load_verdict(run_dir)
        if arguments.json:
            write_text(sys.stdout, _render_json(verdict, redact=arguments.redact))
            return 0
        from whyidle.views.terminal import render_verdict

        traits = read_traits(sys.stdout, os.environ)
        text = render_verdict(
            verdict,
            width=traits.width,
            color=traits.color,
            blocks=traits.blocks,
            redact=arguments.redact,
            folder=run_dir,
        )
        write_text(sys.stdout, text)
        return 0


def choose_run(named: Path | None) -> Path:
    """Give the run folder that is meant.

    Raises:
        RunFolderError: there is none.
    """
    if named is not None:
        runs = [] if (named / rundir.MANIFEST_NAME).exists() else rundir.find_runs(named)
        return runs[-1] if runs else named
    runs = rundir.find_runs()
    if not runs:
        raise RunFolderError(
            f"there is no run in ./{rundir.DEFAULT_PARENT}; expected at least one",
            slug="no-runs",
            hint="Record one with `whyidle run -- COMMAND`, or name a run folder.",
        )
    return runs[-1]


def load_verdict(run_dir: Path) -> Verdict:
    """Give the verdict that was written, or judge the records and keep the verdict.

    Raises:
        RunFolderError: the records cannot be read.
    """
    from whyidle.model.verdict_json import parse_verdict

    try:
        return parse_verdict(json.loads((run_dir / rundir.VERDICT_NAME).read_bytes()))
    except (OSError, ValueError, RecursionError):
        # Missing, damaged, or of another schema: the records are the truth.
        return _judge(run_dir)


def _judge(run_dir: Path) -> Verdict:
    tables = rundir.load_tables(run_dir)
    verdict = judge_run(tables)
    if tables.manifest.get("end_mono_ns") is not None:
        rundir.write_verdict(run_dir, verdict)
    return verdict


def _render_json(verdict: Verdict, *, redact: bool) -> str:
    from whyidle.views.redaction import redact_verdict

    shown = redact_verdict(verdict) if redact else verdict
    return json.dumps(shown.to_json(), indent=2, ensure_ascii=False) + "\n"
