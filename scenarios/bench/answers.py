"""What a tool said, in our words, and what of it is right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from scenarios.grading import HEALTHY_CAUSE_LIMIT, place_is_right, right_regimes
from scenarios.truth import Scenario, TrueCause

TOP = 3
STARVED_LIMITS = frozenset({"input", "transfer", "host", "peers"})
"""Limits that say the device is kept waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One cause that a tool names. A part that it does not say is None."""

    activity: str | None = None
    regime: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    """`file`, `line`, `function`, `process`, as in a verdict."""
    share: float | None = None
    """Part of the idle time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool said of a run: best candidate first."""

    limit: str | None = None
    """`input`, `host`, `device`, …; None: it does not say."""
    candidates: tuple[Candidate, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return self.limit is None and not self.candidates

    def to_json(self) -> dict[str, Any]:
        """Give the form that is kept in results."""
        return asdict(self)


def answer_from_json(data: dict[str, Any]) -> Answer:
    """Read an answer that was kept."""
    candidates = tuple(Candidate(**it) for it in data["candidates"])
    return Answer(limit=data["limit"], candidates=candidates)


def answer_from_verdict(verdict: dict[str, Any]) -> Answer:
    """Take whyidle's verdict as an answer."""
    candidates = tuple(
        Candidate(
            activity=it["activity"],
            regime=it["regime"],
            where=it["where"],
            share=it["share"],
        )
        for it in verdict["causes"]
    )
    return Answer(limit=verdict["limit"], candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What of a candidate, or of the best of several, is right. None: there is nothing to be right about."""

    activity: bool
    regime: bool
    place: bool | None

    @property
    def joint(self) -> bool:
        """Everything that was asked for is right at once."""
        return self.activity and self.regime and self.place is not False


WRONG = Right(activity=False, regime=False, place=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedGrade:
    """How an answer about a starved training is graded."""

    limit: bool
    first: Right
    """The first candidate."""
    top: Right
    """The best of the first three, part by part; `joint` holds for one candidate alone."""
    top_joint: bool
    planted_found: int
    """How many of the planted causes are, activity and place, among the first three."""
    planted: int


def grade_starved(answer: Answer, scenario: Scenario) -> StarvedGrade:
    """Grade an answer about a training with planted causes: any of them may be named first."""
    rights = [
        [right_about(candidate, planted, scenario) for planted in scenario.causes]
        for candidate in answer.candidates[:TOP]
    ]
    best = [max(row, key=rank_of) for row in rights]
    has_place = any(it.place is not None for row in rights for it in row)
    has_place = has_place or any(place_is_asked(it) for it in scenario.causes)
    found = sum(
        any(row[number].activity and row[number].place is not False for row in rights)
        for number in range(len(scenario.causes))
    )
    return StarvedGrade(
        limit=answer.limit in scenario.limits,
        first=best[0] if best else wrong_about(has_place=has_place),
        top=Right(
            activity=any(it.activity for it in best),
            regime=any(it.regime for it in best),
            place=any(it.place for it in best) if has_place else None,
        ),
        top_joint=any(it.joint for it in best),
        planted_found=found,
        planted=len(scenario.causes),
    )


def right_about(candidate: Candidate, planted: TrueCause, scenario: Scenario) -> Right:
    """Say what of a candidate is right if it means this planted cause; a place counts for itself."""
    regimes = right_regimes(planted, candidate.activity or "")
    return Right(
        activity=regimes is not None,
        regime=regimes is not None and candidate.regime in regimes,
        place=place_is_right(candidate.where, planted.place, scenario),
    )


def rank_of(right: Right) -> tuple[bool, int]:
    """Prefer what is right at once, then what has most parts right."""
    return right.joint, right.activity + right.regime + bool(right.place)


def place_is_asked(planted: TrueCause) -> bool:
    """Say whether a place has to be named."""
    place = planted.place
    return bool(place.process or (place.functions and not place.optional))


def wrong_about(*, has_place: bool) -> Right:
    """Grade silence."""
    return WRONG if has_place else Right(activity=False, regime=False, place=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthyGrade:
    """How an answer about a training that nothing slows down is graded."""

    limit: bool
    false_input: bool
    """It says that input is the limit."""
    false_cause: bool
    """It says the device is kept waiting, or names a cause of more than 5 % of the step."""


def grade_healthy(answer: Answer, idle_ratio: float | None) -> HealthyGrade:
    """Grade an answer about a healthy control; a candidate's part of the step is its share of the idle part."""
    idle = idle_ratio or 0.0
    large = any((it.share or 0.0) * idle > HEALTHY_CAUSE_LIMIT for it in answer.candidates)
    return HealthyGrade(
        limit=answer.limit == "device",
        false_input=answer.limit == "input",
        false_cause=large or answer.limit in STARVED_LIMITS,
    )


def signature(answer: Answer, scenario: Scenario) -> str:
    """Give what may not differ between settings with the same truth: limit, and the first cause without its regime."""
    limit = "right" if answer.limit in scenario.limits else str(answer.limit)
    if not scenario.causes:
        return limit
    if not answer.candidates:
        return f"{limit}, no cause"
    first = answer.candidates[0]
    for planted in scenario.causes:
        right = right_about(first, planted, scenario)
        if right.activity and right.place is not False:
            return f"{limit}, planted"
    where = first.where.get("function") or first.where.get("process")
    return (
        f"{limit}, {first.activity} in {where}" if where else f"{limit}, {first.activity}"
    )
