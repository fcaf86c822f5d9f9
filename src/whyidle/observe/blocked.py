"""What a blocked thread waits for: its call's arguments followed to a file, a socket, a queue or a lock.

NOTE [a hung mount must not hang us]
    Nothing here opens or stats a file of the target. What a descriptor is comes from its link, its mount from
    fdinfo, a path argument from the target's memory.

NOTE [loader queues]
    Workers get indices and give results through multiprocessing queues, which are pipes. A thread is idle when it
    reads or polls a pipe of which its own process holds both ends (a queue keeps both, a pipe to a subprocess does
    not) and which is also held on the other side: by the training process for a worker, by a worker for the
    training process.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyidle.model.syscalls import call_name
from whyidle.model.waits import (
    WRITING_CALLS,
    CallShape,
    Wait,
    call_shape,
    fcntl_waits_for_lock,
    futex_is_private,
    link_wait,
    mapping_is_shared_lock,
    wait_outside_call,
)
from whyidle.observe import hostfs, procfs
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_POLLED = 64
"""Descriptors looked at in one poll; a loader polls one."""
MAX_PATH_BYTES = 512
_POLLFD = struct.Struct("<ihh")
_POLLIN = 1
_AT_FDCWD = 0xFFFFFF9C
_TRY_AGAIN_NS = 2 * NS_PER_S
"""How long "no such socket" and a process' mappings are believed."""
_QUEUE_AGAIN_NS = NS_PER_S // 4
"""How long "not a queue" is believed: a moment later the worker at its other end may be known."""
_MAX_CACHED = 4096
_PRECEDENCE = (Wait.QUEUE, Wait.SOCKET, Wait.PIPE, Wait.FILE, Wait.DEVICE, Wait.OTHER)
_SYSTEM_FOLDERS = ("/dev/", "/usr/", "/lib", "/memfd:", "/SYSV")
_LIBRARY_DATA = (".so", ".pyc", ".mo", ".cache", "locale-archive", ".zip")


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a thread waits for."""

    wait: Wait
    target: str = ""
    """Path, `pipe`, `tcp port 443`, name of a semaphore; empty when it is not known."""
    mount_id: int = 0
    """Mount of the path in the target's mount table; 0 when it has none."""


