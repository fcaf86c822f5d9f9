"""Numbers of the machine and of processes, cumulative, each written when it has changed."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, TypeVar

from whyidle.observe import hostfs, machine, procfs
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whyidle.store.appender import JournalAppender

_T = TypeVar("_T")

GROUP_LOOKUP_NS = 5 * NS_PER_S
"""How often the CPU cgroup is looked up anew: a scheduler may move the training or set a quota later."""
NEIGHBOUR_SCAN_NS = 2 * NS_PER_S
"""How often all processes of the machine are looked at, at most."""
NEIGHBOUR_COST_SHARE = 0.002
"""Part of one CPU that those looks may take: the more processes, the rarer."""
NEIGHBOUR_MIN_SHARE = 0.1
"""CPUs that others must have used since the last look before it is worth another."""
MAX_NEIGHBOURS = 5
"""Most other processes that are named after one look."""


class KeptFile:
    """A file of /proc that is read over and over; None from `read` when it is not there."""

    def __init__(self, path: str, byte_count: int = 65536) -> None:
        """Open it if it can be."""
        self._byte_count = byte_count
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def read(self) -> str | None:
        """Read it from the start."""
        data = self.read_bytes()
        return None if data is None else data.decode("utf-8", "replace")

    def read_bytes(self) -> bytes | None:
        """Read it from the start, undecoded."""
        if self._file < 0:
            return None
        try:
            return os.pread(self._file, self._byte_count, 0)
        except OSError:
            return None

    def close(self) -> None:
        """Let it go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class CounterWriter:
    """Writes a counter when its value is new."""

    def __init__(self, appender: JournalAppender) -> None:
        """Write to this journal."""
        self._appender = appender
        self._last: dict[tuple[str, int], int] = {}

    def write(self, name: str, now_ns: int, value: int | None, pid: int = 0) -> None:
        """Write a value that is known and has changed."""
        if value is not None and self._last.get((name, pid)) != value:
            self._last[name, pid] = value
            self._appender.counter(name, now_ns, value, pid)

    def forget(self, pid: int) -> None:
        """Drop what is known of a process."""
        for key in [key for key in self._last if key[1] == pid]:
            del self._last[key]


class MachineCounters:
    """CPU, pressure, memory, network, disks, NFS mounts and the CPU quota."""

    def __init__(self, writer: CounterWriter, root_pid: int) -> None:
        """Open what is read over and over; the root process stands for the run's cgroup and mounts."""
        self._writer = writer
        self._root_pid = root_pid
        self._stat = KeptFile("/proc/stat")
        self._memory = KeptFile("/proc/meminfo", 4096)
        self._vmstat = KeptFile("/proc/vmstat")
        self._net = KeptFile(f"/proc/{root_pid}/net/dev")
        self._disks = KeptFile("/proc/diskstats")
        self._pressure = {
            name: KeptFile(f"/proc/pressure/{name}", 512)
            for name in ("cpu", "io", "memory")
        }
        self._mountstats = self._open_mountstats()
        self._groups: list[KeptFile] = []
        self._groups_ns = 0
        self._busy_at_start_ns: int | None = None

    def has_pressure(self) -> bool:
        """Whether the kernel tells how long tasks were held up."""
        return self._pressure["io"].read() is not None

    def sample(self, now_ns: int, tree_ns: int) -> int:
        """Write all numbers; returns the CPU time of other processes since the start, ns."""
        other_ns = self._sample_cpu(now_ns, tree_ns)
        self._sample_memory(now_ns)
        self._sample_traffic(now_ns)
        self._sample_groups(now_ns)
        return other_ns

    def close(self) -> None:
        """Let the files go."""
        kept = [
            self._stat,
            self._memory,
            self._vmstat,
            self._net,
            self._disks,
            *self._groups,
        ]
        kept += self._pressure.values()
        if self._mountstats is not None:
            kept.append(self._mountstats)
        for file in kept:
            file.close()

    def _sample_cpu(self, now_ns: int, tree_ns: int) -> int:
        text = self._stat.read()
        write = self._writer.write
        write("cpu.tree_ns", now_ns, tree_ns)
        for name, file in self._pressure.items():
            write(f"{name}.pressure_some_ns", now_ns, _parsed(hostfs.parse_pressure, file))
        if text is None:
            return 0
        times = hostfs.parse_cpu_times(text)
        for name, value in times.items():
            write(f"cpu.{name}_ns", now_ns, value)
        if self._busy_at_start_ns is None:
            self._busy_at_start_ns = times["busy"] - tree_ns
        # Both sides are counted in clock ticks: a difference below zero is rounding.
        other_ns = max(times["busy"] - self._busy_at_start_ns - tree_ns, 0)
        write("cpu.other_ns", now_ns, other_ns)
        return other_ns

    def _sample_memory(self, now_ns: int) -> None:
        available = _parsed(hostfs.parse_available_memory, self._memory)
        self._writer.write("memory.available_bytes", now_ns, available)
        self._writer.write(
            "swap.in_bytes", now_ns, _parsed(hostfs.parse_swapped_in, self._vmstat)
        )

    def _sample_traffic(self, now_ns: int) -> None:
        write = self._writer.write
        for name, (received, sent) in hostfs.parse_net_dev(self._net.read() or "").items():
            if received or sent:
                write(f"net.{name}.rx_bytes", now_ns, received)
                write(f"net.{name}.tx_bytes", now_ns, sent)
        for name, disk in hostfs.parse_diskstats(self._disks.read() or "").items():
            write(f"disk.{name}.read_bytes", now_ns, disk.read_bytes)
            write(f"disk.{name}.busy_ns", now_ns, disk.busy_ns)
        if self._mountstats is not None:
            points = hostfs.parse_mountstats(self._mountstats.read() or "")
            for point, read_bytes in points.items():
                write(f"mount.{point}.read_bytes", now_ns, read_bytes)

    def _sample_groups(self, now_ns: int) -> None:
        if not self._groups_ns or now_ns - self._groups_ns > GROUP_LOOKUP_NS:
            self._groups_ns = now_ns
            for file in self._groups:
                file.close()
            levels = machine.find_cpu_groups(self._root_pid)
            self._groups = [KeptFile(str(level.stat_path), 1024) for level in levels]
        found = [_parsed(hostfs.parse_cpu_stat, file) for file in self._groups]
        throttling = [one for one in found if one is not None]
        if throttling:
            # Whichever level has the quota stops the processes; levels without one count nothing.
            worst = max(throttling, key=lambda one: (one.throttled_ns, one.period_count))
            self._writer.write("cgroup.period_count", now_ns, worst.period_count)
            self._writer.write("cgroup.throttled_count", now_ns, worst.throttled_count)
            self._writer.write("cgroup.throttled_ns", now_ns, worst.throttled_ns)

    def _open_mountstats(self) -> KeptFile | None:
        try:
            mounts = procfs.read_mounts(self._root_pid)
        except OSError:
            return None
        if not any(mount.fstype in hostfs.NFS_TYPES for mount in mounts):
            return None
        return KeptFile(f"/proc/{self._root_pid}/mountstats", 1 << 20)


