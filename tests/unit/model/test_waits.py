"""What a call, a descriptor and a futex say of a wait."""

from __future__ import annotations

import pytest

from whyidle.model.syscalls import call_name
from whyidle.model.waits import (
    CallShape,
    Wait,
    call_shape,
    fcntl_waits_for_lock,
    futex_is_private,
    link_wait,
    mapping_is_shared_lock,
    wait_outside_call,
)
from whyidle_agent import wire


def test_waits_have_the_numbers_of_the_journal() -> None:
    """Every wait has the number that journals write."""
    for wait in Wait:
        assert getattr(wire, f"WAIT_{wait.name}") == wait


@pytest.mark.parametrize(
    ("architecture", "number", "name"),
    [
        ("x86_64", 0, "read"),
        ("x86_64", 17, "pread64"),
        ("x86_64", 202, "futex"),
        ("x86_64", 230, "clock_nanosleep"),
        ("x86_64", 262, "newfstatat"),
        ("x86_64", 334, "rseq"),
        ("x86_64", 437, "openat2"),
        ("aarch64", 63, "read"),
        ("aarch64", 73, "ppoll"),
        ("aarch64", 79, "newfstatat"),
        ("aarch64", 98, "futex"),
        ("aarch64", 115, "clock_nanosleep"),
        ("aarch64", 207, "recvfrom"),
        ("aarch64", 260, "wait4"),
        ("aarch64", 291, "statx"),
        ("aarch64", 449, "futex_waitv"),
        ("aarch64", 244, "syscall-244"),
        ("x86_64", 335, "syscall-335"),
        ("riscv64", 63, "syscall-63"),
    ],
)
def test_call_name_by_architecture(architecture: str, number: int, name: str) -> None:
    """Numbers lead to the kernel's names; unknown ones keep their number."""
    assert call_name(number, architecture) == name


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("recvfrom", CallShape.DESCRIPTOR),
        ("sendfile", CallShape.SECOND_DESCRIPTOR),
        ("open", CallShape.PATH),
        ("openat", CallShape.PATH_AT),
        ("ppoll", CallShape.POLL),
        ("pselect6", CallShape.SELECT),
        ("epoll_pwait", CallShape.EPOLL),
        ("flock", CallShape.DESCRIPTOR_LOCK),
        ("clock_nanosleep", CallShape.SLEEP),
        ("wait4", CallShape.CHILD),
        ("semop", CallShape.IPC),
        ("sched_yield", CallShape.OTHER),
    ],
)
def test_call_shape(name: str, shape: CallShape) -> None:
    """A call's name tells where its arguments name the thing waited for."""
    assert call_shape(name) is shape


@pytest.mark.parametrize(
    ("link", "wait"),
    [
        ("/data/7.png", Wait.FILE),
        ("/dev/shm/torch_1", Wait.FILE),
        ("/memfd:x (deleted)", Wait.FILE),
        ("/dev/nvidia0", Wait.DEVICE),
        ("socket:[81]", Wait.SOCKET),
        ("pipe:[82]", Wait.PIPE),
        ("anon_inode:[eventfd]", Wait.OTHER),
    ],
)
def test_link_wait(link: str, wait: Wait) -> None:
    """What a descriptor is decides what is waited for."""
    assert link_wait(link) is wait


def test_futex_flag_tells_threads_from_processes() -> None:
    """The private flag means threads; without it the memory decides."""
    assert futex_is_private(128 | 9)
    assert not futex_is_private(9)
    assert mapping_is_shared_lock("rw-s", "/dev/shm/sem.mp-x")
    assert not mapping_is_shared_lock("rw-p", "[heap]")


def test_fcntl_waits_only_for_locks() -> None:
    """F_SETLKW and F_OFD_SETLKW wait, others do not."""
    assert [fcntl_waits_for_lock(command) for command in (7, 38, 6, 3)] == [
        True,
        True,
        False,
        False,
    ]


def test_wait_outside_a_call() -> None:
    """State D outside any call is a page fault; a stopped thread waits for nothing we know."""
    assert wait_outside_call("D") is Wait.PAGE_FAULT
    assert wait_outside_call("t") is Wait.OTHER
