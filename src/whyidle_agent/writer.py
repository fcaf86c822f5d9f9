"""The journal of this process: commit-last records in a growing, mapped file.

Everything public here returns at once, never raises and does nothing when there is no run folder
or recording had to stop. The journal is created at the first record, so a process that only imports
torch leaves none. Layouts are in wire.py,
mapped files in mapping.py.
"""

from __future__ import annotations

import atexit
import itertools
import os
import struct
import sys
import time
from _thread import RLock

from whyidle_agent import boot, header, mapping, wire

_MYPY = False
if _MYPY:
    from typing import Any, Callable

SEGMENT_BYTES = 256 * 1024
"""How much of the journal is allocated and mapped at a time; at most two segments are mapped."""
MAX_BYTES = 96 * 1024 * 1024
"""Longest journal of one process; then recording stops."""
SAMPLE_RECORDS = 24 * 1024 * 1024 // wire.RECORD_BYTES
"""Most SAMPLE and TRANSFORM records of one process."""
STACK_RECORDS = 8 * 1024 * 1024 // wire.RECORD_BYTES
"""Most STACK records of one process."""
THINNING_STEPS = 16
"""A detail kind's stride doubles each time another 1/16 of its records is used: full detail at first,
some detail for millions of batches."""
MAX_TEXTS = 6144
"""Most texts a journal interns; more have the id 0."""
MAX_TEXT_TOTAL_BYTES = 768 * 1024
"""Most bytes in the interned texts of a journal: they stay in the target's memory."""
MAX_TEXT_BYTES = 4032
"""Longest text; the rest is cut off."""

now = time.monotonic_ns

_RECORD_SHIFT = 6
_COMMIT_SHIFT = 3
_BODY_OFFSET = 8
_I64_MAX = (1 << 63) - 1
_FIELDS = {name: index for index, name in enumerate(wire.PROGRESS_FIELDS)}
_STEP_COUNT, _HEARTBEAT = _FIELDS["step_count"], _FIELDS["heartbeat_ns"]
_pack_body = wire.BODY.pack_into
_TEXT_PAYLOAD = struct.Struct("<48s")
_SIX_NUMBERS = struct.Struct("<6q")


class _Segment:
    """A mapped piece of the journal that takes SEGMENT_BYTES of records."""

    __slots__ = ("commits", "duplicate", "first_slot", "mapping", "start")

    def __init__(self, mapping: Any, start: int, first_slot: int, duplicate: int) -> None:
        self.mapping = mapping
        # Bytes of the mapping before the first record, there for page alignment only.
        self.start = start
        self.first_slot = first_slot
        self.duplicate = duplicate
        records = memoryview(mapping)[start : start + SEGMENT_BYTES] if mapping else b""
        self.commits: Any = memoryview(records).cast("Q") if mapping else None


# Its first slot is far beyond any slot, so the fast path never takes it.
_NO_SEGMENT = _Segment(None, 0, 1 << 62, -1)


class _Thinner:
    """Admits ever fewer records of a detail kind as its budget is used up."""

    __slots__ = ("budget", "count", "next_step", "stride")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.count = 0
        self.stride = 1
        self.next_step = budget // THINNING_STEPS

    def admit(self) -> bool:
        """Count one record; False when the budget is used up."""
        self.count += 1
        if self.count >= self.next_step:
            if self.count >= self.budget:
                return False
            self.stride *= 2
            self.next_step += self.budget // THINNING_STEPS
        return True


class _Journal:
    """What is known about the open journal file."""

    __slots__ = (
        "duplicate",
        "identity",
        "numbers",
        "page",
        "path",
        "start_mono_ns",
        "torch",
    )

    def __init__(
        self,
        path: str,
        start_mono_ns: int,
        identity: tuple[int, int],
        page: Any,
        duplicate: int,
    ) -> None:
        self.path = path
        self.start_mono_ns = start_mono_ns
        self.identity = identity
        self.page = page
        self.duplicate = duplicate
        end = wire.PROGRESS_OFFSET + 8 * len(wire.PROGRESS_FIELDS)
        self.numbers = memoryview(page)[wire.PROGRESS_OFFSET : end].cast("q")
        self.torch: str | None = None


