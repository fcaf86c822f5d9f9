"""Tries, one by one, what observing a training needs here. Nothing raises: what fails is the answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from whyidle.model.checks import Check, State
from whyidle.observe import machine, nvml
from whyidle.observe.launch import child_environment, find_inject_dir
from whyidle.observe.sampler import probe_signals
from whyidle.store import live
from whyidle.units import format_bytes

PATIENCE_S = 30.0
"""An interpreter on a slow network file system may take this long to start; longer is no answer."""
FEW_BYTES = 1_000_000_000
"""A run takes some 10 MB an hour and worker; below this room may end before the training does."""
REMOTE_PREFIXES = (
    "nfs",
    "cifs",
    "smb",
    "fuse",
    "lustre",
    "ceph",
    "beegfs",
    "gpfs",
    "9p",
    "afs",
    "glusterfs",
)
_PROC_REMEDY = "Run whyidle as the same user as the training, in the same container."
_SIGNALS = (
    ("no-schedstat", "waiting for a CPU", "told from using one, thread by thread", None),
    (
        "no-syscall",
        "what blocks threads",
        "files, sockets, pipes, locks and sleeps",
        _PROC_REMEDY,
    ),
    (
        "no-descriptors",
        "open files",
        "which file or socket a thread waits for",
        _PROC_REMEDY,
    ),
    ("no-process-io", "bytes read", "counted for each process", _PROC_REMEDY),
)
"""Slug of the probe, the check's name, what it tells, and what helps."""
_QUESTION = """
import json, sys
try:
    from importlib.metadata import version
    torch = version("torch")
except Exception:
    torch = None
print(json.dumps({"python": sys.version.split()[0], "torch": torch}))
sys.stdout.flush()
sys.stdin.read()
"""
"""Asked of the training's interpreter. It does not import torch, and stays until it was looked at."""


def check_all(run_parent: Path) -> list[Check]:
    """Try everything; `run_parent` is where run folders would go."""
    return [
        check_cpus(machine.describe_machine()),
        *check_interpreter(),
        check_ptrace(),
        check_pressure(),
        check_quota_accounting(),
        check_mounts(),
        check_gpus(),
        check_room(run_parent),
    ]


