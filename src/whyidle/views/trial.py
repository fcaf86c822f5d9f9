"""What trials found, on one screen: what to keep, every change's forecast beside its measurement, how sure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.text import Text

from whyidle.model.remedies import describe_settings, loader_arguments, other_lines
from whyidle.model.trial import LossState, Outcome, TrialState
from whyidle.units import format_ns, format_ratio
from whyidle.views import drawing
from whyidle.views.screen import ACCENT, QUIET, SECOND, Screen

if TYPE_CHECKING:
    from pathlib import PurePath

    from whyidle.model.findings import Forecast
    from whyidle.model.trial import CandidateResult, Ratio, TrialReport

NOTABLE_CPUS = 0.2
"""Others below it are not worth a word: an idle system uses some hundredths of a CPU."""
OUTCOME_WORDS = {
    Outcome.PROVEN: "proven",
    Outcome.NO_GAIN: "no gain",
    Outcome.SLOWER: "slower",
    Outcome.UNPROVEN: "not proven",
    Outcome.FAILED: "failed",
    Outcome.NOT_APPLIED: "not applied",
    Outcome.NOT_TRIED: "not tried",
}
STATE_WORDS = {
    TrialState.COMPLETE: "",
    TrialState.OUT_OF_TIME: "the time was over before everything was known",
    TrialState.INTERRUPTED: "interrupted: this is what was known by then",
    TrialState.NOTHING_TO_TRY: "no trial was run",
    TrialState.FAILED: "the unchanged training failed in a trial, so nothing can be compared any more",
    TrialState.RUNNING: "the trials are not over",
}


def render_trials(
    report: TrialReport,
    *,
    width: int = 80,
    color: bool,
    blocks: bool = True,
    folder: PurePath | None = None,
) -> str:
    """Write a report of trials for a terminal.

    Args:
        report: What to show.
        width: Columns; no line is longer.
        color: With colour codes. Nothing is said by colour alone.
        blocks: With block characters; False: ASCII only.
        folder: Folder of the try, to say where everything is.
    """
    screen = Screen(width, drawing.BLOCKS if blocks else drawing.ASCII)
    screen.add(_heading(report, screen))
    screen.add(_summary(report, screen))
    for result in report.results:
        screen.add(_result(result, screen))
    screen.add(_keep(report, folder, screen))
    screen.add(_certainty(report, folder, screen))
    return screen.render(color)


def headline(report: TrialReport) -> str:
    """Say the outcome in one sentence."""
    best = report.best
    if best is None or best.measured is None:
        tried = sum(one.measured is not None for one in report.results)
        if not tried and any(one.disturbed_pairs for one in report.results):
            return "Nothing proven: others disturbed every pair. Try again on a quieter machine."
        if tried == 0:
            return f"Nothing proven: {report.note or STATE_WORDS[report.state] or 'no trial was run'}."
        return f"Nothing proven: of {tried} change{'s' if tried > 1 else ''} tried, none is surely faster."
    said = (
        f"Proven: {best.measured.speedup:.2f} times as fast with {describe_settings(best.candidate.settings)} "
        f"(90 % interval {_between(best.measured)}, {best.measured.pairs} pairs)."
    )
    if best.losses.state is LossState.CHANGED:
        said += " It changes the losses."
    return said


def _heading(report: TrialReport, screen: Screen) -> list[Text]:
    margin = Text.assemble((f"{screen.glyphs.margin} ", ACCENT if report.best else QUIET))
    return screen.wrap(headline(report), margin, margin)


def _summary(report: TrialReport, screen: Screen) -> list[Text]:
    command = screen.shorten(shlex.join(report.command), screen.content_cells)
    lines = screen.row("command", command)
    if report.sentence:
        lines += screen.row("recorded", report.sentence)
    if report.unchanged_step_ns is not None:
        said = f"{format_ns(report.unchanged_step_ns)} a step"
        if report.noise_ratio is not None:
            said += (
                f"; unchanged runs in a row differ by {format_ratio(report.noise_ratio)}"
            )
        lines += screen.row("unchanged", said)
    return lines


def _result(result: CandidateResult, screen: Screen) -> list[Text]:
    name = describe_settings(result.candidate.settings)
    word = OUTCOME_WORDS[result.outcome]
    style = {Outcome.PROVEN: ACCENT, Outcome.SLOWER: SECOND, Outcome.FAILED: SECOND}
    title = Text.assemble(
        (name, "bold"), "  ", (word, f"bold {style.get(result.outcome, QUIET)}")
    )
    if result.reason:
        title.append(screen.clean(f": {result.reason}"))
    lines = screen.row("trial", title)
    lines += screen.row("", _numbers(result, screen))
    if result.step_ns is not None and result.losses.note:
        lines += screen.row(
            "", Text(screen.clean(f"losses {result.losses.note}"), _loss_style(result))
        )
    return lines


def _loss_style(result: CandidateResult) -> str:
    return SECOND if result.losses.state is LossState.CHANGED else QUIET


def _numbers(result: CandidateResult, screen: Screen) -> str:
    forecast = result.candidate.forecast
    if forecast is None:
        said = f"no forecast: {result.candidate.forecast_missing}"
    else:
        said = f"forecast {_describe(forecast)}"
    if result.measured is None:
        return said
    said += f"  measured {_describe(result.measured)}"
    if result.is_hit is not None:
        said += "  hit" if result.is_hit else "  miss"
    pairs = result.measured.pairs
    said += f"; {pairs} pair{'s' if pairs != 1 else ''}"
    if result.step_ns is not None:
        said += f", {format_ns(result.step_ns)} a step"
    return screen.clean(said)


def _describe(ratio: Forecast | Ratio) -> str:
    return f"{ratio.speedup:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _between(ratio: Ratio) -> str:
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def _keep(report: TrialReport, folder: PurePath | None, screen: Screen) -> list[Text]:
    """What to write into the script; beside it the best that leaves the losses alone, if that is another."""
    best = report.best
    if best is None:
        return []
    lines = _how_to(best, report, "keep", screen)
    if folder is not None and loader_arguments(best.candidate.settings):
        lines += screen.row(
            "", f"whyidle fix {shlex.quote(str(folder))}  shows it as a patch"
        )
    calm = [
        one
        for one in report.results
        if one.outcome is Outcome.PROVEN and one.losses.state is not LossState.CHANGED
    ]
    if best.losses.state is LossState.CHANGED and calm:
        second = max(calm, key=lambda one: one.measured.speedup if one.measured else 0.0)
        lines += screen.row("or", "with losses as they are:")
        lines += _how_to(second, report, "", screen)
    return lines


def _how_to(
    result: CandidateResult, report: TrialReport, label: str, screen: Screen
) -> list[Text]:
    settings = result.candidate.settings
    said = []
    if arguments := loader_arguments(settings):
        loader = report.loader
        if loader is not None and loader.file is not None:
            place = screen.shorten(f"{loader.file}:{loader.line}", screen.content_cells)
            said.append(Text(place, ACCENT))
        said.append(Text(f"DataLoader(..., {arguments})", "bold"))
    said += [Text(screen.clean(line)) for line in other_lines(settings)]
    lines: list[Text] = []
    for at, one in enumerate(said):
        lines += screen.row(label if at == 0 else "", one)
    return lines


def _certainty(report: TrialReport, folder: PurePath | None, screen: Screen) -> list[Text]:
    lines = []
    disturbed = sum(one.disturbed_pairs for one in report.results)
    others = report.other_cpus
    said = []
    if others is not None and others >= NOTABLE_CPUS:
        said.append(f"others used {others:.1f} CPUs on average")
    if disturbed:
        said.append(
            f"{disturbed} pair{'s' if disturbed > 1 else ''} disturbed by others, not counted, tried again"
        )
    if said:
        lines += screen.row("machine", "; ".join(said))
    state = STATE_WORDS[report.state]
    notes = [one for one in (state, report.note) if one]
    runs = len(report.blocks)
    used = f"{runs} run{'s' if runs != 1 else ''} in {format_ns(report.used_ns)}"
    lines += screen.row("ended", "; ".join([used, *notes]))
    if folder is not None:
        where = screen.shorten(str(folder), screen.content_cells)
        lines += screen.row("folder", where)
    return lines
