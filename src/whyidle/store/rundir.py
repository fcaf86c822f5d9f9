"""The folder of a run: made, checked, read, and what is written into it at the end.

    <parent>/<YYYYmmdd-HHMMSS>-<n>/
        manifest.json        what was run and how it ended
        control              see wire.CONTROL_FILE
        journals/*.journal   one a process; the truth
        columns/             the same as Parquet, for reading again; see parquet.py
        verdict.json         see model/findings.py

MANIFEST_SCHEMA_VERSION history
    1   first layout

NOTE [memory first, disk later]
    An ordinary run is converted in memory and judged at once; `save_columns` writes the Parquet files
    afterwards, when nobody waits. Only a run that takes more than a set part of the memory goes through the disk
    first, and if its columns do not fit either, the end of the run that fits is loaded and the manifest says so.

Cheap to import: the launcher needs it before the target starts, so polars is loaded by the functions that use it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.errors import RunFolderError
from whyidle.model.events import RunTables
from whyidle.store.live import JOURNALS_FOLDER, prepare_run_dir
from whyidle.units import format_bytes, format_ns
from whyidle_agent import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whyidle.model.findings import Verdict
    from whyidle.store.parquet import StoredColumns

MANIFEST_SCHEMA_VERSION = 1
DEFAULT_PARENT = "whyidle-runs"
MANIFEST_NAME = "manifest.json"
VERDICT_NAME = "verdict.json"
COLUMNS_FOLDER = "columns"
WINDOW_SLUG = "window-only"
"""In `not_observed` when only the end of a run was loaded."""
MEMORY_DIVISOR = 8
"""Tables may take this part of the memory: converting peaks at three times their size, analysis copies some."""
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_RUN_NAME = re.compile(r"(\d{8}-\d{6})-(\d{1,9})")
_MANIFEST_FIELDS: dict[str, tuple[type, ...]] = {
    "schema_version": (int,),
    "command": (list,),
    "working_dir": (str,),
    "start_unix_ns": (int,),
    "start_mono_ns": (int,),
    "end_mono_ns": (int,),
    "exit_status": (int,),
    "signal": (int,),
    "ended_by": (str,),
    "steps_bound": (int,),
    "seconds_bound": (int, float),
    "cpus_machine": (int,),
    "cpus_allowed": (list,),
    "observer": (dict,),
    "not_observed": (list,),
    "platform": (dict,),
}
"""Keys of a manifest and the types of their values; each may be null."""


def create_run_dir(parent: Path | None = None) -> Path:
    """Make a new, empty run folder, ready for agents.

    Args:
        parent: Folder to make it in, made if need be; `./whyidle-runs` if not given.

    Raises:
        RunFolderError: `run-folder-not-writable`.
    """
    folder = Path(DEFAULT_PARENT) if parent is None else parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        run_dir = _make_numbered(folder, time.strftime("%Y%m%d-%H%M%S"))
        prepare_run_dir(run_dir)
    except OSError as error:
        raise RunFolderError(
            f"no run folder can be made in {str(folder)!r}: {error.strerror or error}; "
            "expected a folder that can be written",
            slug="run-folder-not-writable",
            hint="name another folder with --out",
        ) from error
    return run_dir


def find_runs(parent: Path | None = None) -> list[Path]:
    """Give the run folders in a folder, oldest first; none if it is not there."""
    folder = Path(DEFAULT_PARENT) if parent is None else parent
    matches = map(_RUN_NAME.fullmatch, _names_in(folder))
    named = [(match, folder / match[0]) for match in matches if match]
    return [path for _, path in sorted(named, key=lambda one: (one[0][1], int(one[0][2])))]


def open_run_dir(path: Path) -> Path:
    """Check that a folder is a run that can be read, and give it back.

    Raises:
        RunFolderError: `run-folder-missing`, `run-folder-foreign`, `run-folder-empty` or `run-folder-too-new`.
    """
    if not os.path.isdir(path):
        raise RunFolderError(
            f"there is no folder {str(path)!r}; expected a run folder",
            slug="run-folder-missing",
            hint=f"name a folder in ./{DEFAULT_PARENT}, or record a run with `whyidle run`",
        )
    names = _names_in(path)
    if not {MANIFEST_NAME, JOURNALS_FOLDER, COLUMNS_FOLDER} & set(names):
        raise RunFolderError(
            f"{str(path)!r} holds none of {MANIFEST_NAME}, {JOURNALS_FOLDER}, {COLUMNS_FOLDER}; "
            "expected a run folder",
            slug="run-folder-foreign",
            hint="name the folder that `whyidle run` printed, not the one above or below it",
        )
    read_manifest(path)
    if not list_journals(path) and COLUMNS_FOLDER not in names:
        raise _empty(path)
    return path


def list_journals(path: Path) -> list[Path]:
    """Give the journals of a run, sorted by name."""
    folder = path / JOURNALS_FOLDER
    return [
        folder / name
        for name in sorted(_names_in(folder))
        if name.endswith(wire.JOURNAL_SUFFIX)
    ]


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest.json`: the old one or the new one is there at any moment, never half of one.

    Raises:
        OSError: the folder cannot be written.
    """
    _write_json(path / MANIFEST_NAME, manifest)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read `manifest.json`; what is missing or damaged is null, with an entry in `not_observed`.

    Raises:
        RunFolderError: `run-folder-too-new` when a newer whyidle wrote it.
    """
    manifest, reason = _parse_manifest(path / MANIFEST_NAME)
    version = manifest.get("schema_version")
    if isinstance(version, int) and version > MANIFEST_SCHEMA_VERSION:
        raise RunFolderError(
            f"{str(path)!r} has run schema {version}; this whyidle reads schemas up to {MANIFEST_SCHEMA_VERSION}",
            slug="run-folder-too-new",
            hint="upgrade whyidle to the version that recorded the run, or later",
        )
    damaged = [
        name
        for name, types in _MANIFEST_FIELDS.items()
        if manifest.get(name) is not None and not isinstance(manifest[name], types)
    ]
    complete = dict.fromkeys(_MANIFEST_FIELDS) | manifest | dict.fromkeys(damaged)
    complete["schema_version"] = complete["schema_version"] or MANIFEST_SCHEMA_VERSION
    complete["command"] = [str(word) for word in complete["command"] or ()]
    complete["not_observed"] = [
        one for one in complete["not_observed"] or () if _is_missing_entry(one)
    ]
    if damaged:
        reason = f"manifest.json has damaged values for {', '.join(damaged)}"
    if reason:
        _add_not_observed(complete, "manifest-damaged", reason)
    return complete


def write_verdict(path: Path, verdict: Verdict) -> bool:
    """Write `verdict.json`, whole or not at all; False when the folder cannot be written (a read-only copy)."""
    try:
        _write_json(path / VERDICT_NAME, verdict.to_json())
    except OSError:
        return False
    return True


def load_tables(path: Path, *, limit_bytes: int | None = None) -> RunTables:
    """Load what was recorded of a run, from its columns if they are up to date, else from its journals.

    Works on read-only folders and on runs that are still being recorded. See NOTE [memory first, disk later].

    Args:
        path: The run folder.
        limit_bytes: Most bytes the tables may take; 1 / MEMORY_DIVISOR of the usable memory if not given.

    Raises:
        RunFolderError: the folder is missing, foreign, too new, empty or cannot be read.
    """
    run_dir = open_run_dir(path)
    limit = usable_memory_bytes() // MEMORY_DIVISOR if limit_bytes is None else limit_bytes
    paths = list_journals(run_dir)
    stored = _find_stored(run_dir, paths)
    if stored is not None:
        try:
            return _load_stored(run_dir, stored, limit)
        except RunFolderError:
            # While the journals are there, damaged columns cost only time.
            if not paths:
                raise
    if not paths:
        raise _empty(run_dir)
    if _size_bytes(paths) <= limit:
        return _convert(run_dir, paths)
    return _stream(run_dir, paths, limit)


def save_columns(path: Path, tables: RunTables) -> bool:
    """Write tables that `load_tables` gave as Parquet, so that the next load is faster.

    Returns:
        True when the columns are there and up to date. False when the run is still being recorded, the tables are
        not the whole run, or the folder cannot be written: nothing is lost, the journals are the truth.
    """
    from whyidle.store import parquet

    paths = list_journals(path)
    if _find_stored(path, paths) is not None:
        return True
    made_from = [journal.fingerprint for journal in tables.journals]
    has_ended = tables.manifest.get("end_mono_ns") is not None or all(
        journal.closed for journal in tables.journals
    )
    is_window = any(one["slug"] == WINDOW_SLUG for one in tables.manifest["not_observed"])
    if not paths or not has_ended or is_window or made_from != _fingerprints(paths):
        return False
    try:
        with parquet.new_columns_folder(path / COLUMNS_FOLDER) as folder:
            writer = parquet.PartWriter(folder)
            for table, frame in tables.tables.items():
                writer.add(table, frame)
            writer.finish(tables.journals, tables.frame_texts)
    except OSError:
        return False
    return True


def usable_memory_bytes() -> int:
    """Memory that this process may use: the machine's, or less where a cgroup limits it."""
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return machine_bytes
    return min(int(limit), machine_bytes) if limit.isdecimal() else machine_bytes


