"""The machine as far as a verdict needs it: CPUs, quota, memory, mounts. No host name, no environment."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyidle.observe import hostfs, procfs

_KERNEL_MOUNTS = frozenset(
    """proc sysfs devtmpfs devpts cgroup cgroup2 securityfs debugfs tracefs mqueue pstore bpf
    binfmt_misc autofs configfs fusectl hugetlbfs nsfs rpc_pipefs efivarfs selinuxfs""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGroup:
    """One level of a process' CPU cgroup, from its own up to the root."""

    stat_path: Path
    """Its cpu.stat."""
    quota_cpus: float | None
    """CPUs the level may use; None: no limit."""


def describe_machine() -> dict[str, Any]:
    """What the manifest says of the machine, for the process that calls this and its children."""
    groups = find_cpu_groups(os.getpid())
    quotas = [group.quota_cpus for group in groups if group.quota_cpus is not None]
    return {
        "cpus_machine": os.cpu_count() or 1,
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "cpu_quota": min(quotas, default=None),
        "memory_bytes": _total_memory(),
        "platform": {
            "system": platform.system(),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
        },
    }


def list_data_mounts(pid: int) -> tuple[procfs.Mount, ...]:
    """Mounts that can hold a person's files."""
    try:
        mounts = procfs.read_mounts(pid)
    except OSError:
        return ()
    return tuple(mount for mount in mounts if mount.fstype not in _KERNEL_MOUNTS)


def find_cpu_groups(pid: int) -> tuple[CpuGroup, ...]:
    """The levels of a process' CPU cgroup that have a cpu.stat, innermost first; empty when there is none."""
    try:
        paths, mounts = procfs.read_cgroups(pid), procfs.read_mounts(pid)
    except (OSError, ValueError):
        return ()
    folder = locate_cpu_group(paths, mounts)
    if folder is None:
        return ()
    inner, root = folder
    levels = []
    while True:
        stat = inner / "cpu.stat"
        if _has_quota_accounting(stat):
            levels.append(CpuGroup(stat_path=stat, quota_cpus=_read_quota(inner)))
        if inner == root or root not in inner.parents:
            return tuple(levels)
        inner = inner.parent


def locate_cpu_group(
    paths: dict[str, str], mounts: tuple[procfs.Mount, ...]
) -> tuple[Path, Path] | None:
    """The folder of a process' CPU cgroup and the mount point above it.

    Version 1 is taken where it has the cpu controller, else the unified hierarchy. In a container the path may
    begin with the mount's own root, or lead out of it (`/..`): then the mount point is the best that can be seen.
    """
    if "cpu" in paths:
        found = [
            one
            for one in mounts
            if one.fstype == "cgroup" and "cpu" in one.options.split(",")
        ]
        path = paths["cpu"]
    elif "" in paths:
        found = [one for one in mounts if one.fstype == "cgroup2"]
        path = paths[""]
    else:
        return None
    if not found:
        return None
    mount = found[0]
    if mount.root != "/" and (path + "/").startswith(mount.root + "/"):
        path = path[len(mount.root) :]
    root = Path(mount.mount_point)
    inner = root / path.lstrip("/")
    return (root, root) if ".." in inner.parts else (inner, root)


def _has_quota_accounting(stat: Path) -> bool:
    try:
        return hostfs.parse_cpu_stat(stat.read_text()) is not None
    except (OSError, ValueError):
        return False


def _read_quota(folder: Path) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        return hostfs.parse_cpu_max((folder / "cpu.max").read_text())
    with contextlib.suppress(OSError, ValueError):
        quota = (folder / "cpu.cfs_quota_us").read_text()
        return hostfs.parse_cfs_quota(quota, (folder / "cpu.cfs_period_us").read_text())
    return None


def _total_memory() -> int | None:
    try:
        return hostfs.parse_total_memory(Path("/proc/meminfo").read_text())
    except OSError:
        return None
