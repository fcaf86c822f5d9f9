"""Grades of what a tool says, over all cells: accuracy, false alarms, flips, unexplained time, overhead, shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scenarios.bench.answers import (
    Answer,
    HealthyGrade,
    StarvedGrade,
    answer_from_json,
    answer_from_verdict,
    grade_healthy,
    grade_starved,
    signature,
)
from scenarios.bench.cells import Cell
from scenarios.bench.ledger import Row
from scenarios.bench.shares import marginal_share, removal_share
from scenarios.bench.stats import Estimate, median, proportion
from scenarios.grading import share_of

PARTS = ("limit", "activity", "regime", "place", "joint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How often a tool is right. A part that was never asked for is None."""

    first: dict[str, Estimate | None]
    """Part → how often the first candidate is right."""
    top: dict[str, Estimate | None]
    """Part → how often one of the first three is."""
    both: Estimate | None
    """Trainings with several planted causes: all of them among the first three."""
    false_input: Estimate | None
    """Healthy controls whose limit is said to be input."""
    false_cause: Estimate | None
    """Healthy controls that are said to be kept waiting."""
    silent: int
    """Runs on which it said nothing."""
    runs: int
    failures: tuple[str, ...]
    """Cells whose first candidate is wrong in some part, with the parts; healthy ones with a false alarm."""


def said_in(cell: Cell, arm: str) -> list[tuple[Row, Answer]]:
    """Give what a tool said in a cell, run by run; having said nothing is an answer as well, and never a right one."""
    said = []
    for row in cell.arms.get(arm, []):
        if row.verdict is not None:
            said.append((row, answer_from_verdict(row.verdict)))
        elif row.answer is not None:
            said.append((row, answer_from_json(row.answer)))
    return said


def score(cells: Iterable[Cell], arm: str) -> Scores:
    """Grade one tool on all cells; `arm` is `with` for whyidle."""
    starved: list[StarvedGrade] = []
    healthy: list[HealthyGrade] = []
    failures: list[str] = []
    silent = 0
    for cell in cells:
        for row, answer in said_in(cell, arm):
            silent += answer.is_empty
            if cell.scenario.causes:
                grade = grade_starved(answer, cell.scenario)
                starved.append(grade)
                wrong = wrong_parts(grade)
            else:
                control = grade_healthy(answer, (row.verdict or {}).get("idle_ratio"))
                healthy.append(control)
                wrong = ["a false alarm"] if control.false_cause else []
            if wrong:
                failures.append(f"{cell.name} ({', '.join(wrong)})")
    several = [it for it in starved if it.planted > 1]
    return Scores(
        first={part: rate(starved, first_right(part)) for part in PARTS},
        top={part: rate(starved, top_right(part)) for part in PARTS},
        both=rate(several, lambda it: it.planted_found == it.planted),
        false_input=rate(healthy, lambda it: it.false_input),
        false_cause=rate(healthy, lambda it: it.false_cause),
        silent=silent,
        runs=len(starved) + len(healthy),
        failures=tuple(dict.fromkeys(failures)),
    )


def rate(
    grades: list[StarvedGrade] | list[HealthyGrade], is_right: Callable[..., bool | None]
) -> Estimate | None:
    """Give the part of those grades that were asked for which is right."""
    asked = [right for right in map(is_right, grades) if right is not None]
    return proportion(sum(asked), len(asked))


def first_right(part: str) -> Callable[[StarvedGrade], bool | None]:
    """Read a part of the first candidate's grade."""
    if part == "limit":
        return lambda it: it.limit
    return lambda it: getattr(it.first, part)


def top_right(part: str) -> Callable[[StarvedGrade], bool | None]:
    """Read a part of the grade of the first three."""
    if part == "limit":
        return lambda it: it.limit
    if part == "joint":
        return lambda it: it.top_joint
    return lambda it: getattr(it.top, part)


def wrong_parts(grade: StarvedGrade) -> list[str]:
    """Name what of the first candidate is wrong."""
    parts = [part for part in PARTS if part != "joint"]
    return [part for part in parts if first_right(part)(grade) is False]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareError:
    """Blame of one planted cause beside its measured share of the idle time, all from 0 to 1."""

    name: str
    blamed: float
    removal: float | None
    marginal: float | None

    @property
    def error(self) -> float | None:
        """Distance from the marginal share; from the removal's where the marginal one cannot be measured."""
        truth = self.removal if self.marginal is None else self.marginal
        return None if truth is None else abs(self.blamed - truth)


def share_errors(cells: Iterable[Cell]) -> list[ShareError]:
    """Hold the blame of every planted cause against what was measured."""
    found = []
    for cell in cells:
        for number, planted in enumerate(cell.scenario.causes):
            measured = cell.measured(number)
            if measured is None:
                continue
            removal, marginal = removal_share(measured), marginal_share(measured)
            if removal is None and marginal is None:
                continue
            found += [
                ShareError(
                    name=cell.name
                    if len(cell.scenario.causes) == 1
                    else f"{cell.name}#{number}",
                    blamed=share_of((row.verdict or {})["causes"], planted, cell.scenario),
                    removal=removal,
                    marginal=marginal,
                )
                for row in cell.verdicts()
            ]
    return found


def flips(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Give the scenarios whose verdict is not the same at every setting, with what was said."""
    said: dict[str, list[str]] = defaultdict(list)
    for cell in cells:
        for _, answer in said_in(cell, "with"):
            said[cell.scenario.name].append(signature(answer, cell.scenario))
    return {name: sorted(set(them)) for name, them in said.items() if len(set(them)) > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """Idle time without a cause, over starved trainings."""

    median: Estimate | None
    largest: float | None
    above: list[str] = field(default_factory=list)
    """Cells above the limit, with the value."""


def unexplained(cells: Iterable[Cell], limit: float) -> Unexplained:
    """Collect the unexplained part of the idle time of trainings with planted causes."""
    found = {
        (cell.name, row.repeat): float((row.verdict or {})["unexplained_ratio"])
        for cell in cells
        if cell.scenario.causes
        for row in cell.verdicts()
    }
    above = [f"{name} {value:.0%}" for (name, _), value in found.items() if value > limit]
    values = list(found.values())
    return Unexplained(
        median=median(values), largest=max(values, default=None), above=above
    )


def overheads(cells: Iterable[Cell], arm: str) -> list[float]:
    """Give how much longer a step is under a tool, as a part, a value for each cell with both."""
    found = []
    for cell in cells:
        before_s, after_s = cell.step_s("without"), cell.step_s(arm)
        if before_s and after_s:
            found.append(after_s / before_s - 1)
    return found


def idle_errors(cells: Iterable[Cell]) -> list[float]:
    """Give the distance between the verdict's idle ratio and the device's own, run by run."""
    return [
        abs(row.verdict["idle_ratio"] - row.statistic["idle_ratio"])
        for cell in cells
        for row in cell.verdicts()
        if row.verdict
        and row.statistic
        and row.verdict["idle_ratio"] is not None
        and row.statistic["idle_ratio"] is not None
    ]
