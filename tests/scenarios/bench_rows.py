"""Synthetic results of the truth bench."""

from __future__ import annotations

from typing import Any

from scenarios.bench.ledger import Row, script_code, tool_code

PYTHON_LOOP = "python_loop"


def make_row(
    arm: str = "without",
    *,
    scenario: str = PYTHON_LOOP,
    setting: int = 0,
    repeat: int = 0,
    step_s: float = 0.05,
    idle_ratio: float = 0.64,
    **changed: Any,
) -> Row:
    """Give the result of an undisturbed run."""
    given: dict[str, Any] = {
        "scenario": scenario,
        "setting": setting,
        "arm": arm,
        "repeat": repeat,
        "attempt": 0,
        "script_code": script_code(scenario),
        "tool_code": tool_code() if arm == "with" else None,
        "seconds": 8.0,
        "started": "2026-01-31T09:30:00+00:00",
        "taken_s": 11.0,
        "statistic": {
            "steps": 100,
            "idle_ratio": idle_ratio,
            "steps_per_second": 1 / step_s,
        },
    }
    return Row(**(given | changed))


def make_cause(
    activity: str = "compute",
    regime: str = "throughput",
    share: float = 0.95,
    function: str | None = "draw_points",
    scenario: str = PYTHON_LOOP,
) -> dict[str, Any]:
    """Give a cause as a verdict's JSON has it; by default the one planted in python_loop."""
    where = {"file": f"/x/{scenario}/train.py", "function": function, "process": None}
    return {"activity": activity, "regime": regime, "share": share, "where": where}


def make_verdict(*causes: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Give a verdict's JSON as far as the bench looks at it."""
    given = {
        "limit": "input",
        "idle_ratio": 0.64,
        "unexplained_ratio": 0.01,
        "causes": list(causes),
        "prescriptions": [],
    }
    return given | changed
