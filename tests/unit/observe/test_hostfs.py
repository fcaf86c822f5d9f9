"""Parsers of machine-wide text, on recorded text; NFS as its kernel documentation has it."""

from __future__ import annotations

from whyidle.observe import hostfs, procfs

MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device nas01:/export/set mounted on /mnt/data\\040set with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys
\tage:\t518
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xf8f3b77e,bm1=0x40b0be3a,bm2=0x60803,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t12 4310 0 88 11 7 4401 2101 0 42 0 0 0 19 3 0 0 17 0 0 2100 0 0 0 0 0 0
\tbytes:\t914358272 0 0 0 8388608 0 2048 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 871 0 1 0 9 4438 4438 0 4521 0 2 31 103
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 210 210 0 43680 8413440 12 4021 4055 0
\t       WRITE: 0 0 0 0 0 0 0 0 0

device /dev/vda mounted on / with fstype ext4
\tbytes:\t1 2 3 4 5 6 7 8
device old:/home mounted on /home with fstype nfs statvers=1.1
\tbytes:\t1 0 0 0 77 0 2 0
"""


def test_cpu_times_leave_iowait_and_steal_out_of_busy() -> None:
    """Busy is user, nice, system and interrupts; old kernels lack the last fields."""
    times = hostfs.parse_cpu_times("cpu  5649 1 2109 635848 644 2 31 8 0 0\ncpu0 1 1\n")
    old = hostfs.parse_cpu_times("cpu  10 0 5 100\n")

    assert times["busy"] == (5649 + 1 + 2109 + 2 + 31) * procfs.NS_PER_TICK
    assert (times["iowait"], times["steal"]) == (
        644 * procfs.NS_PER_TICK,
        8 * procfs.NS_PER_TICK,
    )
    assert (old["busy"], old["iowait"]) == (15 * procfs.NS_PER_TICK, 0)


def test_memory_and_swap_in_bytes() -> None:
    """Kilobytes and pages become bytes; what the kernel does not tell is None."""
    meminfo = "MemTotal:       24684092 kB\nMemAvailable:   24300148 kB\n"

    assert hostfs.parse_total_memory(meminfo) == 24684092 * 1024
    assert hostfs.parse_available_memory(meminfo) == 24300148 * 1024
    assert hostfs.parse_available_memory("MemTotal: 1 kB\n") is None
    assert hostfs.parse_swapped_in("nr_dirty 3\npswpin 12\n") == 12 * procfs.PAGE_BYTES
    assert hostfs.parse_swapped_in("nr_dirty 3\n") is None


def test_pressure_takes_the_some_line() -> None:
    """Microseconds of `some` become ns; `full` is another thing."""
    text = (
        "some avg10=1.20 avg60=0.72 avg300=0.24 total=4430085\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )

    assert hostfs.parse_pressure(text) == 4430085000
    assert hostfs.parse_pressure("") is None


def test_net_dev_without_a_blank_after_the_colon() -> None:
    """Long counters touch the colon; headings are no interfaces."""
    text = (
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
        "    lo:    3193      29    0    0    0     0          0         0     3190      29    0\n"
        "  eth0:1295180011  98121    0    0    0     0          0         0  9120033   60112    0\n"
    )

    assert hostfs.parse_net_dev(text) == {"lo": (3193, 3190), "eth0": (1295180011, 9120033)}


def test_diskstats_leave_out_what_was_never_used() -> None:
    """Sectors become bytes, milliseconds ns; old kernels have fewer fields."""
    text = (
        "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 254       0 vda 8123 91 911104 4120 771 402 30112 810 0 3704 4940 0 0 0 0 11 9\n"
        " 259       0 nvme0n1 91823 12 8812344 30112 0 0 0 0 0 28012 30112\n"
    )

    disks = hostfs.parse_diskstats(text)

    assert disks == {
        "vda": hostfs.Disk(911104 * 512, 3704 * 1_000_000),
        "nvme0n1": hostfs.Disk(8812344 * 512, 28012 * 1_000_000),
    }


def test_mountstats_count_nfs_only() -> None:
    """Bytes from the server by mount point, version 3 and 4; a local file system has none."""
    assert hostfs.parse_mountstats(MOUNTSTATS) == {"/mnt/data set": 8388608, "/home": 77}


def test_cpu_stat_of_both_versions() -> None:
    """Version 1 counts throttled ns, version 2 microseconds; a level without quota has no periods."""
    first = "nr_periods 60\nnr_throttled 58\nthrottled_time 4403912208\n"
    second = "usage_usec 9\nuser_usec 5\nnr_periods 60\nnr_throttled 58\nthrottled_usec 4403912\n"

    assert hostfs.parse_cpu_stat(first) == hostfs.Throttling(60, 58, 4403912208)
    assert hostfs.parse_cpu_stat(second) == hostfs.Throttling(60, 58, 4403912000)
    assert hostfs.parse_cpu_stat("usage_usec 9\nuser_usec 5\n") is None


def test_last_pid_of_loadavg() -> None:
    """The last field is the newest pid."""
    assert hostfs.parse_last_pid("0.10 0.04 0.01 1/94 6037\n") == 6037


def test_sockets_keep_the_remote_port_and_no_address() -> None:
    """An inode leads to the kind and the remote port."""
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   2: 0A00000A:8FE2 0B00000A:01BB 01 00000000:00000000 02:000A7B2F 00000000  1000        0 2211 2\n"
    )

    assert hostfs.parse_sockets(text, "tcp") == {2211: "tcp port 443"}


def test_unix_sockets_with_and_without_a_path() -> None:
    """Only inodes are taken."""
    text = (
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "ffff8881: 00000003 00000000 00000000 0001 03 18123\n"
        "ffff8882: 00000002 00000000 00010000 0001 01 18001 /run/dbus/socket\n"
    )

    assert hostfs.parse_unix_sockets(text) == {18123, 18001}
