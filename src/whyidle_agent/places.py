"""Which line of the person's own code led to a call."""

from __future__ import annotations

import os
import sys

_MYPY = False
if _MYPY:
    from types import CodeType, FrameType

MAX_CACHED_FILES = 4096
"""Files whose kind is remembered."""
MAX_FRAMES = 200
"""How far up a stack is looked."""

_INNER, _LIBRARY, _OWN = 0, 1, 2
"""Torch, the standard library and this package; any other installed package; the person's code."""
_GLUE = frozenset(("__iter__", "__next__"))
"""Functions that pass an iteration on: the loop is further out."""

_AGENT_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD_FOLDER = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_kinds: dict[str, int] = {}


def calling_place(depth: int = 1) -> tuple[str, int]:
    """File and line that called us: of the person's code; failing that, of a library's.

    Args:
        depth: Frames to skip first.

    Returns:
        ("", 0) when there is neither.
    """
    frame: FrameType | None = sys._getframe(depth)
    best: tuple[int, FrameType] | None = None
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        rank = _rank_of(frame.f_code)
        if rank and (best is None or rank > best[0]):
            best = (rank, frame)
            if rank == _BEST_RANK:
                break
        frame = frame.f_back
    if best is None:
        return "", 0
    return best[1].f_code.co_filename, best[1].f_lineno or 0


_BEST_RANK = 4


def _rank_of(code: CodeType) -> int:
    """0: never; then glue of a library, a library, glue of the person, the person's code."""
    file = code.co_filename
    kind = _kinds.get(file)
    if kind is None:
        kind = _kind_of(file)
        if len(_kinds) < MAX_CACHED_FILES:
            _kinds[file] = kind
    return 0 if kind == _INNER else 2 * kind - (code.co_name in _GLUE)


def _kind_of(file: str) -> int:
    torch_file = getattr(sys.modules.get("torch"), "__file__", None)
    torch_folder = os.path.dirname(torch_file) + os.sep if torch_file else _AGENT_FOLDER
    if file.startswith((_AGENT_FOLDER, torch_folder, "<frozen ")):
        return _INNER
    if any(part in file for part in _INSTALLED):
        return _LIBRARY
    return _INNER if file.startswith(_STANDARD_FOLDER) else _OWN
