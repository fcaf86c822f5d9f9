"""`whyidle prove`: is a replacement equal to a slow function on what it really got, and what does it gain?"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.commands.parsing import positive_seconds, whole_number
from whyidle.commands.report import choose_run, load_verdict
from whyidle.errors import UsageError, WhyidleError
from whyidle.model.proof import ProofOutcome
from whyidle.store import rundir
from whyidle.store.captures import (
    CapturedFunction,
    FunctionName,
    find_capture,
    load_captures,
    parse_function_name,
)
from whyidle.units import NS_PER_S
from whyidle.views.streams import read_traits, write_aside, write_text

if TYPE_CHECKING:
    from whyidle.model.findings import Forecast
    from whyidle.model.proof import Proof, Timing

STATUS_OF = {
    ProofOutcome.FASTER: 0,
    ProofOutcome.DIFFERENT: 1,
    ProofOutcome.UNDECIDED: 4,
    ProofOutcome.NOT_FASTER: 5,
}
"""Exit status; 2 and 3 are those of wrong arguments and run folders."""
DEFAULT_RTOL, DEFAULT_ATOL = 1e-5, 1e-8
"""As numpy.allclose: single precision that was added up in another order stays within it."""
MAX_PROCESSES = 64
CLOCK_SLACK_NS = 2 * NS_PER_S
"""File systems keep times to a second or two."""


class ProveCommand:
    """Check a replacement for a slow function before it is made, on real inputs.

    OLD and NEW are functions, as file.py:function or file.py:Class.method. RUN was
    recorded with `whyidle run --capture OLD`. Both run on the captured inputs in
    processes of the training's interpreter, as many at once as it had workers: results
    are compared, then times, and the gain of the whole training is forecast.

    Captured inputs are Python pickles: prove only runs that you recorded.

    Exit status: 0 equal and faster, 1 not equal, 4 it cannot be told, 5 equal but not faster.
    """

    usage = "[OPTIONS] RUN OLD NEW"
    examples = (
        "whyidle run --steps 200 --capture targets.py:outline_maps -- python train.py",
        "whyidle prove whyidle-runs targets.py:outline_maps fast.py:outline_maps",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the run, both functions, tolerance and time."""
        parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
        parser.add_argument("old", metavar="OLD", help="the captured function")
        parser.add_argument("new", metavar="NEW", help="what is to replace it")
        parser.add_argument(
            "--rtol",
            type=_tolerance,
            default=DEFAULT_RTOL,
            metavar="R",
            help=f"relative tolerance for numbers with a fraction (default: {DEFAULT_RTOL:g})",
        )
        parser.add_argument(
            "--atol",
            type=_tolerance,
            default=DEFAULT_ATOL,
            metavar="A",
            help=f"absolute tolerance (default: {DEFAULT_ATOL:g})",
        )
        parser.add_argument(
            "--workers",
            type=whole_number,
            metavar="N",
            help="processes at once (default: the workers of the run's loader, of all ranks)",
        )
        parser.add_argument(
            "--seconds",
            type=positive_seconds,
            default=10.0,
            metavar="S",
            help="how long to measure (default: 10)",
        )
        parser.add_argument("--json", action="store_true", help="for programs")

    def run(self, arguments: argparse.Namespace) -> int:
        """Prove or refute; gives the exit status of the outcome.

        Raises:
            WhyidleError: there is nothing to prove it on, or a function cannot be called.
        """
        old = parse_function_name(arguments.old)
        run_dir = rundir.open_run_dir(choose_captured(arguments.run, old))
        capture = find_capture(run_dir, old)
        new = locate(parse_function_name(arguments.new), capture)
        warn_of_change(run_dir, capture)
        proof = prove(run_dir, capture, new, arguments)
        write_text(sys.stdout, _render_json(proof) if arguments.json else _render(proof))
        return STATUS_OF[proof.outcome]


def choose_captured(named: Path, old: FunctionName) -> Path:
    """Give the run folder that is meant: of several the newest that kept calls of OLD, else the newest."""
    if not (named / rundir.MANIFEST_NAME).exists():
        for run_dir in reversed(rundir.find_runs(named)):
            if any(old.is_at(one.name) for one in load_captures(run_dir)):
                return run_dir
    return choose_run(named)


