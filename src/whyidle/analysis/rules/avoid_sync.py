"""`avoid-sync`: the loop no longer waits for the device in each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop, name_place
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Read results later, where reading them in each step is what keeps the device idle."""
    for cause in case.causes_of(Activity.SYNC)[:1]:
        line = case.source_line(cause.where)
        seen = f" with `{line}`" if line else ""
        yield Proposal(
            remedy="avoid-sync",
            title="do not wait for the device in every step",
            how=f"In each step the loop waits for the device in {name_place(cause.where)}{seen}, and then the device "
            "for the loop. Keep `loss.detach()` and read it every 50th step, or one step later; move `.item()`, "
            "`.cpu()`, `print(loss)` and `torch.cuda.synchronize()` out of the step.",
            where=cause.where,
            change=in_loop(cause, 0.0),
        )
