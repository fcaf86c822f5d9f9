"""A whole run seen from outside: processes, threads, numbers and mounts of a loader made of plain processes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.agent.decoding import Decoded, decode_file
from whyidle.model.waits import Wait
from whyidle.observe.launch import run_observed
from whyidle.observe.tree import Role
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

LOADER = """
import multiprocessing, threading, time
def work(queue, results):
    helper = threading.Thread(target=time.sleep, args=(9,), daemon=True); helper.start()
    while queue.get(timeout=20): time.sleep(0.05); results.put(bytes(100))
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    queues = [context.Queue() for _ in range(2)]
    workers = [context.Process(target=work, args=(queue, results)) for queue in queues]
    for worker in workers: worker.start()
    for _ in range(25): queues[0].put(1); results.get(timeout=20)
    for queue in queues: queue.put(None)
    for worker in workers: worker.join()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Decoded:
    """The observer's journal of a loop that waits for a sleeping worker while another is idle."""
    run_dir: Path = tmp_path_factory.mktemp("observed") / "run"

    result = run_observed([sys.executable, "-c", LOADER], run_dir)

    assert result.exit_status == 0
    (path,) = (run_dir / "journals").glob("observer-*")
    return decode_file(path)


def _pids(recorded: Decoded, role: Role) -> set[int]:
    return {one.a for one in recorded.of(wire.PROCESS) if one.c == role}


def _spent_ns(recorded: Decoded, pid: int, *, lead: bool = True) -> dict[int, int]:
    """Time by wait of a process' main thread, or of its others."""
    spent: dict[int, int] = {}
    for one in recorded.of(wire.THREAD):
        if one.a >> 32 == pid and (one.a & 0xFFFFFFFF == pid) is lead:
            spent[one.flags] = spent.get(one.flags, 0) + one.t1 - one.t0
    return spent


def test_processes_have_roles_and_ends(recorded: Decoded) -> None:
    """The loop and its two workers are told apart; the last record of a worker has its end."""
    (loop,) = _pids(recorded, Role.TRAINING)
    workers = _pids(recorded, Role.WORKER)
    last = {one.a: one for one in recorded.of(wire.PROCESS)}

    assert len(workers) == 2
    assert {last[pid].b for pid in workers} == {loop}
    assert all(last[pid].t1 > last[pid].t0 for pid in workers if last[pid].t1)


def test_leads_wait_for_what_they_wait_for(recorded: Decoded) -> None:
    """The loop is at its queue, one worker sleeps in its sample, the other is idle."""
    (loop,) = _pids(recorded, Role.TRAINING)
    most = [
        max(spent, key=lambda wait: spent[wait])
        for spent in (_spent_ns(recorded, pid) for pid in _pids(recorded, Role.WORKER))
    ]

    spent = _spent_ns(recorded, loop)
    assert max(spent, key=lambda wait: spent[wait]) == Wait.QUEUE
    assert sorted(most) == [Wait.QUEUE, Wait.SLEEP]


def test_looks_follow_each_other_without_gap_or_overlap(recorded: Decoded) -> None:
    """Each record of a thread begins where the one before ended, so that times add up."""
    last: dict[int, int] = {}
    for one in recorded.of(wire.THREAD):
        assert one.t1 > one.t0
        assert last.get(one.a, one.t0) == one.t0
        last[one.a] = one.t1


def test_other_threads_are_seen(recorded: Decoded) -> None:
    """A worker's helper thread is looked at too, more rarely."""
    waits = [
        set(_spent_ns(recorded, pid, lead=False)) for pid in _pids(recorded, Role.WORKER)
    ]

    assert any(Wait.SLEEP in one for one in waits)


def test_numbers_are_cumulative(recorded: Decoded) -> None:
    """Every number named after an amount that grows never falls."""
    falling = ("memory.available_bytes", "process.rss_bytes")
    counts = ("process.thread_count", "process.runnable_threads")
    last: dict[tuple[str, int], int] = {}
    for one in recorded.of(wire.COUNTER):
        name = recorded.texts[one.ref]
        if name not in falling + counts:
            assert one.a >= last.get((name, one.b), 0), name
        last[name, one.b] = one.a
    names = {name for name, _ in last}

    assert {"cpu.busy_ns", "cpu.tree_ns", "cpu.other_ns", "memory.available_bytes"} <= names
    assert {"process.minor_faults", "process.user_ns", "observer.cpu_ns"} <= names
    assert {pid for name, pid in last if name == "process.user_ns"} == (
        _pids(recorded, Role.TRAINING) | _pids(recorded, Role.WORKER)
    )


def test_mounts_are_named(recorded: Decoded) -> None:
    """Mounts come with their type and point, the kernel's own ones stay out."""
    mounts = dict(
        recorded.texts[one.ref].split("\0")[::-1] for one in recorded.of(wire.MOUNT)
    )

    assert "/" in mounts
    assert "proc" not in mounts.values()


def test_journal_is_closed_and_small(recorded: Decoded) -> None:
    """An orderly end is noted; a second of this run takes less than 40 kB."""
    assert recorded.progress["closed"] == 1
    assert recorded.progress["dropped_count"] == 0
    assert len(recorded.records) * wire.RECORD_BYTES < 100_000
