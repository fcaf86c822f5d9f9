"""`whyidle compare`: two recorded runs, before and after a change."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.report import choose_run
from whyidle.errors import UsageError
from whyidle.store import rundir
from whyidle.views.streams import read_traits, write_text

if TYPE_CHECKING:
    import argparse

    from whyidle.analysis.comparison import StepSamples
    from whyidle.model.comparison import Comparison
    from whyidle.model.findings import Verdict


class CompareCommand:
    """Compare two recorded runs, before and after a change.

    Says whether steps have really become shorter, which causes went, and what limits now.
    BEFORE and AFTER are run folders, or folders with several runs: then the newest is
    taken. Times are means per step with 90 % intervals, epoch starts included; with
    different batch sizes they are per sample. The exit status is 0 whatever the outcome:
    `whyidle check` is the one for CI.
    """

    usage = "[--json] [--redact] BEFORE AFTER"
    examples = (
        "whyidle run --steps 200 --out before -- python train.py",
        "whyidle run --steps 200 --out after -- python train.py --workers 8",
        "whyidle compare before after",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the runs and the form."""
        parser.add_argument("before", type=Path, metavar="BEFORE", help="run folder")
        parser.add_argument("after", type=Path, metavar="AFTER", help="run folder")
        parser.add_argument("--json", action="store_true", help="for programs")
        parser.add_argument(
            "--redact", action="store_true", help="hide the folders of all paths"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Load, compare and print.

        Raises:
            RunFolderError: a run cannot be read.
            UsageError: a run has too few steps.
        """
        folders = choose_run(arguments.before), choose_run(arguments.after)
        comparison = compare_folders(*folders)
        if arguments.json:
            from whyidle.views.redaction import redact_comparison

            shown = redact_comparison(comparison) if arguments.redact else comparison
            text = json.dumps(shown.to_json(), indent=2, ensure_ascii=False) + "\n"
        else:
            text = _render(comparison, folders, redact=arguments.redact)
        write_text(sys.stdout, text)
        return 0


def compare_folders(before: Path, after: Path) -> Comparison:
    """Compare two recorded runs.

    Raises:
        RunFolderError: one cannot be read.
        UsageError: `run-too-short`.
    """
    from whyidle.analysis.comparison import compare_runs

    return compare_runs(measure_run(before), measure_run(after))


def measure_run(run_dir: Path) -> tuple[Verdict, StepSamples]:
    """Judge a recorded run and measure its steps.

    Raises:
        RunFolderError: it cannot be read.
        UsageError: `run-too-short`.
    """
    from whyidle.analysis.align import build_timeline
    from whyidle.analysis.comparison import has_enough_steps, sample_steps
    from whyidle.analysis.verdict import judge_timeline

    tables = rundir.load_tables(run_dir)
    timeline = build_timeline(tables)
    samples = sample_steps(timeline)
    if not has_enough_steps(samples):
        raise UsageError(
            f"the run in {str(run_dir)!r} has {len(samples.step_ns)} whole steps behind its "
            "warm-up, too few to measure; expected at least 7",
            slug="run-too-short",
            hint="Record a longer one: 200 steps are usually plenty.",
        )
    return judge_timeline(timeline, tables, None), samples


def _render(comparison: Comparison, folders: tuple[Path, Path], *, redact: bool) -> str:
    from whyidle.views.comparison import render_comparison

    traits = read_traits(sys.stdout, os.environ)
    return render_comparison(
        comparison,
        folders=folders,
        width=traits.width,
        color=traits.color,
        blocks=traits.blocks,
        redact=redact,
    )
