"""A function and its replacement on one screen: equal or not, how much faster, what the training gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from whyidle.model.proof import ProofOutcome
from whyidle.units import format_ns, format_ratio
from whyidle.views import drawing
from whyidle.views.screen import ACCENT, SECOND, Screen

if TYPE_CHECKING:
    from whyidle.model.proof import CaptureCounts, Findings, Proof, Timing

_LITTLE_QUEUED = 1.05
"""Wall times are shown too when they are longer than this by the wait for a CPU."""
MAX_REASONS = 4


def render_proof(proof: Proof, *, width: int = 80, color: bool, blocks: bool = True) -> str:
    """Write a proof for a terminal.

    Args:
        proof: What to show.
        width: Columns; no line is longer.
        color: With colour codes. Nothing is said by colour alone.
        blocks: With block characters; False: ASCII only.
    """
    screen = Screen(width, drawing.BLOCKS if blocks else drawing.ASCII)
    style = ACCENT if proof.outcome is ProofOutcome.FASTER else SECOND
    margin = Text.assemble((f"{screen.glyphs.margin} ", style))
    screen.add(screen.wrap(say_outcome(proof), margin, margin))
    screen.add(_functions(proof, screen))
    screen.add(_capture(proof.capture, screen))
    for label, findings in (
        ("different", proof.different),
        ("not again", proof.not_reproduced),
        ("unknown", proof.not_comparable),
    ):
        screen.add(_examples(label, findings, screen))
    if proof.timing is not None:
        screen.add(_timing(proof.timing, screen))
    screen.add(_gain(proof, screen))
    return screen.render(color)


def say_outcome(proof: Proof) -> str:
    """Say the outcome in a sentence or two."""
    checked, timing = proof.capture.checked, proof.timing
    speed = "" if timing is None else f"{timing.speedup:.3g}x"
    match proof.outcome:
        case ProofOutcome.FASTER:
            return f"NEW is equal to OLD on {checked} captured calls, and {speed} as fast.{_whole(proof)}"
        case ProofOutcome.NOT_FASTER:
            return f"NEW is equal to OLD on {checked} captured calls, but not faster ({speed})."
        case ProofOutcome.DIFFERENT:
            return f"NEW is not equal to OLD: {proof.different.count} of {checked} captured calls differ."
        case ProofOutcome.UNDECIDED:
            count = proof.not_reproduced.count
            if not count:
                return (
                    f"Whether NEW is equal cannot be told for {proof.not_comparable.count} of {checked} "
                    "captured calls: nothing is known of how to compare their results."
                )
            return (
                f"Whether NEW is equal cannot be told: on {count} of {checked} captured calls OLD does not "
                "give again what it gave in the training. It is random or has a state that is not in its arguments."
            )


def _whole(proof: Proof) -> str:
    if proof.forecast is None:
        return ""
    gain = proof.forecast
    return f" The training would run {gain.speedup:.2f}x as fast ({gain.low:.2f} to {gain.high:.2f})."


def _functions(proof: Proof, screen: Screen) -> list[Text]:
    lines = []
    for label, name in (("OLD", proof.old), ("NEW", proof.new)):
        lines += screen.row(label, screen.shorten(name, screen.content_cells))
    tolerance = f"numbers with a fraction within {proof.atol:g} + {proof.rtol:g} of the value, all else exactly"
    return lines + screen.row("equal", tolerance)


def _capture(counts: CaptureCounts, screen: Screen) -> list[Text]:
    said = [
        f"{counts.kept} of {counts.calls} calls kept, {counts.checked} checked",
        f"a call took {format_ns(counts.mean_wall_ns)} in the training, {format_ns(counts.mean_cpu_ns)} on a CPU",
    ]
    if counts.raised:
        said.append(f"{counts.raised} calls raised an exception and were not kept")
    if counts.drew_random:
        said.append(
            f"{counts.drew_random} calls drew global random numbers: replayed from the state before each"
        )
    if counts.changed_arguments:
        said.append(
            f"{counts.changed_arguments} calls changed their arguments in place: these are compared too"
        )
    said += [
        f"{count} calls: {effect}; not undone, not compared"
        for effect, count in counts.effects.items()
    ]
    said += [
        f"{count} calls not kept: {reason}"
        for reason, count in list(counts.refused.items())[:MAX_REASONS]
    ]
    return _listed("calls", said, screen)


def _examples(label: str, findings: Findings, screen: Screen) -> list[Text]:
    said = list(findings.examples)
    if findings.count > len(said):
        said.append(f"and {findings.count - len(said)} more")
    return _listed(label, said, screen)


def _timing(timing: Timing, screen: Screen) -> list[Text]:
    times = f"OLD {format_ns(timing.old_ns)}, NEW {format_ns(timing.new_ns)} a call"
    speedup = f"{timing.speedup:.3g}x, 90 % interval {timing.low:.3g} to {timing.high:.3g}"
    how = f"{timing.processes} process(es) at once, as in the training; {timing.rounds} rounds of both, in turns"
    lines = screen.row("speed", f"{times}: {speedup}") + screen.row("", how)
    if timing.old_wall_ns > timing.old_ns * _LITTLE_QUEUED:
        walls = f"OLD {format_ns(timing.old_wall_ns)}, NEW {format_ns(timing.new_wall_ns)}"
        lines += screen.row("", f"with the wait for a free CPU: {walls}")
    return lines


def _gain(proof: Proof, screen: Screen) -> list[Text]:
    if proof.forecast is not None:
        gain = proof.forecast
        shorter = format_ratio(1 - 1 / gain.speedup) if gain.speedup > 1 else "no"
        said = (
            f"{gain.speedup:.2f}x as many steps a second, 90 % interval {gain.low:.2f} to {gain.high:.2f} "
            f"({gain.basis}): {shorter} shorter steps"
        )
        return screen.row("training", said)
    if proof.forecast_missing:
        return screen.row("training", f"no forecast: {proof.forecast_missing}")
    return []


def _listed(label: str, said: list[str], screen: Screen) -> list[Text]:
    lines: list[Text] = []
    for at, one in enumerate(said):
        lines += screen.row(label if not at else "", one)
    return lines
