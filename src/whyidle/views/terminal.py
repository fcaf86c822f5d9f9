"""A verdict as one screen of text: what, how much, where, why, how sure."""

from __future__ import annotations

import contextlib
import shlex
import signal
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from whyidle.analysis.sentence import CLOSE_RATIO
from whyidle.model.findings import Limit
from whyidle.units import format_ns, format_ratio
from whyidle.views import drawing, words
from whyidle.views.place import draw_place
from whyidle.views.prescriptions import draw_prescriptions
from whyidle.views.redaction import HIDDEN, redact_verdict
from whyidle.views.screen import ACCENT, LABEL_CELLS, QUIET, SECOND, Screen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

    from whyidle.model.findings import Cause, Verdict, WorkerSplit

MAX_CAUSES = 4
"""More are named with their sum: the fifth cause is not what to begin with."""
MIN_SHARE = 0.03
"""Causes below this part of the idle time are named with their sum."""
MAX_WORKERS = 4
"""More workers are summed up: their mean, the one that works most and the one that works least."""
MAX_MISSING = 4
EVIDENCE_COUNT = (2, 1)
"""Pieces of evidence of the first and the second cause."""
MIN_UNEXPLAINED_RATIO = 0.005
NUMBERS_WIDTH = 56
"""Below this width the workers' numbers do not fit beside their bars."""

LIMIT_STYLES = {Limit.DEVICE: ACCENT, Limit.UNRESOLVED: QUIET}
"""A limit that is none of these is something to mend."""
SPLIT_STYLES = (ACCENT, SECOND, "color(175)", QUIET)
SPLIT_LEGENDS = ("on CPU", "no CPU free", "blocked", "idle")


def render_verdict(
    verdict: Verdict,
    *,
    width: int = 80,
    color: bool,
    redact: bool = False,
    blocks: bool = True,
    folder: PurePath | None = None,
) -> str:
    """Write a verdict for a terminal.

    Args:
        verdict: What to show.
        width: Columns; no line is longer.
        color: With colour codes. Nothing is said by colour alone.
        redact: Hide the folders of all paths.
        blocks: With block characters; False: ASCII only.
        folder: The run folder, to say how to show it again.
    """
    shown = redact_verdict(verdict) if redact else verdict
    screen = Screen(width, drawing.BLOCKS if blocks else drawing.ASCII)
    for section in (
        _heading(shown, screen),
        _summary(shown, screen),
        _causes(shown, screen),
        draw_prescriptions(shown, screen),
        _workers(shown.workers, screen),
        _missing(shown, screen),
        _again(None if redact else folder, screen),
    ):
        screen.add(section)
    return screen.render(color)


def _heading(verdict: Verdict, screen: Screen) -> list[Text]:
    """The verdict, beside a margin."""
    style = LIMIT_STYLES.get(verdict.limit, SECOND)
    margin = Text.assemble((f"{screen.glyphs.margin} ", style))
    gloss = f"  ({words.LIMIT_WORDS[verdict.limit]})"
    limit = Text.assemble((f"limit: {verdict.limit.value}", f"bold {style}"), gloss)
    return [
        Text.assemble(margin, limit),
        *screen.wrap(verdict.sentence, margin, margin),
    ]


def _quote(word: str) -> str:
    """Write a word as a shell reads it; what stands for hidden folders needs no quotes."""
    bare = word.replace(HIDDEN, "")
    return word if shlex.quote(bare) == bare else shlex.quote(word)


def _summary(verdict: Verdict, screen: Screen) -> list[Text]:
    command = " ".join(map(_quote, verdict.run.command))
    lines = screen.row("command", screen.shorten(command, screen.content_cells))
    lines += _idle(verdict, screen)
    if verdict.step_median_ns is not None:
        lines += screen.row("step", _describe_steps(verdict))
        lines += screen.row("device", _describe_device(verdict))
    ended = describe_end(verdict.run.exit_status, verdict.run.ended_by)
    return lines + (screen.row("ended", ended) if ended else [])


def _idle(verdict: Verdict, screen: Screen) -> list[Text]:
    if verdict.idle_ratio is None:
        return screen.row("idle", "not known")
    said = f"{format_ratio(verdict.idle_ratio)} of {format_ns(verdict.run.duration_ns)}"
    cells = screen.content_cells - cell_len(said) - 2
    drawn = drawing.draw_series(verdict.idle_series, cells, screen.glyphs)
    gap = "  " if drawn else ""
    return screen.row(
        "idle", Text.assemble((drawn, SECOND), gap, (screen.clean(said), "bold"))
    )


