"""Columns on disk are the tables again, are told apart when out of date, and stay bounded."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import JournalBuilder, loader_journal, worker_journal
from whyidle.errors import RunFolderError
from whyidle.model.events import TABLE_COLUMNS
from whyidle.store import parquet
from whyidle.store.columns import SCHEMAS, Conversion, convert
from whyidle.store.parquet import (
    MARKER_NAME,
    StoredColumns,
    find_columns,
    load_columns,
    load_frame_texts,
    new_columns_folder,
    scan_table,
    stream_columns,
)
from whyidle_agent import wire

if TYPE_CHECKING:
    from pathlib import Path

NO_LIMIT = 1 << 40


@pytest.fixture
def journals(tmp_path: Path) -> list[Path]:
    """A training process and a worker, 50 batches."""
    return [
        loader_journal(steps=50).write(tmp_path),
        worker_journal(batches=50, samples=4).write(tmp_path),
    ]


@pytest.fixture
def stored(tmp_path: Path, journals: list[Path]) -> StoredColumns:
    """Their columns."""
    stream_columns(Conversion(journals), tmp_path / "columns")
    found = find_columns(tmp_path / "columns", ())
    assert found is not None
    return found


def test_streamed_columns_are_the_converted_tables(journals, stored):
    """The way over the disk gives the same tables, journals and texts as the way in memory."""
    conversion, tables = convert(journals)

    loaded, from_ns = load_columns(stored, NO_LIMIT)

    assert from_ns is None
    assert set(loaded) == set(TABLE_COLUMNS)
    assert all(loaded[name].equals(tables[name]) for name in tables)
    assert all(loaded[name].schema == SCHEMAS[name] for name in tables)
    assert load_frame_texts(stored) == conversion.frame_texts
    assert stored.journals == tuple(conversion.journals)
    counts = {name: frame.height for name, frame in tables.items()}
    assert stored.row_counts == {**counts, "frame_texts": len(conversion.frame_texts)}


def test_large_table_is_written_in_parts(tmp_path, journals, monkeypatch):
    """No part holds more rows than memory is planned for, and the parts keep their order."""
    monkeypatch.setattr(parquet, "PART_ROWS", 16)
    _, tables = convert(journals)

    stream_columns(Conversion(journals), tmp_path / "columns")

    parts = sorted((tmp_path / "columns").glob("sample-*.parquet"))
    assert [pl.read_parquet(part).height for part in parts] == [16] * 12 + [8]
    found = find_columns(tmp_path / "columns", ())
    assert found is not None
    assert load_columns(found, NO_LIMIT)[0]["sample"].equals(tables["sample"])


def test_table_without_rows_has_no_file(stored):
    """An empty table costs no file and is still there when read."""
    assert not list(stored.folder.glob("mount-*"))
    assert scan_table(stored, "mount").collect().schema == SCHEMAS["mount"]


def test_table_is_scanned_without_the_others(stored):
    """A table larger than memory can be worked on lazily."""
    scanned = scan_table(stored, "fetch").filter(pl.col("batch") == 7).collect()

    assert scanned["end_ns"].to_list() == [1_000_000_000 + 7 * 10_000_000 + 9_000_000]


def test_columns_fit_the_journals_that_they_were_made_from(stored):
    """The marker holds the fingerprints of the journals, in order."""
    fingerprints = [journal.fingerprint for journal in stored.journals]

    assert find_columns(stored.folder, fingerprints) == stored
    assert find_columns(stored.folder, fingerprints[:1]) is None
    assert find_columns(stored.folder, [fingerprints[0], "changed"]) is None


def test_columns_without_a_marker_are_not_used(stored):
    """A conversion that was killed leaves nothing that is taken for whole."""
    (stored.folder / MARKER_NAME).unlink()

    assert find_columns(stored.folder, ()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"columns_version": parquet.COLUMNS_VERSION + 1},
        {"columns_version": 0},
        {"columns_version": "one"},
        {"journals": [{}]},
        {"journals": None},
        {"rows": []},
        {"rows": {"ask": "many"}},
    ],
    ids=str,
)
def test_marker_of_another_shape_is_not_used(stored, change):
    """A marker that this version cannot read hides the columns, nothing else."""
    _change_marker(stored, **change)

    assert find_columns(stored.folder, ()) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["columns_version", "journals", "rows"]), inner, max_size=3
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_marker_is_read_or_not_used(tmp_path, content):
    """No content of the marker raises."""
    (tmp_path / MARKER_NAME).write_bytes(content)

    found = find_columns(tmp_path, ())

    assert found is None or not found.journals


def test_columns_of_another_table_list_are_made_again(stored):
    """While the journals are there, columns of an older layout are converted anew."""
    _change_marker(stored, table_columns={})

    assert find_columns(stored.folder, [one.fingerprint for one in stored.journals]) is None


def test_columns_written_before_a_column_was_added_have_nulls_there(stored):
    """Without their journals, columns of an older layout still open."""
    (part,) = stored.folder.glob("ask-*.parquet")
    pl.read_parquet(part).drop("depth").write_parquet(part)

    asks = load_columns(stored, NO_LIMIT)[0]["ask"]

    assert asks.schema == SCHEMAS["ask"]
    assert asks["depth"].null_count() == asks.height == 50


def test_marker_of_a_journal_with_a_later_field_is_read(stored):
    """Fields that were added to journals since are left out."""
    marker = json.loads((stored.folder / MARKER_NAME).read_bytes())
    marker["journals"][0]["later"] = 1
    _change_marker(stored, journals=marker["journals"])

    assert find_columns(stored.folder, ()) == stored


@pytest.mark.parametrize("name", ["fetch", "frame_texts"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"x" * 500], ids=["empty", "cut", "foreign"]
)
def test_damaged_file_is_an_error_of_ours(stored, name, content):
    """A Parquet file that cannot be read is reported with its folder."""
    (part,) = stored.folder.glob(f"{name}-*.parquet")
    part.write_bytes(content)

    load = (
        load_frame_texts
        if name == "frame_texts"
        else lambda found: load_columns(found, NO_LIMIT)
    )
    with pytest.raises(RunFolderError, match="columns") as caught:
        load(stored)

    assert caught.value.slug == "columns-damaged"


@pytest.mark.parametrize("name", ["fetch", "frame_texts"])
def test_missing_file_is_an_error_of_ours(stored, name):
    """Columns that lost a file are not taken for a run without these rows."""
    (part,) = stored.folder.glob(f"{name}-*.parquet")
    part.unlink()

    load = (
        load_frame_texts
        if name == "frame_texts"
        else lambda found: load_columns(found, NO_LIMIT)
    )
    with pytest.raises(RunFolderError, match=f"0 rows of '{name}'"):
        load(stored)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=60,
)
@given(
    at=st.integers(min_value=0, max_value=4_000), garbage=st.binary(min_size=1, max_size=40)
)
def test_any_damage_of_a_file_is_read_or_an_error_of_ours(tmp_path, at, garbage):
    """Damaged Parquet gives rows or our error, never a panic of the engine."""
    (tmp_path / "columns").mkdir(exist_ok=True)
    path = worker_journal(batches=20).write(tmp_path)
    stream_columns(Conversion([path]), tmp_path / "columns")
    found = find_columns(tmp_path / "columns", ())
    assert found is not None
    (part,) = found.folder.glob("transform-*.parquet")
    content = bytearray(part.read_bytes())
    start = at % len(content)
    content[start : start + len(garbage)] = garbage
    part.write_bytes(content)

    with contextlib.suppress(RunFolderError):
        load_columns(found, NO_LIMIT)


def test_columns_larger_than_allowed_are_loaded_from_the_end(stored):
    """Of a run that does not fit, the end is loaded: every table from the same moment on."""
    limit_bytes = stored.size_bytes // 3

    tables, from_ns = load_columns(stored, limit_bytes)

    assert from_ns is not None
    batches = tables["fetch"]["batch"].to_list()
    assert batches == list(range(batches[0], 50))
    assert 8 <= len(batches) <= 17
    assert tables["payload"]["batch"].to_list() == batches
    assert tables["fetch_cost"]["batch"].to_list() == batches
    # The window may begin inside a batch: then its last samples are there without it.
    assert set(tables["sample"]["batch"]) - set(batches) <= {batches[0] - 1}
    assert tables["ask"]["ask_ns"].min() >= from_ns


def test_description_of_the_run_is_kept_whole_in_a_window(stored):
    """Loaders and workers began long before the window, and are still known in it."""
    tables, _ = load_columns(stored, stored.size_bytes // 3)

    assert [tables[name].height for name in ("loader", "worker", "worker_start")] == [
        1,
        1,
        1,
    ]


def test_run_without_any_time_has_a_window(tmp_path):
    """Rows whose times were all lost do not stop the search for a window."""
    path = JournalBuilder().emit(wire.WORKER, a=1).write(tmp_path)
    stream_columns(Conversion([path]), tmp_path / "columns")
    found = find_columns(tmp_path / "columns", ())
    assert found is not None

    tables, from_ns = load_columns(found, 0)

    assert from_ns == 0
    assert tables["worker"].height == 1


def test_failed_conversion_leaves_the_old_columns(stored):
    """Columns are replaced when the new ones are whole, not before."""
    before = sorted(path.name for path in stored.folder.iterdir())

    with contextlib.suppress(KeyError), new_columns_folder(stored.folder) as folder:
        (folder / "new").write_text("")
        raise KeyError

    assert sorted(path.name for path in stored.folder.iterdir()) == before
    assert not list(stored.folder.parent.glob(".columns-*"))


def test_columns_are_replaced_as_a_whole(stored):
    """No file of the old columns stays among the new ones."""
    with new_columns_folder(stored.folder) as folder:
        (folder / "new").write_text("")

    assert [path.name for path in stored.folder.iterdir()] == ["new"]


def test_folders_of_killed_conversions_are_removed(tmp_path):
    """What a killed conversion left is cleared away; another's that still runs is not."""
    abandoned, alive, other = (
        tmp_path / f".columns-{pid}" for pid in (1 << 23, os.getppid(), "x")
    )
    for folder in (abandoned, alive, other):
        folder.mkdir()

    with new_columns_folder(tmp_path / "columns"):
        pass

    assert [folder.exists() for folder in (abandoned, alive, other)] == [False, True, True]


def test_full_disk_is_an_os_error(tmp_path, journals, monkeypatch):
    """A write that fails inside polars is reported like any other failed write."""

    def fail(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError("No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)

    with pytest.raises(OSError, match="No space left"):
        stream_columns(Conversion(journals), tmp_path / "columns")

    assert not (tmp_path / "columns").exists()


def _change_marker(stored: StoredColumns, **change: object) -> None:
    marker = json.loads((stored.folder / MARKER_NAME).read_bytes())
    (stored.folder / MARKER_NAME).write_text(json.dumps(marker | change))
