"""The run folder while its training runs: made ready, asked how far the ranks are, told when to stop.

Cheap to import: the launcher starts the target only after this.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

JOURNALS_FOLDER = "journals"
BOOTED_FOLDER = "booted"
"""One empty file a process in which the agent came up, named by its pid."""

ENV_RUN_DIR = wire.ENV_RUN_DIR
ENV_STEPS = wire.ENV_STEPS
ENV_TRIAL = wire.ENV_TRIAL
ENV_SHADOWED_PATH = wire.ENV_SHADOWED_PATH
_STOP_AT_STEP = struct.Struct("<q")
_PROGRESS = struct.Struct("<6q")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJournal:
    """What the header of an agent's journal says now."""

    pid: int
    step_count: int
    """Training steps asked for so far."""
    heartbeat_ns: int
    """Monotonic time of the last ask or fetch; 0 before the first."""
    has_rank: bool
    """True when the process was given a RANK."""
    is_launcher: bool
    """True for a process that starts ranks."""
    is_worker: bool
    """True for a worker of a data loader."""


def prepare_run_dir(run_dir: Path) -> None:
    """Make the folders and the control file that agents expect.

    Raises:
        OSError: the folder cannot be written.
    """
    (run_dir / JOURNALS_FOLDER).mkdir(parents=True, exist_ok=True)
    (run_dir / BOOTED_FOLDER).mkdir(exist_ok=True)
    control = run_dir / wire.CONTROL_FILE
    if not control.exists():
        control.write_bytes(bytes(wire.CONTROL_BYTES))


def write_stop_at_step(run_dir: Path, step: int) -> None:
    """Tell every rank to end its loop at this step.

    Raises:
        OSError: the control file is gone.
    """
    file = os.open(run_dir / wire.CONTROL_FILE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(file, _STOP_AT_STEP.pack(step), 0)
    finally:
        os.close(file)


def list_agent_journals(run_dir: Path) -> dict[int, Path]:
    """Pid to journal of every process in which an agent records; a pid used twice has its newest."""
    found: dict[int, Path] = {}
    folder = run_dir / JOURNALS_FOLDER
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for path in sorted((folder / name for name in names), key=start_of_journal):
        role, _, rest = path.name.partition("-")
        pid = rest.partition("-")[0]
        if role == "agent" and pid.isdigit() and path.name.endswith(wire.JOURNAL_SUFFIX):
            found[int(pid)] = path
    return found


def list_booted(run_dir: Path) -> frozenset[int]:
    """Pids of the interpreters in which the agent came up, whether or not they record."""
    try:
        names = os.listdir(run_dir / BOOTED_FOLDER)
    except OSError:
        return frozenset()
    return frozenset(int(name) for name in names if name.isdigit())


def load_live_journal(path: Path) -> LiveJournal | None:
    """Read the header of a journal that is being written; None when there is none yet."""
    try:
        with open(path, "rb") as file:
            page = file.read(wire.HEADER_BYTES)
    except OSError:
        return None
    if len(page) < wire.HEADER_BYTES or not page.startswith(wire.MAGIC):
        return None
    return _parse_live_header(page)


def _parse_live_header(page: bytes) -> LiveJournal | None:
    _, _, json_bytes = wire.HEADER.unpack_from(page, 0)
    numbers = _PROGRESS.unpack_from(page, wire.PROGRESS_OFFSET)
    progress = dict(zip(wire.PROGRESS_FIELDS, numbers, strict=True))
    header: dict[str, Any] = {}
    # A header that is being rewritten right now does not parse; the next look will.
    with contextlib.suppress(ValueError):
        header = json.loads(page[wire.HEADER_JSON_OFFSET :][:json_bytes])
    if not isinstance(header.get("pid"), int):
        return None
    return LiveJournal(
        pid=header["pid"],
        step_count=progress["step_count"],
        heartbeat_ns=progress["heartbeat_ns"],
        has_rank=header.get("rank") is not None,
        is_launcher=bool(header.get("is_launcher")),
        is_worker=bool(header.get("is_worker")),
    )


def start_of_journal(path: Path) -> int:
    """When a journal was begun, monotonic ns, from its name; 0 for a foreign one."""
    start = path.name.removesuffix(wire.JOURNAL_SUFFIX).rpartition("-")[2]
    return int(start) if start.isdigit() else 0
