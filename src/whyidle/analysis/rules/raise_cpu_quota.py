"""`raise-cpu-quota`: a larger CPU quota for the container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Place
from whyidle.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Lift the quota, where it stops the run."""
    if case.contention.reason is not Reason.QUOTA:
        return
    ratio = format_ratio(case.contention.throttled_ratio or 0.0)
    used = case.contention.tree_cpus
    uses = f" The run uses {used:.1f} CPUs now." if used is not None else ""
    yield Proposal(
        remedy="raise-cpu-quota",
        title="a CPU quota that does not stop the run",
        how=f"The container's CPU quota stopped the run in {ratio} of its periods.{uses} Give it more: "
        "`docker run --cpus N`, `resources.limits.cpu` of the pod, CPUQuota= of the unit; or lift the limit.",
        where=Place(),
        change=Change(quota_removed=True),
    )
