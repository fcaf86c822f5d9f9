"""A journal opens wherever its writer was stopped, and nothing that is not whole is read from it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import JournalBuilder
from whyidle.errors import RunFolderError
from whyidle.store import journal as journal_module
from whyidle.store.journal import (
    describe_journal,
    open_journal,
    read_blocks,
    scan_journal,
    split_by_kind,
)
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

FRESH_FILES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
"""Each example writes its own bytes, so a folder shared by examples is fine."""


def _batches(path: Path) -> list[int]:
    """Field `a` of all records that are read."""
    return [int(a) for block in read_blocks(open_journal(path)) for a in block["a"]]


def _asks(count: int) -> JournalBuilder:
    return JournalBuilder().emit_rows(wire.ASK, ref=1, a=np.arange(count))


def test_journal_cut_at_every_byte_gives_its_whole_records(tmp_path):
    """A file that ends anywhere opens, with as many records as it holds whole."""
    content = _asks(3).to_bytes()
    path = tmp_path / "agent-1-1.journal"

    path.write_bytes(content)
    for size in range(len(content), -1, -1):
        _cut(path, size)
        opened = open_journal(path)
        whole = max(size - wire.HEADER_BYTES, 0) // wire.RECORD_BYTES
        assert scan_journal(opened).record_count == whole, size
        assert describe_journal(opened, whole).pid in (1, 100), size


def test_journal_cut_inside_a_text_keeps_the_chunks_before(tmp_path):
    """A text whose later chunks are lost is read as far as it goes."""
    builder = JournalBuilder()
    number = builder.text("x" * 100)
    path = builder.write(tmp_path)

    _cut(path, wire.HEADER_BYTES + 2 * wire.RECORD_BYTES + 63)

    assert scan_journal(open_journal(path)).texts == {number: "x" * 96}


def test_slots_without_their_number_are_skipped(tmp_path):
    """An uncommitted slot hides itself, not the whole slots after it."""
    builder = JournalBuilder()
    for batch in range(5):
        builder.emit(wire.ASK, a=batch, is_committed=batch not in (1, 3))

    path = builder.write(tmp_path, free_slots=10)

    assert _batches(path) == [0, 2, 4]


def test_slot_with_the_number_of_another_is_skipped(tmp_path):
    """A commit word that belongs to another slot commits nothing."""
    content = bytearray(_asks(2).to_bytes())
    content[wire.HEADER_BYTES] = 2
    path = tmp_path / "agent-1-1.journal"
    path.write_bytes(content)

    assert _batches(path) == [1]


def test_records_appended_after_opening_are_left_for_the_next_time(tmp_path):
    """A journal that is being written gives what was there when it was opened."""
    path = tmp_path / "agent-1-1.journal"
    path.write_bytes(_asks(2).to_bytes())
    opened = open_journal(path)

    path.write_bytes(_asks(5).to_bytes())

    assert sum(len(block) for block in read_blocks(opened)) == 2
    assert _batches(path) == [0, 1, 2, 3, 4]
    assert open_journal(path).fingerprint != opened.fingerprint


def test_fingerprint_changes_with_a_live_counter(tmp_path):
    """A journal that grows inside its allocated slots has the same length but another fingerprint."""
    builder = _asks(1)
    before = open_journal(builder.write(tmp_path, free_slots=4))
    builder.progress["heartbeat_ns"] = 7

    after = open_journal(builder.write(tmp_path, free_slots=4))

    assert before.slot_count == after.slot_count
    assert before.fingerprint != after.fingerprint


def test_blocks_are_bounded_and_lose_nothing_between_them(tmp_path, monkeypatch):
    """Memory is bounded by the block; commit numbers go on across blocks."""
    monkeypatch.setattr(journal_module, "BLOCK_RECORDS", 4)
    path = _asks(11).write(tmp_path)

    blocks = list(read_blocks(open_journal(path)))

    assert [len(block) for block in blocks] == [4, 4, 3]
    assert _batches(path) == list(range(11))


def test_journal_cut_while_it_is_read_ends_early(tmp_path, monkeypatch):
    """Records that vanish between opening and reading are missing, not an error."""
    monkeypatch.setattr(journal_module, "BLOCK_RECORDS", 4)
    path = _asks(11).write(tmp_path)
    opened = open_journal(path)

    _cut(path, wire.HEADER_BYTES + 6 * wire.RECORD_BYTES)

    assert sum(len(block) for block in read_blocks(opened)) == 6


def test_journal_removed_while_it_is_read_is_an_error_of_ours(tmp_path):
    """A file that is gone is reported by its name and with a slug."""
    path = _asks(3).write(tmp_path)
    opened = open_journal(path)
    path.unlink()

    with pytest.raises(RunFolderError, match=r"agent-100-1000\.journal") as caught:
        list(read_blocks(opened))

    assert caught.value.slug == "journal-unreadable"


def test_folder_named_like_a_journal_is_an_error_of_ours(tmp_path):
    """What cannot be opened as a file is reported, not raised through."""
    with pytest.raises(RunFolderError) as caught:
        open_journal(tmp_path)

    assert caught.value.slug == "journal-unreadable"


def test_foreign_file_is_refused(tmp_path):
    """A file that begins with another mark is no journal."""
    path = tmp_path / "notes.journal"
    path.write_bytes(b"dear diary".ljust(5000))

    with pytest.raises(RunFolderError, match="dear dia") as caught:
        open_journal(path)

    assert caught.value.slug == "journal-foreign"


def test_newer_schema_is_refused_with_both_numbers(tmp_path):
    """A journal of a later whyidle is refused, and the message names both versions."""
    path = JournalBuilder(schema_version=wire.SCHEMA_VERSION + 1).write(tmp_path)

    with pytest.raises(RunFolderError, match=f"schema {wire.SCHEMA_VERSION + 1}") as caught:
        open_journal(path)

    assert caught.value.slug == "journal-too-new"
    assert f"up to {wire.SCHEMA_VERSION}" in caught.value.message


@pytest.mark.parametrize("kept", range(8))
def test_header_torn_inside_its_mark_is_a_journal_with_nothing_in_it(tmp_path, kept):
    """A writer killed while it wrote the mark has written no record yet."""
    content = bytearray(_asks(2).to_bytes())
    content[kept:8] = bytes(8 - kept)
    path = tmp_path / "agent-1-1.journal"
    path.write_bytes(content)

    assert open_journal(path).slot_count == 0


def test_header_without_a_schema_is_a_journal_with_nothing_in_it(tmp_path):
    """The mark alone says nothing of the layout of what follows."""
    path = JournalBuilder(schema_version=0).emit(wire.ASK).write(tmp_path)

    assert open_journal(path).slot_count == 0


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xfe", b"{", b"[1, 2]", b"null", b'"text"', b"[" * 4000, b"9" * 4000],
    ids=["no text", "cut", "list", "null", "string", "deep", "long number"],
)
def test_header_text_that_is_no_object_leaves_the_records(tmp_path, garbage):
    """Records count even when the header's text cannot be read; pid and start come from the name."""
    content = bytearray(_asks(2).to_bytes())
    start = wire.HEADER_JSON_OFFSET
    content[start : wire.HEADER_BYTES] = garbage.ljust(wire.HEADER_BYTES - start, b"\0")
    wire.HEADER.pack_into(content, 0, wire.MAGIC, wire.SCHEMA_VERSION, 0xFFFFFFFF)
    path = tmp_path / "observer-31-77.journal"
    path.write_bytes(content)

    opened = open_journal(path)
    described = describe_journal(opened, 2)

    assert opened.header == {}
    assert (described.role, described.pid, described.start_ns) == ("observer", 31, 77)
    assert (described.rank, described.is_launcher, described.parent_pid) == (0, False, None)
    assert (described.python, described.torch, described.stopped) == (None, None, None)


