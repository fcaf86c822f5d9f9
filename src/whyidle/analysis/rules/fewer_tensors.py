"""`fewer-tensors`: a batch has fewer, larger tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

MANY_TENSORS = 12
"""Each tensor of a batch is a shared-memory object and costs about 0.25 ms; 12 of them 3 ms, a short step."""
PACKED_TENSORS = 4
"""What is left: values, offsets, and two more."""


def propose(case: Case) -> Iterator[Proposal]:
    """Pack small tensors, where handing batches over is what is waited for."""
    count = case.batch_tensors
    if not case.causes_of(Activity.TRANSPORT) or count < MANY_TENSORS:
        return
    yield Proposal(
        remedy="fewer-tensors",
        title=f"{PACKED_TENSORS} tensors a batch instead of {count:.0f}",
        how=f"A batch travels as {count:.0f} separate tensors, and each costs a shared-memory object, whatever its "
        "size. In collate_fn of "
        f"{case.loader_name}, concatenate what differs in length (`torch.cat(labels)`) and send the lengths along as "
        "one tensor; split again in the loop (`.split(lengths)`).",
        where=case.built_at,
        change=Change(tensors_factor=PACKED_TENSORS / count),
    )
