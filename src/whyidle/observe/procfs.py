"""What /proc says of a process or a thread: text to record by pure parsers, and thin readers.

Parsers take text or bytes and never touch the system. Readers raise OSError when the process is gone or closed to us.
Layouts: `Documentation/filesystems/proc.rst` of the kernel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NS_PER_TICK = 1_000_000_000 // CLOCK_TICKS

CALL_RUNNING = 0xFFFFFFFE
"""In place of a call number: the thread runs or is ready to."""
CALL_NONE = 0xFFFFFFFF
"""In place of a call number: the thread is blocked, but not in a call."""


@dataclass(frozen=True, slots=True)
class Stat:
    """/proc/PID/stat; for a process the sums over its threads."""

    name: str
    """Name of the thread, at most 15 bytes."""
    state: str
    """R S D T t Z X I, as the kernel shows it."""
    parent_pid: int
    minor_faults: int
    major_faults: int
    user_ns: int
    """CPU time in user mode, resolution one clock tick (10 ms)."""
    system_ns: int
    """CPU time in the kernel, resolution one clock tick (10 ms)."""
    thread_count: int
    start_ticks: int
    """Start of the process, clock ticks after boot: with the pid it names a process for good."""
    rss_bytes: int
    """Resident memory, shared pages included."""


def parse_stat(text: str) -> Stat:
    """Parse a stat line; fields 2, 3, 4, 10, 12, 14, 15, 20, 22, 24. The name may hold spaces and brackets.

    6037 (cat) R 6033 6033 2514 0 -1 4194304 97 0 0 0 0 0 0 0 20 0 1 0 322542 3133440 413 18446744073709551615 …
    4242 (pt_data_worker) S 4200 4200 2514 0 -1 4194368 91033 0 2 0 913 77 0 0 20 0 3 0 33018 5112311808 61204 …
    99 (my (odd) name) D 1 99 99 0 -1 4194560 12 0 967 0 1 2 0 0 20 0 1 0 1200 8192 2 18446744073709551615 …
    """
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(
        name=head.partition("(")[2],
        state=fields[0],
        parent_pid=int(fields[1]),
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        user_ns=int(fields[11]) * NS_PER_TICK,
        system_ns=int(fields[12]) * NS_PER_TICK,
        thread_count=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def parse_state(data: bytes) -> str:
    """Take only the state letter out of a stat line (see `parse_stat`)."""
    end = data.rindex(b")")
    return chr(data[end + 2])


def parse_schedstat(data: bytes) -> tuple[int, int]:
    """Parse time on a CPU and time waiting for one, ns; the third field counts time slices.

    789150 0 1
    51823790117 1209338410 8123
    0 0 0
    """
    on_cpu, waiting, _ = data.split()
    return int(on_cpu), int(waiting)


@dataclass(frozen=True, slots=True)
class Call:
    """/proc/PID/task/TID/syscall: the call a thread is blocked in."""

    number: int
    """Of the call; CALL_RUNNING or CALL_NONE."""
    words: tuple[bytes, ...] = ()
    """Its six arguments as they stand, in hexadecimal; none outside a call. Most are never asked for."""

    def argument(self, index: int) -> int:
        """One of the arguments.

        Raises:
            IndexError: there is none.
        """
        return int(self.words[index], 16)


RUNNING = Call(CALL_RUNNING)
OUTSIDE_CALLS = Call(CALL_NONE)


def parse_syscall(data: bytes) -> Call:
    """Parse a syscall line: number, six arguments, stack pointer, program counter.

    7 0x7ffc2b9d9a10 0x1 0x1388 0x0 0x7ffc2b9d9a10 0x0 0x7ffc2b9d99d8 0x7ff3468422ad
    -1 0x7f10a3fff000 0x7f10b1c2d6aa
    running
    """
    fields = data.split()
    if not fields or fields[0] == b"running":
        return RUNNING
    number = int(fields[0])
    if number < 0:
        return OUTSIDE_CALLS
    return Call(number, tuple(fields[1:7]))


def parse_io(text: str) -> dict[str, int]:
    """Parse I/O counters in bytes and calls, by name; `read_bytes` reached storage, `rchar` did not need to.

    rchar: 7363
    read_bytes: 4096
    cancelled_write_bytes: 0
    """
    pairs = (line.split(": ") for line in text.splitlines())
    return {name: int(value) for name, value in pairs}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs as in Cpus_allowed_list.

    0-1
    0,2-3,8
    5

    >>> parse_cpu_list("0,2-3,8")
    (0, 2, 3, 8)
    """
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def parse_status(text: str) -> dict[str, str]:
    """Parse status into its fields, values as they stand.

    Name:   python
    Threads:        1
    Cpus_allowed_list:      0-1
    """
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def parse_children(text: str) -> tuple[int, ...]:
    """Parse the pids of a thread's children.

    6038 6044
    7
    (an empty file: none)
    """
    return tuple(int(pid) for pid in text.split())


@dataclass(frozen=True, slots=True)
class DescriptorInfo:
    """/proc/PID/fdinfo/FD."""

    mount_id: int
    """Key into mountinfo; 0 when the kernel does not say."""
    is_write_only: bool
    """Opened with O_WRONLY: the writing end of a pipe."""
    watched: tuple[int, ...]
    """Descriptors an epoll instance watches."""