def test_header_fields_reach_the_journal(tmp_path):
    """What a writer says of its process is kept."""
    builder = JournalBuilder(
        rank=3, is_launcher=True, is_worker=True, torch=None, stopped="budget"
    )
    builder.progress |= {"dropped_count": 12, "closed": 0}

    described = describe_journal(open_journal(builder.write(tmp_path)), 5)

    assert (described.pid, described.parent_pid, described.rank) == (100, 1, 3)
    assert (described.is_launcher, described.is_worker) == (True, True)
    assert (described.python, described.torch) == ("3.11.7", None)
    assert (described.start_ns, described.record_count) == (1_000, 5)
    assert (described.dropped_count, described.closed) == (12, False)
    assert described.stopped == "budget"


@pytest.mark.parametrize("value", [-1, 1 << 70, True, 1.5, "7", [], None])
def test_header_values_out_of_range_have_defaults(tmp_path, value):
    """A number that cannot be one of a process is not taken for one."""
    builder = JournalBuilder(rank=value, parent_pid=value)
    builder.progress["dropped_count"] = -5

    described = describe_journal(open_journal(builder.write(tmp_path)), 0)

    assert (described.rank, described.parent_pid, described.dropped_count) == (0, None, 0)


@pytest.mark.parametrize(
    "name", [".journal", "agent.journal", "agent-x-y.journal", "agent--.journal"]
)
def test_name_without_numbers_gives_zeros(tmp_path, name):
    """A renamed journal without a header still has a description."""
    path = tmp_path / name
    path.write_bytes(b"")

    described = describe_journal(open_journal(path), 0)

    assert (described.pid, described.start_ns) == (0, 0)


