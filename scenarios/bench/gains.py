"""Grades of forecasts: from one recorded run, against what the change really gained."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.bench.cells import Cell
from scenarios.bench.stats import (
    Estimate,
    kendall_tau,
    median,
    proportion,
    quantile,
    quantile_of,
)
from scenarios.truth import TrueCause

HEALTHY_GAIN = 1.05
"""On a healthy control no forecast may promise more."""
PREDICTORS = {
    "speedup": "whyidle",
    "rate_bound": "rate bound",
    "blame_guess": "blame share",
}
ARGUMENTS = {
    "raise-workers": "num_workers",
    "lower-workers": "num_workers",
    "raise-prefetch": "prefetch_factor",
    "persistent-workers": "persistent_workers",
    "out-of-order": "in_order",
    "pin-memory": "pin_memory",
}
"""Remedies that set an argument of the loader."""

REMOVES: dict[str, tuple[str, str | None]] = {
    "limit-threads": ("cpu-queue", "threads_limited"),
    "raise-cpu-quota": ("throttled", None),
    "remove-neighbour": ("cpu-queue", None),
    "unpin-cpus": ("cpu-queue", None),
    "fewer-tensors": ("transport", "tensors_factor"),
    "smaller-batch-bytes": ("transport", "bytes_factor"),
    "cheaper-sampler": ("sampler", None),
    "remove-lock": ("lock", None),
    "avoid-sync": ("sync", None),
    "async-checkpoint": ("python", None),
    "vectorise-metric": ("python", None),
    "batch-launches": ("launch", None),
    "balance-ranks": ("collective", None),
}
"""Remedies without a function: the activity they take away, and the field of truth's `change` if it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One forecast beside its measurement, both steps a second after over before."""

    cell: str
    arm: str
    kind: str
    """`loader` or `code`."""
    measured: float
    noise: float
    """How far two equal measurements are apart, as a part; see `noises`."""
    forecast: dict[str, float]
    """Predictor → its gain."""
    low: float
    high: float

    def error(self, predictor: str) -> float:
        """Give the signed error of the step time after the change, as a part of it."""
        return self.measured / self.forecast[predictor] - 1

    def excess(self, predictor: str) -> float:
        """Give how much of the error noise does not account for."""
        return max(0.0, abs(self.error(predictor)) - self.noise)

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured gain, noise of the measurement included."""
        return self.low / (1 + self.noise) <= self.measured <= self.high * (1 + self.noise)


def gains(cells: Sequence[Cell]) -> list[Gain]:
    """Match each forecast with the arm that really made the change."""
    return [
        gain_of(cell, entry, measured, noise)
        for cell, noise in noises(cells)
        for row in cell.verdicts()
        for entry in row.forecasts
        if "speedup" in entry
        for measured in [cell.speedup(entry["arm"])]
        if measured is not None
    ]


def prescribed_gains(cells: Sequence[Cell]) -> list[Gain]:
    """Match the forecast of each prescription with the arm that makes just that change, where there is one."""
    return [
        gain_of(cell, prescription["forecast"] | {"arm": arm}, measured, noise)
        for cell, noise in noises(cells)
        for row in cell.verdicts()
        for prescription in (row.verdict or {}).get("prescriptions") or []
        for arm in [arm_of(prescription, cell, exact=True)]
        if arm is not None
        for measured in [cell.speedup(arm)]
        if measured is not None
    ]


def noises(cells: Sequence[Cell]) -> Iterator[tuple[Cell, float]]:
    """Give each cell with its repeat noise, at least that of the median cell: two runs may agree by chance."""
    known = [it for it in (cell.repeat_noise() for cell in cells) if it is not None]
    typical = statistics.median(known) if known else 0.0
    for cell in cells:
        yield cell, max(cell.repeat_noise() or 0.0, typical)


def gain_of(cell: Cell, entry: dict[str, Any], measured: float, noise: float) -> Gain:
    """Put a forecast beside its measurement."""
    given = {name: float(entry[name]) for name in PREDICTORS if entry.get(name) is not None}
    return Gain(
        cell=cell.name,
        arm=entry["arm"],
        kind="loader" if entry["arm"].startswith("change:") else "code",
        measured=measured,
        noise=noise,
        forecast=given,
        low=float(entry["low"]),
        high=float(entry["high"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How good the forecasts of a kind are."""

    median: Estimate | None
    """Of the size of the error, as a part of the step time after the change."""
    p90: Estimate | None
    median_beyond_noise: float | None
    p90_beyond_noise: float | None
    bias: Estimate | None
    """Median signed error; above 0: the change is really better than forecast."""
    coverage: Estimate | None
    """None for predictors without an interval."""


