"""gpuprof: the insights that it prints."""

from __future__ import annotations

import re
from pathlib import Path

from scenarios.bench.answers import Answer, Candidate
from scenarios.bench.tools.base import trained
from scenarios.bench.tools.venvs import binary_of, missing, version_of

INSIGHT = re.compile(r"^\s*\[(HIGH|MED|LOW)\]\s+(.*)$", re.MULTILINE)
RULES: tuple[tuple[str, str, Candidate | None], ...] = (
    ("CPU pegged", "input", Candidate(activity="compute")),
    ("disk hot", "input", Candidate(activity="storage")),
    ("Cold-cache pattern", "input", Candidate(activity="storage")),
    ("Cache thrashing", "input", Candidate(activity="storage")),
    ("worker imbalance", "input", Candidate(regime="inactive-workers")),
    ("waiting on the loader", "input", None),
    ("Prefetch queue starved", "input", None),
    ("unaccounted", "host", Candidate(activity="python")),
)
"""Words of an insight, the limit that it means, and the cause, if it names one."""


class Gpuprof:
    """`with gpuprof.profile(...)` around the loop."""

    name = "gpuprof"
    how = (
        "`with gpuprof.profile()` around the script; of its insights marked HIGH or MED, waiting on the loader "
        "is input, with the CPU pegged computing, with the disk busy storage; unaccounted time is host code; "
        "none is the device."
    )

    def unavailable(self) -> str | None:
        """Look for the program."""
        return missing("gpuprof", "gpuprof")

    def version(self) -> str:
        """Give the version that is installed."""
        return version_of("gpuprof")

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Run the script inside its context, with its own interpreter."""
        return trained(binary_of("gpuprof", "python"), "gpuprof", scratch, script)

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Read what it prints when the loop ends."""
        if "gpuprof ·" not in output:
            return Answer(), "no summary was printed"
        lines = [words for level, words in INSIGHT.findall(output) if level != "LOW"]
        return gpuprof_answer(lines), "; ".join(lines) or "no insight"


def gpuprof_answer(insights: list[str]) -> Answer:
    """Put its insights into our words; the more telling of two about the same limit comes first."""
    said = [
        (limit, candidate)
        for words, limit, candidate in RULES
        if any(words.lower() in insight.lower() for insight in insights)
    ]
    if not said:
        return Answer(limit="device")
    candidates = tuple(candidate for _, candidate in said if candidate is not None)
    return Answer(limit=said[0][0], candidates=candidates)
