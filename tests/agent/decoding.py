"""Reads journals by the layouts of wire.py alone, without the store."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import NamedTuple

from whyidle_agent import wire


class Record(NamedTuple):
    """One whole record of a journal."""

    slot: int
    kind: int
    flags: int
    ref: int
    t0: int
    t1: int
    a: int
    b: int
    c: int
    d: int


class Decoded(NamedTuple):
    """What a journal holds."""

    header: dict
    progress: dict[str, int]
    texts: dict[int, str]
    records: list[Record]

    def of(self, kind: int) -> list[Record]:
        """The records of one kind, in slot order."""
        return [record for record in self.records if record.kind == kind]


def decode(data: bytes) -> Decoded:
    """Decode the bytes of a journal, cut anywhere: what is not whole is left out."""
    header, progress = _decode_header(data)
    chunks: dict[int, bytes] = {}
    records = []
    for at in range(
        wire.HEADER_BYTES, len(data) - wire.RECORD_BYTES + 1, wire.RECORD_BYTES
    ):
        slot = (at - wire.HEADER_BYTES) // wire.RECORD_BYTES
        commit, *body = wire.RECORD.unpack_from(data, at)
        if commit != slot + 1:
            continue
        record = Record(slot, *body)
        if record.kind == wire.TEXT:
            size = record.flags & ~wire.TEXT_MORE
            payload = data[at + 16 : at + 16 + size]
            chunks[record.ref] = chunks.get(record.ref, b"") + payload
        else:
            records.append(record)
    texts = {number: text.decode("utf-8", "replace") for number, text in chunks.items()}
    return Decoded(header, progress, texts, records)


def decode_file(path: Path) -> Decoded:
    """Decode a journal file."""
    return decode(path.read_bytes())


def _decode_header(data: bytes) -> tuple[dict, dict[str, int]]:
    names = wire.PROGRESS_FIELDS
    if len(data) < wire.HEADER_BYTES:
        return {}, dict.fromkeys(names, 0)
    magic, version, json_bytes = wire.HEADER.unpack_from(data, 0)
    assert (magic, version) == (wire.MAGIC, wire.SCHEMA_VERSION)
    text = data[wire.HEADER_JSON_OFFSET : wire.HEADER_JSON_OFFSET + json_bytes]
    numbers = struct.unpack_from(f"<{len(names)}q", data, wire.PROGRESS_OFFSET)
    return json.loads(text), dict(zip(names, numbers, strict=True))
