"""What a blocked thread waits for, from what the kernel shows of it. Pure: no /proc here.

The state letter alone says nothing: the same storage shows S or D depending on how it is mounted, and an idle
worker and an HTTP client with a timeout sit in the same call. The call, the descriptor and the futex flag decide.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class Wait(IntEnum):
    """What a thread waits for; the numbers are those of `wire.WAIT_*`."""

    NONE = 0
    """Running or runnable."""
    QUEUE = 1
    """At its index or result queue: nothing to do."""
    FILE = 2
    """A call on a regular file or directory."""
    PAGE_FAULT = 3
    """A file-backed page or swap."""
    SOCKET = 4
    """The network."""
    PIPE = 5
    """A pipe that is no loader queue, or a socket to a process of this machine."""
    LOCK = 6
    """A lock shared with another process."""
    THREAD = 7
    """A lock inside the process."""
    SLEEP = 8
    """A timer."""
    CHILD = 9
    """The end of a child process."""
    DEVICE = 10
    """A call on a device file."""
    OTHER = 11
    """None of these, or it could not be read."""


class CallShape(Enum):
    """Where in a call's arguments the thing that is waited for stands."""

    DESCRIPTOR = "descriptor"
    """First argument is a file descriptor."""
    SECOND_DESCRIPTOR = "second-descriptor"
    """Second argument is the descriptor that is read from (sendfile)."""
    PATH = "path"
    """First argument points to a path."""
    PATH_AT = "path-at"
    """First argument is a directory descriptor, the second points to a path."""
    POLL = "poll"
    """First argument points to pollfd structures, the second is their count."""
    SELECT = "select"
    """First argument is the highest descriptor plus 1, the second and third point to bit sets."""
    EPOLL = "epoll"
    """First argument is an epoll descriptor."""
    FUTEX = "futex"
    """First argument is an address, the second an operation with flags."""
    FUTEX_WAIT = "futex-wait"
    """First argument is an address, the fourth has the flags (futex_wait)."""
    DESCRIPTOR_LOCK = "descriptor-lock"
    """First argument is a descriptor, the call waits for a lock on it (flock)."""
    FCNTL = "fcntl"
    """First argument is a descriptor, the second tells whether it waits for a lock."""
    SLEEP = "sleep"
    CHILD = "child"
    IPC = "ipc"
    """System V and POSIX message queues and semaphores."""
    FILE = "file"
    """Files, but the arguments do not say which (sync, io_getevents)."""
    OTHER = "other"


_SHAPES: dict[CallShape, str] = {
    CallShape.DESCRIPTOR: """
        read write close fstat lseek ioctl pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2
        connect accept accept4 sendto recvfrom sendmsg recvmsg recvmmsg sendmmsg shutdown
        fsync fdatasync ftruncate getdents getdents64 fchdir fchmod fchown fstatfs readahead fsetxattr fgetxattr
        flistxattr fadvise64 fallocate sync_file_range syncfs splice tee vmsplice copy_file_range dup dup2 dup3""",
    CallShape.SECOND_DESCRIPTOR: "sendfile",
    CallShape.PATH: """
        open stat lstat access chdir rename mkdir rmdir creat link unlink symlink readlink chmod chown lchown
        truncate utime mknod statfs execve setxattr lsetxattr getxattr lgetxattr listxattr llistxattr utimes
        removexattr lremovexattr""",
    CallShape.PATH_AT: """
        openat openat2 mkdirat mknodat fchownat newfstatat unlinkat renameat renameat2 linkat readlinkat fchmodat
        faccessat faccessat2 statx utimensat name_to_handle_at execveat fchmodat2""",
    CallShape.POLL: "poll ppoll",
    CallShape.SELECT: "select pselect6",
    CallShape.EPOLL: "epoll_wait epoll_pwait epoll_pwait2",
    CallShape.FUTEX: "futex",
    CallShape.FUTEX_WAIT: "futex_wait",
    CallShape.DESCRIPTOR_LOCK: "flock",
    CallShape.FCNTL: "fcntl",
    CallShape.SLEEP: "nanosleep clock_nanosleep pause rt_sigtimedwait rt_sigsuspend restart_syscall",
    CallShape.CHILD: "wait4 waitid",
    CallShape.IPC: """
        semop semtimedop msgrcv msgsnd mq_timedsend mq_timedreceive""",
    CallShape.FILE: "sync io_getevents io_pgetevents msync io_uring_enter",
}
_SHAPE_OF = {name: shape for shape, names in _SHAPES.items() for name in names.split()}

WRITING_CALLS = frozenset(
    "write pwrite64 writev pwritev pwritev2 sendto sendmsg sendmmsg vmsplice".split()
)
"""Calls that give something away: at a loader's pipe they hand over a result, they are not idle."""

_FUTEX_PRIVATE_FLAG = 128
_FCNTL_LOCK_WAITS = frozenset((7, 38))  # F_SETLKW, F_OFD_SETLKW
_MEMORY_DEVICES = ("/dev/shm/", "/dev/hugepages/")


def call_shape(name: str) -> CallShape:
    """Tell where the arguments of a call say what is waited for.

    >>> call_shape("pread64"), call_shape("getpid")
    (<CallShape.DESCRIPTOR: 'descriptor'>, <CallShape.OTHER: 'other'>)
    """
    return _SHAPE_OF.get(name, CallShape.OTHER)


def futex_is_private(operation: int) -> bool:
    """Tell whether a futex operation says that no other process takes part.

    >>> futex_is_private(0x189), futex_is_private(0x109)
    (True, False)
    """
    return bool(operation & _FUTEX_PRIVATE_FLAG)


def fcntl_waits_for_lock(command: int) -> bool:
    """Tell whether an fcntl command waits for a record lock (F_SETLKW, F_OFD_SETLKW)."""
    return command in _FCNTL_LOCK_WAITS


def link_wait(link: str) -> Wait:
    """Name the wait for a call on a descriptor, from what its link in /proc/PID/fd shows.

    Pipes are `Wait.PIPE` here; only who holds their other end tells a loader's queue.

    >>> link_wait("/data/7.png").name, link_wait("socket:[81]").name, link_wait("/dev/nvidia0").name
    ('FILE', 'SOCKET', 'DEVICE')
    """
    if link.startswith("socket:"):
        return Wait.SOCKET
    if link.startswith("pipe:"):
        return Wait.PIPE
    if link.startswith("/dev/"):
        return Wait.FILE if link.startswith(_MEMORY_DEVICES) else Wait.DEVICE
    if link.startswith("/"):
        return Wait.FILE
    return Wait.OTHER


def mapping_is_shared_lock(permissions: str, path: str) -> bool:
    """Tell whether a futex without the private flag lies in memory that other processes share.

    Joining a thread also uses such a futex, but in private memory.

    >>> mapping_is_shared_lock("rw-s", "/dev/shm/sem.mp-x"), mapping_is_shared_lock("rw-p", "")
    (True, False)
    """
    return permissions.endswith("s") or path.startswith("/dev/shm/")


def wait_outside_call(state: str) -> Wait:
    """Name the wait of a thread that is blocked although it is in no system call.

    >>> wait_outside_call("D").name, wait_outside_call("T").name
    ('PAGE_FAULT', 'OTHER')
    """
    return Wait.PAGE_FAULT if state == "D" else Wait.OTHER
