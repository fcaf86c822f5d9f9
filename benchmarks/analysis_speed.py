"""How long a person waits for the verdict, and how many events a second are read and judged.

    make bench-analysis-speed
    PYTHONPATH=. python benchmarks/analysis_speed.py --repeats 9

Runs of a simulated loader are written as agents and observer would, then read and judged in a fresh process each
time. "verdict" is what `whyidle run` does between the last step and the screen (imports included); "events" counts
records of all kinds. Medians of the repeats, with the range.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.builders import JournalBuilder
from tests.recorded import record_run
from tests.timelines import MS, SimulatedLoader
from whyidle_agent import wire

JUDGE = """
import sys, time
begin = time.perf_counter(), time.process_time()
from pathlib import Path
from whyidle.commands.judging import judge_run
from whyidle.store.rundir import load_tables
from whyidle.views.terminal import render_verdict
tables = load_tables(Path(sys.argv[1]))
text = render_verdict(judge_run(tables), width=80, color=False)
rows = sum(len(table) for table in tables.tables.values())
print(time.perf_counter() - begin[0], time.process_time() - begin[1], rows)
"""


def make_run(folder: Path, *, steps: int, workers: int, samples: int) -> Path:
    """Write a run with `samples` sample records a batch beside all step-level records."""
    rng = np.random.default_rng(0)
    work = rng.gamma(4, 20, (steps, 1)) * MS
    run = record_run(
        folder / "run",
        SimulatedLoader(work, np.full(steps, 8.0 * MS), workers, 2),
        cpu_share=0.6,
    )
    for worker in range(workers):
        journal = JournalBuilder(pid=900 + worker, parent_pid=100, is_worker=True)
        batch = np.repeat(np.arange(worker, steps, workers), samples)
        journal.emit_rows(
            wire.SAMPLE, t0=batch * MS, t1=batch * MS + MS, a=batch, b=batch, c=0, d=-1
        )
        journal.write(run / "journals")
    return run


def measure(run: Path, repeats: int) -> tuple[list[float], list[float], int]:
    """Wall and CPU seconds from records to text, and the count of records."""
    wall, cpu, rows = [], [], 0
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, str(run)],
            check=True,
            capture_output=True,
            text=True,
        )
        words = done.stdout.split()
        wall.append(float(words[0]))
        cpu.append(float(words[1]))
        rows = int(words[2])
    return wall, cpu, rows


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    for steps, workers, samples in ((1_000, 8, 16), (20_000, 8, 100), (40_000, 8, 200)):
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder), steps=steps, workers=workers, samples=samples)
            wall, cpu, rows = measure(run, args.repeats)
        print(
            f"{steps:6} steps x {workers} workers, {rows / 1e6:6.2f} M events: verdict in "
            f"{statistics.median(wall):.2f} s [{min(wall):.2f}, {max(wall):.2f}], CPU {statistics.median(cpu):.2f} s, "
            f"{rows / statistics.median(cpu) / 1e6:.1f} M events a CPU second"
        )


if __name__ == "__main__":
    main()