def _describe_steps(verdict: Verdict) -> str:
    run = verdict.run
    said = f"{format_ns(verdict.step_median_ns or 0)} median"
    if verdict.step_p90_ns is not None:
        said += f", {format_ns(verdict.step_p90_ns)} p90"
    said += f"; {count(run.steps, 'step')}"
    if run.ranks > 1:
        said += f" of {run.ranks} ranks"
    if run.warmup_steps:
        said += f" behind {run.warmup_steps} of warm-up (left out)"
    return said


def _describe_device(verdict: Verdict) -> str:
    run = verdict.run
    name = f" ({run.device_name})" if run.device_name else ""
    match run.device_kind:
        case "simulated":
            said = f"simulated, no real accelerator{name}"
        case "cpu":
            said = "none; the loop outside next() counts as busy"
        case kind:
            said = f"{kind}{name}"
    if run.workers is None:
        return said
    return f"{said}; {count(run.workers, 'loader worker')}"


def describe_end(exit_status: int | None, ended_by: str | None = None) -> str:
    """Say how the training ended, if that needs to be said.

    >>> describe_end(137)
    'by SIGKILL (exit status 137); seen is what came before'
    >>> describe_end(0), describe_end(0, "steps")
    ('', 'at the --steps bound: code behind the loop did not run')
    """
    if exit_status is None:
        return "not seen: still running, or whyidle was stopped before it"
    if exit_status == 0 and ended_by in ("steps", "seconds"):
        return f"at the --{ended_by} bound: code behind the loop did not run"
    if exit_status == 0:
        return ""
    said = f"with exit status {exit_status}"
    with contextlib.suppress(ValueError):
        said = f"by {signal.Signals(exit_status - 128).name} (exit status {exit_status})"
    return f"{said}; seen is what came before"