def parse_fdinfo(text: str) -> DescriptorInfo:
    """Parse what is known of a descriptor; `tfd` lines stand in epoll instances only.

    flags:  0100000
    mnt_id: 24
    tfd:        7 events:       19 data:                7  pos:0 ino:1f9 sdev:d
    """
    mount_id, flags, watched = 0, 0, []
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name == "mnt_id":
            mount_id = int(rest)
        elif name == "flags":
            flags = int(rest, 8)
        elif name == "tfd":
            watched.append(int(rest.split()[0]))
    return DescriptorInfo(mount_id, flags & os.O_ACCMODE == os.O_WRONLY, tuple(watched))


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    mount_id: int
    device: str
    """major:minor, as diskstats has it for block devices."""
    root: str
    """Folder of the file system that is mounted; / unless it is a bind mount or a container's cgroup."""
    mount_point: str
    fstype: str
    """ext4, nfs4, fuse.sshfs, …"""
    options: str
    """Options of the file system, comma separated."""


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    r"""Parse the mounts; fields before ` - ` vary in number. Spaces in paths are written \040.

    27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resv_strict
    36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
    98 27 0:53 / /mnt/data\040set rw,nosuid shared:7 - fuse.sshfs nas:/set rw,user_id=0
    """
    return tuple(_parse_mount(line) for line in text.splitlines() if " - " in line)


def _parse_mount(line: str) -> Mount:
    first, _, second = line.partition(" - ")
    fields, types = first.split(" "), second.split(" ")
    return Mount(
        mount_id=int(fields[0]),
        device=fields[2],
        root=unescape(fields[3]),
        mount_point=unescape(fields[4]),
        fstype=types[0],
        options=types[2] if len(types) > 2 else "",
    )


def unescape(text: str) -> str:
    r"""Undo the octal escapes of the kernel's mount tables.

    >>> unescape("/mnt/data\\040set")
    '/mnt/data set'
    """
    if "\\" not in text:
        return text
    for escaped, plain in (
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ):
        text = text.replace(escaped, plain)
    return text


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of maps."""

    start: int
    end: int
    permissions: str
    """rwxp: s instead of p is shared."""
    path: str
    """Empty for anonymous memory."""


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """Parse the memory mappings, in the order of their addresses.

    7f10a0000000-7f10a0001000 rw-s 00000000 00:1e 7    /dev/shm/sem.mp-x1b2 (deleted)
    7f10b1c00000-7f10b1e00000 r--p 00000000 fe:00 91   /data/train.bin
    7ffc2b9bb000-7ffc2b9dc000 rw-p 00000000 00:00 0    [stack]
    """
    return tuple(_parse_mapping(line) for line in text.splitlines())


def _parse_mapping(line: str) -> Mapping:
    fields = line.split(None, 5)
    start, _, end = fields[0].partition("-")
    path = fields[5].removesuffix(" (deleted)") if len(fields) > 5 else ""
    return Mapping(int(start, 16), int(end, 16), fields[1], path)


def parse_cgroups(text: str) -> dict[str, str]:
    """Parse a process' cgroups: controller to path; the unified hierarchy has the key "".

    9:name=systemd:/
    1:cpu,cpuacct:/docker/b9f213
    0::/user.slice/run-u7.scope
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def read_stat(pid: int) -> Stat:
    """Read a process' stat."""
    return parse_stat(_read(f"/proc/{pid}/stat").decode("utf-8", "replace"))


def read_cpus_allowed(pid: int) -> tuple[int, ...]:
    """Read which CPUs a process may use."""
    status = parse_status(_read(f"/proc/{pid}/status").decode("utf-8", "replace"))
    return parse_cpu_list(status.get("Cpus_allowed_list", ""))


def read_io(pid: int) -> dict[str, int]:
    """Read a process' I/O counters; same user only."""
    return parse_io(_read(f"/proc/{pid}/io").decode())


def read_command_line(pid: int) -> tuple[str, ...]:
    """Read a process' arguments."""
    return tuple(_read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").split("\0")[:-1])


def read_executable(pid: int) -> str:
    """Read the path of a process' program; same user only."""
    return os.readlink(f"/proc/{pid}/exe")


def read_children(pid: int, tid: int) -> tuple[int, ...]:
    """Read the pids of the children that a thread has started."""
    return parse_children(_read(f"/proc/{pid}/task/{tid}/children").decode())


def read_threads(pid: int) -> tuple[int, ...]:
    """List a process' threads."""
    return tuple(int(tid) for tid in os.listdir(f"/proc/{pid}/task"))


def read_link(pid: int, descriptor: int) -> str:
    """Read what a descriptor is, without touching the file: a hung mount would hang us."""
    return os.readlink(f"/proc/{pid}/fd/{descriptor}")


def read_fdinfo(pid: int, descriptor: int) -> DescriptorInfo:
    """Read what is known of a descriptor."""
    return parse_fdinfo(_read(f"/proc/{pid}/fdinfo/{descriptor}").decode())


def read_descriptors(pid: int) -> dict[int, str]:
    """Read all descriptors of a process and what they are; those closed meanwhile are left out."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    return found


def read_mounts(pid: int) -> tuple[Mount, ...]:
    """Read the mounts that a process sees."""
    return parse_mountinfo(_read(f"/proc/{pid}/mountinfo").decode("utf-8", "replace"))


def read_maps(pid: int) -> tuple[Mapping, ...]:
    """Read a process' memory mappings."""
    return parse_maps(_read(f"/proc/{pid}/maps").decode("utf-8", "replace"))


def read_cgroups(pid: int) -> dict[str, str]:
    """Read a process' cgroups."""
    return parse_cgroups(_read(f"/proc/{pid}/cgroup").decode("utf-8", "replace"))


def read_memory(pid: int, address: int, byte_count: int) -> bytes:
    """Read memory of a process; same rights as for tracing it."""
    file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, byte_count, address)
    finally:
        os.close(file)


def list_pids() -> list[int]:
    """List all processes that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, 65536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)
