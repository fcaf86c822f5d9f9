"""Forecasts for what can be injected, from the recorded run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change, forecast_all
from whyidle.analysis.loader_model import Label, LoaderModel
from whyidle.analysis.workload import build_model
from whyidle.model.findings import Forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.model.findings import Verdict
    from whyidle.model.remedies import Settings
    from whyidle.model.timeline import RankTimeline, Timeline

TORCH_PREFETCH = 2
"""prefetch_factor of a loader with workers that does not say."""
NOT_SIMULATED = "how tensors travel between processes is not simulated"


def forecast_settings(
    timeline: Timeline, rank: RankTimeline, verdict: Verdict, arms: Sequence[Settings]
) -> list[Forecast | str]:
    """Forecast what each set of settings would gain.

    Args:
        timeline: The recorded run.
        rank: The rank that speaks for it.
        verdict: Its verdict; the causes tell the simulation what to keep apart.
        arms: Sets of settings.

    Returns:
        For each a Forecast, or in words why there is none.
    """
    model = build_model(timeline, rank, [Label.of(cause) for cause in verdict.causes])
    if not isinstance(model, LoaderModel):
        return [model.reason for _ in arms]
    changes = [
        to_change(one, model.settings.workers, timeline.machine.cpu_count) for one in arms
    ]
    answers = iter(forecast_all(model, [one for one in changes if one is not None]))
    found: list[Forecast | str] = []
    for change in changes:
        answer = next(answers) if change is not None else None
        if answer is None:
            found.append(NOT_SIMULATED)
        else:
            found.append(answer if isinstance(answer, Forecast) else answer.reason)
    return found


def to_change(settings: Settings, workers: int, cpu_count: int) -> Change | None:
    """Give the simulation's form of a change; None when it does not know one of the settings.

    Args:
        settings: What is injected.
        workers: num_workers as recorded.
        cpu_count: CPUs of the machine.
    """
    values = dict(settings)
    if "sharing_strategy" in values:
        return None
    count = values.get("num_workers")
    prefetch = values.get("prefetch_factor")
    if count and not workers and prefetch is None:
        prefetch = TORCH_PREFETCH
    return Change(
        workers=None if count is None else int(count),
        prefetch=None if prefetch is None else int(prefetch),
        persistent=_flag(values.get("persistent_workers")),
        pinned=_flag(values.get("pin_memory")),
        in_order=_flag(values.get("in_order")),
        threads_limited="worker_threads" in values,
        cpus=cpu_count if values.get("cpus") == "all" else None,
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
