"""Hold a verdict against the truth. Pure: the verdict's JSON and a `Scenario` in, a `Grade` out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scenarios.truth import Scenario, TrueCause, TruePlace

HEALTHY_CAUSE_LIMIT = 0.05
"""A healthy control may have no cause above this part of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What of a verdict is right. None: not asked for."""

    limit: bool
    activity: bool
    """The first cause has a right activity; for a healthy control: no cause is above the limit."""
    regime: bool | None
    place: bool | None
    """The right file and function, or process."""
    line: bool | None
    """The line is among the planted ones."""
    mount: bool | None
    shares: bool | None
    """Every planted cause that has a least share got it."""

    @property
    def ok(self) -> bool:
        """Limit, first cause, its place and the shares are right; regime, line and mount are shown only."""
        asked = (self.limit, self.activity, self.place, self.shares)
        return all(part is not False for part in asked)


def grade(verdict: dict[str, Any], scenario: Scenario, values: dict[str, str]) -> Grade:
    """Grade a verdict; `values` are what the surroundings filled in for placeholders."""
    limit = verdict["limit"] in scenario.limits
    causes = verdict["causes"]
    if not scenario.causes:
        return healthy_grade(verdict, limit=limit)
    if not causes:
        return Grade(
            limit=limit,
            activity=False,
            regime=False,
            place=False,
            line=None,
            mount=None,
            shares=None,
        )
    return max(
        (
            graded_as(causes, planted, scenario, values, limit=limit)
            for planted in scenario.causes
        ),
        key=lambda it: (it.ok, it.activity, bool(it.place), bool(it.regime), bool(it.line)),
    )


def healthy_grade(verdict: dict[str, Any], *, limit: bool) -> Grade:
    """Grade a verdict on a control: part of the step = part of idle time × idle ratio."""
    idle_ratio = verdict["idle_ratio"] or 0.0
    largest = max((cause["share"] * idle_ratio for cause in verdict["causes"]), default=0.0)
    quiet = largest <= HEALTHY_CAUSE_LIMIT
    return Grade(
        limit=limit,
        activity=quiet,
        regime=None,
        place=None,
        line=None,
        mount=None,
        shares=None,
    )


def graded_as(
    causes: list[dict[str, Any]],
    planted: TrueCause,
    scenario: Scenario,
    values: dict[str, str],
    *,
    limit: bool,
) -> Grade:
    """Grade a verdict whose first cause is taken for this planted one."""
    first = causes[0]
    where, place = first["where"], planted.place
    regimes = right_regimes(planted, first["activity"])
    return Grade(
        limit=limit,
        activity=regimes is not None,
        regime=first["regime"] in (regimes or ()),
        place=place_is_right(where, place, scenario),
        line=line_is_right(where, place, scenario),
        mount=mount_is_right(where, place, values),
        shares=shares_are_right(causes, scenario),
    )


def right_regimes(planted: TrueCause, activity: str) -> tuple[str, ...] | None:
    """Give the regimes that are right with an activity; None when the activity is wrong."""
    if activity == planted.activity:
        return planted.regimes
    for allowed in planted.allowed:
        if activity == allowed.activity:
            return allowed.regimes
    return None


def place_is_right(
    where: dict[str, Any], place: TruePlace, scenario: Scenario
) -> bool | None:
    """Say whether file and function, or the process, are the planted ones."""
    if place.process is not None:
        return place.process in (where.get("process") or "")
    if not place.functions or (place.optional and not where.get("function")):
        return None
    function = (where.get("function") or "").rpartition(".")[2]
    return in_script(where, scenario) and function in place.functions


def in_script(where: dict[str, Any], scenario: Scenario) -> bool:
    """Say whether a place is in the scenario's own script."""
    return (where.get("file") or "").endswith(f"{scenario.name}/train.py")


def line_is_right(
    where: dict[str, Any], place: TruePlace, scenario: Scenario
) -> bool | None:
    """Say whether the line is a planted one."""
    if place.first_line is None or place.last_line is None or where.get("line") is None:
        return None
    within = place.first_line <= where["line"] <= place.last_line
    return in_script(where, scenario) and within


def mount_is_right(
    where: dict[str, Any], place: TruePlace, values: dict[str, str]
) -> bool | None:
    """Say whether the mount that is named is the slow one."""
    if place.mount is None or where.get("mount") is None:
        return None
    return bool(where["mount"].startswith(place.mount.format_map(values)))


def shares_are_right(causes: list[dict[str, Any]], scenario: Scenario) -> bool | None:
    """Say whether every planted cause with a least share has at least that."""
    wanted = [planted for planted in scenario.causes if planted.least_share is not None]
    if not wanted:
        return None
    return all(share_of(causes, it, scenario) >= (it.least_share or 0.0) for it in wanted)


def share_of(causes: list[dict[str, Any]], planted: TrueCause, scenario: Scenario) -> float:
    """Add up the shares of all causes with the planted activity and place."""
    return float(
        sum(
            cause["share"]
            for cause in causes
            if right_regimes(planted, cause["activity"]) is not None
            and place_is_right(cause["where"], planted.place, scenario) is not False
        )
    )
