"""`less-logging`: the loop logs less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.rules.case import Proposal, in_loop, name_place
from whyidle.analysis.rules.loop_code import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

EVERY = 20
"""Steps between log lines: a person reads no more than one a second."""


def propose(case: Case) -> Iterator[Proposal]:
    """Log every so many steps, where logging keeps the device waiting."""
    for cause in logs(case)[:1]:
        yield Proposal(
            remedy="less-logging",
            title=f"log every {EVERY}th time only",
            how=f"{name_place(cause.where)} writes a log while the device has nothing to do. Log every {EVERY}th time "
            f"(`if step % {EVERY} == 0`), and keep sums on the device until then.",
            where=cause.where,
            change=in_loop(cause, 1 / EVERY),
        )
