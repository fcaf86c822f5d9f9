"""What the agent's own parts cost in a process: start-up, a record, a step, memory, the stack sampler.

    python benchmarks/agent_cost.py                          # in this interpreter
    python benchmarks/agent_cost.py --interpreter python3.8  # in another one, 3.8 and later

Needs no torch. CPU time throughout; start-up is paired and interleaved (plain, injected, plain, ...), with compiled
modules as an installation has them. Loops report the least of several rounds, memory what stays resident.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
STARTUP_LIMIT_MS = 10.0
"""The promise: CPU per interpreter."""
MEMORY_LIMIT_KIB = 3 * 1024
"""The promise: memory per process."""

INSIDE = """
import functools, inspect, mmap, multiprocessing.util, os, signal, struct, threading, time, weakref

def resident():
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Rss:"))

def least_ns(call, count=20000, rounds=9):
    spent = []
    for _ in range(rounds):
        begin = time.thread_time_ns()
        for _ in range(count):
            call()
        spent.append((time.thread_time_ns() - begin) / count)
    return min(spent)

before = resident()
from whyidle_agent import control, device, fetching, loader, loop, stacks, wire, worker, writer
emit = functools.partial(writer.emit, wire.ASK, 0, 1, 2, 3, 4, 5, 6, 7)
emit()
modules = resident() - before
print("record_ns", least_ns(emit))
print("known_text_ns", least_ns(functools.partial(writer.text, "known")))
print("step_ns", least_ns(control.on_step))
for number in range(writer.MAX_TEXTS):
    writer.text("/data/set/images/%07d.jpg" % number)
print("memory_start_kib", modules)
print("memory_full_kib", resident() - before)
stacks.watch(wire.STACK_ROLE_LOOP)
begin, wall = time.process_time(), time.monotonic()
time.sleep(3)
print("sampler_blocked_ratio", (time.process_time() - begin) / (time.monotonic() - wall))
begin, own, wall = time.process_time(), time.thread_time(), time.monotonic()
while time.monotonic() < wall + 3:
    sum(range(100))
others = time.process_time() - begin - (time.thread_time() - own)
print("sampler_busy_ratio", others / (time.monotonic() - wall))
"""


def main() -> None:
    """Measure and print, one number a line."""
    parser = argparse.ArgumentParser(
        description="What the agent's own parts cost in a process."
    )
    parser.add_argument("--interpreter", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        environment = observed_environment(source, Path(folder))
        report_startup(args.interpreter, environment, args.repeats)
        sys.stdout.flush()
        # Once only to have the modules compiled: compiling takes memory that stays.
        imports = "from whyidle_agent import device, fetching, loader, loop, stacks, worker"
        subprocess.run([args.interpreter, "-c", imports], env=environment, check=True)
        subprocess.run([args.interpreter, "-c", INSIDE], env=environment, check=True)


def observed_environment(source: Path, folder: Path) -> dict[str, str]:
    """The environment of an observed process; bytecode is kept, as in an installation."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "WHYIDLE"))
    }
    (folder / "run").mkdir()
    environment["WHYIDLE_RUN_DIR"] = str(folder / "run")
    environment["PYTHONPATH"] = str(source / "whyidle_agent" / "inject")
    return environment


def report_startup(interpreter: str, environment: dict[str, str], repeats: int) -> None:
    """Print the difference of paired starts: median and range."""
    plain = {
        k: v for k, v in environment.items() if not k.startswith(("PYTHON", "WHYIDLE"))
    }
    start_cpu_ms(interpreter, environment)
    differences = []
    for _ in range(repeats):
        without = start_cpu_ms(interpreter, plain)
        differences.append(start_cpu_ms(interpreter, environment) - without)
    median, low, high = statistics.median(differences), min(differences), max(differences)
    print(
        f"startup_cpu_ms {median:.2f} (from {low:.2f} to {high:.2f}; limit {STARTUP_LIMIT_MS})"
    )
    print(f"memory_limit_kib {MEMORY_LIMIT_KIB}")


def start_cpu_ms(interpreter: str, environment: dict[str, str]) -> float:
    """CPU time of an interpreter that starts and ends, ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([interpreter, "-c", "pass"], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


if __name__ == "__main__":
    main()
