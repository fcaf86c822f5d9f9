"""Machine and versions, as the report names them; no host names."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from scenarios.truth import FOLDER


def machine() -> list[str]:
    """Describe CPUs, memory, kernel and accelerator."""
    cpus = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"{cpus} of {os.cpu_count()} CPUs ({cpu_name()}), {memory_gib:.0f} GiB of memory",
        f"{platform.system()} {platform.release()}; the device is simulated: it takes time and no CPU",
    ]


def cpu_name() -> str:
    """Give the CPU's name; the architecture where the kernel does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    names = [it.partition(":")[2].strip() for it in text.splitlines() if "model name" in it]
    return names[0] if names else platform.machine()


def versions() -> list[str]:
    """Give the versions of what was run."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy")]
    commit = commit_id()
    ours = f"whyidle {importlib.metadata.version('whyidle')}{f' at {commit}' if commit else ''}"
    return [f"{ours}, Python {platform.python_version()}, {', '.join(packages)}"]


def commit_id() -> str | None:
    """Give the commit that lies here, with a mark when files differ from it; None outside a repository."""
    command = ["git", "-C", str(FOLDER.parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