def accuracy(found: Sequence[Gain], predictor: str) -> Accuracy:
    """Sum up the errors of one predictor."""
    known = [it for it in found if predictor in it.forecast]
    errors = [abs(it.error(predictor)) for it in known]
    beyond = [it.excess(predictor) for it in known]
    covered = sum(it.covered for it in known) if predictor == "speedup" else 0
    return Accuracy(
        median=median(errors),
        p90=quantile_of(errors, 0.9),
        median_beyond_noise=statistics.median(beyond) if beyond else None,
        p90_beyond_noise=quantile(beyond, 0.9) if beyond else None,
        bias=median([it.error(predictor) for it in known]),
        coverage=proportion(covered, len(known)) if predictor == "speedup" else None,
    )


def rank_agreement(found: Sequence[Gain], predictor: str) -> Estimate | None:
    """Give the median Kendall's τ over cells with at least three changes."""
    by_cell: dict[str, list[Gain]] = defaultdict(list)
    for it in found:
        if predictor in it.forecast:
            by_cell[it.cell].append(it)
    taus = [
        tau
        for them in by_cell.values()
        if len(them) >= 3
        for tau in [
            kendall_tau(
                [it.forecast[predictor] for it in them], [it.measured for it in them]
            )
        ]
        if tau is not None
    ]
    return median(taus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What following the first prescription costs against the best change that was measured."""

    cell: str
    chosen: str | None
    """The arm that makes the first prescription; None: no arm does, so its gain is not known."""
    regret: float | None
    """Step time with the first prescription less that with the best, as a part of the unchanged step."""


def regrets(cells: Iterable[Cell]) -> list[Regret]:
    """Follow the first prescription of each verdict on a starved training."""
    found = []
    for cell in cells:
        before_s = cell.step_s("without")
        after = {
            arm: cell.step_s(arm)
            for arm in cell.arms
            if arm.startswith(("cured", "change:"))
        }
        known = {arm: it for arm, it in after.items() if it is not None}
        if before_s is None or not known or not cell.scenario.causes:
            continue
        for row in cell.verdicts():
            prescriptions = (row.verdict or {}).get("prescriptions") or []
            if not prescriptions:
                continue
            arm = arm_of(prescriptions[0], cell)
            regret = None
            if arm in known:
                regret = (known[arm] - min(known.values())) / before_s
            found.append(Regret(cell=cell.name, chosen=arm, regret=regret))
    return found


def arm_of(prescription: dict[str, Any], cell: Cell, *, exact: bool = False) -> str | None:
    """Find the arm that does what is prescribed: the loader argument, or the cure of the place that is named.

    Unless `exact`, another value of the same argument stands for the prescribed one.
    """
    settings = dict(prescription.get("settings") or ())
    argument = ARGUMENTS.get(prescription["remedy"])
    if argument is not None:
        value = settings.get(argument)
        named = f"change:{argument}={value}"
        other = None if exact else nearest_arm(argument, value, cell)
        return named if named in cell.arms else other
    for number, planted in enumerate(cell.scenario.causes):
        if removes(prescription, planted):
            return "cured" if len(cell.scenario.causes) == 1 else f"cured:{number}"
    return None


def removes(prescription: dict[str, Any], planted: TrueCause) -> bool:
    """Say whether a prescription takes a planted cause away: by its place, or by its kind where there is no place."""
    where = prescription.get("where") or {}
    function = (where.get("function") or "").rpartition(".")[2]
    if function and planted.place.functions:
        return function in planted.place.functions
    fields = REMOVES.get(prescription["remedy"])
    if fields is None:
        return False
    activity, change = fields
    return planted.activity == activity and (change is None or change in planted.change)


def nearest_arm(argument: str, value: Any, cell: Cell) -> str | None:
    """Give the arm that sets the same argument to the nearest value; what lies between is read as one step."""
    head = f"change:{argument}="
    arms = [arm for arm in cell.arms if arm.startswith(head)]
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    numbers = [(abs(int(arm.removeprefix(head)) - value), arm) for arm in arms]
    return min(numbers)[1] if numbers else None


def promises_on_healthy(cells: Iterable[Cell]) -> list[tuple[str, float]]:
    """Give forecasts of more than 1.05 on healthy controls: prescriptions and asked-for changes alike."""
    found = []
    for cell in cells:
        if cell.scenario.causes:
            continue
        for row in cell.verdicts():
            prescribed = (row.verdict or {}).get("prescriptions") or []
            given = [(it["remedy"], it["forecast"]["speedup"]) for it in prescribed]
            given += [(it["arm"], it["speedup"]) for it in row.forecasts if "speedup" in it]
            found += [
                (f"{cell.name} {name}", gain) for name, gain in given if gain > HEALTHY_GAIN
            ]
    return found
