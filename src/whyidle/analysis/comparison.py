"""Two judged runs → Comparison: whether the later one is faster, by how much, and which causes changed.

NOTE [block bootstrap]
    Steps of a loader are not independent: a slow batch is felt by the steps behind it, and a machine has slow
    minutes. Whole blocks of neighbouring steps are drawn instead, wrapping around at the end, so that what lies
    within a block stays together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from whyidle.analysis.contention import assess_contention
from whyidle.analysis.idle import split_idle
from whyidle.analysis.intervals import covered_ns
from whyidle.analysis.regimes import main_steps
from whyidle.analysis.sentence import name_cause
from whyidle.analysis.verdict import MIN_STEPS
from whyidle.model.comparison import CauseChange, Comparison, Difference, Speedup, Trend
from whyidle.model.findings import Activity, Limit, Place
from whyidle.units import format_ns, format_ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from whyidle.model.findings import Verdict
    from whyidle.model.timeline import IntArray, Iteration, RankTimeline, Timeline

    FloatArray = NDArray[np.float64]

RESAMPLES = 2000
"""The ends of a 90 % interval then rest on 100 draws each."""
INTERVAL = (5.0, 95.0)
"""Percentiles of a 90 % interval, as forecasts have it."""
BLOCK_COUNT = 20
"""Blocks a run is cut into at most: each then holds a twentieth of it, slow stretches of a machine included ..."""
MIN_BLOCK_COUNT = 5
"""... and at least, where the queue is so long that blocks would have to be longer."""
REPEAT_RATIO = 0.03
"""Two runs of the same training differ by this much without any reason that a run could show: where files lie in
memory, which core is warm (seen: 2.47 of 78.7 ms). A smaller difference is not called real, nor a cause changed."""
GONE_RATIO = 0.1
"""Left of a cause that is called gone, at most; the samples of an ended cause do not vanish to the last one."""
OTHER_CPUS_CHANGE = 0.25
"""CPUs' worth of other programs' work more, or less, that has to be said (a desktop takes 0.05 to 0.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """The steps of one run, of all its ranks, (steps,) each, in order."""

    step_ns: IntArray
    """From each ask of the main loader to its next one, epoch starts included."""
    idle_ns: IntArray
    """Idle time of the device in it."""
    queue_length: int
    """Batches that the loader makes ahead."""
    batch_size: int
    """-1: not known, or not fixed."""
    other_cpus: float | None
    """CPUs' worth of time used by other programs; None when not observed."""


def sample_steps(timeline: Timeline) -> StepSamples:
    """Measure the steps of a run; none when the run has no steps."""
    ranks = [rank for rank in timeline.ranks if len(rank.steps)]
    pairs = [_steps_of(timeline, rank) for rank in ranks]
    none = [np.empty(0, dtype=np.int64)]
    iteration = next(
        (one for rank in ranks for one in [_main_iteration(rank)] if one is not None), None
    )
    return StepSamples(
        step_ns=np.concatenate([step_ns for step_ns, _ in pairs] or none),
        idle_ns=np.concatenate([idle_ns for _, idle_ns in pairs] or none),
        queue_length=max(1, iteration.workers * iteration.prefetch) if iteration else 1,
        batch_size=iteration.batch_size if iteration else -1,
        other_cpus=assess_contention(timeline, ranks[0]).other_cpus if ranks else None,
    )


def has_enough_steps(samples: StepSamples) -> bool:
    """Tell whether a mean of these steps means anything."""
    return len(samples.step_ns) >= MIN_STEPS - 1


def compare_runs(
    before: tuple[Verdict, StepSamples], after: tuple[Verdict, StepSamples]
) -> Comparison:
    """Compare two runs that both have enough steps."""
    (old, old_steps), (new, new_steps) = before, after
    old_unit, new_unit, per = _units(old_steps, new_steps)
    rng = np.random.default_rng(0)
    old_step, old_idle = (one / old_unit for one in _resample(old_steps, rng))
    new_step, new_idle = (one / new_unit for one in _resample(new_steps, rng))
    old_step_ns, new_step_ns = (
        old_steps.step_ns.mean() / old_unit,
        new_steps.step_ns.mean() / new_unit,
    )
    old_idle_ns, new_idle_ns = (
        old_steps.idle_ns.mean() / old_unit,
        new_steps.idle_ns.mean() / new_unit,
    )
    floor_ns = REPEAT_RATIO * old_step_ns
    causes = _cause_changes(
        _idle_by_cause(old, old_idle_ns),
        _idle_by_cause(new, new_idle_ns),
        floor_ns=floor_ns,
        scale=len(old_steps.step_ns) * old_unit,
    )
    foreign_ns = sum(one.change_ns for one in causes if one.where.process is not None)
    comparison = Comparison(
        before=old,
        after=new,
        sentence="",
        per=per,
        step=_difference(
            old_step_ns, new_step_ns, new_step - old_step, floor_ns, foreign_ns
        ),
        idle=_difference(
            old_idle_ns, new_idle_ns, new_idle - old_idle, floor_ns, foreign_ns
        ),
        idle_ratio=_difference(
            old_idle_ns / old_step_ns,
            new_idle_ns / new_step_ns,
            new_idle / new_step - old_idle / old_step,
            REPEAT_RATIO,
            foreign_ns / old_step_ns,
        ),
        speedup=_speedup(old_step_ns / new_step_ns, old_step / new_step),
        causes=causes,
        caveats=(*_caveats(before, after), *_say_foreign(foreign_ns, floor_ns, per)),
    )
    return replace(comparison, sentence=_write_sentence(comparison))


def idle_interval(samples: StepSamples) -> tuple[float, float]:
    """Give the 90 % interval of the idle ratio of one run."""
    step_ns, idle_ns = _resample(samples, np.random.default_rng(0))
    low, high = np.percentile(idle_ns / step_ns, INTERVAL)
    return float(low), float(high)


def step_interval(samples: StepSamples) -> tuple[float, float]:
    """Give the 90 % interval of the mean step time of one run, ns."""
    step_ns, _ = _resample(samples, np.random.default_rng(0))
    low, high = np.percentile(step_ns, INTERVAL)
    return float(low), float(high)


def _steps_of(timeline: Timeline, rank: RankTimeline) -> tuple[IntArray, IntArray]:
    asks = rank.steps.ask_ns[main_steps(rank)]
    starts, ends = asks[:-1], asks[1:]
    idle = split_idle(rank, assess_contention(timeline, rank).reason).idle
    return ends - starts, covered_ns(idle, starts, ends)


def _main_iteration(rank: RankTimeline) -> Iteration | None:
    numbers = rank.steps.iteration[main_steps(rank)]
    return rank.iterations.get(int(numbers[0])) if len(numbers) else None


def _units(before: StepSamples, after: StepSamples) -> tuple[int, int, str]:
    """Steps are compared with steps, unless they hold different numbers of samples."""
    sizes = before.batch_size, after.batch_size
    if min(sizes) > 0 and sizes[0] != sizes[1]:
        return (*sizes, "sample")
    return 1, 1, "step"


def _resample(
    samples: StepSamples, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw means of step and idle time, (RESAMPLES,) ns each; see NOTE [block bootstrap]."""
    count, length = len(samples.step_ns), _block_length(samples)
    firsts = rng.integers(0, count, (RESAMPLES, math.ceil(count / length)))
    return (
        _block_sums(samples.step_ns, length)[firsts].mean(axis=1) / length,
        _block_sums(samples.idle_ns, length)[firsts].mean(axis=1) / length,
    )


def _block_sums(values: IntArray, length: int) -> IntArray:
    """Add up the block that begins at each step, (steps,) int64; blocks wrap around at the end."""
    summed = np.concatenate(([0], np.cumsum(np.concatenate((values, values[:length])))))
    return np.asarray(summed[length : length + len(values)] - summed[: len(values)])


def _block_length(samples: StepSamples) -> int:
    count = len(samples.step_ns)
    wanted = max(math.ceil(count / BLOCK_COUNT), 2 * samples.queue_length)
    return max(1, min(wanted, count // MIN_BLOCK_COUNT))


def _difference(
    before: float, after: float, drawn: FloatArray, floor: float, foreign: float
) -> Difference:
    """Judge a change; `foreign` is the part of it that other programs are to blame for, and proves nothing."""
    low, high = map(float, np.percentile(drawn, INTERVAL))
    change = after - before
    excludes_zero = low - foreign > 0 or high - foreign < 0
    return Difference(
        before=float(before),
        after=float(after),
        change=float(change),
        low=low,
        high=high,
        is_real=bool(
            excludes_zero
            and abs(change - foreign) > floor
            and change * (change - foreign) > 0
        ),
    )


def _speedup(value: float, drawn: FloatArray) -> Speedup:
    low, high = np.percentile(drawn, INTERVAL)
    return Speedup(value=float(value), low=float(low), high=float(high))


_Key = tuple[Activity, "str | None", "str | None", "str | None", "str | None", "int | None"]


def _key(activity: Activity, where: Place) -> _Key:
    """What makes two causes the same: lines move and folders are copied, names of files and functions stay."""
    file = PurePath(where.file).name if where.file else None
    name = where.transform or where.function
    return activity, file, name, where.mount, where.process, where.rank


def _idle_by_cause(verdict: Verdict, idle_ns: float) -> dict[_Key, tuple[Place, float]]:
    """Share the idle time of a mean step out among the causes and the unexplained rest."""
    parts = [(one.activity, one.where, one.share) for one in verdict.causes]
    parts.append((Activity.UNEXPLAINED, Place(), verdict.unexplained_ratio))
    found: dict[_Key, tuple[Place, float]] = {}
    for activity, where, share in parts:
        key = _key(activity, where)
        first, before_ns = found.get(key, (where, 0.0))
        found[key] = first, before_ns + share * idle_ns
    return found


def _cause_changes(
    before: dict[_Key, tuple[Place, float]],
    after: dict[_Key, tuple[Place, float]],
    *,
    floor_ns: float,
    scale: int,
) -> tuple[CauseChange, ...]:
    changes = []
    for key in {**before, **after}:
        old_place, old_ns = before.get(key, (Place(), 0.0))
        new_place, new_ns = after.get(key, (old_place, 0.0))
        if old_ns or new_ns:
            changes.append(
                CauseChange(
                    activity=key[0],
                    where=new_place,
                    before_ns=old_ns,
                    after_ns=new_ns,
                    scaled_change_ns=(new_ns - old_ns) * scale,
                    trend=_trend(old_ns, new_ns, floor_ns),
                )
            )
    return tuple(sorted(changes, key=lambda one: -abs(one.change_ns)))


def _trend(before_ns: float, after_ns: float, floor_ns: float) -> Trend:
    if abs(after_ns - before_ns) <= floor_ns:
        return Trend.SAME
    if after_ns < before_ns:
        return Trend.GONE if after_ns <= GONE_RATIO * before_ns else Trend.SMALLER
    return Trend.NEW if before_ns <= GONE_RATIO * after_ns else Trend.LARGER


def _caveats(
    before: tuple[Verdict, StepSamples], after: tuple[Verdict, StepSamples]
) -> list[str]:
    """Say what else differs between the runs than what was meant to."""
    (old, old_steps), (new, new_steps) = before, after
    said = []
    if old.run.device_kind != new.run.device_kind:
        said.append(
            f"another device: {old.run.device_kind} before, {new.run.device_kind} after"
        )
    if old.run.ranks != new.run.ranks:
        said.append(
            f"another number of ranks: {old.run.ranks} before, {new.run.ranks} after"
        )
    if old_steps.batch_size != new_steps.batch_size:
        said.append(
            f"another batch size: {old_steps.batch_size} before, {new_steps.batch_size} after"
        )
    others = old_steps.other_cpus, new_steps.other_cpus
    if (
        others[0] is not None
        and others[1] is not None
        and abs(others[1] - others[0]) > OTHER_CPUS_CHANGE
    ):
        said.append(
            f"other programs used {others[0]:.1f} CPUs before and {others[1]:.1f} after"
        )
    for name, verdict in (("before", old), ("after", new)):
        if verdict.limit is Limit.UNRESOLVED:
            said.append(f"the run {name} is unresolved: its causes are not sure")
    return said


def _say_foreign(foreign_ns: float, floor_ns: float, per: str) -> list[str]:
    if abs(foreign_ns) <= floor_ns:
        return []
    word = "less" if foreign_ns < 0 else "more"
    theirs = (
        f"{format_ns(abs(foreign_ns))} of the change a {per} is theirs and proves nothing"
    )
    return [f"other programs held the training up {word}: {theirs}"]


def _write_sentence(comparison: Comparison) -> str:
    """Tell the story: how much faster, what went, what limits now."""
    return f"{_say_step(comparison)}{_say_gone(comparison)}{_say_limit(comparison)}"


def _say_step(comparison: Comparison) -> str:
    step, speedup, per = comparison.step, comparison.speedup, comparison.per
    times = f"{format_ns(step.after)} a {per} instead of {format_ns(step.before)}"
    if not step.is_real:
        return (
            f"No real difference in speed: {times}, and two runs of the same training "
            "may differ as much."
        )
    word = "Faster" if step.change < 0 else "Slower"
    return (
        f"{word}: {speedup.value:.2f} times the {per}s per second "
        f"[{speedup.low:.2f}, {speedup.high:.2f}], {times}."
    )


def _say_gone(comparison: Comparison) -> str:
    """Name the cause that shrank most, if one did."""
    went = [
        one
        for one in comparison.causes
        if one.trend in (Trend.GONE, Trend.SMALLER) and one.where.process is None
    ]
    if not went or not comparison.step.is_real or comparison.step.change > 0:
        return ""
    first = went[0]
    name = name_cause(first.activity, replace(first.where, line=None))
    before, after = format_ns(first.before_ns), format_ns(first.after_ns)
    if first.trend is Trend.GONE:
        return f" Gone is {name}: {before} of idle time a {comparison.per}, now {after}."
    return f" What shrank most is {name}: from {before} to {after} of idle time a {comparison.per}."


def _say_limit(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    idle = format_ratio(comparison.idle_ratio.after)
    if after.limit is Limit.DEVICE:
        return f" The device is the limit now: it is idle {idle} of the time."
    if after.limit is Limit.UNRESOLVED or not after.causes:
        return f" What limits now is unresolved; the device is idle {idle} of the time."
    first = after.causes[0]
    still = "still" if after.limit is before.limit else "now"
    return (
        f" The limit is {still} {after.limit.value}, with the device idle {idle} of the time: "
        f"{format_ratio(first.share)} of that is {name_cause(first.activity, first.where)}."
    )
