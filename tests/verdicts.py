"""Verdicts as analysis would give them, for tests of what draws and stores them."""

from __future__ import annotations

from typing import Any

from whyidle.model.findings import (
    Activity,
    Cause,
    Evidence,
    Limit,
    NotObserved,
    Place,
    Regime,
    RunSummary,
    Verdict,
    WorkerSplit,
)

MS, S = 1_000_000, 1_000_000_000


def make_cause(
    activity: Activity = Activity.COMPUTE,
    regime: Regime = Regime.THROUGHPUT,
    share: float = 1.0,
    *evidence: str,
    idle_ns: int | None = None,
    **where: Any,
) -> Cause:
    """A cause with 10 s of idle time to share, evidence as plain sentences, and a place by keywords."""
    return Cause(
        activity=activity,
        regime=regime,
        share=share,
        idle_ns=round(share * 10 * S) if idle_ns is None else idle_ns,
        where=Place(**where),
        evidence=tuple(Evidence(text=text, value=None, unit=None) for text in evidence),
    )


def make_split(
    worker: int, on_cpu: float, queue: float, blocked: float, rank: int = 0
) -> WorkerSplit:
    """A worker's four parts; what is left is idle."""
    return WorkerSplit(
        rank=rank,
        worker=worker,
        on_cpu_ratio=on_cpu,
        cpu_queue_ratio=queue,
        blocked_ratio=blocked,
        idle_ratio=1 - on_cpu - queue - blocked,
    )


def make_run(**changes: Any) -> RunSummary:
    """200 steps of a script with two workers and a simulated device."""
    defaults: dict[str, Any] = {
        "command": ("python", "train.py", "--workers", "2"),
        "steps": 200,
        "warmup_steps": 5,
        "ranks": 1,
        "duration_ns": 16 * S,
        "python": "3.11.7",
        "torch": "2.13.0",
        "device_kind": "simulated",
        "device_name": None,
        "exit_status": 0,
        "workers": 2,
    }
    return RunSummary(**(defaults | changes))


def make_verdict(*causes: Cause, **changes: Any) -> Verdict:
    """An input-bound verdict of `make_run`, idle 63 % of the time."""
    defaults: dict[str, Any] = {
        "run": make_run(),
        "limit": Limit.INPUT,
        "sentence": "The device was idle 63 % of the time.",
        "step_median_ns": 78_900_000,
        "step_p90_ns": 104 * MS,
        "idle_ratio": 0.63,
        "unexplained_ratio": max(0.0, 1 - sum(cause.share for cause in causes)),
        "causes": causes,
        "prescriptions": (),
        "not_observed": (),
        "workers": (make_split(0, 0.93, 0.05, 0.01), make_split(1, 0.95, 0.03, 0.0)),
        "idle_series": tuple(0.63 + 0.3 * (-1) ** at * (at % 7) / 7 for at in range(60)),
    }
    return Verdict(**(defaults | changes))


def missing(slug: str, reason: str) -> NotObserved:
    """Something that could not be seen."""
    return NotObserved(slug=slug, reason=reason)
