"""A run folder opens whatever is missing or damaged in it, or says clearly why it does not."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import (
    MANIFEST,
    JournalBuilder,
    RunBuilder,
    loader_journal,
    worker_journal,
)
from whyidle.errors import RunFolderError
from whyidle.model.events import TABLE_COLUMNS, RunTables
from whyidle.model.findings import Limit, RunSummary, Verdict
from whyidle.store import rundir
from whyidle.store.rundir import (
    create_run_dir,
    find_runs,
    load_tables,
    open_run_dir,
    read_manifest,
    save_columns,
    write_manifest,
    write_verdict,
)
from whyidle_agent import wire

DATA = Path(__file__).parents[2] / "data"
SHARED_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of 20 steps with a worker, ended."""
    run = RunBuilder(tmp_path / "run")
    return (
        run.add(loader_journal(steps=20)).add(worker_journal(batches=20, samples=2)).write()
    )


def _same(left: RunTables, right: RunTables) -> bool:
    """Whether two loads gave the same."""
    return (
        left.manifest == right.manifest
        and left.journals == right.journals
        and left.frame_texts == right.frame_texts
        and all(left.tables[name].equals(right.tables[name]) for name in TABLE_COLUMNS)
    )


def _verdict() -> Verdict:
    return Verdict(
        run=RunSummary(
            command=("python", "train.py"),
            steps=20,
            warmup_steps=0,
            ranks=1,
            duration_ns=1,
            python=None,
            torch=None,
            device_kind="cpu",
            device_name=None,
            exit_status=0,
        ),
        limit=Limit.INPUT,
        sentence="Input.",
        step_median_ns=None,
        step_p90_ns=None,
        idle_ratio=None,
        unexplained_ratio=0.0,
        causes=(),
        prescriptions=(),
        not_observed=(),
    )


# --- making ---------------------------------------------------------------------------------


def test_run_folder_is_made_ready_for_agents(tmp_path):
    """A new run has its name, a folder for journals and the control file."""
    run = create_run_dir(tmp_path / "deep" / "runs")

    assert run.parent == tmp_path / "deep" / "runs"
    assert re.fullmatch(r"\d{8}-\d{6}-\d+", run.name)
    assert (run / "journals").is_dir()
    assert (run / "control").stat().st_size == wire.CONTROL_BYTES


def test_run_folders_of_the_same_second_are_numbered(tmp_path, monkeypatch):
    """Two runs begun in one second have their own folders."""
    monkeypatch.setattr(rundir.time, "strftime", lambda _: "20250102-030405")

    names = [create_run_dir(tmp_path).name for _ in range(3)]

    assert names == ["20250102-030405-1", "20250102-030405-2", "20250102-030405-3"]


def test_run_folder_has_a_default_place(tmp_path, monkeypatch):
    """Without a parent, runs are kept in the working folder."""
    monkeypatch.chdir(tmp_path)

    run = create_run_dir()

    assert run.parent == Path("whyidle-runs")
    assert find_runs() == [run]


def test_run_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path):
    """A parent that is a file is reported with what to do."""
    (tmp_path / "file").write_text("")

    with pytest.raises(RunFolderError, match="file") as caught:
        create_run_dir(tmp_path / "file")

    assert caught.value.slug == "run-folder-not-writable"
    assert "--out" in caught.value.hint


def test_runs_are_found_oldest_first(tmp_path):
    """Runs sort by time, then by number as a number; other folders are no runs."""
    for name in ("20250102-030405-10", "20250102-030405-9", "20240102-030405-1", "notes"):
        (tmp_path / name).mkdir()

    names = [path.name for path in find_runs(tmp_path)]

    assert names == ["20240102-030405-1", "20250102-030405-9", "20250102-030405-10"]
    assert find_runs(tmp_path / "nowhere") == []