class Resolver:
    """Follows calls of one run's processes. Answers are cached; `forget` a process when it ends."""

    def __init__(self, architecture: str, run_dir: str = "") -> None:
        """Resolve calls of this architecture (`os.uname().machine`); files of the run folder are nobody's data."""
        self._architecture = architecture
        self._run_dir = run_dir
        self._processes: dict[int, _Process] = {}
        self._sockets: dict[int, str] = {}
        self._sockets_read_ns = 0

    def resolve(
        self, pid: int, call: procfs.Call, state: str, peers: tuple[int, ...]
    ) -> Blocked:
        """Tell what a thread waits for.

        Args:
            pid: Its process.
            call: The call it is in.
            state: Its state letter.
            peers: Processes at the other end of loader queues.
        """
        if call.number == procfs.CALL_RUNNING or (
            call.number == procfs.CALL_NONE and state == "R"
        ):
            return Blocked(Wait.NONE)
        process = self._process(pid)
        if call.number == procfs.CALL_NONE:
            wait = wait_outside_call(state)
            return process.only_mapped_file() if wait is Wait.PAGE_FAULT else Blocked(wait)
        name = call_name(call.number, self._architecture)
        try:
            return self._follow(process, name, call, peers)
        except (OSError, ValueError, struct.error, IndexError):
            # The thread went on while we looked, or the process is closed to us.
            return Blocked(Wait.FILE if name == "close" else Wait.OTHER)

    def forget(self, pid: int) -> None:
        """Drop what is known of a process."""
        process = self._processes.pop(pid, None)
        if process is not None:
            process.close()

    def close(self) -> None:
        """Drop everything."""
        for pid in list(self._processes):
            self.forget(pid)

    def _process(self, pid: int) -> _Process:
        process = self._processes.get(pid)
        if process is None:
            process = self._processes[pid] = _Process(pid, self._run_dir)
        return process

    def _follow(
        self, process: _Process, name: str, call: procfs.Call, peers: tuple[int, ...]
    ) -> Blocked:
        writes = name in WRITING_CALLS
        match call_shape(name):
            case CallShape.DESCRIPTOR:
                return self._descriptor(
                    process, _fd(call.argument(0)), peers, writes=writes
                )
            case CallShape.SECOND_DESCRIPTOR:
                return self._descriptor(process, _fd(call.argument(1)), peers, writes=False)
            case CallShape.DESCRIPTOR_LOCK:
                return self._descriptor_lock(process, call)
            case CallShape.FCNTL:
                if fcntl_waits_for_lock(call.argument(1)):
                    return self._descriptor_lock(process, call)
                return self._descriptor(process, _fd(call.argument(0)), peers, writes=False)
            case CallShape.PATH:
                return process.path(call.argument(0), None)
            case CallShape.PATH_AT:
                return process.path(call.argument(1), call.argument(0))
            case CallShape.POLL:
                return self._poll(process, call, peers)
            case CallShape.SELECT:
                return self._any_of(process, process.selected(call), peers)
            case CallShape.EPOLL:
                info = procfs.read_fdinfo(process.pid, _fd(call.argument(0)))
                return self._any_of(process, info.watched, peers)
            case CallShape.FUTEX:
                return process.futex(
                    call.argument(0), private=futex_is_private(call.argument(1))
                )
            case CallShape.FUTEX_WAIT:
                return process.futex(
                    call.argument(0), private=futex_is_private(call.argument(3))
                )
            case CallShape.SLEEP:
                return Blocked(Wait.SLEEP)
            case CallShape.CHILD:
                return Blocked(Wait.CHILD)
            case CallShape.IPC:
                return Blocked(Wait.LOCK, name)
            case CallShape.FILE:
                return Blocked(Wait.FILE)
            case CallShape.OTHER:
                return Blocked(Wait.OTHER, name)

    def _descriptor(
        self, process: _Process, descriptor: int, peers: tuple[int, ...], *, writes: bool
    ) -> Blocked:
        link = procfs.read_link(process.pid, descriptor)
        wait = link_wait(link)
        if wait is Wait.PIPE:
            is_queue = not writes and self._is_loader_queue(process, link, peers)
            return Blocked(
                Wait.QUEUE if is_queue else Wait.PIPE, "queue" if is_queue else "pipe"
            )
        if wait is Wait.SOCKET:
            return self._socket(process.pid, link)
        if wait is Wait.OTHER:
            return Blocked(wait, link)
        path = link.removesuffix(" (deleted)")
        return Blocked(wait, path, process.mount_of(path, descriptor))

    def _descriptor_lock(self, process: _Process, call: procfs.Call) -> Blocked:
        found = self._descriptor(process, _fd(call.argument(0)), (), writes=False)
        return Blocked(Wait.LOCK, found.target, found.mount_id)

    def _poll(
        self, process: _Process, call: procfs.Call, peers: tuple[int, ...]
    ) -> Blocked:
        if call.argument(1) == 0:
            return Blocked(Wait.SLEEP)
        polled = process.polled(call.argument(0), min(call.argument(1), MAX_POLLED))
        if polled and not any(events & _POLLIN for _, events in polled):
            return self._descriptor(process, polled[0][0], peers, writes=True)
        return self._any_of(process, tuple(one for one, _ in polled), peers)

    def _any_of(
        self, process: _Process, descriptors: tuple[int, ...], peers: tuple[int, ...]
    ) -> Blocked:
        """Of several things waited for at once, the one that says most."""
        found = []
        for descriptor in descriptors[:MAX_POLLED]:
            with contextlib.suppress(OSError):
                found.append(self._descriptor(process, descriptor, peers, writes=False))
        if not descriptors:
            return Blocked(Wait.SLEEP)
        return min(
            found, key=lambda one: _PRECEDENCE.index(one.wait), default=Blocked(Wait.OTHER)
        )

    def _is_loader_queue(
        self, process: _Process, link: str, peers: tuple[int, ...]
    ) -> bool:
        """See NOTE [loader queues]."""
        if not peers:
            return False
        known = process.queues.get(link)
        now_ns = time.monotonic_ns()
        if known is not None and (known[0] or now_ns < known[1]):
            return known[0]
        links = list(procfs.read_descriptors(process.pid).values())
        answer = links.count(link) >= 2 and any(self._holds(peer, link) for peer in peers)
        process.queues[link] = (answer, now_ns + _QUEUE_AGAIN_NS)
        return answer

    def _holds(self, pid: int, link: str) -> bool:
        try:
            return link in procfs.read_descriptors(pid).values()
        except OSError:
            return False

    def _socket(self, pid: int, link: str) -> Blocked:
        inode = int(link[len("socket:[") : -1])
        now_ns = time.monotonic_ns()
        if inode not in self._sockets and now_ns - self._sockets_read_ns > _TRY_AGAIN_NS:
            self._sockets_read_ns = now_ns
            self._sockets = _read_sockets(pid)
        text = self._sockets.get(inode, "socket")
        return Blocked(Wait.PIPE if text == _LOCAL_SOCKET else Wait.SOCKET, text)


_LOCAL_SOCKET = "local socket"


