"""Counters are written when they are new, neighbours are named by what they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from whyidle.observe import counters, procfs
from whyidle.observe.counters import CounterWriter, KeptFile, MachineCounters, Neighbours
from whyidle.observe.machine import CpuGroup
from whyidle.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path


class Journal:
    """Takes counters like an appender does."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int]] = []

    def counter(self, name: str, now_ns: int, value: int, pid: int = 0) -> None:
        """Keep one."""
        self.rows.append((name, now_ns, value, pid))

    def last(self) -> dict[str, int]:
        """Newest value by name."""
        return {name: value for name, _, value, _ in self.rows}


def _stat(name: str, cpu_ms: int, start: int = 1) -> procfs.Stat:
    return procfs.Stat(name, "S", 1, 0, 0, cpu_ms * NS_PER_MS, 0, 1, start, 0)


def test_counter_is_written_when_it_changes() -> None:
    """Equal values and unknown ones are left out, per process; a forgotten process begins anew."""
    journal = Journal()
    writer = CounterWriter(journal)

    for now_ns, value in ((1, 5), (2, 5), (3, None), (4, 6)):
        writer.write("a", now_ns, value, 7)
    writer.write("a", 5, 6, 8)
    writer.forget(7)
    writer.write("a", 6, 6, 7)

    assert journal.rows == [("a", 1, 5, 7), ("a", 4, 6, 7), ("a", 5, 6, 8), ("a", 6, 6, 7)]


def test_kept_file_that_is_absent_gives_nothing(tmp_path: Path) -> None:
    """A file that is not there reads as None, one that is reads anew each time."""
    path = tmp_path / "f"
    path.write_text("one")
    kept, absent = KeptFile(str(path)), KeptFile(str(tmp_path / "g"))

    first = kept.read()
    path.write_text("two")
    second = kept.read()
    kept.close()
    absent.close()

    assert (first, second, kept.read(), absent.read()) == ("one", "two", None, None)


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch) -> dict[int, procfs.Stat]:
    """Processes of a made-up machine, changed by the test."""
    processes: dict[int, procfs.Stat] = {}
    monkeypatch.setattr(procfs, "list_pids", lambda: list(processes))
    monkeypatch.setattr(procfs, "read_stat", processes.__getitem__)
    return processes


def test_neighbours_are_named_by_what_they_used(machine_of: dict[int, procfs.Stat]) -> None:
    """Processes of one name add up, our own are left out, time from before the run does not count."""
    journal = Journal()
    neighbours = Neighbours(CounterWriter(journal), lambda: [10])
    machine_of.update(
        {10: _stat("python", 0), 20: _stat("ffmpeg", 9000), 30: _stat("sshd", 5)}
    )
    neighbours.sample(NS_PER_S, 0)

    machine_of.update(
        {10: _stat("python", 9), 20: _stat("ffmpeg", 9700), 21: _stat("ffmpeg", 300)}
    )
    neighbours.sample(10 * NS_PER_S, 5 * NS_PER_S)

    assert journal.last() == {"other.ffmpeg.cpu_ns": 1000 * NS_PER_MS}


def test_neighbours_are_left_alone_while_others_rest(
    machine_of: dict[int, procfs.Stat],
) -> None:
    """While nobody else uses a CPU there is nothing worth a look at all processes."""
    journal = Journal()
    neighbours = Neighbours(CounterWriter(journal), list)
    machine_of[20] = _stat("cron", 0)
    neighbours.sample(NS_PER_S, 0)

    machine_of[20] = _stat("cron", 50)
    neighbours.sample(20 * NS_PER_S, 50 * NS_PER_MS)

    assert journal.rows == []


def test_only_the_greatest_neighbours_are_named(machine_of: dict[int, procfs.Stat]) -> None:
    """Of many, the few that used most are written."""
    journal = Journal()
    neighbours = Neighbours(CounterWriter(journal), list)
    machine_of.update({pid: _stat(f"p{pid}", 0) for pid in range(100, 120)})
    neighbours.sample(NS_PER_S, 0)

    machine_of.update({pid: _stat(f"p{pid}", pid) for pid in range(100, 120)})
    neighbours.sample(10 * NS_PER_S, 5 * NS_PER_S)

    names = {f"other.p{pid}.cpu_ns" for pid in range(120 - counters.MAX_NEIGHBOURS, 120)}
    assert set(journal.last()) == names


def test_quota_of_the_level_that_throttles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all levels of a cgroup the one that stopped the processes is written."""
    levels = []
    for name, throttled in (("inner", 0), ("outer", 58)):
        path = tmp_path / name
        path.write_text(
            f"nr_periods 60\nnr_throttled {throttled}\nthrottled_usec {throttled * 10}\n"
        )
        levels.append(CpuGroup(stat_path=path, quota_cpus=None))
    monkeypatch.setattr(counters.machine, "find_cpu_groups", lambda _: tuple(levels))
    journal = Journal()
    machine = MachineCounters(CounterWriter(journal), 1)

    machine.sample(NS_PER_S, 0)
    machine.close()

    found = journal.last()
    assert (found["cgroup.period_count"], found["cgroup.throttled_count"]) == (60, 58)
    assert found["cgroup.throttled_ns"] == 580_000


def test_other_cpu_is_what_the_tree_did_not_use(tmp_path: Path) -> None:
    """Busy time since the start less the tree's own is other processes'; rounding never makes it negative."""
    journal = Journal()
    machine = MachineCounters(CounterWriter(journal), 1)
    machine._stat.close()
    path = tmp_path / "stat"
    path.write_text("cpu  100 0 0 1000 0 0 0 0 0 0\n")
    machine._stat = KeptFile(str(path))
    first = machine.sample(1, 0)

    path.write_text("cpu  150 0 0 1100 0 0 0 0 0 0\n")
    second = machine.sample(2, 30 * procfs.NS_PER_TICK)
    third = machine.sample(3, 51 * procfs.NS_PER_TICK)
    machine.close()

    assert (first, second, third) == (0, 20 * procfs.NS_PER_TICK, 0)
