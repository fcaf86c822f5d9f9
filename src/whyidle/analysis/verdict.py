"""Tables → Verdict: the one entrance to analysis."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.align import build_timeline
from whyidle.analysis.blame import blame_rank
from whyidle.analysis.contention import Contention, assess_contention
from whyidle.analysis.derivative import deal_by_effect, is_decisive, state_difference
from whyidle.analysis.evidence import gather_evidence
from whyidle.analysis.idle import IdleSplit, split_idle
from whyidle.analysis.loader_model import Label, Withheld
from whyidle.analysis.outside import judge_outside
from whyidle.analysis.path import walk_path
from whyidle.analysis.prescribe import prescribe
from whyidle.analysis.regimes import (
    Stance,
    find_stance,
    main_steps,
    main_worker_count,
    regime_of,
)
from whyidle.analysis.rules.case import Case, no_sources
from whyidle.analysis.sentence import write_sentence
from whyidle.analysis.splits import split_workers
from whyidle.analysis.workload import build_model
from whyidle.model.findings import (
    Activity,
    Cause,
    Limit,
    NotObserved,
    RunSummary,
    Verdict,
    WorkerSplit,
)

if TYPE_CHECKING:
    from whyidle.analysis.ledger import Blame
    from whyidle.analysis.loader_model import LoaderModel
    from whyidle.analysis.rules.case import SourceReader
    from whyidle.model.events import RunTables
    from whyidle.model.findings import Place, Regime
    from whyidle.model.timeline import IntArray, RankTimeline, Timeline

DEVICE_BOUND_IDLE_RATIO = 0.05
"""The device is the limit when no cause could save more than this part of a step ..."""
ALMOST_BUSY_IDLE_RATIO = 0.1
"""... and it is busy for at least 0.9 of the time (the pass mark of MLPerf Storage)."""
UNEXPLAINED_RATIO = 0.1
"""With more of the idle time unexplained the verdict is withheld (ARCHITECTURE §6)."""
MIN_STEPS = 8
"""Fewer steps behind the warm-up are too few to judge."""
SMALL_SHARE = 0.01
"""A cause below this part of the idle time joins the largest one of its activity."""

PLAIN_NOTES = frozenset(("ended-at-bound", "remedy-applied"))
"""Notes of the agent that tell what it did, not what it missed."""

LIMIT_OF_ACTIVITY = {Activity.COPY: Limit.TRANSFER, Activity.COLLECTIVE: Limit.PEERS}
"""Activities with a limit of their own; all others are the loader's (input) or the loop's (host)."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One rank, judged."""

    rank: RankTimeline
    split: IdleSplit
    stance: Stance
    contention: Contention
    blames: list[Blame]
    workers: tuple[WorkerSplit, ...]
    model: LoaderModel | Withheld
    """The loader as a simulation, its parts named by the blames; or why there is none."""


def judge(run: RunTables, read_source: SourceReader = no_sources) -> Verdict:
    """Give the verdict of a recorded run.

    Args:
        run: Tables as store gives them.
        read_source: Gives the text of a source file, for what prescriptions say about code.

    Returns:
        A Verdict; `unresolved` with the reason when the records do not carry one.
    """
    return judge_timeline(build_timeline(run), run, read_source)


def judge_timeline(
    timeline: Timeline, run: RunTables, read_source: SourceReader | None = no_sources
) -> Verdict:
    """Give the verdict of an aligned run.

    Args:
        timeline: The run.
        run: Says what was run and what could not be observed.
        read_source: As for `judge`; None: without prescriptions.
    """
    ranks = [rank for rank in timeline.ranks if len(rank.steps)]
    if not ranks:
        return judge_outside(timeline, run, _summary(ranks, run))
    judged = [_judge_rank(timeline, rank) for rank in ranks]
    idle_ns = sum(one.split.idle.total_ns() for one in judged)
    window_ns = sum(one.rank.window_ns for one in judged)
    idle_ratio = idle_ns / window_ns if window_ns else None
    is_long_enough = sum(_step_count(one.rank) for one in judged) >= MIN_STEPS
    causes = _causes(judged, idle_ns) if is_long_enough else ()
    unexplained = (
        _unexplained_ratio(judged, idle_ns) if is_long_enough else float(idle_ns > 0)
    )
    limit = _limit(judged, idle_ratio, unexplained, causes[0].share if causes else 0.0)
    step_ns = np.concatenate([_step_lengths(one.rank) for one in judged])
    verdict = Verdict(
        run=_summary(ranks, run),
        limit=limit,
        sentence="",
        step_median_ns=int(np.median(step_ns)) if len(step_ns) else None,
        step_p90_ns=int(np.percentile(step_ns, 90)) if len(step_ns) else None,
        idle_ratio=idle_ratio,
        unexplained_ratio=unexplained,
        causes=causes,
        prescriptions=(),
        not_observed=_not_observed(timeline, run, judged),
        workers=tuple(split for one in judged for split in one.workers),
        idle_series=_mean_series(judged),
    )
    verdict = replace(verdict, sentence=write_sentence(verdict))
    return verdict if read_source is None else _prescribe(verdict, judged, read_source)