def locate(name: FunctionName, capture: CapturedFunction) -> FunctionName:
    """Find a function's file: from here, from where the training ran, or beside OLD.

    Raises:
        UsageError: `function-file-missing`.
    """
    folders = [Path.cwd(), Path(capture.target["folder"]), Path(capture.name.file).parent]
    for folder in folders:
        path = folder / name.file
        if path.is_file():
            return FunctionName(str(path.resolve()), name.function)
    raise UsageError(
        f"there is no file {name.file!r}; expected it in one of {', '.join(map(str, dict.fromkeys(folders)))}",
        slug="function-file-missing",
        hint="Name the file with its folder.",
    )


def warn_of_change(run_dir: Path, capture: CapturedFunction) -> None:
    """Say that OLD's file is younger than the run: OLD may not be what was captured."""
    start_unix_ns = rundir.read_manifest(run_dir)["start_unix_ns"]
    with contextlib.suppress(OSError):
        changed_unix_ns = os.stat(capture.name.file).st_mtime_ns
        if start_unix_ns is not None and changed_unix_ns > start_unix_ns + CLOCK_SLACK_NS:
            write_aside(
                sys.stderr, f"whyidle: {capture.name.file} has changed since the run\n"
            )


def prove(
    run_dir: Path,
    capture: CapturedFunction,
    new: FunctionName,
    arguments: argparse.Namespace,
) -> Proof:
    """Replay, measure and forecast.

    Raises:
        WhyidleError: `replay-failed`, or the run cannot be read.
    """
    from whyidle.model.proof import Proof
    from whyidle.trial.proving import Request, replay

    replayed = replay(
        Request(
            capture=capture,
            new=new,
            processes=arguments.workers or _worker_count(run_dir),
            rtol=arguments.rtol,
            atol=arguments.atol,
            seconds=arguments.seconds,
        ),
        say=lambda text: write_aside(sys.stderr, f"whyidle: {text} ...\n"),
    )
    forecast, missing = None, None
    if replayed.timing is not None:
        forecast, missing = _forecast(run_dir, capture, replayed.timing)
    return Proof(
        old=str(capture.name),
        new=str(new),
        rtol=arguments.rtol,
        atol=arguments.atol,
        capture=replayed.capture,
        not_reproduced=replayed.not_reproduced,
        different=replayed.different,
        not_comparable=replayed.not_comparable,
        timing=replayed.timing,
        forecast=forecast,
        forecast_missing=missing,
    )


def _worker_count(run_dir: Path) -> int:
    """Give the workers of all ranks of the run; 1 for a loop without."""
    run = load_verdict(run_dir).run
    return min(max(run.workers or 1, 1) * max(run.ranks, 1), MAX_PROCESSES)


def _forecast(
    run_dir: Path, capture: CapturedFunction, timing: Timing
) -> tuple[Forecast | None, str | None]:
    """Forecast the whole training, or say why not: the proof stands without it."""
    from whyidle.analysis.align import build_timeline
    from whyidle.analysis.loader_model import Withheld
    from whyidle.analysis.replacement import forecast_replacement

    try:
        tables = rundir.load_tables(run_dir)
    except WhyidleError as error:
        return None, error.message
    timeline = build_timeline(tables)
    folder = str(capture.target["folder"])
    named = lru_cache(lambda file: os.path.realpath(os.path.join(folder, file)))
    files = {
        frame.file
        for rank in timeline.ranks
        for stack in rank.stacks
        for frame in stack
        if named(frame.file) == capture.name.file
    }
    function = capture.name.function.rpartition(".")[2]
    found = forecast_replacement(timeline, files, function, timing)
    return (None, found.reason) if isinstance(found, Withheld) else (found, None)


def _render_json(proof: Proof) -> str:
    return json.dumps(proof.to_json(), indent=2, ensure_ascii=False) + "\n"


def _render(proof: Proof) -> str:
    from whyidle.views.proof import render_proof

    traits = read_traits(sys.stdout, os.environ)
    return render_proof(proof, width=traits.width, color=traits.color, blocks=traits.blocks)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value
