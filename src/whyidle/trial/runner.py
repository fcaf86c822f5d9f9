"""Run one bounded run of the training, recorded, and read from it what a trial needs."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from whyidle.analysis.align import build_timeline
from whyidle.analysis.regimes import loader_of_steps
from whyidle.errors import WhyidleError
from whyidle.model.remedies import LOADER_ARGUMENTS, Settings
from whyidle.model.trial import Block
from whyidle.observe.launch import LaunchResult, TargetSetting, run_observed
from whyidle.store import live, rundir
from whyidle.trial.candidates import read_situation
from whyidle.trial.conduct import BlockRun
from whyidle.trial.load import read_clocks, used_cpus
from whyidle.trial.plan import MIN_STEPS
from whyidle.trial.record import OUTPUT_FOLDER, RUNS_FOLDER, read_last_lines
from whyidle.trial.statistics import Sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from whyidle.model.events import RunTables
    from whyidle.model.timeline import RankTimeline, Timeline
    from whyidle.model.trial import LoaderSite
    from whyidle.trial.plan import BlockPlan
    from whyidle.trial.workdir import WorkdirCopies

LOSS_COUNT = 50
"""Losses kept of each run: enough to tell a mean from another, too few to cost anything."""
TAIL_LINES = 5
"""Lines of a failed training's output that are shown."""


class Interrupted(Exception):  # noqa: N818  (no error: somebody wants the result now)
    """A person or a supervisor ended a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One run of the training, read back."""

    result: LaunchResult
    tables: RunTables | None
    """None when nothing was recorded."""
    timeline: Timeline | None
    own_cpus: float
    """CPUs that the run used, start-up included."""
    other_cpus: float
    """CPUs that others used of those that the run might use."""
    wall_ns: int

    @property
    def rank(self) -> RankTimeline | None:
        """The rank that speaks for the run; None when no loader was asked."""
        ranks = (
            [one for one in self.timeline.ranks if len(one.steps)] if self.timeline else []
        )
        return ranks[0] if ranks else None


class Runner:
    """Runs the command, each time in its own run folder."""

    def __init__(
        self, command: Sequence[str], trial_dir: Path, copies: WorkdirCopies | None
    ) -> None:
        """Take what is the same for all runs.

        Args:
            command: The training, as the person typed it.
            trial_dir: Folder of the try.
            copies: Gives each run a copy of the working folder; None: all run in the folder itself.
        """
        self._command = list(command) if copies is None else copies.in_copy(command)
        self._trial_dir = trial_dir.absolute()
        self._copies = copies

    def record(self, run_dir: Path, name: str, wish: dict[str, object], *,
               steps: int | None, seconds: float) -> Recording:  # fmt: skip
        """Run once under observation.

        Args:
            run_dir: Run folder to make.
            name: Name of the file that takes the output.
            wish: What the agent changes, as `whyidle_agent.trial` reads it.
            steps: Bound in steps, if any.
            seconds: Bound from the first step.

        Raises:
            Interrupted: the run was interrupted.
            WhyidleError: the command cannot be started, or the working folder not be copied.
        """
        started_ns = time.monotonic_ns()
        if self._copies is not None:
            self._copies.make()
        before = read_clocks()
        result = run_observed(
            self._command,
            run_dir,
            steps=steps,
            seconds=seconds,
            # Neither a status line nor messages: a trial's own ones are shown.
            status_stream=io.StringIO(),
            setting=self._setting(name, wish),
        )
        own, others = used_cpus(before, read_clocks())
        if result.ended_by == "interrupt" or result.signal in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
        ):
            raise Interrupted
        tables, timeline = _load(run_dir)
        return Recording(
            result=result,
            tables=tables,
            timeline=timeline,
            own_cpus=own,
            other_cpus=others,
            wall_ns=time.monotonic_ns() - started_ns,
        )

    def output_path(self, name: str) -> Path:
        """Give the file that takes a run's output."""
        return self._trial_dir / OUTPUT_FOLDER / f"{name}.log"

    def last_words(self, name: str) -> str:
        """Give the end of what a run printed, as one text; empty when it printed nothing."""
        return "\n".join(read_last_lines(self.output_path(name), TAIL_LINES))

    def _setting(self, name: str, wish: dict[str, object]) -> TargetSetting:
        environment = {live.ENV_TRIAL: json.dumps({"losses": LOSS_COUNT, **wish})}
        if self._copies is not None:
            environment |= self._copies.environment(os.environ)
        return TargetSetting(
            environment=environment,
            folder=None if self._copies is None else self._copies.folder,
            output=self.output_path(name),
        )

    def run_block(
        self, number: int, settings: Settings, site: LoaderSite, plan: BlockPlan
    ) -> BlockRun:
        """Run one block of an arm and measure it.

        Raises:
            Interrupted: the run was interrupted.
            WhyidleError: the command cannot be started, or the working folder not be copied.
        """
        name = f"{number:02d}"
        recording = self.record(
            self._trial_dir / RUNS_FOLDER / name,
            name,
            make_wish(settings, site, os.cpu_count() or 1),
            steps=plan.bound,
            seconds=plan.seconds,
        )
        return read_block(number, settings, recording, plan, self.last_words(name))


