"""Ask whyidle, from one recorded run alone, what each change that other arms really make would gain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scenarios.bench.answers import answer_from_verdict, right_about
from scenarios.bench.arms import Arm, arms_of
from scenarios.truth import Scenario, TrueCause

CHANGE_ARMS = {"cured", "parts", "changes"}
"""Groups of arms that make a change which can be forecast."""
LOADER_FIELDS = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "persistent_workers": "persistent",
    "pin_memory": "pinned",
    "in_order": "in_order",
}
"""Arguments of a DataLoader, and the field of a change that says the same."""

UNNAMED = "the verdict does not name the planted cause, or the model has no work of it"
CURES: dict[str, dict[str, Any]] = {
    "throttled": {"quota_removed": True},
    "startup": {"persistent": True},
    "sampler": {"sampler_factor": 0.0},
    "lock-bound": {"lock_removed": True},
    "inactive-workers": {"rebalanced": True},
}
"""Activity or regime of a planted cause, and what removing it means where it is not making a function shorter."""


def forecast_run(
    run: Path | None, verdict: dict[str, Any], scenario: Scenario, setting: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Give the forecasts of one recorded run, and why there are none.

    Nothing that goes wrong here may end a bench of hours: it is written down instead.
    """
    if run is None:
        return [], "no run folder was written"
    try:
        return forecast_folder(run, verdict, scenario, setting)
    except Exception as error:  # noqa: BLE001  (see above)
        return [], f"{type(error).__name__}: {error}"[:300]


def forecast_folder(
    run: Path, verdict: dict[str, Any], scenario: Scenario, setting: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Build the model of a run once, and forecast every change with it."""
    from whyidle.analysis.align import build_timeline
    from whyidle.analysis.forecast import Change, forecast_all, rate_bound
    from whyidle.analysis.loader_model import Label
    from whyidle.analysis.workload import build_model
    from whyidle.model.verdict_json import parse_verdict
    from whyidle.store.rundir import load_tables

    causes = parse_verdict(verdict).causes
    labels = [Label.of(cause) for cause in causes]
    timeline = build_timeline(load_tables(run))
    ranks = [rank for rank in timeline.ranks if len(rank.steps)]
    if not ranks:
        return [], "no steps were recorded"
    rank = ranks[0] if len(ranks) == 1 else most_idle(timeline, ranks)
    model = build_model(timeline, rank, list(dict.fromkeys(labels)))
    if hasattr(model, "reason"):
        return [], str(model.reason)
    wanted = [
        (arm, fields_of(arm, scenario, verdict, labels, set(model.labels)))
        for arm in arms_of(scenario, setting, CHANGE_ARMS, [])
    ]
    known = [(arm, Change(**fields)) for arm, fields in wanted if fields is not None]
    forecasts = forecast_all(model, [change for _, change in known])
    found = [
        entry_of(arm, given)
        | {
            "rate_bound": float(rate_bound(model, change)),
            "blame_guess": blame_guess(arm, scenario, verdict),
        }
        for (arm, change), given in zip(known, forecasts, strict=True)
    ]
    unsaid = [
        {"arm": arm.name, "withheld": UNNAMED} for arm, fields in wanted if fields is None
    ]
    return [*found, *unsaid], None


def most_idle(timeline: Any, ranks: list[Any]) -> Any:
    """Give the rank with most idle time, for which whyidle prescribes as well."""
    from whyidle.analysis.contention import assess_contention
    from whyidle.analysis.idle import split_idle

    def idle_ns(rank: Any) -> int:
        split = split_idle(rank, assess_contention(timeline, rank).reason)
        return int(split.idle.total_ns())

    return max(ranks, key=idle_ns)


def entry_of(arm: Arm, given: Any) -> dict[str, Any]:
    """Write down one forecast, or the reason why it was withheld."""
    if hasattr(given, "reason"):
        return {"arm": arm.name, "withheld": str(given.reason)}
    return {
        "arm": arm.name,
        "speedup": float(given.speedup),
        "low": float(given.low),
        "high": float(given.high),
    }


def fields_of(
    arm: Arm,
    scenario: Scenario,
    verdict: dict[str, Any],
    labels: list[Any],
    known: set[Any],
) -> dict[str, Any] | None:
    """Say an arm's change in the fields of a `Change`.

    Args:
        arm: What is run.
        scenario: Of which training.
        verdict: What whyidle said.
        labels: What the verdict's causes are called in the model, in their order.
        known: Labels that the model has work of.

    Returns:
        None when the verdict does not name what is removed, or the model knows nothing of it.
    """
    if arm.loader:
        return {LOADER_FIELDS[name]: value for name, value in arm.loader}
    fields: dict[str, Any] = {}
    for planted in removed_by(arm, scenario):
        named = matching(planted, scenario, verdict, labels)
        own = fields_of_cure(planted, [label for label in named if label in known])
        if own is None:
            return None
        for name, value in own.items():
            fields[name] = (
                fields.get(name, ()) + value if isinstance(value, tuple) else value
            )
    return fields


def removed_by(arm: Arm, scenario: Scenario) -> tuple[TrueCause, ...]:
    """List the planted causes that an arm removes."""
    return scenario.causes if arm.cause is None else (scenario.causes[arm.cause],)


def fields_of_cure(planted: TrueCause, labels: list[Any]) -> dict[str, Any] | None:
    """Say the removal of one planted cause; what the activity does not tell stands in truth.toml."""
    if planted.change:
        return planted.change
    if planted.activity == "cpu-queue":
        alone = {"neighbour_removed": True} if planted.place.process else None
        return alone or {"cpus": os.cpu_count()}
    said = CURES.get(planted.regimes[0]) or CURES.get(planted.activity)
    if said is not None:
        return said
    if not labels:
        return None
    removed = tuple((label, 0.0) for label in labels)
    in_loop = planted.activity in {"python", "sync", "launch"}
    return {"loop_removed": removed} if in_loop else {"scaled": removed}


def matching(
    planted: TrueCause, scenario: Scenario, verdict: dict[str, Any], labels: list[Any]
) -> list[Any]:
    """Give the labels of the verdict's causes that are the planted one."""
    candidates = answer_from_verdict(verdict).candidates
    rights = [right_about(it, planted, scenario) for it in candidates]
    return list(
        dict.fromkeys(
            label
            for label, right in zip(labels, rights, strict=True)
            if right.activity and right.place is not False
        )
    )


def blame_guess(arm: Arm, scenario: Scenario, verdict: dict[str, Any]) -> float | None:
    """Guess as one does from blame alone: the idle time that is blamed on what is removed goes away."""
    if arm.loader:
        return None
    candidates = answer_from_verdict(verdict).candidates
    share = sum(
        it.share or 0.0
        for it in candidates
        if any(
            right.activity and right.place is not False
            for right in (
                right_about(it, planted, scenario) for planted in removed_by(arm, scenario)
            )
        )
    )
    gone = min(share * (verdict["idle_ratio"] or 0.0), 0.99)
    return 1 / (1 - gone)
