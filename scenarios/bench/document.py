"""docs/truth.md: what was measured, in tables, with what is wrong by name."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.bench.about_forecasts import forecast_section
from scenarios.bench.about_runs import (
    METHOD,
    Circumstances,
    circumstances_section,
    noise_section,
)
from scenarios.bench.about_verdicts import (
    failure_section,
    share_section,
    tools_section,
    verdict_section,
)
from scenarios.bench.aims import targets_section
from scenarios.bench.cells import Cell
from scenarios.bench.gains import Gain, gains
from scenarios.bench.picture import Bar, Dot, draw
from scenarios.bench.tables import prose
from scenarios.bench.tools import TOOLS
from scenarios.bench.verdicts import score

PICTURE = "truth.svg"


def write(cells: Sequence[Cell], facts: Circumstances) -> tuple[str, str]:
    """Give docs/truth.md and its picture."""
    found = gains(cells)
    lines = [
        *head(cells, facts),
        *targets_section(cells, found),
        *verdict_section(cells),
        *tools_section(cells),
        *share_section(cells),
        *forecast_section(cells, found),
        *noise_section(cells),
        *failure_section(cells),
        *circumstances_section(facts),
        METHOD,
    ]
    return "\n".join(lines), picture(cells, found)


def head(cells: Sequence[Cell], facts: Circumstances) -> list[str]:
    """Say what this is."""
    names = {cell.scenario.name for cell in cells}
    healthy = {cell.scenario.name for cell in cells if not cell.scenario.causes}
    several = {cell.scenario.name for cell in cells if len(cell.scenario.causes) > 1}
    return [
        "# How often whyidle is right",
        "",
        f"Written by `{facts.command}` on {facts.date}; do not edit. Anyone can run it again.",
        "",
        prose(
            f"{len(names)} training scripts with known causes, {len(several)} of them with several at once,",
            f"{len(healthy)} with nothing wrong; {len(cells)} scripts × settings, {facts.runs} runs.",
            "What is planted is in [scenarios/](../scenarios/README.md); what removing it gains is measured here.",
        ),
        "",
        f"![How often each tool is right]({PICTURE})",
        "",
    ]


def picture(cells: Sequence[Cell], found: Sequence[Gain]) -> str:
    """Draw all tools and all forecasts."""
    arms = {f"tool:{name}": name for name in TOOLS}
    shared = [cell for cell in cells if any(arm in cell.arms for arm in arms)] or list(
        cells
    )
    bars = [Bar(name="whyidle", parts=score(shared, "with").first)]
    for arm, name in arms.items():
        scores = score(shared, arm)
        if scores.runs:
            bars.append(Bar(name=name, parts=scores.first))
    dots = [
        Dot(
            forecast=it.forecast["speedup"], measured=it.measured, is_code=it.kind == "code"
        )
        for it in found
    ]
    return draw(bars, dots)
