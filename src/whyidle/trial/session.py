"""One `whyidle try`: record, judge, forecast and write it down, try, report."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from whyidle.errors import WhyidleError
from whyidle.model.findings import Limit
from whyidle.model.remedies import Settings, describe_settings
from whyidle.model.trial import (
    Candidate,
    CandidateResult,
    LoaderSite,
    LossComparison,
    LossState,
    Outcome,
    TrialReport,
    TrialState,
)
from whyidle.store import rundir
from whyidle.trial import record
from whyidle.trial.candidates import (
    MAX_CANDIDATES,
    Situation,
    combinations,
    make_candidate,
    prescribed,
    read_situation,
    suggest,
    with_suggestions,
)
from whyidle.trial.conduct import BlockRun, Conduct
from whyidle.trial.forecasts import TORCH_PREFETCH, forecast_settings
from whyidle.trial.plan import (
    BlockPlan,
    deepest_joined_queue,
    deepest_queue,
    plan_blocks,
    recorded_seconds,
)
from whyidle.trial.runner import (
    Interrupted,
    Recording,
    Runner,
    expected_step_ns,
    main_step_lengths,
    read_losses,
    startup_ns,
)
from whyidle.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from whyidle.model.events import RunTables
    from whyidle.model.findings import Verdict
    from whyidle.trial.workdir import WorkdirCopies

DEEP_REASON = "emptying its queue takes longer than there is time"
WARM_RATIO = 1.25
"""Unchanged blocks this much faster than the recorded run: what it read from a disk, they read from memory."""
WORTHWHILE = 1.01
"""Changes forecast to gain less are not tried: no trial of a few minutes could show it."""
RECORDED_NAME = "recorded"
_SECONDS_A_MINUTE = 60


class Audience(Protocol):
    """Is told what happens while it happens."""

    def starts(self, what: str, run_dir: Path, left_ns: int) -> None:
        """A run begins."""

    def has_run(self, line: str) -> None:
        """A run is over; one line about it."""


class Session:
    """Everything that belongs to one try."""

    def __init__(
        self,
        command: Sequence[str],
        trial_dir: Path,
        *,
        minutes: float,
        copies: WorkdirCopies | None,
        judge: Callable[[RunTables], Verdict],
        audience: Audience,
    ) -> None:
        """Begin the budget now.

        Args:
            command: The training.
            trial_dir: Folder of the try, made already.
            minutes: The budget.
            copies: Gives runs a copy of the working folder; None: they run in the folder itself.
            judge: Gives the verdict of a recorded run.
            audience: Is told what happens.
        """
        self._command = tuple(command)
        self._trial_dir = trial_dir
        self._minutes = minutes
        self._copies = copies
        self._judge_tables = judge
        self._audience = audience
        self._runner = Runner(command, trial_dir, copies)
        self._begin_ns = time.monotonic_ns()
        self._started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._conduct: Conduct | None = None
        self._set_aside: tuple[CandidateResult, ...] = ()
        self._loader: LoaderSite | None = None
        self._sentence = ""
        self._recorded_step_ns = 0.0
        self._sha256: str | None = None
        self._note = ""

    def run(self) -> TrialReport:
        """Do all of it; Ctrl-C ends it with what is known.

        Raises:
            WhyidleError: the training cannot be started, fails by itself, or asks no DataLoader.
        """
        try:
            state = self._run()
        except (Interrupted, KeyboardInterrupt):
            state = TrialState.INTERRUPTED
        report = self.report(state)
        record.write_report(self._trial_dir, report)
        return report

    def report(self, state: TrialState) -> TrialReport:
        """Give what is known now."""
        conduct = self._conduct
        return TrialReport(
            command=self._command,
            state=state,
            started=self._started,
            minutes=self._minutes,
            used_ns=time.monotonic_ns() - self._begin_ns,
            loader=self._shown_loader(),
            sentence=self._sentence,
            forecast_sha256=self._sha256,
            results=(*(conduct.results() if conduct else ()), *self._set_aside),
            unchanged_step_ns=conduct.unchanged_step_ns() if conduct else None,
            noise_ratio=conduct.noise_ratio() if conduct else None,
            other_cpus=conduct.other_cpus() if conduct else None,
            blocks=conduct.blocks() if conduct else (),
            note="; ".join(filter(None, (self._note, self._warm_note()))),
        )

    def _warm_note(self) -> str:
        """Say it when the trials had their files in memory and the recorded run had not."""
        now_ns = self._conduct.unchanged_step_ns() if self._conduct else None
        if now_ns is None or self._recorded_step_ns < WARM_RATIO * now_ns:
            return ""
        return (
            f"unchanged runs became {self._recorded_step_ns / now_ns:.1f} times as fast as the recorded one: what "
            "they read is in memory by now, so gains are those of a warm cache"
        )

    def _run(self) -> TrialState:
        recording = self._record()
        verdict = self._judge(recording)
        rank, timeline = recording.rank, recording.timeline
        assert rank is not None
        assert timeline is not None
        machine = timeline.machine
        found = read_situation(rank, machine.allowed_count, machine.cpu_count)
        if found is None:
            raise _no_steps(recording, self._runner.last_words(RECORDED_NAME))
        situation, self._loader = found
        lengths = main_step_lengths(rank)
        step_ns = expected_step_ns(lengths)
        if step_ns is None:
            raise _no_steps(recording, self._runner.last_words(RECORDED_NAME))
        self._recorded_step_ns = step_ns
        candidates, others = self._choose(situation, verdict, recording)
        known = {one.settings: one for one in (*candidates, *others)}
        self._sha256 = record.write_forecasts(
            self._trial_dir, (*candidates, *others), self._command
        )
        if not candidates:
            self._note = self._note or _why_nothing(verdict)
            return TrialState.NOTHING_TO_TRY
        arms = [(), *(one.settings for one in candidates)]
        plan = plan_blocks(
            step_ns=step_ns,
            startup_ns=startup_ns(recording),
            queued_batches=max(_queued_batches(situation, one) for one in arms),
            left_ns=self._left_ns(),
            candidates=len(candidates),
            most_steps=None if recording.result.ended_by == "seconds" else len(lengths),
        )
        if plan is None:
            raise _no_steps(recording, self._runner.last_words(RECORDED_NAME))
        if plan.proof_ns > self._left_ns():
            minutes = (plan.proof_ns + time.monotonic_ns() - self._begin_ns) / NS_PER_S / 60
            self._note = (
                f"a run takes {format_ns(plan.expected_ns)}: proof of one change takes "
                f"--minutes {minutes + 0.5:.0f}"
            )
        if plan.pair_ns + plan.expected_ns > self._left_ns():
            return TrialState.OUT_OF_TIME
        self._conduct = self._make_conduct(recording, situation, candidates, known, plan)
        return self._conduct.go_on(self._after_block)

    def _left_ns(self) -> int:
        budget_ns = int(self._minutes * _SECONDS_A_MINUTE * NS_PER_S)
        return self._begin_ns + budget_ns - time.monotonic_ns()

    def _record(self) -> Recording:
        run_dir = self._trial_dir / record.RECORDED_FOLDER
        self._audience.starts("recorded run", run_dir, self._left_ns())
        recording = self._runner.record(
            run_dir,
            RECORDED_NAME,
            {},
            steps=None,
            seconds=recorded_seconds(self._minutes),
        )
        words = self._runner.last_words(RECORDED_NAME)
        if recording.result.exit_status != 0:
            raise WhyidleError(
                f"the training ended with exit status {recording.result.exit_status} in the recorded run, before any "
                f"trial; expected it to run{_quoted(words)}",
                slug="try-training-failed",
                hint=f"Its whole output is in {self._runner.output_path(RECORDED_NAME)}.",
            )
        if recording.rank is None:
            raise _no_steps(recording, words)
        return recording

    def _judge(self, recording: Recording) -> Verdict:
        assert recording.tables is not None
        verdict = self._judge_tables(recording.tables)
        rundir.write_verdict(self._trial_dir / record.RECORDED_FOLDER, verdict)
        self._sentence = verdict.sentence
        self._audience.has_run(f"recorded run: {verdict.sentence}")
        return verdict

    def _choose(
        self, situation: Situation, verdict: Verdict, recording: Recording
    ) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
        """Give the candidates to try, and all others that have a forecast: combinations and what gains nothing."""
        found = with_suggestions(prescribed(verdict), suggest(situation, verdict))
        singles = self._forecast(found, recording, verdict)
        hopeless = tuple(one for one in singles if _is_hopeless(one))
        limit = deepest_queue(self._recorded_step_ns, self._left_ns())
        depth = {one.settings: _queued_batches(situation, one.settings) for one in singles}
        deep = tuple(
            one for one in singles if not _is_hopeless(one) and depth[one.settings] > limit
        )
        singles = _most_promising([one for one in singles if one not in (*hopeless, *deep)])
        queued = max((depth[one.settings] for one in singles), default=0)
        limit = deepest_joined_queue(self._recorded_step_ns, queued)
        possible = [
            one
            for one in combinations(singles, situation.workers)
            if _queued_batches(situation, one.settings) <= limit
        ]
        joined = self._forecast(possible, recording, verdict)
        self._set_aside = (
            *(_not_tried(one, DEEP_REASON) for one in deep),
            *(_not_tried(one, "forecast to gain nothing") for one in hopeless),
        )
        others = (*joined, *deep, *hopeless)
        return (*singles, *_best_combination(singles, joined)), others

    def _forecast(
        self, candidates: Sequence[Candidate], recording: Recording, verdict: Verdict
    ) -> tuple[Candidate, ...]:
        """Fill in the forecasts that candidates do not bring along."""
        bare = [one for one in candidates if one.forecast is None]
        assert recording.timeline is not None
        assert recording.rank is not None
        arms = [one.settings for one in bare]
        answers = forecast_settings(recording.timeline, recording.rank, verdict, arms)
        filled = {
            one.settings: replace(one, forecast=None, forecast_missing=answer)
            if isinstance(answer, str)
            else replace(one, forecast=answer, forecast_missing=None)
            for one, answer in zip(bare, answers, strict=True)
        }
        return tuple(filled.get(one.settings, one) for one in candidates)

    def _make_conduct(
        self,
        recording: Recording,
        situation: Situation,
        candidates: Sequence[Candidate],
        known: dict[Settings, Candidate],
        plan: BlockPlan,
    ) -> Conduct:
        site = self._loader
        assert site is not None

        def run_block(number: int, settings: Settings) -> BlockRun:
            run_dir = self._trial_dir / record.RUNS_FOLDER / f"{number:02d}"
            self._audience.starts(describe_arm(settings), run_dir, self._left_ns())
            return self._runner.run_block(number, settings, site, plan)

        def make_combination(settings: Settings) -> Candidate | None:
            if plan.warmup_steps < _queued_batches(situation, settings):
                return None
            return known.get(settings) or make_candidate(settings, situation.workers)

        return Conduct(
            candidates,
            run_block=run_block,
            left_ns=self._left_ns,
            make_combination=make_combination,
            cpu_count=situation.allowed_cpus,
            recorded_losses=read_losses(recording),
        )

    def _after_block(self) -> None:
        assert self._conduct is not None
        block = self._conduct.runs[-1].block
        said = (
            f"{format_ns(block.step_ns)} a step"
            if block.step_ns is not None
            else block.failure
        )
        if block.refused and not block.applied:
            said = f"not applied: {block.refused[0]}"
        self._audience.has_run(
            f"run {block.number}, {describe_arm(block.settings)}: {said}"
        )
        record.write_report(self._trial_dir, self.report(TrialState.RUNNING))

    def _shown_loader(self) -> LoaderSite | None:
        """The loader's place as the person knows it, not in a copy."""
        site = self._loader
        if site is None or site.file is None or self._copies is None:
            return site
        return replace(site, file=self._copies.in_original(site.file))


