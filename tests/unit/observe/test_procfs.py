"""Parsers of /proc on recorded text, and readers on this process."""

from __future__ import annotations

import os

import pytest

from whyidle.observe import procfs

STAT = (
    "4242 (pt_data_worker) S 4200 4200 2514 0 -1 4194368 91033 0 2 0 913 77 0 0 20 0 3 0 33018 "
    "5112311808 61204 18446744073709551615 1 1 0 0 0 0 0 16781312 1 0 0 0 17 1 0 0 0 0 0 0 0 0 0"
)


def test_stat_of_a_worker() -> None:
    """Fields of a stat line are taken by their position, ticks become ns and pages bytes."""
    stat = procfs.parse_stat(STAT)

    assert stat == procfs.Stat(
        name="pt_data_worker",
        state="S",
        parent_pid=4200,
        minor_faults=91033,
        major_faults=2,
        user_ns=913 * procfs.NS_PER_TICK,
        system_ns=77 * procfs.NS_PER_TICK,
        thread_count=3,
        start_ticks=33018,
        rss_bytes=61204 * procfs.PAGE_BYTES,
    )


def test_stat_with_brackets_and_spaces_in_the_name() -> None:
    """A name with spaces and brackets does not shift the fields behind it."""
    text = STAT.replace("pt_data_worker", "a) R (b")

    stat = procfs.parse_stat(text)

    assert (stat.name, stat.state, stat.parent_pid) == ("a) R (b", "S", 4200)
    assert procfs.parse_state(text.encode()) == "S"


def test_schedstat_gives_cpu_and_queue_time() -> None:
    """The first two fields are time on a CPU and time waiting for one."""
    assert procfs.parse_schedstat(b"51823790117 1209338410 8123\n") == (
        51823790117,
        1209338410,
    )


@pytest.mark.parametrize(
    ("line", "number", "arguments"),
    [
        (
            b"7 0x7ffc2b9d9a10 0x1 0x1388 0x0 0x7f 0x0 0x7ffc2b9d99d8 0x7ff3\n",
            7,
            [0x7FFC2B9D9A10, 1],
        ),
        (b"-1 0x7f10a3fff000 0x7f10b1c2d6aa\n", procfs.CALL_NONE, []),
        (b"running\n", procfs.CALL_RUNNING, []),
        (b"", procfs.CALL_RUNNING, []),
    ],
)
def test_syscall_line(line: bytes, number: int, arguments: list[int]) -> None:
    """A call has a number and arguments; a page fault and a running thread have none."""
    call = procfs.parse_syscall(line)

    assert call.number == number
    assert [call.argument(index) for index in range(len(arguments))] == arguments


def test_io_counters_by_name() -> None:
    """Every counter keeps the kernel's name."""
    text = "rchar: 7363\nwchar: 387\nread_bytes: 4096\ncancelled_write_bytes: 0\n"

    assert procfs.parse_io(text)["read_bytes"] == 4096


def test_status_takes_the_allowed_cpus() -> None:
    """Values of status stand as text; a CPU list opens into numbers."""
    status = procfs.parse_status("Name:\tpython\nCpus_allowed_list:\t0,2-3\n")

    assert procfs.parse_cpu_list(status["Cpus_allowed_list"]) == (0, 2, 3)


def test_children_of_a_thread() -> None:
    """Pids are parted by blanks; a thread without children has an empty file."""
    assert (procfs.parse_children("6038 6044 \n"), procfs.parse_children("")) == (
        (6038, 6044),
        (),
    )


def test_fdinfo_of_a_pipe_and_an_epoll() -> None:
    """The mount, the writing end and the watched descriptors are found."""
    pipe = procfs.parse_fdinfo("pos:\t0\nflags:\t0100001\nmnt_id:\t15\nino:\t3\n")
    epoll = procfs.parse_fdinfo(
        "flags:\t02\nmnt_id:\t16\ntfd:        7 events:       19 data:                7  pos:0\n"
    )

    assert (pipe.mount_id, pipe.is_write_only) == (15, True)
    assert epoll.watched == (7,)


def test_mountinfo_with_optional_fields_and_blanks() -> None:
    """Optional fields before the dash do not shift the type, escaped blanks are undone."""
    text = (
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
        "98 27 0:53 / /mnt/data\\040set rw,nosuid shared:7 master:2 - fuse.sshfs nas:/set rw,user_id=0\n"
    )

    root, data = procfs.parse_mountinfo(text)

    assert (root.mount_point, root.fstype) == ("/", "ext4")
    assert (data.mount_id, data.mount_point, data.fstype) == (
        98,
        "/mnt/data set",
        "fuse.sshfs",
    )


def test_maps_name_shared_and_deleted_files() -> None:
    """A semaphore is unlinked once it is mapped: its name stays, the note does not."""
    text = (
        "7f10a0000000-7f10a0001000 rw-s 00000000 00:1e 7    /dev/shm/sem.mp-x1b2 (deleted)\n"
        "7f10b1c00000-7f10b1e00000 r--p 00000000 fe:00 91   /data/a b.bin\n"
        "7f10c0000000-7f10c0021000 rw-p 00000000 00:00 0\n"
    )

    lock, data, anonymous = procfs.parse_maps(text)

    assert (lock.path, lock.permissions) == ("/dev/shm/sem.mp-x1b2", "rw-s")
    assert (data.path, anonymous.path) == ("/data/a b.bin", "")
    assert data.start == 0x7F10B1C00000


def test_cgroups_of_both_versions() -> None:
    """Controllers mounted together share a path; the unified hierarchy has no name."""
    paths = procfs.parse_cgroups(
        "9:name=systemd:/\n1:cpu,cpuacct:/docker/b9\n0::/user.slice\n"
    )

    assert (paths["cpu"], paths["cpuacct"], paths[""]) == (
        "/docker/b9",
        "/docker/b9",
        "/user.slice",
    )


def test_readers_read_this_process() -> None:
    """What is read of this process agrees with what Python knows of it."""
    pid = os.getpid()
    reading, writing = os.pipe()

    stat = procfs.read_stat(pid)
    links = procfs.read_descriptors(pid)
    info = procfs.read_fdinfo(pid, writing)
    os.close(reading)
    os.close(writing)

    assert stat.parent_pid == os.getppid()
    assert set(procfs.read_cpus_allowed(pid)) == os.sched_getaffinity(0)
    assert pid in procfs.read_threads(pid)
    assert links[reading] == links[writing]
    assert info.is_write_only
    assert "rchar" in procfs.read_io(pid)
    assert pid in procfs.list_pids()
    assert any(one.path.endswith("[stack]") for one in procfs.read_maps(pid))
