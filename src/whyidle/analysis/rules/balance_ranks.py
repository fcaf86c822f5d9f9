"""`balance-ranks`: every rank gets as much work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal
from whyidle.model.findings import Activity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Even out the ranks, where one waits for another."""
    for cause in case.causes_of(Activity.COLLECTIVE)[:1]:
        yield Proposal(
            remedy="balance-ranks",
            title="as much work on every rank",
            how="One rank comes late to the exchange and the others wait. Give ranks batches of like cost (a sampler "
            "that groups samples by length, and deals the groups out), and look at the late rank's own causes first.",
            where=cause.where,
            change=None,
            unknown="one rank's records do not say how much earlier the others would come",
        )
