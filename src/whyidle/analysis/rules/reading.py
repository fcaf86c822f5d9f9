"""What the rules about reading share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from whyidle.analysis.loader_model import Label
from whyidle.analysis.rules.case import name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.analysis.forecast import Change
    from whyidle.model.findings import Cause


REMOTE = re.compile(
    r"\((nfs|cifs|smb|fuse|ceph|lustre|gpfs|beegfs|9p|afs|glusterfs)", re.IGNORECASE
)
"""Types of file systems whose data lies on another machine."""


def is_remote(cause: Cause) -> bool:
    """Tell whether what is read comes from another machine."""
    at_mount = REMOTE.search(cause.where.mount or "") is not None
    return cause.activity is Activity.NETWORK or at_mount


def where_read(cause: Cause) -> str:
    """Say what is read where: `files on /data (nfs4), in read_record (train.py:18)`."""
    what = "files" if cause.activity is Activity.STORAGE else "the network"
    mount = f" on {cause.where.mount}" if cause.where.mount else ""
    code = (
        f", in {name_place(cause.where)}"
        if cause.where.function or cause.where.file
        else ""
    )
    return f"{what}{mount}{code}"


def reading_change(causes: Sequence[Cause], left_ratio: float, base: Change) -> Change:
    """Leave this part of the waiting for answers; where `base` says so for all storage, only of the network's."""
    wanted = [
        one
        for one in causes
        if base.storage_factor is None or one.activity is Activity.NETWORK
    ]
    return replace(base, scaled=tuple((Label.of(one), left_ratio) for one in wanted))
