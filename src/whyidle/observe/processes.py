"""Which processes belong to the run, found again and again at little cost."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from whyidle.observe import hostfs, procfs
from whyidle.observe.counters import KeptFile
from whyidle.observe.tree import Role, Seen, assign_roles
from whyidle.store import live
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whyidle.store.appender import JournalAppender

FULL_WALK_NS = NS_PER_S
"""How often children of all threads are asked for; in between, only those of main threads, and only when a
process or thread was started anywhere."""
SETTLE_NS = NS_PER_S // 4
"""A process younger than this may still be between fork and exec: its role is not written yet."""


class KnownProcess:
    """One process of the run."""

    __slots__ = (
        "command_line",
        "cpu_ns",
        "cpus_allowed",
        "executable",
        "found_ns",
        "name",
        "parent_pid",
        "pid",
        "role",
        "start_ns",
        "start_ticks",
        "written",
    )

    def __init__(self, pid: int, stat: procfs.Stat, now_ns: int) -> None:
        """Take what stat says and ask for the rest.

        Raises:
            OSError: it is gone.
        """
        self.pid = pid
        self.start_ticks = stat.start_ticks
        self.start_ns = _start_mono_ns(stat.start_ticks)
        self.found_ns = now_ns
        self.cpu_ns = stat.user_ns + stat.system_ns
        self.role = Role.OTHER
        self.written: tuple[object, ...] | None = None
        self.executable = ""
        self.refresh(stat)

    def refresh(self, stat: procfs.Stat) -> None:
        """Ask again for what exec and renaming change.

        Raises:
            OSError: it is gone.
        """
        self.name = stat.name
        self.parent_pid = stat.parent_pid
        self.command_line = procfs.read_command_line(self.pid)
        self.cpus_allowed = len(procfs.read_cpus_allowed(self.pid))
        with contextlib.suppress(PermissionError):
            self.executable = procfs.read_executable(self.pid)

    def seen(self) -> Seen:
        """What its role depends on."""
        return Seen(
            pid=self.pid,
            parent_pid=self.parent_pid,
            name=self.name,
            executable=self.executable,
            command_line=self.command_line,
        )


class ProcessTable:
    """The run's processes: descendants of the command, and whoever records into the run folder."""

    def __init__(self, run_dir: Path, root_pid: int, appender: JournalAppender) -> None:
        """Begin with the command's process."""
        self._run_dir = run_dir
        self._root_pid = root_pid
        self._appender = appender
        self._loadavg = KeptFile("/proc/loadavg", 128)
        self._last_pid = -1
        self._walked_ns = 0
        self._lists_children = True
        self._dead_cpu_ns = 0
        self._ended: list[int] = []
        self._journals: dict[int, Path] = {}
        self._headers: dict[int, live.LiveJournal] = {}
        self.known: dict[int, KnownProcess] = {}

    def of_role(self, role: Role) -> list[KnownProcess]:
        """All processes with a role."""
        return [one for one in self.known.values() if one.role is role]

    def tree_cpu_ns(self) -> int:
        """CPU time of all processes of the run, ended ones included."""
        return self._dead_cpu_ns + sum(one.cpu_ns for one in self.known.values())

    def update(self, now_ns: int) -> bool:
        """Look for new and ended processes; True when something may have changed."""
        is_full = now_ns - self._walked_ns >= FULL_WALK_NS
        last_pid = self._read_last_pid()
        if not is_full and last_pid is not None and last_pid == self._last_pid:
            return False
        self._last_pid = -1 if last_pid is None else last_pid
        if is_full:
            self._walked_ns = now_ns
            self._refresh()
        before = len(self.known)
        for pid in self._walk(is_full=is_full) - self.known.keys():
            self._add(pid, now_ns)
        if is_full:
            self._add_recording(now_ns)
            self._read_headers()
        if is_full or len(self.known) > before:
            self._assign_roles()
            self._write_changes(now_ns)
            return True
        return False

    def take_ended(self) -> list[int]:
        """Processes that were found to have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def drop(self, pid: int, now_ns: int) -> None:
        """Note the end of a process."""
        known = self.known.pop(pid, None)
        if known is not None:
            self._headers.pop(pid, None)
            self._dead_cpu_ns += known.cpu_ns
            self._write(known, now_ns)

    def close(self, now_ns: int) -> None:
        """Write what was not yet, let files go."""
        for known in self.known.values():
            if known.written is None:
                self._write(known, None)
        self._loadavg.close()

    def _read_last_pid(self) -> int | None:
        text = self._loadavg.read()
        return None if text is None else hostfs.parse_last_pid(text)

    def _walk(self, *, is_full: bool) -> set[int]:
        found = {self._root_pid} | self.known.keys()
        if not self._lists_children:
            return found | self._scan_parents() if is_full else found
        pending = [pid for pid in found if is_full or self._may_have_children(pid)]
        while pending:
            for child in self._children(pending.pop(), is_full=is_full):
                if child not in found:
                    found.add(child)
                    pending.append(child)
        return found

    def _may_have_children(self, pid: int) -> bool:
        known = self.known.get(pid)
        return known is None or known.role is not Role.WORKER

    def _children(self, pid: int, *, is_full: bool) -> Iterator[int]:
        tids: tuple[int, ...] = (pid,)
        with contextlib.suppress(OSError):
            if is_full and self._may_have_children(pid):
                tids = procfs.read_threads(pid)
        for tid in tids:
            try:
                yield from procfs.read_children(pid, tid)
            except FileNotFoundError:
                if pid == self._root_pid and tid == pid:
                    self._lists_children = not _is_alive(pid)
            except OSError:
                continue

    def _scan_parents(self) -> set[int]:
        """Descendants by everybody's parent, for kernels that do not list children."""
        parents = {}
        for pid in procfs.list_pids():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[pid] = procfs.read_stat(pid).parent_pid
        found = {self._root_pid}
        size = 0
        while len(found) > size:
            size = len(found)
            found |= {pid for pid, parent in parents.items() if parent in found}
        return found

    def _add(self, pid: int, now_ns: int) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = procfs.read_stat(pid)
            if stat.state not in "ZX":
                self.known[pid] = KnownProcess(pid, stat, now_ns)

    def _refresh(self) -> None:
        for pid, known in list(self.known.items()):
            try:
                stat = procfs.read_stat(pid)
                if stat.start_ticks != known.start_ticks or stat.state in "ZX":
                    raise ProcessLookupError
                known.refresh(stat)
            except (OSError, ValueError, IndexError):
                self.drop(pid, time.monotonic_ns())
                self._ended.append(pid)

    def _add_recording(self, now_ns: int) -> None:
        """Add processes that record into the run folder without being descendants, say after a double fork."""
        self._journals = live.list_agent_journals(self._run_dir)
        for pid in self._journals.keys() - self.known.keys():
            self._add(pid, now_ns)
            known = self.known.get(pid)
            if known is not None and known.start_ns > live.start_of_journal(
                self._journals[pid]
            ):
                # The recording process has ended and its number was given to a stranger.
                del self.known[pid]

    def _read_headers(self) -> None:
        """What agents say of themselves, until it is clear that a process is a worker, or a rank that steps."""
        for pid, path in self._journals.items():
            before = self._headers.get(pid)
            if pid in self.known and (before is None or not _is_settled(before)):
                header = live.load_live_journal(path)
                if header is not None:
                    self._headers[pid] = header

    def _assign_roles(self) -> None:
        seen = {pid: one.seen() for pid, one in self.known.items()}
        roles = assign_roles(seen, self._headers)
        for pid, role in roles.items():
            self.known[pid].role = role

    def _write_changes(self, now_ns: int) -> None:
        for known in self.known.values():
            facts = (known.role, known.name, known.parent_pid, known.cpus_allowed)
            if now_ns - known.found_ns >= SETTLE_NS and facts != known.written:
                known.written = facts
                self._write(known, None)

    def _write(self, known: KnownProcess, end_ns: int | None) -> None:
        self._appender.process(
            pid=known.pid,
            parent_pid=known.parent_pid,
            name=known.name,
            start_ns=known.start_ns,
            end_ns=end_ns,
            role=known.role,
            cpus_allowed=known.cpus_allowed,
        )


def _is_settled(header: live.LiveJournal) -> bool:
    return header.is_worker or header.step_count > 0


def _is_alive(pid: int) -> bool:
    try:
        return procfs.read_stat(pid).state not in "ZX"
    except (OSError, ValueError, IndexError):
        return False


def _start_mono_ns(start_ticks: int) -> int:
    """A process' start on our clock: /proc counts from boot and goes on while the machine sleeps."""
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return start_ticks * procfs.NS_PER_TICK - asleep_ns
