"""Two runs beside each other: what became faster, which causes shrank, whether the difference is real."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whyidle.model.findings import Activity, Place, Verdict

COMPARISON_SCHEMA_VERSION = 1


class Trend(Enum):
    """What became of a cause."""

    GONE = "gone"
    SMALLER = "smaller"
    SAME = "same"
    LARGER = "larger"
    NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean per step before and after, with a 90 % interval of its change."""

    before: float
    after: float
    change: float
    """After minus before, in the unit of both."""
    low: float
    high: float
    is_real: bool
    """Without what other programs are to blame for, the interval leaves zero out, and the change is larger than what
    two runs of one training differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Steps per second after ÷ before, with a 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseChange:
    """One cause in both runs; idle time is per step (per sample when batch sizes differ)."""

    activity: Activity
    where: Place
    """In the later run; in the earlier one when the cause is gone."""
    before_ns: float
    after_ns: float
    scaled_change_ns: float
    """Change over as many steps as the earlier run had."""
    trend: Trend

    @property
    def change_ns(self) -> float:
        """After minus before, ns per step."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run A (before) and run B (after)."""

    before: Verdict
    after: Verdict
    sentence: str
    """How much faster, what went, what limits now."""
    per: str
    """What `step` and `idle` are means of: `step`, or `sample` where the batch sizes differ."""
    step: Difference
    """Time from ask to ask, ns, epoch starts included."""
    idle: Difference
    """Idle time of the device in it, ns."""
    idle_ratio: Difference
    speedup: Speedup
    causes: tuple[CauseChange, ...]
    """Largest change first."""
    caveats: tuple[str, ...]
    """Why the two runs are not quite comparable, in sentences."""

    def to_json(self) -> dict[str, Any]:
        """Give the public JSON form (schema_version 1)."""
        return {
            "schema_version": COMPARISON_SCHEMA_VERSION,
            "before": _side(self.before),
            "after": _side(self.after),
            "sentence": self.sentence,
            "per": self.per,
            "step_ns": asdict(self.step),
            "idle_ns": asdict(self.idle),
            "idle_ratio": asdict(self.idle_ratio),
            "speedup": asdict(self.speedup),
            "causes": [
                {
                    "activity": one.activity.value,
                    "where": asdict(one.where),
                    "before_ns": one.before_ns,
                    "after_ns": one.after_ns,
                    "change_ns": one.change_ns,
                    "scaled_change_ns": one.scaled_change_ns,
                    "trend": one.trend.value,
                }
                for one in self.causes
            ],
            "caveats": list(self.caveats),
        }


def _side(verdict: Verdict) -> dict[str, Any]:
    whole = verdict.to_json()
    return {name: whole[name] for name in ("run", "limit", "sentence", "step_ns")}
