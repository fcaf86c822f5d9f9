"""Which changes are worth a trial: what the verdict prescribes, and what its causes suggest beside that."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whyidle.model.findings import Activity, Limit, Regime
from whyidle.model.remedies import Settings, SettingValue, make_settings
from whyidle.model.trial import Candidate, LoaderSite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whyidle.model.findings import Verdict
    from whyidle.model.timeline import Iteration, RankTimeline

MAX_CANDIDATES = 5
"""Five minutes hold some ten pairs: a first look at each of five, and proof of the best."""
MAX_SUGGESTED_WORKERS = 32
"""More processes than this are for a person to decide."""
NOTABLE_SHARE = 0.1
"""Of the idle time: a cause below it gains at most some percent, whatever is done about it."""
USUAL_PREFETCH = 4
"""Twice torch's default; a saturated loader gains nothing from it, a bursty one does."""

_REMEDY_OF = {
    "prefetch_factor": "raise-prefetch",
    "persistent_workers": "persistent-workers",
    "pin_memory": "pin-memory",
    "in_order": "out-of-order",
    "worker_threads": "limit-threads",
    "cpus": "unpin-cpus",
}
NO_FORECAST = "the recorded run cannot be simulated for this change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of the training that changes are suggested for."""

    workers: int
    prefetch: int
    is_persistent: bool
    is_pinned: bool
    is_in_order: bool
    is_iterable: bool
    """The workers deal out the data themselves: their number is not ours to change."""
    passes: int
    """How often the loader was iterated in the recorded run."""
    allowed_cpus: int
    machine_cpus: int
    has_cuda: bool

    def as_settings(self) -> Settings:
        """Give the loader's arguments as they are."""
        values: dict[str, SettingValue] = {"num_workers": self.workers}
        if self.workers:
            values["prefetch_factor"] = self.prefetch
        values |= {
            "persistent_workers": self.is_persistent,
            "pin_memory": self.is_pinned,
            "in_order": self.is_in_order,
        }
        return make_settings(values)


def read_situation(
    rank: RankTimeline, allowed_cpus: int, machine_cpus: int
) -> tuple[Situation, LoaderSite] | None:
    """Find the loader that fed most steps of a rank, and how it is set; None when there is none."""
    main = _main_iterations(rank)
    if not main:
        return None
    one = main[0]
    situation = Situation(
        workers=one.workers,
        prefetch=one.prefetch,
        is_persistent=one.persistent,
        is_pinned=one.pinned,
        is_in_order=one.in_order,
        is_iterable=one.iterable,
        passes=len(main),
        allowed_cpus=allowed_cpus,
        machine_cpus=machine_cpus,
        has_cuda=rank.device_kind == "cuda",
    )
    site = LoaderSite(
        file=one.build_file, line=one.build_line, settings=situation.as_settings()
    )
    return situation, site


def _main_iterations(rank: RankTimeline) -> list[Iteration]:
    """Give the passes of the loader that answered most asks, in order."""
    asks: dict[int, int] = {}
    for number in rank.steps.iteration.tolist():
        if number in rank.iterations:
            loader = rank.iterations[number].loader
            asks[loader] = asks.get(loader, 0) + 1
    if not asks:
        return []
    most = max(asks, key=lambda loader: asks[loader])
    return [one for one in rank.iterations.values() if one.loader == most]


def suggest(situation: Situation, verdict: Verdict) -> tuple[Candidate, ...]:
    """List changes for a starved loader, most promising first, without forecasts; at most MAX_CANDIDATES."""
    if verdict.limit is Limit.DEVICE:
        return ()
    found: list[dict[str, SettingValue]] = []
    regime = verdict.causes[0].regime if verdict.causes else None
    if situation.allowed_cpus < situation.machine_cpus:
        found.append({"cpus": "all"})
    if _share_of(Activity.CPU_QUEUE, verdict) >= NOTABLE_SHARE and situation.workers:
        found.append({"worker_threads": 1})
    order = _order_change(situation)
    if regime is Regime.HEAD_OF_LINE:
        found += order
    found += _worker_changes(situation)
    if regime is not Regime.HEAD_OF_LINE:
        found += order
    if situation.workers:
        if not situation.is_persistent and situation.passes > 1:
            found.append({"persistent_workers": True})
        found.append({"prefetch_factor": max(USUAL_PREFETCH, 2 * situation.prefetch)})
    if situation.has_cuda and not situation.is_pinned:
        found.append({"pin_memory": True})
    if _share_of(Activity.TRANSPORT, verdict) >= NOTABLE_SHARE and situation.workers:
        found.append({"sharing_strategy": "file_system"})
    settings = [make_settings(one) for one in found][:MAX_CANDIDATES]
    return tuple(make_candidate(one, situation.workers) for one in settings)


def _share_of(activity: Activity, verdict: Verdict) -> float:
    """Part of the idle time that an activity is to blame for."""
    return sum(one.share for one in verdict.causes if one.activity is activity)


def _worker_changes(situation: Situation) -> list[dict[str, SettingValue]]:
    workers, allowed = situation.workers, situation.allowed_cpus
    if situation.is_iterable:
        return []
    if workers == 0:
        return [{"num_workers": max(2, min(4, allowed))}]
    counts = [
        count for count in (2 * workers, 4 * workers) if count <= MAX_SUGGESTED_WORKERS
    ]
    if workers > allowed:
        counts = [allowed, *counts[:1]]
    return [{"num_workers": count} for count in counts]


def _order_change(situation: Situation) -> list[dict[str, SettingValue]]:
    possible = situation.workers > 1 and situation.is_in_order and not situation.is_iterable
    return [{"in_order": False}] if possible else []


def make_candidate(settings: Settings, workers: int) -> Candidate:
    """Give a candidate without a forecast, its remedies named."""
    return Candidate(
        settings=settings,
        remedies=tuple(
            _remedy(name, value, workers)
            for name, value in settings
            if name in _REMEDY_OF or name == "num_workers"
        ),
        forecast=None,
        forecast_missing=NO_FORECAST,
    )


def _remedy(name: str, value: SettingValue, workers: int) -> str:
    if name == "num_workers":
        return "raise-workers" if int(value) > workers else "lower-workers"
    return _REMEDY_OF[name]


def prescribed(verdict: Verdict) -> tuple[Candidate, ...]:
    """List the automatic remedies that the verdict prescribes, with their forecasts."""
    return tuple(
        Candidate(
            settings=one.settings,
            remedies=(one.remedy,),
            forecast=one.forecast,
            forecast_missing=None,
        )
        for one in verdict.prescriptions
        if one.automatic and one.settings
    )


def join(candidates: Sequence[Candidate]) -> Settings | None:
    """Give the settings of several candidates at once; None when two of them set the same thing."""
    names = [name for one in candidates for name, _ in one.settings]
    if len(set(names)) < len(names):
        return None
    return make_settings(dict(pair for one in candidates for pair in one.settings))


def combinations(candidates: Sequence[Candidate], workers: int) -> tuple[Candidate, ...]:
    """List all that two candidates make together, without forecasts."""
    joined = (join(pair) for pair in itertools.combinations(candidates, 2))
    return tuple(make_candidate(one, workers) for one in joined if one is not None)


def with_suggestions(
    prescriptions: Sequence[Candidate], suggestions: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Add suggestions for settings of which nothing is prescribed."""
    named = {name for one in prescriptions for name, _ in one.settings}
    others = [one for one in suggestions if not named & set(dict(one.settings))]
    return (*prescriptions, *others)