# --- opening --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (None, "run-folder-missing"),
        ([], "run-folder-foreign"),
        (["notes.txt"], "run-folder-foreign"),
        (["manifest.json"], "run-folder-empty"),
        (["journals/"], "run-folder-empty"),
        (["columns/"], "run-folder-empty"),
        (["journals"], "run-folder-unreadable"),
        (["journals/agent-1-1.journal"], "run-folder-empty"),
    ],
    ids=str,
)
def test_folder_that_is_no_run_is_refused(tmp_path, content, slug):
    """Each way in which a folder can be no run has its own message."""
    path = tmp_path / "run"
    for name in content or []:
        made = path / name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir() if name.endswith("/") else made.write_text("")
    if content == []:
        path.mkdir()

    with pytest.raises(RunFolderError) as caught:
        load_tables(path)

    assert caught.value.slug == slug
    assert str(path) in caught.value.message


def test_path_that_no_folder_can_have_is_missing(tmp_path):
    """A name that the system refuses is a folder that is not there."""
    with pytest.raises(RunFolderError) as caught:
        open_run_dir(tmp_path / ("x" * 5000))

    assert caught.value.slug == "run-folder-missing"


def test_newer_run_is_refused_with_both_numbers(run_dir):
    """A run of a later whyidle is refused, and the message names both versions."""
    write_manifest(run_dir, {"schema_version": 2})

    with pytest.raises(RunFolderError, match=r"schema 2; .* up to 1") as caught:
        load_tables(run_dir)

    assert caught.value.slug == "run-folder-too-new"


def test_foreign_journal_in_a_run_is_refused(run_dir):
    """A file that only looks like a journal is named."""
    (run_dir / "journals" / "notes.journal").write_text("dear diary")
    (run_dir / "journals" / "notes.journal").write_bytes(b"x" * 5000)

    with pytest.raises(RunFolderError, match=r"notes\.journal") as caught:
        load_tables(run_dir)

    assert caught.value.slug == "journal-foreign"


def test_journal_that_is_a_broken_link_is_refused(run_dir):
    """A journal that was listed and is not there is named."""
    (run_dir / "journals" / "agent-9-9.journal").symlink_to(run_dir / "nowhere")

    with pytest.raises(RunFolderError, match=r"agent-9-9\.journal") as caught:
        load_tables(run_dir)

    assert caught.value.slug == "journal-unreadable"


def test_other_files_among_the_journals_are_left_alone(run_dir):
    """Only files with the suffix are journals."""
    (run_dir / "journals" / "core.123").write_bytes(b"x" * 5000)

    assert len(load_tables(run_dir).journals) == 2


# --- manifest -------------------------------------------------------------------------------


def test_manifest_comes_back_as_it_was_written(tmp_path):
    """Nothing is added to a whole manifest, and nothing lost."""
    write_manifest(tmp_path, MANIFEST)

    assert read_manifest(tmp_path) == MANIFEST
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_manifest_is_whole_at_every_moment(tmp_path):
    """A manifest that cannot be written leaves the old one, and no temporary file."""
    write_manifest(tmp_path, MANIFEST)

    with pytest.raises(TypeError):
        write_manifest(tmp_path, {"command": object()})

    assert read_manifest(tmp_path) == MANIFEST
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_manifest_cut_at_every_byte_gives_a_usable_default(tmp_path):
    """Whatever is left of a manifest, a reader gets every key and the reason for what is missing."""
    write_manifest(tmp_path, MANIFEST)
    content = (tmp_path / "manifest.json").read_bytes().rstrip()

    for size in range(len(content)):
        (tmp_path / "manifest.json").write_bytes(content[:size])
        manifest = read_manifest(tmp_path)
        assert manifest.keys() == MANIFEST.keys(), size
        assert [one["slug"] for one in manifest["not_observed"]] == ["manifest-damaged"], (
            size
        )


def test_run_without_a_manifest_opens(run_dir):
    """After a kill of everything the journals alone make a run."""
    (run_dir / "manifest.json").unlink()

    run = load_tables(run_dir)

    assert run.tables["ask"].height == 20
    assert (run.manifest["command"], run.manifest["exit_status"]) == ([], None)
    assert "no manifest.json" in run.manifest["not_observed"][0]["reason"]


