"""`vectorise-metric`: a metric that is computed element by element becomes array operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop
from whyidle.analysis.rules.loop_code import metrics
from whyidle.analysis.rules.vectorise_loop import LEFT_RATIO, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Replace the loops that stand in the loop's own code."""
    for cause in metrics(case):
        loop = case.loop_at(cause.where)
        if loop is not None:
            name = cause.where.function or loop.function
            title = (
                f"compile the loop of {name}"
                if loop.carried
                else f"write {name} as array operations"
            )
            yield Proposal(
                remedy="vectorise-metric",
                title=title,
                how=f"{explain(loop, cause.where)} Better still on the device, where the results are.",
                where=cause.where,
                change=in_loop(cause, LEFT_RATIO),
            )
