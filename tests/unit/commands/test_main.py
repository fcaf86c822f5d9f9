"""The command line as a whole: help, errors, and what a person never sees."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from whyidle import commands
from whyidle.commands import COMMANDS, load_command, main
from whyidle.errors import RunFolderError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.commands.conftest import Parts

NAMES = [entry.name for entry in COMMANDS]


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` and the package's metadata agree."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"whyidle {metadata.version('whyidle')}\n"


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), ([], 2)])
def test_help_lists_all_commands(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help is what one gets without a command too, but then not as a success."""
    assert main(arguments) == status

    text = capsys.readouterr().out
    assert [name for name in NAMES if f"\n  {name} " in text] == NAMES
    assert "whyidle run --steps 200 -- python train.py" in text


@pytest.mark.parametrize("entry", COMMANDS, ids=NAMES)
def test_summary_is_the_first_line_of_the_docstring(entry: commands.Entry) -> None:
    """The list of commands repeats the docstrings so that help need not import them: they agree."""
    assert (load_command(entry.name).__doc__ or "").partition("\n")[0] == entry.summary


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_has_an_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each help ends with something to type, and fits 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    assert main([name, "--help"]) == 0

    text = capsys.readouterr().out
    assert f"\n  whyidle {name}" in text.partition("\nexample")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names what there is."""
    assert main(["frob"]) == 2

    error = capsys.readouterr().err
    assert "there is no command 'frob'" in error
    assert "docs/messages.md, unknown-command" in error


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def dispatch(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(commands, "_dispatch", dispatch)


def test_error_is_shown_as_a_block_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Message, hint and slug go to stderr, the status is the error's."""
    _fail_with(monkeypatch, RunFolderError("it is gone", slug="no-runs", hint="find it"))

    assert main(["report"]) == 3

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "whyidle: it is gone\n\n  to do  Find it\n  more   docs/messages.md, no-runs\n"
    )


def test_unexpected_error_leaves_its_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A person sees one line and where the traceback is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _fail_with(monkeypatch, ZeroDivisionError("ups"))

    assert main(["report"]) == commands.INTERNAL_ERROR_STATUS

    (kept,) = tmp_path.iterdir()
    error = capsys.readouterr().err
    assert "ZeroDivisionError: ups" in error
    assert "Traceback" not in error
    assert kept.name in error.replace("\n         ", "")
    assert "Traceback" in kept.read_text()


def test_unexpected_error_is_told_without_a_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Where no file can be written the line alone has to do."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    _fail_with(monkeypatch, ZeroDivisionError("ups"))

    assert main(["report"]) == commands.INTERNAL_ERROR_STATUS
    assert "Report it with the traceback. What" in capsys.readouterr().err


def test_interrupt_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C gives the status a shell expects and no traceback."""
    _fail_with(monkeypatch, KeyboardInterrupt())

    assert main(["report"]) == 130
    assert capsys.readouterr().err == ""


def test_reader_that_leaves_is_no_error() -> None:
    """`whyidle --help | head -0` prints nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        result = subprocess.run(
            [sys.executable, "-m", "whyidle", "--help"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (result.returncode, result.stderr) == (commands.BROKEN_PIPE_STATUS, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run"]])
def test_command_line_starts_without_tables_and_screens(arguments: list[str]) -> None:
    """What `whyidle run` loads before the training starts is light."""
    program = (
        "import sys; from whyidle.commands import main; "
        f"main({arguments!r}); import whyidle.observe.launch; "
        "sys.exit(sorted({'numpy', 'polars', 'rich', 'torch'} & set(sys.modules)) or None)"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr


def test_no_command_reaches_the_store_by_help(parts: Parts) -> None:
    """Asking for help starts nothing."""
    main(["run", "--help"])

    assert parts.launched == []
