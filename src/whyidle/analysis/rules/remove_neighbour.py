"""`remove-neighbour`: another process goes elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Send the neighbour away, where it takes the CPUs that the workers queue for."""
    contention = case.contention
    if contention.reason is not Reason.NEIGHBOUR:
        return
    name = contention.neighbour or "other programs"
    used = contention.other_cpus or 0.0
    yield Proposal(
        remedy="remove-neighbour",
        title=f"the machine without {name}",
        how=f"Other programs use {used:.1f} of {contention.cpu_count} CPUs, most of it {name}. Stop it or move it, "
        f"give it the lowest priority (`renice 19 -p PID`), or keep it to few CPUs (`taskset -cp 0 PID`).",
        where=Place(process=contention.neighbour),
        change=Change(neighbour_removed=True),
    )
