"""The command line. One subcommand a file, the only place where all parts meet.

NOTE [starting fast]
    A command's module imports at its head what costs little. Tables and screens (numpy, polars, rich) are
    imported where they are used: `whyidle run` starts the training before it loads any of them.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyidle import __version__
from whyidle.commands.parsing import Command, make_parser
from whyidle.commands.problems import say_crash, say_problem
from whyidle.errors import UsageError, WhyidleError
from whyidle.views.streams import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Entry:
    """A subcommand, known without importing its module."""

    name: str
    """As a person types it; also the name of the module, with `_` behind it where it is a word of Python."""
    class_name: str
    summary: str
    """First line of the class' docstring."""


COMMANDS = (
    Entry(
        "run",
        "RunCommand",
        "Run a training under observation and say why its device was idle.",
    ),
    Entry("report", "ReportCommand", "Show the verdict of a recorded run again."),
    Entry(
        "try",
        "TryCommand",
        "Forecast what loader settings would gain, then try them.",
    ),
    Entry(
        "compare",
        "CompareCommand",
        "Compare two recorded runs, before and after a change.",
    ),
    Entry("check", "CheckCommand", "Fail when a recorded run was starved: a gate for CI."),
    Entry(
        "prove",
        "ProveCommand",
        "Check a replacement for a slow function before it is made, on real inputs.",
    ),
    Entry(
        "fix", "FixCommand", "Set what a trial proved, where the script builds its loader."
    ),
    Entry(
        "doctor", "DoctorCommand", "Tell what can be observed here, what cannot, and why."
    ),
    Entry(
        "demo",
        "DemoCommand",
        "Watch a starved training get its verdict, in about a minute.",
    ),
)
"""In the order of `whyidle --help`."""
INTERNAL_ERROR_STATUS = 70
"""EX_SOFTWARE of sysexits.h."""
BROKEN_PIPE_STATUS = 141
"""128 + SIGPIPE, as a shell reports a program that its reader has left."""
INTERRUPT_STATUS = 130

_DESCRIPTION = """\
Why is the accelerator idle during training? The cause, its seconds and its line,
for an unmodified script."""
_EXAMPLE = """\
example:
  whyidle run --steps 200 -- python train.py

`whyidle COMMAND --help` says more about each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit status. No traceback reaches a person."""
    try:
        status = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        write_text(sys.stdout, "")
    except WhyidleError as error:
        say_problem(error)
        return error.exit_status
    except BrokenPipeError:
        _leave_stdout()
        return BROKEN_PIPE_STATUS
    except KeyboardInterrupt:
        return INTERRUPT_STATUS
    except Exception as error:  # noqa: BLE001  (a person gets one line and a file, see say_crash)
        say_crash(error)
        return INTERNAL_ERROR_STATUS
    return status


def load_command(name: str) -> Command:
    """Import a subcommand.

    Raises:
        UsageError: there is no such command.
    """
    classes = {entry.name: entry.class_name for entry in COMMANDS}
    if name not in classes:
        raise UsageError(
            f"there is no command {name!r}; expected one of {', '.join(classes)}",
            slug="unknown-command",
            hint="To observe a training, put `whyidle run --` in front of its command.",
        )
    file = f"{name}_" if keyword.iskeyword(name) else name
    module = importlib.import_module(f"whyidle.commands.{file}")
    command: Command = getattr(module, classes[name])()
    return command


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        write_text(sys.stdout, _render_help())
        return 0 if arguments else UsageError.exit_status
    if arguments[0] in ("-V", "--version"):
        write_text(sys.stdout, f"whyidle {__version__}\n")
        return 0
    command = load_command(arguments[0])
    parser = make_parser(arguments[0], command)
    try:
        parsed = parser.parse_args(arguments[1:])
    except SystemExit as end:  # --help was printed
        return int(end.code or 0)
    return command.run(parsed)


def _render_help() -> str:
    lines = ["usage: whyidle COMMAND ...", "", _DESCRIPTION, "", "commands:"]
    lines += [f"  {entry.name:<8} {entry.summary}" for entry in COMMANDS]
    return "\n".join([*lines, "", _EXAMPLE, ""])


def _leave_stdout() -> None:
    """Let the interpreter's last flush of stdout go nowhere instead of failing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
    finally:
        os.close(nowhere)
