"""Start in an interpreter or stay out of it.

Everything heavier than two small modules waits until the target imports torch's data loader:
most interpreters of a run (compilers, helpers, shells' one-liners) never do.
"""

from __future__ import annotations

import os
import sys

# wire.py is not imported here: it needs struct, which many interpreters never load.
_ENV_RUN_DIR = "WHYIDLE_RUN_DIR"
_ENV_CAPTURE = "WHYIDLE_CAPTURE"
_ENV_TRIAL = "WHYIDLE_TRIAL"
BOOTED_FOLDER = "booted"
"""Folder in the run folder with one empty file a process, named by its pid: the agent came up there."""

_run_dir: str | None = None
_told_worker = False
_has_audit_hook = False


def run_dir() -> str | None:
    """Absolute path of the run folder; None while the agent stays out."""
    return _run_dir


def start() -> None:
    """Start once in this interpreter if a run folder is named in the environment.

    Cost: about 1 ms of CPU per interpreter, two modules.
    """
    global _run_dir
    named = os.environ.get(_ENV_RUN_DIR)
    if not named or _run_dir is not None:
        return
    _run_dir = os.path.abspath(named)
    _leave_sign(_run_dir)
    _notice_audit_hooks()
    if os.environ.get(_ENV_CAPTURE):
        _start_capture(_run_dir)
    if os.environ.get(_ENV_TRIAL):
        _prepare_trial()
    from whyidle_agent import hooks

    hooks.install()


def _start_capture(folder: str) -> None:
    try:
        from whyidle_agent import capture

        capture.start(folder)
    except Exception:
        # Without it nothing is captured, and `whyidle prove` says so; the run is observed all the same.
        return


def _prepare_trial() -> None:
    """Give the process the CPUs of the trial before any library counts those it may use."""
    try:
        from whyidle_agent import trial

        trial.prepare_process()
    except Exception:
        return


def _notice_audit_hooks() -> None:
    """Have `sys.addaudithook` tell: code of the target must not run in the midst of a look at its stacks."""
    original = sys.addaudithook

    def addaudithook(hook: object) -> None:
        global _has_audit_hook
        _has_audit_hook = True
        original(hook)  # type: ignore[arg-type]

    sys.addaudithook = addaudithook


def has_audit_hook() -> bool:
    """Whether the target has added an audit hook to this process."""
    return _has_audit_hook


def _leave_sign(folder: str) -> None:
    """Create `booted/<pid>`: the launcher tells by its absence that an interpreter was isolated."""
    path = os.path.join(folder, BOOTED_FOLDER, str(os.getpid()))
    flags = os.O_CREAT | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
    try:
        try:
            sign = os.open(path, flags, 0o644)
        except FileNotFoundError:
            make_folder(os.path.dirname(path))
            sign = os.open(path, flags, 0o644)
        os.close(sign)
    except OSError:
        # A folder that cannot be written stops recording, not bounded runs: go on.
        return


def make_folder(path: str) -> None:
    """Create a folder in the run folder, unless another process of the run has just done so.

    Raises:
        OSError: it cannot be created.
    """
    try:
        os.mkdir(path)
    except FileExistsError:
        return


def tell_worker() -> None:
    """Say that this process is a worker, before torch itself knows."""
    global _told_worker
    _told_worker = True


def is_data_worker() -> bool:
    """Whether this process is a worker of a torch data loader."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return _told_worker or getattr(worker, "_worker_info", None) is not None