def make_wish(settings: Settings, site: LoaderSite, cpu_count: int) -> dict[str, object]:
    """Say in the agent's terms what an arm changes.

    >>> from whyidle.model.trial import LoaderSite
    >>> site = LoaderSite(file="/job/train.py", line=7, settings=())
    >>> make_wish((("num_workers", 4), ("cpus", "all")), site, 2)
    {'loader': {'num_workers': 4}, 'file': '/job/train.py', 'line': 7, 'cpus': [0, 1]}
    """
    wish: dict[str, object] = {}
    loader = {name: value for name, value in settings if name in LOADER_ARGUMENTS}
    if loader:
        wish = {"loader": loader, "file": site.file, "line": site.line}
    for name, value in settings:
        if name not in LOADER_ARGUMENTS:
            wish[name] = list(range(cpu_count)) if name == "cpus" else value
    return wish


def read_block(
    number: int, settings: Settings, recording: Recording, plan: BlockPlan, last_words: str
) -> BlockRun:
    """Measure a block from what was recorded of it."""
    lengths = main_step_lengths(recording.rank)[plan.warmup_steps :][: plan.steps]
    failure = None
    if recording.result.exit_status != 0:
        failure = f"the training ended with exit status {recording.result.exit_status}"
        failure += f": {last_words.splitlines()[-1]}" if last_words else ""
    elif len(lengths) < MIN_STEPS:
        failure = f"only {len(lengths)} steps behind {plan.warmup_steps} of warm-up"
    applied, refused = _notes(recording)
    differences = _differences(settings, recording)
    sampled = None
    if failure is None:
        sampled = Sampled(
            lengths,
            recording.other_cpus,
            recording.own_cpus,
            queued_threads(recording.tables),
        )
    block = Block(
        number=number,
        settings=settings,
        steps=len(lengths) if sampled else 0,
        step_ns=sampled.mean_ns if sampled else None,
        own_cpus=recording.own_cpus,
        other_cpus=recording.other_cpus,
        wall_ns=recording.wall_ns,
        failure=failure,
        applied=applied if settings and not differences else (),
        refused=refused + differences,
    )
    return BlockRun(block, sampled, read_losses(recording))


def main_step_lengths(rank: RankTimeline | None) -> NDArray[np.float64]:
    """Give the time from each ask of the loader that fed most to its next, epoch ends included, (steps,) ns."""
    if rank is None:
        return np.empty(0)
    loaders = loader_of_steps(rank)
    numbers, counts = np.unique(loaders, return_counts=True)
    asks = rank.steps.ask_ns[loaders == numbers[counts.argmax()]]
    return np.asarray(np.diff(asks), dtype=np.float64)


def read_losses(recording: Recording) -> tuple[float, ...]:
    """Give the losses that the agent kept of the rank, in order."""
    rank, tables = recording.rank, recording.tables
    if rank is None or tables is None:
        return ()
    journals = [at for at, one in enumerate(tables.journals) if one.pid == rank.pid]
    rows = tables.tables["loss"].filter(pl.col("journal").is_in(journals)).sort("position")
    return tuple(map(float, rows["bits"].to_numpy().astype(np.int64).view(np.float64)))


def queued_threads(tables: RunTables | None) -> float | None:
    """Give the training's threads that were ready without a CPU, mean over the run; None when nobody looked."""
    if tables is None:
        return None
    looks = tables.tables["thread"].filter(pl.col("runq_ns") >= 0)
    now_ns = looks["now_ns"].to_numpy()
    if len(now_ns) < 2 or now_ns.max() == now_ns.min():
        return None
    waited = looks.group_by("pid", "tid").agg(
        ns=pl.col("runq_ns").max() - pl.col("runq_ns").min()
    )
    return float(waited["ns"].sum() / (now_ns.max() - now_ns.min()))


def startup_ns(recording: Recording) -> int:
    """Give the time of a run outside of its steps: up to the first ask, and behind the last."""
    rank = recording.rank
    if rank is None:
        return recording.wall_ns
    in_loop_ns = int(rank.steps.got_ns[-1] - rank.steps.ask_ns[0])
    return max(recording.wall_ns - in_loop_ns, 0)


def _load(run_dir: Path) -> tuple[RunTables | None, Timeline | None]:
    try:
        tables = rundir.load_tables(run_dir)
    except WhyidleError:
        return None, None
    return tables, build_timeline(tables)


def _notes(recording: Recording) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give what the agents say they applied, and what they refused; each once."""
    if recording.tables is None:
        return (), ()
    said: dict[str, dict[str, None]] = {"remedy-applied": {}, "remedy-refused": {}}
    for slug, message in recording.tables.tables["note"].select("slug", "message").rows():
        said.get(str(slug), {})[str(message)] = None
    return tuple(said["remedy-applied"]), tuple(said["remedy-refused"])


def _differences(settings: Settings, recording: Recording) -> tuple[str, ...]:
    """Say which arguments the loader really did not have."""
    found = read_situation(recording.rank, 1, 1) if recording.rank else None
    if found is None:
        return ()
    real = dict(found[1].settings)
    return tuple(
        f"{name} is {real.get(name)} in the loader, not {value}"
        for name, value in settings
        if name in LOADER_ARGUMENTS and real.get(name) != value
    )


def expected_step_ns(lengths: NDArray[np.float64]) -> float | None:
    """Give the mean step time behind the first quarter, which the filled queue makes fast; None with too few steps."""
    kept = lengths[len(lengths) // 4 :]
    return float(kept.mean()) if len(kept) >= MIN_STEPS // 2 else None
