"""train-doctor: the findings of `train-doctor profile`, in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scenarios.bench.answers import Answer, Candidate
from scenarios.bench.tools.base import python, trained, with_argument
from scenarios.bench.tools.venvs import binary_of, missing, version_of

LENGTHENED = 3
"""It measures at least 50 steps and ends the training itself, so the script may run longer."""
FINDINGS = {
    "dataloader_bound": ("input", Candidate(regime="serial")),
    "cpu_bound_preprocessing": ("input", Candidate(activity="compute")),
    "pin_memory_off": ("transfer", Candidate(activity="copy")),
    "host_sync_in_loop": ("host", Candidate(activity="sync", regime="steady")),
    "checkpoint_in_hot_loop": ("host", Candidate(activity="python", regime="periodic")),
    "logging_in_hot_loop": ("host", Candidate(activity="python")),
}
"""What a finding says in our words. Others (compile, precision, batch size) speak of the device's own work."""


class TrainDoctor:
    """`train-doctor profile --json`."""

    name = "train-doctor"
    how = (
        "`train-doctor profile --json`; its findings in order: cpu_bound_preprocessing is input and computing, "
        "dataloader_bound input, host_sync_in_loop reading the loss, checkpoint and logging host code, "
        "the rest the device."
    )

    def unavailable(self) -> str | None:
        """Look for the program."""
        return missing("train-doctor", "train-doctor")

    def version(self) -> str:
        """Give the version that is installed."""
        return version_of("train-doctor")

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Profile the script; a small optimizer step marks each step."""
        longer = with_argument(script, "seconds", f"{seconds * LENGTHENED:g}")
        program = str(binary_of("train-doctor", "train-doctor"))
        training = trained(python(), "plain", scratch, longer)
        return [program, "profile", "--json", f"--out={scratch}", "--", *training]

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Read the JSON on standard output."""
        begin = output.find("{\n")
        try:
            report = json.loads(output[begin:]) if begin >= 0 else {}
        except json.JSONDecodeError:
            report = {}
        if report.get("error") or "findings" not in report:
            return Answer(), str(report.get("error") or "no report was printed")
        findings = [it["id"] for it in report["findings"]]
        return doctor_answer(findings), ", ".join(findings) or "no findings"


def doctor_answer(findings: list[str]) -> Answer:
    """Put its findings into our words."""
    said: list[Any] = [FINDINGS[it] for it in findings if it in FINDINGS]
    if not said:
        return Answer(limit="device")
    return Answer(limit=said[0][0], candidates=tuple(candidate for _, candidate in said))
