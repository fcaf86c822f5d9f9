"""`cheaper-sampler`: drawing indices becomes cheaper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal, name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

LEFT_RATIO = 0.1
"""Drawing many indices at once costs a hundredth of drawing them one by one; a tenth leaves room for the rest."""


def propose(case: Case) -> Iterator[Proposal]:
    """Draw at once, where the loop waits for its own sampler."""
    for cause in case.causes_of(Activity.SAMPLER)[:1]:
        line = case.source_line(cause.where)
        seen = f": `{line}`" if line else ""
        yield Proposal(
            remedy="cheaper-sampler",
            title="draw the indices of many batches at once",
            how=f"The main process draws each batch's indices itself, in {name_place(cause.where)}{seen}, while the "
            "workers wait. Draw a whole epoch at once in `__iter__` (`torch.randperm(n).tolist()`, "
            "`torch.multinomial(weights, n, replacement=True).tolist()`, `rng.choice(n, size=count, p=weights)`), "
            "sort or search once, and yield from the list. The forecast is for a tenth of the time.",
            where=cause.where,
            change=Change(sampler_factor=LEFT_RATIO),
        )
