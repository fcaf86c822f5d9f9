"""Journals and run folders for tests: small, with defaults, so that a test shows only what matters.

journal = JournalBuilder(pid=7, rank=1)
journal.emit(wire.ASK, t0=10, t1=20, a=0)
run = RunBuilder(tmp_path / "run").add(journal).write()
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

HEADER: dict[str, Any] = {
    "role": "agent",
    "pid": 100,
    "parent_pid": 1,
    "rank": None,
    "is_launcher": False,
    "is_worker": False,
    "python": "3.11.7",
    "torch": "2.13.0",
    "start_mono_ns": 1_000,
    "stopped": None,
}
MANIFEST: dict[str, Any] = {
    "schema_version": 1,
    "command": ["python", "train.py"],
    "working_dir": "/home/me/job",
    "start_unix_ns": 1_700_000_000_000_000_000,
    "start_mono_ns": 500,
    "end_mono_ns": 9_000_000_000,
    "exit_status": 0,
    "signal": None,
    "ended_by": None,
    "steps_bound": None,
    "seconds_bound": None,
    "cpus_machine": 8,
    "cpus_allowed": [0, 1, 2, 3, 4, 5, 6, 7],
    "observer": {"hz": 20.0},
    "not_observed": [],
    "platform": {"system": "Linux"},
}


class JournalBuilder:
    """A journal made record by record, in the layout of wire.py."""

    def __init__(self, *, schema_version: int = wire.SCHEMA_VERSION, **header: Any) -> None:
        """Begin a journal; keyword arguments replace fields of HEADER."""
        self.header = {**HEADER, **header}
        self.schema_version = schema_version
        self.progress = dict.fromkeys(wire.PROGRESS_FIELDS, 0) | {"closed": 1}
        self._records = bytearray()
        self._slot_count = 0
        self._texts: dict[str, int] = {}

    @property
    def name(self) -> str:
        """File name that the agent or the observer would give it."""
        start_ns = self.header["start_mono_ns"]
        return f"{self.header['role']}-{self.header['pid']}-{start_ns}{wire.JOURNAL_SUFFIX}"

    def emit(
        self,
        kind: int,
        *,
        flags: int = 0,
        ref: int = 0,
        t0: int = 0,
        t1: int = 0,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        d: int = 0,
        is_committed: bool = True,
    ) -> JournalBuilder:
        """Add a record; an uncommitted one is what a killed writer leaves."""
        self._slot_count += 1
        commit = self._slot_count if is_committed else 0
        self._records += wire.RECORD.pack(commit, kind, flags, ref, t0, t1, a, b, c, d)
        return self

    def emit_rows(self, kind: int, **columns: Any) -> JournalBuilder:
        """Add many records at once: fields are arrays of equal length, or one number for all."""
        count = max(np.size(values) for values in columns.values())
        fields = ("commit", "kind", "flags", "ref", "t0", "t1", "a", "b", "c", "d")
        rows = np.zeros(count, np.dtype(list(zip(fields, _FIELD_TYPES, strict=True))))
        rows["commit"] = np.arange(self._slot_count + 1, self._slot_count + 1 + count)
        rows["kind"] = kind
        for name, values in columns.items():
            rows[name] = values
        self._records += rows.tobytes()
        self._slot_count += count
        return self

    def text(self, string: str) -> int:
        """Intern a text and give its id."""
        if string in self._texts:
            return self._texts[string]
        number = self._texts[string] = len(self._texts) + 1
        encoded = string.encode()
        for start in range(0, max(len(encoded), 1), wire.TEXT_BYTES):
            chunk = encoded[start : start + wire.TEXT_BYTES]
            more = wire.TEXT_MORE if start + wire.TEXT_BYTES < len(encoded) else 0
            words = np.frombuffer(chunk.ljust(wire.TEXT_BYTES, b"\0"), "<i8").tolist()
            fields = dict(zip(("t0", "t1", "a", "b", "c", "d"), words, strict=True))
            self.emit(wire.TEXT, flags=len(chunk) | more, ref=number, **fields)
        return number

    def stack(self, *frames: tuple[str, str, int]) -> int:
        """Intern a stack of (file, function, line), leaf first, and give its id."""
        ids = [self.text(f"{file}\0{function}\0{line}") for file, function, line in frames]
        return self.text(",".join(map(str, ids)))

    def to_bytes(self, *, free_slots: int = 0) -> bytes:
        """Give the file's content, with free slots after the records as the agent allocates them."""
        self.progress["record_count"] = self._slot_count
        text = json.dumps(self.header).encode()
        page = bytearray(wire.HEADER_BYTES)
        wire.HEADER.pack_into(page, 0, wire.MAGIC, self.schema_version, len(text))
        numbers = np.array([self.progress[name] for name in wire.PROGRESS_FIELDS], "<i8")
        page[wire.PROGRESS_OFFSET : wire.PROGRESS_OFFSET + numbers.nbytes] = (
            numbers.tobytes()
        )
        page[wire.HEADER_JSON_OFFSET : wire.HEADER_JSON_OFFSET + len(text)] = text
        return bytes(page + self._records) + bytes(free_slots * wire.RECORD_BYTES)

    def write(self, folder: Path, *, free_slots: int = 0) -> Path:
        """Write the journal into a folder under its own name."""
        path = folder / self.name
        path.write_bytes(self.to_bytes(free_slots=free_slots))
        return path


