"""`whyidle check`: fail in CI when the input has become too slow."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.compare import measure_run
from whyidle.commands.parsing import positive_ms, ratio
from whyidle.commands.report import choose_run
from whyidle.errors import UsageError
from whyidle.units import NS_PER_MS, format_ns, format_ratio
from whyidle.views.streams import write_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from whyidle.analysis.comparison import StepSamples
    from whyidle.model.findings import Verdict

FAILED_STATUS = 1
CHECK_SCHEMA_VERSION = 1
WIDTH, INDENT = 80, " " * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One bound and what was measured against it."""

    bound: str
    """Name of the option."""
    passed: bool
    message: str
    """What was measured, with its 90 % interval, and what was expected."""


class CheckCommand:
    """Fail when a recorded run was starved: a gate for CI.

    RUN is a run folder, or a folder with several runs: then the newest is taken. Without RUN
    it is the newest in ./whyidle-runs. Means of the run decide; their 90 % intervals are shown
    so that a bound can be chosen with room for noise. --baseline fails when steps have
    really become longer than in that run, as `whyidle compare` judges it.

    Exit status: 0 all bounds hold, 1 one does not, 2 wrong usage or a run that is too
    short to answer, 3 a run folder that cannot be read.
    """

    usage = "[--max-idle R] [--max-step-ms M] [--baseline RUN] [RUN]"
    examples = (
        "whyidle run --steps 200 --out ci -- python train.py",
        "whyidle check ci --max-idle 0.10",
        "whyidle check ci --max-idle 0.10 --max-step-ms 250 --baseline main-run",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run and its bounds."""
        parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="run folder")
        parser.add_argument(
            "--max-idle",
            type=ratio,
            metavar="R",
            help="the device may be idle for this part of the time, 0 to 1",
        )
        parser.add_argument(
            "--max-step-ms",
            type=positive_ms,
            metavar="M",
            help="a step may take so many milliseconds in the mean",
        )
        parser.add_argument(
            "--baseline",
            type=Path,
            metavar="RUN",
            help="steps may not be longer than in this run",
        )
        parser.add_argument("--json", action="store_true", help="for programs")

    def run(self, arguments: argparse.Namespace) -> int:
        """Check and print.

        Raises:
            UsageError: there is no bound, or the run is too short.
            RunFolderError: a run cannot be read.
        """
        if arguments.max_idle is arguments.max_step_ms is arguments.baseline is None:
            raise UsageError(
                "there is nothing to check; expected at least one of --max-idle, --max-step-ms, "
                "--baseline",
                slug="no-bound",
                hint="For example: whyidle check --max-idle 0.10",
            )
        run_dir = choose_run(arguments.run)
        verdict, samples = measure_run(run_dir)
        checked = list(_check(arguments, verdict, samples))
        form = _render_json(run_dir, checked) if arguments.json else None
        write_text(sys.stdout, form or _render(run_dir, verdict, checked))
        return 0 if all(one.passed for one in checked) else FAILED_STATUS


def _check(
    arguments: argparse.Namespace, verdict: Verdict, samples: StepSamples
) -> Iterator[Checked]:
    from whyidle.analysis.comparison import compare_runs, idle_interval, step_interval

    if arguments.max_idle is not None:
        idle = float(samples.idle_ns.sum() / samples.step_ns.sum())
        low, high = map(format_ratio, idle_interval(samples))
        yield Checked(
            bound="--max-idle",
            passed=idle <= arguments.max_idle,
            message=f"idle {format_ratio(idle)} of the time [{low}, {high}], "
            f"at most {format_ratio(arguments.max_idle)} allowed",
        )
    if arguments.max_step_ms is not None:
        step_ns, bound_ns = (
            float(samples.step_ns.mean()),
            arguments.max_step_ms * NS_PER_MS,
        )
        low, high = map(format_ns, step_interval(samples))
        yield Checked(
            bound="--max-step-ms",
            passed=step_ns <= bound_ns,
            message=f"{format_ns(step_ns)} a step [{low}, {high}], "
            f"at most {format_ns(bound_ns)} allowed",
        )
    if arguments.baseline is not None:
        baseline = measure_run(choose_run(arguments.baseline))
        compared = compare_runs(baseline, (verdict, samples))
        step = compared.step
        yield Checked(
            bound="--baseline",
            passed=not (step.is_real and step.change > 0),
            message=f"{format_ns(step.after)} a {compared.per}, {format_ns(step.before)} in the "
            f"baseline, change [{format_ns(step.low)}, {format_ns(step.high)}]"
            + "".join(f"; {one}" for one in compared.caveats),
        )


def _render(run_dir: Path, verdict: Verdict, checked: list[Checked]) -> str:
    lines = [
        textwrap.fill(
            f"{'passed' if one.passed else 'FAILED'}  {one.bound}: {one.message}",
            WIDTH,
            subsequent_indent=INDENT,
        )
        for one in checked
    ]
    if not all(one.passed for one in checked):
        lines.append(textwrap.fill(verdict.sentence, WIDTH))
        lines.append(f"See `whyidle report {shlex.quote(str(run_dir))}`.")
    return "".join(f"{line}\n" for line in lines)


def _render_json(run_dir: Path, checked: list[Checked]) -> str:
    data = {
        "schema_version": CHECK_SCHEMA_VERSION,
        "run": str(run_dir),
        "passed": all(one.passed for one in checked),
        "checked": [asdict(one) for one in checked],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
