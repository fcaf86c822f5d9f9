"""TraceML: its primary diagnosis."""

from __future__ import annotations

import json
from pathlib import Path

from scenarios.bench.answers import Answer, Candidate
from scenarios.bench.tools.base import TRAINER, launcher_and_script
from scenarios.bench.tools.venvs import binary_of, missing, version_of

ANSWERS = {
    "INPUT_BOUND": Answer(limit="input"),
    "H2D_BOUND": Answer(limit="transfer", candidates=(Candidate(activity="copy"),)),
    "COMPUTE_BOUND": Answer(limit="device"),
    "RESIDUAL_HEAVY": Answer(limit="host", candidates=(Candidate(activity="python"),)),
    "BALANCED": Answer(limit="device"),
    "NO_CLEAR_PERFORMANCE_BOTTLENECK": Answer(limit="device"),
}
"""Diagnoses that are not listed (too few steps, no data) give no answer."""


class TraceML:
    """`traceml run` with `traceml.init()` and `trace_step` in the loop."""

    name = "TraceML"
    how = (
        "`traceml run` of the script with `traceml.init()` and `trace_step(model)` around each batch; of its primary "
        "diagnoses, INPUT_BOUND is input, H2D_BOUND copying, RESIDUAL_HEAVY other host code, the rest the device."
    )

    def unavailable(self) -> str | None:
        """Look for the program."""
        return missing("traceml-ai", "traceml")

    def version(self) -> str:
        """Give the version that is installed."""
        return version_of("traceml-ai")

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Start it; arguments of the script come behind --args."""
        program = str(binary_of("traceml-ai", "traceml"))
        options = [f"--logs-dir={scratch}", "--run-name=traceml"]
        launcher, rest = launcher_and_script(script)
        options += [it for it in launcher if it.startswith("--nproc")]
        arguments = ["--args", "traceml", str(scratch), *rest]
        return [program, "run", *options, str(TRAINER), *arguments]

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Read final_summary.json."""
        path = scratch / "traceml/final_summary.json"
        if not path.exists():
            return Answer(), "no summary was written"
        diagnosis = json.loads(path.read_text())["primary_diagnosis"]
        note = f"{diagnosis['status']}: {diagnosis['summary']}"
        return ANSWERS.get(diagnosis["kind"], Answer()), note
