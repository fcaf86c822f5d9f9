"""`unpin-cpus`: the training may use all CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.contention import Reason
from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Place
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Lift the affinity mask, where it is what the workers queue behind."""
    contention = case.contention
    if contention.reason is not Reason.MASK:
        return
    yield Proposal(
        remedy="unpin-cpus",
        title=f"all {contention.cpu_count} CPUs instead of {contention.allowed_count}",
        how="An affinity mask keeps the training on "
        f"{contention.allowed_count} of {contention.cpu_count} CPUs. Take it away where it is set: `taskset` or "
        "`numactl` in front of the command, the launcher's CPU binding (Slurm: --cpus-per-task, --cpu-bind=none), "
        "or `os.sched_setaffinity` in the script.",
        where=Place(),
        change=Change(cpus=contention.cpu_count),
        automatic=True,
        settings=make_settings({"cpus": "all"}),
    )