def count(number: int, noun: str) -> str:
    """Write a number of things.

    >>> count(1, "step"), count(20, "step")
    ('1 step', '20 steps')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _causes(verdict: Verdict, screen: Screen) -> list[Text]:
    if not verdict.causes and verdict.unexplained_ratio < MIN_UNEXPLAINED_RATIO:
        return []
    shown = [one for one in verdict.causes[:MAX_CAUSES] if one.share >= MIN_SHARE]
    is_device = verdict.limit is Limit.DEVICE
    lines, said = _cause_titles(screen, verdict.run.ranks), set[str]()
    for at, cause in enumerate(shown):
        is_close = at == 1 and not is_device and cause.share >= CLOSE_RATIO * shown[0].share
        lines += _cause_row(at, cause, screen, is_close=is_close)
        lines += draw_place(cause.where, screen)
        if at < len(EVIDENCE_COUNT) and not is_device:
            lines += _reasons(cause, EVIDENCE_COUNT[at], said, screen)
    return lines + _rest(verdict, verdict.causes[len(shown) :], screen)


def _bar_cells(screen: Screen) -> int:
    return min(max(screen.width // 6 - 1, 6), 16)


def _cause_titles(screen: Screen, ranks: int) -> list[Text]:
    bar = _bar_cells(screen)
    idle_for = "idle for" if ranks == 1 else "all ranks"
    titles = f"{'of idle time':>{bar + 6}}{idle_for:>10}"
    return [Text(f"{'why':<{LABEL_CELLS}}{titles}", style=QUIET)]


def _numbers(share: float, idle_ns: int | None, style: str, screen: Screen) -> Text:
    """Bar, share and seconds, all in columns."""
    bar = _bar_cells(screen)
    drawn = drawing.draw_bar(share, bar, screen.glyphs)
    seconds = screen.clean(format_ns(idle_ns)) if idle_ns is not None else ""
    return Text.assemble(
        (f"{drawn:<{bar}}", style), (f"{format_ratio(share):>6}{seconds:>10}  ", "bold")
    )


def _cause_row(at: int, cause: Cause, screen: Screen, *, is_close: bool) -> list[Text]:
    numbers = _numbers(cause.share, cause.idle_ns, SECOND, screen)
    title = Text.assemble((words.ACTIVITY_WORDS[cause.activity], "bold"))
    if is_close:
        title.append("  (close behind)", style=f"bold {ACCENT}")
    first = Text.assemble((f"{f'cause {at + 1}':<{LABEL_CELLS}}", QUIET), numbers)
    return screen.wrap(title, first, " " * first.cell_len)


def _reasons(
    cause: Cause, evidence_count: int, said: set[str], screen: Screen
) -> list[Text]:
    """Regime and evidence in words; what another cause has `said` already is not said again."""
    indent = " " * LABEL_CELLS
    bullet = Text.assemble((f"{indent}{screen.glyphs.bullet} ", QUIET))
    lines = []
    regime = words.explain_cause(cause)
    if regime not in said:
        lines += screen.wrap(regime, indent, indent)
    for one in cause.evidence[:evidence_count]:
        if one.text not in said:
            lines += screen.wrap(one.text, bullet, f"{indent}  ")
    said.update((regime, *(one.text for one in cause.evidence[:evidence_count])))
    return lines


def _rest(verdict: Verdict, others: Sequence[Cause], screen: Screen) -> list[Text]:
    """What completes the shares to 1, in one row: small causes, and what has no cause."""
    unexplained = verdict.unexplained_ratio
    is_shown = unexplained >= MIN_UNEXPLAINED_RATIO
    if others:
        share, idle_ns = (
            sum(one.share for one in others),
            sum(one.idle_ns for one in others),
        )
        numbers = _numbers(share, idle_ns, QUIET, screen)
        also = f"; {format_ratio(unexplained)} unexplained" if is_shown else ""
        said = f"{len(others)} more{also}"
    elif is_shown:
        numbers, said = _numbers(unexplained, None, QUIET, screen), "unexplained"
    else:
        return []
    first = Text.assemble(" " * LABEL_CELLS, numbers)
    return screen.wrap(said, first, " " * first.cell_len)


def _workers(splits: Sequence[WorkerSplit], screen: Screen) -> list[Text]:
    if not splits:
        return []
    has_ranks = any(one.rank != splits[0].rank for one in splits)
    label = "workers" if len(splits) <= MAX_WORKERS else f"{len(splits)} workers"
    legends = [
        f"{glyph} {legend}"
        for glyph, legend in zip(screen.glyphs.split, SPLIT_LEGENDS, strict=True)
    ]
    columns = [len(one) + 2 for one in legends] if screen.width >= NUMBERS_WIDTH else []
    bar = max(screen.content_cells - sum(columns), 4)
    if columns:
        lines = [Text(f"{label:<{LABEL_CELLS + bar}}  {'  '.join(legends)}", style=QUIET)]
    else:
        lines = screen.row(label, Text("  ".join(legends), style=QUIET))
    for name, ratios in _worker_rows(splits, has_ranks=has_ranks):
        line = Text.assemble((f"{name:<{LABEL_CELLS}}", QUIET))
        cells = drawing.split_cells(ratios, bar)
        for glyph, length, style in zip(
            screen.glyphs.split, cells, SPLIT_STYLES, strict=True
        ):
            line.append(glyph * length, style=style)
        for ratio, column in zip(ratios, columns, strict=False):
            line.append(f"{format_ratio(ratio):>{column}}")
        lines.append(line)
    return lines


def _worker_rows(
    splits: Sequence[WorkerSplit], *, has_ranks: bool
) -> list[tuple[str, list[float]]]:
    """Name and four parts of each worker, or of three that stand for many."""
    if len(splits) <= MAX_WORKERS:
        return [
            (f"r{one.rank} w{one.worker}" if has_ranks else f"{one.worker}", _parts(one))
            for one in splits
        ]
    parts = [_parts(one) for one in splits]
    by_idle = sorted(parts, key=lambda one: one[3])
    mean = [sum(column) / len(parts) for column in zip(*parts, strict=True)]
    return [("mean", mean), ("busiest", by_idle[0]), ("idlest", by_idle[-1])]


def _parts(one: WorkerSplit) -> list[float]:
    return [one.on_cpu_ratio, one.cpu_queue_ratio, one.blocked_ratio, one.idle_ratio]


def _missing(verdict: Verdict, screen: Screen) -> list[Text]:
    if not verdict.not_observed:
        return []
    lines = [Text.assemble(("not observed", QUIET))]
    for one in verdict.not_observed[:MAX_MISSING]:
        lines += screen.wrap(f"{one.slug}: {one.reason}", "  ", "    ")
    left = len(verdict.not_observed) - MAX_MISSING
    if left > 0:
        lines.append(Text(f"  and {left} more: whyidle report --json"))
    return lines


def _again(folder: PurePath | None, screen: Screen) -> list[Text]:
    if folder is None:
        return []
    return screen.row("again", f"whyidle report {shlex.quote(str(folder))}")
