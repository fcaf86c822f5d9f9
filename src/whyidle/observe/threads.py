"""Threads under observation: looked at cheaply, written when something changed."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from whyidle.model.waits import Wait
from whyidle.observe import procfs
from whyidle.observe.blocked import Blocked
from whyidle.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from whyidle.observe.blocked import Resolver
    from whyidle.store.appender import JournalAppender

MAX_SPAN_NS = NS_PER_S
"""Longest record of a thread that does not move: so much is lost at most when the observer is killed."""
OTHERS_NS = 250 * NS_PER_MS
"""How often threads that are no leads are looked at."""
MAX_BACKOFF_NS = NS_PER_S
"""How rarely a thread that has not run for long is looked at."""
MAX_POOL_LOOKS = 16
"""Threads of one process looked at in the tick in which its lead waits for one of them."""
OTHERS_CHECK_NS = 100 * NS_PER_MS
"""How often it is asked which of the other threads are due."""
MAX_TARGETS = 4096
"""Most different targets named in full; beyond, only their folder is."""


_SURE_WAITS = frozenset((Wait.SLEEP, Wait.THREAD))
"""Waits that an equal line in `syscall` proves: no descriptor is in them that could be another file by now."""


class TargetNames:
    """Keeps the number of names in a journal bounded, however many files a training reads."""

    def __init__(self) -> None:
        """Know no name yet."""
        self._known: set[str] = set()

    def name(self, target: str) -> str:
        """The target itself, or its folder when there were too many."""
        if target in self._known:
            return target
        if len(self._known) < MAX_TARGETS:
            self._known.add(target)
            return target
        folder = os.path.dirname(target)
        return f"{folder}/" if folder and len(self._known) < 2 * MAX_TARGETS else ""


class WatchedThread:
    """A thread with its files of /proc kept open."""

    __slots__ = (
        "_call_data",
        "_call_file",
        "_peers",
        "_pending_from_ns",
        "_pending_to_ns",
        "_sched_data",
        "_sched_file",
        "_stat_file",
        "blocked",
        "call",
        "interval_ns",
        "next_ns",
        "pid",
        "state",
        "tid",
    )

    def __init__(self, pid: int, tid: int, now_ns: int) -> None:
        """Open its files.

        Raises:
            OSError: it is gone.
        """
        self.pid = pid
        self.tid = tid
        self._peers: tuple[int, ...] = ()
        self.next_ns = now_ns
        self.interval_ns = OTHERS_NS
        self.state = "R"
        self.blocked = Blocked(Wait.NONE)
        self.call = procfs.RUNNING
        self._sched_data = b""
        self._call_data: bytes | None = b"running"
        self._pending_from_ns = now_ns
        self._pending_to_ns = now_ns
        folder = f"/proc/{pid}/task/{tid}"
        self._stat_file = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._sched_file = _open_or_none(f"{folder}/schedstat")
        self._call_file = _open_or_none(f"{folder}/syscall")

    def look(
        self, now_ns: int, resolver: Resolver, appender: JournalAppender, names: TargetNames
    ) -> None:
        """Look once.

        Raises:
            OSError: the thread has ended.
        """
        sched = b"" if self._sched_file is None else os.pread(self._sched_file, 64, 0)
        call_data = self._read_call()
        # Time on a CPU stands still: the thread has not run, so it still waits for what it waited for. One that
        # is ready to run also stands still, hence the second condition.
        if (
            sched == self._sched_data
            and sched
            and call_data == self._call_data
            and _is_blocked(call_data)
        ):
            self._pending_to_ns = now_ns
            if now_ns - self._pending_from_ns >= MAX_SPAN_NS:
                self._write(appender, names)
            self._back_off(now_ns)
            return
        self._write(appender, names)
        is_same_call = call_data == self._call_data and self.blocked.wait in _SURE_WAITS
        if not is_same_call:
            self._identify(resolver, call_data)
        self._sched_data, self._call_data = sched, call_data
        self._pending_to_ns = now_ns
        self.interval_ns = OTHERS_NS
        self.next_ns = now_ns + self.interval_ns
        if self.blocked.wait is Wait.NONE:
            self._write(appender, names)

    def meet(self, peers: tuple[int, ...]) -> None:
        """Name the processes at the other end of this thread's loader queues; a pipe may turn out to be one."""
        if peers != self._peers:
            self._peers = peers
            self._call_data = b""

    def flush(self, appender: JournalAppender, names: TargetNames) -> None:
        """Write what is known up to the last look."""
        self._write(appender, names)

    def close(self) -> None:
        """Let its files go."""
        for file in (self._stat_file, self._sched_file, self._call_file):
            if file is not None:
                os.close(file)

    def _identify(self, resolver: Resolver, call_data: bytes | None) -> None:
        if call_data is not None and not _is_blocked(call_data):
            self.state, self.blocked = "R", Blocked(Wait.NONE)
            self.call = procfs.parse_syscall(call_data)
            return
        state = procfs.parse_state(os.pread(self._stat_file, 512, 0))
        if state in "ZX":
            raise ProcessLookupError
        self.state = state
        if call_data is None:
            self.call = procfs.RUNNING
            self.blocked = Blocked(Wait.NONE if self.state == "R" else Wait.OTHER)
            return
        self.call = procfs.parse_syscall(call_data)
        self.blocked = resolver.resolve(self.pid, self.call, self.state, self._peers)

    def _read_call(self) -> bytes | None:
        """The call's line; None where it may not be read."""
        if self._call_file is None:
            return None
        try:
            return os.pread(self._call_file, 256, 0)
        except PermissionError:
            os.close(self._call_file)
            self._call_file = None
            return None

    def _back_off(self, now_ns: int) -> None:
        self.interval_ns = min(self.interval_ns * 2, MAX_BACKOFF_NS)
        self.next_ns = now_ns + self.interval_ns

    def _write(self, appender: JournalAppender, names: TargetNames) -> None:
        if self._pending_to_ns <= self._pending_from_ns:
            return
        on_cpu_ns, runq_ns = _parse_times(self._sched_data)
        appender.thread(
            pid=self.pid,
            tid=self.tid,
            previous_ns=self._pending_from_ns,
            now_ns=self._pending_to_ns,
            wait=self.blocked.wait,
            target=names.name(self.blocked.target) if self.blocked.target else "",
            call=self.call.number,
            state=self.state,
            mount_id=self.blocked.mount_id,
            on_cpu_ns=on_cpu_ns,
            runq_ns=runq_ns,
        )
        self._pending_from_ns = self._pending_to_ns


