"""Proposals of the rules → prescriptions: what gains, by how much, what gains nothing, and how two act together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whyidle.analysis.forecast import Change, forecast, forecast_all
from whyidle.analysis.loader_model import Withheld
from whyidle.analysis.rules import RULES
from whyidle.model.findings import (
    Activity,
    Aside,
    Forecast,
    Limit,
    Pair,
    Place,
    Prescription,
)
from whyidle.model.remedies import loader_arguments
from whyidle.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whyidle.analysis.loader_model import LoaderModel
    from whyidle.analysis.rules.case import Case, Proposal
    from whyidle.model.findings import Verdict

MIN_SPEEDUP = 1.02
"""A smaller gain drowns in what two runs of one training differ by (1 to 3 %): nobody could see it."""
SAME_SPEEDUP_RATIO = 0.98
"""Of variants of one remedy the cheapest with this part of the best one's steps per second is taken."""
BALANCED_RATIO = 1 / 3
"""The loader is balanced when the best change alone gains less than this part of what the best two gain ..."""
MIN_BALANCED_GAIN = 0.1
"""... and those gain at least a tenth."""
ADDITIVE_RATIO = 0.05
"""Two changes act on each other when both together miss the product of the two by more than this."""
UNSURE = "the interval includes no gain"
READING = (Activity.STORAGE, Activity.NETWORK)


@dataclass(frozen=True, slots=True)
class _Priced:
    """A proposal with its forecast."""

    proposal: Proposal
    forecast: Forecast

    @property
    def gains(self) -> bool:
        """The whole interval lies above no gain, and the gain is large enough to be seen."""
        return self.forecast.low > 1.0 and self.forecast.speedup >= MIN_SPEEDUP


def prescribe(verdict: Verdict, case: Case, model: LoaderModel | Withheld) -> Verdict:
    """Add prescriptions to a verdict, or the reason why there are none.

    Args:
        verdict: Without prescriptions.
        case: The evidence of the rank with most idle time.
        model: That rank's loader.
    """
    if verdict.limit is Limit.UNRESOLVED or case.loader is None:
        return verdict
    if isinstance(model, Withheld):
        return _without(verdict, case, model.reason)
    is_device = verdict.limit is Limit.DEVICE
    proposals = [] if is_device else _propose(case)
    ceiling, priced = _price(model, [one for one in proposals if one.change is not None])
    if isinstance(ceiling, Withheld):
        return _without(verdict, case, ceiling.reason)
    if is_device:
        nothing = _nothing(ceiling)
        return replace(verdict, ceiling=ceiling, prescriptions=(nothing,))
    helpful = [one for one in _choose(priced) if one.gains]
    helpful.sort(key=lambda one: -one.forecast.speedup)
    return replace(
        verdict,
        ceiling=ceiling,
        prescriptions=tuple(map(_prescription, helpful)),
        would_not_help=tuple(_in_vain(priced)),
        may_help=(
            *_unsure(priced),
            *(_aside(one, one.unknown) for one in proposals if one.change is None),
        ),
        pair=_pair(model, helpful),
    )


def _propose(case: Case) -> list[Proposal]:
    return [proposal for rule in RULES for proposal in rule(case)]


def _without(verdict: Verdict, case: Case, reason: str) -> Verdict:
    """Name what fits the causes all the same, and any workers where there are none.

    Other settings of the loader are left out: only a forecast can choose them.
    """
    if verdict.limit is Limit.DEVICE:
        return verdict
    is_alone = case.loader is not None and case.loader.workers == 0
    fitting = [
        one
        for one in _propose(case)
        if (not loader_arguments(one.settings) and not one.is_common)
        or (is_alone and "num_workers" in dict(one.settings))
    ]
    reason = reason.removesuffix(": no forecast")
    firsts = {(one.remedy, one.where): one for one in reversed(fitting)}
    asides = [_aside(one, one.unknown or reason) for one in reversed(firsts.values())]
    return replace(verdict, may_help=tuple(asides))


def _nothing(ceiling: Forecast) -> Prescription:
    return Prescription(
        remedy="none",
        where=Place(),
        title="nothing in the input: the device is the limit",
        how="Batches that cost nothing would gain "
        f"{format_ratio(max(0.0, ceiling.speedup - 1))}. What is left is the device's own work: a faster model, "
        "lower precision, a larger batch, another device.",
        automatic=False,
        forecast=Forecast(speedup=1.0, low=1.0, high=1.0, basis="nothing is changed"),
    )


def _price(
    model: LoaderModel, proposals: Sequence[Proposal]
) -> tuple[Forecast | Withheld, list[_Priced]]:
    """Forecast a loader that costs nothing, and all proposals that have a change."""
    changes = [one.change for one in proposals if one.change is not None]
    ceiling, *forecasts = forecast_all(model, (Change(data_free=True), *changes))
    return ceiling, [
        _Priced(proposal, found)
        for proposal, found in zip(proposals, forecasts, strict=True)
        if isinstance(found, Forecast)
    ]


