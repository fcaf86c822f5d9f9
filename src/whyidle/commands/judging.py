"""Recorded tables → verdict, with the sources of the training at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from whyidle.analysis.rules.case import Source
    from whyidle.model.events import RunTables
    from whyidle.model.findings import Verdict

MAX_SOURCE_BYTES = 4_000_000
"""A larger file was not written by a person."""
CLOCK_SLACK_NS = 2 * NS_PER_S
"""File systems keep times to a second or two."""


def judge_run(tables: RunTables) -> Verdict:
    """Give the verdict of a recorded run; source files are looked at where they are as they were then."""
    from whyidle.analysis.verdict import judge

    return judge(tables, SourceFiles(tables.manifest))


class SourceFiles:
    """Reads source files of a run, each once."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """Remember when the run began and where."""
        self._start_unix_ns: int | None = manifest.get("start_unix_ns")
        self._folder = Path(manifest.get("working_dir") or ".")
        self._known: dict[str, Source] = {}

    def __call__(self, file: str) -> Source:
        """Give the text of a file as the interpreter knew it, or the reason why there is none."""
        if file not in self._known:
            self._known[file] = self._read(self._folder / file)
        return self._known[file]

    def _read(self, path: Path) -> Source:
        from whyidle.analysis.rules.case import Source

        try:
            status = path.stat()
            if status.st_size > MAX_SOURCE_BYTES:
                return Source(None, "it is too large to be a script")
            if self._is_newer(status.st_mtime_ns):
                return Source(None, "it has changed since the run")
            return Source(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            return Source(None, (reason or "it is no text").lower())

    def _is_newer(self, changed_unix_ns: int) -> bool:
        if self._start_unix_ns is None:
            return False
        return changed_unix_ns > self._start_unix_ns + CLOCK_SLACK_NS
