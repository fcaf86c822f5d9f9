"""What the bench asks of another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

from scenarios.bench.answers import Answer

TRAINER = Path(__file__).resolve().parent.parent / "programs/trainer.py"


class Tool(Protocol):
    """One other tool: how it is started, and how what it says is read."""

    name: str
    how: str
    """One sentence: how it is used, and how its words are mapped to ours."""

    def unavailable(self) -> str | None:
        """Say why it cannot be used here; None when it can."""

    def version(self) -> str:
        """Give its version, for the report."""

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Give the command that runs the script under it."""

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Give its answer, and its own words or why there is none."""


def trained(python: Path | str, run: str, scratch: Path, script: list[str]) -> list[str]:
    """Give the command that makes training steps visible to a tool; see programs/trainer.py."""
    return [str(python), *before_script(script, [str(TRAINER), run, str(scratch)])]


def before_script(script: list[str], program: list[str]) -> list[str]:
    """Put a program before the script, behind what launches its ranks."""
    launcher, rest = launcher_and_script(script)
    return [*launcher, *program, *rest]


def launcher_and_script(script: list[str]) -> tuple[list[str], list[str]]:
    """Take the launcher of ranks off; empty for a training of one process."""
    place = next(number for number, it in enumerate(script) if it.endswith("train.py"))
    return script[:place], script[place:]


def with_argument(script: list[str], name: str, value: str) -> list[str]:
    """Replace the value of one of the script's `--name=value` arguments."""
    head = f"--{name}="
    return [head + value if it.startswith(head) else it for it in script]


def python() -> str:
    """Give the interpreter that trainings run in."""
    return sys.executable