_lock = RLock()
_count = itertools.count()
_reserve: Callable[[], int] = _count.__next__
_drops = itertools.count()
_segment = _NO_SEGMENT
_previous = _NO_SEGMENT
_journal: _Journal | None = None
_stopped: str | None = None
_is_on = False
_texts: dict[str, int] = {}
_text_total_bytes = 0
_notes: set[tuple[str, str]] = set()
_samples = _Thinner(SAMPLE_RECORDS)
_stacks = _Thinner(STACK_RECORDS)
_thinners: dict[int, _Thinner] = {}
_kept_for_ever: list[Any] = []
_exit_known_in = 0


def enabled() -> bool:
    """Whether records are being taken (or would be, once there is one)."""
    return _is_on


def emit(
    kind: int, flags: int, ref: int, t0: int, t1: int, a: int, b: int, c: int, d: int
) -> None:
    """Write one record.

    Cost: about 0.5 us.
    """
    thinner = _thinners.get(kind)
    if thinner is not None and not thinner.admit():
        _drop()
        return
    slot = _reserve()
    segment = _segment
    offset = (slot - segment.first_slot) << _RECORD_SHIFT
    try:
        if 0 <= offset < SEGMENT_BYTES:
            at = segment.start + offset + _BODY_OFFSET
            _pack_body(segment.mapping, at, kind, flags, ref, t0, t1, a, b, c, d)
            segment.commits[offset >> _COMMIT_SHIFT] = slot + 1
            return
    except Exception:
        # A number out of range, or a segment let go under our hands: the slow path sorts it out.
        pass
    _emit_slowly(slot, (kind, flags, ref, t0, t1, a, b, c, d))


def text(string: str) -> int:
    """Intern a text and return its id; 0 for the empty text and when there is no room for it."""
    try:
        known = _texts.get(string)
        return known if known is not None else _intern(string)
    except Exception:
        return 0


def note(slug: str, message: str) -> None:
    """Say something about the agent itself, once for each message."""
    try:
        if (slug, message) in _notes or len(_notes) >= 200:
            return
        _notes.add((slug, message))
        emit(wire.NOTE, 0, text(slug), now(), 0, text(message), 0, 0, 0)
    except Exception:
        return


def progress(field_index: int, value: int) -> None:
    """Set one of the live counters, an index into wire.PROGRESS_FIELDS."""
    try:
        journal = _journal or _opened()
        if journal is not None:
            journal.numbers[field_index] = value
    except Exception:
        return


def beat(step_count: int) -> None:
    """Set the count of steps and the time of the last sign of life."""
    try:
        journal = _journal or _opened()
        if journal is not None:
            journal.numbers[_STEP_COUNT] = step_count
            journal.numbers[_HEARTBEAT] = now()
    except Exception:
        return


def sample_stride() -> int:
    """Every how many-th batch is to have its samples and transforms recorded; 1 = all."""
    return _samples.stride


def stack_stride() -> int:
    """Every how many-th stack sample is to be recorded; 1 = all."""
    return _stacks.stride


def update_header() -> None:
    """Add torch's version to the header of a journal that was begun before torch was there."""
    try:
        journal = _journal
        if journal is not None and journal.torch is None:
            with _lock:
                _write_header(journal)
    except Exception:
        return


def close() -> None:
    """Note the orderly end of the process. Records may still follow."""
    try:
        if _journal is not None:
            progress(_FIELDS["record_count"], _reserved())
            progress(_FIELDS["closed"], 1)
    except Exception:
        return


def _reserved() -> int:
    # repr is the one way to look at a counter without moving it: "count(42)".
    return int(repr(_count)[6:-1])


def _drop() -> None:
    count = next(_drops) + 1
    try:
        if _journal is not None:
            _journal.numbers[2] = count
    except Exception:
        return


def _emit_slowly(slot: int, fields: tuple[Any, ...]) -> None:
    try:
        with _lock:
            segment = _segment_of(slot)
            if segment is not None:
                _write(segment, slot, fields)
                return
            if _journal is not None and _stopped is None and slot < _segment.first_slot:
                _write_late(_journal, slot, fields)
                return
    except OSError as error:
        _stop(error.strerror or "OSError")
    except Exception:
        pass
    _drop()


def _write(segment: _Segment, slot: int, fields: tuple[Any, ...]) -> None:
    offset = (slot - segment.first_slot) << _RECORD_SHIFT
    at = segment.start + offset + _BODY_OFFSET
    _pack_body(segment.mapping, at, *_clamped_fields(fields))
    segment.commits[offset >> _COMMIT_SHIFT] = slot + 1


