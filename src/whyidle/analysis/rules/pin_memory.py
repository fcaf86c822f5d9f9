"""`pin-memory`: batches in page-locked memory, from which a CUDA device copies faster and beside other work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

WITHOUT_CUDA = "there is no CUDA device to copy to"


def propose(case: Case) -> Iterator[Proposal]:
    """Pin, where a CUDA device is fed; elsewhere torch ignores the argument."""
    if case.loader is None or case.loader.pinned or case.loader.workers == 0:
        return
    is_cuda = case.rank.device_kind == "cuda"
    yield Proposal(
        remedy="pin-memory",
        title="pin batches in memory",
        how=f"Set pin_memory=True in {case.loader_name}, and copy with `.to(device, non_blocking=True)`.",
        where=case.built_at,
        change=Change(pinned=True) if is_cuda else Change(),
        automatic=is_cuda,
        settings=make_settings({"pin_memory": True}) if is_cuda else (),
        is_common=True,
        in_vain="copies are not what is waited for" if is_cuda else WITHOUT_CUDA,
    )