def test_damaged_values_of_a_manifest_are_null_with_a_reason(tmp_path):
    """A value of another type is not handed on; the others are kept."""
    write_manifest(
        tmp_path, MANIFEST | {"cpus_machine": "eight", "command": None, "not_observed": [1]}
    )

    manifest = read_manifest(tmp_path)

    assert (manifest["cpus_machine"], manifest["command"]) == (None, [])
    assert manifest["exit_status"] == 0
    assert [one["reason"] for one in manifest["not_observed"]] == [
        "manifest.json has damaged values for cpus_machine"
    ]


@SHARED_FOLDER
@given(
    content=st.binary(max_size=60)
    | st.text(alphabet='{}[]":,1en ', max_size=30).map(str.encode)
)
def test_any_manifest_reads(tmp_path, content):
    """No content of the manifest raises anything but the refusal of a newer schema."""
    (tmp_path / "manifest.json").write_bytes(content)

    manifest = read_manifest(tmp_path)

    assert manifest.keys() >= MANIFEST.keys()


# --- loading --------------------------------------------------------------------------------


def test_run_is_loaded_from_its_journals(run_dir):
    """All tables are there, with a journal each process in the order of the names."""
    run = load_tables(run_dir)

    assert set(run.tables) == set(TABLE_COLUMNS)
    assert [journal.pid for journal in run.journals] == [100, 101]
    assert run.tables["fetch"]["journal"].to_list() == [1] * 20
    assert run.tables["transform"]["name"].unique().to_list() == ["RandomCrop"]
    assert (1, 3) in run.frame_texts
    assert not (run_dir / "columns").exists()


def test_saved_columns_give_the_same_run(run_dir):
    """A second load reads the columns and gives the same."""
    first = load_tables(run_dir)

    assert save_columns(run_dir, first)
    assert save_columns(run_dir, first)

    # Only the columns can give the rows now; the fingerprints still fit.
    for path in (run_dir / "journals").iterdir():
        _blank_records(path)
    assert _same(load_tables(run_dir), first)


def test_columns_stand_alone_after_the_journals_were_removed(run_dir):
    """A run whose journals were removed to save space still opens."""
    first = load_tables(run_dir)
    save_columns(run_dir, first)

    shutil.rmtree(run_dir / "journals")

    assert _same(load_tables(run_dir), first)


def test_columns_of_a_run_that_went_on_are_made_again(run_dir):
    """A journal that has grown since is converted anew, and then saved anew."""
    save_columns(run_dir, load_tables(run_dir))
    loader_journal(steps=25).write(run_dir / "journals")

    run = load_tables(run_dir)

    assert run.tables["ask"].height == 25
    assert save_columns(run_dir, run)
    assert load_tables(run_dir).tables["ask"].height == 25


def test_columns_of_a_run_that_went_on_are_not_saved(run_dir):
    """Tables that are older than the journals are not kept for them."""
    run = load_tables(run_dir)
    loader_journal(steps=25).write(run_dir / "journals")

    assert not save_columns(run_dir, run)
    assert not (run_dir / "columns").exists()


def test_columns_of_a_run_being_recorded_are_not_saved(tmp_path):
    """Without an end in the manifest and in a journal, more may come at any moment."""
    journal = loader_journal(steps=5)
    journal.progress["closed"] = 0
    path = RunBuilder(tmp_path / "run", end_mono_ns=None).add(journal).write()

    assert not save_columns(path, load_tables(path))


def test_columns_are_saved_when_only_the_launcher_was_killed(tmp_path):
    """Journals that were all closed are an end, too."""
    path = (
        RunBuilder(tmp_path / "run", end_mono_ns=None).add(loader_journal(steps=5)).write()
    )

    assert save_columns(path, load_tables(path))


