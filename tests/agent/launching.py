"""Starts the launcher as a process of its own, as a person's shell does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).parents[2] / "src"
DEADLINE_S = 60.0
"""How long a test waits for something that must come; far beyond what it takes."""

DRIVER = """
import json, pathlib, sys
from whyidle.errors import LaunchError
from whyidle.observe.launch import run_observed
folder = pathlib.Path(sys.argv[1])
options = json.loads(sys.argv[2])
try:
    result = run_observed(sys.argv[3:], folder, **options)
except LaunchError as error:
    sys.exit(error.exit_status)
sys.exit(result.exit_status)
"""


def launcher_command(run_dir: Path, *command: str, options: str = "{}") -> list[str]:
    """The launcher's command line for a target."""
    return [sys.executable, "-c", DRIVER, str(run_dir), options, *command]


def launcher_environment(**extra: str) -> dict[str, str]:
    """The tester's environment, without what would change the target."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("WHYIDLE_", "PYTHONPATH", "COV_"))
    }
    return kept | {"PYTHONPATH": str(SOURCE)} | extra


def launch(
    run_dir: Path, *command: str, options: str = "{}", **kwargs: Any
) -> subprocess.CompletedProcess[str]:
    """Run a target under the launcher to its end."""
    kwargs.setdefault("capture_output", True)
    return subprocess.run(
        launcher_command(run_dir, *command, options=options),
        env=kwargs.pop("env", launcher_environment()),
        text=True,
        timeout=DEADLINE_S,
        check=False,
        **kwargs,
    )


@contextlib.contextmanager
def launched(
    run_dir: Path, *command: str, options: str = "{}", **kwargs: Any
) -> Iterator[subprocess.Popen[str]]:
    """A launcher that runs, with its output in a pipe; it and its group are ended at the end."""
    process = subprocess.Popen(
        launcher_command(run_dir, *command, options=options),
        env=kwargs.pop("env", launcher_environment()),
        stdout=subprocess.PIPE,
        text=True,
        # A group of its own in the tester's session: the kernel does not stop orphaned groups.
        preexec_fn=os.setpgrp,
        **kwargs,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds and return its value.

    Raises:
        TimeoutError: it never did.
    """
    end = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
    return value


def state_of(pid: int) -> str:
    """State letter of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
