"""The observer's journal: the layout of the agent's, whole at every length."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

import pytest

from tests.agent.decoding import decode_file
from whyidle.store import live
from whyidle.store.appender import JournalAppender
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {"role": "observer", "pid": 7, "start_mono_ns": 1}


def _records(path: Path) -> list[tuple[int, ...]]:
    data = path.read_bytes()[wire.HEADER_BYTES :]
    whole = len(data) // wire.RECORD_BYTES * wire.RECORD_BYTES
    return list(wire.RECORD.iter_unpack(data[:whole]))


def _progress(path: Path) -> dict[str, int]:
    numbers = struct.unpack_from("<6q", path.read_bytes(), wire.PROGRESS_OFFSET)
    return dict(zip(wire.PROGRESS_FIELDS, numbers, strict=True))


def test_header_is_that_of_a_journal(tmp_path: Path) -> None:
    """Magic, version and the JSON text stand where readers look."""
    path = tmp_path / "observer-7-1.journal"

    JournalAppender(path, HEADER).close()

    page = path.read_bytes()
    magic, version, length = wire.HEADER.unpack_from(page, 0)
    assert (magic, version, len(page)) == (
        wire.MAGIC,
        wire.SCHEMA_VERSION,
        wire.HEADER_BYTES,
    )
    assert json.loads(page[wire.HEADER_JSON_OFFSET :][:length]) == HEADER


def test_records_are_committed_in_order(tmp_path: Path) -> None:
    """Each record carries its slot plus 1; the header counts them and the end."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)

    appender.emit(wire.COUNTER, 0, 0, 1, 2, 3, 4, 5, 6)
    appender.counter("cpu.busy_ns", 9, 100)
    appender.flush()
    flushed = _progress(path)
    appender.close()

    records = _records(path)
    assert [record[0] for record in records] == [1, 2, 3]
    assert records[2][1:] == (wire.COUNTER, 0, 1, 9, 9, 100, 0, 0, 0)
    assert (flushed["record_count"], flushed["closed"], _progress(path)["closed"]) == (
        3,
        0,
        1,
    )


def test_nothing_is_written_before_a_flush(tmp_path: Path) -> None:
    """Records wait in memory for a flush, so that a look costs no system call each."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)

    appender.counter("a", 1, 1)
    before = _records(path)
    appender.flush()

    assert (before, len(_records(path))) == ([], 2)
    appender.close()


def test_texts_are_interned_and_joined(tmp_path: Path) -> None:
    """A text is written once, in chunks; long, foreign and undecodable ones come back."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)
    texts = ["queue", "/daten/grün/" + "x" * 100, "/raw/\udcff", "y" * 48]

    ids = [appender.text(text) for text in texts]
    again = [appender.text(text) for text in texts]
    appender.close()

    decoded = decode_file(path)
    assert ids == again == [1, 2, 3, 4]
    assert appender.text("") == 0
    found = [decoded.texts[one] for one in ids]
    assert found == [*texts[:2], "/raw/\\udcff", texts[3]]


def test_thread_record_packs_what_columns_unpack(tmp_path: Path) -> None:
    """Pid, thread, call, state and mount share words as wire.THREAD says."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)

    appender.thread(
        pid=70_000,
        tid=70_001,
        previous_ns=5,
        now_ns=9,
        wait=2,
        target="/data/a",
        call=0xFFFFFFFF,
        state="D",
        mount_id=98,
        on_cpu_ns=None,
        runq_ns=12,
    )
    appender.close()

    _, kind, wait, ref, t0, t1, a, b, c, d = _records(path)[-1]
    assert (kind, wait, ref, t0, t1, c, d) == (wire.THREAD, 2, 1, 5, 9, -1, 12)
    assert (a >> 32, a & 0xFFFFFFFF) == (70_000, 70_001)
    assert (b & 0xFFFFFFFF, chr(b >> 32 & 0xFF), b >> 40) == (0xFFFFFFFF, "D", 98)


def test_full_disk_is_counted_and_recording_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that found no room are counted; later ones follow the last whole one."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)
    appender.emit(wire.COUNTER, 0, 0, 1, 1, 1, 0, 0, 0)
    appender.flush()
    write = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda file, data, offset: write(file, data[:70], offset)
    )

    for value in (2, 3):
        appender.emit(wire.COUNTER, 0, 0, 1, 1, value, 0, 0, 0)
    appender.flush()
    monkeypatch.undo()
    appender.emit(wire.COUNTER, 0, 0, 1, 1, 4, 0, 0, 0)
    appender.close()

    assert [(record[0], record[6]) for record in _records(path)] == [(1, 1), (2, 2), (3, 4)]
    assert appender.dropped_count == _progress(path)["dropped_count"] == 1


def test_texts_lost_on_a_full_disk_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that found no room gets a new id with its next use, never a dangling one."""
    path = tmp_path / "j"
    appender = JournalAppender(path, HEADER)
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    appender.text("lost")
    appender.flush()
    monkeypatch.undo()

    text_id = appender.text("lost")
    appender.close()

    assert decode_file(path).texts == {text_id: "lost"}


