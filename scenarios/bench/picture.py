"""The picture of docs/truth.md: how often each tool is right, and forecasts beside measurements. Plain SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from xml.sax.saxutils import escape

from scenarios.bench.stats import Estimate

WIDTH = 790
ROW = 26
LABELS = 120
BARS = 170
GAP = 36
SIDE = 300
TICKS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
COLOURS = {"limit": "#8f8f8f", "activity": "#3b76af", "place": "#c26a1b"}
STYLE = (
    "text{font:12px sans-serif;fill:#777}.name{font-weight:bold}"
    ".axis{stroke:#999;stroke-width:1}.whisker{stroke:#444;stroke-width:1}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How often one tool is right about each part, first answer."""

    name: str
    parts: dict[str, Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One forecast, both as steps a second after over before."""

    forecast: float
    measured: float
    is_code: bool


def draw(bars: Sequence[Bar], dots: Sequence[Dot]) -> str:
    """Give the picture; the lower half is left out without forecasts."""
    top = 40 + ROW * len(bars)
    height = top + (SIDE + 70 if dots else 10)
    body = [*bar_panel(bars), *(dot_panel(dots, top + 30) if dots else [])]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
    )
    title = "<title>How often each tool is right, and forecasts beside measurements</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *body, "</svg>", ""])


def bar_panel(bars: Sequence[Bar]) -> list[str]:
    """Draw a row for each tool, a column for each part."""
    found = []
    for column, part in enumerate(COLOURS):
        left = LABELS + column * (BARS + GAP)
        found.append(text(left, 18, f"first {part} right" if column else "limit right"))
        for row, bar in enumerate(bars):
            found += one_bar(left, 30 + row * ROW, bar.parts.get(part), COLOURS[part])
    for row, bar in enumerate(bars):
        found.append(text(0, 30 + row * ROW + 13, bar.name, "name"))
    return found


def one_bar(left: float, top: float, part: Estimate | None, colour: str) -> list[str]:
    """Draw a bar with its interval."""
    if part is None:
        return [text(left, top + 13, "says nothing of it")]
    low, high = left + part.low * BARS, left + part.high * BARS
    middle = top + 9
    return [
        f'<rect x="{left}" y="{top}" width="{BARS}" height="18" fill="{colour}" opacity="0.12"/>',
        f'<rect x="{left}" y="{top}" width="{part.value * BARS:.1f}" height="18" fill="{colour}"/>',
        f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
        text(left + BARS + 3, top + 13, f"{part.value * 100:.0f}"),
    ]


def dot_panel(dots: Sequence[Dot], top: float) -> list[str]:
    """Draw measured gain over forecast gain, both logarithmic, with the diagonal."""
    left = LABELS
    found = [
        text(
            left, top - 6, "measured gain (upwards) over forecast gain; on the line: right"
        ),
        f'<rect x="{left}" y="{top}" width="{SIDE}" height="{SIDE}" fill="none" class="axis"/>',
        f'<line class="axis" x1="{left}" y1="{top + SIDE}" x2="{left + SIDE}" y2="{top}"/>',
    ]
    for tick in TICKS:
        x, y = left + scaled(tick), top + SIDE - scaled(tick)
        found += [
            text(x - 8, top + SIDE + 16, f"{tick:g}×"),
            text(left - 34, y + 4, f"{tick:g}×"),
        ]
    for dot in dots:
        x, y = left + scaled(dot.forecast), top + SIDE - scaled(dot.measured)
        colour = COLOURS["place"] if dot.is_code else COLOURS["activity"]
        found.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" opacity="0.7"/>'
        )
    beside = left + SIDE + 20
    found += [
        f'<circle cx="{beside}" cy="{top + 16}" r="4" fill="{COLOURS["activity"]}"/>',
        text(beside + 10, top + 20, "loader argument changed"),
        f'<circle cx="{beside}" cy="{top + 36}" r="4" fill="{COLOURS["place"]}"/>',
        text(beside + 10, top + 40, "cause removed"),
    ]
    return found


def scaled(gain: float) -> float:
    """Give the place of a gain on an axis; what lies beyond its ends is drawn there."""
    within = min(max(gain, TICKS[0]), TICKS[-1])
    return (log10(within) - log10(TICKS[0])) / (log10(TICKS[-1]) - log10(TICKS[0])) * SIDE


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Give words."""
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{name}>{escape(words)}</text>'
