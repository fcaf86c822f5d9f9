"""What a journal's header says of the process that writes it."""

from __future__ import annotations

import os
import sys

from whyidle_agent import boot, wire

_MYPY = False
if _MYPY:
    from typing import Any

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")


def torch_version() -> str | None:
    """Version of the torch that this process has imported; None without one."""
    version = getattr(sys.modules.get("torch"), "__version__", None)
    return None if version is None else str(version)


def describe(start_mono_ns: int, stopped: str | None) -> bytes:
    """The header's JSON text, short enough for its place.

    Args:
        start_mono_ns: When the journal was begun.
        stopped: Why recording ended before the process did; None while it goes on.
    """
    described: dict[str, Any] = {
        "role": "agent",
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "rank": _number_of(*_RANK),
        "local_rank": _number_of(*_LOCAL_RANK),
        "is_launcher": _is_launcher(),
        "is_worker": boot.is_data_worker(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": torch_version(),
        "argv0": os.path.basename(_program()),
        "start_mono_ns": start_mono_ns,
        "stopped": stopped,
    }
    text = _json_of(described)
    if len(text) > wire.HEADER_BYTES - wire.HEADER_JSON_OFFSET:
        described["argv0"] = ""
        text = _json_of(described)
    return text


def _program() -> str:
    return str((getattr(sys, "argv", None) or [""])[0])


def _number_of(*names: str) -> int | None:
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def _is_launcher() -> bool:
    """Whether this process only starts the ranks: it imports torch's loader, but never trains."""
    if "RANK" in os.environ:
        return False
    program = _program()
    if os.path.basename(program) in ("torchrun", "accelerate", "deepspeed"):
        return True
    return program.replace(os.sep, "/").endswith(
        ("torch/distributed/run.py", "torch/distributed/launch.py")
    )


def _json_of(values: dict[str, Any]) -> bytes:
    # By hand: importing json takes milliseconds, and may happen in a thread of ours.
    words = {None: "null", True: "true", False: "false"}
    pairs = []
    for name, value in values.items():
        if isinstance(value, str):
            written = '"' + "".join(map(_json_character, value)) + '"'
        else:
            written = (
                words[value] if value is None or isinstance(value, bool) else str(value)
            )
        pairs.append(f'"{name}": {written}')
    return ("{" + ", ".join(pairs) + "}").encode("ascii")


def _json_character(character: str) -> str:
    if " " <= character <= "~" and character not in '"\\':
        return character
    number = ord(character)
    if number > 0xFFFF:
        number -= 0x10000
        return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
    return f"\\u{number:04x}"