def _write_late(journal: _Journal, slot: int, fields: tuple[Any, ...]) -> None:
    """Write a record whose thread slept while others filled more than a segment."""
    file = os.open(journal.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        if mapping.identity_of(file) != journal.identity:
            raise OSError("replaced")
        at = wire.HEADER_BYTES + (slot << _RECORD_SHIFT)
        os.pwrite(file, wire.BODY.pack(*_clamped_fields(fields)), at + _BODY_OFFSET)
        os.pwrite(file, struct.pack("<Q", slot + 1), at)
    finally:
        os.close(file)


def _clamped_fields(fields: tuple[Any, ...]) -> list[int]:
    limits = (0xFFFF, 0xFFFF, 0xFFFFFFFF)
    small = [_clamped(one, 0, limit) for one, limit in zip(fields, limits)]
    return small + [_clamped(one, -_I64_MAX - 1, _I64_MAX) for one in fields[3:]]


def _clamped(value: Any, low: int, high: int) -> int:
    try:
        return min(max(int(value), low), high)
    except (TypeError, ValueError, OverflowError):
        return low if low == 0 else -1


def _segment_of(slot: int) -> _Segment | None:
    """The segment that holds a slot: the current one, the one before, or a new one."""
    global _segment, _previous
    if _opened() is None:
        return None
    segment = _segment
    slots = SEGMENT_BYTES >> _RECORD_SHIFT
    if slot < segment.first_slot:
        return _previous if slot >= _previous.first_slot else None
    while slot >= segment.first_slot + slots:
        grown = _grow(segment.first_slot + slots)
        if grown is None:
            return None
        oldest, _previous, _segment, segment = _previous, segment, grown, grown
        _release(oldest)
        progress(_FIELDS["sample_stride"], _samples.stride)
        progress(_FIELDS["record_count"], _reserved())
    return segment


def _opened() -> _Journal | None:
    """The journal, created if there is none yet; None when recording is off."""
    global _journal
    if _journal is not None:
        return _journal if _stopped is None else None
    folder = boot.run_dir()
    if folder is None or _stopped is not None:
        return None
    try:
        with _lock:
            if _journal is None:
                _journal = _create(folder)
                _say_when_ended()
    except OSError as error:
        _stop(error.strerror or "OSError")
    except Exception as error:
        _stop(repr(error))
    return _journal


def _create(folder: str) -> _Journal:
    """Create the journal; it gets its name when its header is whole, so none is seen without."""
    global _segment
    journals = os.path.join(folder, "journals")
    start_mono_ns = now()
    name = f"agent-{os.getpid()}-{start_mono_ns}{wire.JOURNAL_SUFFIX}"
    path = os.path.join(journals, name)
    unfinished = path + ".new"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    try:
        file = os.open(unfinished, flags, 0o644)
    except FileNotFoundError:
        boot.make_folder(journals)
        file = os.open(unfinished, flags, 0o644)
    try:
        mapping.allocate(file, 0, wire.HEADER_BYTES + SEGMENT_BYTES)
        page, duplicate = mapping.map_piece(file, 0, wire.HEADER_BYTES, set())
        identity = mapping.identity_of(file)
        journal = _Journal(path, start_mono_ns, identity, page, duplicate)
        journal.numbers[_FIELDS["sample_stride"]] = 1
        _write_header(journal)
        segment = _segment_at(file, 0, {duplicate})
        os.rename(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    finally:
        os.close(file)
    _segment = segment
    return journal


def _grow(first_slot: int) -> _Segment | None:
    """Allocate and map the next segment; None when the journal is as long as it may be."""
    journal = _journal
    end = wire.HEADER_BYTES + (first_slot << _RECORD_SHIFT) + SEGMENT_BYTES
    if journal is None or _stopped is not None:
        return None
    if end > MAX_BYTES:
        _stop("budget")
        return None
    file = os.open(journal.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        if mapping.identity_of(file) != journal.identity:
            _stop("replaced")
            return None
        mapping.allocate(file, end - SEGMENT_BYTES, SEGMENT_BYTES)
        taken = {journal.duplicate, _segment.duplicate, _previous.duplicate}
        return _segment_at(file, first_slot, taken)
    finally:
        os.close(file)


def _segment_at(file: int, first_slot: int, taken: set[int]) -> _Segment:
    offset = wire.HEADER_BYTES + (first_slot << _RECORD_SHIFT)
    aligned = offset // mapping.GRANULARITY * mapping.GRANULARITY
    mapped, duplicate = mapping.map_piece(
        file, aligned, offset - aligned + SEGMENT_BYTES, taken
    )
    return _Segment(mapped, offset - aligned, first_slot, duplicate)


def _release(segment: _Segment) -> None:
    """Unmap a segment that no new record goes to. A thread still writing there falls back or drops."""
    if segment.mapping is not None:
        _unmap(segment.mapping, segment.commits, segment.duplicate)


def _unmap(mapped: Any, view: Any, duplicate: int) -> None:
    journal = _journal
    ours = duplicate == mapping.NO_DUPLICATE or (
        journal is not None and mapping.is_file(duplicate, journal.identity)
    )
    try:
        if ours:
            view.release()
            mapped.close()
            return
    except Exception:
        pass
    _kept_for_ever.append(mapped)


def _write_header(journal: _Journal) -> None:
    journal.torch = header.torch_version()
    text = header.describe(journal.start_mono_ns, _stopped)
    # Never shorter than before: a reader must not find the rest of an older, longer text.
    _, _, before = wire.HEADER.unpack_from(journal.page, 0)
    text = text.ljust(min(before, wire.HEADER_BYTES - wire.HEADER_JSON_OFFSET))
    start = wire.HEADER_JSON_OFFSET
    journal.page[start : start + len(text)] = text
    wire.HEADER.pack_into(journal.page, 0, wire.MAGIC, wire.SCHEMA_VERSION, len(text))


def _say_when_ended() -> None:
    """Have `close` called at an orderly end; children of multiprocessing end without atexit."""
    global _exit_known_in
    if _exit_known_in == os.getpid():
        return
    _exit_known_in = os.getpid()
    atexit.register(close)
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, close, exitpriority=-100)


def _stop(reason: str) -> None:
    global _stopped, _is_on, _segment, _previous
    with _lock:
        _stopped, _is_on = _stopped or reason, False
        _segment, _previous = _NO_SEGMENT, _NO_SEGMENT
        try:
            if _journal is not None:
                # The header's page is allocated: it takes the reason even when the disk is full.
                _write_header(_journal)
        except Exception:
            return


def _intern(string: str) -> int:
    global _text_total_bytes
    if not string or not isinstance(string, str):
        return 0
    with _lock:
        known = _texts.get(string)
        if known is not None:
            return known
        # Lone surrogates (file names in another encoding) have no UTF-8: written as \udcff.
        encoded = string.encode("utf-8", "backslashreplace")[:MAX_TEXT_BYTES]
        full = (
            len(_texts) >= MAX_TEXTS
            or _text_total_bytes + len(encoded) > MAX_TEXT_TOTAL_BYTES
        )
        if full or not enabled():
            return 0
        number = len(_texts) + 1
        _texts[string] = number
        _text_total_bytes += len(encoded)
    for start in range(0, len(encoded), wire.TEXT_BYTES):
        chunk = encoded[start : start + wire.TEXT_BYTES]
        more = wire.TEXT_MORE if start + wire.TEXT_BYTES < len(encoded) else 0
        emit(
            wire.TEXT,
            len(chunk) | more,
            number,
            *_SIX_NUMBERS.unpack(_TEXT_PAYLOAD.pack(chunk)),
        )
    return number


def _begin() -> None:
    """Set up this process' own state: at import, and in the child after a fork."""
    global _lock, _count, _reserve, _drops, _segment, _previous, _journal, _stopped, _is_on
    global _texts, _text_total_bytes, _notes, _samples, _stacks, _thinners
    for segment in (_segment, _previous):
        _release(segment)
    if _journal is not None:
        _unmap(_journal.page, _journal.numbers, _journal.duplicate)
    _lock = RLock()
    _count = itertools.count()
    _reserve = _locked(_count.__next__) if _may_run_in_parallel() else _count.__next__
    _drops = itertools.count()
    _segment, _previous, _journal, _stopped = _NO_SEGMENT, _NO_SEGMENT, None, None
    _is_on = boot.run_dir() is not None
    _texts, _text_total_bytes, _notes = {}, 0, set()
    _samples, _stacks = _Thinner(SAMPLE_RECORDS), _Thinner(STACK_RECORDS)
    _thinners = {wire.SAMPLE: _samples, wire.TRANSFORM: _samples, wire.STACK: _stacks}


def _may_run_in_parallel() -> bool:
    """Whether threads run at the same time here, so that a counter needs a lock."""
    has_gil = getattr(sys, "_is_gil_enabled", None)
    return has_gil is not None and not has_gil()


def _locked(function: Callable[[], int]) -> Callable[[], int]:
    lock = RLock()

    def call() -> int:
        with lock:
            return function()

    return call


_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
