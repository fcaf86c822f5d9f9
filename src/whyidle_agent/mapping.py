"""Pieces of the journal file: allocated before they are mapped, and known again by their inode.

NOTE [full disks]
    A page of a mapped sparse file that the disk has no room for kills the process with SIGBUS. So a
    piece is allocated before it is mapped, and when that fails recording stops for good.

NOTE [what may happen to the target's descriptors]
    No descriptor is kept for growing: a target may close them all and get our number for a file of
    its own. Each piece opens the journal by its path and checks that it is the same file. Python's
    mmap keeps a duplicate (before 3.13), which is looked up so that it is closed only while it is ours.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import sys

_MYPY = False
if _MYPY:
    from typing import Any

GRANULARITY = mmap.ALLOCATIONGRANULARITY
"""Mapped pieces begin at multiples of this."""
NO_DUPLICATE = -2
"""Instead of a descriptor: the mapping keeps none."""
UNKNOWN_DUPLICATE = -1
"""Instead of a descriptor: the mapping keeps one that was not found."""


def allocate(file: int, offset: int, length: int) -> None:
    """Make the disk promise room for a piece of a file. See NOTE [full disks].

    Raises:
        OSError: there is no room, or no right to it.
    """
    try:
        os.posix_fallocate(file, offset, length)
        return
    except AttributeError:
        pass
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
    zeros = bytes(64 * 1024)
    while length > 0:
        written = os.pwrite(file, zeros[:length], offset)
        offset += written
        length -= written


def map_piece(file: int, offset: int, length: int, taken: set[int]) -> tuple[Any, int]:
    """Map a piece of a file; also return the descriptor that the mapping keeps.

    Args:
        file: Its descriptor.
        offset: Where the piece begins.
        length: Its length.
        taken: Descriptors that other mappings of the file keep.

    Returns:
        The mapping, and its descriptor, NO_DUPLICATE or UNKNOWN_DUPLICATE.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(file, length, offset=offset, trackfd=False), NO_DUPLICATE
    mapping = mmap.mmap(file, length, offset=offset)
    identity = identity_of(file)
    for candidate in itertools.chain(range(file + 1, file + 17), range(file)):
        if candidate not in taken and is_file(candidate, identity):
            return mapping, candidate
    return mapping, UNKNOWN_DUPLICATE


def identity_of(file: int) -> tuple[int, int]:
    """Device and inode of an open file."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def is_file(file: int, identity: tuple[int, int]) -> bool:
    """Whether a descriptor is open and leads to the file with this device and inode."""
    try:
        return identity_of(file) == identity
    except OSError:
        return False
