"""What `whyidle run --capture` kept of a function: where it lies in a run folder, and what was counted.

    capture/<number>-<function>/<slot>/summary.json
    capture/<number>-<function>/<slot>/<call>.pickle

Written by whyidle_agent/capture.py. Pickles are never opened here: they name classes of the training, and only a
process of the training's own interpreter (whyidle_agent/replay.py) can and may load them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.errors import RunFolderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

ENV_CAPTURE = "WHYIDLE_CAPTURE"
"""How the agent is told: one function a line."""
CAPTURE_FOLDER = "capture"
FORMAT_VERSION = 1
_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function as a person names it: `file.py:function` or `file.py:Class.method`."""

    file: str
    function: str

    def __str__(self) -> str:
        """Give it as it is typed."""
        return f"{self.file}:{self.function}"

    def is_at(self, other: FunctionName) -> bool:
        """Tell whether this may be the function with an absolute path: the same path, or its end.

        >>> FunctionName("data/maps.py", "draw").is_at(FunctionName("/job/data/maps.py", "draw"))
        True
        """
        if self.function != other.function:
            return False
        if os.path.realpath(self.file) == os.path.realpath(other.file):
            return True
        return not os.path.isabs(self.file) and other.file.endswith(
            f"{os.sep}{os.path.normpath(self.file)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFunction:
    """A function, what was kept of its calls, and what was not."""

    name: FunctionName
    """With an absolute path."""
    module: str
    """As the training imported it; `__main__` for the script."""
    target: dict[str, Any]
    """Interpreter, folder, import path and script of the training; see capture.py."""
    records: tuple[Path, ...]
    """One file a call, spread evenly over the run; in order of the slots, then of the calls."""
    slots: int
    """Processes that captured at once."""
    calls: int
    """Calls seen, kept or not; at least this many."""
    wall_ns: int
    """Their time, added up; what keeping them took is not in it."""
    cpu_ns: int
    raised: int
    """Calls that raised an exception: not kept."""
    refused: dict[str, int]
    """Reason to count of calls that could not be kept."""

    @property
    def mean_wall_ns(self) -> float:
        """Time of a call in the training."""
        return self.wall_ns / max(self.calls, 1)


def parse_function_name(text: str) -> FunctionName:
    """Parse `file.py:function`.

    Raises:
        UsageError: `bad-function-name`.
    """
    file, _, function = text.rpartition(":")
    parts = function.split(".")
    if not file.endswith(".py") or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"cannot read {text!r} as a function; expected file.py:function or file.py:Class.method",
            slug="bad-function-name",
            hint="For example: targets.py:outline_maps",
        )
    return FunctionName(file, function)


def write_captures(names: Sequence[FunctionName]) -> str:
    """Give the value of ENV_CAPTURE. A file that is here is named in full; any other may be anywhere."""
    return "\n".join(
        f"{os.path.abspath(one.file) if os.path.exists(one.file) else one.file}:{one.function}"
        for one in names
    )


def load_captures(run_dir: Path) -> list[CapturedFunction]:
    """Load what was kept of each function, in the order in which they were named."""
    folders = _sorted_folders(run_dir / CAPTURE_FOLDER)
    found = [_load_function(folder) for folder in folders]
    return [one for one in found if one is not None]


def find_capture(run_dir: Path, name: FunctionName) -> CapturedFunction:
    """Give what was kept of a function.

    Raises:
        RunFolderError: `nothing-captured` when the run kept no call of it.
    """
    captures = load_captures(run_dir)
    for one in captures:
        if name.is_at(one.name) and one.records:
            return one
    raise _nothing_captured(run_dir, name, captures)


def _nothing_captured(
    run_dir: Path, name: FunctionName, captures: Sequence[CapturedFunction]
) -> RunFolderError:
    seen = [one for one in captures if name.is_at(one.name)]
    if seen:
        refused = "; ".join(f"{why} ({count})" for why, count in seen[0].refused.items())
        reason = f"of {seen[0].calls} calls none could be kept: {refused or 'all raised'}"
        hint = "Capture a function further in, whose arguments can be pickled."
    elif captures:
        kept = ", ".join(str(one.name) for one in captures)
        reason = f"it kept calls of {kept}"
        hint = (
            f"Name one of these, or record again: whyidle run --capture {name} -- COMMAND"
        )
    else:
        reason = "no call was seen in a worker, nor in a loop without workers"
        hint = f"Record one: whyidle run --capture {name} -- COMMAND"
    return RunFolderError(
        f"{str(run_dir)!r} holds no call of {name}: {reason}; expected at least one",
        slug="nothing-captured",
        hint=hint,
    )


def _load_function(folder: Path) -> CapturedFunction | None:
    slots = _sorted_folders(folder)
    summaries = [one for one in map(_load_summary, slots) if one is not None]
    if not summaries:
        return None
    refused: Counter[str] = Counter()
    for one in summaries:
        refused.update(one["refused"])
    first = summaries[0]
    return CapturedFunction(
        name=FunctionName(first["file"], first["function"]),
        module=first["module"],
        target=first["target"],
        records=tuple(path for slot in slots for path in sorted(slot.glob("*.pickle"))),
        slots=len(summaries),
        calls=sum(one["calls"] for one in summaries),
        wall_ns=sum(one["wall_ns"] for one in summaries),
        cpu_ns=sum(one["cpu_ns"] for one in summaries),
        raised=sum(one["raised"] for one in summaries),
        refused=dict(refused),
    )


def _load_summary(slot: Path) -> dict[str, Any] | None:
    """Load the counts of a slot; None where they are missing, damaged, or of another version."""
    try:
        summary = json.loads((slot / _SUMMARY).read_bytes())
    except (OSError, ValueError):
        return None
    known = isinstance(summary, dict) and summary.get("version") == FORMAT_VERSION
    return summary if known else None


def _sorted_folders(parent: Path) -> list[Path]:
    """Give the folders in a folder by the number that their names begin with."""
    try:
        names = os.listdir(parent)
    except OSError:
        return []
    numbered = [(name.partition("-")[0], name) for name in names]
    return [
        parent / name
        for number, name in sorted(
            (int(number), name) for number, name in numbered if number.isdigit()
        )
    ]
