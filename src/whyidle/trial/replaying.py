"""Processes of the training's own interpreter that replay captured calls, and the way to talk to them.

One process stands for one worker. Each answers one JSON object a line; see whyidle_agent/replay.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.errors import WhyidleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whyidle.store.captures import CapturedFunction

_BOOT = """
import importlib.util, os, sys
folder = {folder!r}
spec = importlib.util.spec_from_file_location(
    "whyidle_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
sys.modules["whyidle_agent"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["whyidle_agent"])
from whyidle_agent import replay
replay.main()
"""
"""Imports the agent's package by its folder, so that nothing else of ours is importable for the training's code."""
LOAD_SECONDS = 300.0
"""To import the training's modules: torch from a cold network file system takes minutes."""
CALL_SECONDS = 60.0
"""To answer for calls, beside what they took in the training ..."""
SLOWER = 100.0
"""... times this: NEW may be slower than OLD, but not without end."""
_LAST_LINES = 3
"""Of a process' stderr that are shown when it fails."""


class Replayer:
    """One process that replays calls."""

    def __init__(self, capture: CapturedFunction, errors: Path) -> None:
        """Start it.

        Raises:
            WhyidleError: `replay-failed`: the training's interpreter cannot be started.
        """
        self._errors = errors
        self._capture = capture
        try:
            with errors.open("wb") as stderr:
                self._process = subprocess.Popen(
                    [
                        capture.target["executable"],
                        "-c",
                        _BOOT.format(folder=_agent_folder()),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=_environment(os.environ),
                    text=True,
                )
        except OSError as error:
            raise _failed(
                f"the training's interpreter {capture.target['executable']!r} cannot be started: {error.strerror}",
                "Run `whyidle prove` where the training ran, in the same environment.",
            ) from error

    def ask(self, question: Mapping[str, Any]) -> None:
        """Send a question; `answer` waits for what comes back.

        Raises:
            WhyidleError: `replay-failed`: the process is gone.
        """
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(json.dumps(question) + "\n")
                stdin.flush()
        except OSError as error:
            raise self._died() from error

    def answer(self, seconds: float) -> dict[str, Any]:
        """Wait for an answer.

        Raises:
            WhyidleError: `replay-failed`: none came in this time, the process ended, or it says what went wrong.
        """
        stdout = self._process.stdout
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            line = stdout.readline() if stdout is not None else ""
        finally:
            timer.cancel()
        if not line:
            raise self._died()
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise self._cannot_load(found)
        return found

    def end(self) -> None:
        """End it, and wait until it is gone."""
        self._process.kill()
        self._process.communicate()

    def _cannot_load(self, found: Mapping[str, Any]) -> WhyidleError:
        arm = {"old": "OLD", "new": "NEW"}.get(str(found.get("arm")))
        what = f"{arm} cannot be loaded" if arm else "a captured call cannot be replayed"
        return _failed(
            f"{what}: {found['error']}",
            "It is imported as the training imported it: same interpreter, same folder, same import path.",
        )

    def _died(self) -> WhyidleError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        lines = self._errors.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        said = f": {' | '.join(lines)}" if lines else ""
        return _failed(
            f"the process that calls OLD and NEW ended or hung, with status {self._process.returncode}{said}",
            "Call both on one input by hand; a crash in native code ends the process.",
        )


@contextlib.contextmanager
def open_replayers(
    capture: CapturedFunction, count: int, question: Mapping[str, Any]
) -> Iterator[list[Replayer]]:
    """Start processes, have each load both functions, and end them all in the end.

    Raises:
        WhyidleError: `replay-failed`.
    """
    opened: list[Replayer] = []
    with tempfile.TemporaryDirectory(prefix="whyidle-prove-") as folder:
        try:
            opened.extend(
                Replayer(capture, Path(folder) / str(number)) for number in range(count)
            )
            ask_all(opened, [question] * count, LOAD_SECONDS)
            yield opened
        finally:
            for replayer in opened:
                replayer.end()


def ask_all(
    replayers: Sequence[Replayer], questions: Sequence[Mapping[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """Ask several processes at once, one question each, and wait for all.

    Raises:
        WhyidleError: `replay-failed`.
    """
    pairs = list(zip(replayers, questions, strict=False))
    for replayer, question in pairs:
        replayer.ask(question)
    return [replayer.answer(seconds) for replayer, _ in pairs]


def _agent_folder() -> str:
    """Where the agent is; it is not imported here."""
    spec = importlib.util.find_spec("whyidle_agent")
    if spec is None or spec.origin is None:
        raise _failed("the agent's folder is not found", "Install whyidle again.")
    return str(Path(spec.origin).resolve().parent)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The person's environment, without what an agent listens to."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("WHYIDLE_")
    }


def _failed(message: str, hint: str) -> WhyidleError:
    return WhyidleError(
        f"{message}; expected both functions to run on captured inputs",
        slug="replay-failed",
        hint=hint,
    )
