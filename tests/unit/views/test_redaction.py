"""A verdict for strangers."""

from __future__ import annotations

import json

import pytest

from tests.verdicts import make_cause, make_run, make_verdict, missing
from whyidle.model.findings import Activity, Forecast, Place, Prescription
from whyidle.views.redaction import hide_folders, redact_verdict


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/a/b/c.py", "…/c.py"),
        ("~/a/c.py and ../x/y", "…/c.py and …/y"),
        ("--out=/a/b 'x /q/r'", "--out=…/b 'x …/r'"),
        ("held up by I/O at 3 MB/s", "held up by I/O at 3 MB/s"),
        ("on /mnt/private (nfs4)", "on …/ (nfs4)"),
    ],
)
def test_folders_of_paths_are_hidden(text: str, shown: str) -> None:
    """The last part of a path stays, units and rates are no paths."""
    assert hide_folders(text) == shown


def test_redacted_verdict_has_no_folder_anywhere() -> None:
    """Wherever a path may stand in a verdict, its folders are gone."""
    place = Place(file="/secret/one.py", mount="/secret/two (nfs4)")
    verdict = make_verdict(
        make_cause(Activity.STORAGE, file="secret/three.py", mount="/secret/four (ext4)"),
        make_cause(Activity.COMPUTE, share=0.1).__class__(
            activity=Activity.COMPUTE,
            regime=make_cause().regime,
            share=0.0,
            idle_ns=0,
            where=place,
            evidence=make_cause(
                Activity.COMPUTE, make_cause().regime, 1.0, "read /secret/x"
            ).evidence,
        ),
        run=make_run(
            command=("/secret/bin/python", "secret/train.py", "--data=secret/set")
        ),
        sentence="reading files (/secret/set (fuse.sshfs))",
        not_observed=(missing("no-x", "cannot read /secret/y: denied"),),
        prescriptions=(
            Prescription(
                remedy="pack-files",
                where=place,
                title="pack /secret/set",
                how="see /secret/set/readme",
                automatic=False,
                forecast=Forecast(speedup=2, low=1.5, high=2.5, basis="event simulation"),
            ),
        ),
    )

    assert "secret" not in json.dumps(redact_verdict(verdict).to_json())