def _choose(priced: Iterable[_Priced]) -> list[_Priced]:
    """Of the variants of one remedy at one place, keep the cheapest that is about as good as the best."""
    groups: dict[tuple[str, Place], list[_Priced]] = {}
    for one in priced:
        groups.setdefault((one.proposal.remedy, one.proposal.where), []).append(one)
    chosen = []
    for variants in groups.values():
        able = [one for one in variants if one.gains] or variants
        best = max(one.forecast.speedup for one in able)
        good = [one for one in able if one.forecast.speedup >= SAME_SPEEDUP_RATIO * best]
        chosen.append(min(good, key=lambda one: one.proposal.cost))
    return chosen


def _in_vain(priced: list[_Priced]) -> list[Aside]:
    """Say of what people try first, the largest variant of each, that it gains nothing."""
    found: dict[str, Aside] = {}
    helpful = {one.proposal.remedy for one in _choose(priced) if one.gains}
    for one in sorted(priced, key=lambda it: it.forecast.speedup):
        if one.proposal.is_common and one.proposal.remedy not in helpful:
            found[one.proposal.remedy] = replace(
                _aside(one.proposal, one.proposal.in_vain), how="", forecast=one.forecast
            )
    return list(found.values())


def _unsure(priced: list[_Priced]) -> Iterator[Aside]:
    """Name what fits a cause and gains by its figure, but not by its whole interval; settings are left to trials."""
    for one in _choose(priced):
        is_setting = one.proposal.is_common or loader_arguments(one.proposal.settings)
        if not is_setting and not one.gains and one.forecast.speedup >= MIN_SPEEDUP:
            yield replace(_aside(one.proposal, UNSURE), forecast=one.forecast)


def _aside(proposal: Proposal, reason: str) -> Aside:
    return Aside(
        remedy=proposal.remedy,
        where=proposal.where,
        title=proposal.title,
        how=proposal.how,
        reason=reason,
        forecast=None,
    )


def _prescription(one: _Priced) -> Prescription:
    proposal = one.proposal
    return Prescription(
        remedy=proposal.remedy,
        where=proposal.where,
        title=proposal.title,
        how=proposal.how,
        automatic=proposal.automatic,
        forecast=one.forecast,
        settings=proposal.settings,
    )


def _pair(model: LoaderModel, helpful: Sequence[_Priced]) -> Pair | None:
    """Forecast the best two that can be made together."""
    two = _best_two(helpful)
    if two is None:
        return None
    first, second = two
    if first.proposal.change is None or second.proposal.change is None:
        return None
    both = forecast(model, first.proposal.change.joined(second.proposal.change))
    if isinstance(both, Withheld):
        return None
    return Pair(
        first=first.proposal.title,
        second=second.proposal.title,
        forecast=both,
        note=describe_interaction(first.forecast, second.forecast, both),
    )


def _best_two(helpful: Sequence[_Priced]) -> tuple[_Priced, _Priced] | None:
    """The best, and the best other one that does not set the same thing or mend the same cause by other means."""
    for other in helpful[1:]:
        first = helpful[0]
        if _subjects(first.proposal).isdisjoint(_subjects(other.proposal)):
            return first, other
    return None


def _subjects(proposal: Proposal) -> set[object]:
    """What a proposal changes: settings by name, causes by label."""
    change = proposal.change or Change()
    labels = [
        label for label, _ in (*change.scaled, *change.loop_removed, *change.to_device)
    ]
    subjects: set[object] = {*labels, *change.trimmed, *dict(proposal.settings)}
    is_read = any(label.activity in READING for label in labels)
    if is_read or change.storage_factor is not None or change.parallel_reads is not None:
        subjects.add("reading")
    return subjects or {proposal.remedy}


def describe_interaction(first: Forecast, second: Forecast, both: Forecast) -> str:
    """Say how two changes act on each other, from what each and both gain."""
    product = first.speedup * second.speedup
    gain = both.speedup - 1
    if gain >= MIN_BALANCED_GAIN and first.speedup - 1 < BALANCED_RATIO * gain:
        return "balanced: one alone gains little, because the other part then holds the loop up"
    if both.speedup < first.speedup * MIN_SPEEDUP:
        return "with the first one made, the other gains nothing more"
    if both.speedup > product * (1 + ADDITIVE_RATIO):
        return "together they gain more than one after the other would suggest"
    if both.speedup < product * (1 - ADDITIVE_RATIO):
        return "they remedy the same waiting in part: together they gain less than their product"
    return "they do not get in each other's way"
