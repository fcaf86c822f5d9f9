"""Run a scenario, alone or under `whyidle run`, and grade what was said."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scenarios.grading import grade
from scenarios.surroundings import Surroundings, prepare
from scenarios.truth import Scenario

SPARE_SECONDS = 60.0
"""How long start, end and analysis may take together before a run counts as hung."""
DISTURBED_CPUS = 0.35
"""Others using more CPUs than this on average: the run is shown as disturbed."""
TURN_SECONDS = 0.2
"""Pause after a run, so that whoever else waits for the machine gets it before this process asks again."""
SOURCES = Path(__file__).resolve().parent.parent / "src"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of one scenario at one setting."""

    name: str
    setting: int
    """Index of the setting, from 0."""
    cured: bool
    alone: bool
    """True: without whyidle, so only the script's own statistic is known."""
    statistic: dict[str, Any] | None
    """What the script printed about itself; None when it printed nothing."""
    verdict: dict[str, Any] | None
    grade: dict[str, Any] | None
    ok: bool | None
    """None when there is nothing to grade."""
    other_cpus: float
    """CPUs that processes other than the run and its surroundings used, on average."""
    failure: str | None
    """Why there is no result; None when there is one."""

    @property
    def disturbed(self) -> bool:
        """Whether others used so much of the machine that the planted cause may not be the true one."""
        return self.other_cpus > DISTURBED_CPUS

    def key(self) -> tuple[str, int, bool, bool]:
        """Tell runs apart in a results file."""
        return self.name, self.setting, self.cured, self.alone


def run_scenario(
    scenario: Scenario,
    setting: int,
    *,
    seconds: float,
    cured: bool = False,
    alone: bool = False,
    weight: int | None = None,
    keep: Path | None = None,
) -> Result:
    """Set up, run, grade, take down; `weight` lets the run go first on a busy machine."""
    parts = dict(scenario.cured_environment if cured else scenario.environment)
    if weight is not None and "neighbours" not in scenario.environment:
        parts["weight"] = {"factor": weight}
    with one_at_a_time(), prepare(parts) as surroundings:
        command = script_command(
            scenario, setting, surroundings, seconds=seconds, cured=cured
        )
        verdict_path = surroundings.scratch / "verdict.json"
        if not alone:
            out = keep or surroundings.scratch / "runs"
            command = observed(command, verdict_path, out, seconds=seconds)
        with measured(surroundings) as load:
            output, failure = run_command(command, surroundings, seconds + SPARE_SECONDS)
        verdict = read_verdict(verdict_path)
        if verdict is None and not alone and failure is None:
            failure = "no verdict was written"
        graded = None
        if verdict is not None and not cured:
            graded = grade(verdict, scenario, surroundings.values)
        return Result(
            name=scenario.name,
            setting=setting,
            cured=cured,
            alone=alone,
            statistic=read_statistic(output),
            verdict=verdict,
            grade=asdict(graded) if graded else None,
            ok=graded.ok if graded else (False if failure else None),
            other_cpus=load["other_cpus"],
            failure=failure,
        )


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other scenario runs on this machine: two at a time would disturb each other."""
    path = Path(tempfile.gettempdir()) / "whyidle-scenarios.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    time.sleep(TURN_SECONDS)


def script_command(
    scenario: Scenario,
    setting: int,
    surroundings: Surroundings,
    *,
    seconds: float,
    cured: bool | str,
) -> list[str]:
    """Give the command a person would type; `cured` may name the one cause that is removed."""
    return [
        sys.executable,
        *scenario.launcher,
        str(scenario.script),
        *(surroundings.fill(argument) for argument in scenario.arguments),
        *scenario.settings[setting].arguments(),
        f"--seconds={seconds:g}",
        *cure_switch(cured),
    ]


def cure_switch(cured: bool | str) -> list[str]:
    """Give the switch that removes all planted causes, or the named one."""
    if isinstance(cured, str):
        return [f"--cured={cured}"]
    return ["--cured"] if cured else []


def observed(
    command: list[str], verdict_path: Path, out: Path, *, seconds: float
) -> list[str]:
    """Put `whyidle run` before a command."""
    unbounded = [
        f"--seconds={seconds * 4:g}" if it.startswith("--seconds=") else it
        for it in command
    ]
    bound = ["--seconds", f"{seconds:g}", "--json", str(verdict_path), "--out", str(out)]
    return [sys.executable, "-m", "whyidle", "run", *bound, "--", *unbounded]


def run_command(
    command: list[str], surroundings: Surroundings, timeout_s: float
) -> tuple[str, str | None]:
    """Run to the end; gives its output and why it failed, if it did. Nothing of it is left."""
    environment = dict(os.environ)
    paths = [str(SOURCES), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=surroundings.enter,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return "", f"still running after {timeout_s:g} s"
    finally:
        end_group(process)
    if process.returncode:
        return output, f"exit status {process.returncode}: {errors.strip()[-400:]}"
    return output, None


def end_group(process: subprocess.Popen[str]) -> None:
    """End the run's own process group, the leader and whatever it left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def read_statistic(output: str) -> dict[str, Any] | None:
    """Find the script's own line of JSON."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"steps"'):
            statistic: dict[str, Any] = json.loads(line)
            return statistic
    return None


def read_verdict(path: Path) -> dict[str, Any] | None:
    """Read what whyidle wrote; None when it wrote nothing."""
    if not path.exists():
        return None
    verdict: dict[str, Any] = json.loads(path.read_text())
    return verdict


# --- disturbance from outside -----------------------------------------------------------------


def wait_for_quiet(patience_s: float) -> bool:
    """Wait until others leave the machine alone for a second; False when they did not in time."""
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        total_s, busy_s, _ = clocks([])
        time.sleep(1.0)
        later_total_s, later_busy_s, _ = clocks([])
        length_s = (later_total_s - total_s) / (os.cpu_count() or 1)
        if busy_s + DISTURBED_CPUS * length_s > later_busy_s:
            return True
    return patience_s == 0


@contextlib.contextmanager
def measured(surroundings: Surroundings) -> Iterator[dict[str, float]]:
    """Measure how many CPUs others used during the block: all busy time less ours and our helpers'."""
    load = {"other_cpus": 0.0}
    before = clocks(surroundings.helpers)
    yield load
    after = clocks(surroundings.helpers)
    total_s, busy_s, own_s = (
        late - early for early, late in zip(before, after, strict=True)
    )
    cpus = os.cpu_count() or 1
    length_s = total_s / cpus
    load["other_cpus"] = round(max(0.0, busy_s - own_s) / max(length_s, 1e-9), 2)


def clocks(helpers: list[subprocess.Popen[str]]) -> tuple[float, float, float]:
    """Give the machine's total and busy CPU seconds, and those of children and helpers."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    fields = [int(it) for it in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    total = sum(fields)
    busy = total - fields[3] - fields[4] - fields[7]  # less idle, iowait and steal
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = children.ru_utime + children.ru_stime
    for process in helpers:
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        own_s += (int(stat[11]) + int(stat[12])) * tick_s
    return total * tick_s, busy * tick_s, own_s
