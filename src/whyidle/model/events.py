"""The raw tables of a run, as store hands them over: one polars frame a kind of record, texts resolved.

Every table has `journal` (u32, index into `RunTables.journals`) and keeps slot order within a journal.
Times are monotonic ns of the host. Column names here are the one list; `store.columns` builds exactly these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

TABLE_COLUMNS: dict[str, dict[str, str]] = {
    # table: {column: where it stands in the record}; "text:x" resolves a text id, "lo:x"/"hi:x" halves
    # of 32 bits (hi is signed), "bits:x:from:count" a bit field of a 64-bit word, unsigned.
    "loader": {"iteration": "ref", "start_ns": "t0", "end_ns": "t1", "loader": "a", "workers": "b",
               "prefetch": "c", "batch_size": "d", "flags": "flags"},
    "loader_place": {"iteration": "ref", "loop_file": "text:t0", "loop_line": "t1", "build_file": "text:a",
                     "build_line": "b", "dataset": "text:c", "start_method": "text:d"},
    "ask": {"iteration": "ref", "ask_ns": "t0", "got_ns": "t1", "batch": "a", "worker": "b", "depth": "c",
            "sampler_ns": "d", "flags": "flags"},
    "receive": {"iteration": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "cpu_ns": "b", "flags": "flags"},
    "index": {"iteration": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "cpu_ns": "b"},
    "fetch": {"pass": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "cpu_ns": "b", "runq_ns": "c",
              "index_ns": "d", "flags": "flags"},
    "worker": {"iteration": "ref", "worker": "a", "pid": "b", "pass": "c"},
    "fetch_cost": {"pass": "ref", "collate_start_ns": "t0", "collate_end_ns": "t1", "batch": "a",
                   "minor_faults": "b", "major_faults": "c", "process_cpu_ns": "d"},
    "payload": {"pass": "ref", "samples": "t0", "collate": "text:t1", "batch": "a", "bytes": "b", "tensors": "c",
                "leaves": "d", "flags": "flags"},
    "sample": {"pass": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "index": "b", "position": "c",
               "cpu_ns": "d"},
    "transform": {"pass": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "name": "text:b", "position": "c",
                  "depth": "d"},
    "handoff": {"pass": "ref", "put_ns": "t0", "sent_ns": "t1", "batch": "a", "send_start_ns": "b", "cpu_ns": "c",
                "bytes": "d"},
    "pin": {"iteration": "ref", "start_ns": "t0", "end_ns": "t1", "batch": "a", "cpu_ns": "b"},
    "worker_start": {"start_ns": "t0", "ready_ns": "t1", "worker": "a", "process_start_ns": "b", "parent_pid": "c"},
    "mark": {"mark": "ref", "start_ns": "t0", "end_ns": "t1", "cpu_ns": "a", "file": "text:b", "line": "c",
             "detail": "d"},
    "device_busy": {"device": "ref", "start_ns": "t0", "end_ns": "t1", "launch_ns": "a"},
    "device_idle": {"device": "ref", "start_ns": "t0", "end_ns": "t1", "error_ns": "a", "iteration": "b", "batch": "c"},
    "device": {"device": "ref", "kind": "a", "name": "text:b", "error_ns": "c"},
    "stack": {"role": "ref", "previous_ns": "t0", "now_ns": "t1", "stack": "text:lo:a", "target": "text:hi:a",
              "tid": "b", "syscall": "c", "late_ns": "d", "flags": "flags"},
    "note": {"slug": "text:ref", "now_ns": "t0", "message": "text:a"},
    "loss": {"now_ns": "t0", "position": "a", "bits": "b"},
    "thread": {"target": "text:ref", "previous_ns": "t0", "now_ns": "t1", "pid": "hi:a", "tid": "lo:a",
               "syscall": "lo:b", "state": "bits:b:32:8", "mount": "bits:b:40:24", "on_cpu_ns": "c",
               "runq_ns": "d", "wait": "flags"},
    "process": {"name": "text:ref", "start_ns": "t0", "end_ns": "t1", "pid": "a", "parent_pid": "b", "role": "c",
                "cpus_allowed": "d"},
    "counter": {"name": "text:ref", "now_ns": "t0", "value": "a", "pid": "b"},
    "mount": {"text": "text:ref", "mount": "a"},
}  # fmt: skip
"""Table to its columns to their place in the record. Texts are categorical strings, None for id 0; all else is
int64, except `flags`, `wait` and `mark`-like references, which are the record's own unsigned types.

`stack` texts are resolved one level: the string of frame ids. `RunTables.frame_texts` resolves those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """One process' journal, from its header."""

    role: str
    """`agent` or `observer`."""
    pid: int
    rank: int
    """RANK of the process, 0 without one."""
    is_launcher: bool
    """True for a process that starts ranks (torchrun): it has no RANK but its children do. Not a rank."""
    parent_pid: int | None
    start_ns: int
    """When the journal was begun, monotonic ns."""
    python: str | None
    torch: str | None
    """None when torch was never imported."""
    record_count: int
    """Whole records that were read."""
    dropped_count: int
    """Records the writer had to leave out."""
    closed: bool
    """False: the process was killed or still ran."""
    is_worker: bool = False
    """True for a worker process of a data loader."""
    stopped: str | None = None
    """Why recording ended before the process did (`budget`, `No space left on device`); None: it did not."""
    fingerprint: str = ""
    """Name, length and header checksum of the file when it was read. It differs once the journal has grown, so
    columns made from it are told apart from columns that are out of date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTables:
    """Everything recorded of one run."""

    manifest: Mapping[str, Any]
    """`manifest.json` of the run folder."""
    journals: tuple[Journal, ...]
    """In the order that the `journal` column counts."""
    tables: Mapping[str, pl.DataFrame]
    """By name; every name of TABLE_COLUMNS is there, maybe empty."""
    frame_texts: Mapping[tuple[int, int], str]
    """(journal, text id) to `file\\0function\\0line`, for the ids in `stack.stack`."""