@pytest.mark.parametrize(
    "text", ["a", "é" * 47, "x" * 48, "x" * 49, "日本" * 60, "a\0b\0" + "12"]
)
def test_text_of_any_length_comes_back(tmp_path, text):
    """Chunks are joined before they are decoded, so characters may lie across them."""
    builder = JournalBuilder()
    number = builder.text(text)

    assert scan_journal(open_journal(builder.write(tmp_path))).texts == {number: text}


def test_texts_written_side_by_side_are_kept_apart(tmp_path):
    """Chunks of two texts may alternate; each goes to its own id."""
    builder = JournalBuilder()
    for number, chunk in ((1, b"ab"), (2, b"xy"), (1, b"cd"), (2, b"z!")):
        word = int.from_bytes(chunk, "little")
        builder.emit(wire.TEXT, flags=len(chunk) | wire.TEXT_MORE, ref=number, t0=word)

    texts = scan_journal(open_journal(builder.write(tmp_path))).texts

    assert texts == {1: "abcd", 2: "xyz!"}


def test_damaged_texts_are_read_as_far_as_they_make_sense(tmp_path):
    """Impossible ids are dropped, impossible lengths cut, impossible bytes replaced."""
    builder = JournalBuilder()
    builder.emit(wire.TEXT, flags=1, ref=0, t0=65)
    builder.emit(wire.TEXT, flags=1, ref=4_000_000_000, t0=65)
    builder.emit(wire.TEXT, flags=500, ref=1, t0=65)
    builder.emit(wire.TEXT, flags=1, ref=2, t0=0xFF)

    texts = scan_journal(open_journal(builder.write(tmp_path))).texts

    assert texts == {1: "A" + "\0" * 47, 2: "\ufffd"}


def test_split_keeps_slot_order_within_a_kind(tmp_path):
    """Records are parted by kind and otherwise stay as they were written."""
    builder = JournalBuilder()
    for batch in range(6):
        builder.emit(wire.FETCH if batch % 2 else wire.ASK, a=batch)
    (block,) = read_blocks(open_journal(builder.write(tmp_path)))

    parted = split_by_kind(block)

    assert {kind: rows["a"].tolist() for kind, rows in parted.items()} == {
        wire.ASK: [0, 2, 4],
        wire.FETCH: [1, 3, 5],
    }
    assert split_by_kind(block[:0]) == {}


@FRESH_FILES
@given(head=st.binary(max_size=99), tail=st.binary(max_size=200), is_long=st.booleans())
def test_any_bytes_open_or_are_refused_by_us(tmp_path, head, tail, is_long):
    """No file content gives anything but records or an error of ours."""
    path = tmp_path / "agent-1-1.journal"
    path.write_bytes(head.ljust(wire.HEADER_BYTES, b"\0") + tail if is_long else head)

    with contextlib.suppress(RunFolderError):
        opened = open_journal(path)
        assert scan_journal(opened).record_count <= opened.slot_count


@FRESH_FILES
@given(
    at=st.integers(min_value=16, max_value=wire.HEADER_BYTES + 7 * wire.RECORD_BYTES),
    garbage=st.binary(min_size=1, max_size=200),
)
def test_damage_costs_only_the_records_it_touches(tmp_path, at, garbage):
    """Records beside the damaged bytes are read as before."""
    content = bytearray(_asks(8).to_bytes())
    content[at : at + len(garbage)] = garbage
    path = tmp_path / "agent-1-1.journal"
    path.write_bytes(content)
    end = at + len(garbage)
    touched = {
        slot
        for slot in range(8)
        if at < wire.HEADER_BYTES + (slot + 1) * wire.RECORD_BYTES
        and end > wire.HEADER_BYTES + slot * wire.RECORD_BYTES
    }

    commits = [int(c) for block in read_blocks(open_journal(path)) for c in block["commit"]]

    assert set(range(1, 9)) - {slot + 1 for slot in touched} <= set(commits)


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)
