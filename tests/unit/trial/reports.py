"""Reports of trials for tests."""

from __future__ import annotations

from whyidle.model.findings import Forecast
from whyidle.model.remedies import SettingValue, make_settings
from whyidle.model.trial import (
    Block,
    Candidate,
    CandidateResult,
    LoaderSite,
    LossComparison,
    LossState,
    Outcome,
    Ratio,
    TrialReport,
    TrialState,
)

FORECAST = Forecast(speedup=1.9, low=1.7, high=2.1, basis="event simulation")


def make_result(
    *,
    proven: bool = True,
    losses: LossState = LossState.IDENTICAL,
    forecast: Forecast | None = FORECAST,
    **values: SettingValue,
) -> CandidateResult:
    """Give what came of a change: twice as fast and proven, or nothing gained."""
    speedup = 2.0 if proven else 1.0
    ratio = Ratio(speedup=speedup, low=speedup - 0.2, high=speedup + 0.2, pairs=3)
    return CandidateResult(
        candidate=Candidate(
            settings=make_settings(values),
            remedies=(),
            forecast=forecast,
            forecast_missing=None if forecast else "the replay misses by 9 %",
        ),
        measured=ratio,
        outcome=Outcome.PROVEN if proven else Outcome.NO_GAIN,
        reason="" if proven else "the interval holds a standstill",
        step_ns=5e6,
        losses=LossComparison(state=losses, note="of 50 steps the same, bit by bit"),
    )


def make_report(
    *results: CandidateResult, state: TrialState = TrialState.COMPLETE, note: str = ""
) -> TrialReport:
    """Give the report of a try."""
    blocks = tuple(
        Block(
            number=number,
            settings=(),
            steps=300,
            step_ns=1e7,
            own_cpus=1.0,
            other_cpus=0.1,
            wall_ns=10**10,
            failure=None,
        )
        for number in range(1, 4)
    )
    return TrialReport(
        command=("python", "train.py"),
        state=state,
        started="2026-01-31T09:30:00+0000",
        minutes=5.0,
        used_ns=200 * 10**9,
        loader=LoaderSite(
            file="/job/train.py",
            line=71,
            settings=make_settings({"num_workers": 2, "prefetch_factor": 2}),
        ),
        sentence="The loop waited for data 70 % of the time.",
        forecast_sha256="0" * 64,
        results=results,
        unchanged_step_ns=1e7,
        noise_ratio=0.012,
        other_cpus=0.1,
        blocks=blocks if results else (),
        note=note,
    )