class ThreadTable:
    """The threads of a run, by process."""

    def __init__(self, resolver: Resolver, appender: JournalAppender) -> None:
        """Write looks to this journal."""
        self._resolver = resolver
        self._appender = appender
        self._names = TargetNames()
        self._of: dict[int, dict[int, WatchedThread]] = {}
        self._leads: dict[int, WatchedThread] = {}
        self._others_ns = 0

    def lead(self, pid: int) -> WatchedThread | None:
        """The main thread of a process, if it is a lead."""
        return self._leads.get(pid)

    def runnable_count(self, pid: int) -> int:
        """Threads of a process that ran or were ready when last looked at."""
        threads = self._of.get(pid, {}).values()
        return sum(thread.blocked.wait is Wait.NONE for thread in threads)

    def watch_leads(self, peers: Mapping[int, tuple[int, ...]], now_ns: int) -> None:
        """Take the main threads of these processes, and no others, for leads; see `Resolver.resolve` for peers."""
        for pid in self._leads.keys() - peers.keys():
            del self._leads[pid]
        for pid, others in peers.items():
            thread = self.watch(pid, pid, now_ns)
            if thread is not None:
                thread.meet(others)
                self._leads[pid] = thread

    def watch(self, pid: int, tid: int, now_ns: int) -> WatchedThread | None:
        """Begin with a thread, if that has not been done; None when it is gone."""
        threads = self._of.setdefault(pid, {})
        thread = threads.get(tid)
        if thread is None:
            with contextlib.suppress(OSError):
                thread = threads[tid] = WatchedThread(pid, tid, now_ns)
        return thread

    def look(self, now_ns: int, slowdown: float) -> list[int]:
        """Look at leads and at what else is due; returns processes whose main thread has ended."""
        ended = self._look_at(list(self._leads.values()))
        if slowdown < 2:
            ended += self._look_at(self._waited_for())
        if now_ns >= self._others_ns:
            self._others_ns = now_ns + int(OTHERS_CHECK_NS * slowdown)
            ended += self._look_at(self._due(now_ns, slowdown))
        return ended

    def drop(self, pid: int) -> None:
        """Write what is known of a process' threads and let them go."""
        self._leads.pop(pid, None)
        for thread in self._of.pop(pid, {}).values():
            self._finish(thread)

    def close(self) -> None:
        """Drop all."""
        for pid in list(self._of):
            self.drop(pid)

    def _look_at(self, threads: list[WatchedThread]) -> list[int]:
        ended = []
        for thread in threads:
            try:
                thread.look(
                    time.monotonic_ns(), self._resolver, self._appender, self._names
                )
            except (OSError, ValueError, IndexError):
                self._finish(thread)
                self._of[thread.pid].pop(thread.tid, None)
                if thread.pid == thread.tid:
                    self._leads.pop(thread.pid, None)
                    ended.append(thread.pid)
        return ended

    def _waited_for(self) -> list[WatchedThread]:
        """Threads that leads may be waiting for: those of their process that have run lately."""
        found: list[WatchedThread] = []
        for pid, lead in self._leads.items():
            if lead.blocked.wait is Wait.THREAD:
                pool = (one for one in self._of[pid].values() if one is not lead)
                moving = [one for one in pool if one.interval_ns < MAX_BACKOFF_NS]
                found += moving[:MAX_POOL_LOOKS]
        return found

    def _due(self, now_ns: int, slowdown: float) -> list[WatchedThread]:
        leads = set(self._leads)
        return [
            thread
            for threads in self._of.values()
            for thread in threads.values()
            if now_ns >= thread.next_ns + thread.interval_ns * (slowdown - 1)
            and not (thread.pid == thread.tid and thread.pid in leads)
        ]

    def _finish(self, thread: WatchedThread) -> None:
        thread.flush(self._appender, self._names)
        thread.close()


def _is_blocked(call_data: bytes | None) -> bool:
    return call_data is not None and not call_data.startswith(b"running")


def _parse_times(data: bytes) -> tuple[int | None, int | None]:
    if not data or data.startswith(b"0 0 0"):
        # Accounting is off, or the thread has never run: nothing is known.
        return None, None
    return procfs.parse_schedstat(data)


def _open_or_none(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    except FileNotFoundError:
        # Also when the kernel was built without it; a thread that is gone fails on its stat file first.
        return None