def test_damaged_columns_are_converted_again_from_the_journals(run_dir):
    """While the journals are there, nothing in the columns can stop a run from opening."""
    first = load_tables(run_dir)
    save_columns(run_dir, first)
    (part,) = (run_dir / "columns").glob("fetch-*.parquet")

    part.write_bytes(b"")

    assert _same(load_tables(run_dir), first)


def test_damaged_columns_without_journals_are_an_error_of_ours(run_dir):
    """When the only copy is damaged, the message names the folder."""
    save_columns(run_dir, load_tables(run_dir))
    (part,) = (run_dir / "columns").glob("fetch-*.parquet")
    part.write_bytes(b"")
    shutil.rmtree(run_dir / "journals")

    with pytest.raises(RunFolderError) as caught:
        load_tables(run_dir)

    assert caught.value.slug == "columns-damaged"


def test_large_run_is_streamed_and_its_end_loaded(run_dir):
    """A run that may not fit goes through the disk, and the manifest says what was left out."""
    run = load_tables(run_dir, limit_bytes=2_000)

    assert (run_dir / "columns" / "complete.json").exists()
    assert 0 < run.tables["fetch"].height < 20
    (entry,) = run.manifest["not_observed"]
    assert entry["slug"] == "window-only"
    assert re.search(r"its first \d[\d.]* s are left out", entry["reason"])
    assert load_tables(run_dir).tables["fetch"].height == 20


def test_run_whose_journals_are_large_but_sparse_is_loaded_whole(run_dir):
    """Allocated slots without records count for the way, not for what is loaded."""
    whole = load_tables(run_dir)
    for path in (run_dir / "journals").iterdir():
        with path.open("r+b") as file:
            file.truncate(1 << 20)

    run = load_tables(run_dir, limit_bytes=1 << 20)

    assert all(run.tables[name].equals(whole.tables[name]) for name in TABLE_COLUMNS)
    assert run.manifest["not_observed"] == []


def test_run_folder_that_cannot_be_written_is_read(run_dir):
    """A read-only run is streamed through a temporary folder, and its columns and verdict are not saved."""
    _block_writing(run_dir)
    before = sorted(run_dir.rglob("*"))

    run = load_tables(run_dir, limit_bytes=2_000)

    assert run.tables["fetch"].height > 0
    assert not save_columns(run_dir, load_tables(run_dir))
    assert not write_verdict(run_dir, _verdict())
    assert sorted(run_dir.rglob("*")) == before


def test_part_of_a_run_is_not_saved_as_the_whole(run_dir):
    """Tables that hold only the end of the run never become its columns."""
    blocked = _block_writing(run_dir)
    window = load_tables(run_dir, limit_bytes=2_000)
    for path in blocked:
        path.rmdir() if path.is_dir() else path.unlink()

    assert not save_columns(run_dir, window)


