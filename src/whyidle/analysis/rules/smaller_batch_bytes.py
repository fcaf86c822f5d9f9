"""`smaller-batch-bytes`: a batch weighs less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Activity
from whyidle.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LARGE_BYTES = 4_000_000
"""Below 4 MB a batch's copies take about 1 ms, less than its handing over."""
BYTE_RATIO = 0.25
"""uint8 instead of float32."""


def propose(case: Case) -> Iterator[Proposal]:
    """Send bytes, where handing large batches over is what is waited for."""
    size = case.batch_bytes
    if not case.causes_of(Activity.TRANSPORT) or size < LARGE_BYTES:
        return
    yield Proposal(
        remedy="smaller-batch-bytes",
        title="a quarter of a batch's bytes",
        how=f"A batch is {format_bytes(size)}, copied by collate and again by whoever receives it. "
        "Send images as uint8 and convert on the device (`batch.to(device).float().div_(255)`), masks as uint8 or "
        "bool, and points instead of maps drawn from them.",
        where=case.built_at,
        change=Change(bytes_factor=BYTE_RATIO),
    )
