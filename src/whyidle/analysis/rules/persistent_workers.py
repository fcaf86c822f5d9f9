"""`persistent-workers`: workers that live through all epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change
from whyidle.analysis.rules.case import Proposal
from whyidle.model.remedies import make_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whyidle.analysis.rules.case import Case


def propose(case: Case) -> Iterator[Proposal]:
    """Keep the workers, where epochs begin within the run."""
    loader = case.loader
    if loader is None or loader.workers == 0 or loader.persistent:
        return
    passes = [
        one
        for one in case.rank.iterations.values()
        if one.loader == loader.loader and one.start_ns >= case.rank.window_start_ns
    ]
    if not passes:
        return
    yield Proposal(
        remedy="persistent-workers",
        title="keep the workers from epoch to epoch",
        how=f"Set persistent_workers=True in {case.loader_name}. Workers then keep what they opened and imported; a "
        "data set that is changed between epochs from outside would not notice.",
        where=case.built_at,
        change=Change(persistent=True),
        automatic=True,
        settings=make_settings({"persistent_workers": True}),
        is_common=True,
        in_vain="starting them costs little of an epoch",
    )