def _convert(run_dir: Path, paths: Sequence[Path]) -> RunTables:
    from whyidle.store import columns

    conversion, tables = columns.convert(paths)
    if not any(journal.record_count for journal in conversion.journals):
        raise _empty(run_dir)
    return RunTables(
        manifest=read_manifest(run_dir),
        journals=tuple(conversion.journals),
        tables=tables,
        frame_texts=conversion.frame_texts,
    )


def _stream(run_dir: Path, paths: Sequence[Path], limit_bytes: int) -> RunTables:
    """Convert by way of the disk: beside the journals, or in a temporary folder when that cannot be written."""
    from whyidle.store import parquet
    from whyidle.store.columns import Conversion

    try:
        stored = parquet.stream_columns(Conversion(paths), run_dir / COLUMNS_FOLDER)
    except OSError:
        with tempfile.TemporaryDirectory(prefix="whyidle-") as folder:
            return _stream_aside(run_dir, Path(folder) / COLUMNS_FOLDER, paths, limit_bytes)
    return _load_stored(run_dir, stored, limit_bytes)


def _stream_aside(
    run_dir: Path, columns_dir: Path, paths: Sequence[Path], limit_bytes: int
) -> RunTables:
    from whyidle.store import parquet
    from whyidle.store.columns import Conversion

    try:
        stored = parquet.stream_columns(Conversion(paths), columns_dir)
    except OSError as error:
        raise RunFolderError(
            f"{str(run_dir)!r} is larger than memory and there is no room to convert it: {error}; "
            "expected a temporary folder that takes about half the size of the journals",
            slug="no-room-for-columns",
            hint="set TMPDIR to a folder on a disk with more room",
        ) from error
    return _load_stored(run_dir, stored, limit_bytes)


