"""What is tried before a training is observed, and how the answers read."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from whyidle.model.checks import Check, State
from whyidle.observe import checks, machine, nvml, procfs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("allowed", "quota", "state", "said"),
    [
        ([0, 1, 2, 3], None, State.OK, "4 of 4 allowed, no quota"),
        ([0], None, State.LIMITED, "1 of 4 allowed, no quota"),
        ([0, 1, 2, 3], 1.5, State.LIMITED, "4 of 4 allowed, quota of 1.5"),
        ([0, 1, 2, 3], 4.0, State.OK, "4 of 4 allowed, quota of 4"),
    ],
)
def test_cpus_are_limited_by_mask_and_quota(
    allowed: list[int], quota: float | None, state: State, said: str
) -> None:
    """A mask or a quota below the machine is named, with where to look."""
    check = checks.check_cpus(
        {"cpus_machine": 4, "cpus_allowed": allowed, "cpu_quota": quota}
    )

    assert (check.state, check.found) == (state, said)
    assert (check.remedy is None) is (state is State.OK)


def test_interpreter_on_path_is_looked_at_as_a_run_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The agent comes up in it, its torch is found without importing it, and /proc tells what it does."""
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))

    found = {check.name: check for check in checks.check_interpreter()}

    assert found["agent"].state is State.OK
    assert found["torch"].state in (State.OK, State.LIMITED)
    assert list(found)[2:] == [name for _, name, _, _ in checks._SIGNALS]


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "there is no python on PATH"),
        ("#!/bin/sh\nexit 1\n", "did not answer"),
        ("#!/bin/sh\necho 3\n", "did not answer"),
        ("#!/bin/sh\necho '{}'\n", "did not answer"),
        ("not a program", "did not answer"),
        (f'#!/bin/sh\nexec {sys.executable} -I "$@"\n', "does not come up"),
    ],
    ids=["absent", "fails", "number", "foreign", "no program", "isolated"],
)
def test_interpreter_that_cannot_be_observed_is_told(
    script: str | None, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever `python` on PATH is, the answer is a row of the table."""
    if script is not None:
        _script(tmp_path / "python", script)
    monkeypatch.setenv("PATH", str(tmp_path))

    check = checks.check_interpreter()[0]

    assert check.state is State.MISSING
    assert said in check.found
    assert check.remedy


def test_agent_in_a_folder_with_a_colon_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PYTHONPATH cannot name such a folder."""
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(checks, "find_inject_dir", lambda: None)

    (check,) = checks.check_interpreter()

    assert "PYTHONPATH" in check.found


def test_signals_that_cannot_be_read_come_with_their_consequence() -> None:
    """The reason of the probe is shown where the signal's meaning would stand."""
    found = checks._signal_checks({"no-syscall": "denied; locks look like files"})

    assert [check.state for check in found].count(State.MISSING) == 1
    assert found[1].found == "denied; locks look like files"


@pytest.mark.parametrize(
    ("scope", "state"),
    [
        (None, State.OK),
        ("0", State.OK),
        ("1", State.OK),
        ("2", State.LIMITED),
        ("3", State.LIMITED),
    ],
)
def test_ptrace_scope_matters_from_two_on(
    scope: str | None, state: State, tmp_path: Path
) -> None:
    """The launcher's own children may be looked at with scope 1; without Yama there is no limit."""
    path = tmp_path / "ptrace_scope"
    if scope is not None:
        path.write_text(f"{scope}\n")

    assert checks.check_ptrace(path).state is state


def test_pressure_that_is_not_counted_is_told(tmp_path: Path) -> None:
    """Older kernels and some containers have none."""
    there = tmp_path / "io"
    there.write_text("some avg10=0.00\n")

    assert checks.check_pressure(there).state is State.OK
    assert checks.check_pressure(tmp_path / "none").state is State.LIMITED


@pytest.mark.parametrize(
    ("names", "version"), [(("cpu.stat",), 1), (("cpu.stat", "cgroup.controllers"), 2)]
)
def test_quota_accounting_names_the_version(
    names: tuple[str, ...], version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both cgroup versions count stops."""
    for name in names:
        (tmp_path / name).touch()
    group = machine.CpuGroup(stat_path=tmp_path / "cpu.stat", quota_cpus=None)
    monkeypatch.setattr(machine, "find_cpu_groups", lambda _: (group,))

    check = checks.check_quota_accounting()

    assert (check.state, f"cgroup v{version}" in check.found) == (State.OK, True)


def test_absent_quota_accounting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a quota cannot be told from busy CPUs."""
    monkeypatch.setattr(machine, "find_cpu_groups", lambda _: ())

    assert checks.check_quota_accounting().state is State.LIMITED


def _mount(fstype: str, point: str) -> procfs.Mount:
    return procfs.parse_mountinfo(f"36 35 98:0 / {point} rw - {fstype} source rw\n")[0]


def test_remote_mounts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that is waited for over a network or a FUSE process stands out."""
    mounts = (_mount("ext4", "/"), _mount("nfs4", "/nas"), _mount("fuse.sshfs", "/far"))
    monkeypatch.setattr(machine, "list_data_mounts", lambda _: mounts)

    assert (
        checks.check_mounts().found
        == "3 that can hold data; /nas (nfs4), /far (fuse.sshfs)"
    )


def test_mounts_that_cannot_be_listed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then waits for files name no mount."""
    monkeypatch.setattr(machine, "list_data_mounts", lambda _: ())

    assert checks.check_mounts().state is State.LIMITED


class _Driver:
    """Stands in for the driver's library."""

    def __init__(self, *, init: int = 0, count: int = 0, lost: bool = False) -> None:
        self._init, self._count, self._lost = init, count, lost
        self.is_shut_down = False

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return self._init

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.is_shut_down = True
        return 0

    def nvmlDeviceGetCount_v2(self, count: object) -> int:  # noqa: N802
        count._obj.value = self._count
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, _: object) -> int:  # noqa: N802
        return 1 if self._lost and index == 0 else 0

    def nvmlDeviceGetName(self, _: object, name: object, __: int) -> int:  # noqa: N802
        name.value = b"Tesla V100"
        return 0


@pytest.mark.parametrize(
    ("driver", "state", "said"),
    [
        (_Driver(count=2), State.OK, "2: Tesla V100"),
        (_Driver(count=2, lost=True), State.OK, "1: Tesla V100"),
        (_Driver(count=0), State.LIMITED, "the NVIDIA driver sees no GPU"),
        (_Driver(init=9), State.LIMITED, "NVML error 9"),
    ],
    ids=["two", "one lost", "none", "no answer"],
)
def test_gpus_are_named_by_the_driver(
    driver: _Driver, state: State, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs that answer are counted; a driver without any is told from one that does not answer."""
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda _: driver)

    check = checks.check_gpus()

    assert (check.state, said in check.found) == (state, True)
    assert driver.is_shut_down is (driver._init == 0)


def test_absent_driver_is_no_error() -> None:
    """Most machines of CI have none."""
    assert nvml.read_device_names("libno-such-library.so") == (
        (),
        "no NVIDIA driver library",
    )


@pytest.mark.parametrize(
    ("free_bytes", "state"), [(5_000_000_000, State.OK), (1_000_000, State.LIMITED)]
)
def test_little_room_is_told(
    free_bytes: int, state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder that will hold runs need not be there yet."""
    usage = shutil._ntuple_diskusage(1, 1, free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    check = checks.check_room(tmp_path / "not" / "yet")

    assert (check.state, str(tmp_path) in check.found) == (state, True)


def test_folder_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before a training is started in vain."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert checks.check_room(tmp_path).state is State.MISSING


def test_all_checks_give_rows() -> None:
    """On this machine, whatever it has, nothing raises and every row has its words."""
    found = checks.check_all(checks.Path())

    assert all(isinstance(check, Check) and check.name and check.found for check in found)
    assert len({check.name for check in found}) == len(found)
