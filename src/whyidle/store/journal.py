"""Reading journals: whole records of one process' file, whatever happened to its writer.

NOTE [reading, not mapping]
    A journal may be cut short, replaced or on a failing disk while it is read. A mapped page that is no longer
    there is a SIGBUS that ends the process; a read gives an OSError or fewer bytes. So blocks are read: the copy
    costs less than a tenth of decoding them, and memory is bounded by the block.

NOTE [two passes]
    A record may come before the text that it names: a thread can use an id that another is just writing down.
    So texts are collected in one pass and records are decoded in the next.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from whyidle.errors import RunFolderError
from whyidle.model.events import Journal
from whyidle_agent import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

RECORD_DTYPE = np.dtype(
    [
        ("commit", "<u8"),
        ("kind", "<u2"),
        ("flags", "<u2"),
        ("ref", "<u4"),
        *((name, "<i8") for name in ("t0", "t1", "a", "b", "c", "d")),
    ]
)
"""A record, as `wire.RECORD` lays it out."""
BLOCK_RECORDS = 1 << 16
"""Records read at a time: 4 MiB, about what a core's caches hold."""
_PAYLOAD_OFFSET = wire.RECORD_BYTES - wire.TEXT_BYTES
_PID_LIMIT = 1 << 22
"""Highest pid Linux gives out; more in a header is damage."""
_I64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedJournal:
    """A journal whose header has been read. What is appended later is not part of it."""

    path: Path
    slot_count: int
    """Slots that the file had room for when it was opened; not all hold a record."""
    fingerprint: str
    """Name, length and checksum of the header: differs when the journal has grown since."""
    header: Mapping[str, Any]
    """The JSON text of the header; empty when it cannot be read."""
    progress: Mapping[str, int]
    """The live counters by their names in `wire.PROGRESS_FIELDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalScan:
    """What the first pass over a journal finds. See NOTE [two passes]."""

    record_count: int
    """Whole records."""
    texts: Mapping[int, str]
    """Text id to text; ids without a whole first chunk are not in it."""


def open_journal(path: Path) -> OpenedJournal:
    """Read a journal's header. One that is cut short or torn there is a journal with nothing in it.

    Raises:
        RunFolderError: `journal-foreign` when it is another kind of file, `journal-too-new` when a newer whyidle
            wrote it, `journal-unreadable` when the system does not let it be read.
    """
    try:
        with path.open("rb") as file:
            page = file.read(wire.HEADER_BYTES)
            size_bytes = file.seek(0, 2)
    except OSError as error:
        raise _unreadable(path, error) from error
    body_bytes = size_bytes - wire.HEADER_BYTES
    if not _check_header(path, page):
        body_bytes = 0
    header, progress = _parse_header(page)
    return OpenedJournal(
        path=path,
        slot_count=max(body_bytes, 0) // wire.RECORD_BYTES,
        fingerprint=f"{path.name}:{size_bytes}:{crc32(page):08x}",
        header=header,
        progress=progress,
    )


def read_blocks(opened: OpenedJournal) -> Iterator[NDArray[np.void]]:
    """Give the whole records of a journal in slot order, as arrays of RECORD_DTYPE with at most BLOCK_RECORDS.

    Raises:
        RunFolderError: `journal-unreadable` when the system does not let it be read.
    """
    for first in range(0, opened.slot_count, BLOCK_RECORDS):
        try:
            slots = np.fromfile(
                opened.path,
                dtype=RECORD_DTYPE,
                count=min(BLOCK_RECORDS, opened.slot_count - first),
                offset=wire.HEADER_BYTES + first * wire.RECORD_BYTES,
            )
        except OSError as error:
            raise _unreadable(opened.path, error) from error
        # NOTE [commit last] in wire.py: a slot without its own number has no whole record.
        whole = slots["commit"] == np.arange(
            first + 1, first + 1 + len(slots), dtype=np.uint64
        )
        yield slots if whole.all() else slots[whole]


def split_by_kind(records: NDArray[np.void]) -> dict[int, NDArray[np.void]]:
    """Part records by their kind; slot order is kept within a kind."""
    kinds = records["kind"]
    order = np.argsort(kinds, kind="stable")
    sorted_records = records[order]
    sorted_kinds = sorted_records["kind"]
    bounds = [0, *(np.flatnonzero(np.diff(sorted_kinds)) + 1).tolist(), len(records)]
    return {
        int(sorted_kinds[start]): sorted_records[start:end]
        for start, end in itertools.pairwise(bounds)
        if end > start
    }


def scan_journal(opened: OpenedJournal) -> JournalScan:
    """Count the whole records and collect the texts.

    Raises:
        RunFolderError: `journal-unreadable` when the system does not let it be read.
    """
    chunks: dict[int, bytes] = {}
    record_count = 0
    for records in read_blocks(opened):
        record_count += len(records)
        found = records[records["kind"] == wire.TEXT]
        # Writers number texts 1, 2, ...: a higher id than there are slots is damage.
        found = found[(found["ref"] > 0) & (found["ref"] <= opened.slot_count)]
        _join_texts(found, chunks)
    texts = {number: text.decode("utf-8", "replace") for number, text in chunks.items()}
    return JournalScan(record_count=record_count, texts=texts)


def describe_journal(opened: OpenedJournal, record_count: int) -> Journal:
    """Make the record of a journal; what its header lacks has a default, or comes from the file's name."""
    header, progress = opened.header, opened.progress
    role_in_name, _, rest = opened.path.name.partition("-")
    pid_in_name, _, start_in_name = rest.removesuffix(wire.JOURNAL_SUFFIX).partition("-")
    start_ns = header.get("start_mono_ns", header.get("start_ns"))
    return Journal(
        role=_text(header.get("role")) or role_in_name.removesuffix(wire.JOURNAL_SUFFIX),
        pid=_number(header.get("pid"), _PID_LIMIT)
        or _number_in(pid_in_name, _PID_LIMIT)
        or 0,
        rank=_number(header.get("rank"), _PID_LIMIT) or 0,
        is_launcher=header.get("is_launcher") is True,
        is_worker=header.get("is_worker") is True,
        parent_pid=_number(header.get("parent_pid"), _PID_LIMIT),
        start_ns=_number(start_ns, _I64_MAX) or _number_in(start_in_name, _I64_MAX) or 0,
        python=_text(header.get("python")),
        torch=_text(header.get("torch")),
        record_count=record_count,
        dropped_count=max(progress["dropped_count"], 0),
        closed=progress["closed"] == 1,
        stopped=_text(header.get("stopped")),
        fingerprint=opened.fingerprint,
    )


