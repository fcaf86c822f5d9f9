"""Columns hold what the records hold, in the types and order that the table list promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import JournalBuilder, loader_journal, worker_journal
from whyidle.model.events import TABLE_COLUMNS
from whyidle.store import journal as journal_module
from whyidle.store.columns import SCHEMAS, Place, convert, empty_frame, parse_place
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

I64 = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
KIND_OF = {name: kind for kind, name in wire.KIND_NAMES.items()}


def _table(folder: Path, builder: JournalBuilder, table: str) -> pl.DataFrame:
    _, tables = convert([builder.write(folder)])
    return tables[table]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ref", Place(field="ref")),
        ("lo:a", Place(field="a", mask=0xFFFFFFFF)),
        ("hi:a", Place(field="a", shift=32)),
        ("bits:b:40:24", Place(field="b", shift=40, mask=0xFFFFFF)),
        ("text:t0", Place(field="t0", is_text=True)),
        ("text:lo:a", Place(field="a", mask=0xFFFFFFFF, is_text=True)),
    ],
)
def test_place_is_parsed(text, place):
    """Each form of the little language has its place."""
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["lo:a:b", "bits:b:1", "half:a"])
def test_place_of_no_known_form_is_refused(text):
    """A misspelt place is found at import, not in a run."""
    with pytest.raises(ValueError, match="expected one of those"):
        parse_place(text)


def test_places_name_fields_of_a_record():
    """Every place of the table list stands in a record."""
    names = set(journal_module.RECORD_DTYPE.names or ())

    fields = {
        parse_place(text).field
        for columns in TABLE_COLUMNS.values()
        for text in columns.values()
    }

    assert fields <= names


def test_record_layout_is_that_of_the_wire():
    """Reader and writers agree on the size of a record and the offset of every field."""
    packed = wire.RECORD.pack(1, 2, 3, 4, -5, 6, -7, 8, -9, 10)

    (record,) = journal_module.np.frombuffer(packed, journal_module.RECORD_DTYPE)

    assert record.tolist() == (1, 2, 3, 4, -5, 6, -7, 8, -9, 10)


@pytest.mark.parametrize("table", TABLE_COLUMNS)
def test_table_has_the_promised_columns_with_and_without_rows(tmp_path, table):
    """A frame has the same columns and types whether or not anything was recorded."""
    builder = JournalBuilder().emit(KIND_OF[table])

    _, tables = convert([builder.write(tmp_path)])

    assert set(tables) == set(TABLE_COLUMNS)
    assert list(tables[table].schema) == ["journal", *TABLE_COLUMNS[table]]
    assert tables[table].schema == SCHEMAS[table] == empty_frame(table).schema
    assert {name: frame.height for name, frame in tables.items() if frame.height} == {
        table: 1
    }


def test_plain_columns_keep_the_records_numbers(tmp_path):
    """References and flags keep their unsigned types, all else is int64."""
    builder = JournalBuilder().emit(
        wire.ASK, flags=0xFFFF, ref=0xFFFFFFFF, t0=1, t1=2, a=-3, b=-4, c=5, d=6
    )

    frame = _table(tmp_path, builder, "ask")

    assert frame.row(0) == (0, 0xFFFFFFFF, 1, 2, -3, -4, 5, 6, 0xFFFF)
    assert frame.schema["iteration"] == pl.UInt32
    assert frame.schema["flags"] == pl.UInt16
    assert frame.schema["ask_ns"] == pl.Int64


def test_packed_columns_are_taken_apart(tmp_path):
    """A thread's pid, tid, call, state and mount come out of two words."""
    builder = JournalBuilder()
    target = builder.text("/data/x.jpg")
    call = 0xFFFFFFFE | ord("D") << 32 | 0x7FFFFF << 40
    builder.emit(wire.THREAD, flags=wire.WAIT_FILE, ref=target, a=4242 << 32 | 4243, b=call)

    row = _table(tmp_path, builder, "thread").row(0, named=True)

    assert (row["pid"], row["tid"]) == (4242, 4243)
    assert (row["syscall"], row["state"], row["mount"]) == (0xFFFFFFFE, ord("D"), 0x7FFFFF)
    assert (row["target"], row["wait"]) == ("/data/x.jpg", wire.WAIT_FILE)


def test_high_half_is_signed_and_bit_fields_are_not(tmp_path):
    """The top bit is a sign in a half and a bit in a field."""
    builder = JournalBuilder().emit(wire.THREAD, a=-1, b=-1)

    row = _table(tmp_path, builder, "thread").row(0, named=True)

    assert (row["pid"], row["tid"]) == (-1, 0xFFFFFFFF)
    assert (row["state"], row["mount"]) == (0xFF, 0xFFFFFF)