def describe_arm(settings: Settings) -> str:
    """Name an arm for a person."""
    return describe_settings(settings)


def _queued_batches(situation: Situation, settings: Settings) -> int:
    """Workers x prefetch of an arm."""
    values = dict(settings)
    workers = int(values.get("num_workers", situation.workers))
    usual = situation.prefetch if situation.workers else TORCH_PREFETCH
    return workers * int(values.get("prefetch_factor", usual))


def _not_tried(candidate: Candidate, reason: str) -> CandidateResult:
    return CandidateResult(
        candidate=candidate,
        measured=None,
        outcome=Outcome.NOT_TRIED,
        reason=reason,
        step_ns=None,
        losses=LossComparison(state=LossState.NOT_COMPARED, note=""),
    )


def _is_hopeless(candidate: Candidate) -> bool:
    forecast = candidate.forecast
    return forecast is not None and forecast.speedup < WORTHWHILE


def _most_promising(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Give those to try, best forecast first; without forecasts the order stays as it is."""
    ranked = sorted(
        candidates, key=lambda one: -(one.forecast.speedup if one.forecast else 1.0)
    )
    return tuple(ranked[:MAX_CANDIDATES])


def _best_combination(
    singles: Sequence[Candidate], joined: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Give the combination that is forecast to gain most, if that is more than any single change gains."""
    best_single = max(
        (one.forecast.speedup for one in singles if one.forecast), default=1.0
    )
    hopeful = [
        one
        for one in joined
        if one.forecast is not None and one.forecast.speedup > WORTHWHILE * best_single
    ]
    best = max(
        hopeful, key=lambda one: one.forecast.speedup if one.forecast else 0.0, default=None
    )
    return () if best is None else (best,)


def _why_nothing(verdict: Verdict) -> str:
    if verdict.limit is Limit.DEVICE:
        return "the device is the limit: no setting of the loader could help"
    return "no setting that can be injected is forecast to gain anything"


def _no_steps(recording: Recording, words: str) -> WhyidleError:
    rank = recording.rank
    seen = len(rank.steps) if rank is not None else 0
    return WhyidleError(
        f"the recorded run took {seen} steps from a torch DataLoader in {format_ns(recording.wall_ns)}; "
        f"trials need some dozens{_quoted(words)}",
        slug="try-no-steps",
        hint="Give it more time with --minutes, or more data. `whyidle doctor` tells what can be observed here.",
    )


def _quoted(words: str) -> str:
    return f". Its last line: {words.splitlines()[-1]}" if words else ""
