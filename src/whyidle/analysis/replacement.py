"""What the whole training gains when one function is replaced by one that is so many times faster.

All time below the function counts, its callees' too: the replacement takes the place of everything in it. So the
simulation is made anew with this function as the only label, instead of with the verdict's causes, which may be
several lines within it, or lines of what it calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change, forecast_all
from whyidle.analysis.loader_model import Label, Withheld
from whyidle.analysis.workload import BLOCKED_KINDS, build_model
from whyidle.model.findings import Activity, Forecast, Place

if TYPE_CHECKING:
    from collections.abc import Collection

    from whyidle.analysis.loader_model import LoaderModel
    from whyidle.model.proof import Timing
    from whyidle.model.timeline import Timeline

MIN_SAMPLES = 30
"""Stack samples within the function: its share of 30 is known to a fifth, of fewer it is a guess."""


def forecast_replacement(
    timeline: Timeline, files: Collection[str], function: str, timing: Timing
) -> Forecast | Withheld:
    """Forecast the training with a function's time divided by a measured speedup.

    Args:
        timeline: The run.
        files: The function's file, as frames of the run name it.
        function: Its name, without its class.
        timing: The measured speedup; its interval widens the forecast's.

    Returns:
        A Forecast for the rank with most steps; Withheld where the run does not carry one.
    """
    ranks = [rank for rank in timeline.ranks if len(rank.steps)]
    if not ranks:
        return Withheld("no-steps", "the run has no steps")
    labels = [
        Label(activity, Place(file=file, function=function))
        for file in sorted(files)
        for activity in (Activity.COMPUTE, *BLOCKED_KINDS)
    ]
    model = build_model(timeline, max(ranks, key=lambda rank: len(rank.steps)), labels)
    if isinstance(model, Withheld):
        return model
    found = _samples_in(model)
    if found < MIN_SAMPLES:
        return Withheld(
            "few-samples",
            f"{found} stack samples of the run fell into {function}, at least {MIN_SAMPLES} are needed",
        )
    return _forecast(model, timing)


def _samples_in(model: LoaderModel) -> int:
    return sum(part.sample_count for part in model.parts if part.label is not None)


def _forecast(model: LoaderModel, timing: Timing) -> Forecast | Withheld:
    """Forecast the speedup itself and both ends of its interval."""
    changes = [
        Change(scaled=tuple((label, 1.0 / speedup) for label in model.labels))
        for speedup in (timing.speedup, timing.low, timing.high)
    ]
    middle, low, high = forecast_all(model, changes)
    if isinstance(middle, Withheld):
        return middle
    if isinstance(low, Forecast) and isinstance(high, Forecast):
        return replace(
            middle, low=min(middle.low, low.low), high=max(middle.high, high.high)
        )
    return middle