def _check_header(path: Path, page: bytes) -> bool:
    """Tell whether records may follow a header; False for one that was never written to its end."""
    magic = page[: len(wire.MAGIC)]
    is_torn = magic != wire.MAGIC and wire.MAGIC.startswith(magic.rstrip(b"\0"))
    if len(page) < wire.HEADER_BYTES or is_torn:
        return False
    if magic != wire.MAGIC:
        raise RunFolderError(
            f"{str(path)!r} begins with {magic!r}; expected {wire.MAGIC!r}, the mark of a journal",
            slug="journal-foreign",
            hint="move the file out of the run folder, or restore it from a copy",
        )
    _, schema_version, _ = wire.HEADER.unpack_from(page)
    if schema_version > wire.SCHEMA_VERSION:
        raise RunFolderError(
            f"{str(path)!r} has journal schema {schema_version}; "
            f"this whyidle reads schemas up to {wire.SCHEMA_VERSION}",
            slug="journal-too-new",
            hint="upgrade whyidle to the version that recorded the run, or later",
        )
    return bool(schema_version > 0)


def _parse_header(page: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    padded = page.ljust(wire.HEADER_BYTES, b"\0")
    _, _, json_bytes = wire.HEADER.unpack_from(padded)
    numbers = np.frombuffer(
        padded, dtype="<i8", count=len(wire.PROGRESS_FIELDS), offset=wire.PROGRESS_OFFSET
    )
    progress = dict(zip(wire.PROGRESS_FIELDS, numbers.tolist(), strict=True))
    try:
        header = json.loads(padded[wire.HEADER_JSON_OFFSET :][:json_bytes])
    except (ValueError, RecursionError):
        header = None
    return header if isinstance(header, dict) else {}, progress


def _join_texts(found: NDArray[np.void], chunks: dict[int, bytes]) -> None:
    """Append the chunks of TEXT records to the texts they belong to."""
    payloads = found.tobytes()
    lengths = np.minimum(found["flags"] & ~np.uint16(wire.TEXT_MORE), wire.TEXT_BYTES)
    offset = _PAYLOAD_OFFSET
    for number, length in zip(found["ref"].tolist(), lengths.tolist(), strict=True):
        chunks[number] = chunks.get(number, b"") + payloads[offset : offset + length]
        offset += wire.RECORD_BYTES


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object, limit: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= limit else None


def _number_in(text: str, limit: int) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(limit))
    return _number(int(text), limit) if is_number else None


def _unreadable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(
        f"{str(path)!r} cannot be read: {error.strerror or error}; expected a readable journal",
        slug="journal-unreadable",
        hint="check the permissions of the run folder and the disk it is on",
    )
