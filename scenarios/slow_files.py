"""A read-only FUSE file system over a folder that answers late, as a network mount does.

python slow_files.py SOURCE MOUNT_POINT [--read-delay-ms 8] [--metadata-delay-ms 0] [--page-cache]
                     [--stretch 40]
"""

from __future__ import annotations

import argparse
import errno
import os
import time
from pathlib import Path
from typing import Any

from fuse import FUSE, FuseOSError, Operations

STAT_FIELDS = (
    "st_mode",
    "st_nlink",
    "st_size",
    "st_uid",
    "st_gid",
    "st_atime",
    "st_mtime",
    "st_ctime",
)


class SlowFiles(Operations):
    """Passes calls on to a folder, each after a pause.

    Args:
        source: The folder.
        read_delay_s: Pause before a read.
        metadata_delay_s: Pause before a description.
        stretch: Only every other stretch of so many files, by the number in their names, is late
            when read: a faster tier holds the rest. 0: all are late.
    """

    def __init__(
        self, source: Path, read_delay_s: float, metadata_delay_s: float, stretch: int
    ) -> None:
        self.source = source
        self.read_delay_s = read_delay_s
        self.metadata_delay_s = metadata_delay_s
        self.stretch = stretch

    def _path(self, path: str) -> Path:
        return self.source / path.lstrip("/")

    def _is_late(self, path: str) -> bool:
        return not self.stretch or int(Path(path).stem) // self.stretch % 2 == 1

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Describe a file, late."""
        if self.metadata_delay_s:
            time.sleep(self.metadata_delay_s)
        try:
            status = os.lstat(self._path(path))
        except OSError as error:
            raise FuseOSError(error.errno or errno.ENOENT) from error
        return {field: getattr(status, field) for field in STAT_FIELDS}

    def readdir(self, path: str, fh: int) -> list[str]:
        """List a folder."""
        return [".", "..", *os.listdir(self._path(path))]

    def open(self, path: str, flags: int) -> int:
        """Open for reading."""
        return os.open(self._path(path), os.O_RDONLY)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Read, late."""
        if self.read_delay_s and self._is_late(path):
            time.sleep(self.read_delay_s)
        return os.pread(fh, size, offset)

    def release(self, path: str, fh: int) -> None:
        """Close."""
        os.close(fh)


def main() -> None:
    """Serve until the mount point is unmounted or a signal ends us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("mount_point")
    parser.add_argument("--read-delay-ms", type=float, default=0.0)
    parser.add_argument("--metadata-delay-ms", type=float, default=0.0)
    parser.add_argument("--page-cache", action="store_true")
    parser.add_argument("--stretch", type=int, default=0)
    args = parser.parse_args()
    read_delay_s, metadata_delay_s = args.read_delay_ms / 1e3, args.metadata_delay_ms / 1e3
    files = SlowFiles(args.source, read_delay_s, metadata_delay_s, args.stretch)
    caching = {} if args.page_cache else {"direct_io": True}
    FUSE(files, args.mount_point, foreground=True, nothreads=False, ro=True, **caching)


if __name__ == "__main__":
    main()
