"""Copies of the working folder: whole, fresh each time, and never writing into the original."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whyidle.errors import UsageError
from whyidle.trial import workdir
from whyidle.trial.workdir import WorkdirCopies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a data set beside it."""
    project = tmp_path / "project"
    (project / "package").mkdir(parents=True)
    (project / "package" / "model.py").write_text("x = 1\n")
    (project / "train.py").write_text("print()\n")
    (project / "whyidle-runs").mkdir()
    (project / "whyidle-runs" / "old").write_text("old")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "image").write_text("pixels")
    (project / "data").symlink_to("../data")
    (project / "inside").symlink_to(project / "package")
    (project / "relative").symlink_to("package/model.py")
    os.mkfifo(project / "pipe")
    return project


@pytest.fixture
def copies(folder: Path) -> WorkdirCopies:
    """Copies of it, removed at the end."""
    made = WorkdirCopies(folder)
    yield made
    made.close()


def test_copy_holds_files_and_links(copies: WorkdirCopies, tmp_path: Path) -> None:
    """Links out of the folder still lead there, links into it lead into the copy; nothing else is copied."""
    copies.make()

    copy = copies.folder
    assert (copy / "package" / "model.py").read_text() == "x = 1\n"
    assert (copy / "data" / "image").read_text() == "pixels"
    assert (copy / "data").resolve() == tmp_path / "data"
    assert (copy / "inside").resolve() == (copy / "package").resolve()
    assert (copy / "relative").resolve() == (copy / "package" / "model.py").resolve()
    assert not (copy / "whyidle-runs").exists()
    assert not (copy / "pipe").exists()


def test_copy_is_fresh_each_time(copies: WorkdirCopies, folder: Path) -> None:
    """What one run left, changed or locked is not there for the next, and never in the original."""
    copies.make()
    (copies.folder / "train.py").write_text("changed")
    (copies.folder / "checkpoint").mkdir()
    (copies.folder / "checkpoint" / "state").write_text("1")
    (copies.folder / "checkpoint").chmod(0o500)

    copies.make()

    assert not (copies.folder / "checkpoint").exists()
    assert (copies.folder / "train.py").read_text() == "print()\n"
    assert not (folder / "checkpoint").exists()


def test_nothing_is_left_at_the_end(folder: Path) -> None:
    """The copy goes, the original stays."""
    copies = WorkdirCopies(folder)
    copies.make()

    copies.close()

    assert not copies.folder.parent.exists()
    assert (folder / "train.py").exists()


def test_paths_in_the_command_point_into_the_copy(
    copies: WorkdirCopies, folder: Path
) -> None:
    """Also behind the `=` of an option; paths elsewhere and relative ones stay."""
    words = [
        "python",
        f"{folder}/train.py",
        f"--out={folder}",
        "--in=/data",
        "x",
        f"{folder}2/y",
    ]

    moved = copies.in_copy(words)

    copy = copies.folder
    assert moved == ["python", f"{copy}/train.py", f"--out={copy}", "--in=/data", "x", f"{folder}2/y"]  # fmt: skip
    assert copies.in_original(f"{copy}/train.py") == f"{folder}/train.py"
    environment = copies.environment({"PYTHONPATH": f"{folder}/package:/else"})
    assert environment == {"PWD": str(copy), "PYTHONPATH": f"{copy}/package:/else"}


@pytest.mark.parametrize(("name", "limit"), [("MAX_COPY_BYTES", 10), ("MAX_COPY_FILES", 1)])
def test_large_folder_is_refused(
    folder: Path, name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is copied, with what to do instead."""
    monkeypatch.setattr(workdir, name, limit)

    with pytest.raises(UsageError) as raised:
        WorkdirCopies(folder)

    assert raised.value.slug == "workdir-too-large"
    assert "--workdir here" in raised.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_folder_is_refused(folder: Path) -> None:
    """The message names it."""
    (folder / "package").chmod(0)

    with pytest.raises(UsageError, match="package") as raised:
        WorkdirCopies(folder)

    (folder / "package").chmod(0o700)
    assert raised.value.slug == "workdir-unreadable"


def test_copy_that_does_not_fit_is_said(
    copies: WorkdirCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is a user's problem with a hint, no traceback."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)

    with pytest.raises(UsageError, match="No space left") as raised:
        copies.make()

    assert raised.value.slug == "workdir-no-room"
