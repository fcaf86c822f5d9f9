"""What /proc and cgroups say of the machine: text to numbers by pure parsers. Units are converted to ns and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from whyidle.observe.procfs import NS_PER_TICK, PAGE_BYTES, unescape

SECTOR_BYTES = 512
"""diskstats counts sectors of 512 bytes whatever the disk has."""
NFS_TYPES = ("nfs", "nfs4")


def parse_cpu_times(text: str) -> dict[str, int]:
    """Parse the first line of /proc/stat: busy (without iowait and steal), idle, iowait, steal, ns since boot.

    cpu  5649 0 2109 635848 644 0 31 8 0 0
    cpu0 724 0 622 320781 7 0 5 2 0 0
    ctxt 459527
    """
    fields = [int(one) * NS_PER_TICK for one in text.split("\n", 1)[0].split()[1:]]
    user, nice, system, idle, iowait, irq, softirq, steal = (fields + [0] * 8)[:8]
    busy = user + nice + system + irq + softirq
    return {"busy": busy, "idle": idle, "iowait": iowait, "steal": steal}


def parse_available_memory(text: str) -> int | None:
    """Parse MemAvailable of /proc/meminfo, bytes; None before kernel 3.14.

    MemTotal:       24684092 kB
    MemFree:        24294648 kB
    MemAvailable:   24300148 kB
    """
    return _parse_kilobytes(text, "MemAvailable:")


def parse_total_memory(text: str) -> int | None:
    """Parse MemTotal of /proc/meminfo, bytes (lines as above)."""
    return _parse_kilobytes(text, "MemTotal:")


def _parse_kilobytes(text: str, name: str) -> int | None:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None


def parse_swapped_in(text: str) -> int | None:
    """Parse bytes swapped in since boot out of /proc/vmstat.

    nr_free_pages 6073632
    pswpin 12
    pswpout 90
    """
    for line in text.splitlines():
        if line.startswith("pswpin "):
            return int(line.split()[1]) * PAGE_BYTES
    return None


def parse_pressure(text: str) -> int | None:
    """Parse the time in which some task was held up, ns, out of a file in /proc/pressure.

    some avg10=1.20 avg60=0.72 avg300=0.24 total=4430085
    full avg10=0.00 avg60=0.00 avg300=0.00 total=0
    some avg10=0.03 avg60=0.09 avg300=0.35 total=6326930
    """
    for line in text.splitlines():
        if line.startswith("some "):
            return int(line.rpartition("total=")[2]) * 1000
    return None


def parse_net_dev(text: str) -> dict[str, tuple[int, int]]:
    """Parse bytes received and sent by interface; two lines of headings come first.

    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls …
       lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0 …
     eth0:1295180011  98121    0    0    0     0          0         0  9120033   60112    0    0    0     0 …
    """
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) >= 9:
            found[name.strip()] = (int(fields[0]), int(fields[8]))
    return found


@dataclass(frozen=True, slots=True)
class Disk:
    """One block device."""

    read_bytes: int
    busy_ns: int
    """Time with at least one request in flight, resolution 1 ms."""


def parse_diskstats(text: str) -> dict[str, Disk]:
    """Parse block devices that were ever used, by name: fields 3 (name), 6 (sectors read), 13 (ms busy).

      7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
    254       0 vda 8123 91 911104 4120 771 402 30112 810 0 3704 4940 0 0 0 0 11 9
    259       0 nvme0n1 91823 12 8812344 30112 0 0 0 0 0 28012 30112
    """
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 13 and fields[3] != "0":
            sectors, busy_ms = int(fields[5]), int(fields[12])
            found[fields[2]] = Disk(sectors * SECTOR_BYTES, busy_ms * 1_000_000)
    return found


def parse_mountstats(text: str) -> dict[str, int]:
    """Parse bytes read from the server by NFS mount point; other file systems have no counters here.

    device nas:/export/set mounted on /mnt/set with fstype nfs4 statvers=1.1
            bytes:  4199 0 0 0 8388608 0 2048 0
    device /dev/vda mounted on / with fstype ext4
    """
    found = {}
    mount_point = None
    for line in text.splitlines():
        if line.startswith("device "):
            mount_point = _nfs_mount_point(line)
        elif mount_point is not None and line.lstrip().startswith("bytes:"):
            found[mount_point] = int(line.split()[5])
    return found


def _nfs_mount_point(line: str) -> str | None:
    device_and_point, _, rest = line.rpartition(" with fstype ")
    if rest.split(" ")[0] not in NFS_TYPES:
        return None
    return unescape(device_and_point.partition(" mounted on ")[2])


@dataclass(frozen=True, slots=True)
class Throttling:
    """A cgroup's CPU quota at work."""

    period_count: int
    throttled_count: int
    throttled_ns: int


def parse_cpu_stat(text: str) -> Throttling | None:
    """Parse a cgroup's cpu.stat, either version; None where the level has no quota accounting.

    nr_periods 60
    nr_throttled 58
    throttled_time 4403912208   (version 1, ns; version 2 has throttled_usec)
    """
    values = dict(line.split()[:2] for line in text.splitlines() if " " in line)
    if "nr_periods" not in values:
        return None
    throttled_ns = (
        int(values.get("throttled_time", 0)) or int(values.get("throttled_usec", 0)) * 1000
    )
    return Throttling(
        int(values["nr_periods"]), int(values.get("nr_throttled", 0)), throttled_ns
    )


def parse_cpu_max(text: str) -> float | None:
    """Parse a version 2 quota in CPUs; None: unlimited.

    100000 100000
    50000 100000
    max 100000

    >>> parse_cpu_max("50000 100000"), parse_cpu_max("max 100000")
    (0.5, None)
    """
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def parse_cfs_quota(quota: str, period: str) -> float | None:
    """Parse a version 1 quota (cpu.cfs_quota_us, cpu.cfs_period_us) in CPUs; None: unlimited.

    -1
    50000
    100000

    >>> parse_cfs_quota("50000", "100000"), parse_cfs_quota("-1", "100000")
    (0.5, None)
    """
    return None if int(quota) < 0 else int(quota) / int(period)


def parse_last_pid(text: str) -> int:
    """Parse the newest pid out of /proc/loadavg: as long as it stays, no process or thread was started.

    0.10 0.04 0.01 1/94 6037
    1.52 1.10 0.80 3/512 91023
    0.00 0.00 0.00 1/77 412
    """
    return int(text.split()[4])


def parse_sockets(text: str, kind: str) -> dict[int, str]:
    """Parse /proc/PID/net/tcp, tcp6 or udp: inode to `kind port`, the remote port; addresses are not kept.

    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1717 1 …
    1: 0100007F:A3C2 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1811 1 …
    2: 0A00000A:8FE2 0B00000A:01BB 01 00000000:00000000 02:000A7B2F 00000000  1000        0 2211 2 …
    """
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 10 and ":" in fields[2] and fields[9].isdigit():
            found[int(fields[9])] = f"{kind} port {int(fields[2].rpartition(':')[2], 16)}"
    return found


def parse_unix_sockets(text: str) -> frozenset[int]:
    """Parse the inodes of /proc/PID/net/unix: sockets that stay on this machine.

    Num       RefCount Protocol Flags    Type St Inode Path
    ffff8881: 00000003 00000000 00000000 0001 03 18123
    ffff8882: 00000002 00000000 00010000 0001 01 18001 /run/dbus/socket
    """
    rows = (line.split() for line in text.splitlines())
    return frozenset(int(row[6]) for row in rows if len(row) >= 7 and row[6].isdigit())
