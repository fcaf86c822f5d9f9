"""Columns on disk: Parquet files in a run's `columns` folder, and a marker that says they are whole.

    columns/<table>-<part>.parquet       parts of PART_ROWS rows, in journal order; no file for an empty table
    columns/frame_texts-<part>.parquet   journal, id, text
    columns/complete.json                what the files were made from; written last

Columns are only a faster copy of the journals. They are used when the marker fits the journals beside them; after
the journals were removed to save space they stand alone.

COLUMNS_VERSION history
    1   first layout
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from whyidle.errors import RunFolderError
from whyidle.model.events import TABLE_COLUMNS, Journal
from whyidle.store.columns import SCHEMAS, Conversion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COLUMNS_VERSION = 1
PART_ROWS = 1 << 18
"""Rows of a part: at 72 bytes a row, all tables together never hold more than 24 x 19 MB while streaming."""
MARKER_NAME = "complete.json"
_FRAME_TEXTS = "frame_texts"
_FRAME_TEXTS_SCHEMA: dict[str, pl.DataType] = {
    "journal": pl.UInt32(),
    "id": pl.Int64(),
    "text": pl.String(),
}
_TEMPORARY_PREFIX = ".columns-"
_WHOLE_TABLES = frozenset(
    (
        "loader",
        "loader_place",
        "worker",
        "worker_start",
        "device",
        "note",
        "process",
        "mount",
    )
)
"""What describes the run rather than its steps: kept whole when only a window of the run is loaded."""
_WINDOW_ROUNDS = 10
"""Halvings: the window is found to 1 / 1024 of the run. Each reads the time columns once."""
_FETCH_DETAILS = ("fetch_cost", "payload")
"""Rows that belong to a fetch and have no time of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumns:
    """A complete columns folder."""

    folder: Path
    journals: tuple[Journal, ...]
    row_counts: Mapping[str, int]
    """Table to its rows; `frame_texts` is among them."""

    @property
    def size_bytes(self) -> int:
        """About what all tables take in memory."""
        return sum(
            count * _row_bytes(table)
            for table, count in self.row_counts.items()
            if table in SCHEMAS
        )


class PartWriter:
    """Writes columns part by part into a new folder. See the module's docstring for the layout."""

    def __init__(self, folder: Path) -> None:
        """Write into an existing, empty folder."""
        self._folder = folder
        self._pending: dict[str, list[pl.DataFrame]] = {
            table: [] for table in TABLE_COLUMNS
        }
        self._pending_rows = dict.fromkeys(TABLE_COLUMNS, 0)
        self._part_counts: dict[str, int] = {}
        self._row_counts = dict.fromkeys(TABLE_COLUMNS, 0)

    def add(self, table: str, frame: pl.DataFrame) -> None:
        """Add rows to a table; they are written once there are enough for a part.

        Raises:
            OSError: the disk is full or the folder cannot be written.
        """
        self._pending[table].append(frame)
        self._pending_rows[table] += frame.height
        if self._pending_rows[table] >= PART_ROWS:
            self._write_pending(table)

    def finish(
        self, journals: Sequence[Journal], frame_texts: Mapping[tuple[int, int], str]
    ) -> dict[str, int]:
        """Write what is left, then the marker; give the rows of each table.

        Raises:
            OSError: the disk is full or the folder cannot be written.
        """
        for table in TABLE_COLUMNS:
            if self._pending[table]:
                self._write_pending(table)
        rows = [(journal, number, text) for (journal, number), text in frame_texts.items()]
        self._write_part(
            _FRAME_TEXTS, pl.DataFrame(rows, schema=_FRAME_TEXTS_SCHEMA, orient="row")
        )
        row_counts = {**self._row_counts, _FRAME_TEXTS: len(rows)}
        marker = {
            "columns_version": COLUMNS_VERSION,
            "table_columns": TABLE_COLUMNS,
            "rows": row_counts,
            "journals": [asdict(journal) for journal in journals],
        }
        (self._folder / MARKER_NAME).write_text(json.dumps(marker), encoding="utf-8")
        return row_counts

    def _write_pending(self, table: str) -> None:
        frame = pl.concat(self._pending[table])
        self._pending[table] = []
        self._pending_rows[table] = 0
        self._row_counts[table] += frame.height
        for start in range(0, frame.height, PART_ROWS):
            self._write_part(table, frame.slice(start, PART_ROWS))

    def _write_part(self, name: str, frame: pl.DataFrame) -> None:
        part = self._part_counts.get(name, 0)
        self._part_counts[name] = part + 1
        path = self._folder / f"{name}-{part:05d}.parquet"
        try:
            frame.write_parquet(path, compression="zstd", compression_level=1)
        except pl.exceptions.PolarsError as error:
            raise OSError(f"{str(path)!r} cannot be written: {error}") from error


