"""What a subcommand is, and the parser it gets."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from typing import NoReturn, Protocol

from whyidle.errors import UsageError

HELP_WIDTH = 80


class Command(Protocol):
    """A subcommand. The docstring of its class is its help; the first line stands in `whyidle --help`."""

    usage: str
    """Arguments as a person types them, behind the command's name."""
    examples: tuple[str, ...]
    """What a person may type, shown at the end of the help."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; gives the exit status."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, slug="bad-arguments", hint=f"See `{self.prog} --help`.")


def make_parser(name: str, command: Command) -> argparse.ArgumentParser:
    """Give the parser of a subcommand."""
    examples = "\n".join(f"  {line}" for line in command.examples)
    parser = _Parser(
        prog=f"whyidle {name}",
        usage=f"whyidle {name} {command.usage}",
        description=_fill(inspect.getdoc(type(command)) or ""),
        epilog=f"example{'s' if len(command.examples) > 1 else ''}:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser


def _fill(text: str) -> str:
    """Break each paragraph into lines of HELP_WIDTH."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(textwrap.fill(one, HELP_WIDTH) for one in paragraphs)


def whole_number(text: str) -> int:
    """Parse a number of steps.

    Raises:
        argparse.ArgumentTypeError: it is not a whole number of at least 1.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1, got {text!r}"
        )
    return int(text)


def positive_minutes(text: str) -> float:
    """Parse a length of time in minutes.

    Raises:
        argparse.ArgumentTypeError: it is not a finite number above 0.
    """
    return _positive(text, "minutes")


def positive_seconds(text: str) -> float:
    """Parse a length of time in seconds.

    Raises:
        argparse.ArgumentTypeError: it is not a finite number above 0.
    """
    return _positive(text, "seconds")


def _positive(text: str, unit: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expected a number of {unit} above 0, got {text!r}"
        )
    return seconds


def ratio(text: str) -> float:
    """Parse a share, 0 to 1.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f"expected a share from 0 to 1, for example 0.10, got {text!r}"
        )
    return value


def positive_ms(text: str) -> float:
    """Parse a length of time in milliseconds.

    Raises:
        argparse.ArgumentTypeError: it is not a finite number above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expected a number of milliseconds above 0, got {text!r}"
        )
    return value