def _prescribe(
    verdict: Verdict, judged: list[_Judged], read_source: SourceReader
) -> Verdict:
    """Prescribe for the rank with the most idle time: what helps it helps the others that wait for it."""
    one = max(judged, key=lambda it: it.split.idle.total_ns())
    numbers = one.rank.steps.iteration[main_steps(one.rank)]
    case = Case(
        limit=verdict.limit,
        causes=verdict.causes,
        rank=one.rank,
        loader=one.rank.iterations.get(int(numbers[-1])) if len(numbers) else None,
        stance=one.stance,
        contention=one.contention,
        torch=verdict.run.torch,
        read_source=read_source,
    )
    return prescribe(verdict, case, one.model)


def _judge_rank(timeline: Timeline, rank: RankTimeline) -> _Judged:
    contention = assess_contention(timeline, rank)
    split = split_idle(rank, contention.reason)
    blames = blame_rank(timeline, rank, split, walk_path(rank), contention)
    blames = _fold_small(_join_equal(blames), split.idle.total_ns())
    labels = dict.fromkeys(Label(blame.activity, blame.where) for blame in blames)
    model = build_model(timeline, rank, list(labels))
    if not isinstance(model, Withheld) and is_decisive(model, contention):
        blames = deal_by_effect(model, blames, contention)
    return _Judged(
        rank,
        split,
        find_stance(timeline, rank, contention),
        contention,
        blames,
        split_workers(rank),
        model,
    )


def _causes(judged: list[_Judged], idle_ns: int) -> tuple[Cause, ...]:
    """Join equal blames of all ranks, largest first; small ones join the largest of their activity."""
    if idle_ns <= 0:
        return ()
    groups: dict[tuple[Activity, Regime, Place], list[tuple[_Judged, Blame]]] = defaultdict(
        list
    )
    for one in judged:
        for blame in _fold_small(_join_equal(one.blames), idle_ns):
            if blame.activity is not Activity.UNEXPLAINED:
                key = (
                    blame.activity,
                    regime_of(blame, one.stance, one.contention),
                    blame.where,
                )
                groups[key].append((one, blame))
    causes = []
    for (activity, regime, where), members in groups.items():
        one, blame = max(members, key=lambda member: member[1].idle_ns)
        total = sum(member.idle_ns for _, member in members)
        path_share = _path_share([member for _, member in members], idle_ns)
        causes.append(
            Cause(
                activity=activity,
                regime=regime,
                share=total / idle_ns,
                path_share=path_share,
                idle_ns=round(total),
                where=where
                if len(judged) == 1 or len(members) > 1
                else replace(where, rank=one.rank.rank),
                evidence=(
                    *gather_evidence(
                        replace(blame, idle_ns=total),
                        regime,
                        one.rank,
                        one.stance,
                        one.contention,
                        one.workers,
                    ),
                    *state_difference(total / idle_ns, path_share),
                ),
            )
        )
    return tuple(sorted(causes, key=lambda cause: -cause.share))


def _path_share(blames: list[Blame], idle_ns: int) -> float | None:
    """Share by the critical path; None where no part of the cause was dealt out otherwise."""
    if all(one.path_ns is None for one in blames):
        return None
    path_ns = sum(one.idle_ns if one.path_ns is None else one.path_ns for one in blames)
    return path_ns / idle_ns


def _join_equal(blames: list[Blame]) -> list[Blame]:
    """Join entries that say the same, so that none is small only because it is in pieces."""
    joined: dict[Blame, float] = defaultdict(float)
    for blame in blames:
        joined[replace(blame, idle_ns=0.0)] += blame.idle_ns
    return [replace(blame, idle_ns=idle_ns) for blame, idle_ns in joined.items()]


def _fold_small(blames: list[Blame], idle_ns: int) -> list[Blame]:
    largest: dict[tuple[Activity, bool], Blame] = {}
    for blame in sorted(blames, key=lambda one: -one.idle_ns):
        largest.setdefault((blame.activity, blame.is_periodic), blame)
    kept: dict[int, Blame] = {}
    for blame in sorted(blames, key=lambda one: -one.idle_ns):
        head = largest[blame.activity, blame.is_periodic]
        if blame is head or blame.idle_ns >= SMALL_SHARE * idle_ns:
            kept[id(blame)] = blame
        else:
            before = kept[id(head)]
            kept[id(head)] = replace(before, idle_ns=before.idle_ns + blame.idle_ns)
    return list(kept.values())


