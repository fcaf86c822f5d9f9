"""Run one job: set up, start, measure, take down, and write a row."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from scenarios.bench.answers import Answer
from scenarios.bench.arms import SLOWED_BY
from scenarios.bench.forecasting import forecast_run
from scenarios.bench.ledger import Row, script_code, tool_code
from scenarios.bench.load import Gate, watched_load
from scenarios.bench.plan import Job
from scenarios.bench.tools import TOOLS
from scenarios.bench.tools.base import before_script
from scenarios.harness import (
    SPARE_SECONDS,
    cure_switch,
    observed,
    one_at_a_time,
    read_statistic,
    read_verdict,
    run_command,
)
from scenarios.surroundings import Surroundings, missing_needs, prepare

SLOWED = Path(__file__).resolve().parent / "programs/slowed.py"
TOOL_SPARE_SECONDS = 120.0
"""How much longer than the training another tool may take: some wait, run the training twice, or write large files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How runs are made."""

    seconds: float
    """Length of each run, s."""
    gate: Gate
    weight: int | None = None
    """CPU share of a run in units of the default one; None: as it is."""
    keep: Path | None = None
    """Folder that recorded runs stay in; None: they go with the scratch folder."""
    forecasts: bool = True
    """Whether forecasts are asked for after each watched run."""


def run_job(job: Job, conditions: Conditions, attempt: int) -> Row:
    """Make the run once."""
    missing = missing_needs(job.scenario.needs) or missing_tool(job)
    begin_s = time.monotonic()
    head: dict[str, Any] = {
        "scenario": job.scenario.name,
        "setting": job.setting,
        "arm": job.arm.name,
        "repeat": job.repeat,
        "attempt": attempt,
        "script_code": script_code(job.scenario.name),
        "tool_code": tool_code() if job.arm.watched else None,
        "seconds": conditions.seconds,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    if missing:
        return Row(**head, taken_s=0.0, skipped=f"needs {', '.join(missing)}")
    try:
        with one_at_a_time(), prepare(parts_of(job, conditions)) as surroundings:
            body = run_in(job, conditions, surroundings)
    except (OSError, RuntimeError) as error:  # the surroundings could not be set up
        body = {"failure": f"{type(error).__name__}: {error}"[:400]}
    return Row(**head, **body, taken_s=round(time.monotonic() - begin_s, 1))


def missing_tool(job: Job) -> list[str]:
    """Name the tool of the job when it is not installed, with the reason."""
    if job.arm.tool is None:
        return []
    reason = TOOLS[job.arm.tool].unavailable()
    return [f"{job.arm.tool}: {reason}"] if reason else []


def parts_of(job: Job, conditions: Conditions) -> dict[str, dict[str, Any]]:
    """Give the surroundings of an arm."""
    scenario, arm = job.scenario, job.arm
    parts = scenario.environment
    if arm.group == "parts" and arm.cause is not None:
        own = scenario.causes[arm.cause].cured_environment
        parts = parts if own is None else own
    elif arm.cured:
        parts = scenario.cured_environment
    parts = dict(parts)
    if conditions.weight is not None and "neighbours" not in scenario.environment:
        parts["weight"] = {"factor": conditions.weight}
    return parts


def run_in(job: Job, conditions: Conditions, surroundings: Surroundings) -> dict[str, Any]:
    """Start the training in its surroundings, and give what is known afterwards."""
    seconds, arm = conditions.seconds, job.arm
    script = script_of(job, surroundings, seconds)
    verdict_path = surroundings.scratch / "verdict.json"
    runs = conditions.keep or surroundings.scratch / "runs"
    tool = None if arm.tool is None else TOOLS[arm.tool]
    spare_s = SPARE_SECONDS
    if arm.watched:
        command = observed([sys.executable, *script], verdict_path, runs, seconds=seconds)
    elif tool is not None:
        command = tool.command(script, surroundings.scratch, seconds)
        spare_s = TOOL_SPARE_SECONDS
    else:
        command = [sys.executable, *changed(job, script)]
    with watched_load(surroundings) as load:
        output, failure = run_command(command, surroundings, seconds + spare_s)
    body: dict[str, Any] = {
        "statistic": read_statistic(output),
        "values": surroundings.values,
        "load": load,
        "disturbed": conditions.gate.reasons(load),
        "failure": failure,
    }
    if tool is not None:
        body |= tool_body(tool, surroundings.scratch, output, failure)
    elif arm.watched:
        body |= watched_body(job, conditions, verdict_path, runs, failure)
    elif body["statistic"] is None and failure is None:
        body["failure"] = "the script printed no statistic"
    return body


def script_of(job: Job, surroundings: Surroundings, seconds: float) -> list[str]:
    """Give what comes behind the interpreter: a launcher if there is one, script and arguments."""
    setting, scenario = job.scenario.settings[job.setting], job.scenario
    step_ms = setting.step_ms * job.arm.step_factor
    return [
        *scenario.launcher,
        str(scenario.script),
        *(surroundings.fill(argument) for argument in scenario.arguments),
        f"--workers={setting.workers}",
        f"--batch-size={setting.batch_size}",
        f"--step-ms={step_ms:g}",
        f"--seconds={seconds:g}",
        *cure_switch(job.arm.cured),
    ]


def changed(job: Job, script: list[str]) -> list[str]:
    """Put what changes the unchanged script before it, when the arm wants that."""
    if job.arm.slowed is not None:
        options = [f"--function={job.arm.slowed}", f"--by={SLOWED_BY}"]
    elif job.arm.loader:
        options = [f"--loader={json.dumps(dict(job.arm.loader))}"]
    else:
        return script
    return before_script(script, [str(SLOWED), *options])


def tool_body(tool: Any, scratch: Path, output: str, failure: str | None) -> dict[str, Any]:
    """Read what another tool said; a tool that fails or says nothing has given no answer, which is an answer."""
    answer, reason = tool.read(scratch, output)
    said = failure if answer.is_empty and failure else reason
    return {"answer": answer.to_json() | {"note": said}, "failure": None}


def watched_body(
    job: Job, conditions: Conditions, verdict_path: Path, runs: Path, failure: str | None
) -> dict[str, Any]:
    """Read the verdict, and ask for the forecasts of what the other arms measure."""
    verdict = read_verdict(verdict_path)
    if verdict is None:
        silence = failure or "no verdict was written"
        return {"failure": silence, "answer": Answer().to_json() | {"note": silence}}
    body: dict[str, Any] = {"verdict": verdict}
    if conditions.forecasts:
        forecasts, reason = forecast_run(
            newest_run(runs), verdict, job.scenario, job.setting
        )
        body |= {"forecasts": forecasts, "forecast_missing": reason}
    return body


def newest_run(runs: Path) -> Path | None:
    """Find the run folder that was just written."""
    found = sorted(runs.glob("*/manifest.json"), key=lambda it: it.stat().st_mtime)
    return found[-1].parent if found else None
