"""A fresh copy of the working folder for each run of a script that writes into it.

NOTE [the same path each time]
    Every run finds its copy at the same path, so that what is recorded of one run (the line that builds the
    loader) is true for the next. Links stay links: those that point into the folder point into the copy, those
    that point out of it still reach what they meant.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.errors import UsageError
from whyidle.store.rundir import DEFAULT_PARENT
from whyidle.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_COPY_BYTES = 1_000_000_000
"""Copied before every run: more would take longer than the run."""
MAX_COPY_FILES = 50_000
"""As above: so many small files take about as long as so many bytes."""


class WorkdirCopies:
    """Makes and removes the copies of one folder."""

    def __init__(self, original: Path) -> None:
        """Check the folder and choose a place for its copies; copies nothing yet.

        Args:
            original: The working folder.

        Raises:
            UsageError: `workdir-too-large` or `workdir-unreadable`.
        """
        self._original = original.resolve()
        check_size(self._original)
        self._place = Path(tempfile.mkdtemp(prefix="whyidle-workdir-"))
        self.folder = self._place / (self._original.name or "root")
        """Where every copy lies."""

    def make(self) -> None:
        """Make a fresh copy, in place of the last one.

        Raises:
            UsageError: `workdir-unreadable`, or `workdir-no-room`.
        """
        self._remove(self.folder)
        try:
            self._copy_folder(self._original, self.folder)
        except PermissionError as error:
            raise _unreadable(error) from error
        except OSError as error:
            raise UsageError(
                f"cannot copy {str(self._original)!r} to {str(self._place)!r}: {error.strerror}; expected room for it",
                slug="workdir-no-room",
                hint="Set TMPDIR to a folder with more room, or use --workdir here.",
            ) from error

    def close(self) -> None:
        """Remove the last copy. What the script wrote into it is gone."""
        self._remove(self._place)

    def in_copy(self, words: Sequence[str]) -> list[str]:
        """Give a command with the paths that lie in the folder pointing into the copy."""
        return [self._translate(word, self._original, self.folder) for word in words]

    def in_original(self, path: str) -> str:
        """Give the path in the folder for one in the copy; others stay."""
        return self._translate(path, self.folder, self._original)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Give the variables that name the working folder, pointing into the copy."""
        changed = {"PWD": str(self.folder)}
        search = environment.get("PYTHONPATH")
        if search is not None:
            parts = self.in_copy(search.split(os.pathsep))
            changed["PYTHONPATH"] = os.pathsep.join(parts)
        return changed

    @staticmethod
    def _translate(word: str, old: Path, new: Path) -> str:
        """Move a path, or the path behind the `=` of an option, from one folder to the other."""
        option, sign, value = word.partition("=")
        path = value if sign and option.startswith("-") else word
        if path != str(old) and not path.startswith(f"{old}{os.sep}"):
            return word
        moved = f"{new}{path[len(str(old)) :]}"
        return f"{option}={moved}" if path is value else moved

    def _copy_folder(self, source: Path, target: Path) -> None:
        target.mkdir()
        with os.scandir(source) as entries:
            for entry in entries:
                if is_left_out(entry, self._original):
                    continue
                path = Path(entry.path)
                if entry.is_symlink():
                    self._copy_link(path, target / entry.name)
                elif entry.is_dir():
                    self._copy_folder(path, target / entry.name)
                else:
                    shutil.copy2(path, target / entry.name, follow_symlinks=False)
        shutil.copystat(source, target)

    def _copy_link(self, link: Path, target: Path) -> None:
        """See NOTE [the same path each time]."""
        pointed = Path(os.path.normpath(link.parent / os.readlink(link)))
        if pointed == self._original or self._original in pointed.parents:
            pointed = self.folder / pointed.relative_to(self._original)
        target.symlink_to(pointed)

    @staticmethod
    def _remove(folder: Path) -> None:
        # The script may have taken away its own permissions.
        for path, folders, _ in os.walk(folder):
            for name in folders:
                inner = Path(path, name)
                if not inner.is_symlink():
                    inner.chmod(inner.stat().st_mode | stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def is_left_out(entry: os.DirEntry[str], root: Path) -> bool:
    """Whether an entry is not copied: our own run folders, and what is neither file, folder nor link."""
    if entry.name == DEFAULT_PARENT and Path(entry.path).parent == root:
        return True
    mode = entry.stat(follow_symlinks=False).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def check_size(folder: Path) -> None:
    """Check that a folder is small enough to be copied for every run.

    Raises:
        UsageError: `workdir-too-large` or `workdir-unreadable`.
    """
    size_bytes = files = 0
    try:
        for one in _file_sizes(folder, folder):
            size_bytes += one
            files += 1
            if size_bytes > MAX_COPY_BYTES or files > MAX_COPY_FILES:
                raise UsageError(
                    f"the working folder {str(folder)!r} holds more than {format_bytes(MAX_COPY_BYTES)} or "
                    f"{MAX_COPY_FILES} files; --workdir copy copies it before every run and expects less",
                    slug="workdir-too-large",
                    hint="Keep data outside of it (a link to it is enough), or use --workdir here.",
                )
    except PermissionError as error:
        raise _unreadable(error) from error


def _file_sizes(folder: Path, root: Path) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_left_out(entry, root) or entry.is_symlink():
                continue
            if entry.is_dir():
                yield from _file_sizes(Path(entry.path), root)
            else:
                yield entry.stat().st_size


def _unreadable(error: PermissionError) -> UsageError:
    return UsageError(
        f"cannot copy {error.filename!r}: {error.strerror}; expected a working folder that can be read",
        slug="workdir-unreadable",
        hint="Use --workdir here, or give yourself the permission.",
    )
