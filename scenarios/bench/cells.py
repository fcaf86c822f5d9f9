"""One scenario at one setting, all its arms together: what was measured there, and what was said."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scenarios.bench.arms import LONGER_STEP, SLOWED_BY
from scenarios.bench.ledger import Row
from scenarios.bench.shares import Measured
from scenarios.truth import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The runs that count of one scenario at one setting."""

    scenario: Scenario
    setting: int
    arms: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name it in lists."""
        return f"{self.scenario.name}/{self.setting}"

    def steps_s(self, arm: str) -> list[float]:
        """Give the measured step times of an arm, s."""
        return [row.step_s for row in self.arms.get(arm, []) if row.step_s is not None]

    def step_s(self, arm: str) -> float | None:
        """Give the median step time of an arm, s."""
        steps_s = self.steps_s(arm)
        return statistics.median(steps_s) if steps_s else None

    def idle_ratio(self) -> float | None:
        """Give how much of the time the device is idle, unchanged and unwatched; from the device itself."""
        ratios = [
            row.statistic["idle_ratio"]
            for row in self.arms.get("without", [])
            if row.statistic
        ]
        return statistics.median(ratios) if ratios else None

    def verdicts(self) -> list[Row]:
        """Give the watched runs that have a verdict."""
        return [row for row in self.arms.get("with", []) if row.verdict is not None]

    def speedup(self, arm: str) -> float | None:
        """Give the measured gain of an arm: steps a second, after over before."""
        before_s, after_s = self.step_s("without"), self.step_s(arm)
        return before_s / after_s if before_s and after_s else None

    def repeat_noise(self) -> float | None:
        """Give how far equal runs are apart: half the range of the unchanged runs, as a part of their median."""
        steps_s = self.steps_s("without")
        if len(steps_s) < 2:
            return None
        return (max(steps_s) - min(steps_s)) / 2 / statistics.median(steps_s)

    def measured(self, cause: int) -> Measured | None:
        """Collect what is known of one planted cause; None without an unchanged run."""
        step_s, idle_ratio = self.step_s("without"), self.idle_ratio()
        if step_s is None or idle_ratio is None:
            return None
        count = len(self.scenario.causes)
        alone = "cured" if count == 1 else f"cured:{cause}"
        other = f"cured:{1 - cause}" if count == 2 else None
        return Measured(
            step_s=step_s,
            idle_ratio=idle_ratio,
            removed_s=self.step_s(alone),
            all_removed_s=self.step_s("cured"),
            others_removed_s=self.step_s(other) if other else None,
            slowed_s=self.step_s(f"slowed:{cause}"),
            slowed_by=SLOWED_BY,
            longer_step_s=self.step_s("longer-step"),
            longer_by=LONGER_STEP,
        )


def collect(rows: Iterable[Row], scenarios: dict[str, Scenario]) -> list[Cell]:
    """Sort rows into cells."""
    found: dict[tuple[str, int], dict[str, list[Row]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        found[row.scenario, row.setting][row.arm].append(row)
    return [
        Cell(scenario=scenarios[name], setting=setting, arms=dict(arms))
        for (name, setting), arms in sorted(found.items())
    ]


def split_cells(cells: Sequence[Cell], split: str) -> list[Cell]:
    """Give the cells of a split."""
    return [cell for cell in cells if cell.scenario.split == split]
