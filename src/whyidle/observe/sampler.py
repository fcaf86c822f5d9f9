"""The observing loop: who is looked at when, how late, and at what cost.

NOTE [schedule]
    Leads (main threads of ranks and workers) at `hz`, other threads four times a second and rarer while they do
    not run, and at once when a lead waits for a thread of its own process; numbers twice a second; new processes
    five times. The loop measures its own CPU time and looks less often when it costs more than COST_LIMIT_RATIO.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from typing import TYPE_CHECKING

from whyidle.model.findings import NotObserved
from whyidle.model.waits import Wait
from whyidle.observe import machine, procfs
from whyidle.observe.blocked import Resolver
from whyidle.observe.counters import CounterWriter, MachineCounters, Neighbours
from whyidle.observe.processes import ProcessTable
from whyidle.observe.threads import ThreadTable
from whyidle.observe.tree import Role
from whyidle.store import live
from whyidle.store.appender import JournalAppender
from whyidle.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

COUNTERS_NS = 500 * NS_PER_MS
DISCOVERY_NS = 200 * NS_PER_MS
THREAD_LIST_NS = NS_PER_S
FLUSH_NS = NS_PER_S
COST_LIMIT_RATIO = 0.015
"""Part of one CPU that the observer may use; beyond, it looks less often."""
MAX_SLOWDOWN = 8.0
"""At most so many times less often."""
GROWTH_BYTES = 32 * 1024 * 1024
"""Each time the journal has grown by this, looks become half as frequent: a run of any length stays readable."""
LATE_RATIO = 0.2
"""Reported when the looks came later than this part of their period on average."""

_ACTIVITIES = {
    Wait.NONE: "computes",
    Wait.QUEUE: "waits for data",
    Wait.FILE: "waits for a file",
    Wait.PAGE_FAULT: "waits for a mapped file",
    Wait.SOCKET: "waits for the network",
    Wait.PIPE: "waits for a pipe",
    Wait.LOCK: "waits for a lock",
    Wait.THREAD: "waits for a thread",
    Wait.SLEEP: "sleeps",
    Wait.CHILD: "waits for a child",
    Wait.DEVICE: "waits for the device",
    Wait.OTHER: "waits",
}


class Observer:
    """Looks at one run until told to stop, in a thread of its own.

    A look can hang in the kernel (a mount that does not answer): signals and the end of the target must not
    wait for it.
    """

    def __init__(
        self, run_dir: Path, root_pid: int, hz: float, appender: JournalAppender
    ) -> None:
        """Look at the descendants of one process."""
        self._period_ns = int(NS_PER_S / hz)
        self._root_pid = root_pid
        self._appender = appender
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="whyidle-observer", daemon=True
        )
        self._processes = ProcessTable(run_dir, root_pid, appender)
        self._resolver = Resolver(os.uname().machine, str(run_dir.resolve()))
        self._threads = ThreadTable(self._resolver, appender)
        self._writer = CounterWriter(appender)
        self._machine = MachineCounters(self._writer, root_pid)
        self._neighbours = Neighbours(self._writer, lambda: self._processes.known)
        self._due: dict[str, int] = {}
        self._slowdown = 1.0
        self._cost_mark = (0, 0)
        self._late_ns = 0
        self._tick_count = 0
        self.activity = ""
        """What the loop of a rank does now, in words."""
        self.not_observed: list[NotObserved] = []
        """What cannot be seen here."""
        self.training_pids: frozenset[int] = frozenset()
        """Every process that was ever taken for a rank and lived long enough to be sure of it."""

    @classmethod
    def for_run(cls, run_dir: Path, root_pid: int, hz: float) -> Observer:
        """Observe into a new journal of the run folder.

        Raises:
            OSError: the journal cannot be created.
        """
        start_ns = time.monotonic_ns()
        name = f"observer-{os.getpid()}-{start_ns}.journal"
        header = {
            "role": "observer",
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "rank": None,
            "is_launcher": False,
            "python": None,
            "torch": None,
            "start_mono_ns": start_ns,
        }
        appender = JournalAppender(run_dir / live.JOURNALS_FOLDER / name, header)
        return cls(run_dir, root_pid, hz, appender)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Finish the look that is going on and close the journal; after the timeout leave it as it is."""
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            reason = (
                "the last look at /proc did not return; what it would have seen is missing"
            )
            self.not_observed.append(NotObserved(slug="observer-hung", reason=reason))

    def _run(self) -> None:
        try:
            self._begin()
            self._loop()
        except Exception as error:  # noqa: BLE001  (a look that fails must not end the training's output)
            reason = f"it ended after {self._tick_count} looks: {error!r}; no outside view from then on"
            self.not_observed.append(NotObserved(slug="observer-stopped", reason=reason))
        finally:
            self._end()

    def _begin(self) -> None:
        _raise_descriptor_limit()
        self.not_observed += probe_signals(self._root_pid)
        if not self._machine.has_pressure():
            reason = "/proc/pressure is not there; how long tasks were held up by I/O or memory is unknown"
            self.not_observed.append(NotObserved(slug="no-pressure", reason=reason))
        for mount in machine.list_data_mounts(self._root_pid):
            self._appender.mount(mount.mount_id, mount.fstype, mount.mount_point)
        self._appender.flush()
        self._cost_mark = (time.monotonic_ns(), time.thread_time_ns())

    def _loop(self) -> None:
        next_ns = time.monotonic_ns()
        is_first = True
        while is_first or not self._stop.is_set():
            is_first = False
            now_ns = time.monotonic_ns()
            self._late_ns += max(now_ns - next_ns, 0)
            self._tick(now_ns)
            period_ns = int(
                self._period_ns * max(self._slowdown / 2, 1.0) * self._growth_factor()
            )
            next_ns += period_ns
            after_ns = time.monotonic_ns()
            if next_ns <= after_ns:
                # Looks that were missed are not made up for: each stands for the time since the one before.
                next_ns = after_ns + period_ns
            self._stop.wait((next_ns - after_ns) / 1e9)

    def _tick(self, now_ns: int) -> None:
        self._tick_count += 1
        slow = self._slowdown
        if self._is_due("discovery", now_ns, int(DISCOVERY_NS * slow)):
            if self._processes.update(now_ns):
                self._forget_ended()
                self._watch_leads(now_ns)
            if self._is_due("threads", now_ns, int(THREAD_LIST_NS * slow)):
                self._watch_others(now_ns)
        for pid in self._threads.look(now_ns, slow):
            self._drop_process(pid)
        self._describe()
        if self._is_due("counters", now_ns, int(COUNTERS_NS * slow)):
            self._count(now_ns)
        if self._is_due("flush", now_ns, FLUSH_NS):
            self._settle_cost(now_ns)
            self._appender.flush()

    def _is_due(self, name: str, now_ns: int, interval_ns: int) -> bool:
        if now_ns < self._due.get(name, 0):
            return False
        self._due[name] = now_ns + interval_ns
        return True

    # --- threads ---------------------------------------------------------------------------------

    def _watch_leads(self, now_ns: int) -> None:
        ranks = self._processes.of_role(Role.TRAINING)
        self.training_pids |= {one.pid for one in ranks if now_ns - one.found_ns > NS_PER_S}
        training = tuple(one.pid for one in ranks)
        workers = tuple(one.pid for one in self._processes.of_role(Role.WORKER))
        peers = dict.fromkeys(training, workers) | dict.fromkeys(workers, training)
        self._threads.watch_leads(peers, now_ns)

    def _watch_others(self, now_ns: int) -> None:
        workers = tuple(one.pid for one in self._processes.of_role(Role.WORKER))
        for known in list(self._processes.known.values()):
            with contextlib.suppress(OSError):
                for tid in procfs.read_threads(known.pid):
                    thread = self._threads.watch(known.pid, tid, now_ns)
                    if thread is not None and known.role is Role.TRAINING:
                        # The pin thread also waits at the result queue.
                        thread.meet(workers)

    def _forget_ended(self) -> None:
        for pid in self._processes.take_ended():
            self._drop_process(pid)

    def _drop_process(self, pid: int) -> None:
        self._processes.drop(pid, time.monotonic_ns())
        self._threads.drop(pid)
        self._resolver.forget(pid)
        self._writer.forget(pid)

    def _describe(self) -> None:
        for known in self._processes.known.values():
            lead = self._threads.lead(known.pid)
            if known.role is Role.TRAINING and lead is not None:
                self.activity = _ACTIVITIES[lead.blocked.wait]
                return

    # --- numbers ---------------------------------------------------------------------------------

    def _count(self, now_ns: int) -> None:
        for pid in list(self._processes.known):
            self._count_process(pid, now_ns)
        other_ns = self._machine.sample(now_ns, self._processes.tree_cpu_ns())
        self._neighbours.sample(now_ns, other_ns)

    def _count_process(self, pid: int, now_ns: int) -> None:
        known = self._processes.known[pid]
        try:
            stat = procfs.read_stat(pid)
        except (OSError, ValueError, IndexError):
            return
        if stat.start_ticks != known.start_ticks or stat.state in "ZX":
            return
        known.cpu_ns = stat.user_ns + stat.system_ns
        if known.role not in (Role.TRAINING, Role.WORKER):
            return
        values = {
            "process.minor_faults": stat.minor_faults,
            "process.major_faults": stat.major_faults,
            "process.user_ns": stat.user_ns,
            "process.system_ns": stat.system_ns,
            "process.thread_count": stat.thread_count,
            "process.runnable_threads": self._threads.runnable_count(pid),
            "process.rss_bytes": stat.rss_bytes,
        }
        with contextlib.suppress(OSError, ValueError):
            io = procfs.read_io(pid)
            values["process.read_bytes"] = io["read_bytes"]
            values["process.rchar_bytes"] = io["rchar"]
        for name, value in values.items():
            self._writer.write(name, now_ns, value, pid)

    # --- cost ------------------------------------------------------------------------------------

    def _settle_cost(self, now_ns: int) -> None:
        """Write what observing costs, and look less often when it is too much."""
        cpu_ns = time.thread_time_ns()
        then_ns, then_cpu_ns = self._cost_mark
        self._writer.write("observer.cpu_ns", now_ns, cpu_ns)
        self._writer.write("observer.late_ns", now_ns, self._late_ns)
        self._writer.write("observer.tick_count", now_ns, self._tick_count)
        if now_ns - then_ns < 4 * NS_PER_S:
            return
        ratio = (cpu_ns - then_cpu_ns) / (now_ns - then_ns)
        self._cost_mark = (now_ns, cpu_ns)
        if ratio > COST_LIMIT_RATIO:
            self._slowdown = min(self._slowdown * 1.5, MAX_SLOWDOWN)
        elif ratio < COST_LIMIT_RATIO / 2:
            self._slowdown = max(self._slowdown / 1.5, 1.0)

    def _growth_factor(self) -> int:
        return 1 << min(self._appender.size_bytes // GROWTH_BYTES, 10)

    def _end(self) -> None:
        now_ns = time.monotonic_ns()
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._count(now_ns)
        self._threads.close()
        self._processes.close(now_ns)
        self._resolver.close()
        self._machine.close()
        self._settle_cost(now_ns)
        self._appender.close()
        late_ratio = self._late_ns / max(self._tick_count, 1) / self._period_ns
        if late_ratio > LATE_RATIO:
            reason = f"looks came {late_ratio:.0%} of their period late: the CPUs were busy; shares are coarser"
            self.not_observed.append(NotObserved(slug="observer-late", reason=reason))


def probe_signals(pid: int) -> list[NotObserved]:
    """Try what the observer reads of a process; what is missing comes with its consequence."""
    missing = []
    for slug, path, consequence in _PROBES:
        reason = _probe(f"/proc/{pid}/{path}")
        if reason is not None:
            missing.append(
                NotObserved(slug=slug, reason=f"/proc/PID/{path}: {reason}; {consequence}")
            )
    return missing


_PROBES = (
    (
        "no-schedstat",
        "schedstat",
        (
            "waiting for a CPU cannot be told from using it, so quota, CPU mask, too many threads and neighbours "
            "look like computing"
        ),
    ),
    (
        "no-syscall",
        "syscall",
        "what threads are blocked on is unknown: files, sockets, locks and idle workers look alike",
    ),
    ("no-process-io", "io", "how many bytes each process read is unknown"),
    ("no-descriptors", "fd", "which file, socket or pipe a thread waits for is unknown"),
)


def _probe(path: str) -> str | None:
    """Why a file of /proc gives nothing; None when it does, or when the process is gone already."""
    try:
        if path.endswith("/fd"):
            os.listdir(path)
            return None
        with open(path, "rb") as file:
            data = file.read(256)
    except ProcessLookupError:
        return None
    except FileNotFoundError:
        return None if not os.path.exists(os.path.dirname(path)) else "not in this kernel"
    except OSError as error:
        return error.strerror or type(error).__name__
    return (
        "the kernel does not count"
        if path.endswith("schedstat") and data == b"0 0 0\n"
        else None
    )


def _raise_descriptor_limit() -> None:
    """Three files a thread are kept open. The target has been started: its limit stays what it was."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
