"""What a scenario needs around it, set up for one run and taken down again, whatever happens.

Each part is a context manager in `PARTS` that adds to `Surroundings`: a value for a `{placeholder}` in
the script's arguments, or something that the started process does to itself (join a cgroup, take a CPU mask).
Everything carries the harness's pid in its name, so that `sweep` can remove what a killed harness left.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.truth import FOLDER

PREFIX = "whyidle-scenarios-"
CGROUPS = Path("/sys/fs/cgroup")
PR_SET_PDEATHSIG = 1
CFS_PERIOD_US = 100_000
DEFAULT_CPU_SHARES = 1024
START_SECONDS = 10.0
SERVER_SHARES = 128 * DEFAULT_CPU_SHARES
"""Twice what `--weight 64` gives the training."""


@dataclass(slots=True)
class Surroundings:
    """What has been set up for one run."""

    scratch: Path
    """Folder for this run alone, removed afterwards."""
    values: dict[str, str] = field(default_factory=dict)
    """Placeholder → value, for the script's arguments and the truth's mounts."""
    cgroups: list[Path] = field(default_factory=list)
    """cgroups that the started process joins."""
    cpus: set[int] | None = None
    """CPU mask that the started process takes; None: as it is."""
    helpers: list[subprocess.Popen[str]] = field(default_factory=list)
    """Processes of ours that run beside the training."""

    def enter(self) -> None:
        """Make the calling process part of it: called in the child between fork and exec."""
        for cgroup in self.cgroups:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        if self.cpus is not None:
            os.sched_setaffinity(0, self.cpus)

    def fill(self, text: str) -> str:
        """Replace placeholders."""
        return text.format_map(self.values)


@contextlib.contextmanager
def prepare(parts: dict[str, dict[str, Any]]) -> Iterator[Surroundings]:
    """Set up the named parts for the length of the block."""
    with contextlib.ExitStack() as stack:
        scratch = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        surroundings = Surroundings(Path(scratch))
        for name, parameters in parts.items():
            stack.enter_context(PARTS[name](surroundings, **parameters))
        yield surroundings


def missing_needs(needs: tuple[str, ...]) -> list[str]:
    """Give those of the needs that this machine does not meet."""
    return [need for need in needs if not NEEDS[need]()]


NEEDS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "fuse": lambda: os.path.exists("/dev/fuse") and can_import("fuse"),
    "loop": lambda: os.path.exists("/dev/loop-control") and bool(shutil.which("mkfs.ext4")),
    "cgroup1-cpu": lambda: (CGROUPS / "cpu" / "cpu.cfs_quota_us").parent.is_dir(),
    "cgroup1-blkio": lambda: (CGROUPS / "blkio").is_dir(),
    "cpus-2": lambda: len(os.sched_getaffinity(0)) >= 2,
    "cv2": lambda: can_import("cv2"),
    "h5py": lambda: can_import("h5py"),
    "lmdb": lambda: can_import("lmdb"),
    "pyarrow": lambda: can_import("pyarrow"),
    "s3": lambda: can_import("moto.server") and can_import("boto3"),
    "s3fs": lambda: can_import("s3fs"),
}


def can_import(name: str) -> bool:
    """Say whether a module can be imported here; fusepy also needs libfuse."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return False
    probe = [sys.executable, "-c", f"import {name}"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


# --- processes beside the training ------------------------------------------------------------


def die_with_parent() -> None:
    """Ask the kernel to end the calling process when the harness ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def helper(
    surroundings: Surroundings, script: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Run one of our own scripts for the length of the block."""
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
    surroundings.helpers.append(process)
    try:
        yield process
    finally:
        stop(process)
        if process.stdout:
            process.stdout.close()


@contextlib.contextmanager
def server(
    surroundings: Surroundings, script: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a helper that stands for another machine, so it goes first: that one is not busy when this one is."""
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(helper(surroundings, script, *arguments))
        if NEEDS["root"]() and NEEDS["cgroup1-cpu"]():
            cgroup = stack.enter_context(new_cgroup("cpu"))
            (cgroup / "cpu.shares").write_text(str(SERVER_SHARES))
            (cgroup / "cgroup.procs").write_text(str(process.pid))
        yield process


def stop(process: subprocess.Popen[str]) -> None:
    """End a process of ours."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(ready: Callable[[], bool], what: str) -> None:
    """Wait for something that we started.

    Raises:
        TimeoutError: It did not come.
    """
    deadline_s = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > deadline_s:
            msg = f"{what} was not ready after {START_SECONDS:g} s"
            raise TimeoutError(msg)
        time.sleep(0.02)


# --- parts ------------------------------------------------------------------------------------


@contextlib.contextmanager
def images(
    surroundings: Surroundings, *, count: int, width: int, height: int
) -> Iterator[None]:
    """A folder of JPEG files: `{images}`."""
    import numpy as np
    from PIL import Image

    folder = surroundings.scratch / "images"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = generator.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((width, height))
        picture.save(folder / f"{number:04d}.jpg", quality=88)
    surroundings.values["images"] = str(folder)
    yield


@contextlib.contextmanager
def fuse(
    surroundings: Surroundings,
    *,
    files: int,
    file_bytes: int,
    read_delay_ms: float = 0.0,
    metadata_delay_ms: float = 0.0,
    page_cache: bool = False,
    stretch: int = 0,
    plain: bool = False,
) -> Iterator[None]:
    """A folder of small files behind a slow FUSE mount, or in the open when `plain`: `{fuse}`.

    With `stretch`, only every other stretch of so many files is slow.
    """
    source = surroundings.scratch / "files"
    source.mkdir()
    content = os.urandom(file_bytes)
    for number in range(files):
        (source / f"{number:05d}.bin").write_bytes(content)
    if plain:
        surroundings.values["fuse"] = str(source)
        yield
        return
    mount_point = surroundings.scratch / "mount"
    mount_point.mkdir()
    surroundings.values["fuse"] = str(mount_point)
    arguments = [
        str(source),
        str(mount_point),
        f"--read-delay-ms={read_delay_ms}",
        f"--metadata-delay-ms={metadata_delay_ms}",
        f"--stretch={stretch}",
        *(["--page-cache"] if page_cache else []),
    ]
    with server(surroundings, "slow_files.py", *arguments):
        try:
            wait_until(lambda: os.path.ismount(mount_point), "the FUSE mount")
            yield
        finally:
            run_quietly("umount", "-l", str(mount_point))


@contextlib.contextmanager
def disk(
    surroundings: Surroundings,
    *,
    file_bytes: int,
    read_bytes_per_second: int | None = None,
    lmdb_record_bytes: int | None = None,
) -> Iterator[None]:
    """One large file on an ext4 loop device of limited bandwidth: `{disk}`, mounted at `{disk_mount}`.

    With `lmdb_record_bytes` it is an LMDB file of such records, under the keys 00000000, 00000001, ….
    """
    with contextlib.ExitStack() as stack:
        backing = surroundings.scratch / "disk.img"
        with backing.open("wb") as file:
            file.truncate(file_bytes + 32 * 2**20)
        run_quietly("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(backing))
        device = run_quietly("losetup", "-f", "--show", str(backing)).strip()
        stack.callback(run_quietly, "losetup", "-d", device)
        mount_point = surroundings.scratch / "disk"
        mount_point.mkdir()
        run_quietly("mount", device, str(mount_point))
        stack.callback(run_quietly, "umount", "-l", str(mount_point))
        path = mount_point / "records.bin"
        if lmdb_record_bytes is None:
            write_uncached(path, file_bytes)
        else:
            write_lmdb(path, file_bytes, lmdb_record_bytes)
        surroundings.values |= {"disk": str(path), "disk_mount": str(mount_point)}
        if read_bytes_per_second is not None:
            cgroup = stack.enter_context(new_cgroup("blkio"))
            number = os.stat(device).st_rdev
            limit = f"{os.major(number)}:{os.minor(number)} {read_bytes_per_second}"
            (cgroup / "blkio.throttle.read_bps_device").write_text(limit)
            surroundings.cgroups.append(cgroup)
        yield


def write_uncached(path: Path, length: int) -> None:
    """Write a file of random bytes that is not in the page cache afterwards."""
    block = os.urandom(2**20)
    with path.open("wb") as file:
        for _ in range(length // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_lmdb(path: Path, length: int, record_bytes: int) -> None:
    """Write an LMDB file of random records that is not in the page cache afterwards."""
    import lmdb

    # A record takes whole pages and a head: a quarter more is enough for records of several pages.
    with lmdb.open(str(path), map_size=length, subdir=False, lock=False) as database:
        with database.begin(write=True) as transaction:
            for number in range(length * 4 // 5 // record_bytes):
                transaction.put(f"{number:08d}".encode(), os.urandom(record_bytes))
        database.sync(True)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def http(
    surroundings: Surroundings,
    *,
    delay_ms: float,
    object_bytes: int = 30_000,
    picture: str | None = None,
    slow: dict[str, float] | None = None,
) -> Iterator[None]:
    """An object store on the loopback: `{http}` is its host and port.

    `picture = "800x600"` makes each object a JPEG file; `slow` (`delay_ms`, `every_s`, `for_s`) gives it bad times.
    """
    arguments = [f"--delay-ms={delay_ms}", f"--object-bytes={object_bytes}"]
    arguments += [f"--picture={picture}"] if picture else []
    for name, value in (slow or {}).items():
        arguments.append(f"--slow-{name.replace('_', '-')}={value}")
    with server(surroundings, "object_store.py", *arguments) as process:
        port = process.stdout.readline().strip() if process.stdout else ""
        surroundings.values["http"] = f"127.0.0.1:{port}"
        yield


@contextlib.contextmanager
def s3(
    surroundings: Surroundings, *, objects: int, object_bytes: int, delay_ms: float
) -> Iterator[None]:
    """An S3 store on the loopback, with the bucket `training`: `{s3}` is its URL."""
    arguments = [
        f"--delay-ms={delay_ms}",
        f"--objects={objects}",
        f"--object-bytes={object_bytes}",
    ]
    with server(surroundings, "s3_store.py", *arguments) as process:
        port = process.stdout.readline().strip() if process.stdout else ""
        surroundings.values["s3"] = f"http://127.0.0.1:{port}"
        yield


@contextlib.contextmanager
def neighbours(
    surroundings: Surroundings,
    *,
    count: int,
    name: str,
    busy_s: float | None = None,
    rest_s: float = 0.0,
) -> Iterator[None]:
    """Processes of somebody else that want a CPU each, always or in turns of `busy_s` and `rest_s`."""
    turns = [] if busy_s is None else [str(busy_s), str(rest_s)]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(helper(surroundings, "neighbour.py", name, *turns))
        yield


@contextlib.contextmanager
def cpu_quota(surroundings: Surroundings, *, cpus: float) -> Iterator[None]:
    """A cgroup that may use so many CPUs, as a container has."""
    with new_cgroup("cpu") as cgroup:
        (cgroup / "cpu.cfs_period_us").write_text(str(CFS_PERIOD_US))
        (cgroup / "cpu.cfs_quota_us").write_text(str(round(cpus * CFS_PERIOD_US)))
        surroundings.cgroups.append(cgroup)
        yield


@contextlib.contextmanager
def cpu_shares(
    surroundings: Surroundings, *, shares: int, neighbour_shares: int
) -> Iterator[None]:
    """A cgroup for the training and one for the neighbours named before it, as two pods of one machine have."""
    with new_cgroup("cpu") as own, new_cgroup("cpu") as others:
        (own / "cpu.shares").write_text(str(shares))
        (others / "cpu.shares").write_text(str(neighbour_shares))
        for process in surroundings.helpers:
            (others / "cgroup.procs").write_text(str(process.pid))
        surroundings.cgroups.append(own)
        yield


@contextlib.contextmanager
def weight(surroundings: Surroundings, *, factor: int) -> Iterator[None]:
    """A cgroup that is served before the rest of a busy machine; a quota's own cgroup is used if there is one."""
    shares = str(factor * DEFAULT_CPU_SHARES)
    present = [it for it in surroundings.cgroups if it.parent == CGROUPS / "cpu"]
    if present:
        (present[0] / "cpu.shares").write_text(shares)
        yield
        return
    with new_cgroup("cpu") as cgroup:
        (cgroup / "cpu.shares").write_text(shares)
        surroundings.cgroups.append(cgroup)
        yield


@contextlib.contextmanager
def cpu_mask(surroundings: Surroundings, *, cpus: int) -> Iterator[None]:
    """A launcher that pins what it starts."""
    surroundings.cpus = set(sorted(os.sched_getaffinity(0))[:cpus])
    yield


PARTS: dict[str, Callable[..., contextlib.AbstractContextManager[None]]] = {
    "images": images,
    "fuse": fuse,
    "disk": disk,
    "http": http,
    "neighbours": neighbours,
    "cpu_quota": cpu_quota,
    "cpu_mask": cpu_mask,
    "cpu_shares": cpu_shares,
    "s3": s3,
    "weight": weight,
}


# --- cgroups and leftovers --------------------------------------------------------------------


@contextlib.contextmanager
def new_cgroup(controller: str) -> Iterator[Path]:
    """Make a cgroup below our own for the length of the block."""
    cgroup = CGROUPS / controller / f"{PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    cgroup.mkdir()
    try:
        yield cgroup
    finally:
        remove_cgroup(cgroup)


def remove_cgroup(cgroup: Path) -> None:
    """End what still runs in a cgroup of ours, and remove it."""
    deadline_s = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline_s:
        for pid in (cgroup / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.05)


def run_quietly(*command: str) -> str:
    """Run a system command and give its output; its failure is an exception.

    Raises:
        RuntimeError: The command failed; the message holds what it wrote.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        msg = (
            f"{' '.join(command)} failed with {result.returncode}: {result.stderr.strip()}"
        )
        raise RuntimeError(msg)
    return result.stdout


def sweep() -> list[str]:
    """Remove what killed harnesses left behind; gives what was removed."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if is_ours_and_dead(folder.name):
            remove_folder(folder)
            removed.append(str(folder))
    for cgroup in CGROUPS.glob(f"*/{PREFIX}*"):
        if is_ours_and_dead(cgroup.name):
            remove_cgroup(cgroup)
            removed.append(str(cgroup))
    return removed


def is_ours_and_dead(name: str) -> bool:
    """Say whether a name belongs to a harness that no longer runs."""
    pid = name.removeprefix(PREFIX).partition("-")[0]
    return pid.isdigit() and not os.path.exists(f"/proc/{pid}")


def remove_folder(folder: Path) -> None:
    """Unmount, detach and delete what is in a scratch folder."""
    for mount_point in (folder / "mount", folder / "disk"):
        subprocess.run(["umount", "-l", str(mount_point)], capture_output=True, check=False)
    backing = folder / "disk.img"
    if backing.exists():
        for line in run_quietly("losetup", "-j", str(backing)).splitlines():
            run_quietly("losetup", "-d", line.partition(":")[0])
    shutil.rmtree(folder, ignore_errors=True)
