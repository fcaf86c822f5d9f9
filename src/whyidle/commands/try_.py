"""`whyidle try`: forecast what settings would gain, then try them on the training itself."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from whyidle.commands.parsing import positive_minutes
from whyidle.commands.run import check_writable, remove_unused, take_command
from whyidle.errors import LaunchError
from whyidle.model.trial import TrialState
from whyidle.store import rundir
from whyidle.units import NS_PER_S
from whyidle.views.streams import read_traits, write_aside, write_text

if TYPE_CHECKING:
    from whyidle.model.trial import TrialReport

USUAL_MINUTES = 5.0
_STATUS_OF = {TrialState.INTERRUPTED: 130, TrialState.FAILED: 1}
"""Exit status where it is not 0."""
REDRAW_S = 0.5
"""How often the line with the time left is drawn again."""

_WARNING = """\
whyidle: the training is run again and again for about {minutes:g} minutes, a
  short piece each time, with and without changed settings. {writes}
"""
_WRITES_HERE = """\
Every piece
  really trains here: what the script writes (checkpoints, logs), it writes
  each time. With --workdir copy each piece gets a copy of this folder."""
_WRITES_COPY = """\
Each piece
  runs in a fresh copy of this folder; what the script writes elsewhere, it
  writes each time."""


class TryCommand:
    """Forecast what loader settings would gain, then try them.

    First one piece of the training is recorded, and what worker count, prefetch,
    persistent workers, pinning, order, thread caps or CPU mask would gain is forecast and
    written down. Then short pieces with and without each change run in turn; nothing in
    the script is touched. Measured beside forecast, with 90 % intervals, come the best
    settings and the arguments to write into the script.

    Each piece really trains: what the script writes, it writes each time. With
    `--workdir copy` each piece gets a copy of the working folder. Ctrl-C ends the trials
    and shows what is known.
    """

    usage = "[OPTIONS] -- COMMAND ..."
    examples = (
        "whyidle try -- python train.py",
        "whyidle try --minutes 10 --workdir copy -- python train.py --epochs 1",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare budget, places and the command."""
        parser.add_argument(
            "--minutes",
            type=positive_minutes,
            default=USUAL_MINUTES,
            metavar="M",
            help=f"all runs together take about M minutes (default: {USUAL_MINUTES:g})",
        )
        parser.add_argument(
            "--workdir",
            choices=("here", "copy"),
            default="here",
            help="run in this folder (default), or each time in a copy of it",
        )
        parser.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help=f"make the folder of the trials in DIR (default: ./{rundir.DEFAULT_PARENT})",
        )
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write the report to FILE as well"
        )
        parser.add_argument(
            "command",
            nargs=argparse.REMAINDER,
            metavar="COMMAND",
            help="the training, as you type it anyway",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Record, forecast, try, print; 0, 130 when it was interrupted, 1 when the unchanged training failed.

        Raises:
            WhyidleError: the training cannot be started, fails by itself, or asks no DataLoader.
        """
        from whyidle.commands.judging import judge_run
        from whyidle.trial.record import create_trial_dir
        from whyidle.trial.session import Session
        from whyidle.trial.workdir import WorkdirCopies

        command = take_command(arguments.command, "try")
        if arguments.json is not None:
            check_writable(arguments.json)
        parent = arguments.out or Path(rundir.DEFAULT_PARENT)
        had_parent = parent.exists()
        copies = WorkdirCopies(Path.cwd()) if arguments.workdir == "copy" else None
        progress = Progress(sys.stderr)
        try:
            trial_dir = create_trial_dir(parent)
            _say_what_comes(arguments)
            session = Session(
                command,
                trial_dir,
                minutes=arguments.minutes,
                copies=copies,
                judge=judge_run,
                audience=progress,
            )
            report = session.run()
        except LaunchError:
            remove_unused(trial_dir, had_parent=had_parent)
            raise
        finally:
            progress.close()
            if copies is not None:
                copies.close()
        _show(report, trial_dir, arguments.json)
        return _STATUS_OF.get(report.state, 0)


class Progress:
    """Tells what happens: lines anywhere, and on a terminal what runs now and the time left."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to a stream; nothing is drawn yet."""
        self._stream = stream
        self._is_terminal = stream is not None and stream.isatty()
        self._width = read_traits(stream, os.environ).width
        self._lock = threading.Lock()
        self._what = ""
        self._run_dir: Path | None = None
        self._end_s = 0.0
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    def starts(self, what: str, run_dir: Path, left_ns: int) -> None:
        """Show what runs now, and go on showing how far it is."""
        with self._lock:
            self._what, self._run_dir = what, run_dir
            self._end_s = time.monotonic() + left_ns / NS_PER_S
        if self._is_terminal and self._thread is None:
            self._thread = threading.Thread(target=self._draw_on, daemon=True)
            self._thread.start()

    def has_run(self, line: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._what = ""
            erase = "\r\x1b[K" if self._is_terminal else ""
            text = textwrap.fill(f"whyidle: {line}", self._width, subsequent_indent="  ")
            write_aside(self._stream, f"{erase}{text}\n")

    def close(self) -> None:
        """Draw no more."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
            write_aside(self._stream, "\r\x1b[K")

    def _draw_on(self) -> None:
        while not self._is_over.wait(REDRAW_S):
            with self._lock:
                if self._what:
                    write_aside(self._stream, f"\r{self._line()}\x1b[K")

    def _line(self) -> str:
        from whyidle.observe.bounds import highest_step

        steps = highest_step(self._run_dir) if self._run_dir is not None else 0
        left = render_left(self._end_s - time.monotonic())
        done = f"{steps} steps" if steps else "starting"
        return f"whyidle: {self._what}: {done}; {left}"[: self._width - 1]


def render_left(seconds: float) -> str:
    """Say how much of the budget is left.

    >>> render_left(192.7), render_left(-3.0)
    ('3:12 left', 'about to end')
    """
    if seconds <= 0:
        return "about to end"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} left"


def _say_what_comes(arguments: argparse.Namespace) -> None:
    writes = _WRITES_COPY if arguments.workdir == "copy" else _WRITES_HERE
    write_aside(sys.stderr, _WARNING.format(minutes=arguments.minutes, writes=writes))


def _show(report: TrialReport, trial_dir: Path, json_path: Path | None) -> None:
    from whyidle.trial.record import render_report
    from whyidle.views.trial import render_trials

    if json_path is not None:
        json_path.write_text(render_report(report), encoding="utf-8")
    traits = read_traits(sys.stdout, os.environ)
    text = render_trials(
        report,
        width=traits.width,
        color=traits.color,
        blocks=traits.blocks,
        folder=trial_dir,
    )
    write_text(sys.stdout, text)