def test_run_that_fits_nowhere_is_an_error_of_ours(run_dir, tmp_path, monkeypatch):
    """Without room for the columns the message names the temporary folder."""
    _block_writing(run_dir)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(rundir.tempfile, "tempdir", str(tmp_path / "tmp"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("whyidle.store.parquet.stream_columns", fail)

    with pytest.raises(RunFolderError, match="No space left") as caught:
        load_tables(run_dir, limit_bytes=2_000)

    assert caught.value.slug == "no-room-for-columns"
    assert os.listdir(tmp_path / "tmp") == []


def test_run_with_only_empty_journals_is_empty_on_either_way(tmp_path):
    """Processes that recorded nothing make no run, streamed or not."""
    path = RunBuilder(tmp_path / "run").add(JournalBuilder()).write()

    for limit_bytes in (0, 1 << 30):
        with pytest.raises(RunFolderError) as caught:
            load_tables(path, limit_bytes=limit_bytes)
        assert caught.value.slug == "run-folder-empty"


@SHARED_FOLDER
@given(
    at=st.integers(min_value=0, max_value=8_000),
    garbage=st.binary(min_size=1, max_size=400),
    size=st.integers(min_value=0, max_value=8_000),
)
def test_damaged_journal_leaves_the_other_journals(tmp_path, at, garbage, size):
    """Damage in one journal is refused by us or costs records of that journal only."""
    path = tmp_path / "run"
    shutil.rmtree(path, ignore_errors=True)
    RunBuilder(path).add(loader_journal(steps=5)).add(worker_journal(batches=5)).write()
    damaged = path / "journals" / "agent-101-1000.journal"
    content = bytearray(damaged.read_bytes())
    content[at : at + len(garbage)] = garbage
    damaged.write_bytes(content[:size])

    # A mark or a schema number that is no longer ours is refused; all other damage is read past.
    if size >= wire.HEADER_BYTES and at < wire.HEADER.size:
        with contextlib.suppress(RunFolderError):
            load_tables(path)
    else:
        assert load_tables(path).tables["ask"].filter(journal=0).height == 5


@pytest.mark.parametrize("version", range(1, wire.SCHEMA_VERSION + 1))
def test_run_of_every_schema_version_opens(version, tmp_path):
    """A run recorded by each version of the writers gives the tables it gave then."""
    expected = json.loads((DATA / f"run-schema-{version}-tables.json").read_text())

    run = load_tables(DATA / f"run-schema-{version}")

    for table, content in expected.items():
        rows = run.tables[table].select(content["columns"]).rows()
        assert [list(row) for row in rows] == content["rows"], table
    assert [(one.role, one.pid, one.closed) for one in run.journals] == [
        ("agent", 2000, True),
        ("observer", 1999, True),
    ]
    assert sorted(run.frame_texts.values()) == [
        "data.py\0__getitem__\x0012",
        "data.py\0offset_map\x0033",
    ]
    assert run.manifest["not_observed"] == [
        {"slug": "no-nvml", "reason": "there is no NVIDIA driver"}
    ]


# --- verdict and memory -----------------------------------------------------------------------


def test_verdict_is_written_as_its_public_form(tmp_path):
    """verdict.json is the JSON form of the verdict, and replaces an older one."""
    (tmp_path / "verdict.json").write_text("old")

    assert write_verdict(tmp_path, _verdict())

    assert json.loads((tmp_path / "verdict.json").read_text()) == _verdict().to_json()
    assert os.listdir(tmp_path) == ["verdict.json"]


@pytest.mark.parametrize(
    ("limit", "expected"), [("max\n", None), ("4096\n", 4096), ("", None), ("9" * 30, None)]
)
def test_memory_is_limited_by_the_cgroup(tmp_path, monkeypatch, limit, expected):
    """In a container the tables get a part of its memory, not of the machine's."""
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(rundir, "_CGROUP_LIMIT", tmp_path / "memory.max")

    assert rundir.usable_memory_bytes() == (expected or machine_bytes)


def test_memory_without_cgroups_is_the_machines(tmp_path, monkeypatch):
    """Where there is no cgroup file, all of the memory counts."""
    monkeypatch.setattr(rundir, "_CGROUP_LIMIT", tmp_path / "none")

    assert rundir.usable_memory_bytes() >= 1 << 20


def test_launcher_gets_the_run_folder_without_polars():
    """The target starts after this import: it must stay light."""
    code = "import sys, whyidle.store.rundir; print({'polars', 'numpy'} & set(sys.modules))"

    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(rundir.__file__).parents[2])},
    )

    assert result.stdout == "set()\n"


def _block_writing(path: Path) -> list[Path]:
    """Make the temporary names of this process unusable: what a read-only folder does, even to root."""
    columns, verdict = (
        path / f".columns-{os.getpid()}",
        path / f".verdict.json-{os.getpid()}",
    )
    columns.write_text("")
    verdict.mkdir()
    return [columns, verdict]


def _blank_records(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: wire.HEADER_BYTES].ljust(len(content), b"\0"))
