"""What real threads wait for, seen from outside in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.agent.launching import wait_for
from whyidle.model.waits import Wait
from whyidle.observe import procfs
from whyidle.observe.blocked import Blocked, Resolver, data_files, longest_mount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFACE = """
import fcntl, multiprocessing, os, select, signal, socket, subprocess, sys, threading, time
def tell(*pids): print(*(pids or [os.getpid()]), flush=True)
"""


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    """A resolver for this machine."""
    resolver = Resolver(os.uname().machine)
    yield resolver
    resolver.close()


def _look(
    resolver: Resolver, pid: int, peers: tuple[int, ...] = (), tid: int = 0
) -> Blocked:
    """Look at a thread until it is blocked twice in the same call."""
    folder = f"/proc/{pid}/task/{tid or pid}"

    def settled() -> tuple[procfs.Call, str] | None:
        lines = []
        for _ in range(2):
            with open(f"{folder}/syscall", "rb") as file:
                lines.append(file.read())
        with open(f"{folder}/stat", "rb") as file:
            state = procfs.parse_state(file.read())
        if lines[0] != lines[1] or lines[0].startswith(b"running") or state == "R":
            return None
        return procfs.parse_syscall(lines[0]), state

    found: list[Blocked] = []

    def repeated() -> bool:
        now = settled()
        if now is not None:
            found.append(resolver.resolve(pid, *now, peers))
        return len(found) >= 3 and len(set(found[-3:])) == 1

    wait_for(repeated)
    return found[-1]


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[object]:
    """Starts code that names its pids and then blocks; ends it afterwards."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str) -> list[int]:
        process = subprocess.Popen(
            [sys.executable, "-c", PREFACE + textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        running.append(process)
        return [int(word) for word in process.stdout.readline().split()]

    yield start
    for process in running:
        os.killpg(process.pid, 9)
        process.communicate()


@pytest.mark.parametrize(
    ("code", "wait", "target"),
    [
        ("tell(); time.sleep(60)", Wait.SLEEP, ""),
        ("tell(); select.select([], [], [], 60)", Wait.SLEEP, ""),
        ("tell(); sys.stdin.read()", Wait.PIPE, "pipe"),
        ("a, b = os.pipe(); tell(); select.select([a], [], [])", Wait.PIPE, "pipe"),
        ("a, b = socket.socketpair(); tell(); a.recv(1)", Wait.PIPE, "local socket"),
        ("tell(); threading.Event().wait()", Wait.THREAD, ""),
        ("t = threading.Thread(target=time.sleep, args=(60,)); t.start(); tell(); t.join()", Wait.THREAD, ""),
        ("p = subprocess.Popen(['sleep', '60']); tell(); p.wait()", Wait.CHILD, ""),
    ],
)  # fmt: skip
def test_call_is_followed_to_what_it_waits_for(
    resolver: Resolver, blocked: object, code: str, wait: Wait, target: str
) -> None:
    """Each kind of wait is told apart by its call and its arguments."""
    (pid,) = blocked(code)  # type: ignore[operator]

    found = _look(resolver, pid)

    assert (found.wait, found.target) == (wait, target)


LISTEN = "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"


@pytest.mark.parametrize(
    "code",
    [
        "tell(); c.recv(1)",
        "c.settimeout(60); tell(); c.recv(1)",
        "e = select.epoll(); e.register(c, select.EPOLLIN); tell(); e.poll()",
        "a, b = os.pipe(); p = select.poll(); p.register(a, 1); p.register(c, 1); tell(); p.poll()",
    ],
)
def test_socket_with_and_without_a_timeout(
    resolver: Resolver, blocked: object, code: str
) -> None:
    """A client is seen as one whether it sits in recv, poll or epoll; an idle worker sits in poll too."""
    (pid,) = blocked(LISTEN + code)  # type: ignore[operator]

    found = _look(resolver, pid)

    assert found.wait is Wait.SOCKET
    assert found.target.startswith("tcp port ")


def test_shared_lock_is_named(resolver: Resolver, blocked: object) -> None:
    """A lock of multiprocessing is a semaphore in shared memory."""
    (pid,) = blocked("l = multiprocessing.Lock(); l.acquire(); tell(); l.acquire()")  # type: ignore[operator]

    found = _look(resolver, pid)

    assert found.wait is Wait.LOCK
    assert found.target.startswith("/dev/shm/sem.")


def test_file_lock_names_the_file(
    resolver: Resolver, blocked: object, tmp_path: Path
) -> None:
    """Flock and a record lock lead to the file and its mount."""
    code = """
    f = open("lockfile", "w"); fcntl.%s(f, fcntl.LOCK_EX)
    if (pid := os.fork()) == 0:
        g = open("lockfile", "w"); fcntl.%s(g, fcntl.LOCK_EX)
    tell(pid); time.sleep(60)
    """
    mounts = procfs.read_mounts(os.getpid())

    for name in ("flock", "lockf"):
        (pid,) = blocked(code % (name, name))  # type: ignore[operator]
        found = _look(resolver, pid)

        assert (found.wait, found.target) == (Wait.LOCK, str(tmp_path / "lockfile"))
        assert found.mount_id == longest_mount(str(tmp_path), mounts)


QUEUE = """
queue, result = multiprocessing.Queue(), multiprocessing.Queue()
if (worker := os.fork()) == 0:
    while True:
        try: queue.get(timeout=5)
        except Exception: pass
tell(os.getpid(), worker)
"""


def test_idle_worker_and_waiting_loop_are_at_queues(
    resolver: Resolver, blocked: object
) -> None:
    """Both sides of a loader wait at queues; without the other side's pid it is only a pipe."""
    loop, worker = blocked(QUEUE + "result.get(timeout=60)")  # type: ignore[operator]

    assert _look(resolver, worker, (loop,)) == Blocked(Wait.QUEUE, "queue")
    assert _look(resolver, loop, (worker,)) == Blocked(Wait.QUEUE, "queue")
    assert _look(Resolver(os.uname().machine), worker).wait is Wait.PIPE


def test_pipe_to_a_subprocess_is_no_queue(resolver: Resolver, blocked: object) -> None:
    """A loop that reads from a subprocess holds one end only, even if a forked worker inherited it."""
    code = """
    p = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    if (worker := os.fork()) == 0: time.sleep(60)
    tell(os.getpid(), worker); p.stdout.read(1)
    """
    loop, worker = blocked(code)  # type: ignore[operator]

    assert _look(resolver, loop, (worker,)) == Blocked(Wait.PIPE, "pipe")


def test_full_result_pipe_is_no_idleness(resolver: Resolver, blocked: object) -> None:
    """A worker that writes into a full queue hands over a result: it is not idle."""
    code = """
    reading, writing = os.pipe(); twin = os.dup(writing)
    if (worker := os.fork()) == 0:
        os.write(writing, bytes(1 << 20))
    tell(os.getpid(), worker); time.sleep(60)
    """
    loop, worker = blocked(code)  # type: ignore[operator]

    assert _look(resolver, worker, (loop,)) == Blocked(Wait.PIPE, "pipe")


def test_named_pipe_in_a_call_that_names_a_path(
    resolver: Resolver, blocked: object, tmp_path: Path
) -> None:
    """A call that is given a path, here open, leads to the path, relative ones by the folder."""
    os.mkfifo(tmp_path / "fifo")
    (pid,) = blocked("tell(); open('./fifo')")  # type: ignore[operator]

    found = _look(resolver, pid)

    assert (found.wait, found.target) == (Wait.FILE, str(tmp_path / "fifo"))
    assert found.mount_id != 0


def test_process_that_is_gone_is_other(resolver: Resolver) -> None:
    """A process that ended while we looked gives no answer, not an error."""
    call = procfs.parse_syscall(b"0 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0")

    assert resolver.resolve(4_100_000, call, "S", ()) == Blocked(Wait.OTHER)
    assert resolver.resolve(4_100_000, procfs.OUTSIDE_CALLS, "D", ()) == Blocked(
        Wait.PAGE_FAULT
    )
    assert resolver.resolve(4_100_000, procfs.RUNNING, "R", ()) == Blocked(Wait.NONE)


def test_longest_mount_wins() -> None:
    """The innermost mount counts; of two on one point the later, which covers the other."""
    mounts = procfs.parse_mountinfo(
        "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /data rw - nfs4 b rw\n3 1 0:3 / /data rw - fuse c rw\n"
    )

    paths = ("/data/x", "/data", "/database", "/x")
    assert [longest_mount(path, mounts) for path in paths] == [3, 3, 1, 1]


def test_data_files_are_neither_programs_nor_libraries() -> None:
    """Of the mapped files only those count that hold no code and lie outside the system's folders."""
    mappings = procfs.parse_maps(
        "1000-2000 r--p 0 fe:00 1 /opt/bin/python3.11\n"
        "2000-3000 r-xp 0 fe:00 1 /opt/bin/python3.11\n"
        "3000-4000 r--p 0 fe:00 2 /opt/lib/x.cpython-311.so\n"
        "4000-5000 r--s 0 fe:00 3 /data/train.bin\n"
        "5000-6000 rw-s 0 00:1e 4 /dev/shm/torch_1\n"
        "6000-7000 r--p 0 fe:00 5 /usr/lib/locale/locale-archive\n"
        "7000-8000 rw-p 0 00:00 0 [heap]\n"
        "8000-9000 rw-s 0 fe:00 6 /runs/1/journals/agent-1-1.journal\n"
    )

    assert data_files(mappings, "/runs/1") == {"/data/train.bin"}