def _load_stored(run_dir: Path, stored: StoredColumns, limit_bytes: int) -> RunTables:
    from whyidle.store import parquet

    if not any(journal.record_count for journal in stored.journals):
        raise _empty(run_dir)
    tables, from_ns = parquet.load_columns(stored, limit_bytes)
    manifest = read_manifest(run_dir)
    if from_ns is not None:
        _add_not_observed(
            manifest, WINDOW_SLUG, _window_reason(manifest, stored, limit_bytes, from_ns)
        )
    return RunTables(
        manifest=manifest,
        journals=stored.journals,
        tables=tables,
        frame_texts=parquet.load_frame_texts(stored),
    )


def _window_reason(
    manifest: Mapping[str, Any], stored: StoredColumns, limit_bytes: int, from_ns: int
) -> str:
    start_ns = manifest["start_mono_ns"] or min(
        journal.start_ns for journal in stored.journals
    )
    return (
        f"the run takes {format_bytes(stored.size_bytes)} of memory and {format_bytes(limit_bytes)} may be used: "
        f"its first {format_ns(max(from_ns - start_ns, 0))} are left out"
    )


def _find_stored(run_dir: Path, paths: Sequence[Path]) -> StoredColumns | None:
    if not (run_dir / COLUMNS_FOLDER).is_dir():
        return None
    from whyidle.store import parquet

    return parquet.find_columns(run_dir / COLUMNS_FOLDER, _fingerprints(paths))


def _fingerprints(paths: Sequence[Path]) -> list[str]:
    from whyidle.store.journal import open_journal

    return [open_journal(path).fingerprint for path in paths]


def _size_bytes(paths: Sequence[Path]) -> int:
    try:
        return sum(path.stat().st_size for path in paths)
    except OSError:
        # Opening says which one and why.
        return 0


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(
            f"{str(folder)!r} cannot be read: {error.strerror or error}; expected a readable folder",
            slug="run-folder-unreadable",
            hint="check the permissions of the run folder and the disk it is on",
        ) from error


def _make_numbered(parent: Path, stamp: str) -> Path:
    number = 1
    while True:
        run_dir = parent / f"{stamp}-{number}"
        try:
            run_dir.mkdir()
        except FileExistsError:
            number += 1
        else:
            return run_dir


def _parse_manifest(path: Path) -> tuple[dict[str, Any], str | None]:
    """Give what a manifest says, and the reason if that is nothing."""
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, "there is no manifest.json: how the run was started and ended is unknown"
    except (OSError, ValueError, RecursionError) as error:
        return (
            {},
            f"manifest.json cannot be read ({type(error).__name__}): how the run ended is unknown",
        )
    if not isinstance(manifest, dict):
        return (
            {},
            "manifest.json holds no object: how the run was started and ended is unknown",
        )
    return manifest, None


def _is_missing_entry(entry: object) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), str) for name in ("slug", "reason")
    )


def _add_not_observed(manifest: dict[str, Any], slug: str, reason: str) -> None:
    manifest["not_observed"] = [*manifest["not_observed"], {"slug": slug, "reason": reason}]


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file by way of a temporary one.

    Raises:
        OSError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _empty(path: Path) -> RunFolderError:
    return RunFolderError(
        f"{str(path)!r} holds no records; expected at least one journal with a record",
        slug="run-folder-empty",
        hint="the command may have ended before it imported torch: `whyidle doctor` tells what can be observed",
    )
