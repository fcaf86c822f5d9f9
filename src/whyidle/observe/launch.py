"""Start the training under observation, stay out of its way, and write down how it ended.

NOTE [the launcher is not needed]
    Nothing of the training hangs on this process: its streams are the person's, its journals are written by
    itself, no death signal is set. Killed with -9, the launcher leaves a training that goes on, and a run folder
    whose manifest has no end.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from whyidle.errors import LaunchError
from whyidle.model.findings import NotObserved
from whyidle.observe import machine
from whyidle.observe.bounds import Deadline, highest_step
from whyidle.observe.sampler import Observer
from whyidle.observe.signals import JOB_CONTROL_STOPS, SignalRelay, stop_like
from whyidle.observe.status import StatusLine
from whyidle.store import live, rundir
from whyidle.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OBSERVER_HZ = 20.0
"""Looks a second at the threads that matter: at 20 Hz for 6 s, shares are good to 4 points."""
_LOOP_NS = NS_PER_S // 4
"""How often the deadline and the status line are looked at; signals and the end wake the loop at once."""
_OBSERVER_END_S = 1.0
"""How long to wait for the observer to finish a look at the end: a hung mount must not hold the person up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSetting:
    """What a target gets that differs from what the launcher was given."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the launcher's own."""
    folder: Path | None = None
    """Where it runs; None: where the launcher runs."""
    output: Path | None = None
    """File that takes its stdout and stderr, added at the end; its stdin is empty then. None: the launcher's own."""


_AS_IT_IS = TargetSetting()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """How the training ended."""

    exit_status: int
    """What a shell would report: the target's own status, or 128 plus the signal that ended it."""
    signal: int | None
    """The signal that ended it; None after an exit."""
    ended_by: str | None
    """`steps`, `seconds` or `interrupt`; None when it ended by itself."""
    not_observed: tuple[NotObserved, ...]
    """What could not be seen."""
    observed: bool
    """False when nothing could be recorded: there is no verdict then."""
    start_mono_ns: int
    """When the target was started."""
    end_mono_ns: int
    """When its end was noticed."""


def run_observed(
    command: Sequence[str],
    run_dir: Path | None,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    status_stream: TextIO | None = None,
    setting: TargetSetting = _AS_IT_IS,
) -> LaunchResult:
    """Run a command to its end under observation.

    Args:
        command: The unmodified training command.
        run_dir: Folder for what is recorded, made if need be. None, or a folder that cannot be written: the
            command still runs, unobserved.
        steps: End the training after so many steps.
        seconds: End the training so long after its first step.
        status_stream: Where messages go, and the status line if that is a terminal; stderr if not given.
        setting: What the target gets that differs from what this process was given.

    Raises:
        LaunchError: the command could not be started; nothing ran.
    """
    stream = sys.stderr if status_stream is None else status_stream
    occupy_closed_descriptors()
    run = _Run(list(command), run_dir, steps, seconds, stream, setting)
    return run.to_the_end()


def child_environment(
    environment: Mapping[str, str], run_dir: Path, inject_dir: Path, steps: int | None
) -> dict[str, str]:
    """The target's environment: the person's own, with the agent's folder first on PYTHONPATH."""
    changed = dict(environment)
    shadowed = environment.get("PYTHONPATH")
    changed["PYTHONPATH"] = f"{inject_dir}:{shadowed}" if shadowed else str(inject_dir)
    changed[live.ENV_RUN_DIR] = str(run_dir)
    changed.pop(live.ENV_SHADOWED_PATH, None)
    if shadowed is not None:
        changed[live.ENV_SHADOWED_PATH] = shadowed
    changed.pop(live.ENV_STEPS, None)
    if steps is not None:
        changed[live.ENV_STEPS] = str(steps)
    return changed


def find_inject_dir() -> Path | None:
    """The folder that goes on PYTHONPATH; None when it cannot be named there. Does not import the agent."""
    spec = importlib.util.find_spec("whyidle_agent")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).resolve().parent / "inject"
    return None if ":" in str(folder) or not folder.is_dir() else folder