class Neighbours:
    """CPU time of processes outside the run, by name."""

    def __init__(
        self, writer: CounterWriter, own_pids: Callable[[], Iterable[int]]
    ) -> None:
        """Leave out the processes of the run and the observer itself."""
        self._writer = writer
        self._own_pids = own_pids
        self._last: dict[tuple[int, int], int] = {}
        self._totals: dict[str, int] = {}
        self._next_ns = 0
        self._other_ns = 0
        self._is_first = True

    def sample(self, now_ns: int, other_ns: int) -> None:
        """Look at all processes, if that is due and others have used a CPU."""
        if now_ns < self._next_ns:
            return
        elapsed_ns = now_ns - self._next_ns + NEIGHBOUR_SCAN_NS
        used = other_ns - self._other_ns
        if not self._is_first and used < NEIGHBOUR_MIN_SHARE * elapsed_ns:
            self._next_ns = now_ns + NEIGHBOUR_SCAN_NS
            self._other_ns = other_ns
            return
        start_ns = time.thread_time_ns()
        self._scan(now_ns)
        cost_ns = time.thread_time_ns() - start_ns
        self._other_ns = other_ns
        self._is_first = False
        self._next_ns = now_ns + max(NEIGHBOUR_SCAN_NS, int(cost_ns / NEIGHBOUR_COST_SHARE))

    def _scan(self, now_ns: int) -> None:
        own = {os.getpid(), *self._own_pids()}
        current: dict[tuple[int, int], int] = {}
        used: dict[str, int] = {}
        for pid in procfs.list_pids():
            if pid in own:
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = procfs.read_stat(pid)
                key = (pid, stat.start_ticks)
                current[key] = stat.user_ns + stat.system_ns
                before = self._last.get(key, 0 if not self._is_first else current[key])
                used[stat.name] = used.get(stat.name, 0) + current[key] - before
        self._last = current
        for name, spent_ns in used.items():
            self._totals[name] = self._totals.get(name, 0) + spent_ns
        top = sorted(used, key=lambda name: used[name], reverse=True)[:MAX_NEIGHBOURS]
        for name in top:
            if used[name] > 0:
                self._writer.write(f"other.{name}.cpu_ns", now_ns, self._totals[name])


def _parsed(parse: Callable[[str], _T | None], file: KeptFile) -> _T | None:
    text = file.read()
    return None if text is None else parse(text)
