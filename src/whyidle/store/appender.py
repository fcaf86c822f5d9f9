"""The observer's own journal: the agent's layout, written by buffered appends of whole records.

A record counts when the file is long enough to hold all of it. Records are 64 bytes and begin at a page, the kernel
grows a file page by page, so a kill in the middle of a write leaves whole records.
"""

from __future__ import annotations

import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any

from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

_TEXT_RECORD = struct.Struct("<QHHI48s")
_PROGRESS = struct.Struct("<6q")
_U32 = 0xFFFFFFFF
_MAX_TEXT_BYTES = 4032
_BUFFER_BYTES = 256 * 1024
"""Records that wait longer than this for a flush are written at once."""


class JournalAppender:
    """A journal that is begun now and grows by `flush`. Not for several threads at once.

    A full disk stops it: what could not be written is counted in `dropped_count`, nothing is raised.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """Create the file.

        Raises:
            OSError: it exists or cannot be created.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._buffer = bytearray()
        self._texts: dict[str, int] = {}
        self._slot_count = 0
        self._written_count = 0
        self.dropped_count = 0
        try:
            os.pwrite(self._file, _header_page(header), 0)
        except BaseException:
            os.close(self._file)
            os.unlink(path)
            raise

    @property
    def size_bytes(self) -> int:
        """Length of the file once everything is written."""
        return wire.HEADER_BYTES + self._slot_count * wire.RECORD_BYTES

    def emit(
        self,
        kind: int,
        flags: int,
        ref: int,
        t0: int,
        t1: int,
        a: int,
        b: int,
        c: int,
        d: int,
    ) -> None:
        """Add one record; it is in the file after the next flush."""
        self._slot_count += 1
        self._buffer += wire.RECORD.pack(
            self._slot_count, kind, flags, ref, t0, t1, a, b, c, d
        )
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()

    def text(self, string: str) -> int:
        """Intern a text and return its id; 0 for the empty text."""
        if not string:
            return 0
        known = self._texts.get(string)
        return known if known is not None else self._intern(string)

    def thread(
        self,
        *,
        pid: int,
        tid: int,
        previous_ns: int,
        now_ns: int,
        wait: int,
        target: str,
        call: int,
        state: str,
        mount_id: int,
        on_cpu_ns: int | None,
        runq_ns: int | None,
    ) -> None:
        """Add a THREAD record."""
        packed = (call & _U32) | (ord(state) & 0xFF) << 32 | (mount_id & 0x7FFFFF) << 40
        self.emit(
            wire.THREAD,
            wait,
            self.text(target),
            previous_ns,
            now_ns,
            pid << 32 | tid,
            packed,
            -1 if on_cpu_ns is None else on_cpu_ns,
            -1 if runq_ns is None else runq_ns,
        )

    def process(
        self,
        *,
        pid: int,
        parent_pid: int,
        name: str,
        start_ns: int,
        end_ns: int | None,
        role: int,
        cpus_allowed: int | None,
    ) -> None:
        """Add a PROCESS record; the last one of a pid counts."""
        self.emit(
            wire.PROCESS,
            0,
            self.text(name),
            start_ns,
            end_ns or 0,
            pid,
            parent_pid,
            role,
            cpus_allowed if cpus_allowed is not None else 0,
        )

    def counter(self, name: str, now_ns: int, value: int, pid: int = 0) -> None:
        """Add a COUNTER record."""
        self.emit(wire.COUNTER, 0, self.text(name), now_ns, now_ns, value, pid, 0, 0)

    def mount(self, mount_id: int, fstype: str, mount_point: str) -> None:
        """Add a MOUNT record."""
        now_ns = time.monotonic_ns()
        text = self.text(f"{fstype}\0{mount_point}")
        self.emit(wire.MOUNT, 0, text, now_ns, now_ns, mount_id, 0, 0, 0)

    def flush(self) -> None:
        """Write what was added and update the counters in the header."""
        if self._buffer:
            self._append()
        self._write_progress(closed=False)

    def close(self) -> None:
        """Write the rest and note the orderly end."""
        if self._file < 0:
            return
        if self._buffer:
            self._append()
        self._write_progress(closed=True)
        os.close(self._file)
        self._file = -1

    def _append(self) -> None:
        offset = wire.HEADER_BYTES + self._written_count * wire.RECORD_BYTES
        try:
            written = os.pwrite(self._file, self._buffer, offset)
        except OSError:
            written = 0
        whole = written // wire.RECORD_BYTES
        missing = len(self._buffer) // wire.RECORD_BYTES - whole
        self._buffer.clear()
        self._written_count += whole
        if missing:
            # Slots must stay contiguous in the file: the next record takes the place of the lost one.
            self.dropped_count += missing
            self._slot_count = self._written_count
            # Texts among the lost records would leave ids without a text.
            self._texts.clear()
            self._next_text_id += 1

    def _intern(self, string: str) -> int:
        self._next_text_id += 1
        text_id = self._next_text_id
        self._texts[string] = text_id
        rest = string.encode("utf-8", "backslashreplace")[:_MAX_TEXT_BYTES]
        while rest:
            chunk, rest = rest[: wire.TEXT_BYTES], rest[wire.TEXT_BYTES :]
            self._slot_count += 1
            flags = len(chunk) | (wire.TEXT_MORE if rest else 0)
            self._buffer += _TEXT_RECORD.pack(
                self._slot_count, wire.TEXT, flags, text_id, chunk
            )
        return text_id

    _next_text_id = 0

    def _write_progress(self, *, closed: bool) -> None:
        numbers = (
            0,
            self._slot_count,
            self.dropped_count,
            1,
            time.monotonic_ns(),
            int(closed),
        )
        try:
            os.pwrite(self._file, _PROGRESS.pack(*numbers), wire.PROGRESS_OFFSET)
        except OSError:
            return


def _header_page(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    room = wire.HEADER_BYTES - wire.HEADER_JSON_OFFSET
    if len(text) > room:
        raise OSError(f"the header has {len(text)} bytes, at most {room} fit")
    page = bytearray(wire.HEADER_BYTES)
    wire.HEADER.pack_into(page, 0, wire.MAGIC, wire.SCHEMA_VERSION, len(text))
    page[wire.HEADER_JSON_OFFSET : wire.HEADER_JSON_OFFSET + len(text)] = text
    return bytes(page)