def test_file_is_not_overwritten(tmp_path: Path) -> None:
    """A journal that is there already is somebody else's."""
    (tmp_path / "j").touch()

    with pytest.raises(FileExistsError):
        JournalAppender(tmp_path / "j", HEADER)


def test_live_header_of_an_agent(tmp_path: Path) -> None:
    """The launcher reads steps and roles out of a journal that is being written."""
    live.prepare_run_dir(tmp_path)
    path = tmp_path / "journals" / "agent-12-5.journal"
    header = {
        "role": "agent",
        "pid": 12,
        "rank": 0,
        "is_launcher": False,
        "is_worker": False,
    }
    JournalAppender(path, header).close()
    with path.open("r+b") as file:
        file.seek(wire.PROGRESS_OFFSET)
        file.write(struct.pack("<q", 41))

    journals = live.list_agent_journals(tmp_path)
    found = live.load_live_journal(journals[12])

    assert found is not None
    assert (found.pid, found.step_count, found.has_rank, found.is_worker) == (
        12,
        41,
        True,
        False,
    )


def test_live_header_that_is_half_written_is_skipped(tmp_path: Path) -> None:
    """A short file, a foreign one, a cut JSON text or none at all is no journal yet."""
    path = tmp_path / "agent-1-1.journal"
    JournalAppender(path, HEADER).close()
    whole = path.read_bytes()
    broken = whole[: wire.HEADER_JSON_OFFSET + 9] + bytes(wire.HEADER_BYTES)

    found = []
    for content in (b"", whole[:100], b"x" * len(whole), broken[: wire.HEADER_BYTES]):
        path.write_bytes(content)
        found.append(live.load_live_journal(path))

    assert found == [None] * 4
    assert live.load_live_journal(tmp_path / "absent") is None
    assert live.list_agent_journals(tmp_path / "absent") == {}
    assert live.list_booted(tmp_path / "absent") == frozenset()


def test_newest_journal_of_a_pid_counts(tmp_path: Path) -> None:
    """A pid that was used twice has the journal that was begun last, by number, not by text."""
    live.prepare_run_dir(tmp_path)
    for name in (
        "agent-7-999.journal",
        "agent-7-1000.journal",
        "observer-9-1.journal",
        "agent-x",
    ):
        (tmp_path / "journals" / name).touch()

    found = live.list_agent_journals(tmp_path)

    assert {pid: path.name for pid, path in found.items()} == {7: "agent-7-1000.journal"}


def test_stop_is_written_where_agents_read_it(tmp_path: Path) -> None:
    """The control file has its full length from the start and the step in its first word."""
    live.prepare_run_dir(tmp_path)
    before = (tmp_path / wire.CONTROL_FILE).read_bytes()

    live.write_stop_at_step(tmp_path, 77)

    control = (tmp_path / wire.CONTROL_FILE).read_bytes()
    assert before == bytes(wire.CONTROL_BYTES)
    assert (len(control), struct.unpack_from("<q", control)) == (wire.CONTROL_BYTES, (77,))
