"""Where a process' CPU cgroup is, in both versions and in containers."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from whyidle.observe import machine
from whyidle.observe.procfs import Mount, parse_mountinfo

V1 = parse_mountinfo("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n")
V2 = parse_mountinfo("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
CONTAINER = parse_mountinfo(
    "32 31 0:29 /docker/b9 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
)


@pytest.mark.parametrize(
    ("paths", "mounts", "inner", "root"),
    [
        ({"cpu": "/job/7", "": "/"}, V1, "/sys/fs/cgroup/cpu/job/7", "/sys/fs/cgroup/cpu"),
        ({"": "/user.slice/run"}, V2, "/sys/fs/cgroup/user.slice/run", "/sys/fs/cgroup"),
        ({"cpu": "/docker/b9/x"}, CONTAINER, "/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"),
        ({"cpu": "/docker/b9"}, CONTAINER, "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu"),
        ({"": "/../other"}, V2, "/sys/fs/cgroup", "/sys/fs/cgroup"),
    ],
)
def test_cpu_group_is_located(
    paths: dict[str, str], mounts: tuple[Mount, ...], inner: str, root: str
) -> None:
    """The folder is the mount point and the path, less what the mount itself hides."""
    assert machine.locate_cpu_group(paths, mounts) == (Path(inner), Path(root))


def test_cpu_group_is_unknown_without_a_mount() -> None:
    """No controller and no mount: nothing is claimed."""
    assert machine.locate_cpu_group({}, V1) is None
    assert machine.locate_cpu_group({"cpu": "/"}, V2) is None


def test_machine_is_described_without_its_name() -> None:
    """The description is JSON and has no host name in it."""
    described = machine.describe_machine()

    assert described["cpus_allowed"] == sorted(os.sched_getaffinity(0))
    assert platform.node() not in json.dumps(described)


def test_data_mounts_leave_the_kernel_out() -> None:
    """The root is a data mount, /proc is not."""
    points = {mount.mount_point for mount in machine.list_data_mounts(os.getpid())}

    assert "/" in points
    assert "/proc" not in points