def stream_columns(conversion: Conversion, folder: Path) -> StoredColumns:
    """Convert journals into a columns folder in bounded memory, whatever their size.

    Raises:
        OSError: the folder cannot be written.
        RunFolderError: a journal is foreign, too new or cannot be read.
    """
    with new_columns_folder(folder) as temporary:
        writer = PartWriter(temporary)
        for block in conversion.blocks():
            for table, frame in block.items():
                writer.add(table, frame)
        row_counts = writer.finish(conversion.journals, conversion.frame_texts)
    return StoredColumns(
        folder=folder, journals=tuple(conversion.journals), row_counts=row_counts
    )


@contextlib.contextmanager
def new_columns_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder that takes the place of `folder` when the block ends without an error.

    Raises:
        OSError: the parent cannot be written.
    """
    _remove_abandoned(folder.parent)
    temporary = folder.parent / f"{_TEMPORARY_PREFIX}{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find_columns(folder: Path, fingerprints: Sequence[str]) -> StoredColumns | None:
    """Give the columns of a run if they are whole and up to date.

    Args:
        folder: The columns folder.
        fingerprints: Of the journals beside it, in their order; empty when the journals were removed.
    """
    try:
        marker = json.loads((folder / MARKER_NAME).read_bytes())
        stored = _parse_marker(folder, marker)
        made_from = [journal.fingerprint for journal in stored.journals]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not fingerprints:
        return stored
    is_same_layout = marker.get("table_columns") == TABLE_COLUMNS
    return stored if is_same_layout and made_from == list(fingerprints) else None


def scan_table(stored: StoredColumns, table: str) -> pl.LazyFrame:
    """Give a table without reading it: for tables larger than memory."""
    return _scan_parts(stored.folder, table, SCHEMAS[table])


def load_columns(
    stored: StoredColumns, limit_bytes: int
) -> tuple[dict[str, pl.DataFrame], int | None]:
    """Read all tables, or as much of the end of the run as fits.

    Args:
        stored: What to read.
        limit_bytes: Most bytes the tables may take in memory.

    Returns:
        Tables by name, and the monotonic time in ns from which on they have rows; None: all rows.

    Raises:
        RunFolderError: `columns-damaged` when a file cannot be read.
    """
    with _reading(stored.folder):
        lazy = {table: scan_table(stored, table) for table in TABLE_COLUMNS}
        if stored.size_bytes <= limit_bytes:
            tables = {table: frame.collect() for table, frame in lazy.items()}
            for table, frame in tables.items():
                _check_row_count(stored, table, frame)
            return tables, None
        from_ns = _window(lazy, limit_bytes)
        return {table: _since(lazy, table, from_ns).collect() for table in lazy}, from_ns


def load_frame_texts(stored: StoredColumns) -> dict[tuple[int, int], str]:
    """Read the texts of stack frames.

    Raises:
        RunFolderError: `columns-damaged` when the file cannot be read.
    """
    with _reading(stored.folder):
        frame = _scan_parts(stored.folder, _FRAME_TEXTS, _FRAME_TEXTS_SCHEMA).collect()
        _check_row_count(stored, _FRAME_TEXTS, frame)
    return {(journal, number): text for journal, number, text in frame.iter_rows()}


def _parse_marker(folder: Path, marker: dict[str, Any]) -> StoredColumns:
    """Read the marker; anything unexpected in it raises one of the errors that a damaged JSON can cause."""
    if not 1 <= marker["columns_version"] <= COLUMNS_VERSION:
        raise ValueError(f"columns version {marker['columns_version']!r}")
    known = {one.name for one in fields(Journal)}
    journals = tuple(
        Journal(**{name: value for name, value in one.items() if name in known})
        for one in marker["journals"]
    )
    rows = {str(table): int(count) for table, count in marker["rows"].items()}
    return StoredColumns(folder=folder, journals=journals, row_counts=rows)


def _scan_parts(folder: Path, name: str, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    paths = sorted(folder.glob(f"{name}-*.parquet"))
    if not paths:
        return pl.LazyFrame(schema=schema)
    lazy = pl.scan_parquet(paths)
    there = lazy.collect_schema()
    # Columns written before a column was added lack it.
    return lazy.select(
        pl.col(column) if column in there else pl.lit(None, dtype=dtype).alias(column)
        for column, dtype in schema.items()
    )


def _row_bytes(table: str) -> int:
    sizes: dict[pl.DataType, int] = {pl.UInt32(): 4, pl.UInt16(): 2, pl.Categorical(): 4}
    return sum(sizes.get(dtype, 8) for dtype in SCHEMAS[table].values())


def _time_column(table: str) -> str | None:
    """The column that says when a row's event began; None for tables that are kept whole or follow another."""
    if table in _WHOLE_TABLES or table in _FETCH_DETAILS:
        return None
    places = TABLE_COLUMNS[table]
    return next(column for column, place in places.items() if place in ("t0", "t1"))


