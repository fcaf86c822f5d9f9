"""Tools that need no installation: the folk rule, a rate bound, torch.profiler."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import scenarios.bench.programs.folk as folk_rule
from scenarios.bench.answers import Answer, Candidate
from scenarios.bench.tools.base import python, trained, with_argument
from scenarios.harness import read_statistic

STEP_BRACKET = "ProfilerStep"
"""Name of torch.profiler's own row around each step: time that no operation has."""
FETCH_PART = 0.10
"""Part of the table from which its first operation counts as the answer, as TraceML's warnings begin at 10 %."""


class FolkRule:
    """Device utilisation, state D and CPU per cent."""

    name = "folk rule"
    how = (
        "A person at nvidia-smi and htop: a busy device is the limit; else state D in every fifth look means files, "
        "a worker above 80 % of a core means computing, the main process above 80 % means host code."
    )

    def unavailable(self) -> str | None:
        """It needs /proc only."""
        return None

    def version(self) -> str:
        """It has none."""
        return "—"

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Look from a parent process."""
        return [python(), str(folk_rule.__file__), str(scratch / "folk.json"), *script]

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Apply the rule."""
        statistic = read_statistic(output)
        path = scratch / "folk.json"
        if statistic is None or not path.exists():
            return Answer(), "the training ended too early"
        seen = json.loads(path.read_text())
        words = ", ".join(f"{name} {value:.0%}" for name, value in seen.items())
        return folk_answer(statistic["idle_ratio"], seen), words


def folk_answer(idle_ratio: float, seen: dict[str, float]) -> Answer:
    """Say what people conclude from what is on the screen."""
    if idle_ratio < folk_rule.IDLE_DEVICE:
        return Answer(limit="device")
    if seen["waiting"] >= folk_rule.WAITING:
        return Answer(limit="input", candidates=(Candidate(activity="storage"),))
    if seen["worker_cpu"] >= folk_rule.FULL_CORE:
        return Answer(limit="input", candidates=(Candidate(activity="compute"),))
    if seen["main_cpu"] >= folk_rule.FULL_CORE:
        return Answer(limit="host", candidates=(Candidate(activity="python"),))
    return Answer(limit="input")


class RateBound:
    """The loader alone against the step: the differential method."""

    name = "rate bound"
    how = (
        "The script runs with a step of no length: when the loader alone takes longer for a batch than the step does, "
        "input is the limit, else the device. It names no cause."
    )

    def unavailable(self) -> str | None:
        """It needs nothing."""
        return None

    def version(self) -> str:
        """It has none."""
        return "—"

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Leave the step out, and keep its length for the comparison."""
        step = next(it for it in script if it.startswith("--step-ms="))
        (scratch / "step.txt").write_text(step.partition("=")[2])
        return [python(), *with_argument(script, "step-ms", "0")]

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Compare the two rates."""
        statistic = read_statistic(output)
        if not statistic or not statistic["steps_per_second"]:
            return Answer(), "the training ended too early"
        loader_ms = 1e3 / statistic["steps_per_second"]
        step_ms = float((scratch / "step.txt").read_text())
        limit = "input" if loader_ms > step_ms else "device"
        return Answer(limit=limit), f"loader {loader_ms:.1f} ms, step {step_ms:g} ms"


class TorchProfiler:
    """The table that torch.profiler prints, by self CPU time."""

    name = "torch.profiler"
    how = (
        "The loop runs under torch.profiler with a schedule of 30 steps; when fetching from the loader leads its "
        "table by self CPU time and is a tenth of it, input is the limit, another operation means host code, and "
        "time that no operation has is the step's own: the device. It does not look into workers."
    )

    def unavailable(self) -> str | None:
        """It comes with torch."""
        return None

    def version(self) -> str:
        """Give torch's version."""
        return importlib.metadata.version("torch")

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Run the loop under it."""
        return trained(python(), "torch-profiler", scratch, script)

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Read its table."""
        path = scratch / "operations.json"
        if not path.exists():
            return Answer(), "the training ended before the schedule did"
        table = json.loads(path.read_text())
        return profiler_answer(table), table["rows"][0]["name"] if table["rows"] else None


def profiler_answer(table: dict[str, Any]) -> Answer:
    """Say what its table means: fetching leads and is a sizeable part, or it does not."""
    rows = [it for it in table["rows"] if not it["name"].startswith(STEP_BRACKET)]
    if not rows or rows[0]["self_us"] < FETCH_PART * table["total_us"]:
        return Answer(limit="device")
    if rows[0]["name"].startswith("enumerate(DataLoader)"):
        return Answer(limit="input")
    return Answer(limit="host", candidates=(Candidate(activity="python"),))
