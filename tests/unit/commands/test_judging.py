"""Sources that are handed to analysis: as they were when the run began, or with the reason why not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from whyidle.commands.judging import CLOCK_SLACK_NS, MAX_SOURCE_BYTES, SourceFiles

if TYPE_CHECKING:
    from pathlib import Path

START_UNIX_NS = 1_700_000_000_000_000_000


def _script(folder: Path, text: str = "pass\n", changed_unix_ns: int = 0) -> Path:
    script = folder / "train.py"
    script.write_text(text)
    os.utime(script, ns=(changed_unix_ns, changed_unix_ns))
    return script


def test_source_is_read_from_the_run_s_folder(tmp_path: Path) -> None:
    """The interpreter knew a script by the path that was typed."""
    _script(tmp_path)

    read = SourceFiles({"working_dir": str(tmp_path), "start_unix_ns": START_UNIX_NS})

    assert read("train.py").text == "pass\n"


def test_source_that_changed_since_the_run_is_not_shown(tmp_path: Path) -> None:
    """Its lines are no longer those that were hot; a second of the file system's clock is forgiven."""
    old = _script(tmp_path, changed_unix_ns=START_UNIX_NS + CLOCK_SLACK_NS)
    assert SourceFiles({"start_unix_ns": START_UNIX_NS})(str(old)).text == "pass\n"

    new = _script(tmp_path, changed_unix_ns=START_UNIX_NS + 2 * CLOCK_SLACK_NS)
    found = SourceFiles({"start_unix_ns": START_UNIX_NS})(str(new))

    assert (found.text, found.reason) == (None, "it has changed since the run")


def test_what_is_no_script_has_a_reason(tmp_path: Path) -> None:
    """Missing, a folder, no text, too large: never a crash."""
    binary, large = tmp_path / "binary.py", tmp_path / "large.py"
    binary.write_bytes(b"\xff\xfe\x00")
    large.write_bytes(b"#" * (MAX_SOURCE_BYTES + 1))
    read = SourceFiles({})

    for path in (tmp_path / "missing.py", tmp_path, binary, large, "\0"):
        found = read(str(path))
        assert found.text is None
        assert found.reason
