"""Processes of a run are found with and without the kernel's list of children, and numbers are not confused."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from whyidle.observe import procfs
from whyidle.observe.processes import ProcessTable
from whyidle.store import live
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Journal:
    """Takes process records like an appender does."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def process(self, **fields: object) -> None:
        """Keep one."""
        self.rows.append(fields)


@pytest.fixture
def tree() -> Iterator[list[int]]:
    """A shell and its child, blocked: their pids."""
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(shell.stdout.readline())
    yield [shell.pid, child]
    for pid in (child, shell.pid):
        os.kill(pid, 9)
    shell.communicate()


def _table(folder: Path, root_pid: int) -> tuple[ProcessTable, Journal]:
    live.prepare_run_dir(folder)
    journal = Journal()
    return ProcessTable(folder, root_pid, journal), journal


@pytest.mark.parametrize("has_children_files", [True, False])
def test_descendants_are_found(
    tmp_path: Path,
    tree: list[int],
    monkeypatch: pytest.MonkeyPatch,
    has_children_files: bool,
) -> None:
    """A kernel without lists of children costs a search by parents, with the same answer."""

    def refuse(*_: int) -> tuple[int, ...]:
        raise FileNotFoundError

    if not has_children_files:
        monkeypatch.setattr(procfs, "read_children", refuse)
    table, _ = _table(tmp_path, tree[0])
    now_ns = time.monotonic_ns()

    table.update(now_ns)
    table.update(now_ns + 2 * NS_PER_S)
    table.close(now_ns)

    assert set(table.known) == set(tree)


def test_end_of_a_process_is_written(tmp_path: Path, tree: list[int]) -> None:
    """A process that is replaced under its number has ended; its CPU time stays in the sum."""
    table, journal = _table(tmp_path, tree[0])
    now_ns = time.monotonic_ns()
    table.update(now_ns)
    child = table.known[tree[1]]
    child.start_ticks -= 1
    child.cpu_ns = 7 * NS_PER_S

    table.update(now_ns + 2 * NS_PER_S)
    ended = table.take_ended()
    table.close(now_ns)

    assert ended == [tree[1]]
    assert [row["pid"] for row in journal.rows if row["end_ns"] is not None] == [tree[1]]
    assert table.tree_cpu_ns() >= 7 * NS_PER_S
    assert table.take_ended() == []


def test_roles_are_written_once_they_have_settled(tmp_path: Path, tree: list[int]) -> None:
    """Young processes may be between fork and exec: they are written a moment later, then only on changes."""
    table, journal = _table(tmp_path, tree[0])
    now_ns = time.monotonic_ns()

    counts = []
    for seconds in (0, 2, 4):
        table.update(now_ns + seconds * NS_PER_S)
        counts.append(len(journal.rows))
    table.close(now_ns)

    assert counts == [0, 2, 2]


def test_process_that_only_records_is_taken_in(tmp_path: Path, tree: list[int]) -> None:
    """One that left the tree is known by its journal, unless its number was given to a stranger since."""
    table, _ = _table(tmp_path, tree[1])
    now_ns = time.monotonic_ns()
    (tmp_path / "journals" / f"agent-{tree[0]}-{now_ns}.journal").touch()
    (tmp_path / "journals" / f"agent-{os.getpid()}-1.journal").touch()

    table.update(now_ns)
    table.close(now_ns)

    assert set(table.known) == set(tree)