def check_cpus(found: dict[str, object]) -> Check:
    """Tell how many CPUs a training started here may use, from `machine.describe_machine()`."""
    total, allowed, quota = found["cpus_machine"], found["cpus_allowed"], found["cpu_quota"]
    count = len(allowed) if isinstance(allowed, list) else 0
    said, remedies = [f"{count} of {total} allowed"], []
    if count != total:
        remedies.append(
            "An affinity mask leaves CPUs out: see `taskset -p $$`, or the batch system."
        )
    if isinstance(quota, float):
        said.append(f"quota of {quota:g}")
        if quota < count:
            remedies.append(
                "The container's CPU quota is lower than its CPUs: raise it where it is set."
            )
    else:
        said.append("no quota")
    state = State.LIMITED if remedies else State.OK
    return Check(
        name="CPUs", state=state, found=", ".join(said), remedy=" ".join(remedies) or None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What an interpreter that was started with the agent said of itself."""

    python: str
    torch: str | None
    """Version of the installed torch; None when it is not installed."""
    has_agent: bool
    missing: dict[str, str]
    """Slug to reason of what the observer cannot read of it."""


def check_interpreter() -> list[Check]:
    """Start the `python` on PATH with the agent in it, and look at it as the observer would."""
    program = shutil.which("python") or shutil.which("python3")
    if program is None:
        found = "there is no python on PATH: the agent could not be tried"
        remedy = "Activate the training's environment first."
        return [Check(name="agent", state=State.MISSING, found=found, remedy=remedy)]
    inject_dir = find_inject_dir()
    if inject_dir is None:
        found = "its folder cannot be put on PYTHONPATH: only the outside view"
        remedy = "Install whyidle into a folder without a colon in its path."
        return [Check(name="agent", state=State.MISSING, found=found, remedy=remedy)]
    try:
        asked = ask_interpreter(program, inject_dir)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"{program} did not answer ({error}): the agent could not be tried"
        remedy = f"Try `{program} -c 'print(1)'`."
        return [Check(name="agent", state=State.MISSING, found=found, remedy=remedy)]
    return [
        _agent_check(program, asked),
        _torch_check(asked),
        *_signal_checks(asked.missing),
    ]


def ask_interpreter(program: str, inject_dir: Path) -> Interpreter:
    """Start an interpreter as `whyidle run` would and look at it.

    Raises:
        OSError: it cannot be started, or there is no temporary folder.
        ValueError: it gave no answer.
        KeyError, TypeError: it gave another answer.
    """
    with tempfile.TemporaryDirectory(prefix="whyidle-doctor-") as name:
        run_dir = Path(name)
        live.prepare_run_dir(run_dir)
        process = subprocess.Popen(
            [program, "-c", _QUESTION],
            env=child_environment(os.environ, run_dir, inject_dir, None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        try:
            answer = process.stdout.readline() if process.stdout else b""
            missing = {one.slug: one.reason for one in probe_signals(process.pid)}
            process.communicate()
        finally:
            process.kill()
            process.wait()
            timer.cancel()
            timer.join()
        said = json.loads(answer)
        # The program may be a shim that starts the interpreter as its child: any sign is ours.
        booted = bool(live.list_booted(run_dir))
    return Interpreter(
        python=said["python"], torch=said["torch"], has_agent=booted, missing=missing
    )


def _agent_check(program: str, asked: Interpreter) -> Check:
    if asked.has_agent:
        return Check(
            name="agent",
            state=State.OK,
            found=f"comes up in Python {asked.python} ({program})",
        )
    return Check(
        name="agent",
        state=State.MISSING,
        found=f"does not come up in Python {asked.python} ({program}): only the outside view",
        remedy="It needs Python 3.8 or later that reads PYTHONPATH (no -I, -E, -S, no wrapper that clears it).",
    )


def _torch_check(asked: Interpreter) -> Check:
    if asked.torch is not None:
        return Check(
            name="torch", state=State.OK, found=f"{asked.torch}, for that interpreter"
        )
    return Check(
        name="torch",
        state=State.LIMITED,
        found="not installed for that interpreter: only the outside view of what it runs",
        remedy="Activate the training's environment first, if it is another one.",
    )


def _signal_checks(missing: dict[str, str]) -> list[Check]:
    return [
        Check(name=name, state=State.MISSING, found=missing[slug], remedy=remedy)
        if slug in missing
        else Check(name=name, state=State.OK, found=tells)
        for slug, name, tells, remedy in _SIGNALS
    ]


def check_ptrace(path: Path = Path("/proc/sys/kernel/yama/ptrace_scope")) -> Check:
    """Tell whether Yama lets the observer look at its own children."""
    try:
        scope = int(path.read_text())
    except (OSError, ValueError):
        return Check(name="ptrace scope", state=State.OK, found="not restricted (no Yama)")
    if scope <= 1:
        return Check(
            name="ptrace scope",
            state=State.OK,
            found=f"{scope}: own children may be looked at",
        )
    return Check(
        name="ptrace scope",
        state=State.LIMITED,
        found=f"{scope}: only privileged processes may look at others: what blocks threads is unknown",
        remedy="As root: sysctl kernel.yama.ptrace_scope=1" if scope == 2 else None,
    )


def check_pressure(path: Path = Path("/proc/pressure/io")) -> Check:
    """Tell whether the kernel counts how long tasks are held up."""
    try:
        path.read_text()
    except OSError:
        found = "not counted by this kernel: how long tasks were held up by I/O or memory is unknown"
        remedy = "Boot with psi=1, where the machine is yours."
        return Check(name="pressure", state=State.LIMITED, found=found, remedy=remedy)
    return Check(
        name="pressure", state=State.OK, found="CPU, I/O and memory, for the whole machine"
    )


def check_quota_accounting() -> Check:
    """Tell whether it can be seen that a CPU quota stops the training."""
    groups = machine.find_cpu_groups(os.getpid())
    if groups:
        version = 2 if (groups[0].stat_path.parent / "cgroup.controllers").exists() else 1
        return Check(
            name="CPU quota",
            state=State.OK,
            found=f"stops are counted (cgroup v{version}, {groups[0].stat_path})",
        )
    return Check(
        name="CPU quota",
        state=State.LIMITED,
        found="no cpu.stat with stops: a quota would look like waiting for a CPU",
        remedy="Mount /sys/fs/cgroup into the container, where a quota is set.",
    )


def check_mounts() -> Check:
    """Name the mounts that are waited for over a network or a FUSE process."""
    mounts = machine.list_data_mounts(os.getpid())
    remote = [one for one in mounts if one.fstype.startswith(REMOTE_PREFIXES)]
    if not mounts:
        return Check(
            name="mounts",
            state=State.LIMITED,
            found="cannot be listed: waits for files name no mount",
        )
    said = (
        ", ".join(f"{one.mount_point} ({one.fstype})" for one in remote)
        or "none of them remote"
    )
    return Check(
        name="mounts", state=State.OK, found=f"{len(mounts)} that can hold data; {said}"
    )


def check_gpus() -> Check:
    """Name the GPUs that NVML sees."""
    names, reason = nvml.read_device_names()
    if names:
        return Check(
            name="GPUs",
            state=State.OK,
            found=f"{len(names)}: {', '.join(sorted(set(names)))}",
        )
    return Check(
        name="GPUs",
        state=State.LIMITED,
        found=f"{reason}: a training on the CPU is judged by its loop",
    )


def check_room(folder: Path) -> Check:
    """Tell whether run folders can be written, and how much room there is."""
    there = next(
        one for one in (folder.absolute(), *folder.absolute().parents) if one.is_dir()
    )
    remedy = "Name another folder with --out."
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(
            name="run folders",
            state=State.MISSING,
            found=f"{there} cannot be written",
            remedy=remedy,
        )
    free_bytes = shutil.disk_usage(there).free
    found = f"{format_bytes(free_bytes)} free in {there}"
    if free_bytes < FEW_BYTES:
        return Check(name="run folders", state=State.LIMITED, found=found, remedy=remedy)
    return Check(name="run folders", state=State.OK, found=found)