def _unexplained_ratio(judged: list[_Judged], idle_ns: int) -> float:
    if idle_ns <= 0:
        return 0.0
    unnamed = sum(
        blame.idle_ns
        for one in judged
        for blame in one.blames
        if blame.activity is Activity.UNEXPLAINED
    )
    return float(unnamed / idle_ns)


def _limit(
    judged: list[_Judged],
    idle_ratio: float | None,
    unexplained: float,
    largest_share: float,
) -> Limit:
    steps = sum(_step_count(one.rank) for one in judged)
    if idle_ratio is None or steps < MIN_STEPS:
        return Limit.UNRESOLVED
    saved_ratio = idle_ratio * max(largest_share, unexplained)
    if idle_ratio < ALMOST_BUSY_IDLE_RATIO and saved_ratio < DEVICE_BOUND_IDLE_RATIO:
        return Limit.DEVICE
    if unexplained > UNEXPLAINED_RATIO:
        return Limit.UNRESOLVED
    sides: dict[Limit, float] = defaultdict(float)
    for one in judged:
        for blame in one.blames:
            side = Limit.INPUT if blame.is_input else Limit.HOST
            sides[LIMIT_OF_ACTIVITY.get(blame.activity, side)] += blame.idle_ns
    return max(sides, key=lambda limit: sides[limit])


def _step_lengths(rank: RankTimeline) -> IntArray:
    """From each ask of the main loader to the next one of the same iteration."""
    chosen = main_steps(rank)
    same = np.diff(rank.steps.iteration[chosen]) == 0
    return np.asarray(np.diff(rank.steps.ask_ns[chosen])[same], dtype=np.int64)


def _step_count(rank: RankTimeline) -> int:
    return int(main_steps(rank).sum())


def _mean_series(judged: list[_Judged]) -> tuple[float, ...]:
    series = [one.split.series for one in judged if one.split.series]
    return tuple(np.mean(series, axis=0).round(4).tolist()) if series else ()


def _summary(ranks: list[RankTimeline], run: RunTables) -> RunSummary:
    first = ranks[0] if ranks else None
    journal = next((info for info in run.journals if first and info.pid == first.pid), None)
    anything = next((info for info in run.journals if info.role == "agent"), None)
    info = journal or anything
    return RunSummary(
        command=tuple(run.manifest.get("command") or ()),
        steps=sum(_step_count(rank) for rank in ranks),
        warmup_steps=sum(rank.warmup_steps for rank in ranks),
        ranks=len(ranks),
        duration_ns=max((rank.window_ns for rank in ranks), default=0),
        python=info.python if info else None,
        torch=info.torch if info else None,
        device_kind=first.device_kind if first else "cpu",
        device_name=first.device_name if first else None,
        exit_status=run.manifest.get("exit_status"),
        ended_by=run.manifest.get("ended_by"),
        workers=main_worker_count(first) if first else None,
    )


def _not_observed(
    timeline: Timeline, run: RunTables, judged: list[_Judged]
) -> tuple[NotObserved, ...]:
    """Collect what launcher, agents and analysis could not see, each once."""
    found = {
        entry["slug"]: NotObserved(slug=entry["slug"], reason=entry["reason"])
        for entry in run.manifest.get("not_observed") or ()
    }
    for slug, message in run.tables["note"].select("slug", "message").iter_rows():
        if slug not in PLAIN_NOTES:
            found.setdefault(str(slug), NotObserved(slug=str(slug), reason=str(message)))
    dropped = sum(info.dropped_count for info in run.journals)
    if dropped:
        found["records-dropped"] = NotObserved(
            slug="records-dropped",
            reason=f"{dropped} records were left out to bound the run folder: places rest on fewer samples",
        )
    if timeline.left_out_trainings:
        found["other-trainings"] = NotObserved(
            slug="other-trainings",
            reason=f"the command trained {timeline.left_out_trainings + 1} times, one after the other: "
            "this is the verdict of the longest",
        )
    for one in judged:
        steps = _step_count(one.rank)
        if steps < MIN_STEPS:
            found["few-steps"] = NotObserved(
                slug="few-steps",
                reason=f"only {steps} steps after warm-up: at least {MIN_STEPS} are needed for a verdict",
            )
        if not len(one.rank.stack_samples):
            found["no-stacks"] = NotObserved(
                slug="no-stacks",
                reason="no stack samples were taken: causes have no file and line",
            )
    return tuple(found.values())
