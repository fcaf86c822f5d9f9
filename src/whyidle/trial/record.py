"""The folder of a try: the forecast, written down before the first trial, and the report, rewritten behind every one.

<parent>/trial-<YYYYmmdd-HHMMSS>-<n>/
    forecast.json   what was forecast, and when; never touched again
    trial.json      what is known by now
    recorded/       the recorded run, an ordinary run folder
    runs/NN/        one run folder a block
    output/NN.log   what the training printed in it
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

from whyidle.errors import RunFolderError
from whyidle.model.trial import TRIAL_SCHEMA_VERSION, candidate_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whyidle.model.trial import Candidate, TrialReport

FORECAST_NAME = "forecast.json"
REPORT_NAME = "trial.json"
RECORDED_FOLDER = "recorded"
RUNS_FOLDER = "runs"
OUTPUT_FOLDER = "output"


def create_trial_dir(parent: Path) -> Path:
    """Make a new, empty folder for a try.

    Raises:
        RunFolderError: `run-folder-not-writable`.
    """
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 1
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = parent / f"trial-{stamp}-{number}"
            try:
                folder.mkdir()
                break
            except FileExistsError:
                number += 1
        (folder / RUNS_FOLDER).mkdir()
        (folder / OUTPUT_FOLDER).mkdir()
    except OSError as error:
        raise RunFolderError(
            f"no folder for trials can be made in {str(parent)!r}: {error.strerror or error}; "
            "expected a folder that can be written",
            slug="run-folder-not-writable",
            hint="name another folder with --out",
        ) from error
    return folder


def write_forecasts(
    folder: Path, candidates: Sequence[Candidate], command: Sequence[str]
) -> str:
    """Write down what is forecast, with the time.

    Args:
        folder: Folder of the try.
        candidates: With their forecasts; combinations included.
        command: The training.

    Returns:
        SHA-256 of the file, hexadecimal: `sha256sum forecast.json` gives the same as long as nobody touched it.

    Raises:
        OSError: the folder cannot be written.
    """
    content = {
        "schema_version": TRIAL_SCHEMA_VERSION,
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
        "candidates": [candidate_json(one) for one in candidates],
    }
    data = (json.dumps(content, indent=2) + "\n").encode()
    path = folder / FORECAST_NAME
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(data).hexdigest()


def render_report(report: TrialReport) -> str:
    """Write the report as JSON."""
    return json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n"


def write_report(folder: Path, report: TrialReport) -> None:
    """Write `trial.json`: the old one or the new one is there at any moment.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = folder / f".{REPORT_NAME}-{os.getpid()}"
    try:
        temporary.write_text(render_report(report), encoding="utf-8")
        temporary.replace(folder / REPORT_NAME)
    finally:
        temporary.unlink(missing_ok=True)


def read_last_lines(path: Path, count: int) -> list[str]:
    """Give the last lines of what a training printed; none when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]
