"""py-spy: the function that is seen most often on a CPU, in the training and its workers."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from scenarios.bench.answers import TOP, Answer, Candidate
from scenarios.bench.tools.base import python
from scenarios.bench.tools.venvs import binary_of, missing, version_of

FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+):(?P<line>\d+)\)$")


class PySpy:
    """`py-spy record --subprocesses`."""

    name = "py-spy"
    how = (
        "`py-spy record --subprocesses`; the functions of the training script that are innermost in most samples, "
        "which it takes of what is on a CPU, so its activity is computing. It says nothing about the limit."
    )

    def unavailable(self) -> str | None:
        """Look for the program."""
        return missing("py-spy", "py-spy")

    def version(self) -> str:
        """Give the version that is installed."""
        return version_of("py-spy")

    def command(self, script: list[str], scratch: Path, seconds: float) -> list[str]:
        """Start the training under it, 100 samples a second, its default."""
        program = str(binary_of("py-spy", "py-spy"))
        form = ["--format=raw", "--full-filenames", f"--output={scratch / 'stacks.txt'}"]
        return [program, "record", "--subprocesses", *form, "--", python(), *script]

    def read(self, scratch: Path, output: str) -> tuple[Answer, str | None]:
        """Count the innermost frames of the script."""
        path = scratch / "stacks.txt"
        if not path.exists():
            return Answer(), "no samples were written"
        counts = innermost(path.read_text(encoding="utf-8"))
        total = sum(counts.values()) or 1
        candidates = tuple(
            Candidate(activity="compute", where=where_of(frame), share=count / total)
            for frame, count in counts.most_common(TOP)
        )
        note = f"{candidates[0].where['function']}" if candidates else "no samples"
        return Answer(candidates=candidates), note


def innermost(text: str) -> Counter[tuple[str, str]]:
    """Count samples by function and file of the innermost frame of a training script."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        for frame in reversed(stack.split(";")):
            match = FRAME.match(frame)
            if match and match["file"].endswith("/train.py"):
                counts[match["function"], match["file"]] += int(count)
                break
    return counts


def where_of(frame: tuple[str, str]) -> dict[str, str]:
    """Give a frame as a place."""
    return {"function": frame[0], "file": frame[1]}
