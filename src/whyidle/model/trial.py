"""What trials found: arms, blocks, ratios, losses, the report. Frozen, every field documented.

An arm is the training with certain settings injected; no settings: unchanged. A block is one bounded run of an arm.
The JSON form (`TrialReport.to_json`) is what `trial.json` holds, schema_version 1; fields are only added.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from whyidle.model.remedies import Settings, loader_arguments, other_lines

if TYPE_CHECKING:
    from whyidle.model.findings import Forecast

TRIAL_SCHEMA_VERSION = 1


class Outcome(Enum):
    """What trials say about a change."""

    PROVEN = "proven"
    """Faster, and its interval holds no standstill."""
    NO_GAIN = "no-gain"
    """Its interval holds a standstill after enough pairs."""
    SLOWER = "slower"
    UNPROVEN = "unproven"
    """Too few undisturbed pairs to say."""
    FAILED = "failed"
    """The training failed with it."""
    NOT_APPLIED = "not-applied"
    """The agent could not inject it."""
    NOT_TRIED = "not-tried"
    """Forecast to gain nothing, or the time was over."""


class LossState(Enum):
    """Whether a change left the losses of the first steps as they were."""

    IDENTICAL = "identical"
    """Bit by bit those of the unchanged training."""
    WITHIN_SPREAD = "within-spread"
    """As far from the unchanged training as that is from itself: the script is not seeded."""
    CHANGED = "changed"
    NOT_COMPARED = "not-compared"


class TrialState(Enum):
    """How the trials ended."""

    COMPLETE = "complete"
    OUT_OF_TIME = "out-of-time"
    INTERRUPTED = "interrupted"
    NOTHING_TO_TRY = "nothing-to-try"
    FAILED = "failed"
    """The unchanged training failed in a trial."""
    RUNNING = "running"
    """In a file: the trials go on, or whyidle was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSite:
    """The loader that feeds most steps, as the script builds it."""

    file: str | None
    """File of the line that builds it; None when it is not known."""
    line: int | None
    settings: Settings
    """Its arguments as they are, defaults filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change worth a trial."""

    settings: Settings
    remedies: tuple[str, ...]
    """Ids of the remedies in it (docs/glossary.md)."""
    forecast: Forecast | None
    forecast_missing: str | None
    """Why there is no forecast; None when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times faster an arm was than the unchanged one, with a 90 % interval."""

    speedup: float
    low: float
    high: float
    pairs: int
    """Undisturbed pairs it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One bounded run of an arm."""

    number: int
    """From 1; names its folder."""
    settings: Settings
    steps: int
    """Measured ones, warm-up left out; 0 when it failed."""
    step_ns: float | None
    """Mean step time, ns; None when it failed."""
    own_cpus: float
    """CPUs used by the run, start-up included."""
    other_cpus: float
    """CPUs used by others while it ran, of those that the training may use."""
    wall_ns: int
    """From its start to its end, start-up included."""
    failure: str | None
    """Why it cannot be used; None when it can."""
    applied: tuple[str, ...] = ()
    """What the agent says it changed."""
    refused: tuple[str, ...] = ()
    """What the agent says it could not change, and why."""
    is_disturbed: bool = False
    """Others took so much more of the CPUs than in the runs beside it that its pair was repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossComparison:
    """Whether a change left the losses as they were."""

    state: LossState
    note: str
    """In words, with the number of steps compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateResult:
    """What came of a candidate."""

    candidate: Candidate
    measured: Ratio | None
    """None before its first undisturbed pair."""
    outcome: Outcome
    reason: str
    """Why that outcome, in a few words; empty where the numbers say it."""
    step_ns: float | None
    """Median of its blocks' step times, ns."""
    losses: LossComparison
    disturbed_pairs: int = 0

    @property
    def is_hit(self) -> bool | None:
        """Whether forecast and measurement agree within their intervals; None when one is missing."""
        forecast, measured = self.candidate.forecast, self.measured
        if forecast is None or measured is None:
            return None
        return forecast.low <= measured.high and measured.low <= forecast.high


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """Everything that `whyidle try` says."""

    command: tuple[str, ...]
    state: TrialState
    started: str
    """Wall clock, ISO 8601."""
    minutes: float
    """The budget."""
    used_ns: int
    loader: LoaderSite | None
    """None when the recorded run asked no loader."""
    sentence: str
    """The verdict of the recorded run."""
    forecast_sha256: str | None
    """Of `forecast.json`, written before the first trial; None when it came to no trial."""
    results: tuple[CandidateResult, ...]
    """Best first."""
    unchanged_step_ns: float | None
    """Median of the unchanged blocks' step times, ns."""
    noise_ratio: float | None
    """How far unchanged blocks in a row differ, median; None with fewer than two."""
    other_cpus: float | None
    """CPUs that others used, mean over blocks."""
    blocks: tuple[Block, ...]
    note: str = ""
    """Why it ended as it did, where that needs to be said."""

    @property
    def best(self) -> CandidateResult | None:
        """The fastest proven change; None when none is."""
        proven = [one for one in self.results if one.outcome is Outcome.PROVEN]
        return max(
            proven,
            key=lambda one: one.measured.speedup if one.measured else 0.0,
            default=None,
        )

    def to_json(self) -> dict[str, Any]:
        """Give the public JSON form (schema_version 1)."""
        return {
            "schema_version": TRIAL_SCHEMA_VERSION,
            "command": list(self.command),
            "state": self.state.value,
            "note": self.note,
            "started": self.started,
            "minutes": self.minutes,
            "used_ns": self.used_ns,
            "recorded_run": "recorded",
            "sentence": self.sentence,
            "loader": _site_json(self.loader),
            "forecast_sha256": self.forecast_sha256,
            "unchanged_step_ns": self.unchanged_step_ns,
            "noise_ratio": self.noise_ratio,
            "other_cpus": self.other_cpus,
            "candidates": [_result_json(one) for one in self.results],
            "best": _best_json(self.best, self.loader),
            "blocks": [
                asdict(block) | {"settings": dict(block.settings)} for block in self.blocks
            ],
        }


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    """Give the JSON form of a candidate and its forecast."""
    forecast = candidate.forecast
    return {
        "settings": dict(candidate.settings),
        "remedies": list(candidate.remedies),
        "forecast": asdict(forecast) if forecast is not None else None,
        "forecast_missing": candidate.forecast_missing,
    }


def _site_json(site: LoaderSite | None) -> dict[str, Any] | None:
    if site is None:
        return None
    return {"file": site.file, "line": site.line, "settings": dict(site.settings)}


def _result_json(result: CandidateResult) -> dict[str, Any]:
    measured = result.measured
    return candidate_json(result.candidate) | {
        "measured": asdict(measured) if measured is not None else None,
        "step_ns": result.step_ns,
        "verdict": result.outcome.value,
        "reason": result.reason,
        "forecast_hit": result.is_hit,
        "disturbed_pairs": result.disturbed_pairs,
        "losses": {"state": result.losses.state.value, "note": result.losses.note},
    }


def _best_json(
    best: CandidateResult | None, site: LoaderSite | None
) -> dict[str, Any] | None:
    if best is None or best.measured is None:
        return None
    settings = best.candidate.settings
    return {
        "settings": dict(settings),
        "speedup": best.measured.speedup,
        "low": best.measured.low,
        "high": best.measured.high,
        "arguments": loader_arguments(settings),
        "other": list(other_lines(settings)),
        "file": site.file if site else None,
        "line": site.line if site else None,
    }
