"""`batch-launches`: many small launches become few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop, name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LEFT_RATIO = 0.3
"""Graphs and fused optimisers launch once for tens of kernels; what is not captured stays."""


def propose(case: Case) -> Iterator[Proposal]:
    """Launch in one go, where the host issues work more slowly than the device does it."""
    for cause in case.causes_of(Activity.LAUNCH)[:1]:
        yield Proposal(
            remedy="batch-launches",
            title="launch work in larger pieces",
            how=f"The device is done before {name_place(cause.where)} has issued the next piece. "
            "`torch.compile(model, mode='reduce-overhead')` or CUDA graphs replay a whole step at once, "
            "`fused=True` or `foreach=True` does it for the optimiser; a larger batch also helps. The forecast is for "
            "a third of the launches' time.",
            where=cause.where,
            change=in_loop(cause, LEFT_RATIO),
        )
