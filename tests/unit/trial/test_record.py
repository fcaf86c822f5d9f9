"""The folder of a try: forecasts first and untouched, the report whole at any moment."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.trial.reports import make_report, make_result
from whyidle.errors import RunFolderError
from whyidle.trial import record

if TYPE_CHECKING:
    from pathlib import Path


def test_forecasts_are_written_once_with_their_hash(tmp_path: Path) -> None:
    """The hash is that of the file; a second forecast cannot replace the first."""
    candidate = make_result(num_workers=4).candidate

    digest = record.write_forecasts(tmp_path, [candidate], ["python", "train.py"])

    data = (tmp_path / record.FORECAST_NAME).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    content = json.loads(data)
    assert content["candidates"][0]["settings"] == {"num_workers": 4}
    assert content["candidates"][0]["forecast"]["speedup"] == 1.9
    assert content["written"]
    with pytest.raises(FileExistsError):
        record.write_forecasts(tmp_path, [], [])


def test_report_is_what_fix_needs(tmp_path: Path) -> None:
    """The best proven change, with file and line, and every candidate beside its forecast."""
    report = make_report(
        make_result(num_workers=4), make_result(in_order=False, proven=False)
    )

    record.write_report(tmp_path, report)

    content = json.loads((tmp_path / record.REPORT_NAME).read_text())
    assert content["schema_version"] == 1
    assert content["best"] == {
        "settings": {"num_workers": 4}, "speedup": 2.0, "low": 1.8, "high": 2.2,
        "arguments": "num_workers=4", "other": [], "file": "/job/train.py", "line": 71,
    }  # fmt: skip
    assert content["loader"]["settings"] == {"num_workers": 2, "prefetch_factor": 2}
    assert [one["verdict"] for one in content["candidates"]] == ["proven", "no-gain"]
    assert [one["forecast_hit"] for one in content["candidates"]] == [True, False]
    assert [path.name for path in tmp_path.iterdir()] == [record.REPORT_NAME]


def test_folders_do_not_meet(tmp_path: Path) -> None:
    """Two tries in the same second have two folders."""
    first, second = (record.create_trial_dir(tmp_path / "runs") for _ in range(2))

    assert first != second
    assert {one.name for one in first.iterdir()} == {"runs", "output"}


def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """A file in its place is a user's problem."""
    (tmp_path / "runs").write_text("")

    with pytest.raises(RunFolderError) as raised:
        record.create_trial_dir(tmp_path / "runs")

    assert raised.value.slug == "run-folder-not-writable"
