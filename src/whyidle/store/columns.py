"""Journals to columns: one polars frame a table, as `TABLE_COLUMNS` lists them.

The places in that list are a small language, read once at import:

    place   FIELD | "lo:" FIELD | "hi:" FIELD | "bits:" FIELD ":" from ":" count | "text:" place
    FIELD   ref | flags | t0 | t1 | a | b | c | d
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from whyidle.model.events import TABLE_COLUMNS, Journal
from whyidle.store.journal import (
    describe_journal,
    open_journal,
    read_blocks,
    scan_journal,
    split_by_kind,
)
from whyidle_agent import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

TEXT_DTYPE = pl.Categorical()
_FIELD_DTYPES: dict[str, pl.DataType] = {"ref": pl.UInt32(), "flags": pl.UInt16()}
_LOW_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a column's values stand in a record."""

    field: str
    """Field of `journal.RECORD_DTYPE`."""
    shift: int = 0
    """Bits to drop on the right; the sign is kept."""
    mask: int | None = None
    """Bits to keep after the shift; None: all."""
    is_text: bool = False
    """True: the number is a text id."""

    @property
    def dtype(self) -> pl.DataType:
        """Type of the column."""
        if self.is_text:
            return TEXT_DTYPE
        return _FIELD_DTYPES.get(self.field, pl.Int64())


def parse_place(text: str) -> Place:
    """Read one place of `TABLE_COLUMNS`.

    >>> parse_place("text:hi:a")
    Place(field='a', shift=32, mask=None, is_text=True)
    """
    match text.split(":"):
        case ["text", *rest]:
            inner = parse_place(":".join(rest))
            return Place(
                field=inner.field, shift=inner.shift, mask=inner.mask, is_text=True
            )
        case ["lo", name]:
            return Place(field=name, mask=_LOW_MASK)
        case ["hi", name]:
            return Place(field=name, shift=32)
        case ["bits", name, start, count]:
            return Place(field=name, shift=int(start), mask=(1 << int(count)) - 1)
        case [name]:
            return Place(field=name)
        case _:
            raise ValueError(
                f"place {text!r}; expected one of those in the module's docstring"
            )


PLACES: dict[str, dict[str, Place]] = {
    table: {column: parse_place(text) for column, text in columns.items()}
    for table, columns in TABLE_COLUMNS.items()
}
SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    table: {
        "journal": pl.UInt32(),
        **{column: place.dtype for column, place in places.items()},
    }
    for table, places in PLACES.items()
}
"""Table to its columns to their types."""


class TextLookup:
    """The texts of one journal, as a categorical series that ids index."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """Lay the texts out by id; id 0 and ids without a text are null."""
        self._size = max(texts, default=0) + 1
        self._by_id = pl.Series(
            [texts.get(number) for number in range(self._size)], dtype=TEXT_DTYPE
        )

    def resolve(self, ids: NDArray[np.int64]) -> pl.Series:
        """Give the texts of ids, in their order."""
        known = np.where((ids > 0) & (ids < self._size), ids, 0)
        return self._by_id.gather(pl.Series(known.astype(np.uint32)))


def build_frame(
    table: str, records: NDArray[np.void], journal: int, texts: TextLookup
) -> pl.DataFrame:
    """Make a table's frame from records of its kind.

    Args:
        table: Name in `TABLE_COLUMNS`.
        records: Array of `journal.RECORD_DTYPE`, all of the table's kind.
        journal: Value of the `journal` column.
        texts: Texts of that journal.
    """
    columns = [
        pl.repeat(journal, len(records), dtype=pl.UInt32, eager=True).alias("journal")
    ]
    for name, place in PLACES[table].items():
        columns.append(_read_place(place, records, texts).alias(name))
    return pl.DataFrame(columns)


def empty_frame(table: str) -> pl.DataFrame:
    """Give a table without rows."""
    return pl.DataFrame(schema=SCHEMAS[table])


@dataclass(slots=True)
class Conversion:
    """Journals on their way to columns: `blocks` makes the frames, the rest fills as they are made."""

    paths: Sequence[Path]
    """The journals, in the order that the `journal` column counts."""
    journals: list[Journal] = field(default_factory=list)
    """Headers of the journals begun so far."""
    frame_texts: dict[tuple[int, int], str] = field(default_factory=dict)
    """(journal, text id) to text of the frames in stacks, of the journals finished so far."""
    _shared: dict[str, str] = field(default_factory=dict)

    def blocks(self) -> Iterator[dict[str, pl.DataFrame]]:
        """Give frames by table, a few MiB at a time; tables without rows are left out.

        Raises:
            RunFolderError: a journal is foreign, too new or cannot be read.
        """
        for number, path in enumerate(self.paths):
            yield from self._convert_journal(number, path)

    def _convert_journal(
        self, number: int, path: Path
    ) -> Iterator[dict[str, pl.DataFrame]]:
        opened = open_journal(path)
        scan = scan_journal(opened)
        self.journals.append(describe_journal(opened, scan.record_count))
        lookup = TextLookup(scan.texts)
        stack_ids: set[int] = set()
        for records in read_blocks(opened):
            by_kind = split_by_kind(records)
            if (stacks := by_kind.get(wire.STACK)) is not None:
                stack_ids.update(np.unique(stacks["a"] & _LOW_MASK).tolist())
            yield {
                wire.KIND_NAMES[kind]: build_frame(
                    wire.KIND_NAMES[kind], rows, number, lookup
                )
                for kind, rows in by_kind.items()
                if kind in wire.KIND_NAMES
            }
        for frame_id in _frame_ids(stack_ids, scan.texts):
            # Workers share their code, so the same texts come again in every journal.
            text = scan.texts[frame_id]
            self.frame_texts[number, frame_id] = self._shared.setdefault(text, text)


def convert(paths: Sequence[Path]) -> tuple[Conversion, dict[str, pl.DataFrame]]:
    """Convert journals in memory; takes about three times their size at its peak.

    Returns:
        The finished conversion, and all tables by name.

    Raises:
        RunFolderError: a journal is foreign, too new or cannot be read.
    """
    conversion = Conversion(paths)
    parts: dict[str, list[pl.DataFrame]] = {table: [] for table in TABLE_COLUMNS}
    for block in conversion.blocks():
        for table, frame in block.items():
            parts[table].append(frame)
    tables = {}
    for table in TABLE_COLUMNS:
        # Popped, so that a table's parts are freed before the next table is put together.
        found = parts.pop(table)
        tables[table] = pl.concat(found, rechunk=True) if found else empty_frame(table)
    return conversion, tables


def _read_place(place: Place, records: NDArray[np.void], texts: TextLookup) -> pl.Series:
    values = np.ascontiguousarray(records[place.field])
    if place.shift:
        values = values >> place.shift
    if place.mask is not None:
        values = values & place.mask
    if place.is_text:
        return texts.resolve(values.astype(np.int64, copy=False))
    return pl.Series(values)


def _frame_ids(stack_ids: set[int], texts: Mapping[int, str]) -> set[int]:
    """Ids in the stacks' texts that have a text themselves."""
    found: set[int] = set()
    for stack_id in stack_ids:
        words = texts.get(stack_id, "").split(",")
        # A damaged text can have any digits: no id has more than ten.
        found.update(int(word) for word in words if word.isdecimal() and len(word) <= 10)
    return found & texts.keys()