class RunBuilder:
    """A run folder with a manifest and journals."""

    def __init__(self, path: Path, **manifest: Any) -> None:
        """Begin a run; keyword arguments replace fields of MANIFEST."""
        self.path = path
        self.manifest = {**MANIFEST, **manifest}
        self._journals: list[JournalBuilder] = []

    def add(self, journal: JournalBuilder) -> RunBuilder:
        """Add a journal."""
        self._journals.append(journal)
        return self

    def write(self) -> Path:
        """Write the folder and give its path."""
        (self.path / "journals").mkdir(parents=True)
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))
        for journal in self._journals:
            journal.write(self.path / "journals")
        return self.path


def loader_journal(*, steps: int, **header: Any) -> JournalBuilder:
    """A training process' journal: one iteration with a worker, `steps` asks of 2 ms every 10 ms."""
    journal = JournalBuilder(**header)
    number = np.arange(steps)
    ask_ns = 1_000_000_000 + number * 10_000_000
    journal.emit(wire.LOADER, ref=1, t0=900_000_000, t1=990_000_000, a=1, b=1, c=2, d=8)
    journal.emit(wire.WORKER, ref=1, a=0, b=101, c=0)
    journal.emit_rows(
        wire.ASK, ref=1, t0=ask_ns, t1=ask_ns + 2_000_000, a=number, b=0, c=1, d=0
    )
    journal.emit_rows(
        wire.RECEIVE, ref=1, t0=ask_ns + 1_000, t1=ask_ns + 1_900_000, a=number, b=50_000
    )
    return journal


def worker_journal(
    *, batches: int, samples: int = 8, worker: int = 0, workers: int = 1, **header: Any
) -> JournalBuilder:
    """One of several workers' journal: every so many-th batch, with all that is recorded of it."""
    journal = JournalBuilder(
        **{"pid": 101 + worker, "parent_pid": 100, "is_worker": True, **header}
    )
    collate, crop = journal.text("default_collate"), journal.text("RandomCrop")
    stack = journal.stack(("train.py", "offset_map", 33), ("train.py", "__getitem__", 12))
    number = worker + np.arange(batches) * workers
    start_ns = 1_000_000_000 + number * 10_000_000
    end_ns = start_ns + 9_000_000
    common = {"ref": 0, "a": number}
    journal.emit(
        wire.WORKER_START, t0=950_000_000, t1=960_000_000, a=worker, b=940_000_000, c=100
    )
    journal.emit_rows(
        wire.FETCH,
        t0=start_ns,
        t1=end_ns,
        b=8_000_000,
        c=100_000,
        d=start_ns - 50,
        **common,
    )
    journal.emit_rows(
        wire.FETCH_COST, t0=end_ns - 500, t1=end_ns, b=10, c=0, d=-1, **common
    )
    journal.emit_rows(wire.PAYLOAD, t0=samples, t1=collate, b=4096, c=2, d=2, **common)
    journal.emit_rows(
        wire.HANDOFF, t0=end_ns, t1=end_ns + 200, b=end_ns + 50, c=100, d=128, **common
    )
    batch = np.repeat(number, samples)
    position = np.tile(np.arange(samples), batches)
    sample_ns = np.repeat(start_ns, samples) + position * 1_000_000
    per_sample = {"t0": sample_ns, "t1": sample_ns + 900_000, "a": batch}
    journal.emit_rows(
        wire.SAMPLE, b=batch * samples + position, c=position, d=-1, **per_sample
    )
    journal.emit_rows(wire.TRANSFORM, b=crop, c=position, d=0, **per_sample)
    journal.emit_rows(
        wire.STACK,
        ref=wire.STACK_ROLE_WORKER,
        flags=wire.STACK_ON_CPU | wire.STACK_IN_FETCH,
        t0=start_ns,
        t1=end_ns,
        a=stack,
        b=101 + worker,
        c=-2,
        d=1_000,
    )
    return journal


_FIELD_TYPES = ("<u8", "<u2", "<u2", "<u4", "<i8", "<i8", "<i8", "<i8", "<i8", "<i8")