def _window(lazy: Mapping[str, pl.LazyFrame], limit_bytes: int) -> int:
    """Find from when on the rows fit, by bisecting the span from the first event to the last."""
    timed = {table: column for table in lazy if (column := _time_column(table))}
    bounds = pl.concat(
        lazy[table].select(
            first=pl.col(column).filter(pl.col(column) > 0).min(), last=pl.col(column).max()
        )
        for table, column in timed.items()
    )
    first_ns, last_ns = bounds.select(pl.min("first"), pl.max("last")).collect().row(0)
    too_early_ns, fits_ns = first_ns or 0, last_ns or 0
    for _ in range(_WINDOW_ROUNDS):
        middle_ns = (too_early_ns + fits_ns) // 2
        if _size_since(lazy, timed, middle_ns) <= limit_bytes:
            fits_ns = middle_ns
        else:
            too_early_ns = middle_ns
    return int(fits_ns)


def _size_since(
    lazy: Mapping[str, pl.LazyFrame], timed: Mapping[str, str], from_ns: int
) -> int:
    row_bytes = {table: _row_bytes(table) for table in timed}
    row_bytes["fetch"] += sum(map(_row_bytes, _FETCH_DETAILS))
    counts = pl.concat(
        lazy[table].select(
            bytes=(pl.col(column) >= from_ns).sum().cast(pl.Int64) * row_bytes[table]
        )
        for table, column in timed.items()
    )
    return int(counts.collect()["bytes"].sum())


def _since(lazy: Mapping[str, pl.LazyFrame], table: str, from_ns: int) -> pl.LazyFrame:
    if table in _FETCH_DETAILS:
        key = ["journal", "pass", "batch"]
        return lazy[table].join(
            _since(lazy, "fetch", from_ns).select(key), on=key, how="semi"
        )
    column = _time_column(table)
    return lazy[table].filter(pl.col(column) >= from_ns) if column else lazy[table]


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary folders whose process was killed."""
    for folder in parent.glob(f"{_TEMPORARY_PREFIX}*"):
        pid = folder.name.removeprefix(_TEMPORARY_PREFIX)
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _check_row_count(stored: StoredColumns, name: str, frame: pl.DataFrame) -> None:
    expected = stored.row_counts.get(name, 0)
    if frame.height != expected:
        raise OSError(f"{frame.height} rows of {name!r}, {expected} were written")


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn what damaged files cause in polars into an error of ours."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise RunFolderError(
            f"{str(folder)!r} cannot be read: {error}; expected the columns that its marker lists",
            slug="columns-damaged",
            hint="restore the folder from a copy; while the journals are there, remove it and it is made again",
        ) from error
