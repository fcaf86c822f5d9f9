"""`out-of-order`: batches are taken as they come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case

FIRST_TORCH = (2, 6)
"""The argument `in_order` came with torch 2.6."""


def propose(case: Case) -> Iterator[Proposal]:
    """Give up the order, where several workers make batches."""
    loader = case.loader
    if loader is None or loader.workers < 2 or not loader.in_order or not _has(case.torch):
        return
    yield Proposal(
        remedy="out-of-order",
        title="take batches as they come",
        how=f"Set in_order=False in {case.loader_name}. A slow batch then holds up no other; the order of batches is "
        "no longer the same in every run.",
        where=case.built_at,
        change=Change(in_order=False),
        automatic=True,
        settings=make_settings({"in_order": False}),
        is_common=True,
        in_vain="no finished batch waits for an earlier one",
    )


def _has(torch: str | None) -> bool:
    """Whether this torch knows `in_order`.

    >>> _has("2.13.0+cpu"), _has("2.5.1"), _has(None)
    (True, False, False)
    """
    numbers = re.match(r"(\d+)\.(\d+)", torch or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= FIRST_TORCH