def _read_sockets(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for kind, name in (("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{kind}") as file:
            found |= hostfs.parse_sockets(file.read(), name)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/net/unix") as file:
        found |= dict.fromkeys(hostfs.parse_unix_sockets(file.read()), _LOCAL_SOCKET)
    return found


def _fd(argument: int) -> int:
    return argument & 0xFFFFFFFF


class _Process:
    """What is known of one process: its memory, mounts and mappings."""

    def __init__(self, pid: int, run_dir: str) -> None:
        self.pid = pid
        self._run_dir = run_dir
        # Pipe to whether it is a loader's queue, and until when a no is believed.
        self.queues: dict[str, tuple[bool, int]] = {}
        self._memory: int | None = None
        self._futexes: dict[int, Blocked] = {}
        self._mount_of_folder: dict[str, int] = {}
        self._mapped: tuple[int, Blocked] | None = None
        self._mounts: tuple[procfs.Mount, ...] | None = None

    def close(self) -> None:
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def mount_of(self, path: str, descriptor: int) -> int:
        """Mount of an open file; files of one folder are on one mount."""
        folder = posixpath.dirname(path)
        known = self._mount_of_folder.get(folder)
        if known is not None:
            return known
        mount_id = procfs.read_fdinfo(self.pid, descriptor).mount_id
        if len(self._mount_of_folder) >= _MAX_CACHED:
            self._mount_of_folder.clear()
        self._mount_of_folder[folder] = mount_id
        return mount_id

    def polled(self, address: int, count: int) -> tuple[tuple[int, int], ...]:
        """Descriptors and events of a poll that is going on."""
        data = self._read(address, count * _POLLFD.size)
        whole = len(data) // _POLLFD.size * _POLLFD.size
        pairs = ((one, events) for one, events, _ in _POLLFD.iter_unpack(data[:whole]))
        return tuple((one, events) for one, events in pairs if one >= 0)

    def selected(self, call: procfs.Call) -> tuple[int, ...]:
        """Descriptors of a select that is going on, readers before writers."""
        byte_count = (min(call.argument(0), 1024) + 7) // 8
        found = []
        for address in (call.argument(1), call.argument(2)):
            if address and byte_count:
                bits = int.from_bytes(self._read(address, byte_count), "little")
                found += [one for one in range(byte_count * 8) if bits >> one & 1]
        return tuple(found)

    def path(self, address: int, folder_descriptor: int | None) -> Blocked:
        """The file that a call names by a path."""
        text = os.fsdecode(self._read(address, MAX_PATH_BYTES).partition(b"\0")[0])
        if not text.startswith("/"):
            text = posixpath.join(self._folder(folder_descriptor), text)
        path = posixpath.normpath(text)
        return Blocked(Wait.FILE, path, self._mount_by_prefix(path))

    def futex(self, address: int, *, private: bool) -> Blocked:
        """The lock behind a futex: of this process' threads, or shared with another process."""
        if private:
            return Blocked(Wait.THREAD)
        known = self._futexes.get(address)
        if known is None:
            known = self._futexes[address] = self._shared_futex(address)
        return known

    def only_mapped_file(self) -> Blocked:
        """The file of a page fault, where only one can be meant; else only the wait."""
        now_ns = time.monotonic_ns()
        if self._mapped is None or now_ns - self._mapped[0] > _TRY_AGAIN_NS:
            self._mapped = (now_ns, self._find_mapped_file())
        return self._mapped[1]

    def _find_mapped_file(self) -> Blocked:
        try:
            paths = data_files(procfs.read_maps(self.pid), self._run_dir)
            mounts = {self._mount_by_prefix(path) for path in paths}
        except (OSError, ValueError):
            return Blocked(Wait.PAGE_FAULT)
        return Blocked(
            Wait.PAGE_FAULT,
            next(iter(paths)) if len(paths) == 1 else "",
            next(iter(mounts)) if len(mounts) == 1 else 0,
        )

    def _shared_futex(self, address: int) -> Blocked:
        for mapping in procfs.read_maps(self.pid):
            if mapping.start <= address < mapping.end:
                shared = mapping_is_shared_lock(mapping.permissions, mapping.path)
                return Blocked(Wait.LOCK, mapping.path) if shared else Blocked(Wait.THREAD)
        return Blocked(Wait.OTHER)

    def _folder(self, descriptor: int | None) -> str:
        if descriptor is None or _fd(descriptor) == _AT_FDCWD:
            return os.readlink(f"/proc/{self.pid}/cwd")
        return procfs.read_link(self.pid, _fd(descriptor))

    def _mount_by_prefix(self, path: str) -> int:
        if self._mounts is None:
            self._mounts = procfs.read_mounts(self.pid)
        return longest_mount(path, self._mounts)

    def _read(self, address: int, byte_count: int) -> bytes:
        if self._memory is None:
            self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._memory, byte_count, address)


def longest_mount(path: str, mounts: tuple[procfs.Mount, ...]) -> int:
    """The mount that a path lies on; of two on one point the later, which covers the other."""
    best_length, best_id = -1, 0
    for mount in mounts:
        point = mount.mount_point.rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best_length:
            best_length, best_id = len(point), mount.mount_id
    return best_id


def data_files(mappings: Iterable[procfs.Mapping], run_dir: str = "") -> set[str]:
    """Mapped files that can be somebody's data: no program, no library, nothing of a library's own or of ours."""
    left_out = (*_SYSTEM_FOLDERS, f"{run_dir}/") if run_dir else _SYSTEM_FOLDERS
    found, code = set(), set()
    for mapping in mappings:
        if "x" in mapping.permissions:
            code.add(mapping.path)
        elif mapping.path.startswith("/") and not mapping.path.startswith(left_out):
            found.add(mapping.path)
    return {path for path in found - code if not path.endswith(_LIBRARY_DATA)}