def occupy_closed_descriptors() -> None:
    """Take standard descriptors that are closed, so that no file of ours gets their numbers.

    What is opened here is closed again by exec: the target sees what the person gave it.
    """
    with contextlib.suppress(OSError):
        while (file := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
            pass
        os.close(file)


class _Run:
    """One run, from the folder to the final manifest."""

    def __init__(
        self,
        command: list[str],
        run_dir: Path | None,
        steps: int | None,
        seconds: float | None,
        stream: TextIO,
        setting: TargetSetting,
    ) -> None:
        self._setting = setting
        self._command = command
        self._steps = steps
        self._seconds = seconds
        self._stream = stream
        self._not_observed: list[NotObserved] = []
        self._start_ns = time.monotonic_ns()
        self._manifest = self._describe()
        self._run_dir = self._prepared(run_dir)

    def to_the_end(self) -> LaunchResult:
        relay = SignalRelay()
        relay.install()
        try:
            process = self._spawn()
            relay.attach(process.pid)
            # Only now: the target does not wait for a slow disk.
            self._write_manifest()
            return self._watch(process, relay)
        finally:
            relay.restore()

    def _prepared(self, run_dir: Path | None) -> Path | None:
        """The folder, ready for the agents; None when it cannot be had."""
        if run_dir is None:
            return None
        folder = run_dir.absolute()
        try:
            live.prepare_run_dir(folder)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self._say(
                f"cannot write {str(folder)!r} ({reason}): the command runs unobserved, without a verdict"
            )
            return None
        return folder

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = dict(os.environ) | dict(self._setting.environment)
        if self._run_dir is not None:
            inject_dir = find_inject_dir()
            if inject_dir is None:
                self._miss(
                    "agent-not-found",
                    "the agent's folder cannot be put on PYTHONPATH; only the outside view",
                )
            else:
                environment = child_environment(
                    environment, self._run_dir, inject_dir, self._steps
                )
        self._start_ns = time.monotonic_ns()
        self._manifest["start_mono_ns"] = self._start_ns
        try:
            return self._open(environment)
        except (OSError, ValueError, IndexError) as error:
            raise self._launch_error(error) from error

    def _open(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        setting = self._setting
        if setting.output is None:
            # close_fds: descriptors beyond 2 that a shell hands over (`3<file`, `<(...)`) belong to the target.
            return subprocess.Popen(
                self._command, env=environment, cwd=setting.folder, close_fds=False
            )
        with open(setting.output, "ab") as output:
            return subprocess.Popen(
                self._command,
                env=environment,
                cwd=setting.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _launch_error(self, error: Exception) -> LaunchError:
        program = self._command[0] if self._command else ""
        missing = isinstance(error, OSError) and error.errno in (
            errno.ENOENT,
            errno.ENOTDIR,
        )
        status = 127 if missing or not program else 126
        reason = getattr(error, "strerror", None) or str(error)
        self._finish(
            exit_status=status, number=None, ended_by=None, end_ns=time.monotonic_ns()
        )
        return LaunchError(
            f"cannot start {program!r}: {reason}; a program or a path to one is expected after `--`",
            slug="command-not-found" if status == 127 else "command-not-executable",
            hint="Type the command as you would without whyidle, for example `-- python train.py`.",
            exit_status=status,
        )

    def _watch(self, process: subprocess.Popen[bytes], relay: SignalRelay) -> LaunchResult:
        observer = self._observer(process.pid)
        status = StatusLine(self._stream if observer else None, self._start_ns)
        duration_ns = None if self._seconds is None else int(self._seconds * NS_PER_S)
        deadline = Deadline(
            self._run_dir, process.pid, self._start_ns, duration_ns, self._say
        )
        while (ended := poll_target(process)) is None:
            relay.wait(_LOOP_NS)
            now_ns = time.monotonic_ns()
            deadline.poll(now_ns)
            if observer is not None and self._run_dir is not None and status.is_due(now_ns):
                status.draw(
                    now_ns,
                    highest_step(self._run_dir, observer.training_pids),
                    observer.activity,
                )
        ended_ns = time.monotonic_ns()
        status.clear()
        if observer is not None:
            observer.stop(_OBSERVER_END_S)
            self._not_observed += observer.not_observed
        return self._result(ended, relay, deadline, observer, ended_ns)

    def _observer(self, pid: int) -> Observer | None:
        if self._run_dir is None:
            return None
        try:
            observer = Observer.for_run(self._run_dir, pid, OBSERVER_HZ)
        except OSError as error:
            self._miss(
                "observer-stopped",
                f"its journal cannot be written ({error.strerror}); no outside view",
            )
            return None
        observer.start()
        return observer

    def _result(
        self,
        ended: Ended,
        relay: SignalRelay,
        deadline: Deadline,
        observer: Observer | None,
        end_ns: int,
    ) -> LaunchResult:
        if deadline.ended_with is not None:
            self._miss(
                "orderly-stop-failed",
                f"the training did not end by itself at the bound and got {deadline.ended_with.name}; "
                "its last steps may be missing",
            )
        self._note_missing_agent(observer.training_pids if observer else frozenset())
        ended_by = self._ended_by(ended, relay, deadline)
        exit_status = ended.status if ended.signal is None else 128 + ended.signal
        self._finish(
            exit_status=exit_status, number=ended.signal, ended_by=ended_by, end_ns=end_ns
        )
        return LaunchResult(
            exit_status=exit_status,
            signal=ended.signal,
            ended_by=ended_by,
            not_observed=tuple(self._not_observed),
            observed=self._run_dir is not None,
            start_mono_ns=self._start_ns,
            end_mono_ns=end_ns,
        )

    def _ended_by(self, ended: Ended, relay: SignalRelay, deadline: Deadline) -> str | None:
        if relay.interrupted or (
            ended.signal == signal.SIGINT and not deadline.was_reached
        ):
            return "interrupt"
        if deadline.was_reached:
            return "seconds"
        if self._steps is not None and self._run_dir is not None and ended.signal is None:
            return "steps" if highest_step(self._run_dir) >= self._steps else None
        return None

    def _note_missing_agent(self, training_pids: frozenset[int]) -> None:
        if self._run_dir is None:
            return
        booted = live.list_booted(self._run_dir)
        isolated = training_pids - booted
        if booted and isolated:
            self._miss(
                "agent-not-loaded",
                f"{len(isolated)} Python process(es) that look like the training did not load the agent "
                "(isolated with -I, -E or -S, or a cleared environment): their steps, lines and samples are unknown",
            )
        if booted:
            return
        self._miss(
            "agent-not-loaded",
            "no Python interpreter of the run loaded the agent (isolated with -I, -E or -S, a cleared environment, "
            "or no Python at all): steps, lines and samples are unknown, only the outside view is left",
        )

    def _miss(self, slug: str, reason: str) -> None:
        self._not_observed.append(NotObserved(slug=slug, reason=reason))

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(f"whyidle: {message}", file=self._stream, flush=True)

    def _describe(self) -> dict[str, object]:
        return {
            "schema_version": rundir.MANIFEST_SCHEMA_VERSION,
            "command": self._command,
            "working_dir": _working_dir(self._setting.folder),
            "start_unix_ns": time.time_ns(),
            "start_mono_ns": self._start_ns,
            "end_mono_ns": None,
            "exit_status": None,
            "signal": None,
            "ended_by": None,
            "steps_bound": self._steps,
            "seconds_bound": self._seconds,
            **machine.describe_machine(),
            "observer": {"hz": OBSERVER_HZ},
            "not_observed": [],
        }

    def _write_manifest(self) -> None:
        if self._run_dir is None:
            return
        try:
            rundir.write_manifest(self._run_dir, self._manifest)
        except OSError as error:
            self._say(f"cannot write to {str(self._run_dir)!r}: {error.strerror}")

    def _finish(
        self, *, exit_status: int, number: int | None, ended_by: str | None, end_ns: int
    ) -> None:
        if self._run_dir is None:
            return
        missed = [{"slug": one.slug, "reason": one.reason} for one in self._not_observed]
        self._manifest |= {
            "end_mono_ns": end_ns,
            "exit_status": exit_status,
            "signal": number,
            "ended_by": ended_by,
            "not_observed": missed,
        }
        self._write_manifest()


def _working_dir(folder: Path | None) -> str | None:
    """Where the target runs; None when that folder is gone."""
    try:
        return str((folder or Path.cwd()).absolute())
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    status: int
    """Exit status; 0 after a signal."""
    signal: int | None
    """The signal that ended it."""


def poll_target(process: subprocess.Popen[bytes]) -> Ended | None:
    """How the target has ended, None while it lives. A target stopped from the keyboard stops us too."""
    try:
        info = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        # Somebody else waited for it: its status is lost.
        process.returncode = 0
        return Ended(status=0, signal=None)
    if info is None:
        return None
    if info.si_code == os.CLD_EXITED:
        process.returncode = info.si_status
        return Ended(status=info.si_status, signal=None)
    if info.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
        process.returncode = -info.si_status
        return Ended(status=0, signal=info.si_status)
    if info.si_code == os.CLD_STOPPED and info.si_status in JOB_CONTROL_STOPS:
        stop_like(process.pid)
    return None