@pytest.mark.parametrize("number", [0, 3, -1, 1 << 40, -(1 << 63)])
def test_text_id_without_a_text_is_null(tmp_path, number):
    """Id 0 means none, and an id whose text was lost is not replaced by another's."""
    builder = JournalBuilder()
    builder.text("one")
    builder.emit(wire.MARK, b=number)

    assert _table(tmp_path, builder, "mark")["file"].to_list() == [None]


def test_text_written_after_its_record_is_resolved(tmp_path):
    """Another thread may still be writing the text down when its id is used."""
    builder = JournalBuilder().emit(wire.DEVICE, b=1)
    builder.text("H200")

    assert _table(tmp_path, builder, "device")["name"].to_list() == ["H200"]


def test_texts_of_each_journal_are_its_own(tmp_path):
    """Equal ids in two journals name different texts."""
    paths = []
    for pid, name in ((1, "Crop"), (2, "Flip")):
        builder = JournalBuilder(pid=pid)
        builder.emit(wire.TRANSFORM, b=builder.text(name))
        paths.append(builder.write(tmp_path))

    conversion, tables = convert(paths)

    assert tables["transform"].select("journal", "name").rows() == [
        (0, "Crop"),
        (1, "Flip"),
    ]
    assert [journal.pid for journal in conversion.journals] == [1, 2]


def test_stacks_come_with_the_texts_of_their_frames(tmp_path):
    """A stack is the list of frame ids, and only texts that are frames are handed over."""
    builder = JournalBuilder()
    builder.text("not a frame")
    stack = builder.stack(("a.py", "leaf", 3), ("b.py", "root", 9))
    builder.emit(wire.STACK, a=stack | builder.text("/data") << 32)

    conversion, tables = convert([builder.write(tmp_path)])

    assert tables["stack"].select("stack", "target").rows() == [("2,3", "/data")]
    assert conversion.frame_texts == {
        (0, 2): "a.py\0leaf\x003",
        (0, 3): "b.py\0root\x009",
    }


@pytest.mark.parametrize("text", ["", ",", "7,x", "99999999999999999999", "²", "-1"])
def test_stack_of_damaged_ids_has_no_frames(tmp_path, text):
    """Whatever a stack's text became, it resolves to nothing rather than to something else."""
    builder = JournalBuilder()
    builder.emit(wire.STACK, a=builder.text(text))

    conversion, _ = convert([builder.write(tmp_path)])

    assert conversion.frame_texts == {}


def test_unknown_kinds_are_counted_and_left_out(tmp_path):
    """A kind that a later agent adds within a schema does not disturb the others."""
    builder = JournalBuilder().emit(999).emit(wire.ASK).emit(0)

    conversion, tables = convert([builder.write(tmp_path)])

    assert sum(frame.height for frame in tables.values()) == 1
    assert conversion.journals[0].record_count == 3


def test_size_of_blocks_changes_nothing(tmp_path, monkeypatch):
    """However a journal is cut into blocks, the tables are the same."""
    paths = [
        loader_journal(steps=20).write(tmp_path),
        worker_journal(batches=20, samples=2).write(tmp_path),
    ]
    whole, tables = convert(paths)

    monkeypatch.setattr(journal_module, "BLOCK_RECORDS", 7)
    pieces, tables_in_pieces = convert(paths)

    assert all(tables[name].equals(tables_in_pieces[name]) for name in TABLE_COLUMNS)
    assert whole.frame_texts == pieces.frame_texts
    assert whole.journals == pieces.journals


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    records=st.lists(
        st.tuples(
            st.sampled_from([*wire.KIND_NAMES, wire.TEXT]),
            st.integers(min_value=0, max_value=0xFFFF),
            st.integers(min_value=0, max_value=0xFFFFFFFF)
            | st.integers(min_value=0, max_value=9),
            st.lists(I64 | st.integers(min_value=0, max_value=9), min_size=6, max_size=6),
        ),
        max_size=30,
    )
)
def test_any_numbers_in_records_become_rows(tmp_path, records):
    """Values that no writer would write are kept as they are: a row a record, no error."""
    builder = JournalBuilder()
    for kind, flags, ref, words in records:
        fields = dict(zip(("t0", "t1", "a", "b", "c", "d"), words, strict=True))
        builder.emit(kind, flags=flags, ref=ref, **fields)

    conversion, tables = convert([builder.write(tmp_path)])

    text_count = sum(kind == wire.TEXT for kind, *_ in records)
    assert sum(frame.height for frame in tables.values()) == len(records) - text_count
    assert conversion.journals[0].record_count == len(records)
