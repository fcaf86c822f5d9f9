"""The processes of a run and what each of them is.

NOTE [roles]
    A worker is a process that was forked and runs on without an exec (its arguments are its parent's), or that
    multiprocessing spawned, below a training process. Torch names worker threads since 2.5; older ones have only this.
    The training process is the topmost Python in the tree that iterates; before the first step, the topmost that
    records, has a RANK, or at least is Python. A Python above a training process is a launcher.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whyidle.store.live import LiveJournal

WORKER_THREAD_NAME = "pt_data_worker"
_SPAWNED = "--multiprocessing-fork"
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Role(IntEnum):
    """What a process is; the numbers are those of `wire.PROCESS_ROLE_*`."""

    TRAINING = 1
    WORKER = 2
    LAUNCHER = 3
    OTHER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One process of the tree, as far as its role depends on it."""

    pid: int
    parent_pid: int
    name: str
    """Of its main thread."""
    executable: str
    """Path of the program; empty when it cannot be read."""
    command_line: tuple[str, ...]


def assign_roles(
    processes: Mapping[int, Seen], journals: Mapping[int, LiveJournal]
) -> dict[int, Role]:
    """Tell what each process is. See NOTE [roles]."""
    training = _training_pids(processes, journals)
    above = {pid for one in training for pid in _ancestors(one, processes)}
    roles = {}
    for pid, seen in processes.items():
        if pid in training:
            roles[pid] = Role.TRAINING
        elif _is_worker(seen, processes, journals) and training.intersection(
            _ancestors(pid, processes)
        ):
            roles[pid] = Role.WORKER
        elif pid in above and (is_python(seen) or pid in journals):
            roles[pid] = Role.LAUNCHER
        else:
            roles[pid] = Role.OTHER
    return roles


def is_python(seen: Seen) -> bool:
    """Tell whether a process is a Python interpreter."""
    program = seen.executable or (seen.command_line[0] if seen.command_line else "")
    return posixpath.basename(program).startswith(("python", "pypy"))


def _training_pids(
    processes: Mapping[int, Seen], journals: Mapping[int, LiveJournal]
) -> frozenset[int]:
    """The ranks: by the strongest sign that any process gives."""
    candidates = {
        pid
        for pid, seen in processes.items()
        if not _is_worker(seen, processes, journals) and not _is_helper(seen)
    }
    live = {pid: journals[pid] for pid in candidates if pid in journals}
    stepping = {pid for pid, journal in live.items() if journal.step_count > 0}
    ranked = {pid for pid, journal in live.items() if journal.has_rank}
    signs = (
        # One rank may step before the others do.
        stepping | ranked if stepping & ranked else stepping,
        ranked,
        {pid for pid, journal in live.items() if not journal.is_launcher},
        {pid for pid in candidates if is_python(processes[pid])},
    )
    for found in signs:
        if found:
            return frozenset(_topmost(found, processes))
    return frozenset()


def _topmost(pids: set[int], processes: Mapping[int, Seen]) -> set[int]:
    return {pid for pid in pids if not pids.intersection(_ancestors(pid, processes))}


def _is_worker(
    seen: Seen, processes: Mapping[int, Seen], journals: Mapping[int, LiveJournal]
) -> bool:
    if seen.name == WORKER_THREAD_NAME:
        return True
    journal = journals.get(seen.pid)
    if journal is not None:
        # It says so itself: ranks that were spawned look like workers from outside.
        return journal.is_worker
    if _SPAWNED in seen.command_line:
        return True
    parent = processes.get(seen.parent_pid)
    return (
        parent is not None
        and bool(seen.command_line)
        and (
            seen.command_line == parent.command_line
            and seen.executable == parent.executable
        )
    )


def _is_helper(seen: Seen) -> bool:
    return any(helper in part for part in seen.command_line for helper in _HELPERS)


def _ancestors(pid: int, processes: Mapping[int, Seen]) -> Iterator[int]:
    seen = processes.get(pid)
    passed = {pid}
    while seen is not None and seen.parent_pid not in passed:
        passed.add(seen.parent_pid)
        if seen.parent_pid in processes:
            yield seen.parent_pid
        seen = processes.get(seen.parent_pid)
